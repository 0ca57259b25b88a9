"""Every term of a sensor against a NumPy formula, on random states of a Go2 on stairs, its IMU mounted askew."""

import numpy as np
import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_envs.mdp import events, rewards, sensing
from robot_rl_envs.sensing.sensors import FootForce, HeightScan, Imu, Sensors
from robot_rl_envs.task import Event, Observation, ObservationGroup, Reward, Sim, Task
from robot_rl_envs.terrain import Stairs, TerrainCfg

N, SUBSTEPS = 32, 3
DEFAULT = np.tile([0.0, 0.9, -1.8], 4)
MOUNT = np.array([0.9689124, 0.0, 0.247404, 0.0])
"""The IMU is pitched by 0.5 rad."""


def matrix(q):
    """Rotation matrices (..., 3, 3) of quaternions w x y z."""
    w, x, y, z = np.moveaxis(np.asarray(q, float), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def into(rotations, vectors):
    """Vectors in the frames with the rotations' columns as axes."""
    return np.einsum("nji,nj->ni", rotations, vectors)


def unit(s):
    return matrix(MOUNT) @ matrix(s.imu_tilt_wxyz)


def ground(s, x, y):
    """The map between its points, on the triangles that a height field has."""
    terrain = s.scene.terrain
    u = (x - terrain.x0) / terrain.resolution
    v = (y - terrain.y0) / terrain.resolution
    column, row = np.floor(u).astype(int), np.floor(v).astype(int)
    fu, fv = u - column, v - row
    h = terrain.heights.astype(float)
    low, high = h[row, column], h[row + 1, column + 1]
    right, up = h[row, column + 1], h[row + 1, column]
    below = low + fu * (right - low) + fv * (high - right)
    above = low + fv * (up - low) + fu * (high - up)
    return np.where(fu > fv, below, above)


def height_scan(s, offset):
    x_axis = matrix(s.qpos[:, 3:7])[:, :, 0]
    yaw = np.arctan2(x_axis[:, 1], x_axis[:, 0])[:, None]
    y_grid, x_grid = np.meshgrid(np.linspace(-0.5, 0.5, 11), np.linspace(-0.6, 1.0, 17), indexing="ij")
    gx, gy = x_grid.ravel(), y_grid.ravel()
    x = s.qpos[:, :1] + np.cos(yaw) * gx - np.sin(yaw) * gy
    y = s.qpos[:, 1:2] + np.sin(yaw) * gx + np.cos(yaw) * gy
    return np.clip(s.qpos[:, 2:3] - ground(s, x, y), -5, 5) - offset


def rounded(value, resolution):
    return np.round(value / resolution) * resolution


OBSERVATIONS = {
    # name: (parameters, formula for (N, size))
    "imu_gyro": ({}, lambda s: into(unit(s), s.qvel[:, 3:6])),
    "imu_gravity": ({}, lambda s: -(matrix(s.qpos[:, 3:7]) @ unit(s))[:, 2]),
    "imu_acc": ({}, lambda s: into(matrix(s.imu_tilt_wxyz), s.sensordata[:, 16:19])),
    "encoder_pos": ({"resolution": 0.02}, lambda s, resolution: rounded(s.qpos[:, 7:], resolution) - DEFAULT),
    "encoder_vel": (
        {"resolution": 0.02},
        lambda s, resolution: (rounded(s.qpos[:, 7:], resolution) - rounded(s.before[:, 7:], resolution)) / s.step_dt,
    ),
    "foot_force": ({}, lambda s: np.linalg.norm(s.sensordata[:, :16].reshape(N, 4, 4)[:, :, 1:], axis=2)),
    "foot_force_peak": ({}, lambda s: s.forces.max(axis=1)),
    "foot_force_history": ({}, lambda s: s.forces.reshape(N, -1)),
    "foot_contact_time": ({}, lambda s: np.where(s.foot_contact > 0, s.stance + s.step_dt, 0.0)),
    "foot_ground": ({}, lambda s: ground(s, s.foot_pos_w[:, :, 0], s.foot_pos_w[:, :, 1])),
    "base_clearance": ({}, lambda s: (s.qpos[:, 2] - ground(s, s.qpos[:, 0], s.qpos[:, 1]))[:, None]),
    "height_scan": ({"offset": 0.3}, height_scan),
}


def history_of(s, forces):
    """MuJoCo's buffers as they would hold ``forces`` (N, substeps, 4), the newest at a place of its own in each."""
    model = s.scene.model
    buffer = np.zeros((N, model.nhistory), dtype=np.float32)
    for f, foot in enumerate(s.scene.robot.feet):
        head = int(model.sensor_historyadr[model.sensor(f"{foot}_contact").id])
        newest = f % SUBSTEPS
        buffer[:, head + 1] = newest
        for n in range(SUBSTEPS):
            at = head + 2 + SUBSTEPS + 4 * ((newest + 1 + n) % SUBSTEPS)
            buffer[:, at] = 1.0
            buffer[:, at + 2] = forces[:, n, f]
    return buffer


@pytest.fixture(scope="module")
def seen(puppet, go2_states, library):
    """One step of a task with every term of a sensor."""
    known = library("observation")
    terms = {name: Observation(known[name], **OBSERVATIONS[name][0]) for name in OBSERVATIONS if name in known}
    tiles = {"stairs": Stairs()}
    task = Task(
        name="every_sensor",
        robot=get_robot("unitree_go2"),
        sim=Sim(timestep=0.005, decimation=SUBSTEPS),
        observations={"actor": ObservationGroup(terms=terms)},
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
        events={
            "tilt": Event(sensing.imu_mount, mode="startup", rpy=0.1),
            "base": Event(events.reset_base, xy=0.5, yaw=3.14, velocity=0.2),
        },
        terrain=TerrainCfg(tiles=tiles, num_rows=2, num_columns=1, border=2.0),
        sensors=Sensors(
            imu=Imu(body="base_link", pos=(0.1, 0.0, 0.05), quat_wxyz=tuple(MOUNT)),
            height_scan=HeightScan(offset=(0.2, 0.0)),
            foot_force=FootForce(),
        ),
    )
    doll = puppet(task, num_envs=N)
    rng = np.random.default_rng(8)
    before = doll.state.qpos.numpy().copy()
    stance = rng.uniform(0.0, 0.5, size=(N, 4)).astype(np.float32)
    doll.put("foot_contact_time_s", stance)
    states = go2_states(9, N)
    states["sensordata"] = np.concatenate([states["sensordata"], rng.normal(size=(N, 3)).astype(np.float32)], axis=1)
    forces = rng.uniform(0.0, 60.0, size=(N, SUBSTEPS, 4)).astype(np.float32)
    s = doll.snapshot()
    obs = doll.step(history=history_of(s, forces), **states)[0]
    s = doll.snapshot()
    s.before, s.forces, s.stance = before, forces, stance
    widths = [doll.env.scene.sizes.get(t.info.size, t.info.size) for t in terms.values()]
    s.parts = dict(zip(terms, np.split(obs["actor"].numpy(), np.cumsum(widths)[:-1], axis=1), strict=True))
    return s


def test_observation_is_its_formula(observation_term, seen):
    assert observation_term in OBSERVATIONS, f"no NumPy formula for sensing.{observation_term}: add one"
    params, formula = OBSERVATIONS[observation_term]
    want = np.asarray(formula(seen, **params), float)
    assert want.std() > 0
    np.testing.assert_allclose(seen.parts[observation_term], want, rtol=1e-5, atol=5e-5)


def test_formulas_are_of_terms_that_exist(library):
    assert set(OBSERVATIONS) <= set(library("observation"))


def test_a_term_that_a_robot_measures_names_its_sensor(observation_term, library):
    info = library("observation")[observation_term].term_info
    assert info.summary.endswith(".") or "]" in info.summary
    assert info.frame in ("imu", "heading", "joint", "world", "none")
    privileged = {"foot_force_peak", "foot_force_history", "foot_contact_time", "foot_ground", "base_clearance"}
    assert (info.signal is None) == (observation_term in privileged)


def test_the_event_tilts_each_unit_a_little_and_by_its_own_draw(event_term, seen):
    assert event_term == "imu_mount"
    tilt = seen.imu_tilt_wxyz
    np.testing.assert_allclose(np.linalg.norm(tilt, axis=1), 1.0, atol=1e-6)
    angles = 2 * np.arctan2(np.linalg.norm(tilt[:, 1:], axis=1), tilt[:, 0])
    assert 0.0 < angles.min() < 0.08 < angles.max() < 0.1 * np.sqrt(3) + 1e-3
    # near the identity: half the three angles; each uniform on +-0.1
    assert np.abs(2 * tilt[:, 1:]).max() < 0.111
    np.testing.assert_allclose((2 * tilt[:, 1:]).std(axis=0), 0.1 / np.sqrt(3), rtol=0.35)
