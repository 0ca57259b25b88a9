"""The CPU engine's own services: rays, saved states, per-world model fields, and the engine of a name."""

import numpy as np
import pytest
import torch
from robot_rl_envs.engines import make_engine, resolve_engine
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events
from robot_rl_envs.task import Actions, Event


@pytest.fixture
def engine(go2_task):
    task = go2_task()
    return make_engine("mujoco", Scene(task.robot, task.sim, Actions()), num_envs=3, device="cpu", num_threads=1)


def test_auto_is_the_engine_of_the_device():
    assert resolve_engine("auto", "cpu") == "mujoco"
    assert resolve_engine("auto", "cuda:0") == "mujoco_warp"
    assert resolve_engine("mujoco_warp", "cpu") == "mujoco_warp"


def test_rays_measure_distances(engine):
    """Next to the robot the floor is as far as the ray's height; over it the back is nearer; upwards is nothing."""
    origins = np.tile([[2.0, 2.0, 1.5], [0.0, 0.0, 1.5], [0.0, 0.0, 1.5]], (3, 1, 1))
    directions = np.tile([[0.0, 0.0, -1.0], [0.0, 0.0, -1.0], [0.0, 0.0, 1.0]], (3, 1, 1))
    engine.batch.qpos[:, 2] = [0.3, 0.5, 0.7]
    rays = engine.make_rays(3)
    rays.origins.assign(origins)
    rays.directions.assign(directions)
    rays.cast()
    distance = rays.distances.numpy()
    np.testing.assert_allclose(distance[:, 0], 1.5)
    # the trunk is a box 0.114 m high about the base's origin
    np.testing.assert_allclose(distance[:, 1], 1.5 - 0.057 - np.array([0.3, 0.5, 0.7]), atol=1e-6)
    np.testing.assert_allclose(distance[:, 2], -1.0)


def test_a_saved_state_of_another_size_is_refused(engine):
    with pytest.raises(ValueError, match=r"engine state has shape \(2, \d+\), this environment needs \(3, \d+\)"):
        engine.set_state(engine.get_state()[:2])


def test_an_expanded_field_starts_at_the_model_s_values(engine):
    mirror = engine.expand("geom_friction")
    assert engine.expand("geom_friction") is mirror
    np.testing.assert_allclose(mirror.numpy(), np.tile(engine.model.geom_friction, (3, 1, 1)), rtol=1e-6)
    assert engine.expand("body_mass").shape == (3, engine.model.nbody, 1)


def test_a_state_saved_before_a_field_was_drawn_goes_on_bit_for_bit(go2_task):
    """Frictions that no event has touched yet come back from the checkpoint as they were."""
    drawn = Event(events.foot_friction, mode="interval", interval_s=(50.0, 60.0), lo=0.4, hi=1.2)
    envs = [make_env(go2_task(events={"friction": drawn}), num_envs=2, engine="mujoco") for _ in range(2)]

    def play(env):
        rows = []
        for step in range(20):
            actions = torch.randn(2, 12, generator=torch.Generator().manual_seed(step))
            env.step(actions)
            rows.append(env.engine.get_state())
        return np.stack(rows)

    envs[0].push((1.0, 0.5, 0.0))
    kept = envs[0].state_dict()
    want = play(envs[0])
    envs[1].load_state_dict(kept)
    np.testing.assert_array_equal(play(envs[1]), want)
