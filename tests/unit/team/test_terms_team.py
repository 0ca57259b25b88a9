"""Every term of a team against its formula in NumPy, on two pucks and a box."""

from typing import Any

import mujoco
import numpy as np
import pytest
import torch
import warp as wp
from robot_rl_envs.agents import Agent
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import carrying, events, objects, observations, rewards, team
from robot_rl_envs.objects import Box, Contact
from robot_rl_envs.task import Command, Event, Metric, Observation, ObservationGroup, Reward
from robot_rl_envs.terms import event

from robot_rl.view.viewer.command import command_info
from robot_rl.view.viewer.drive import command_frame
from tests.unit.arm import KINDS, make_arm_task

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
        self.force, *self.pads = read["contact_force"][i]
        self.place, self.other_place = PLACES[i % 2], PLACES[1 - i % 2]
        self.site, self.joint = read["site_pos_w"][i, 0], read["joint_pos"][i, 0]
        self.axis = rotation(self.box_quat)[:, 0] * (1 - 2 * (i % 2))
        self.end = self.box + REACH * self.axis
        self.goal, self.into = before[i], rotation(self.quat).T

    def place_error(self):
        return np.linalg.norm(turned(self.pos - self.box, yaw_of(self.box_quat)) - self.place)

    def formation(self):
        return np.linalg.norm((self.other_pos - self.pos)[:2] - (self.other_place - self.place))

    def goal_error(self):
        return np.linalg.norm((self.goal - self.box)[:2])

    def near_end(self):
        return np.exp(-((np.linalg.norm(self.end - self.site) / STD) ** 2))


FIELDS = [f"base_{name}" for name in ("pos_w", "quat_wxyz", "lin_vel_w")]
FIELDS += [f"object_{name}" for name in ("pos_w", "quat_wxyz", "lin_vel_w")]
FIELDS += ["contact_force", "site_pos_w", "joint_pos"]
BOX = {"object": "box"}
REACH = 0.15
FACING = {"x_lo": 0.5, "x_hi": 0.7, "y_lo": -0.2, "y_hi": 0.2, "z_lo": 0.1, "z_hi": 0.4}
"""The same box for two arms that face each other at 1.2 m."""
END = BOX | {"reach": REACH}
HOLD = END | {"site": "paddle"}
PADS = {"left_contact": "left", "right_contact": "right", "force": 40.0}
OBSERVATIONS = {
    "object_axis": (BOX, lambda r: r.into @ rotation(r.box_quat)[:, 0]),
    "object_velocity": (BOX, lambda r: r.into @ (r.box_vel - r.vel)),
    "others_pos": ({}, lambda r: np.r_[r.into @ (r.other_pos - r.pos), 1.0]),
    "others_vel": ({}, lambda r: r.into @ r.other_vel),
    "end_pos": (END, lambda r: r.into @ (r.end - r.pos)),
    "site_to_end": (HOLD, lambda r: r.into @ (r.end - r.site)),
    "end_axis": (BOX, lambda r: r.into @ r.axis),
}
REWARDS = {
    "keeps_place": ({**BOX, "std": STD}, lambda r: np.exp(-((r.place_error() / STD) ** 2))),
    "keeps_formation": ({"std": STD}, lambda r: np.exp(-((r.formation() / STD) ** 2))),
    "object_near_goal": ({**BOX, "std": STD}, lambda r: np.exp(-((r.goal_error() / STD) ** 2))),
    "object_tilt": (BOX, lambda r: 1 - rotation(r.box_quat)[2, 2]),
    "reach_end": (HOLD | {"std": STD}, lambda r: 1 - np.tanh(np.linalg.norm(r.end - r.site) / STD)),
    "closes_on_end": (
        HOLD | {"joint": "paddle", "distance": STD, "opened": 0.5},
        lambda r: np.clip(1 - r.joint / 0.5, 0, 1) * r.near_end(),
    ),
    "grasps_end": (HOLD | PADS | {"distance": STD}, lambda r: min(min(r.pads) / 40, 1) * r.near_end()),
    "end_raised": (END | {"rest": 0.1, "height": 0.3}, lambda r: np.clip((r.end[2] - 0.1) / 0.3, 0, 1)),
    "object_inclined": (BOX, lambda r: r.axis[2] ** 2),
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
    "object_slope": (BOX, lambda r: abs(np.arcsin(r.axis[2]))),
}


@event(writes="state")
def lean(s: Any, i: int, rng: wp.uint32, object: float):
    """Turn a free object about its y axis."""
    at = s.object_qpos[int(object)]
    s.qpos[i, at + 3] = wp.cos(0.2)
    s.qpos[i, at + 5] = wp.sin(0.2)


def goal_command(**fields):
    own = {"distance_lo": 0.2, "distance_hi": 1.0, "goal_speed": 0.5, "gain": 1.0, "turn_gain": 1.5}
    return Command(carrying.carry_to_goal, team=True, object="box", resample_s=(100.0, 100.0), **own, **LIMITS)


