"""Retarget motions of AMASS, rotations of the SMPL body's joints, to a humanoid by correspondence of joints.

Each rotation of the body is decomposed about the axes of the robot's joints in their order: hips and shoulders pitch,
roll, yaw; waist yaw, roll, pitch; ankles pitch, roll; knees and elbows by the angle of the limb. Positions are scaled
by the length of the legs, and the whole motion is lowered or lifted so that the feet stand on the floor.

Limits: hands, wrists, neck and toes are omitted. Arms and legs have other proportions, so hands do not end at the
person's place, and a foot on the floor can slide by some millimeters. Joints are clipped to their ranges, and nothing
keeps the robot's parts from each other, nor its balance. Shoulders that turn behind the back pass a singularity. For
more, retarget with a tool made for it and bring its npz or CSV.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from robot_rl_assets.robot import Robot

from robot_rl_envs.motions import rotation
from robot_rl_envs.motions.motion import Motion

if TYPE_CHECKING:
    import mujoco

HIPS, SPINE, KNEES, ANKLES = (1, 2), (3, 6, 9), (4, 5), (7, 8)
COLLARS, SHOULDERS, ELBOWS = (13, 14), (16, 17), (18, 19)
"""Numbers of SMPL's joints; of pairs the left one is first."""
BODY_JOINTS = 22
SMPL_LEG_M = 0.83
"""Length of a leg of SMPL's mean body, hip to ankle [m]."""
SIDES = ("left", "right")
TO_ROBOT = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
"""From SMPL's axes (x left, y up, z forward) to the robot's (x forward, y left, z up)."""
STANDING = 5.0
"""Percentile of the heights of the lower foot that is on the floor."""


def retarget(name: str, arrays: Mapping[str, Any], robot: Robot) -> Motion:
    """Return the motion of an AMASS file for a robot with the joints of a humanoid.

    Args:
        name: of the motion.
        arrays: ``poses`` (T, 66 or more) axis-angle [rad], ``trans`` (T, 3) [m], z up, ``mocap_framerate`` [Hz].
        robot: a humanoid, with joints called as the G1's.

    Raises:
        ValueError: an array has another shape, or the robot lacks a joint; the line begins with the element.
    """
    poses, trans = np.asarray(arrays["poses"], dtype=np.float64), np.asarray(arrays["trans"], dtype=np.float64)
    if poses.ndim != 2 or poses.shape[1] < 3 * BODY_JOINTS:
        raise ValueError(f"poses: has shape {poses.shape}; must be (frames, {3 * BODY_JOINTS} or more)")
    if trans.shape != (len(poses), 3):
        raise ValueError(f"trans: has shape {trans.shape}; must be {(len(poses), 3)}")
    rate = np.asarray(arrays.get("mocap_framerate", arrays.get("mocap_frame_rate", np.nan))).ravel()
    if rate.size != 1 or rate.dtype.kind not in "fiu" or not np.isfinite(rate[0]):
        raise ValueError("mocap_framerate: is missing, or no number")
    for key, values in (("poses", poses), ("trans", trans)):
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            raise ValueError(f"{key}: frame {bad[0][0]}, column {bad[0][1]} is not a finite number")
    turns = _matrices(poses[:, : 3 * BODY_JOINTS].reshape(len(poses), BODY_JOINTS, 3))
    local = TO_ROBOT @ turns[:, 1:] @ TO_ROBOT.T
    angles = _angles(np.concatenate([np.zeros_like(local[:, :1]), local], axis=1))
    lacking = next((joint for joint in angles if joint not in robot.joint_names), "")
    if lacking:
        raise ValueError(f"joint {lacking!r}: robot {robot.name!r} has none; motions of AMASS need a robot like the G1")
    joints, pos, quat = _on_the_floor(turns[:, 0] @ TO_ROBOT.T, trans, angles, robot)
    return Motion(
        name=name,
        rate_hz=float(rate[0]),
        joint_names=tuple(robot.joint_names),
        joint_pos=joints,
        base_pos=pos,
        base_quat_wxyz=quat,
    )


def _matrices(rotvec: np.ndarray) -> np.ndarray:
    """Return rotation matrices (..., 3, 3) of rotation vectors (..., 3)."""
    quat = rotation.from_rotvec(rotvec)
    return np.stack([rotation.rotate(quat, np.broadcast_to(axis, rotvec.shape)) for axis in np.eye(3)], axis=-1)


