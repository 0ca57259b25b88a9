"""Stepping an environment by either kind of policy, and the demonstration's script."""

from pathlib import Path

import numpy as np
import pytest
import torch

from robot_rl.view.viewer.command import CommandInfo, command_info
from robot_rl.view.viewer.drive import Driver, can_be_pushed, heading, make_script, rotation, scene_model, segment_at

UNITS = ("m/s", "m/s", "rad/s")


def velocity(*ranges, more=()):
    """A velocity command with ranges, and further components without a unit."""
    lower, upper = np.array([*ranges, *(limits for limits in more)]).T
    names = ("vx", "vy", "yaw", *(f"c{k}" for k in range(len(more))))
    units = UNITS + ("1",) * len(more)
    return CommandInfo(names=names, units=units, lower=lower, upper=upper, frame="base", draws="velocity")


def test_network_gets_the_observations(fake_env):
    env = fake_env(2)
    env.set_command((0.5, 0.0, 0.0))
    driver = Driver(env, lambda obs: obs["actor"][:, :1] * 2)
    driver.step()
    np.testing.assert_allclose(env.actions[0], [[1.0], [1.0]])
    assert driver.time_s == pytest.approx(0.02)
    np.testing.assert_allclose(driver.velocity(), [[0.45, 0, 0]] * 2, atol=1e-6)


def test_a_fall_is_a_failure(fake_env):
    env = fake_env(2)
    driver = Driver(env, None)
    env.fall_next = torch.tensor([False, True])
    assert driver.step().tolist() == [False, True]
    assert driver.failures == 1


def test_a_recurrent_network_is_reset_when_an_episode_ends(fake_env):
    class Remembering:
        def __init__(self):
            self.resets = []

        def __call__(self, obs):
            return obs["actor"][:, :1]

        def reset(self, done=None):
            self.resets.append(done)

    env, policy = fake_env(2), Remembering()
    driver = Driver(env, policy)
    env.fall_next = torch.tensor([False, True])
    driver.step()
    driver.reset()
    first, ended, whole = policy.resets
    assert first is None
    assert isinstance(ended, torch.Tensor)
    assert ended.tolist() == [False, True]
    assert whole is None


def test_an_episode_that_ends_by_time_is_no_failure(fake_env):
    env = fake_env(2)
    driver = Driver(env, None)
    env.time_out_next = torch.tensor([True, False])
    assert driver.step().tolist() == [True, False]
    assert driver.failures == 0


def test_return_starts_from_zero_with_the_episode(fake_env):
    env = fake_env(2)
    driver = Driver(env, None)
    driver.step()
    env.fall_next = torch.tensor([True, False])
    driver.step()
    driver.step()
    assert driver.episode_return.tolist() == [1.0, 3.0]
    np.testing.assert_allclose(env.actions[0], 0.0)


def test_script_stays_in_the_ranges_and_ends_standing():
    ranges = [(-1.0, 1.5), (-0.6, 0.6), (-1.0, 1.0)]
    script = make_script(velocity(*ranges), 10.0)
    assert [s.label for s in script] == ["forward", "sideways", "turn", "curve", "stand"]
    assert script[0].start_s == 0.0
    assert script[-1].start_s == pytest.approx(8.6)
    for segment in script:
        assert all(lo <= c <= hi for c, (lo, hi) in zip(segment.command, ranges, strict=True))
    assert segment_at(script, 0.0).label == "forward"
    assert segment_at(script, 2.6).label == "sideways"
    assert segment_at(script, 99.0).command == (0.0, 0.0, 0.0)


def test_script_leaves_out_what_the_task_does_not_command():
    script = make_script(velocity((0.0, 1.0), (0.0, 0.0), (0.0, 0.0)), 10.0)
    assert [s.label for s in script] == ["forward", "curve", "stand"]


def test_script_keeps_what_is_beyond_a_velocity_next_to_zero():
    script = make_script(velocity((-1.0, 1.0), (0.0, 0.0), (0.0, 0.0), more=[(0.2, 0.4), (-1.0, 1.0)]), 10.0)
    assert script[0].command == pytest.approx((0.75, 0.0, 0.0, 0.2, 0.0))
    assert script[-1].command == pytest.approx((0.0, 0.0, 0.0, 0.2, 0.0))


def test_command_and_model_of_an_environment(fake_env):
    env = fake_env()
    info = command_info(env)
    assert (info.names, info.units, info.draws) == (("vx", "vy", "yaw"), UNITS, "velocity")
    assert (info.lower.tolist(), info.upper.tolist()) == ([-1.0, -0.5, -0.8], [1.0, 0.5, 0.8])
    assert info.labels == ["forward [m/s]", "left [m/s]", "turn left [rad/s]"]
    assert command_info(fake_env(commanded=False)) is None
    assert scene_model(env) is env.engine.model
    assert can_be_pushed(env)


def test_a_pose_is_clipped_to_its_box_and_to_a_rotation():
    names = ("x", "y", "z", "qw", "qx", "qy", "qz")
    lower, upper = np.array([0.2, -0.3, 0.1, -1, -1, -1, -1]), np.array([0.5, 0.3, 0.5, 1, 1, 1, 1])
    units = ("m",) * 3 + ("1",) * 4
    pose = CommandInfo(names=names, units=units, lower=lower, upper=upper, frame="base", draws="pose")
    np.testing.assert_allclose(pose.clip([9, 0, 0, -0.3, 0.4, 0, 0]), [0.5, 0, 0.1, 0.6, -0.8, 0, 0])
    np.testing.assert_allclose(pose.clip([0.3, 0, 0.2, 0, 0, 0, 0]), [0.3, 0, 0.2, 1, 0, 0, 0])
    assert pose.labels == ["x [m]", "y [m]", "z [m]", "qw", "qx", "qy", "qz"]


def test_rotation_of_a_quarter_turn_about_z():
    half = np.sqrt(0.5)
    np.testing.assert_allclose(rotation(np.array([half, 0, 0, half])) @ [1, 2, 3], [-2, 1, 3], atol=1e-12)


def test_heading_of_a_tilted_robot_that_faces_left():
    half = np.pi / 4
    turn = np.array([np.cos(half), 0, 0, np.sin(half)])
    np.testing.assert_allclose(heading(turn) @ [1.0, 0.0], [0.0, 1.0], atol=1e-12)


@pytest.mark.long
def test_bundle_that_comes_with_the_project_walks():
    import robot_rl_tasks
    from robot_rl_envs.make import make_env
    from robot_rl_tasks.registry import get_task

    folder = Path(robot_rl_tasks.__path__[0]) / "go2_flat" / "policy"
    env = make_env(get_task("go2_flat"), num_envs=4, num_threads=1, seed=5)
    driver = Driver(env, folder)
    env.set_command((0.8, 0.0, 0.0))
    mean = np.zeros((4, 3))
    for step in range(200):
        driver.step()
        mean += driver.velocity() / 100 if step >= 100 else 0.0
    assert driver.failures == 0
    np.testing.assert_allclose(mean[:, 0], 0.8, atol=0.35)
    np.testing.assert_allclose(mean[:, 1:], 0.0, atol=0.3)
