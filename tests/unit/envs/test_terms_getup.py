"""A robot that is dropped in any orientation: draws of the event against NumPy, and all orientations equally likely."""

import numpy as np
import pytest
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events
from robot_rl_envs.task import Event

DEFAULT = np.tile([0.0, 0.9, -1.8], 4)


def test_reset_anyhow_is_its_formula(go2_task, stream):
    env = make_env(
        go2_task(events={"drop": Event(events.reset_anyhow, height=0.4, joints=0.7)}),
        num_envs=5,
        seed=7,
        world_offset=2,
    )
    limits = [env.scene.model.joint(name).range for name in env.cfg.robot.joint_names]
    for world, qpos in enumerate(env.state.qpos.numpy()):
        draw = stream(7, "events.drop", world + 2, int(env.state.counter[world])).uniform
        u, v, w = draw(0, 1), draw(0, 2 * np.pi), draw(0, 2 * np.pi)
        turn = [np.sqrt(1 - u) * np.sin(v), np.sqrt(1 - u) * np.cos(v), np.sqrt(u) * np.sin(w), np.sqrt(u) * np.cos(w)]
        joints = []
        for rest, (lower, upper) in zip(DEFAULT, limits, strict=True):
            anywhere = draw(max(lower, rest - np.pi), min(upper, rest + np.pi))
            joints.append(rest + 0.7 * (anywhere - rest))
        np.testing.assert_allclose(qpos, [0, 0, 0.289 + 0.4, *turn, *joints], atol=2e-6)


def test_every_orientation_is_as_likely(go2_task):
    env = make_env(go2_task(events={"drop": Event(events.reset_anyhow, height=0.4, joints=1.0)}), num_envs=4000)
    up = -env.state.projected_gravity_b[:, 2].numpy()
    # the height of a point on a sphere is uniform: Archimedes
    shares = np.histogram(up, bins=4, range=(-1, 1))[0] / 4000
    np.testing.assert_allclose(shares, 0.25, atol=0.03)


def test_a_robot_that_is_bolted_down_cannot_be_dropped(cart_task):
    with pytest.raises(ValueError, match=r"events\.drop\.height=0\.4: robot 'cartpole' is bolted down"):
        make_env(cart_task(events={"drop": Event(events.reset_anyhow, height=0.4, joints=1.0)}), num_envs=1)
