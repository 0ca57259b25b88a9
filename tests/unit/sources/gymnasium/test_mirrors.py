"""Gymnasium's robots with two sides: a mirrored state under mirrored actions goes the mirrored way."""

import pytest
import torch
from robot_rl_envs.engine import DIRTY_STATE
from robot_rl_envs.entity.mirrors import positions, velocities
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

pytest.importorskip("gymnasium")


def mirrored(x, maps):
    perm, sign = (torch.as_tensor(part) for part in maps)
    return x[..., perm] * sign


def pair(name):
    """Two worlds, the second one the first one's mirror image."""
    env = make_env(get_task(name), num_envs=2, seed=3, num_threads=1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):  # Away from the start, which is nearly its own mirror image.
        env.step(torch.rand(2, env.num_actions, generator=generator) - 0.5)
    for field, maps in (("qpos", positions(env.scene)), ("qvel", velocities(env.scene))):
        tensor = getattr(env.state, field)
        tensor[1] = mirrored(tensor[0].clone(), maps)
    env.state.dirty.fill_(DIRTY_STATE)
    env.write_back()
    env.state.dirty.zero_()
    return env, generator


# Ant's and Walker2d's sides are exactly alike; Humanoid's differ in a stiffness, armatures and a centimeter of shin.
@pytest.mark.parametrize("name", ["ant_v5", "walker2d_v5"])
def test_mirrored_worlds_go_mirrored_ways(name):
    env, generator = pair(name)
    maps = env.mirror
    for step in range(8):
        action = 0.8 * torch.rand(1, env.num_actions, generator=generator) - 0.4
        obs, reward, _, _ = env.step(torch.cat((action, mirrored(action, maps["action"]))))
        torch.testing.assert_close(mirrored(obs["actor"][0], maps["actor"]), obs["actor"][1], rtol=1e-5, atol=1e-5)
        if step > 0:  # The first one's begins where the worlds were before.
            torch.testing.assert_close(reward[0], reward[1], rtol=1e-5, atol=1e-5)
    assert float((obs["actor"][0] - obs["actor"][1]).abs().max()) > 0.1
    env.close()


def test_humanoid_goes_nearly_the_mirrored_way():
    env, generator = pair("humanoid_v5")
    maps = env.mirror
    for _ in range(2):
        action = 0.2 * torch.rand(1, env.num_actions, generator=generator) - 0.1
        obs, reward, _, _ = env.step(torch.cat((action, mirrored(action, maps["action"]))))
    one, two = mirrored(obs["actor"][0], maps["actor"]), obs["actor"][1]
    scale = two.abs().clamp(min=1.0)
    assert float(((one - two).abs() / scale).mean()) < 0.02
    assert float(((obs["actor"][0] - two).abs() / scale).mean()) > 0.1
    assert float((reward[0] - reward[1]).abs()) < 0.01
    env.close()


@pytest.mark.parametrize("name", ["ant_v5", "walker2d_v5", "humanoid_v5"])
def test_mirrors_are_their_own_inverse(name):
    env = make_env(get_task(name), num_envs=1, seed=3, num_threads=1)
    for perm, sign in env.mirror.values():
        assert torch.equal(perm[perm], torch.arange(len(perm)))
        assert torch.equal(sign * sign[perm], torch.ones_like(sign))
    env.close()
