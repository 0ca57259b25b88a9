"""Every event of randomize against NumPy, draw by draw, and what must hold over many resets: nothing compounds."""

import copy
import dataclasses

import mujoco
import numpy as np
import pytest
import torch
import warp as wp
from robot_rl_assets.registry import get_robot
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events, observations, randomize, rewards
from robot_rl_envs.task import Event, Observation, ObservationGroup, Reward, Sim, Task

N, SEED, OFFSET = 16, 777, 5
BASE, HIP, THIGH, CALF, REAR = 1, 2, 3, 4, 8
DT = 0.02


def body_mass(draw, w, body, lo, hi):
    factor = draw(lo, hi)
    w["body_mass"][body] *= factor
    w["body_inertia"][body] *= factor


def body_payload(draw, w, body, lo, hi):
    mass = w["body_mass"][body].copy()
    w["body_mass"][body] += draw(lo, hi)
    w["body_inertia"][body] *= w["body_mass"][body] / mass


def body_com(draw, w, body, x, y, z):
    w["body_ipos"][body] += [draw(-x, x), draw(-y, y), draw(-z, z)]


def body_inertia(draw, w, body, lo, hi):
    """Through the second moments of the mass: I = tr(C) 1 - C."""
    inertia = w["body_inertia"][body]
    moments = (np.trace(np.diag(inertia)) / 2 - inertia) * [draw(lo, hi) for _ in range(3)]
    w["body_inertia"][body] = np.diag(moments.sum() * np.eye(3) - np.diag(moments))


def principal_inertia(draw, w, body, lo, hi):
    w["body_inertia"][body] *= [draw(lo, hi) for _ in range(3)]


def foot_spin_friction(draw, w, torsional_lo, torsional_hi, rolling_lo, rolling_hi):
    w["geom_friction"][w["feet"], 1:] = draw(torsional_lo, torsional_hi), draw(rolling_lo, rolling_hi)


def foot_solref(draw, w, time_lo, time_hi, damping_lo, damping_hi):
    w["geom_solref"][w["feet"]] = draw(time_lo, time_hi), draw(damping_lo, damping_hi)


def foot_solimp(draw, w, dmin_lo, dmin_hi, dmax_lo, dmax_hi, width_lo, width_hi):
    w["geom_solimp"][w["feet"], :3] = draw(dmin_lo, dmin_hi), draw(dmax_lo, dmax_hi), draw(width_lo, width_hi)


def scaled_joints(field):
    def happen(draw, w, lo, hi):
        w[field][6:, 0] *= [draw(lo, hi) for _ in range(12)]

    return happen


def gravity(draw, w, lo, hi):
    w["gravity"] *= draw(lo, hi)


def motor_gains(draw, w, kp_lo, kp_hi, kd_lo, kd_hi):
    for a in range(12):
        kp, kd = draw(kp_lo, kp_hi), draw(kd_lo, kd_hi)
        w["actuator_gainprm"][a, 0] *= kp
        w["actuator_biasprm"][a, 1:3] *= [kp, kd]


def wrench(draw, w, body, force_xy, force_z, torque, duration_lo, duration_hi):
    w["xfrc_applied"][body, :3] = draw(-force_xy, force_xy), draw(-force_xy, force_xy), draw(-force_z, force_z)
    w["xfrc_applied"][body, 3:] = [draw(-torque, torque) for _ in range(3)]
    w["wrench_left_s"][body] = draw(duration_lo, duration_hi)


