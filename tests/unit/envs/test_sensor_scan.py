"""The height scan: the terrain's map and the engine's rays are one ground, before and after a reset; and its mirror."""

import dataclasses

import numpy as np
import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events, observations, sensing
from robot_rl_envs.sensing.sensors import HeightScan, Imu, Sensors
from robot_rl_envs.task import Event, Observation, ObservationGroup
from robot_rl_envs.terrain import PRESETS

from tests.covering import chosen

KINDS = sorted(set(PRESETS) - {"rough", "stairs_up", "stairs_down", "slope_up", "slope_down"})
STEPPED = ("flat", "stairs", "stepping_stones", "gaps", "obstacles")
N = 48


@pytest.fixture
def make_task(go2_task):
    def make(kind, source, form="hfield", **fields):
        terms = {"scan": Observation(sensing.height_scan, offset=0.3, history=2)}
        terrain = None
        if kind is not None:
            terrain = dataclasses.replace(PRESETS[kind][1](), num_rows=2, border=2.0, form=form)
        own = {
            "name": "scan",
            "observations": {"actor": ObservationGroup(terms=terms)},
            "terrain": terrain,
            "sensors": Sensors(height_scan=HeightScan(source=source)),
        }
        return go2_task(**(own | fields))

    return make


def scattered(task, seed=3):
    """Poses all over the map, at any attitude but upside down."""
    rng = np.random.default_rng(seed)
    qpos = np.zeros((N, 19))
    qpos[:, :3] = rng.uniform([-6.0, -6.0, 0.2], [6.0, 6.0, 1.0], size=(N, 3))
    quat = rng.normal(size=(N, 4)) * [1.0, 0.2, 0.2, 1.0]
    qpos[:, 3:7] = quat / np.linalg.norm(quat, axis=1, keepdims=True)
    return {"qpos": qpos.astype(np.float32), "qvel": np.zeros((N, 18), np.float32)}


@pytest.mark.parametrize(
    ("kind", "form"),
    chosen(
        [(kind, "hfield") for kind in KINDS] + [(kind, "boxes") for kind in STEPPED] + [(None, "")],
        *(("gaps", "hfield"), ("stairs", "boxes"), (None, "")),
    ),
)
def test_map_and_rays_agree(puppet, make_task, kind, form):
    seen = []
    for source in ("map", "rays"):
        task = make_task(kind, source, form)
        doll = puppet(task, num_envs=N)
        obs = doll.step(**scattered(task))[0]["actor"].numpy()
        np.testing.assert_array_equal(doll.state.height_scan.numpy() - np.float32(0.3), obs[:, 187:])
        seen.append(obs)
    error = np.abs(seen[0] - seen[1])
    if form == "boxes":
        # on the very line between two squares either answer is right
        assert (error > 1e-4).mean() < 2e-3
        error = np.where(error > 1e-4, 0.0, error)
    assert error.max() <= 1e-4
    if kind not in (None, "flat"):
        assert seen[0][:, 187:].std(axis=1).max() > 0.02


@pytest.mark.parametrize("kind", ["stairs"])
def test_rays_follow_a_world_through_its_reset(make_task, kind):
    base = {"base": Event(events.reset_base, xy=0.8, yaw=3.14, velocity=0.3)}
    options = {"num_envs": 16, "engine": "mujoco", "seed": 2}
    envs = [
        make_env(make_task(kind, source, events=base, episode_length_s=0.2), **options) for source in ("map", "rays")
    ]
    np.testing.assert_allclose(*[env.get_observations()["actor"].numpy() for env in envs], atol=1e-4)
    for k in range(23):
        (one, _, done, extras), (two, _, same, others) = (env.step(torch.zeros(16, 12)) for env in envs)
        assert torch.equal(done, same)
        np.testing.assert_allclose(one["actor"].numpy(), two["actor"].numpy(), atol=1e-4)
        assert done.any() == ((k + 1) % 10 == 0)
        final, other = (x["final_obs"]["actor"].numpy()[done.numpy()] for x in (extras, others))
        np.testing.assert_allclose(final, other, atol=1e-4)
    kept = {name: value.clone() for name, value in envs[1].state_dict().items()}
    rest = [envs[1].step(torch.zeros(16, 12))[0]["actor"].clone() for _ in range(12)]
    fresh = make_env(make_task(kind, "rays", events=base, episode_length_s=0.2), num_threads=2, **options)
    fresh.load_state_dict(kept)
    for obs in rest:
        assert torch.equal(obs, fresh.step(torch.zeros(16, 12))[0]["actor"])


def test_the_mirror_of_grid_feet_and_imu(puppet, make_task):
    terms = {
        "scan": Observation(sensing.height_scan, offset=0.0),
        "forces": Observation(sensing.foot_force_history),
        "gyro": Observation(sensing.imu_gyro),
        "acc": Observation(sensing.imu_acc),
        "contact": Observation(observations.foot_contact),
    }
    half = np.sqrt(0.5)
    # pitched by a quarter turn: its y axis still points to the left
    sensors = Sensors(imu=Imu(body="base_link", quat_wxyz=(half, 0.0, half, 0.0)))
    groups = {"actor": ObservationGroup(terms=terms)}
    env = puppet(make_task(None, "map", observations=groups, mirror=True, sensors=sensors)).env
    perm, sign = (part.numpy() for part in env.mirror["actor"])
    points = np.array(HeightScan().points())
    np.testing.assert_allclose(points[perm[:187]], points * [1.0, -1.0], atol=1e-12)
    assert (sign[:187] == 1).all()
    # FL FR RL RR <-> FR FL RR RL in each of the four substeps
    np.testing.assert_array_equal(perm[187:203] - 187, [4 * n + k for n in range(4) for k in (1, 0, 3, 2)])
    np.testing.assert_array_equal(perm[203:209], np.arange(203, 209))
    np.testing.assert_array_equal(sign[203:209], [-1, 1, -1, 1, -1, 1])
    np.testing.assert_array_equal(perm[209:] - 209, [1, 0, 3, 2])


@pytest.mark.parametrize(
    ("sensors", "line"),
    [
        (
            Sensors(height_scan=HeightScan(offset=(0.0, 0.3))),
            r"sensors\.height_scan\.offset=\(0\.0, 0\.3\): a grid to one",
        ),
        (
            Sensors(imu=Imu(body="base_link", quat_wxyz=(np.cos(0.2), 0.0, 0.0, np.sin(0.2)))),
            r"sensors\.imu: turned by .* against the base it cannot be mirrored",
        ),
    ],
)
def test_what_has_no_mirror_is_named(puppet, make_task, sensors, line):
    terms = {"scan": Observation(sensing.height_scan, offset=0.0), "gyro": Observation(sensing.imu_gyro)}
    groups = {"actor": ObservationGroup(terms=terms)}
    env = puppet(make_task(None, "map", observations=groups, mirror=True, sensors=sensors)).env
    with pytest.raises(ValueError, match=line):
        _ = env.mirror
