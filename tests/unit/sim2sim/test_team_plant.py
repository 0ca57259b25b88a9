"""A simulated team: each robot's sensors and motors are its own, and it goes on when another is out."""

import sys
import types

import numpy as np
import pytest
import torch
from robot_rl_tasks.registry import get_task

from robot_rl.cli.main import main
from robot_rl.errors import UserError
from robot_rl.sim2sim.plant import Plant
from robot_rl.sim2sim.session import Kill, for_session, read_kills


@pytest.fixture(scope="module")
def plant():
    made = Plant(for_session(get_task("go2_pair_carry")), seed=3)
    yield made
    made.close()


def command_of(body, *, lift=0.0):
    """The default pose with the robot's gains, the front calves moved by ``lift`` [rad]."""
    joints = body.env.scene.robot.joints
    q = np.array([joint.default_pos for joint in joints])
    q[[k for k, joint in enumerate(joints) if joint.name.startswith("F") and "calf" in joint.name]] += lift
    zeros = np.zeros(len(joints))
    kp, kd = (np.array([getattr(joint, name) for joint in joints]) for name in ("kp", "kd"))
    return types.SimpleNamespace(q=q, dq=zeros, tau=zeros, kp=kp, kd=kd)


@pytest.mark.long
def test_each_robot_senses_itself_and_obeys_its_own_command(plant):
    names = list(plant.bodies)
    assert names == ["front", "rear"]
    front, rear = plant.bodies.values()
    plant.env.reset()
    front.command, rear.command = command_of(front, lift=-0.3), command_of(rear)
    plant.hold(True)
    for _ in range(15):
        plant.env.step(torch.zeros(2, 12))
    plant.hold(False)
    state = plant.env.state
    for body in (front, rear):
        low = types.SimpleNamespace()
        body.sense(low, ("measured/board", "measured/board_axis"))
        np.testing.assert_allclose(low.joint_pos, state.joint_pos[body.row], atol=1e-6)
        np.testing.assert_allclose(low.gyro, state.base_ang_vel_b[body.row], atol=1e-6)
        np.testing.assert_allclose(low.measured[:3], state.measured[body.row, :3], atol=1e-6)
    calf = front.env.scene.robot.joint_names.index("FL_calf_joint")
    assert state.joint_pos[1, calf] - state.joint_pos[0, calf] > 0.2
    assert state.base_pos_w[0, 0] - state.base_pos_w[1, 0] == pytest.approx(0.84, abs=0.02)


def test_a_robot_without_a_command_is_limp(plant):
    front, rear = plant.bodies.values()
    plant.env.reset()
    front.command, rear.command = command_of(front), None
    for _ in range(40):
        plant.env.step(torch.zeros(2, 12))
    heights = plant.env.state.base_pos_w[:, 2]
    assert heights[0] > 0.22
    assert heights[1] < 0.18


def test_a_session_has_no_end_and_all_robots():
    task = for_session(get_task("go2_team"))
    assert task.terminations == {}
    assert not task.team.varies


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("rear", "kill=rear: 'rear' must be robot@seconds, such as rear@4"),
        ("rear@soon", "'rear@soon' must be robot@seconds"),
        ("reer@4", "kill=reer@4: there is no robot 'reer'; did you mean 'rear'"),
    ],
)
def test_bad_kills(text, line):
    with pytest.raises(UserError, match=line):
        read_kills(text, ["front", "rear"])


def test_kills():
    assert read_kills("rear@4,front@0.5", ["front", "rear"]) == (Kill("rear", 4.0), Kill("front", 0.5))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("policy=go2_flat", "kill=rear@4"), "kill=rear@4: is for a task with several robots"),
        (("policy=go2_pair_carry", "faults=nan@5"), "faults=nan@5: is for a task of one robot"),
        (("policy=go2_pair_carry", "episodes=2", "kill=rear@1"), "kill=rear@1: is only for a session; omit episodes"),
        (
            ("policy=go2_pair_carry", "seconds=3", "kill=rear@3"),
            "kill=rear@3: the session ends after 3 s; give seconds= above 3",
        ),
        (("policy=go2_pair_carry", "team.size=[1,1]"), "team.size: all robots take part in a session"),
    ],
)
def test_what_is_for_one_robot_or_for_a_team(words, line, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "robot_rl_runtime", None)  # Refused also if the runtime is missing.
    assert main(["sim2sim", *words]) == 2
    assert line in capsys.readouterr().err
