"""The G1's library of motions: what its joints, feet and center of mass do in each."""

import numpy as np
import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_envs.motions import read_motion
from robot_rl_envs.motions.files import library
from robot_rl_envs.motions.kinematics import Solver
from robot_rl_tasks.registry import get_task

G1 = get_robot("unitree_g1")
STEPPING = ("step", "turn")


@pytest.fixture(scope="module")
def solver():
    return Solver(G1)


def poses(solver, motion):
    """Lowest point of each foot [m] and the center of mass in each frame, in the frames of both soles (T, 2, ...)."""
    model, data = solver.model, solver.data
    geoms = [model.geom(foot).id for foot in G1.feet]
    low, com = [], []
    for k in range(len(motion.joint_pos)):
        data.qpos[:3], data.qpos[3:7] = motion.base_pos[k], motion.base_quat_wxyz[k]
        data.qpos[solver.qpos] = motion.joint_pos[k]
        solver.look()
        turns = data.geom_xmat[geoms].reshape(2, 3, 3)
        low.append(data.geom_xpos[geoms][:, 2] - (np.abs(turns[:, 2]) * model.geom_size[geoms]).sum(1))
        com.append(np.einsum("fij,fi->fj", turns, solver.com - data.geom_xpos[geoms]))
    return np.array(low), np.array(com)


@pytest.mark.parametrize("name", ["squat", "wave", "step", "turn"])
def test_a_motion_of_the_library_can_be_done(solver, name):
    motion = read_motion(name, G1)
    assert motion.robot == "unitree_g1"
    assert motion.loops
    speed = np.abs(np.diff(motion.joint_pos, axis=0)) * motion.rate_hz
    assert (speed.max(0) < 0.5 * np.array([joint.velocity_limit for joint in G1.joints])).all()
    assert (motion.joint_pos > solver.limits[:, 0]).all()
    assert (motion.joint_pos < solver.limits[:, 1]).all()
    low, com = poses(solver, motion)
    assert low.min() > -0.001, "no foot goes into the floor"
    assert (low.min(1) < 0.002).all(), "one foot is always on it"
    assert (low.max() > 0.03) == (name in STEPPING)
    half = solver.model.geom_size[solver.model.geom("left_foot").id]
    for foot in range(2):
        carries = low[:, 1 - foot] > 0.002  # the other one is in the air
        assert (np.abs(com[carries, foot, :2]) < half[:2]).all(), "the center of mass is above the sole that carries"
    if name not in STEPPING:
        assert np.abs(com[:, :, 0]).max() < 0.02
        assert np.abs(com[:, :, 1].sum(1)).max() < 0.02, "as far from either foot"


def test_getting_up_begins_on_the_floor_and_ends_on_the_feet(solver):
    motion = read_motion("get_up", G1)
    assert not motion.loops
    speed = np.abs(np.diff(motion.joint_pos, axis=0)) * motion.rate_hz
    assert (speed.max(0) < 0.5 * np.array([joint.velocity_limit for joint in G1.joints])).all()
    assert motion.base_pos[0, 2] < 0.15
    assert motion.base_pos[-1, 2] == pytest.approx(0.74, abs=0.005)
    low, com = poses(solver, motion)
    assert low.min() > -0.001
    on_feet = np.arange(len(low)) / motion.rate_hz > 6.8
    assert low[on_feet].max() < 0.002
    assert np.abs(com[on_feet, :, 0]).max() < 0.03, "hands have left the floor: the feet carry everything"


def test_what_each_motion_is():
    squat, wave, turn = (read_motion(name, G1) for name in ("squat", "wave", "turn"))
    assert np.ptp(squat.base_pos[:, 2]) == pytest.approx(0.22, abs=0.01)
    elbow = G1.joint_names.index("right_elbow_joint")
    assert np.ptp(wave.joint_pos[:, elbow]) > 0.8
    assert np.ptp(wave.joint_pos[:, elbow - 10 : elbow - 3], axis=0).max() < 0.05, "the left arm"
    yaw = 2 * np.arctan2(turn.base_quat_wxyz[:, 3], turn.base_quat_wxyz[:, 0])
    assert yaw[-1] - yaw[0] == pytest.approx(np.radians(60.0), abs=0.05)


def test_the_task_follows_motions_of_the_library():
    task = get_task("g1_track")
    assert set(task.motions.values()) <= set(library(G1))
    assert task.actions.around == "command"
    assert task.command_width == 2 * 29 + 10
