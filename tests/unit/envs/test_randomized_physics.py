"""Randomized fields act: what falls, weighs, slides and is pushed does so by the laws, on both engines."""

import copy
import dataclasses

import mujoco
import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_envs.engine import DIRTY_STATE, DIRTY_WRENCH
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events, randomize
from robot_rl_envs.task import Event

ENGINES = ["mujoco", pytest.param("mujoco_warp", marks=pytest.mark.long)]
N, DT, G = 4, 0.02, 9.81
QUIET = {"force_xy": 0.0, "force_z": 0.0, "torque": 0.0, "duration_lo": 0.2, "duration_hi": 0.2}


@pytest.fixture(scope="module", params=ENGINES)
def env(request, go2_task_once):
    """Every event at its reset, and none has an effect until a test sets it."""
    task = go2_task_once(
        name="physics",
        episode_length_s=1000.0,
        events={
            "gravity": Event(randomize.gravity, lo=1.0, hi=1.0),
            "load": Event(randomize.body_payload, body="base_link", lo=0.0, hi=0.0),
            "friction": Event(events.foot_friction, lo=1.0, hi=1.0),
            "damping": Event(randomize.joint_damping, lo=1.0, hi=1.0),
            "gains": Event(randomize.motor_gains, kp_lo=1.0, kp_hi=1.0, kd_lo=1.0, kd_hi=1.0),
            "wrench": Event(randomize.wrench, body="base_link", **QUIET),
            "kick": Event(randomize.wrench, mode="interval", interval_s=(500.0, 600.0), body="FL_calf", **QUIET),
        },
    )
    return make_env(task, num_envs=N, engine=request.param, num_threads=1, seed=6)


@pytest.fixture
def start(env):
    """start(height, **params): resets all worlds with the given events, height [m] above the usual pose."""
    changed = {}

    def go(height=0.0, **params):
        for path, value in params.items():
            path = "events." + path.replace("__", ".")
            changed.setdefault(path, env.params()[path])
            env.set_param(path, value)
        env.reset()
        env.state.qpos[:, 2] += height
        lift(env)
        return env

    yield go
    for path, value in changed.items():
        env.set_param(path, value)


def lift(env):
    """Take over qpos as a reset does; on the CPU that clears applied forces, which are then written again."""
    forces = env.state.xfrc_applied.clone()
    env.state.dirty.fill_(DIRTY_STATE)
    env.write_back()
    env.state.xfrc_applied.copy_(forces)
    env.state.dirty.fill_(DIRTY_WRENCH)
    env.write_back()


def run(env, steps):
    for _ in range(steps):
        env.step(torch.zeros(env.num_envs, 12))


def momentum(env, i):
    """Linear momentum [kg m/s] of world i, from its own masses."""
    model = copy.copy(env.scene.model)
    model.body_mass[:] = env.state.body_mass[i, :, 0].numpy()
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = env.state.qpos[i].numpy(), env.state.qvel[i].numpy()
    mujoco.mj_forward(model, data)
    mujoco.mj_subtreeVel(model, data)
    return data.subtree_linvel[1] * model.body_mass.sum()


@pytest.mark.parametrize("factor", [0.5, 1.0])
def test_half_the_gravity_is_half_the_fall(start, factor):
    env = start(height=2.0, gravity__lo=factor, gravity__hi=factor)
    height = env.state.qpos[:, 2].clone()
    run(env, 10)
    mass = env.scene.model.body_mass.sum()
    for i in range(N):
        assert momentum(env, i)[2] == pytest.approx(-factor * G * mass * 10 * DT, rel=2e-3)
    fall = (height - env.state.base_pos_w[:, 2]).numpy()
    np.testing.assert_allclose(fall, factor * G * (10 * DT) ** 2 / 2, rtol=0.05)


@pytest.mark.parametrize("load", [0.0, 4.0])
def test_a_payload_is_carried_by_the_feet(start, load):
    env = start(load__lo=load, load__hi=load)
    run(env, 120)
    total = env.scene.model.body_mass.sum() + load
    np.testing.assert_allclose(env.state.foot_force.sum(dim=1).numpy(), G * total, rtol=0.03)


def test_without_friction_the_feet_slide(start):
    def slide(mu):
        env = start(friction__lo=mu, friction__hi=mu)
        run(env, 15)
        env.push((0.0, 0.6, 0.0))
        run(env, 8)
        return env.state.foot_vel_w[:, :, 1].abs().mean().item()

    assert slide(0.0) > 4 * slide(1.0)


