"""A binary's log is read as its arrays are, and another robot's is refused."""

from dataclasses import replace

import numpy as np
import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_assets.robot import Dynamics

from robot_rl.errors import UserError
from robot_rl.identify.excitation_bundle import PERIOD_S, rehearse, write_excitation_bundle
from robot_rl.identify.excite import excite
from robot_rl.identify.identify import IdentifyCfg, identify
from robot_rl.identify.robot_log import read_log, robot_of


def test_an_mcap_is_read_as_the_npz_of_its_arrays(rt, record, tmp_path):
    path, robot = record(), get_robot("unitree_go2")
    log = read_log(path, robot)
    events = rt.LogTail(str(path)).read(topics=("/state",))
    np.testing.assert_array_equal(log.joint_pos, np.array([event["joint_pos"] for event in events], np.float64))
    # The last command of each tick: in every tenth one a control step's command comes before it.
    last = np.cumsum([2 if k % 10 == 0 else 1 for k in range(600)]) - 1
    answers = [record.sent[k] for k in last]
    for key, name in (("target", "q"), ("kp", "kp"), ("kd", "kd")):
        expected = np.array([getattr(sent, name)[:12] for sent in answers], np.float64)
        held = log.kp > 0 if key == "target" else np.ones_like(log.kp, bool)
        np.testing.assert_allclose(getattr(log, key)[held], expected[held], atol=1e-6)
    arrays = {
        "time": log.time,
        "q": log.joint_pos,
        "dq": log.joint_vel,
        "target": log.target,
        "kp": log.kp,
        "kd": log.kd,
    }
    np.savez(tmp_path / "log.npz", allow_pickle=False, joints=robot.joint_names, **arrays)
    again = read_log(tmp_path / "log.npz", robot)
    for key in ("time", "joint_pos", "joint_vel", "target", "kp", "kd", "repeated"):
        np.testing.assert_array_equal(getattr(again, key), getattr(log, key))
    assert robot_of(path) == "unitree_go2"


def test_a_contract_of_another_robot_is_refused(record):
    with pytest.raises(UserError, match="is a log of another robot than unitree_g1: without left_hip"):
        read_log(record(), get_robot("unitree_g1"))


def test_a_damaged_log_is_one_line(tmp_path):
    for content, line in ((b"no log", "log.mcap"), (b"", "is empty or cut off before its first state")):
        (tmp_path / "log.mcap").write_bytes(content)
        with pytest.raises(UserError, match=line):
            read_log(tmp_path / "log.mcap", get_robot("unitree_go2"))


@pytest.mark.long
def test_the_binary_excites_a_hanging_robot_and_its_log_shows_the_motors(tmp_path):
    """The robot's motors are 20 % weaker than its model's, its calves have three times the friction and armature."""
    robot = get_robot("unitree_go2")
    motors = Dynamics(gain=0.8, armature=0.01, damping=0.3, friction=0.2)
    calf = replace(motors, armature=0.03, friction=0.6)
    joints = [replace(joint, dynamics=calf if "calf" in joint.name else motors) for joint in robot.joints]
    write_excitation_bundle(tmp_path / "chirps", robot, excite(robot, 10.0, 1.0 / PERIOD_S))
    rehearse(tmp_path / "chirps", replace(robot, joints=tuple(joints)), 10.0, tmp_path / "log.mcap")
    found = identify([read_log(tmp_path / "log.mcap", robot)], None, robot, IdentifyCfg()).result
    for joint, rows in found.joints.items():
        truth = calf if "calf" in joint else motors
        assert rows["gain"].value == pytest.approx(truth.gain, abs=0.03)
        assert rows["friction"].value == pytest.approx(truth.friction, abs=0.03)
        assert rows["armature"].value == pytest.approx(truth.armature, abs=0.002)
        assert rows["damping"].value == pytest.approx(truth.damping, abs=0.05)
