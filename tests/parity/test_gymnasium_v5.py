"""Gymnasium's MuJoCo tasks of version 5 on our CPU engine, compared with Gymnasium itself, step by step.

Both are put into the same state and given the same actions. MuJoCo's arithmetic is the same on both sides to the last
bit, so observations have to be Gymnasium's float64 numbers rounded to float32, each of them; a reward is a sum of a few
float32 terms and may be off by their rounding; whether an episode ends is the same. Worlds where the episode ends go on
from their reset, which is compared as well.
"""

import dataclasses

import numpy as np
import pytest
import torch
from robot_rl_assets.gymnasium_v5 import model_path
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from tests.covering import chosen

gymnasium = pytest.importorskip("gymnasium", reason="the package gymnasium is not installed")

IDS = {
    "ant_v5": "Ant-v5",
    "half_cheetah_v5": "HalfCheetah-v5",
    "hopper_v5": "Hopper-v5",
    "humanoid_v5": "Humanoid-v5",
    "walker2d_v5": "Walker2d-v5",
}
N, STEPS = 4, 250
ROUNDING = 2e-6
"""Error of a reward relative to its largest term."""
NORMAL = {"ant_v5", "half_cheetah_v5"}
"""Tasks where velocities start with normal noise; in the others it is uniform."""


@pytest.fixture(scope="module", params=chosen(IDS, "ant_v5", "walker2d_v5"))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def env(name):
    env = make_env(get_task(name), num_envs=N, engine="mujoco", seed=3, num_threads=2)
    yield env
    env.close()


@pytest.fixture(scope="module")
def theirs(name):
    worlds = [gymnasium.make(IDS[name]).unwrapped for _ in range(N)]
    yield worlds
    for world in worlds:
        world.close()


def follow(env, world, i):
    """Put Gymnasium's world where our world i starts; its observation there."""
    world.reset(seed=0)
    world.set_state(env.engine.batch.qpos[i], env.engine.batch.qvel[i])
    return world._get_obs().astype(np.float32)


def start(env, theirs):
    """Reset ours, and put theirs there."""
    seen = env.reset()["actor"].numpy()
    for i, world in enumerate(theirs):
        np.testing.assert_array_equal(seen[i], follow(env, world, i))


def compare(env, theirs, actions, given=None):
    """One step of both; how many of Gymnasium's worlds ended in it."""
    given = actions if given is None else given
    obs, rewards, dones, extras = env.step(torch.from_numpy(actions))
    ended = 0
    for i, world in enumerate(theirs):
        seen, reward, terminated, _, info = world.step(given[i])
        assert terminated == bool(dones[i] and not extras["time_outs"][i])
        assert bool(dones[i]) == terminated
        mine = (extras["final_obs"] if terminated else obs)["actor"][i].numpy()
        np.testing.assert_array_equal(mine, seen.astype(np.float32))
        terms = [abs(float(value)) for key, value in info.items() if key.startswith("reward_")]
        assert float(rewards[i]) == pytest.approx(reward, rel=0, abs=ROUNDING * max(1.0, *terms))
        if terminated:
            ended += 1
            np.testing.assert_array_equal(obs["actor"][i].numpy(), follow(env, world, i))
    assert extras["valid"].all()
    return ended


def test_a_step_is_gymnasium_s(name, env, theirs):
    start(env, theirs)
    rng, space = np.random.default_rng(1), theirs[0].action_space
    ended = 0
    for _ in range(STEPS):
        actions = rng.uniform(space.low, space.high, (N, env.num_actions)).astype(np.float32)
        ended += compare(env, theirs, actions)
    assert ended > 3 or name in NORMAL, "ends and starts were to be part of it"


def test_a_steady_push_is_gymnasium_s_as_well(name, env, theirs):
    """Full effort on all motors: far from the start, fast, against the limits of joints and motors."""
    start(env, theirs)
    rng, space = np.random.default_rng(2), theirs[0].action_space
    for step in range(STEPS):
        if step % 25 == 0:
            actions = np.where(rng.random((N, env.num_actions)) < 0.5, space.low, space.high).astype(np.float32)
        compare(env, theirs, actions)


def test_an_action_beyond_the_range_is_clipped_as_by_gymnasium_s_wrapper(env, theirs):
    start(env, theirs)
    rng, space = np.random.default_rng(3), theirs[0].action_space
    for _ in range(5):
        actions = (2 * rng.normal(size=(N, env.num_actions))).astype(np.float32)
        compare(env, theirs, actions, np.clip(actions, space.low, space.high))


