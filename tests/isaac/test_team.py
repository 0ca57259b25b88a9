"""Isaac Lab's environment of several agents, a cart with two poles: its rows, its ends, training and its learning."""

import json

import pytest
import torch

from robot_rl.sources.isaaclab.task import IsaacTask

pytestmark = pytest.mark.isaac
NAME = "Isaac-Pendulum-MARL-Direct"
TINY = ("num_envs=4", "num_steps=8", "max_iterations=2", "ppo.minibatches=2", "actor.hidden=[8]", "critic.hidden=[8]")


def test_rows_and_rewards_are_those_of_isaac_labs_own_step(make):
    generator = torch.Generator().manual_seed(0)
    actions = torch.rand(4, 3, 2, generator=generator) * 0.4 - 0.2
    task = IsaacTask(name=f"isaac/{NAME}", assets="own")
    lab, after = task.make_lab_env(3, seed=5, cfg=task.load_cfg(3))
    wanted = []
    with after:
        lab.reset()
        for action in actions:
            obs, reward, *_ = lab.step({"cart": action[:, :1], "pendulum": action[:, 1:]})
            wanted.append({name: (obs[name].clone(), reward[name].clone()) for name in ("cart", "pendulum")})
    env = make(NAME, num_envs=3, seed=5)
    assert (env.agents, env.num_envs, env.num_actions) == (("cart", "pendulum"), 6, 1)
    for action, found in zip(actions, wanted, strict=True):
        obs, reward, done, _ = env.step(action.reshape(6, 1))
        rows, rewards = obs["policy"].view(3, 2, 4), reward.view(3, 2)
        for place, (name, width) in enumerate((("cart", 4), ("pendulum", 3))):
            seen, earned = found[name]
            assert torch.equal(rows[:, place, :width], seen)
            assert torch.equal(rewards[:, place], earned)
        assert not rows[:, 1, 3].any()
        state = torch.cat((found["cart"][0], found["pendulum"][0]), dim=1)
        assert torch.equal(obs["state"], state.repeat_interleave(2, dim=0))
        assert not done.any()


def test_a_world_ends_for_both_with_its_last_observation_and_state(make):
    env = make(NAME, num_envs=3)
    last = env.max_episode_length - 3
    env.episode_length_buf = torch.tensor([0, 0, last, last, 0, 0])
    push = torch.zeros(6, 1)
    push[4] = 4.0
    ended = {}
    for step in range(60):
        obs, _, done, extras = env.step(push)
        assert done.view(3, 2)[:, 0].equal(done.view(3, 2)[:, 1])
        assert all(torch.isfinite(obs[name]).all() for name in ("policy", "state"))
        final = extras["final_obs"]
        assert torch.equal(final["policy"].view(3, 8)[:, :7], final["state"].view(3, 2, 7)[:, 0])
        for world in done.view(3, 2)[:, 0].nonzero().ravel().tolist():
            ended.setdefault(world, (step, bool(extras["time_outs"][2 * world]), final["policy"][2 * world].clone()))
            assert abs(obs["policy"][2 * world, 0]) < 0.1
    assert ended[1][:2] == (1, True)
    _, timed_out, seen = ended[2]
    assert not timed_out
    assert abs(seen[0]) > 3.0 or abs(seen[2]) > 1.5


@pytest.mark.parametrize("words", [(), ("view=own", "critic_groups=[policy]")])
def test_it_trains_and_is_evaluated_but_not_exported(run, tmp_path, words):
    code, out, err = run("train", f"task=isaac/{NAME}", "assets=own", "run_id=tiny", *TINY, *words)
    assert code == 0, err
    assert "4 worlds, isaaclab on cpu, seed 1, 2 iterations" in out
    folder = tmp_path / "runs" / f"isaac-{NAME}" / "tiny"
    assert "learner: mappo\n" in (folder / "run.yaml").read_text()
    if words:
        return
    code, _, err = run("resume", "tiny", "max_iterations=3", "env.episode_length_s=0.5")
    assert code == 0, err
    code, _, err = run("eval", "run=tiny", "episodes=4")
    assert code == 0, err
    assert json.loads((folder / "eval.json").read_text())["torch"]["length"]["mean"] <= 30
    code, _, err = run("export", "run=tiny")
    assert (code, err.count("\n")) == (2, 1)
    assert f"export: isaac/{NAME} has 2 agents (cart, pendulum)" in err


@pytest.mark.long
def test_its_return_improves(run, tmp_path):
    words = ("num_envs=64", "num_steps=32", "max_iterations=25", "run_id=learns")
    code, _, err = run("train", f"task=isaac/{NAME}", "assets=own", *words)
    assert code == 0, err
    lines = (tmp_path / "runs" / f"isaac-{NAME}" / "learns" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert all("Metrics/success_rate" in row for row in rows if row["episodes"])
    returns = [row["episode/return"] for row in rows if row["episodes"]]
    assert sum(returns[-5:]) > 2 * sum(returns[:5])
