"""Every reward and termination of the library against a NumPy formula, on random states of a Go2."""

import numpy as np
import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_envs.imagination.check import check_gradients
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import observations, rewards
from robot_rl_envs.task import Observation, ObservationGroup, Reward, Task, Termination

N = 64
LOWER, UPPER = (np.array(side * 4) for side in ([-1.0472, -1.5708, -2.7227], [1.0472, 3.4907, -0.83776]))
LOWER[[7, 10]], UPPER[[7, 10]] = -0.5236, 4.5379  # rear thighs
SPEEDS = np.array([joint.velocity_limit for joint in get_robot("unitree_go2").joints])
DEFAULT = np.tile([0.0, 0.9, -1.8], 4)


def squares(x):
    return np.sum(np.square(x), axis=-1)


def moving(s):
    return np.linalg.norm(s.command, axis=1) >= 0.1


def phase(s, frequency_hz):
    """Turns of the gait clock since the reset, the whole ones left out."""
    return np.mod(s.step_count * s.step_dt * frequency_hz, 1.0)


def swing(s, frequency_hz):
    """(N, 4) progress of each foot's swing, NaN in stance: one diagonal in the first half, the other in the second."""
    turns = np.stack([phase(s, frequency_hz), np.mod(phase(s, frequency_hz) + 0.5, 1.0)], axis=1)[:, [0, 1, 1, 0]]
    return np.where(turns < 0.5, 2.0 * turns, np.nan)


def trot_contact(s, frequency_hz):
    want = np.where(moving(s)[:, None], np.isnan(swing(s, frequency_hz)), True)
    return np.mean(want == (s.foot_contact > 0), axis=1)


def trot_height(s, frequency_hz, height):
    progress = swing(s, frequency_hz)
    target = np.maximum(height * np.sin(np.pi * np.nan_to_num(progress)), 0.2 * height)
    clearance = np.clip(s.foot_height_w, 0, None)
    value = np.minimum(clearance / target, 1) - 4 * np.clip(clearance / height - 1.5, 0, None)
    in_swing = moving(s)[:, None] & ~np.isnan(progress)
    return np.mean(np.where(in_swing, np.clip(value, 0, 1), 1.0), axis=1)


def joint_limits(s, soft):
    over = np.abs(s.joint_pos - (LOWER + UPPER) / 2) - soft * (UPPER - LOWER) / 2
    return np.sum(np.clip(over, 0, None), axis=1)


def lateral_error(s):
    return s.command[:, :2] - s.base_lin_vel_b[:, :2]


def tilt(s):
    """Angle [rad] between the base's z axis and the vertical."""
    return np.arccos(np.clip(-s.projected_gravity_b[:, 2], -1, 1))


