"""Every term of a team against its formula in NumPy, on two pucks and a box."""

import numpy as np
import torch
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events, observations, team
from robot_rl_envs.objects import Box, Contact
from robot_rl_envs.task import Command, Event, Metric, Observation, ObservationGroup, Reward

WORLDS, STD, PLACES = 6, 0.7, np.array([[0.0, 0.0], [1.0, 0.0]])
LIMITS = {"vx_lo": -0.8, "vx_hi": 1.0, "vy_lo": -0.4, "vy_hi": 0.4, "yaw_lo": -0.5, "yaw_hi": 0.5}


def rotation(quat):
    w, x, y, z = quat
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def yaw_of(quat):
    w, x, y, z = quat
    return np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def turned(away, yaw):
    """Components of a vector along the ground in a frame that is turned by yaw."""
    return np.array([np.cos(yaw) * away[0] + np.sin(yaw) * away[1], np.cos(yaw) * away[1] - np.sin(yaw) * away[0]])


class Row:
    """What the formulas need of one robot: its own pose, the box's, the other's, and the goal."""

    def __init__(self, state, before, i):
        read = {name: getattr(state, name).numpy().astype(float) for name in FIELDS}
        other = i ^ 1
        self.pos, self.quat, self.vel = (read[f"base_{name}"][i] for name in ("pos_w", "quat_wxyz", "lin_vel_w"))
        self.other_pos, self.other_vel = read["base_pos_w"][other], read["base_lin_vel_w"][other]
        self.box, self.box_quat, self.box_vel = (read[f"object_{n}"][i, 0] for n in ("pos_w", "quat_wxyz", "lin_vel_w"))
        self.force, self.place, self.other_place = read["contact_force"][i, 0], PLACES[i % 2], PLACES[1 - i % 2]
        self.goal, self.into = before[i], rotation(self.quat).T

    def place_error(self):
        return np.linalg.norm(turned(self.pos - self.box, yaw_of(self.box_quat)) - self.place)

    def formation(self):
        return np.linalg.norm((self.other_pos - self.pos)[:2] - (self.other_place - self.place))

    def goal_error(self):
        return np.linalg.norm((self.goal - self.box)[:2])


FIELDS = [f"base_{name}" for name in ("pos_w", "quat_wxyz", "lin_vel_w")]
FIELDS += [f"object_{name}" for name in ("pos_w", "quat_wxyz", "lin_vel_w")] + ["contact_force"]
BOX = {"object": "box"}
OBSERVATIONS = {
    "object_axis": (BOX, lambda r: r.into @ rotation(r.box_quat)[:, 0]),
    "object_velocity": (BOX, lambda r: r.into @ (r.box_vel - r.vel)),
    "others_pos": ({}, lambda r: np.r_[r.into @ (r.other_pos - r.pos), 1.0]),
    "others_vel": ({}, lambda r: r.into @ r.other_vel),
}
REWARDS = {
    "keeps_place": ({**BOX, "std": STD}, lambda r: np.exp(-((r.place_error() / STD) ** 2))),
    "keeps_formation": ({"std": STD}, lambda r: np.exp(-((r.formation() / STD) ** 2))),
    "object_near_goal": ({**BOX, "std": STD}, lambda r: np.exp(-((r.goal_error() / STD) ** 2))),
    "object_tilt": (BOX, lambda r: 1 - rotation(r.box_quat)[2, 2]),
}
METRICS = {
    "goal_error": (BOX, Row.goal_error),
    "object_delivered": ({**BOX, "distance": 0.6, "height": 0.1}, lambda r: r.goal_error() < 0.6 and r.box[2] > 0.1),
    "object_dropped": ({**BOX, "height": 0.25}, lambda r: r.box[2] < 0.25),
    "formation_error": ({}, Row.formation),
    "passed": ({"x": 0.5}, lambda r: r.pos[0] > 0.5),
    "place_distance": (BOX, Row.place_error),
    "collides": ({"contact": "others", "force": 0.5}, lambda r: r.force > 0.5),
    "team_size": ({}, lambda r: 2.0),
}


def goal_command(**fields):
    own = {"distance_lo": 0.2, "distance_hi": 1.0, "goal_speed": 0.5, "gain": 1.0, "turn_gain": 1.5}
    return Command(team.carry_to_goal, team=True, object="box", resample_s=(100.0, 100.0), **own, **LIMITS)


