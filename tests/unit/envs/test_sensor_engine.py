"""Sensors on real physics: MuJoCo's measurements in each substep, delayed and kept, against a serial simulation."""

import mujoco
import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_envs.entity.scene import make_scene
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events, observations, sensing
from robot_rl_envs.sensing.sensors import FootForce, HeightScan, Imu, Sensors
from robot_rl_envs.task import Event, Observation, ObservationGroup, Sim

DT, SUBSTEPS, STEPS = 0.005, 4, 12


@pytest.fixture
def make_task(go2_task):
    def make(imu=None, feet=None, more=None, **fields):
        terms = {
            "acc": Observation(sensing.imu_acc),
            "peak": Observation(sensing.foot_force_peak),
            "forces": Observation(sensing.foot_force_history),
        } | (more or {})
        groups = {name: ObservationGroup(terms=dict(terms), noise=name == "actor") for name in ("actor", "critic")}
        own = {
            "name": "measure",
            "sim": Sim(timestep=DT, decimation=SUBSTEPS),
            "observations": groups,
            "sensors": Sensors(imu=imu or Imu(), foot_force=feet or FootForce()),
        }
        return go2_task(**(own | fields))

    return make


def serial(task, substeps):
    """Accelerometer (n, 3) and feet's contact forces (n, 4) after each substep of a world that holds its pose."""
    scene = make_scene(task)
    model = scene.model
    sensor = model.sensor("imu_accelerometer")
    model.sensor_delay[sensor.id] = 0.0
    data = mujoco.MjData(model)
    data.qpos[:] = scene.default_qpos
    data.ctrl[:] = [joint.default_pos for joint in scene.robot.joints]
    acc, forces = [], []
    for _ in range(substeps):
        mujoco.mj_step(model, data)
        acc.append(data.sensordata[sensor.adr[0] : sensor.adr[0] + 3].copy())
        values = np.stack([data.sensordata[at + 1 : at + 4] for at in scene.foot_sensor])
        forces.append(np.linalg.norm(values, axis=1))
    return np.stack(acc), np.stack(forces)


def run(env, steps=STEPS):
    actions = torch.zeros(env.num_envs, env.num_actions)
    return [{name: value.clone().numpy() for name, value in env.step(actions)[0].items()} for _ in range(steps)]