def test_sizes_and_time_are_gymnasium_s(name, env, theirs):
    space = theirs[0].action_space
    assert (env.num_actions,) == space.shape
    assert env.get_observations()["actor"].shape[1:] == theirs[0].observation_space.shape
    np.testing.assert_array_equal(space.high, np.float32(env.cfg.actions.clip))
    np.testing.assert_array_equal(space.low, -np.float32(env.cfg.actions.clip))
    assert env.step_dt == theirs[0].dt
    assert env.max_episode_length == gymnasium.spec(IDS[name]).max_episode_steps
    assert env.scene.actuated == [_driven(theirs[0].model, k) for k in range(env.num_actions)]


def _driven(model, actuator):
    return model.joint(int(model.actuator_trnid[actuator, 0])).name


def test_the_time_limit_is_a_time_out(env):
    env.reset()
    env.episode_length_buf = torch.full((N,), env.max_episode_length - 2)
    zeros = torch.zeros(N, env.num_actions)
    _, _, dones, _ = env.step(zeros)
    assert not dones.any()
    _, _, dones, extras = env.step(zeros)
    assert dones.all()
    assert extras["time_outs"].all()


def test_the_model_is_that_of_the_installed_package(name, env, theirs):
    """Every number of the model, none left out but what is only seen: no body, motor or solver setting differs."""
    mine, other = env.scene.model, theirs[0].model
    assert env.cfg.robot.model == model_path(name.removesuffix("_v5"))
    fields = [field for field in dir(other) if isinstance(getattr(other, field), np.ndarray)]
    assert len(fields) > 300
    for field in set(fields) - {"geom_group"}:
        np.testing.assert_array_equal(getattr(mine, field), getattr(other, field), err_msg=field)
    options = [option for option in dir(other.opt) if not option.startswith("_")]
    for option in set(options) - {"disableflags"}:
        np.testing.assert_array_equal(getattr(mine.opt, option), getattr(other.opt, option), err_msg=option)


def test_starts_are_spread_as_in_gymnasium(name, env, theirs):
    """Deviation of each coordinate over 600 resets, and its largest value: uniform and normal noise differ in it."""
    resets = 150
    mine = np.stack([_start_state(env) for _ in range(resets)]).reshape(resets * N, -1)
    world, other = theirs[0], []
    for k in range(resets * N):
        world.reset(seed=k)
        other.append(np.concatenate([world.data.qpos, world.data.qvel]))
    mine, other = mine - mine.mean(axis=0), np.stack(other) - np.mean(other, axis=0)
    np.testing.assert_allclose(mine.std(axis=0), other.std(axis=0), rtol=0.2)
    nq = env.scene.model.nq
    tails = np.abs(mine).max(axis=0) / mine.std(axis=0)
    assert (tails[:nq] < 2.0).all(), "positions start evenly"
    assert ((tails[nq:] > 2.3) if name in NORMAL else (tails[nq:] < 2.0)).all()


def _start_state(env):
    env.reset()
    return np.concatenate([env.engine.batch.qpos, env.engine.batch.qvel], axis=1)


def test_weights_are_of_a_step(env, theirs):
    """What a task lists is per second, and so is what the command line sets; in a step they are Gymnasium's."""
    weights = {key: term.weight * env.step_dt for key, term in env.cfg.rewards.items()}
    assert weights["forward"] == pytest.approx(theirs[0]._forward_reward_weight)
    assert weights["control"] == pytest.approx(-theirs[0]._ctrl_cost_weight)
    if "contact" in weights:
        assert weights["contact"] == pytest.approx(-theirs[0]._contact_cost_weight)
    if "healthy" in weights:
        assert weights["healthy"] == pytest.approx(theirs[0]._healthy_reward)


def test_a_preset_is_a_million_steps(name):
    task = get_task(name)
    steps = task.num_envs[0] * task.learner["num_steps"] * task.learner["max_iterations"]
    assert 1_000_000 <= steps < 1_010_000
    assert 0.2 * task.actions.clip < task.learner["actor.init_std"] <= task.actions.clip
    assert task.mirror or task.learner.get("symmetry", "none") == "none"
    assert dataclasses.replace(task).name == name