SOLIMP = {"dmin_lo": 0.8, "dmin_hi": 0.9, "dmax_lo": 0.92, "dmax_hi": 0.99, "width_lo": 0.0005, "width_hi": 0.003}
WRENCH = {"force_xy": 30.0, "force_z": 10.0, "torque": 5.0, "duration_lo": 0.1, "duration_hi": 0.4}
SPIN = {"torsional_lo": 0.001, "torsional_hi": 0.03, "rolling_lo": 0.0001, "rolling_hi": 0.02}
SOLREF = {"time_lo": 0.012, "time_hi": 0.04, "damping_lo": 0.7, "damping_hi": 1.3}
EVENTS = {
    # name: (parameters, what it does to one world, the fields it draws)
    "body_mass": ({"body": BASE, "lo": 0.8, "hi": 1.3}, body_mass, ("body_mass", "body_inertia")),
    "body_payload": ({"body": HIP, "lo": -0.3, "hi": 0.6}, body_payload, ("body_mass", "body_inertia")),
    "body_com": ({"body": BASE, "x": 0.05, "y": 0.02, "z": 0.03}, body_com, ("body_ipos",)),
    "body_inertia": ({"body": THIGH, "lo": 0.5, "hi": 2.0}, body_inertia, ("body_inertia",)),
    "principal_inertia": ({"body": CALF, "lo": 0.99, "hi": 1.006}, principal_inertia, ("body_inertia",)),
    "foot_spin_friction": (SPIN, foot_spin_friction, ("geom_friction",)),
    "foot_solref": (SOLREF, foot_solref, ("geom_solref",)),
    "foot_solimp": (SOLIMP, foot_solimp, ("geom_solimp",)),
    "joint_damping": ({"lo": 0.5, "hi": 2.0}, scaled_joints("dof_damping"), ("dof_damping",)),
    "joint_friction": ({"lo": 0.0, "hi": 1.5}, scaled_joints("dof_frictionloss"), ("dof_frictionloss",)),
    "joint_armature": ({"lo": 0.7, "hi": 1.4}, scaled_joints("dof_armature"), ("dof_armature",)),
    "gravity": ({"lo": 0.9, "hi": 1.1}, gravity, ("gravity",)),
    "motor_gains": (
        {"kp_lo": 0.8, "kp_hi": 1.2, "kd_lo": 0.6, "kd_hi": 1.5},
        motor_gains,
        ("actuator_gainprm", "actuator_biasprm"),
    ),
    "wrench": ({"body": BASE, **WRENCH}, wrench, ("xfrc_applied", "wrench_left_s")),
}


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    """A Go2 with feet that also resist turning and rolling."""
    go2 = get_robot("unitree_go2")
    text = go2.model.read_text()
    model = tmp_path_factory.mktemp("robot") / "model.xml"
    model.write_text(text.replace('priority="1" condim="3"', 'priority="1" condim="6"'))
    return dataclasses.replace(go2, model=model)


def make_task(robot, extra=None, mode="reset", **fields):
    drawn = {name: Event(getattr(randomize, name), mode=mode, **EVENTS[name][0]) for name in EVENTS}
    own = {
        "name": "randomized",
        "robot": robot,
        "sim": Sim(timestep=0.005, decimation=4),
        "observations": {"actor": ObservationGroup(terms={"v": Observation(observations.base_lin_vel)})},
        "rewards": {"alive": Reward(rewards.alive, weight=1.0)},
        "events": drawn | (extra or {}),
    }
    return Task(**(own | fields))


OLDER = {
    "friction": Event(events.foot_friction, lo=0.4, hi=1.2),
    "mass": Event(events.base_mass, mode="reset", body=REAR, mass=0.2, com=0.01),
    "base": Event(events.reset_base, xy=0.5, yaw=3.14, velocity=0.2),
    "joints": Event(events.reset_joints, position=0.1, velocity=0.2),
    "push": Event(events.push, mode="interval", interval_s=(0.1, 0.6), xy=0.5, yaw=0.3),
}


@pytest.fixture(scope="module")
def task(robot):
    """Everything that can be drawn, at each reset."""
    return make_task(robot, extra=OLDER, episode_length_s=0.3)


@pytest.fixture(scope="module")
def env(task):
    return make_env(task, num_envs=N, engine="mujoco", num_threads=1, seed=SEED, world_offset=OFFSET)


def fields_of(env):
    """Names of the randomized model fields in the state."""
    return [name for name in dir(env.state) if f"{name}_nominal" in dir(env.state)]


def values(env):
    return {name: getattr(env.state, name).numpy().astype(np.float64) for name in fields_of(env)}


def engine_values(env, name):
    """A field of the state as the engine has it, one row a world."""
    field = "opt.gravity" if name == "gravity" else name
    if env.engine.name == "mujoco":
        return env.engine.batch.expand(field).reshape(getattr(env.state, name).shape)
    holder = env.engine.warp_model.opt if field.startswith("opt.") else env.engine.warp_model
    return getattr(holder, name).numpy().reshape(getattr(env.state, name).shape)