def _pitch_roll_yaw(turn: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return angles of rotations (T, 3, 3) = Ry(pitch) Rx(roll) Rz(yaw)."""
    pitch, yaw = np.arctan2(turn[:, 0, 2], turn[:, 2, 2]), np.arctan2(turn[:, 1, 0], turn[:, 1, 1])
    return pitch, np.arcsin(np.clip(-turn[:, 1, 2], -1.0, 1.0)), yaw


def _yaw_roll_pitch(turn: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return angles of rotations (T, 3, 3) = Rz(yaw) Rx(roll) Ry(pitch)."""
    yaw, pitch = np.arctan2(-turn[:, 0, 1], turn[:, 1, 1]), np.arctan2(-turn[:, 2, 0], turn[:, 2, 2])
    return yaw, np.arcsin(np.clip(turn[:, 2, 1], -1.0, 1.0)), pitch


def _angles(turns: np.ndarray) -> dict[str, np.ndarray]:
    """Return the robot's joint angles (T,) [rad] from the body's local rotations (T, joints, 3, 3), robot axes."""
    found: dict[str, np.ndarray] = {}
    spine = turns[:, SPINE[0]] @ turns[:, SPINE[1]] @ turns[:, SPINE[2]]
    found |= dict(zip(("waist_yaw", "waist_roll", "waist_pitch"), _yaw_roll_pitch(spine), strict=True))
    for k, side in enumerate(SIDES):
        hip = zip(("hip_pitch", "hip_roll", "hip_yaw"), _pitch_roll_yaw(turns[:, HIPS[k]]), strict=True)
        shank, ankle = -turns[:, KNEES[k], :, 2], _pitch_roll_yaw(turns[:, ANKLES[k]])
        leg = {**dict(hip), "knee": np.arctan2(-shank[:, 0], -shank[:, 2])}
        leg |= {"ankle_pitch": ankle[0], "ankle_roll": ankle[1]}
        found |= {f"{side}_{joint}": angle for joint, angle in (leg | _arm(turns, k)).items()}
    return {f"{joint}_joint": np.unwrap(angle) for joint, angle in found.items()}


def _arm(turns: np.ndarray, k: int) -> dict[str, np.ndarray]:
    """Return the angles of an arm. The body rests with arms to its sides, the robot's hang, with elbows bent."""
    sign = 1.0 if k == 0 else -1.0
    raised = _matrices(np.array([sign * np.pi / 2, 0.0, 0.0]))
    upper = turns[:, COLLARS[k]] @ turns[:, SHOULDERS[k]] @ raised
    forearm = -(raised.T @ turns[:, ELBOWS[k]] @ raised)[:, :, 2]
    bend = np.arctan2(np.hypot(forearm[:, 0], forearm[:, 1]), -forearm[:, 2])
    # Where the forearm leaves the plane of the robot's elbow, the upper arm turns about itself; straight, it need not.
    twist = np.where(bend > 0.2, np.arctan2(forearm[:, 1], forearm[:, 0]), 0.0)
    turn = _matrices(np.stack([0.0 * twist, 0.0 * twist, twist], axis=1))
    pitch, roll, yaw = _pitch_roll_yaw(upper @ turn)
    return {"shoulder_pitch": pitch, "shoulder_roll": roll, "shoulder_yaw": yaw, "elbow": np.pi / 2 - bend}


def _on_the_floor(
    base: np.ndarray, trans: np.ndarray, angles: dict[str, np.ndarray], robot: Robot
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return joints within their ranges, and the base's positions, scaled, with the feet on the floor, and turns."""
    import mujoco

    model = robot.load_model().compile()
    data, frames = mujoco.MjData(model), len(trans)
    ids = [model.joint(joint.name).id for joint in robot.joints]
    joints = np.tile(np.array(robot.default_pos()), (frames, 1))
    for k, joint in enumerate(robot.joints):
        if joint.name in angles:
            joints[:, k] = np.clip(angles[joint.name], *model.jnt_range[ids[k]])
    quat = np.zeros((frames, 4))
    for k in range(frames):
        mujoco.mju_mat2Quat(quat[k], base[k].ravel())
    feet = [model.geom(foot).id for foot in robot.feet]
    at = model.jnt_qposadr[model.body_jntadr[model.body(robot.base_body).id]]
    scale = _leg(model, robot) / SMPL_LEG_M
    pos, lowest = trans * scale, np.zeros(frames)
    for k in range(frames):
        data.qpos[at : at + 3], data.qpos[at + 3 : at + 7] = pos[k], quat[k]
        data.qpos[model.jnt_qposadr[ids]] = joints[k]
        mujoco.mj_kinematics(model, data)
        lowest[k] = data.geom_xpos[feet, 2].min() - robot.foot_radius
    pos = pos - [0.0, 0.0, np.percentile(lowest, STANDING)]
    return joints, pos, quat


def _leg(model: mujoco.MjModel, robot: Robot) -> float:
    """Return the length of the robot's straight leg, from its hip to its ankle [m]."""
    import mujoco

    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    hip, knee, ankle = (
        data.xanchor[model.joint(f"left_{joint}_joint").id] for joint in ("hip_pitch", "knee", "ankle_pitch")
    )
    return float(np.linalg.norm(hip - knee) + np.linalg.norm(knee - ankle))