@pytest.mark.long
def test_no_substep_s_force_is_missed(make_task):
    task = make_task()
    _, forces = serial(task, SUBSTEPS * STEPS)
    seen = run(make_env(task, num_envs=2, engine="mujoco"))
    feet = len(task.robot.feet)
    for k, obs in enumerate(seen):
        window = forces[SUBSTEPS * k : SUBSTEPS * (k + 1)]
        np.testing.assert_allclose(obs["actor"][1, 3 + feet :], window.ravel(), rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(obs["actor"][1, 3 : 3 + feet], window.max(axis=0), rtol=1e-4, atol=1e-3)
    newest = forces[SUBSTEPS - 1 :: SUBSTEPS]
    peaks = np.stack([obs["actor"][0, 3 : 3 + feet] for obs in seen])
    assert (peaks > newest[: len(peaks)] + 5.0).any(), "the landing's peak is between two control steps"


@pytest.mark.long
def test_a_delay_of_the_accelerometer_is_exact_to_the_substep(make_task):
    late, reach = 3, 8
    imu = Imu(delay_s=(late * DT, late * DT))
    task = make_task(imu=imu)
    acc, _ = serial(task, SUBSTEPS * STEPS)
    env = make_env(task, num_envs=2, engine="mujoco")
    for k, obs in enumerate(run(env)):
        newest = SUBSTEPS * (k + 1) - 1
        np.testing.assert_allclose(obs["actor"][0, :3], acc[newest - late], rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(obs["critic"][0, :3], acc[newest], rtol=1e-4, atol=1e-3)
    # before the first substep's value has come through: what it reads at rest
    env = make_env(make_task(imu=Imu(delay_s=(reach * DT, reach * DT))), num_envs=2, engine="mujoco")
    first = run(env, 1)[0]["actor"][0, :3]
    np.testing.assert_allclose(first, [0.0, 0.0, 9.81], atol=1e-3)


@pytest.mark.long
def test_each_world_draws_its_own_delay(make_task):
    env = make_env(make_task(imu=Imu(delay_s=(0.0, 4 * DT))), num_envs=512, engine="mujoco")
    sensor = env.scene.model.sensor("imu_accelerometer").id
    drawn = env.state.sensor_delay[:, sensor, 0].clone().numpy() / DT
    steps = np.ceil(drawn).astype(int)
    # half a substep less than whole ones, so that rounding of MuJoCo's clock does not matter
    np.testing.assert_allclose(drawn, np.maximum(steps - 0.5, 0.0), atol=1e-4)
    np.testing.assert_allclose(np.bincount(steps) / 512, [0.125, 0.25, 0.25, 0.25, 0.125], atol=0.07)
    actor = np.stack([obs["actor"][:, :3] for obs in run(env, 6)])
    acc, _ = serial(make_task(imu=Imu(delay_s=(0.0, 4 * DT))), SUBSTEPS * 6)
    for k in range(1, 6):
        np.testing.assert_allclose(actor[k], acc[SUBSTEPS * (k + 1) - 1 - steps], rtol=1e-4, atol=1e-3)
    env.reset()
    again = env.state.sensor_delay[:, sensor, 0].numpy() / DT
    assert (again != drawn).any()


def test_the_accelerometer_reads_g_at_rest_nothing_in_free_fall_and_the_lever_of_its_mount(make_task):
    task = make_task(events={"base": Event(events.reset_base, xy=0.0, yaw=3.0, velocity=0.0)})
    env = make_env(task, num_envs=4, engine="mujoco")
    reset = env.get_observations()["actor"][:, :3]
    np.testing.assert_allclose(reset, np.tile([0.0, 0.0, 9.81], (4, 1)), atol=1e-4)
    for _ in range(200):
        obs = env.step(torch.zeros(4, 12))[0]
    assert np.linalg.norm(obs["actor"][:, :3].numpy(), axis=1) == pytest.approx(9.81, abs=0.05)
    # high up: no force in free fall; spinning about z at w, -w^2 r along the lever of the unit
    for spin, want, atol in ((0.0, [0.0, 0.0, 0.0], 1e-2), (10.0, [2.6, 0.0, 0.0], 5.0)):
        env.state.qpos[:] = torch.tensor(env.scene.default_qpos, dtype=torch.float32)
        env.state.qpos[:, 2] = 5.0
        env.state.qvel[:] = 0.0
        env.state.qvel[:, 5] = spin
        env.state.dirty[:] = 2
        env.write_back()
        obs = env.step(torch.zeros(4, 12))[0]["actor"][:, :3].numpy()
        np.testing.assert_allclose(obs, np.tile(want, (4, 1)), atol=atol)


@pytest.mark.long
def test_state_and_threads(make_task):
    task = make_task(imu=Imu(delay_s=(0.0, 0.02)), episode_length_s=0.2)
    envs = [make_env(task, num_envs=300, engine="mujoco", num_threads=threads, seed=5) for threads in (1, 2)]
    for env in envs:
        env.last = run(env, 14)
    kept = {name: value.clone() for name, value in envs[0].state_dict().items()}
    fresh = make_env(task, num_envs=300, engine="mujoco", num_threads=2, seed=5)
    fresh.load_state_dict(kept)
    for one, two, three in zip(run(envs[0], 12), run(envs[1], 12), run(fresh, 12), strict=True):
        for name in one:
            assert np.array_equal(one[name], two[name])
            assert np.array_equal(one[name], three[name])


BAD = [
    (
        {"imu": Imu(site="imuu")},
        r"sensors\.imu\.site='imuu': robot 'unitree_go2' does not have such a site; did you mean",
    ),
    ({"imu": Imu(body="base")}, r"sensors\.imu\.body='base': .* does not have such a body; did you mean 'base_link'"),
    ({"imu": Imu(body="FL_calf")}, r"sensors\.imu\.body='FL_calf': sits on body 'FL_calf', which moves against"),
    ({"imu": Imu(site="FL_foot")}, r"sensors\.imu\.site='FL_foot': sits on body 'FL_calf', which moves against"),
    (
        {
            "imu": Imu(body="base_link", quat_wxyz=(0.0, 0.0, 0.0, 1.0)),
            "more": {"gyro": Observation(observations.base_ang_vel)},
        },
        r"observations\.actor\.gyro: reads the IMU in the base frame, other terms in the unit's own",
    ),
    (
        {"more": {"gone": Observation(sensing.height_scan, offset=0.0, delay_s=(0.0, 0.2), delay_steps=3)}},
        r"observations\.actor\.gone\.delay_s=\(0\.0, 0\.2\): 0\.2 s are 10 control steps",
    ),
]


@pytest.mark.parametrize(("options", "line"), BAD)
def test_bad_sensors_are_named_when_built(make_task, options, line):
    with pytest.raises(ValueError, match=line):
        make_env(make_task(**options), num_envs=2, engine="mujoco")


def test_an_imu_on_a_robot_that_is_bolted_down(cart_task):
    group = ObservationGroup(terms={"gyro": Observation(sensing.imu_gyro)})
    with pytest.raises(ValueError, match=r"robot 'cartpole' is bolted down, without an IMU"):
        make_env(cart_task(observations={"actor": group}), num_envs=2)


def test_a_tilt_that_nothing_feels(go2_task):
    task = go2_task(events={"tilt": Event(sensing.imu_mount, mode="startup", rpy=0.02)})
    with pytest.raises(ValueError, match=r"events\.tilt\.rpy=0\.02: no observation reads the IMU in its own frame"):
        make_env(task, num_envs=2)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            lambda: Imu(site="imu", body="base_link"),
            r"sensors\.imu\.site='imu': leave it or imu\.body='base_link'",
        ),
        (
            lambda: Imu(pos=(0.1, 0.0, 0.0)),
            r"sensors\.imu\.body='': imu\.pos and imu\.quat_wxyz place the unit",
        ),
        (lambda: Imu(body="b", quat_wxyz=(1.0, 1.0, 0.0, 0.0)), r"its length is 1\.41421, must be 1"),
        (lambda: Imu(delay_s=(0.1, 0.0)), r"sensors\.imu\.delay_s=\(0\.1, 0\.0\): must be \(lo, hi\)"),
        (lambda: HeightScan(resolution=0.0), r"sensors\.height_scan\.resolution=0\.0: must be a number > 0"),
        (lambda: HeightScan(resolution=0.01), r"resolution=0\.01: gives 16261 points, at most 4096"),
        (lambda: HeightScan(resolution=1.2), r"resolution=1\.2: must be at most 1 m, the shortest side of size"),
        (lambda: HeightScan(source="lidar"), r"sensors\.height_scan\.source='lidar': must be one of map, rays"),
        (lambda: HeightScan(size=(1.0,)), r"sensors\.height_scan\.size=\(1\.0,\): must be \(x, y\)"),
        (lambda: FootForce(substeps=-1), r"sensors\.foot_force\.substeps=-1: must be an int in \[0, 100\]"),
    ],
)
def test_bad_figures_are_named(make, line):
    with pytest.raises(ValueError, match=line):
        make()


def test_the_standard_grid_is_187_points():
    scan = HeightScan()
    points = np.array(scan.points())
    assert (scan.shape, scan.count) == ((11, 17), 187)
    np.testing.assert_allclose(points[0], [-0.8, -0.5])
    np.testing.assert_allclose(points[-1], [0.8, 0.5])
    np.testing.assert_allclose(points[1] - points[0], [0.1, 0.0], atol=1e-12)
    assert get_robot("unitree_go2").imu_site == "imu"
