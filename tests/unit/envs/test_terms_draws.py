"""Every command and event of the library against NumPy, draw by draw: the streams are part of what a seed means."""

from pathlib import Path

import numpy as np
import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_envs.mdp import observations, rewards
from robot_rl_envs.task import Command, Event, Observation, ObservationGroup, Reward, Sim, Task

N, SEED, OFFSET = 16, 12345, 3
BODY, JOINT = 1, 4
DEFAULT = np.tile([0.0, 0.9, -1.8], 4)
DT = 0.02


def reset_base(draw, world, xy, yaw, velocity):
    world["qpos"][0] += draw(-xy, xy)
    world["qpos"][1] += draw(-xy, xy)
    half = draw(-yaw, yaw) / 2
    world["qpos"][3:7] = [np.cos(half), 0, 0, np.sin(half)]
    world["qvel"][:6] = [draw(-velocity, velocity) for _ in range(6)]


def reset_joints(draw, world, position, velocity):
    for j in range(12):
        world["qpos"][7 + j] = np.clip(DEFAULT[j] + draw(-position, position), *world["range"][j])
        world["qvel"][6 + j] = draw(-velocity, velocity)


def reset_joint_to(draw, world, joint, centre, spread, velocity):
    world["qpos"][7 + joint] = centre + draw(-spread, spread)
    world["qvel"][6 + joint] = draw(-velocity, velocity)


def push(draw, world, xy, yaw):
    world["qvel"][0] += draw(-xy, xy)
    world["qvel"][1] += draw(-xy, xy)
    world["qvel"][5] += draw(-yaw, yaw)


def foot_friction(draw, world, lo, hi):
    world["geom_friction"][world["feet"], 0] = draw(lo, hi)


def base_mass(draw, world, body, mass, com):
    scale = 1 + draw(-mass, mass) / world["body_mass"][body, 0]
    world["body_mass"][body] *= scale
    world["body_inertia"][body] *= scale
    world["body_ipos"][body] += [draw(-com, com) for _ in range(3)]


def motor_strength(draw, world, lo, hi):
    for a in range(12):
        factor = draw(lo, hi)
        world["actuator_gainprm"][a, 0] *= factor
        world["actuator_biasprm"][a, :3] *= factor


EVENTS = {
    # name: (mode, parameters, what it does to one world, what it leaves to compare once all have happened)
    "reset_base": (
        "reset",
        {"xy": 0.7, "yaw": 3.0, "velocity": 0.4},
        reset_base,
        lambda w: np.r_[w["qpos"][:7], w["qvel"][:6]],
    ),
    "reset_joints": (
        "reset",
        {"position": 1.5, "velocity": 0.6},
        reset_joints,
        lambda w: np.r_[np.delete(w["qpos"][7:], JOINT), np.delete(w["qvel"][6:], JOINT)],
    ),
    "reset_joint_to": (
        "reset",
        {"joint": JOINT, "centre": 0.3, "spread": 0.2, "velocity": 0.9},
        reset_joint_to,
        lambda w: np.r_[w["qpos"][7 + JOINT], w["qvel"][6 + JOINT]],
    ),
    "push": ("interval", {"xy": 0.8, "yaw": 0.5}, push, lambda w: w["qvel"]),
    "foot_friction": ("reset", {"lo": 0.3, "hi": 1.4}, foot_friction, lambda w: w["geom_friction"]),
    "base_mass": (
        "startup",
        {"body": BODY, "mass": 2.0, "com": 0.03},
        base_mass,
        lambda w: np.r_[w["body_mass"].ravel(), w["body_inertia"].ravel(), w["body_ipos"].ravel()],
    ),
    "motor_strength": (
        "reset",
        {"lo": 0.8, "hi": 1.1},
        motor_strength,
        lambda w: np.r_[w["actuator_gainprm"].ravel(), w["actuator_biasprm"].ravel()],
    ),
}

ELSEWHERE = {
    "explicit_gains": "test_terms_actuation.py",
    "dc_motor_gains": "test_terms_actuation.py",
    "heading_velocity": "test_terms_commands.py",
    **dict.fromkeys(("uniform_position", "uniform_pose", "moving_position"), "test_terms_targets.py"),
    **dict.fromkeys(("body_mass", "body_payload", "body_com", "body_inertia"), "test_terms_randomize.py"),
    **dict.fromkeys(("principal_inertia", "foot_spin_friction", "foot_solref"), "test_terms_randomize.py"),
    **dict.fromkeys(("foot_solimp", "joint_damping", "joint_friction"), "test_terms_randomize.py"),
    **dict.fromkeys(("joint_armature", "gravity", "motor_gains", "wrench"), "test_terms_randomize.py"),
}
"""Terms that this task does not have, and the test file that checks them."""

VELOCITY = {"vx_lo": -1.0, "vx_hi": 1.5, "vy_lo": -0.6, "vy_hi": 0.5, "yaw_lo": -0.9, "yaw_hi": 1.1, "standing": 0.3}


def uniform_velocity(draw, vx_lo, vx_hi, vy_lo, vy_hi, yaw_lo, yaw_hi, standing):
    command = [draw(vx_lo, vx_hi), draw(vy_lo, vy_hi), draw(yaw_lo, yaw_hi)]
    return np.zeros(3) if draw(0, 1) < standing else np.array(command)


COMMANDS = {"uniform_velocity": (VELOCITY, uniform_velocity)}
RESAMPLE_S, INTERVAL_S = (0.3, 0.9), (0.2, 0.5)