def test_half_the_stiffness_sags_more(start):
    def sag(factor):
        env = start(gains__kp_lo=factor, gains__kp_hi=factor)
        run(env, 80)
        return (env.state.joint_pos - env.state.default_joint_pos)[:, 2::3].abs().mean().item()

    assert sag(0.5) > 1.6 * sag(1.0)


def test_damped_joints_move_slower(start):
    def speed(factor):
        env = start(height=1.0, damping__lo=factor, damping__hi=factor)
        env.state.qvel[:, 6:] = 5.0
        lift(env)
        run(env, 1)
        return env.state.joint_vel.abs().mean().item()

    assert speed(20.0) < 0.7 * speed(1.0)


def test_a_wrench_accelerates_by_force_over_mass_and_ends_on_time(start):
    """In free fall: the momentum changes by gravity and the force, as long as it lasts: ten control steps."""
    env = start(height=2.0, wrench__force_xy=40.0, wrench__force_z=20.0)
    force = env.state.xfrc_applied[:, 1, :3].numpy().copy()
    assert (np.abs(force[:, :2]) <= 40).all()
    assert np.abs(force).min(axis=0).max() > 0.1
    weight = np.array([0.0, 0.0, -G * env.scene.model.body_mass.sum()])
    for steps in (10, 5):
        before = [momentum(env, i) for i in range(N)]
        run(env, steps)
        for i in range(N):
            pushed = force[i] if steps == 10 else np.zeros(3)
            change = (pushed + weight) * steps * DT
            np.testing.assert_allclose(momentum(env, i) - before[i], change, rtol=5e-3, atol=0.02)
    assert not env.state.xfrc_applied.any()
    assert not env.state.wrench_left_s.any()


def test_a_torque_turns_the_body(start):
    env = start(height=2.0, wrench__torque=3.0)
    torque = env.state.xfrc_applied[:, 1, 3:].numpy().copy()
    assert np.abs(torque).max() > 1.0
    run(env, 2)
    turn = env.state.base_ang_vel_b.numpy()
    # about one axis of a body where the moments differ at most by a few times
    assert (np.sum(turn * torque, axis=1) > 0).all()


def test_a_reset_lets_go(start, env):
    start(wrench__force_xy=40.0)
    run(env, 3)
    assert env.state.xfrc_applied[:, 1].any(dim=1).all()
    env.set_param("events.wrench.force_xy", 0.0)
    env.episode_length_buf[1] = env.max_episode_length
    run(env, 1)
    assert not env.state.xfrc_applied[1].any()
    assert env.state.xfrc_applied[[0, 2, 3], 1].any(dim=1).all()
    if env.engine.name == "mujoco":
        np.testing.assert_allclose(
            env.engine.batch.bind("xfrc_applied"), env.state.xfrc_applied.numpy().astype(np.float64)
        )


def test_a_kick_during_the_episode_is_another_body_s(start, env):
    """An interval event on a calf leaves the base's wrench unchanged, and ends on its own."""
    start(height=2.0, wrench__force_xy=40.0, kick__force_z=30.0)
    run(env, 2)
    env.state.interval_left_s[2] = 0.0
    base = env.state.xfrc_applied[:, 1].clone()
    calf = env.scene.model.body("FL_calf").id
    run(env, 1)
    assert torch.equal(env.state.xfrc_applied[:, 1], base)
    assert env.state.xfrc_applied[:, calf].any(dim=1).tolist() == [False, False, True, False]
    run(env, 10)
    assert not env.state.xfrc_applied.any()


