"""FlashSAC by hand-computed values, on the point on a line, and as a bundle."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.cli.main import main
from robot_rl.errors import UserError
from robot_rl.learn.algorithms.flashsac.config import FlashSACCfg, FlashSACLearnerCfg
from robot_rl.learn.algorithms.flashsac.flashsac import HeldNoise, keep_transitions
from robot_rl.learn.algorithms.flashsac.layers import Trunk, UnitBatchNorm, UnitLinear
from robot_rl.learn.algorithms.flashsac.networks import BoundedTanh, project_target
from robot_rl.learn.checkpoints.checkpoint import (
    good_checkpoint,
    list_checkpoints,
    load_checkpoint,
    load_replay,
    load_worlds,
    replay_files,
    save_checkpoint,
)
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.policy import make_policy
from robot_rl.learn.replay import Replay
from robot_rl.learn.rollout import make_rollout
from robot_rl.learn.trainer import Trainer
from tests.covering import chosen

from ..conftest import PointEnv

SMALL = FlashSACCfg(
    gamma=0.8,
    batch=64,
    replay=6400,
    warm_up=256,
    policy_width=16,
    critic_width=16,
    bins=21,
    learning_rate=1e-3,
    tau=0.05,
)


def make_cfg(**settings):
    flash = {key: settings.pop(key) for key in list(settings) if hasattr(SMALL, key)}
    return FlashSACLearnerCfg(num_steps=8, stagger_episodes=False, flashsac=replace(SMALL, **flash), **settings)


def test_the_target_is_projected_onto_the_bins():
    values, probs = torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.5, 0.0, 0.5]])
    found = project_target(probs, values, torch.tensor([0.25, 0.5, 0.0]), torch.tensor([0.5, 0.5, 0.0]))
    # 0.25 is a quarter above 0; 0.5 + 0.5 = 1 is the last bin; without a next state all is at the reward.
    assert found.tolist() == [[0.0, 0.75, 0.25], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    outside = project_target(probs[:1], values, torch.tensor([7.0]), torch.tensor([1.0]))
    assert outside.tolist() == [[0.0, 0.0, 1.0]]


def make_ring(capacity=12, worlds=2, steps=4):
    """A ring where the observations count: step 10 t + world."""
    sizes = {"actor": 1, "critic": 1, "action": 1}
    ring, time = Replay(capacity, worlds, sizes, "cpu"), 0

    def add(done=(), time_out=(), invalid=()):
        nonlocal time
        rollout = make_rollout(steps, worlds, EnvSpec(**sizes), "cpu")
        for t in range(steps):
            for world in range(worlds):
                rollout.actor_obs[t, world] = rollout.critic_obs[t, world] = 10 * time + world
                rollout.reward[t, world] = time
            time += 1
        for (t, world), flag in [(at, rollout.done) for at in (*done, *time_out)] + [
            (at, rollout.time_out) for at in time_out
        ]:
            flag[t, world] = True
        for t, world in invalid:
            rollout.valid[t, world] = False
        keep_transitions(ring, rollout, torch.zeros(steps, worlds, 1))

    return ring, add


def drawn(ring, seed=0, size=4000, horizon=1):
    return ring.draw(size, torch.Generator().manual_seed(seed), 0.5, horizon)


def test_the_next_observation_is_that_of_the_next_step_also_around_the_ring():
    ring, add = make_ring()
    add()
    assert ring.size == 3
    for _ in range(3):
        add()
    batch = drawn(ring)  # Of 16 steps the last 6 are there; the newest has no next one.
    assert sorted(set(batch["actor"].flatten().tolist())) == [10.0 * t + w for t in range(10, 15) for w in (0, 1)]
    assert torch.equal(batch["next_actor"], batch["actor"] + 10.0)
    assert torch.equal(batch["next_critic"], batch["critic"] + 10.0)
    assert bool((batch["weight"] == 1.0).all())


def test_windows_are_steps_on_end_until_an_episode_does():
    ring, add = make_ring()
    add()
    add(done=[(1, 1)])
    windows = ring.draw_windows(400, 3, torch.Generator().manual_seed(0))
    first = windows["actor"][0]
    assert all(torch.equal(windows["actor"][t], first + 10.0 * t) for t in range(3))
    assert sorted(set(first.flatten().tolist())) == [10.0 * t + w for t in (2, 3, 4) for w in (0, 1)]
    assert torch.equal(windows["reward"], torch.floor(windows["actor"][..., 0] / 10.0))
    ended = windows["actor"][..., 0] == 51.0
    assert bool(ended.any())
    assert torch.equal(windows["goes_on"] == 0.0, ended.cumsum(0) > 0)
    assert len(ring.draw_windows(2, 50, torch.Generator())["reward"]) == ring.size


def test_what_the_clock_ended_and_what_was_quarantined_is_not_learned_from():
    ring, add = make_ring(capacity=40)
    add(done=[(0, 0)], time_out=[(1, 0)], invalid=[(2, 1)])
    add()
    batch = drawn(ring)
    weight = {float(obs): float(w) for obs, w in zip(batch["actor"], batch["weight"], strict=True)}
    assert weight[0.0] == 1.0  # The episode ended here: the next step does not count.
    assert weight[10.0] == 0.0  # It was cut short.
    assert weight[11.0] == 0.0  # The next observation was quarantined,
    assert weight[21.0] == 0.0  # as was this one.
    assert weight[31.0] == weight[20.0] == 1.0


def test_rewards_are_summed_up_to_the_end_of_the_episode_and_no_further_than_what_can_be_learned_from():
    ring, add = make_ring(capacity=16, steps=8)
    add(done=[(2, 0)], time_out=[(3, 1)])
    batch = drawn(ring, horizon=3)
    assert set((batch["actor"].flatten() // 10).tolist()) == {0.0, 1.0, 2.0, 3.0, 4.0}
    rows = {
        float(obs): [float(batch[key][k]) for key in ("reward", "discount", "next_actor", "weight")]
        for k, obs in enumerate(batch["actor"])
    }
    assert rows[40.0] == [4 + 5 / 2 + 6 / 4, 0.125, 70.0, 1.0]
    assert rows[0.0][:2] == [0 + 1 / 2 + 2 / 4, 0.0]  # The episode of world 0 ends with the third step,
    assert rows[20.0][:2] == [2.0, 0.0]  # and with the first one.
    assert rows[11.0] == [1 + 2 / 2, 0.25, 31.0, 1.0]  # World 1 is cut short at step 3: the value follows step 2.
    assert rows[31.0][3] == 0.0


def test_noise_is_held_and_its_lengths_fall_with_the_square():
    held = HeldNoise(4000, 1, 4, torch.Generator().manual_seed(0))
    noise = torch.randn(40, 4000, 1, generator=torch.Generator().manual_seed(1))
    held.hold(noise)
    changes = (noise[1:] != noise[:-1]).squeeze(-1)
    # The mean length of 1, 2, 3, 4 with weights 1, 1/4, 1/9, 1/16.
    expected = sum(k / k**2 for k in range(1, 5)) / sum(1 / k**2 for k in range(1, 5))
    assert 1.0 / float(changes.float().mean()) == pytest.approx(expected, rel=0.03)
    before = noise[-1].clone()
    after = torch.randn(1, 4000, 1)
    going_on = held.left > 0
    held.hold(after)
    assert torch.equal(after[0][going_on], before[going_on])  # Also from one rollout to the next.


def test_probabilities_are_those_of_actions_within_the_unit_range():
    distribution = BoundedTanh(2)
    distribution.set_range(torch.tensor([-3.0, 0.0]), torch.tensor([1.0, 2.0]))
    params = distribution.params(torch.tensor([[0.3, -0.2, 0.5, 0.1]]))
    raw = torch.tensor([[0.7, -1.1]])
    inner = torch.distributions.Normal(params[0], params[1].exp())
    exact = torch.distributions.TransformedDistribution(inner, torch.distributions.TanhTransform())
    torch.testing.assert_close(distribution.log_prob(raw, params), exact.log_prob(torch.tanh(raw)).sum(-1))
    far = distribution.to_env(torch.tensor([[100.0, -100.0]]))
    assert far.tolist() == [[1.0, 0.0]]
    torch.testing.assert_close(
        distribution.mode_of_out()(torch.tensor([[0.3, -0.2, 9.0, 9.0]])), distribution.mode(params)
    )


def test_weights_stay_on_their_spheres(tmp_path):
    runner = Trainer(PointEnv(), make_cfg(), run_dir=tmp_path)
    runner.train(8)
    assert int(runner.algorithm.steps) > 20
    for network in (runner.actor, runner.critic, runner.modules()["target"]):
        for layer in network.modules():
            if isinstance(layer, UnitLinear):
                torch.testing.assert_close(layer.weight.norm(dim=-1), torch.ones(layer.weight.shape[:2]))
            if isinstance(layer, UnitBatchNorm):
                length = (layer.scale.square() + layer.bias.square()).sum(-1)
                torch.testing.assert_close(length, torch.full_like(length, layer.scale.shape[-1]))


def test_the_exported_network_acts_as_the_policy():
    trunk = Trunk(1, 5, 3, width=8, blocks=2, expansion=4, generator=torch.Generator().manual_seed(0))
    x = torch.randn(200, 5, generator=torch.Generator().manual_seed(1)) * 2.0 + 1.0
    for _ in range(50):
        trunk.train()(x)  # Let the running statistics move.
    torch.testing.assert_close(trunk.dense()(x), trunk.eval()(x)[0], rtol=1e-5, atol=1e-5)


def test_an_action_limit_narrows_the_ranges_and_may_not_leave_one_empty(monkeypatch):
    env = make_env(get_task("go2_flat"), num_envs=2, num_threads=1)
    distribution = Trainer(env, make_cfg(max_action=1.0), seed=0).algorithm.actor.distribution
    assert torch.allclose(distribution.middle - distribution.reach, env.action_bounds[0].clamp(min=-1.0))
    monkeypatch.setattr(type(env), "action_bounds", (torch.full((12,), 2.0), torch.full((12,), 3.0)))
    with pytest.raises(UserError, match=r"max_action=1.0: leaves an action no range; give more than 2"):
        Trainer(env, make_cfg(max_action=1.0), seed=0)
    env.close()


@pytest.mark.parametrize("task", ["go2_flat", "humanoid_v5"])
def test_actions_span_what_the_environment_bounds_them_to(task):
    env = make_env(get_task(task), num_envs=2, num_threads=1)
    distribution = Trainer(env, make_cfg(critic_groups=("actor",)), seed=0).algorithm.actor.distribution
    low, high = env.action_bounds
    env.close()
    assert torch.allclose(distribution.middle - distribution.reach, low)
    assert torch.allclose(distribution.middle + distribution.reach, high)
    assert not torch.allclose(distribution.reach, torch.ones_like(low))


@pytest.mark.parametrize("symmetry", chosen(["none", "augment"], "none"))
def test_it_learns_the_point(symmetry):
    rows = []
    runner = Trainer(PointEnv(), make_cfg(symmetry=symmetry, updates=2.0, learning_rate=3e-3), observer=rows.append)
    runner.train(70)
    assert rows[2]["episode/return"] < -5.0
    assert rows[-1]["episode/return"] > -4.5  # Random actions are at -40, the best policy is at about -1.2.
    assert all(0.0 < row["policy/temperature"] < 1.0 for row in rows)


def test_the_policy_of_a_checkpoint_is_the_policy(tmp_path):
    runner = Trainer(PointEnv(), make_cfg(), run_dir=tmp_path)
    runner.train(8)
    obs = PointEnv(seed=5).get_observations()
    with torch.no_grad():
        assert torch.equal(make_policy(tmp_path)(obs), runner.actor.mean(obs["actor"]))


def test_a_checkpoint_of_an_earlier_version_has_the_replay_memory_among_its_tensors(tmp_path):
    runner = Trainer(PointEnv(), make_cfg(save_interval=2), run_dir=tmp_path)
    runner.train(2)
    path = runner.checkpoint
    tensors, meta = load_checkpoint(path)
    replay = load_replay(path)
    save_checkpoint(path, tensors | replay, meta, worlds=load_worlds(path))
    again = Trainer(PointEnv(), make_cfg(), run_dir=tmp_path)
    again.load(path)
    for name, tensor in again.algorithm.replay.state_dict().items():
        assert torch.equal(tensor, replay[f"replay.{name}"])
    assert int(again.algorithm.replay.counts.min()) == 2 * 8


def test_a_checkpoint_without_its_replay_memory_continues_with_an_empty_one(tmp_path):
    """Of three checkpoints the newest two are damaged."""
    runner = Trainer(PointEnv(), make_cfg(save_interval=4), run_dir=tmp_path)
    runner.train(12)
    newest = list_checkpoints(tmp_path)
    assert [len(replay_files(path)) for path in newest] == [0, 1, 1]
    for path in newest[1:]:
        (path / "replay.safetensors").unlink()
    lines = []
    chosen = good_checkpoint(tmp_path, lines.append)
    runner.load(chosen, tell=lines.append)
    assert [line.partition(": ")[2].partition(",")[0] for line in lines[:3]] == [
        "missing",
        "missing",
        "is without its replay memory",
    ]
    assert (runner.iteration, int(runner.algorithm.replay.counts.sum())) == (4, 0)
    runner.train(8)
    assert int(runner.algorithm.replay.counts.min()) == 4 * 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"symmetry": "network"}, "symmetry=network: learner=flashsac lacks symmetric networks; use augment or none"),
        ({"converter": "a:b"}, "converter=a:b: learner=flashsac takes none"),
        ({"replay": 100}, "flashsac.replay=100: is less than a rollout of 8 steps of 64 worlds; give at least 576"),
        ({"batch": 1}, "batch=1: must be in"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(settings, message):
    with pytest.raises(UserError) as error:
        Trainer(PointEnv(), make_cfg(**settings))
    assert str(error.value).startswith(message)


TINY = ("num_envs=4", "num_steps=4", "num_threads=1", "flashsac.batch=16", "flashsac.warm_up=16", "flashsac.replay=400")


@pytest.mark.long
def test_from_the_command_line_it_trains_and_exports_a_bundle(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "task=go2_flat", "learner=flashsac", "run_id=a", "max_iterations=4", *TINY]) == 0
    output = capsys.readouterr().err
    assert "replay memory: 400 transitions, 0 MB in the newest two checkpoints (flashsac.replay)" in output
    assert main(["export", "run=go2_flat/a"]) == 0
    rows = [json.loads(line) for line in Path("runs/go2_flat/a/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["loss/critic"] > 0.0
    meta = json.loads(next(Path("runs/go2_flat/a/checkpoints").glob("*4/meta.json")).read_text())
    assert meta["learner"]["name"] == "flashsac"
    assert "ppo" not in meta["learner"]
