"""Properties of every registered task, whoever wrote it."""

import json
import math

import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_envs.task import TorchTerm
from robot_rl_envs.terms import SIGNALS
from robot_rl_tasks.registry import get_task

from robot_rl.evaluation import evaluation_task


def actions_at(step, env):
    return torch.randn(env.num_envs, env.num_actions, generator=torch.Generator().manual_seed(step))


def tensors_of(obs, reward, dones, extras):
    """All that a step returns, by name."""
    named = {f"obs/{name}": value for name, value in obs.items()}
    named |= {f"final/{name}": value for name, value in extras["final_obs"].items()}
    return named | {"reward": reward, "dones": dones, "time_outs": extras["time_outs"], "valid": extras["valid"]}


def parts_of(env):
    """The environment itself, or of a team those of its roles."""
    return list(env.crews.values())


def acted(out):
    """Where a robot took part in a step: everywhere but in a team, some of which may be parked."""
    return out[3].get("acted", torch.ones_like(out[2]))


def ended_with(out):
    """Where a world's episode ended with a step; in a team not where one robot dropped out."""
    return out[3].get("ended", out[2])


def test_fifty_random_steps_are_finite_and_of_the_declared_shape(env, task_name):
    assert env.cfg.name == task_name
    assert env.max_episode_length == round(env.cfg.episode_length_s / env.step_dt)
    shapes = {name: tuple(tensor.shape[1:]) for name, tensor in env.reset().items()}
    assert len(shapes["actor"]) == 1
    assert {name: shape for name, shape in shapes.items() if len(shape) != 1} == {
        name: group.shape for name, group in env.cfg.images.items()
    }
    for step in range(50):
        out = env.step(actions_at(step, env))
        for name, value in tensors_of(*out).items():
            kind, _, group = name.partition("/")
            shape = (env.num_envs, *shapes[group]) if kind in ("obs", "final") else (env.num_envs,)
            assert value.shape == shape, name
            assert torch.isfinite(value.float()).all(), name
        assert out[2].dtype == out[3]["time_outs"].dtype == torch.bool
        assert torch.equal(out[3]["valid"], acted(out))
        assert not (out[3]["time_outs"] & ~out[2]).any(), "a time-out that is no end"
        assert (env.episode_length_buf[ended_with(out)] == 0).all()


def test_the_metrics_are_finite_and_name_every_term(build):
    env = build()
    env.episode_length_buf = torch.full((env.num_envs,), env.max_episode_length - 20)
    for step in range(25):
        env.step(actions_at(step, env))
    metrics = env.pop_metrics()
    assert metrics["episodes"] >= 4
    assert metrics["quarantined"] == 0
    task = env.cfg
    names = {f"reward/{name}" for name in task.rewards} | {f"tracking/{name}" for name in task.metrics}
    names |= {f"termination/{name}" for name in ("time_limit", *task.terminations)}
    assert names | {"episode/return", "episode/length_s"} <= set(metrics)
    assert all(math.isfinite(value) for value in metrics.values())
    if task.solved is not None:
        assert task.solved[0] in metrics


def test_a_robot_can_measure_all_that_the_actor_sees(env):
    if not env.cfg.deployable:
        signals = [getattr(term, "info", None) for term in env.cfg.observations["actor"].terms.values()]
        assert any(info is None or info.signal is None for info in signals), "deployable=False without a reason"
        pytest.skip("by the task no robot can measure what its actor sees; the exporter refuses it")
    for name, term in env.cfg.observations["actor"].terms.items():
        assert not isinstance(term, TorchTerm), f"{name}: a torch term cannot be exported"
        signal = term.info.signal or ""
        is_measured = signal in SIGNALS or signal.startswith("measured/") or env.cfg.delivered(term).measured
        assert is_measured, f"{name}: no robot measures it; it belongs to the critic"


def test_the_critic_sees_all_that_the_actor_sees_and_without_noise(env):
    groups = env.cfg.observations
    if "critic" not in groups:
        pytest.skip("the task has no critic group")
    seen = {(term.info.name, *term.params.items()) for term in groups["critic"].terms.values()}
    sensed = {(term.info.name, *term.params.items()) for term in groups["actor"].terms.values()}
    assert sensed <= seen
    if env.cfg.robot.base_body is not None:
        privileged = [name for name, term in groups["critic"].terms.items() if term.info.signal is None]
        assert privileged, "a floating base's velocity is what no robot measures"
    noisy = [name for name, term in groups["critic"].terms.items() if groups["critic"].noise and term.noise > 0]
    assert not noisy


def test_an_evaluation_has_the_kernels_of_the_training_and_no_noise(build, env, task_name):
    task = evaluation_task(get_task(task_name))
    quiet = make_env(task, num_envs=2, num_threads=1)
    assert [part.kernels.source for part in parts_of(quiet)] == [part.kernels.source for part in parts_of(env)]
    groups = parts_of(quiet)[0].operands().layout.groups
    clean = {str(vars(slot.term)): slot for slot in groups.get("critic", ()) if not isinstance(slot.term, TorchTerm)}
    for k in range(3):
        obs = quiet.step(actions_at(k, quiet))[0]
        for slot in groups["actor"]:
            if not isinstance(slot.term, TorchTerm) and (twin := clean.get(str(vars(slot.term)))):
                width = slot.size * slot.history
                heard = obs["actor"][:, slot.offset : slot.offset + width]
                assert torch.equal(heard, obs["critic"][:, twin.offset : twin.offset + width]), slot.name