def test_a_range_that_ends_below_its_begin_is_no_event():
    with pytest.raises(ValueError, match=r"lo=1.2: must be at most hi=1"):
        Event(randomize.body_mass, body=1, lo=1.2, hi=1.0)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Event(randomize.body_mass, body=1, lo=0.0, hi=1.0), ["lo=0", "greater than 0"]),
        (Event(randomize.body_mass, body="base_lnk", lo=0.9, hi=1.0), ["body='base_lnk'", "did you mean 'base_link'"]),
        (Event(randomize.body_mass, body=99, lo=0.9, hi=1.0), ["body=99", "0 to 13"]),
        (Event(randomize.body_mass, body=0, lo=0.9, hi=1.0), ["body=0", "without mass"]),
        (Event(randomize.body_payload, body=1, lo=-7.0, hi=1.0), ["lo=-7", "6.921 kg"]),
        (Event(events.base_mass, body=1, mass=8.0, com=0.0), ["mass=8", "less than 6.921 kg"]),
        (Event(randomize.body_inertia, body=1, lo=-0.5, hi=1.0), ["lo=-0.5", "invalid"]),
        (Event(randomize.principal_inertia, body="FL_calf", lo=0.9, hi=1.1), ["hi=1.1", "FL_calf", "at most 0.916"]),
        (Event(events.foot_friction, lo=-0.1, hi=1.0), ["lo=-0.1", "at least 0"]),
        (
            Event(randomize.foot_spin_friction, torsional_lo=0.0, torsional_hi=0.1, rolling_lo=0.0, rolling_hi=0.0),
            ["torsional_hi=0.1", "condim 3", "condim to 4"],
        ),
        (
            Event(randomize.foot_solref, time_lo=0.001, time_hi=0.02, damping_lo=1.0, damping_hi=1.0),
            ["time_lo=0.001", "two physics steps"],
        ),
        (Event(randomize.joint_damping, lo=-1.0, hi=1.0), ["lo=-1", "at least 0"]),
        (Event(randomize.gravity, lo=0.0, hi=1.0), ["lo=0", "greater than 0"]),
        (Event(randomize.wrench, body=1, **(QUIET | {"duration_lo": 0.001})), ["duration_lo=0.001", "at least 0.02"]),
        (Event(randomize.motor_gains, kp_lo=-1.0, kp_hi=1.0, kd_lo=1.0, kd_hi=1.0), ["kp_lo=-1", "at least 0"]),
        (Event(events.motor_strength, lo=0.0, hi=1.0), ["lo=0", "greater than 0"]),
        (Event(events.push, mode="interval", xy=-1.0, yaw=0.0), ["xy=-1", "at least 0"]),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(go2_task, event, words):
    with pytest.raises(ValueError, match=".") as caught:
        make_env(go2_task(events={"odd": event}), num_envs=2, engine="mujoco")
    line = str(caught.value)
    assert line.startswith("events.odd.")
    assert "\n" not in line
    assert all(word in line for word in words), line


def test_two_events_that_draw_the_same_are_refused(go2_task):
    pairs = {
        "body_mass": [
            Event(randomize.body_mass, body="base_link", lo=0.9, hi=1.1),
            Event(events.base_mass, body=1, mass=1.0, com=0.0),
        ],
        "actuator_gainprm": [
            Event(events.motor_strength, lo=0.9, hi=1.1),
            Event(randomize.motor_gains, kp_lo=1.0, kp_hi=1.0, kd_lo=1.0, kd_hi=1.0),
        ],
        "forces on a body": [
            Event(randomize.wrench, body=3, **QUIET),
            Event(randomize.wrench, mode="interval", body=3, **QUIET),
        ],
    }
    for cover, (one, two) in pairs.items():
        with pytest.raises(ValueError, match=f"events.two: draws {cover}, which events.one also draws"):
            make_env(go2_task(events={"one": one, "two": two}), num_envs=2, engine="mujoco")


def test_a_center_of_mass_that_mujoco_would_not_read_is_refused(cart_task, tmp_path):
    """One in its body's origin: MuJoCo's compiler notes so and ignores body_ipos from then on."""
    robot = get_robot("cartpole")
    model = tmp_path / "model.xml"
    model.write_text(robot.model.read_text().replace('pos="0 0 0.03" mass', 'pos="0 0 0" mass'))
    drawn = {"com": Event(randomize.body_com, body="cart", x=0.1, y=0.0, z=0.0)}
    make_env(cart_task(events=drawn), num_envs=2, engine="mujoco")
    with pytest.raises(ValueError, match=r"events\.com\.body=2: .*'cart' in its origin"):
        make_env(cart_task(robot=dataclasses.replace(robot, model=model), events=drawn), num_envs=2, engine="mujoco")


def test_a_wrench_needs_an_episode():
    with pytest.raises(ValueError, match="mode='startup': must be reset or interval for wrench"):
        Event(randomize.wrench, mode="startup", body=1, **QUIET)


def test_nothing_is_bound_that_no_event_needs(go2_task):
    env = make_env(go2_task(), num_envs=2, engine="mujoco")
    assert "xfrc_applied" not in dir(env.state)
    assert "body_mass" not in dir(env.state)