REWARDS = {
    # name: (parameters, formula)
    "track_lin_vel": ({"std": 0.7}, lambda s, std: np.exp(-squares(lateral_error(s)) / std**2)),
    "track_yaw_rate": (
        {"std": 0.9},
        lambda s, std: np.exp(-np.square(s.command[:, 2] - s.base_ang_vel_b[:, 2]) / std**2),
    ),
    "alive": ({}, lambda s: np.ones(N)),
    "lin_vel_z": ({}, lambda s: s.base_lin_vel_b[:, 2] ** 2),
    "ang_vel_xy": ({}, lambda s: squares(s.base_ang_vel_b[:, :2])),
    "flat_orientation": ({}, lambda s: np.sin(tilt(s)) ** 2),
    "upright": ({}, lambda s: (1 + np.cos(tilt(s))) / 2),
    "rise": (
        {"height": 0.3},
        lambda s, height: ((1 + np.cos(tilt(s))) / 2) ** 2 * np.clip(s.qpos[:, 2] / height, 0, 1),
    ),
    "stance": (
        {"std": 2.0},
        lambda s, std: np.clip(np.cos(tilt(s)), 0, None) ** 2 * np.exp(-squares(s.joint_pos - DEFAULT) / std**2),
    ),
    "base_height": ({"target": 0.31}, lambda s, target: (s.qpos[:, 2] - target) ** 2),
    "joint_torque": ({}, lambda s: squares(s.actuator_force)),
    "mechanical_power": ({}, lambda s: np.sum(np.clip(s.actuator_force * s.qvel[:, 6:], 0, None), axis=1)),
    "joint_acc": ({}, lambda s: squares((s.joint_vel - s.before.last_joint_vel) / s.step_dt)),
    "action_rate": ({}, lambda s: squares(s.given - s.before.action)),
    "action_jerk": ({}, lambda s: squares(s.given - 2 * s.before.action + s.before.prev_action)),
    "joint_limits": ({"soft": 0.8}, joint_limits),
    "pose": (
        {"moving_scale": 0.3},
        lambda s, moving_scale: squares(s.joint_pos - DEFAULT) * np.where(moving(s), moving_scale, 1.0),
    ),
    "hip_pose": ({}, lambda s: squares(s.joint_pos[:, [0, 3, 6, 9]])),
    "foot_slip": ({}, lambda s: np.sum(s.foot_contact * squares(s.foot_vel_w[:, :, :2]), axis=1)),
    "trot_contact": ({"frequency_hz": 1.7}, trot_contact),
    "trot_height": ({"frequency_hz": 1.7, "height": 0.09}, trot_height),
    "foot_air_time": (
        {"target_s": 0.2},
        lambda s, target_s: moving(s) * np.sum(s.foot_touchdown * (s.foot_air_time_s - target_s), axis=1) / s.step_dt,
    ),
    "stand_still": ({}, lambda s: ~moving(s) * squares(s.joint_vel)),
    "terminated": ({}, lambda s: (tilt(s) > np.pi / 3) / s.step_dt),
    "upright_pole": ({"joint": 4}, lambda s, joint: np.cos(s.joint_pos[:, joint] / 2) ** 2),
    "centred": ({"joint": 2}, lambda s, joint: s.joint_pos[:, joint] ** 2),
    "joint_vel_excess": (
        {"share": 0.1},
        lambda s, share: np.sum(np.clip(np.abs(s.joint_vel) / SPEEDS - share, 0, None), axis=1),
    ),
    "joint_vel_size": ({}, lambda s: (s.joint_vel**2).sum(1)),
    "joint_vel_sq": ({"joint": 3}, lambda s, joint: s.joint_vel[:, joint] ** 2),
    "action_size": ({}, lambda s: squares(s.given)),
}

TERMINATIONS = {
    # name: (parameters, parameters with which it never ends an episode, formula)
    "tilted": ({"limit_rad": 1.2}, {"limit_rad": np.pi}, lambda s, limit_rad: tilt(s) > limit_rad),
    "base_below": ({"height": 0.2}, {"height": -9.0}, lambda s, height: s.qpos[:, 2] < height),
    # On an endless plane, about the origin.
    "clearance_below": ({"height": 0.2}, {"height": -9.0}, lambda s, height: s.qpos[:, 2] < height),
    "far_from_origin": ({"limit": 1.5}, {"limit": 99.0}, lambda s, limit: np.hypot(*s.qpos[:, :2].T) > limit),
    "joint_beyond": (
        {"joint": 5, "limit": 2.1},
        {"limit": 99.0},
        lambda s, joint, limit: np.abs(s.qpos[:, 7 + joint]) > limit,
    ),
}


def randomize(doll, rng):
    """Give the bookkeeping between steps random contents, as after a while of walking."""
    command = rng.uniform(-1.0, 1.0, size=(N, 3)) * (rng.random((N, 1)) < 0.6)
    contact = (rng.random((N, 4)) < 0.5).astype(float)
    fields = {
        "command": command,
        "step_count": rng.integers(0, 400, size=N),
        "last_joint_vel": rng.normal(size=(N, 12)),
        "action": rng.normal(size=(N, 12)),
        "prev_action": rng.normal(size=(N, 12)),
        "prev_prev_action": rng.normal(size=(N, 12)),
        "foot_contact": contact,
        "foot_air_time_s": rng.uniform(0.0, 0.5, size=(N, 4)),
        "foot_contact_time_s": contact * rng.uniform(0.02, 0.5, size=(N, 4)),
    }
    for name, value in fields.items():
        doll.put(name, value)


@pytest.fixture(scope="module")
def every_reward(library):
    """A task with every reward there is a formula for."""
    known = library("reward")
    names = [name for name in REWARDS if name in known and set(REWARDS[name][0]) == set(known[name].term_info.params)]
    return Task(
        name="every_reward",
        robot=get_robot("unitree_go2"),
        observations={"actor": ObservationGroup(terms={"action": Observation(observations.last_action)})},
        rewards={name: Reward(known[name], weight=1.0, **REWARDS[name][0]) for name in names},
    )


