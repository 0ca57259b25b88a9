"""A motion at another rate, its ends, and what the kernels get of it: velocities, bodies, contacts, bins."""

from types import SimpleNamespace

import numpy as np
import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_envs.entity.scene import Scene, SceneCfg
from robot_rl_envs.motions import Motion, rotation
from robot_rl_envs.task import Actions, Sim

G1 = get_robot("unitree_g1")
DEFAULT = np.array(G1.default_pos())


def make(count=31, rate=10.0, **fields):
    own = {
        "name": "m",
        "rate_hz": rate,
        "joint_names": tuple(G1.joint_names),
        "joint_pos": np.tile(DEFAULT, (count, 1)),
        "base_pos": np.tile([0.0, 0.0, G1.base_height], (count, 1)),
        "base_quat_wxyz": np.tile([1.0, 0.0, 0.0, 0.0], (count, 1)),
        "robot": "unitree_g1",
    }
    return Motion(**(own | fields))


def test_resampling_is_linear_and_on_the_shorter_arc():
    angle = np.linspace(0.0, 3.0, 31)
    quat = np.stack([np.cos(angle / 2), 0 * angle, 0 * angle, np.sin(angle / 2)], axis=1)
    quat[1::2] *= -1.0  # the same rotations
    ramp = np.tile(DEFAULT, (31, 1)) + angle[:, None]
    fine = make(joint_pos=ramp, base_quat_wxyz=quat).resampled(50.0)
    assert len(fine.joint_pos) == 151
    want = np.linspace(0.0, 3.0, 151)
    np.testing.assert_allclose(fine.joint_pos - DEFAULT, np.tile(want[:, None], (1, 29)), atol=1e-9)
    got = np.abs(fine.base_quat_wxyz[:, 0] * np.cos(want / 2) + fine.base_quat_wxyz[:, 3] * np.sin(want / 2))
    np.testing.assert_allclose(got, 1.0, atol=1e-9)


def test_a_motion_loops_where_its_ends_meet_wherever_the_robot_is_and_faces():
    base = np.tile([0.0, 0.0, 0.75], (31, 1))
    base[:, 0] = np.linspace(0, 4, 31)
    turned = np.tile([1.0, 0.0, 0.0, 0.0], (31, 1))
    turned[-1] = [np.cos(0.6), 0.0, 0.0, np.sin(0.6)]
    assert make(base_pos=base, base_quat_wxyz=turned).loops
    lower = base.copy()
    lower[-1, 2] -= 0.05
    assert not make(base_pos=lower).loops
    bent = np.tile(DEFAULT, (31, 1))
    bent[-1, 3] += 0.2
    assert not make(joint_pos=bent).loops
    turned[-1] = [np.cos(0.1), np.sin(0.1), 0.0, 0.0]
    assert not make(base_quat_wxyz=turned).loops


def test_angular_velocities_are_central_differences_in_either_frame():
    """A turn about a body that is pitched: about its own x in its frame, about -z in the world's."""
    dt, rate = 0.02, 1.5
    pitched = np.array([np.cos(np.pi / 4), 0.0, np.sin(np.pi / 4), 0.0])
    spin = rotation.from_rotvec(np.outer(np.arange(5) * dt * rate, [1.0, 0.0, 0.0]))
    quat = rotation.multiply(pitched, spin)
    np.testing.assert_allclose(rotation.angular_velocity(quat, dt, body=True), np.tile([rate, 0, 0], (5, 1)), atol=1e-9)
    np.testing.assert_allclose(
        rotation.angular_velocity(quat, dt, body=False), np.tile([0, 0, -rate], (5, 1)), atol=1e-9
    )


@pytest.fixture(scope="module")
def clips():
    """A scene with a motion that lifts the robot by 0.1 m/s after a second, and a shorter one that stands."""
    count = 31
    base = np.tile([0.0, 0.0, G1.base_height], (count, 1))
    base[10:, 2] += 0.1 * np.arange(count - 10) / 10.0
    joints = np.tile(DEFAULT, (count, 1))
    joints[:, 0] += 0.05 * np.arange(count)
    lift, stand = make(base_pos=base, joint_pos=joints), make(count=11)
    contents = SceneCfg(
        motions={"lift": lift, "stand": stand},
        tracked=("torso_link", "left_ankle_roll_link"),
        sites={"left_foot_foot": "a", "torso_link": "tracked", "left_ankle_roll_link": "tracked"},
    )
    scene = Scene(G1, Sim(timestep=0.005, decimation=4), Actions(), contents=contents)
    return SimpleNamespace(scene=scene, **scene.reference_motions.values)


def test_frames_of_all_motions_follow_each_other_at_the_control_rate(clips):
    assert clips.motion_first.tolist() == [0, 151]
    assert clips.motion_loops.tolist() == [0, 1]
    assert clips.motion_frames.tolist() == [151, 50], "the last frame of a loop is its first"
    assert clips.reference_joint_pos.shape == (151 + 51, 29)
    bins = np.stack([clips.bin_motion, clips.bin_first, clips.bin_frames], axis=1)
    np.testing.assert_array_equal(bins, [[0, 0, 50], [0, 50, 50], [0, 100, 50], [1, 0, 50]])
    assert clips.tracked_site.tolist() == [1, 2]
    assert clips.scene.sizes["motion_bins"] == 4


def test_rates_are_those_of_the_reference(clips):
    np.testing.assert_allclose(clips.reference_joint_vel[:151, 0], 0.5, atol=1e-9)
    np.testing.assert_allclose(clips.reference_base_lin_vel_w[60:150, 2], 0.1, atol=1e-9)
    np.testing.assert_allclose(clips.reference_body_lin_vel_w[60:150, 0], [[0.0, 0.0, 0.1]] * 90, atol=1e-9)
    np.testing.assert_allclose(clips.reference_base_lin_vel_w[151:], 0.0, atol=1e-12)


def test_a_foot_is_in_contact_near_the_floor(clips):
    """The soles start half a millimeter above it; 2 cm higher they are in the air."""
    np.testing.assert_array_equal(clips.reference_foot_contact[151:], 1.0)
    right = clips.reference_foot_contact[:151, 1]
    assert right[:50].all()
    assert not right[62:].any(), "0.02 m are reached 0.2 s after 1 s"


def test_bodies_are_where_mujoco_has_them(clips):
    torso = clips.reference_body_pos_w[151, 0]
    np.testing.assert_allclose(torso, [-0.0039635, 0.0, G1.base_height + 0.054], atol=1e-6)