def scene(puck_task, command, **fields):
    """Worlds of two pucks and a box, after some random actions: environment, last step, goals before it."""
    env = make_env(
        puck_task(
            2,
            objects={"box": Box(size=(0.2, 0.2, 0.2), pos=(0.5, 0.05, 0.3))},
            contacts={
                "others": Contact(first="robot", second="others"),
                "left": Contact(first="robot", second="floor"),
                "right": Contact(first="shell", second="floor"),
            },
            events={
                "base": Event(events.reset_base, xy=0.3, yaw=1.0, velocity=0.5),
                "box": Event(lean, team=True, object="box"),
            },
            commands={"goal": command},
            **fields,
        ),
        num_envs=WORLDS,
        seed=2,
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        before = env._all[0].state.goal_pos_w.clone() if hasattr(env._all[0].state, "goal_pos_w") else None
        last = env.step(torch.randn(2 * WORLDS, 1, generator=generator))
    return env, last, before


def term(name):
    """The term of this name, of either module."""
    return getattr(team, name, None) or getattr(carrying, name)


def test_every_term_has_a_formula():
    own = [
        value
        for module in (team, carrying)
        for value in vars(module).values()
        if getattr(getattr(value, "func", None), "__module__", "") == module.__name__
    ]
    infos = [value.term_info for value in own if hasattr(value, "term_info")]
    names = {kind: {i.name for i in infos if i.kind == kind} for kind in ("observation", "reward", "metric")}
    # What a robot receives is in test_messages.py.
    assert names == {"observation": {*OBSERVATIONS, "received"}, "reward": set(REWARDS), "metric": set(METRICS)}


def test_terms_are_their_formulas(puck_task):
    seen = {name: Observation(term(name), **params) for name, (params, _) in OBSERVATIONS.items()}
    groups = {
        "actor": ObservationGroup(terms={"pos": Observation(observations.base_height)}),
        "critic": ObservationGroup(terms=seen, noise=False),
    }
    weights = {name: float(k + 1) for k, name in enumerate(REWARDS)}
    rewards = {name: Reward(term(name), weight=weights[name], **REWARDS[name][0]) for name in REWARDS}
    metrics = {name: Metric(term(name), **params) for name, (params, _) in METRICS.items()}
    env, (obs, reward, done, _), before = scene(
        puck_task, goal_command(), observations=groups, rewards=rewards, metrics=metrics
    )
    assert not done.any()
    state = env._all[0].state
    rows = [Row(state, before.numpy().astype(float), i) for i in range(2 * WORLDS)]
    want = np.array([np.concatenate([formula(row) for _, formula in OBSERVATIONS.values()]) for row in rows])
    np.testing.assert_allclose(obs["critic"].numpy()[:, : want.shape[1]], want, rtol=1e-4, atol=1e-4)
    earned = [sum(weights[n] * formula(row) for n, (_, formula) in REWARDS.items()) * env.step_dt for row in rows]
    np.testing.assert_allclose(reward.numpy(), earned, rtol=1e-4, atol=1e-5)
    assert 0 < min(min(row.pads) for row in rows) < 40, "so that the grasp's force counts"
    assert all(abs(row.axis[2]) > 0.1 for row in rows)
    measured = np.array([[float(formula(row)) for _, formula in METRICS.values()] for row in rows])
    np.testing.assert_allclose(state.metric_values.numpy(), measured, rtol=1e-4, atol=1e-4)
    away, yaws = state.goal_pos_w.numpy() - state.object_pos_w.numpy()[:, 0], state.start_yaw.numpy()
    for i, row in enumerate(rows):
        vx, vy = turned(away[i] + state.goal_vel_w.numpy()[i], yaw_of(row.quat))
        turn = 1.5 * ((yaws[i] - yaw_of(row.quat) + np.pi) % (2 * np.pi) - np.pi)
        wanted = np.clip([vx, vy, turn], [-0.8, -0.4, -0.5], [1.0, 0.4, 0.5])
        np.testing.assert_allclose(state.command.numpy()[i], wanted, atol=1e-4)


@pytest.mark.long
def test_marching_keeps_lane_and_speed(puck_task):
    command = Command(
        team.march, team=True, resample_s=(9.0, 9.0), speed_lo=0.3, speed_hi=0.7, gain=1.0, turn_gain=1.5, **LIMITS
    )
    env, _, _ = scene(puck_task, command)
    state = env._all[0].state
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


def turned_back(vector, yaw):
    """The vector in the world, of a frame that is turned by yaw."""
    return torch.tensor([*turned(vector[:2].numpy(), -yaw), vector[2]], dtype=torch.float32)


@pytest.mark.long
def test_bolted_arms_see_one_target_and_their_ends_in_frames_of_their_own(tmp_path):
    target = Command(carrying.carry_to_target, team=True, resample_s=(0.1, 0.1), speed=0.5, **FACING)
    own = make_arm_task(tmp_path / "arm.xml", KINDS["position"])
    yaws = (2.5, 2.5 - np.pi)
    places = np.array([[-0.6 * np.cos(yaw), -0.6 * np.sin(yaw), 0.1] for yaw in yaws])
    seen = {
        "end": Observation(carrying.end_pos, **END),
        "axis": Observation(carrying.end_axis, **BOX),
        "away": Observation(objects.object_to_target, **BOX),
        "tip": Observation(objects.site_pos, site="tip"),
    }
    robots = {f"a{k}": Agent(robot=own.robot, pos=tuple(places[k].tolist()), yaw=yaws[k]) for k in range(2)}
    own.observations["actor"].terms |= seen
    env = make_env(
        make_arm_task(
            tmp_path / "arm.xml",
            target,
            robot=None,
            robots=robots,
            observations=own.observations,
            rewards={"reach": Reward(objects.reach_target, weight=1.0, site="tip", std=0.5)},
            objects={"box": Box(size=(0.4, 0.2, 0.2), pos=(0.1, 0.05, 0.3))},
        ),
        num_envs=WORLDS,
        seed=1,
    )
    before = env.reset()["actor"].clone()
    state, width = env.state, before.shape[1]
    fixed = env.state.target_pos_w.clone()
    for step in range(8):
        obs = env.step(torch.zeros(2 * WORLDS, 3))[0]["actor"].numpy()[:, width - 12 :]
        point, box = state.target_pos_w.numpy(), state.object_pos_w.numpy()[:, 0]
        assert (point[::2] == point[1::2]).all(), "one target for both"
        moved = np.linalg.norm(point - fixed.numpy(), axis=1)
        assert (moved <= 0.5 * env.step_dt + 1e-6).all()
        assert moved.max() > 0 or step == 0
        fixed = state.target_pos_w.clone()
        for i in range(2 * WORLDS):
            k = i % 2
            into = carrying.turn(-yaws[k])
            axis = rotation(state.object_quat_wxyz.numpy()[i, 0])[:, 0] * (1 - 2 * k)
            tip = state.site_pos_w.numpy()[i, 0]
            want = [box[i] + REACH * axis - places[k], axis, point[i] - box[i], tip - places[k]]
            np.testing.assert_allclose(obs[i].reshape(4, 3), [into @ row for row in want], atol=1e-5)
            at = state.command.numpy()[i]
            np.testing.assert_allclose(at, into @ (point[i] - places[k]), atol=1e-5)
            assert all(
                FACING[f"{n}_lo"] - 1e-5 <= v <= FACING[f"{n}_hi"] + 1e-5 for n, v in zip("xyz", at, strict=True)
            )
    env.set_command((0.1, 0.2, 0.3), torch.tensor([2]))
    points = [env.state.base_pos_w[i] + turned_back(env.state.command[i], yaws[i % 2]) for i in (4, 5)]
    torch.testing.assert_close(points[0], points[1])
    assert env.state.command[4].tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert env.state.command_hold.nonzero().flatten().tolist() == [4, 5]
    info = command_info(env)
    for i in (4, 5):
        position, quat = command_frame(env, info, i)
        np.testing.assert_allclose(position + rotation(quat) @ env.state.command[i].numpy(), points[0], atol=1e-5)
    # The engine's arms are bolted where the rows have them; the arm's file has a site on the world's body, too.
    data = mujoco.MjData(env.scene.model)
    data.qpos[:] = env.world_qpos[0].numpy()
    mujoco.mj_forward(env.scene.model, data)
    tips = [data.site(f"a{k}/tip").xpos for k in range(2)]
    np.testing.assert_allclose(state.site_pos_w.numpy()[:2, 0], tips, atol=1e-5)
    marks = [env.scene.model.site(f"a{k}/mark").id for k in range(2)]
    assert env.scene.maps[0].at["site"][:, 0].tolist() == marks
    env.close()


def test_a_box_of_targets_that_each_robot_sees_elsewhere_is_refused(tmp_path):
    own = make_arm_task(tmp_path / "arm.xml", KINDS["position"])
    target = Command(carrying.carry_to_target, team=True, speed=0.5, **FACING)
    for yaw, places in ((0.0, ((0.0, 0.0, 0.0), (0.0, 0.5, 0.0))), (3.0, ((0.6, 0.0, 0.0), (-0.6, 0.0, 0.0)))):
        robots = {f"a{k}": Agent(robot=own.robot, pos=places[k], yaw=yaw * (1 - k)) for k in range(2)}
        task = make_arm_task(
            tmp_path / "arm.xml",
            target,
            robot=None,
            robots=robots,
            rewards={"still": Reward(rewards.joint_vel_size, weight=-1.0)},
        )
        with pytest.raises(ValueError, match="robot 'a1' sees the box of the targets from"):
            make_env(task, num_envs=1)
    with pytest.raises(ValueError, match="robot 'arm3' is not in a team of one role, all bolted down"):
        make_env(make_arm_task(tmp_path / "arm.xml", target), num_envs=1)
