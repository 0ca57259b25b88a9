"""Every observation and metric of the library against a NumPy formula, on random states of a Go2."""

import numpy as np
import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_envs.mdp import rewards
from robot_rl_envs.task import Metric, Observation, ObservationGroup, Reward, Task

N = 32
DEFAULT = np.tile([0.0, 0.9, -1.8], 4)


def gait_clock(s, frequency_hz):
    angle = 2 * np.pi * s.step_count * s.step_dt * frequency_hz
    gate = np.linalg.norm(s.command, axis=1) >= 0.1
    return gate[:, None] * np.stack([np.sin(angle), np.cos(angle)], axis=1)


def sin_cos(angle):
    return np.stack([np.sin(angle), np.cos(angle)], axis=1)


OBSERVATIONS = {
    # name: (parameters, formula for (N, size))
    "base_ang_vel": ({}, lambda s: s.qvel[:, 3:6]),
    "projected_gravity": ({}, lambda s: s.projected_gravity_b),
    "joint_pos_rel": ({}, lambda s: s.qpos[:, 7:] - DEFAULT),
    "limited_joint_pos_rel": ({}, lambda s: s.qpos[:, 7:] - DEFAULT),
    "joint_vel": ({}, lambda s: s.qvel[:, 6:]),
    "last_action": ({}, lambda s: s.given),
    "velocity_command": ({}, lambda s: s.command),
    "command": ({}, lambda s: s.command),
    "gait_clock": ({"frequency_hz": 1.7}, gait_clock),
    "base_lin_vel": ({}, lambda s: s.base_lin_vel_b),
    "base_height": ({}, lambda s: s.qpos[:, 2:3]),
    "foot_contact": ({}, lambda s: s.sensordata.reshape(N, 4, 4)[:, :, 0] > 0),
    "foot_height": ({}, lambda s: s.foot_pos_w[:, :, 2] - 0.022),
    "foot_air_time": ({}, lambda s: np.where(s.foot_contact > 0, 0.0, s.foot_air_time_s)),
    "joint_torque": ({}, lambda s: s.actuator_force),
    "joint_angle_sin_cos": ({"joint": 7}, lambda s, joint: sin_cos(s.qpos[:, 7 + joint])),
    "one_joint_pos": ({"joint": 5}, lambda s, joint: s.qpos[:, [7 + joint]]),
}

METRICS = {
    "lin_vel_axis_error": ({"axis": 1}, lambda s, axis: np.abs(s.command - s.base_lin_vel_b)[:, axis]),
    "lin_vel_error": ({}, lambda s: np.hypot(*(s.command - s.base_lin_vel_b)[:, :2].T)),
    "yaw_vel_error": ({}, lambda s: np.abs(s.command[:, 2] - s.qvel[:, 5])),
    "standing": (
        {"height": 0.2, "tilt_rad": 1.0},
        lambda s, height, tilt_rad: (s.qpos[:, 2] >= height) & (-s.projected_gravity_b[:, 2] > np.cos(tilt_rad)),
    ),
    "joint_cos": ({"joint": 1}, lambda s, joint: np.cos(s.qpos[:, 7 + joint])),
    "terrain_level": ({}, lambda s: s.terrain_level),
    "command_range": ({}, lambda s: s.command_range),
}


@pytest.fixture(scope="module")
def seen(puppet, go2_states, library):
    """One step of a task with every observation and metric there is a formula for."""
    known, measured = library("observation"), library("metric")
    terms = {name: Observation(known[name], **OBSERVATIONS[name][0]) for name in OBSERVATIONS if name in known}
    task = Task(
        name="every_observation",
        robot=get_robot("unitree_go2"),
        observations={"actor": ObservationGroup(terms=terms)},
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
        metrics={name: Metric(measured[name], **METRICS[name][0]) for name in METRICS if name in measured},
    )
    doll = puppet(task, num_envs=N)
    rng = np.random.default_rng(6)
    doll.put("command", rng.uniform(-1, 1, size=(N, 3)) * (rng.random((N, 1)) < 0.7))
    doll.put("step_count", rng.integers(0, 400, size=N))
    doll.put("foot_air_time_s", rng.uniform(0, 0.5, size=(N, 4)))
    doll.put("terrain_level", np.arange(N) % 7)
    doll.put("command_range", np.linspace(0, 1, N) ** 2)
    actions = rng.normal(size=(N, 12)).astype(np.float32)
    obs, _, _, _ = doll.step(actions, **go2_states(7, N))
    s = doll.snapshot()
    s.given, s.metrics = actions, doll.env.pop_metrics()
    widths = [
        12
        if t.info.size in ("joints", "actions", "limited_joints")
        else {"feet": 4, "command": 3}.get(t.info.size, t.info.size)
        for t in terms.values()
    ]
    s.parts = dict(zip(terms, np.split(obs["actor"].numpy(), np.cumsum(widths)[:-1], axis=1), strict=True))
    return s


def test_observation_is_its_formula(observation_term, seen):
    assert observation_term in OBSERVATIONS, f"no NumPy formula for observations.{observation_term}: add one"
    params, formula = OBSERVATIONS[observation_term]
    want = np.asarray(formula(seen, **params), float)
    assert want.std() > 0
    np.testing.assert_allclose(seen.parts[observation_term], want, rtol=1e-5, atol=2e-5)


def test_metric_is_its_formula(metric_term, seen):
    assert metric_term in METRICS, f"no NumPy formula for metrics.{metric_term}: add one"
    params, formula = METRICS[metric_term]
    assert seen.metrics[f"tracking/{metric_term}"] == pytest.approx(np.mean(formula(seen, **params)), rel=1e-5)


def test_formulas_are_of_terms_that_exist(library):
    assert set(OBSERVATIONS) <= set(library("observation"))
    assert set(METRICS) <= set(library("metric"))


def test_a_term_that_a_robot_measures_names_its_sensor(observation_term, library):
    """What the exporter writes down: a signal, a frame, and a unit wherever the value has one."""
    info = library("observation")[observation_term].term_info
    assert info.summary.endswith(".") or ":" in info.summary
    frames = ("base", "world", "joint", "none")
    # That of a command of any kind is what the command declares.
    assert info.frame in (("command",) if observation_term == "command" else frames)
    privileged = {"base_lin_vel", "base_height", "foot_height", "foot_air_time", "joint_torque"}
    assert (info.signal is None) == (observation_term in privileged)