@pytest.fixture(scope="module")
def scored(puppet, go2_states, every_reward):
    """One step of that task: what the terms saw, and each term's sum."""
    doll, names = puppet(every_reward, num_envs=N), list(every_reward.rewards)
    rng = np.random.default_rng(3)
    randomize(doll, rng)
    before = doll.snapshot()
    actions = rng.normal(size=(N, 12)).astype(np.float32)
    _, total, dones, _ = doll.step(actions, **go2_states(4, N))
    assert not dones.any()
    s = doll.snapshot()
    s.before, s.given, s.total = before, actions.astype(float), total.numpy()
    s.scores = {name: s.reward_sums[:, k] / s.step_dt for k, name in enumerate(names)}
    return s


def test_reward_is_its_formula(reward_term, scored):
    assert reward_term in REWARDS, f"no NumPy formula for rewards.{reward_term}: add one to REWARDS"
    same = reward_term in scored.scores
    assert same, f"rewards.{reward_term} takes other parameters than its formula in REWARDS"
    params, formula = REWARDS[reward_term]
    want = np.asarray(formula(scored, **params), float)
    assert want.std() > 0 or reward_term == "alive", "the states do not distinguish this term from a constant"
    np.testing.assert_allclose(scored.scores[reward_term], want, rtol=2e-4, atol=2e-4)


def test_gradients_are_those_of_finite_differences(every_reward):
    env = make_env(every_reward, num_envs=8, device="cpu")
    verdicts = {one.path.removeprefix("rewards."): one.verdict for one in check_gradients(env, steps=2)}
    env.close()
    without = {"alive": "flat", "terminated": "steps"}
    assert {name: verdicts[name] for name in REWARDS} == dict.fromkeys(REWARDS, "right") | without


def test_formulas_are_of_terms_that_exist(library):
    assert set(REWARDS) <= set(library("reward"))
    assert set(TERMINATIONS) <= set(library("termination"))


def test_a_step_s_reward_is_the_sum_of_its_terms(scored):
    np.testing.assert_allclose(scored.total, scored.reward_sums.sum(axis=1), rtol=1e-5)


def test_foot_bookkeeping_follows_the_contact_sensor(scored):
    """Air time grows in the air and is whole at touchdown, contact time starts at touchdown; both restart from zero."""
    s, was = scored, scored.before.foot_contact > 0
    force = np.linalg.norm(s.sensordata.reshape(N, 4, 4)[:, :, 1:], axis=2)
    down = force > 1.0
    np.testing.assert_array_equal(s.foot_contact, down)
    np.testing.assert_allclose(s.foot_force, force, rtol=1e-5)
    np.testing.assert_array_equal(s.foot_touchdown, down & ~was)
    air = np.where(was, np.where(down, s.before.foot_air_time_s, s.step_dt), s.before.foot_air_time_s + s.step_dt)
    np.testing.assert_allclose(s.foot_air_time_s, air, atol=1e-6)
    np.testing.assert_allclose(
        s.foot_contact_time_s, np.where(down, s.before.foot_contact_time_s + s.step_dt, 0), atol=1e-6
    )


@pytest.fixture(scope="module")
def ended(puppet, go2_states, library):
    """A task with every termination there is a formula for, and random states."""
    known = library("termination")
    names = [name for name in TERMINATIONS if name in known]
    task = Task(
        name="every_termination",
        robot=get_robot("unitree_go2"),
        observations={"actor": ObservationGroup(terms={"action": Observation(observations.last_action)})},
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
        terminations={name: Termination(known[name], **TERMINATIONS[name][0]) for name in names},
    )
    doll = puppet(task, num_envs=N)
    return doll, go2_states(5, N)


def test_termination_is_its_formula(termination_term, ended, scored):
    """The worlds that end show the term's result: the others are given parameters with which they never end one."""
    name = termination_term
    assert name in TERMINATIONS, f"no NumPy formula for terminations.{name}: add one to TERMINATIONS"
    doll, states = ended
    params, _, formula = TERMINATIONS[name]
    for other, (_, never, _) in TERMINATIONS.items():
        for param, value in (params if other == name else never).items():
            doll.env.set_param(f"terminations.{other}.{param}", value)
    doll.env.pop_metrics()
    dones = doll.step(**states)[2].numpy()
    s = type(scored)(qpos=states["qpos"].astype(float), projected_gravity_b=gravity(states["qpos"]))
    want = formula(s, **params)
    assert 0 < want.sum() < N
    np.testing.assert_array_equal(dones, want)
    assert doll.env.pop_metrics()[f"termination/{name}"] == 1.0


def gravity(qpos):
    """Third row of the rotation matrix, negated: where down is in the base frame."""
    w, x, y, z = qpos[:, 3:7].astype(float).T
    return -np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], axis=1)
