"""Facts of Unitree's robots that need no DDS: motors and checksum."""

import zlib

import pytest
import robot_rl_runtime as rt
from robot_rl_assets.registry import get_robot

REVERSED = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))


def mpeg_crc(data):
    """CRC-32/MPEG-2 by zlib's: the same polynomial with all bits in the other order and a final inversion."""
    mirrored = zlib.crc32(bytes(REVERSED[value] for value in data)) ^ 0xFFFFFFFF
    return int(f"{mirrored:032b}"[::-1], 2)


def test_the_reference_gives_the_published_check_value():
    assert mpeg_crc(b"123456789") == 0x0376E6E7


@pytest.mark.parametrize("size", [0, 4, 8, 808, 2088])
def test_the_checksum_goes_over_words_from_their_highest_bit(size):
    data = bytes(value * 37 % 251 for value in range(size))
    swapped = b"".join(data[at : at + 4][::-1] for at in range(0, size, 4))
    assert rt.unitree_crc(data) == mpeg_crc(swapped)


@pytest.mark.parametrize(
    ("robot", "places", "motors"), [("unitree_go2", 20, 12), ("unitree_h1", 20, 19), ("unitree_g1", 35, 29)]
)
def test_each_motor_has_one_joint(robot, places, motors):
    names = rt.unitree_motors(robot)
    assert len(names) == places
    joints = [name for name in names if name]
    assert len(joints) == len(set(joints)) == motors


def test_the_go2s_motors_are_our_robots_joints():
    names = rt.unitree_motors("unitree_go2")
    assert set(filter(None, names)) == {joint.name for joint in get_robot("unitree_go2").joints}
    assert names[:4] == ["FR_hip_joint", "FR_thigh_joint", "FR_calf_joint", "FL_hip_joint"]


def test_left_and_right_are_not_mistaken():
    h1, g1 = rt.unitree_motors("unitree_h1"), rt.unitree_motors("unitree_g1")
    assert (h1[0], h1[3], h1[6], h1[9], h1[10]) == (
        "right_hip_roll_joint",
        "left_hip_roll_joint",
        "torso_joint",
        "",
        "left_ankle_joint",
    )
    assert (g1[0], g1[6], g1[12], g1[15], g1[22]) == (
        "left_hip_pitch_joint",
        "right_hip_pitch_joint",
        "waist_yaw_joint",
        "left_shoulder_pitch_joint",
        "right_shoulder_pitch_joint",
    )


def test_an_unknown_robot_is_refused():
    with pytest.raises(
        rt.UserError, match="'spot' has no table of motors here; there are: unitree_go2, unitree_h1, unitree_g1"
    ):
        rt.unitree_motors("spot")