@pytest.mark.parametrize("name", EVENTS)
def test_event_is_its_formula(name, env, stream):
    params, happen, drawn = EVENTS[name]
    env.reset()
    state = env.state
    for i in range(N):
        want = {field: getattr(state, f"{field}_nominal").numpy().astype(np.float64) for field in fields_of(env)}
        want |= {"feet": env.scene.foot_geoms, "xfrc_applied": np.zeros((14, 6)), "wrench_left_s": np.zeros(14)}
        nominal = {field: want[field].copy() for field in drawn}
        draw = stream(SEED, f"events.{name}", i + OFFSET, int(state.counter[i])).uniform
        happen(draw, want, **params)
        for field in drawn:
            changed = want[field] != nominal[field]
            assert changed.any()
            got = getattr(state, field)[i].numpy()
            np.testing.assert_allclose(got[changed], want[field][changed], rtol=2e-6, atol=1e-7)


def test_every_event_of_the_module_is_here(library):
    own = {name for name, fn in library("event").items() if getattr(randomize, name, None) is fn}
    assert own == set(EVENTS)


@wp.struct
class Bodies:
    body_inertia: wp.array3d(dtype=wp.float32)
    body_inertia_nominal: wp.array2d(dtype=wp.float32)


@wp.kernel(module="unique", enable_backward=False)
def draw_inertias(s: Bodies, body: float, lo: float, hi: float):
    i = wp.tid()
    randomize.body_inertia(s, i, wp.rand_init(3, i), body, lo, hi)


@pytest.mark.parametrize("body", range(1, 14))
def test_ten_thousand_inertias_are_all_physically_possible(robot, env, body):
    """Positive definite, and no principal moment above the sum of the others, of every body and over a wide range."""
    count = 10_000
    s = Bodies()
    nominal = env.scene.model.body_inertia.astype(np.float32)
    s.body_inertia_nominal = wp.array(nominal, dtype=wp.float32, device="cpu")
    s.body_inertia = wp.zeros((count, 14, 3), dtype=wp.float32, device="cpu")
    wp.launch(draw_inertias, dim=count, inputs=[s, float(body), 0.1, 10.0], device="cpu")
    drawn = np.sort(s.body_inertia.numpy()[:, body].astype(np.float64), axis=1)
    assert drawn[:, 0].min() > 0
    assert (drawn[:, 2] < (drawn[:, 0] + drawn[:, 1]) * (1 + 1e-6)).all()
    assert drawn[:, 0].max() > 5 * drawn[:, 0].min()


def spread(rows):
    """(count, k) -> mean, standard deviation, minimum and maximum of each column that varies."""
    return {"mean": rows.mean(axis=0), "std": rows.std(axis=0), "min": rows.min(axis=0), "max": rows.max(axis=0)}


def collect(env, resets):
    """Resets the environment and returns all its draws: name -> (resets * worlds, k)."""
    rows = []
    for _ in range(resets):
        env.reset()
        rows.append({name: value.reshape(env.num_envs, -1) for name, value in values(env).items()})
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def assert_nothing_compounds(env, resets, window):
    nominal = {name: getattr(env.state, f"{name}_nominal").numpy().copy() for name in fields_of(env)}
    early = collect(env, window)
    for _ in range(resets - 2 * window):
        env.reset()
    late = collect(env, window)
    for name in fields_of(env):
        np.testing.assert_array_equal(getattr(env.state, f"{name}_nominal").numpy(), nominal[name])
        np.testing.assert_array_equal(engine_values(env, name).astype(np.float32), getattr(env.state, name).numpy())
        first, last = spread(early[name]), spread(late[name])
        width = first["max"] - first["min"]
        varies = width > 1e-5 * np.abs(nominal[name].ravel())
        assert varies.any(), name
        np.testing.assert_array_equal(last["max"] - last["min"] > 1e-5 * np.abs(nominal[name].ravel()), varies)
        # both are draws of the same law: six standard errors of the difference of two means, and of two deviations
        count = len(early[name])
        error = 6 * first["std"] * np.sqrt(2 / count)
        assert (np.abs(first["mean"] - last["mean"])[varies] < error[varies]).all(), name
        assert (np.abs(first["std"] - last["std"])[varies] < error[varies]).all(), name
        for end in ("min", "max"):
            assert (np.abs(first[end] - last[end])[varies] < 0.15 * width[varies]).all(), name