@pytest.fixture(scope="module")
def drawn(puppet, library):
    """A task with every event and command there is a formula for, freshly reset."""
    known = library("event")
    modes = {name: EVENTS[name][0] for name in EVENTS if name in known}
    task = Task(
        name="every_event",
        robot=get_robot("unitree_go2"),
        sim=Sim(timestep=0.005, decimation=4),
        observations={"actor": ObservationGroup(terms={"action": Observation(observations.last_action)})},
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
        commands={
            name: Command(fn, resample_s=RESAMPLE_S, **COMMANDS[name][0])
            for name, fn in library("command").items()
            if name in COMMANDS
        },
        events={
            name: Event(known[name], mode=mode, interval_s=INTERVAL_S, **EVENTS[name][1])
            for name, mode in modes.items()
        },
    )
    return puppet(task, num_envs=N, seed=SEED, world_offset=OFFSET)


def fresh(doll):
    """The state after a reset of all worlds."""
    doll.env.reset()
    return doll.snapshot()


def model_fields(s):
    return [name for name in vars(s) if hasattr(s, f"{name}_nominal")]


def nominal_world(doll):
    """What events start from in every world."""
    s, scene = doll.snapshot(), doll.env.scene
    world = {name: getattr(s, f"{name}_nominal").copy() for name in model_fields(s)}
    ranges = [scene.model.joint(name).range for name in doll.env.cfg.robot.joint_names]
    return world | {"qpos": scene.default_qpos.copy(), "qvel": np.zeros(18), "range": ranges, "feet": scene.foot_geoms}


def worlds(doll):
    """Every world of the environment, in the same form."""
    s = doll.snapshot()
    return [{name: getattr(s, name)[i] for name in ("qpos", "qvel", *model_fields(s))} for i in range(N)]


def test_event_is_its_formula(event_term, drawn, stream):
    if event_term in ELSEWHERE:
        assert event_term in (Path(__file__).parent / ELSEWHERE[event_term]).read_text()
        return
    assert event_term in EVENTS, f"no NumPy formula for events.{event_term}: add one to EVENTS"
    mode, _, _, left = EVENTS[event_term]
    before = fresh(drawn)
    if mode == "interval":
        drawn.put("interval_left_s", 0.0)
        drawn.step(qpos=before.qpos, qvel=np.zeros((N, 18)))
    counter = int(drawn.state.counter[0])
    got = worlds(drawn)
    for i in range(N):
        want = nominal_world(drawn)
        for name, (when, params, happen, _) in EVENTS.items():
            if (when == "interval") == (mode == "interval"):
                draw = stream(SEED, f"events.{name}", i + OFFSET, 0 if when == "startup" else counter).uniform
                if when == "interval":
                    draw()  # the time until the next one
                happen(draw, want, **params)
        np.testing.assert_allclose(left(got[i]), left(want), rtol=2e-6, atol=1e-6)
    assert np.std([left(world) for world in got], axis=0).max() > 0


def test_command_is_its_formula(command_term, drawn, stream):
    """At a reset: first how long it lasts, then the command itself."""
    if command_term in ELSEWHERE:
        assert command_term in (Path(__file__).parent / ELSEWHERE[command_term]).read_text()
        return
    assert command_term in COMMANDS, f"no NumPy formula for commands.{command_term}: add one to COMMANDS"
    params, formula = COMMANDS[command_term]
    s = fresh(drawn)
    for i in range(N):
        draw = stream(SEED, f"commands.{command_term}", i + OFFSET, s.counter[i]).uniform
        assert s.command_left_s[i, 0] == pytest.approx(draw(*RESAMPLE_S), rel=1e-5)
        np.testing.assert_allclose(s.command[i], formula(draw, **params), atol=1e-6)
    standing = np.all(s.command == 0, axis=1)
    assert 0 < standing.sum() < N


def test_pushes_and_commands_come_when_their_time_is_up(puppet, drawn, stream):
    """Only the world where the interval ends is pushed, with its own draw, and then waits for another interval."""
    doll = puppet(drawn.env.cfg, num_envs=N, seed=SEED, world_offset=OFFSET)
    first = doll.snapshot()
    for i in range(N):
        draw = stream(SEED, "events.push.first", i + OFFSET, 0).uniform
        assert first.interval_left_s[i, 0] == pytest.approx(draw(*INTERVAL_S), rel=1e-5)
    qpos, qvel = first.qpos, np.zeros((N, 18))
    due, resample = first.interval_left_s[:, 0].copy(), first.command_left_s[:, 0].copy()
    command = first.command.copy()
    for step in range(1, 40):
        doll.step(qpos=qpos, qvel=qvel)
        s = doll.snapshot()
        due, resample = due - DT, resample - DT
        for i in range(N):
            want = {"qvel": np.zeros(18)}
            if due[i] <= 1e-6:
                draw = stream(SEED, "events.push", i + OFFSET, 1 + step).uniform
                due[i] = draw(*INTERVAL_S)
                push(draw, want, **EVENTS["push"][1])
            np.testing.assert_allclose(s.qvel[i], want["qvel"], atol=1e-6)
            if resample[i] <= 1e-6:
                draw = stream(SEED, "commands.uniform_velocity", i + OFFSET, 1 + step).uniform
                resample[i] = draw(*RESAMPLE_S)
                command[i] = uniform_velocity(draw, **VELOCITY)
            np.testing.assert_allclose(s.command[i], command[i], atol=1e-6)


def test_formulas_are_of_terms_that_exist(library):
    assert set(EVENTS) <= set(library("event"))
    assert set(COMMANDS) <= set(library("command"))