def scene(puck_task, command, **fields):
    """Worlds of two pucks and a box, after some random actions: environment, last step, goals before it."""
    env = make_env(
        puck_task(
            2,
            objects={"box": Box(size=(0.2, 0.2, 0.2), pos=(0.5, 0.05, 0.3))},
            contacts={"others": Contact(first="robot", second="others")},
            events={"base": Event(events.reset_base, xy=0.3, yaw=1.0, velocity=0.5)},
            commands={"goal": command},
            **fields,
        ),
        num_envs=WORLDS,
        seed=2,
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        before = env._crews[0].state.goal_pos_w.clone() if hasattr(env._crews[0].state, "goal_pos_w") else None
        last = env.step(torch.randn(2 * WORLDS, 1, generator=generator))
    return env, last, before


def test_every_term_has_a_formula():
    own = [
        value
        for value in vars(team).values()
        if getattr(getattr(value, "func", None), "__module__", "") == team.__name__
    ]
    infos = [value.term_info for value in own if hasattr(value, "term_info")]
    names = {kind: {i.name for i in infos if i.kind == kind} for kind in ("observation", "reward", "metric")}
    # What a robot hears is in test_messages.py.
    assert names == {"observation": {*OBSERVATIONS, "heard"}, "reward": set(REWARDS), "metric": set(METRICS)}


def test_terms_are_their_formulas(puck_task):
    seen = {name: Observation(getattr(team, name), **params) for name, (params, _) in OBSERVATIONS.items()}
    groups = {
        "actor": ObservationGroup(terms={"pos": Observation(observations.base_height)}),
        "critic": ObservationGroup(terms=seen, noise=False),
    }
    weights = dict(zip(REWARDS, (1.0, 2.0, 4.0, 8.0), strict=True))
    rewards = {name: Reward(getattr(team, name), weight=weights[name], **REWARDS[name][0]) for name in REWARDS}
    metrics = {name: Metric(getattr(team, name), **params) for name, (params, _) in METRICS.items()}
    env, (obs, reward, done, _), before = scene(
        puck_task, goal_command(), observations=groups, rewards=rewards, metrics=metrics
    )
    assert not done.any()
    state = env._crews[0].state
    rows = [Row(state, before.numpy().astype(float), i) for i in range(2 * WORLDS)]
    want = np.array([np.concatenate([formula(row) for _, formula in OBSERVATIONS.values()]) for row in rows])
    np.testing.assert_allclose(obs["critic"].numpy()[:, : want.shape[1]], want, rtol=1e-4, atol=1e-4)
    earned = [sum(weights[n] * formula(row) for n, (_, formula) in REWARDS.items()) * env.step_dt for row in rows]
    np.testing.assert_allclose(reward.numpy(), earned, rtol=1e-4, atol=1e-5)
    measured = np.array([[float(formula(row)) for _, formula in METRICS.values()] for row in rows])
    np.testing.assert_allclose(state.metric_values.numpy(), measured, rtol=1e-4, atol=1e-4)
    away, yaws = state.goal_pos_w.numpy() - state.object_pos_w.numpy()[:, 0], state.start_yaw.numpy()
    for i, row in enumerate(rows):
        vx, vy = turned(away[i] + state.goal_vel_w.numpy()[i], yaw_of(row.quat))
        turn = 1.5 * ((yaws[i] - yaw_of(row.quat) + np.pi) % (2 * np.pi) - np.pi)
        wanted = np.clip([vx, vy, turn], [-0.8, -0.4, -0.5], [1.0, 0.4, 0.5])
        np.testing.assert_allclose(state.command.numpy()[i], wanted, atol=1e-4)


def test_marching_keeps_lane_and_speed(puck_task):
    command = Command(
        team.march, team=True, resample_s=(9.0, 9.0), speed_lo=0.3, speed_hi=0.7, gain=1.0, turn_gain=1.5, **LIMITS
    )
    env, _, _ = scene(puck_task, command)
    state = env._crews[0].state
    speeds = state.march_speed.numpy().reshape(WORLDS, 2)
    assert (speeds[:, 0] == speeds[:, 1]).all()
    assert ((speeds >= 0.3) & (speeds <= 0.7)).all()
    assert speeds.std() > 0.05
    for i in range(2 * WORLDS):
        yaw = yaw_of(state.base_quat_wxyz.numpy()[i])
        side = state.start_pos_w.numpy()[i, 1] - state.base_pos_w.numpy()[i, 1]
        vx, vy = turned(np.array([speeds.ravel()[i], side]), yaw)
        wanted = np.clip([vx, vy, -1.5 * yaw], [-0.8, -0.4, -0.5], [1.0, 0.4, 0.5])
        np.testing.assert_allclose(state.command.numpy()[i], wanted, atol=1e-4)