@pytest.mark.long
def test_nothing_compounds_over_a_thousand_resets(task):
    env = make_env(task, num_envs=16, engine="mujoco", num_threads=1, seed=9)
    assert len(fields_of(env)) == 12
    assert_nothing_compounds(env, resets=1000, window=20)


@pytest.mark.long
def test_nothing_compounds_on_mujoco_warp(task):
    env = make_env(task, num_envs=64, engine="mujoco_warp", seed=9)
    assert_nothing_compounds(env, resets=60, window=6)


def constants_of(model):
    """mj_setConst's figures for a model: mass of subtrees, inverse weights of bodies and joints."""
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return {name: getattr(model, name).copy() for name in ("body_subtreemass", "body_invweight0", "dof_invweight0")}


def expected_constants(env, i):
    """The constants of a model that has the masses, inertias and armature of world i."""
    model = copy.copy(env.scene.model)
    for name in ("body_mass", "body_inertia", "body_ipos", "dof_armature"):
        target = getattr(model, name)
        target[...] = getattr(env.state, name)[i].numpy().reshape(target.shape)
    return constants_of(model)


@pytest.mark.parametrize("engine", ["mujoco", pytest.param("mujoco_warp", marks=pytest.mark.long)])
def test_what_derives_from_masses_is_recomputed_at_a_reset_for_the_worlds_that_were_reset(task, engine):
    env = make_env(task, num_envs=4, engine=engine, seed=2)
    for _ in range(3):
        env.step(torch.zeros(4, 12))
    before = derived(env)
    env.episode_length_buf[2] = env.max_episode_length
    dones = env.step(torch.zeros(4, 12))[2]
    assert dones.tolist() == [False, False, True, False]
    after = derived(env)
    for name in after:
        np.testing.assert_array_equal(after[name][[0, 1, 3]], before[name][[0, 1, 3]])
        assert (after[name][2] != before[name][2]).any()
        for i in range(4):
            np.testing.assert_allclose(after[name][i], expected_constants(env, i)[name], rtol=2e-4, atol=1e-6)


def derived(env):
    names = ("body_subtreemass", "body_invweight0", "dof_invweight0")
    if env.engine.name == "mujoco":
        models = [env.engine.batch.get_model(i) for i in range(env.num_envs)]
        return {name: np.stack([getattr(model, name) for model in models]) for name in names}
    return {name: getattr(env.engine.warp_model, name).numpy().copy() for name in names}


def test_recomputing_constants_leaves_every_state_s_bits_unchanged(task):
    env = make_env(task, num_envs=4, engine="mujoco", seed=2)
    env.step(torch.zeros(4, 12))
    kept = env.engine.get_state()
    env.engine.batch.set_const([1, 3])
    np.testing.assert_array_equal(env.engine.get_state(), kept)


def rollout(env, steps, first=0):
    rows = []
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(step)
        actions = torch.randn(env.num_envs, 12, generator=generator)
        obs, _, dones, _ = env.step(actions)
        model = [getattr(env.state, name).flatten(1) for name in (*fields_of(env), "xfrc_applied")]
        rows.append(torch.cat([obs["actor"], dones[:, None].float(), env.state.qpos, *model], dim=1).clone())
    return torch.stack(rows)


@pytest.mark.long
def test_any_number_of_threads_and_a_restored_state_give_the_same_bits(task):
    """With all of it on, and more worlds than one chunk of them."""
    one, two, three = (make_env(task, num_envs=260, engine="mujoco", seed=4, num_threads=k) for k in (1, 2, 2))
    assert torch.equal(rollout(one, 20), rollout(two, 20))
    kept = one.state_dict()
    three.load_state_dict(kept)
    assert torch.equal(rollout(one, 20, first=20), rollout(three, 20, first=20))


@pytest.mark.long
def test_a_restored_state_gives_the_same_bits_on_mujoco_warp(task):
    one, two = (make_env(task, num_envs=4, engine="mujoco_warp", seed=4) for _ in range(2))
    rollout(one, 20)
    two.load_state_dict(one.state_dict())
    assert torch.equal(rollout(one, 20, first=20), rollout(two, 20, first=20))
