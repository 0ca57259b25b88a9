"""Stepping an environment by either kind of policy, and the demonstration's script."""

from pathlib import Path

import numpy as np
import pytest
import torch

from robot_rl.viewer.drive import Driver, heading, make_script, scene_model, segment_at, velocity_ranges


class FakeBundle:
    """Acts as robot_rl_deploy.policy.BundlePolicy does; notes what it is given."""

    def __init__(self):
        self.resets, self.states = [], []

    def reset(self, mask=None):
        self.resets.append(mask)

    def act(self, robot_state):
        self.states.append(robot_state)
        action = np.full((len(robot_state["command"]), 1), 0.25, np.float32)
        return 10 * action, action, np.zeros((len(action), 4), np.float32)


def test_network_gets_the_observations(fake_env):
    env = fake_env(2)
    env.set_command((0.5, 0.0, 0.0))
    driver = Driver(env, lambda obs: obs["actor"][:, :1] * 2)
    driver.step()
    np.testing.assert_allclose(env.actions[0], [[1.0], [1.0]])
    assert driver.time_s == pytest.approx(0.02)
    np.testing.assert_allclose(driver.velocity(), [[0.45, 0, 0]] * 2, atol=1e-6)


def test_bundle_gets_raw_state_and_its_action_is_used_not_its_target(fake_env):
    env, bundle = fake_env(2), FakeBundle()
    driver = Driver(env, bundle)
    env.fall_next = torch.tensor([False, True])
    done = driver.step()
    np.testing.assert_allclose(env.actions[0], 0.25)
    assert set(bundle.states[0]) == {"command", "joint_pos"}
    assert isinstance(bundle.states[0]["command"], np.ndarray)
    assert done.tolist() == [False, True]
    assert bundle.resets[0] is None
    assert bundle.resets[1].tolist() == [False, True]
    assert driver.resets == 1


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
    ranges = {"vx": (-1.0, 1.5), "vy": (-0.6, 0.6), "yaw": (-1.0, 1.0)}
    script = make_script(ranges, 10.0)
    assert [s.label for s in script] == ["forward", "sideways", "turn", "curve", "stand"]
    assert script[0].start_s == 0.0
    assert script[-1].start_s == pytest.approx(8.6)
    for segment in script:
        assert all(lo <= c <= hi for c, (lo, hi) in zip(segment.command, ranges.values(), strict=True))
    assert segment_at(script, 0.0).label == "forward"
    assert segment_at(script, 2.6).label == "sideways"
    assert segment_at(script, 99.0).command == (0.0, 0.0, 0.0)


def test_script_leaves_out_what_the_task_does_not_command():
    script = make_script({"vx": (0.0, 1.0), "vy": (0.0, 0.0), "yaw": (0.0, 0.0)}, 10.0)
    assert [s.label for s in script] == ["forward", "curve", "stand"]


def test_ranges_and_model_of_an_environment(fake_env):
    env = fake_env()
    assert velocity_ranges(env) == {"vx": (-1.0, 1.0), "vy": (-0.5, 0.5), "yaw": (-0.8, 0.8)}
    assert velocity_ranges(fake_env(commanded=False)) is None
    assert scene_model(env) is env.engine.model


def test_heading_of_a_tilted_robot_that_faces_left():
    half = np.pi / 4
    turn = np.array([np.cos(half), 0, 0, np.sin(half)])
    np.testing.assert_allclose(heading(turn) @ [1.0, 0.0], [0.0, 1.0], atol=1e-12)


@pytest.mark.slow
def test_bundle_that_comes_with_the_project_walks():
    import robot_rl_tasks
    from robot_rl_deploy.policy import BundlePolicy
    from robot_rl_envs.make import make_env
    from robot_rl_tasks.registry import get_task

    folder = Path(robot_rl_tasks.__path__[0]) / "go2_flat" / "policy"
    env = make_env(get_task("go2_flat"), num_envs=4, num_threads=1, seed=5)
    driver = Driver(env, BundlePolicy(folder, 4))
    env.set_command((0.8, 0.0, 0.0))
    mean = np.zeros((4, 3))
    for step in range(200):
        driver.step()
        mean += driver.velocity() / 100 if step >= 100 else 0.0
    assert driver.resets == 0
    np.testing.assert_allclose(mean[:, 0], 0.8, atol=0.35)
    np.testing.assert_allclose(mean[:, 1:], 0.0, atol=0.3)
