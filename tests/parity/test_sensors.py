"""Sensors on both engines: rays, the height scan through resets, the accelerometer's delay, forces of past substeps."""

import dataclasses

import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events, rewards, sensing
from robot_rl_envs.sensing.sensors import HeightScan, Imu, Sensors
from robot_rl_envs.task import Event, Observation, ObservationGroup, Reward, Sim, Task
from robot_rl_envs.terrain import PRESETS

pytestmark = pytest.mark.long  # mujoco_warp compiles for most of a minute where its kernels are not cached

N, STEPS = 2, 12
ENGINES = ("mujoco", "mujoco_warp")


def make_task(source):
    scan = {"scan": Observation(sensing.height_scan, offset=0.3)}
    felt = {
        "acc": Observation(sensing.imu_acc),
        "peak": Observation(sensing.foot_force_peak),
        "forces": Observation(sensing.foot_force_history),
    }
    return Task(
        name="sensors",
        robot=get_robot("unitree_go2"),
        sim=Sim(timestep=0.005, decimation=2),
        episode_length_s=0.08,
        observations={
            "actor": ObservationGroup(terms=scan | felt),
            "critic": ObservationGroup(terms=scan | felt, noise=False),
        },
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
        events={"base": Event(events.reset_base, xy=0.4, yaw=3.14, velocity=0.0)},
        terrain=dataclasses.replace(PRESETS["stairs"][1](), num_rows=2, border=2.0),
        sensors=Sensors(imu=Imu(delay_s=(0.005, 0.005)), height_scan=HeightScan(source=source)),
    )


@pytest.fixture(scope="module")
def envs():
    made = {engine: make_env(make_task("rays"), num_envs=N, engine=engine, seed=4) for engine in ENGINES}
    yield made
    for env in made.values():
        env.close()


def test_rays_hit_the_same_on_both_engines(envs):
    rng = np.random.default_rng(0)
    origins = rng.uniform([-3.0, -3.0, 1.5], [3.0, 3.0, 2.5], size=(N, 200, 3)).astype(np.float32)
    directions = rng.normal(size=(N, 200, 3)).astype(np.float32) - [0.0, 0.0, 1.5]
    directions = (directions / np.linalg.norm(directions, axis=2, keepdims=True)).astype(np.float32)
    origins[:, ::4] = [0.0, 0.0, 5.0]  # some down onto the robots
    found = {}
    for ground_only in (True, False):
        for name, env in envs.items():
            rays = env.engine.make_rays(200, ground_only=ground_only)
            rays.origins.assign(origins)
            rays.directions.assign(directions)
            rays.cast()
            found[name] = rays.distances.numpy().copy()
        one, two = (found[name] for name in ENGINES)
        assert ((one < 0) == (two < 0)).mean() > 0.99
        hit = (one >= 0) & (two >= 0)
        assert hit.mean() > 0.5
        # float32 against float64; a ray that grazes an edge may take either side of it
        assert np.mean(np.abs(one - two)[hit] < 1e-4) > 0.99


def test_the_scan_is_the_same_on_both_engines_and_by_the_map(envs):
    by_map = make_env(make_task("map"), num_envs=N, engine="mujoco", seed=4)
    firsts = [env.reset()["actor"].numpy()[:, :187] for env in (*envs.values(), by_map)]
    for k in range(STEPS):
        actions = torch.zeros(N, 12)
        steps = [env.step(actions) for env in (*envs.values(), by_map)]
        seen = [step[0]["actor"].numpy() for step in steps]
        finals = [step[3]["final_obs"]["actor"].numpy() for step in steps]
        assert bool(steps[0][2].all()) == ((k + 1) % 8 == 0)
        # the rays of one engine and the map of the other, each on its own physics: a little apart by then
        np.testing.assert_allclose(seen[0][:, :187], seen[2][:, :187], atol=1e-4)
        assert np.median(np.abs(seen[0][:, :187] - seen[1][:, :187])) < 1e-3
        if steps[0][2].all():
            np.testing.assert_allclose(seen[0][:, :187], seen[1][:, :187], atol=1e-4)
            assert np.median(np.abs(finals[0][:, :187] - finals[1][:, :187])) < 1e-3
    assert len(firsts) == 3


def test_delayed_and_kept_values_are_those_of_the_substeps(envs):
    """On each engine: the delayed accelerometer is the newest of one substep ago, a peak is the largest of the kept."""
    seen = {}
    for name, env in envs.items():
        env.reset()
        rows = [env.step(torch.zeros(N, 12))[0] for _ in range(6)]
        seen[name] = np.stack(
            [np.stack([row[group].numpy()[:, 187:] for row in rows]) for group in ("actor", "critic")]
        )
        forces = seen[name][0, ..., 7:].reshape(6, N, 2, 4)
        np.testing.assert_allclose(seen[name][0, ..., 3:7], forces.max(axis=2), rtol=1e-6)
    one, two = (seen[name] for name in ENGINES)
    # the first steps, before small differences grow
    np.testing.assert_allclose(one[:, :3], two[:, :3], rtol=0.02, atol=0.5)
    for late in (one[0], two[0]):
        assert np.abs(late[:, :, :3] - one[1][:, :, :3]).max() > 0.1, "the actor's value is the delayed one"