def test_the_policy_s_description_is_json_and_fits_the_environment(env):
    description = env.describe_policy()
    again = json.loads(json.dumps(description, allow_nan=False))
    assert again == description
    rows = description["observations"]
    assert sum(row["size"] * row["history"] for row in rows) == env.get_observations()["actor"].shape[1]
    assert [row["name"] for row in rows] == list(env.cfg.observations["actor"].terms)
    assert len(description["actions"]) == env.num_actions
    joints = {row["name"]: row for row in description["joints"]}
    assert list(joints) == list(env.cfg.robot.joint_names)
    assert all(action["joint"] in joints for action in description["actions"])
    assert description["control_period_s"] == pytest.approx(env.step_dt)
    assert description["physics_timestep_s"] == env.cfg.sim.timestep


def test_the_description_contains_the_joint_targets(build):
    """What the engine is given: offset + scale * action, plus the command where an action is around it, within bounds.

    The bound is the largest error from the position that the joint had when the policy acted.
    """
    env = build()
    actions, command, joint_pos = actions_at(0, env), env.state.command.clone(), env.state.joint_pos.clone()
    here = acted(env.step(actions))
    described = env.describe_policy()
    rows, clipped = described["actions"], actions.clamp(-described["action_clip"], described["action_clip"])
    want = torch.stack([row["offset"] + row["scale"] * clipped[:, k] for k, row in enumerate(rows)], dim=1)
    if "command" in rows[0]:
        names = list(env.describe_command()["components"])
        want += command[:, [names.index(row["command"]) for row in rows]]
    if "max_error" in rows[0]:
        at = joint_pos[:, [env.cfg.robot.joint_names.index(row["joint"]) for row in rows]]
        most = torch.tensor([row["max_error"] for row in rows])
        assert ((want - at).abs() > most).any()
        want = want.clamp(at - most, at + most)
    given = env.state.joint_target if env.cfg.actions.actuator.explicit else env.state.ctrl
    torch.testing.assert_close(given[here], want[here])


def test_the_same_seed_gives_the_same_bits_over_a_hundred_steps(build):
    one, two = build(num_envs=8), build(num_envs=8, num_threads=2)
    for step in range(100):
        pairs = zip(*(tensors_of(*env.step(actions_at(step, env))).items() for env in (one, two)), strict=True)
        for (name, a), (_, b) in pairs:
            assert torch.equal(a, b), f"{name} differs in step {step}"


def disturb(env):
    """Let everything that happens now and then happen within a few steps: pushes, new commands, time-outs."""
    generator = torch.Generator().manual_seed(9)
    env.episode_length_buf = env.max_episode_length - torch.randint(3, 18, (env.num_envs,), generator=generator)
    env.state.interval_left_s.uniform_(0.0, 15 * env.step_dt, generator=generator)
    env.state.command_left_s.uniform_(0.0, 15 * env.step_dt, generator=generator)


def test_a_restored_environment_goes_on_bit_for_bit(build):
    """Twenty steps with pushes, new commands and resets in them, by the environment itself and by a new one."""
    first, other = build(), build(seed=0)
    for step in range(30):
        first.step(actions_at(step, first))
    disturb(first)
    kept = {name: value.clone() for name, value in first.state_dict().items()}
    ended = torch.zeros(first.num_envs, dtype=torch.bool)
    rows = []
    for step in range(30, 50):
        out = first.step(actions_at(step, first))
        ended |= ended_with(out)
        rows.append({name: value.clone() for name, value in tensors_of(*out).items() if not name.startswith("final")})
    assert ended.all()
    metrics = first.pop_metrics()
    for env in (other, first):
        env.load_state_dict(kept)
        torch.testing.assert_close(env.get_observations()["actor"], kept["obs.actor"], rtol=0, atol=0)
        for step in range(30, 50):
            got = tensors_of(*env.step(actions_at(step, env)))
            for name, want in rows[step - 30].items():
                assert torch.equal(got[name], want), f"{name} differs in step {step}"
        assert env.pop_metrics() == metrics


def test_rsl_rl_s_own_runner_trains_it(build, tmp_path):
    from rsl_rl.runners import OnPolicyRunner

    env = build(num_envs=8)
    model = {"class_name": "MLPModel", "hidden_dims": [16], "activation": "elu", "obs_normalization": True}
    noise = {"class_name": "GaussianDistribution", "init_std": 0.5}
    cfg = {
        "num_steps_per_env": 8,
        "save_interval": 100,
        "obs_groups": {"actor": ["actor"], "critic": ["critic" if "critic" in env.get_observations() else "actor"]},
        "actor": model | {"distribution_cfg": noise},
        "critic": dict(model),
        "algorithm": {"class_name": "PPO", "num_learning_epochs": 1, "num_mini_batches": 2},
    }
    runner = OnPolicyRunner(env, cfg, log_dir=None, device="cpu")
    before = [p.clone() for p in runner.alg.actor.parameters()]
    runner.learn(num_learning_iterations=2, init_at_random_ep_len=True)
    after = list(runner.alg.actor.parameters())
    assert all(torch.isfinite(p).all() for p in after)
    assert any(not torch.equal(p, q) for p, q in zip(before, after, strict=True))
