"""Frames: what is written is read again, and nothing that is damaged, cut or made up is ever taken for a message."""

import struct
import zlib

import numpy as np
import pytest
import robot_rl_runtime as rt
from hypothesis import given, settings
from hypothesis import strategies as st

READERS = ("read_state", "read_command", "read_operator", "read_describe", "read_hello")
COUNTS = {"joint_pos": "joints", "joint_vel": "joints", "joint_effort": "joints", "temperature_c": "joints"}
COUNTS |= {"motor_fault": "joints", "foot_contact": "feet", "foot_force": "feet"}
COUNTS |= {"measured": "measured_count"}


def random_state(seed, joints, feet, measured=0):
    rng = np.random.default_rng(seed)
    state = rt.LowState()
    state.sequence, state.commander = (int(x) for x in rng.integers(1, 2**63, 2))
    state.robot_time_ns = int(rng.integers(-(2**62), 2**62))
    state.joints, state.feet, state.measured_count = joints, feet, measured
    for name in ("quat_wxyz", "gyro", "acc"):
        setattr(state, name, rng.normal(size=len(getattr(state, name))))
    for name, count in COUNTS.items():
        setattr(state, name, rng.integers(0, 2**20, getattr(state, count)))
    return state


def frames():
    """One frame of each kind."""
    command = rt.LowCommand()
    command.joints, command.commander = 12, 3
    operator = rt.OperatorInput()
    operator.size = 3
    return [
        rt.write_state(random_state(1, 12, 4), 77),
        rt.write_command(command, 77),
        rt.write_operator(operator, 5),
        rt.write_describe(rt.RobotDescription("robot", ["a", "bc"], 4, 7)),
        rt.write_hello(9),
        rt.write_state(random_state(2, 3, 0, 5), 78),
        rt.write_describe(rt.RobotDescription("arm", ["a"], 0, 0, 6)),
    ]


def read_all(data):
    """What each reader makes of the bytes."""
    return [getattr(rt, reader)(data) for reader in READERS]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 64), st.integers(0, 8), st.integers(0, 1024))
def test_a_state_comes_back(seed, joints, feet, measured):
    state = random_state(seed, joints, feet, measured)
    data = rt.write_state(state, 0xDEADBEEF)
    assert len(data) <= rt.MAX_FRAME
    assert rt.frame_kind(data) == (rt.Message.STATE, 0xDEADBEEF)
    back = rt.read_state(data)
    for name in ("sequence", "robot_time_ns", "commander", "joints", "feet", "measured_count"):
        assert getattr(back, name) == getattr(state, name)
    for name in ("quat_wxyz", "gyro", "acc", *COUNTS):
        np.testing.assert_array_equal(getattr(back, name), getattr(state, name))


def test_a_frame_byte_by_byte():
    """The layout that protocol.h writes down, by hand."""
    data = rt.write_hello(0x0102030405060708, False)
    body = b"RBRL" + struct.pack("<HBBII", rt.PROTOCOL_VERSION, 1, 0, 9, 0) + struct.pack("<QB", 0x0102030405060708, 0)
    assert data == body + struct.pack("<I", zlib.crc32(body))


def names(*texts):
    return b"".join(bytes([len(text)]) + text.encode() for text in texts)


def test_without_measured_values_the_messages_are_those_of_before():
    """By hand: a robot and a policy of an older version understand them, and the other way round."""
    body = names("toy") + struct.pack("<HHH", 2, 4, 7) + names("a", "bc")
    robot = rt.RobotDescription("toy", ["a", "bc"], 4, 7)
    assert rt.write_describe(robot) == sealed(2, body, layout=zlib.crc32(body))
    back = rt.read_describe(sealed(2, body, layout=zlib.crc32(body)))
    assert (back.joints, back.feet, back.heights, back.measured) == (["a", "bc"], 4, 7, 0)
    state = random_state(3, 1, 1)
    numbers = [state.joint_pos, state.joint_vel, state.joint_effort, state.temperature_c]
    head = struct.pack("<QqQHHHH", state.sequence, state.robot_time_ns, state.commander, 1, 1, 0, 0)
    head += b"".join(part.tobytes() for part in (state.quat_wxyz, state.gyro, state.acc))
    head += b"".join(part[:1].tobytes() for part in (*numbers, state.motor_fault, state.foot_contact, state.foot_force))
    assert rt.write_state(state, 7) == sealed(3, head)


def test_heights_of_an_older_robot_are_its_first_measured_values():
    state = random_state(3, 1, 1, 5)
    data = rt.write_state(state, 7)
    older = sealed(3, data[16:44] + struct.pack("<HH", 2, 3) + data[48:-4])
    back = rt.read_state(older)
    assert (back.measured_count, back.measured[:5].tolist()) == (5, state.measured[:5].tolist())


def test_measured_values_stand_at_the_end():
    body = names("arm") + struct.pack("<HHH", 1, 0, 0) + names("a") + struct.pack("<H", 5)
    assert rt.write_describe(rt.RobotDescription("arm", ["a"], measured=5)) == sealed(2, body, layout=zlib.crc32(body))
    for count in (0, 1025, 5 << 8):
        other = body[:-2] + struct.pack("<H", count)
        assert rt.read_describe(sealed(2, other, layout=zlib.crc32(other))) is None
    state = random_state(4, 2, 0, 3)
    data = rt.write_state(state, 7)
    assert struct.unpack_from("<4H", data, 16 + 24) == (2, 0, 0, 3)
    assert data[-4 - 12 : -4] == state.measured[:3].tobytes()


def test_not_a_number_is_carried_as_it_is():
    """Finding it is the safety layer's work."""
    state = rt.LowState()
    state.joints, state.joint_pos = 2, [np.nan, np.inf]
    back = rt.read_state(rt.write_state(state, 1))
    assert np.isnan(back.joint_pos[0])
    assert np.isposinf(back.joint_pos[1])


@pytest.mark.parametrize("time_ns", [2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_a_time_of_which_no_difference_can_be_taken_is_refused(time_ns):
    state, command = rt.LowState(), rt.LowCommand()
    state.joints = command.joints = command.commander = 1
    inside = time_ns // abs(time_ns) * (2**62 - 1)
    for robot_time_ns, is_read in ((inside, True), (time_ns, False)):
        state.robot_time_ns = command.state_robot_time_ns = robot_time_ns
        assert (rt.read_state(rt.write_state(state, 1)) is not None) is is_read
        assert (rt.read_command(rt.write_command(command, 1)) is not None) is is_read


@pytest.mark.parametrize(("name", "value"), [("joints", 65), ("joints", -1), ("feet", 9), ("measured_count", 1025)])
def test_counts_out_of_range_are_not_written(name, value):
    state = rt.LowState()
    setattr(state, name, value)
    with pytest.raises(ValueError, match="out of range"):
        rt.write_state(state, 1)


def test_each_reader_takes_its_own_kind_alone():
    for index, data in enumerate(frames()[: len(READERS)]):
        assert [found is not None for found in read_all(data)] == [index == reader for reader in range(len(READERS))]


def test_every_flipped_bit_is_found():
    for data in frames():
        for bit in range(8 * len(data)):
            broken = bytearray(data)
            broken[bit // 8] ^= 1 << bit % 8
            assert rt.frame_kind(bytes(broken)) is None
            assert read_all(bytes(broken)) == [None] * len(READERS)


def test_every_cut_is_found():
    for data in frames():
        for size in range(len(data)):
            assert rt.frame_kind(data[:size]) is None
            assert read_all(data[:size]) == [None] * len(READERS)
        assert rt.frame_kind(data + b"\0") is None


def sealed(kind, payload, version=None, layout=7):
    """A frame with a right CRC around any payload."""
    head = struct.pack(
        "<4sHBBII", b"RBRL", rt.PROTOCOL_VERSION if version is None else version, kind, 0, len(payload), layout
    )
    return head + payload + struct.pack("<I", zlib.crc32(head + payload))


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 8), st.binary(max_size=400))
def test_any_payload_is_read_or_refused(kind, payload):
    """Counts that do not match the payload's size are refused; nothing is read past its end (also with sanitizers)."""
    data = sealed(kind, payload)
    found = [reader for reader, message in zip(READERS, read_all(data), strict=True) if message is not None]
    assert len(found) <= 1
    state = rt.read_state(data)
    if state is not None:
        assert len(payload) == 72 + 20 * state.joints + 8 * state.feet + 4 * state.measured_count
        assert rt.write_state(state, 7) == data or payload[28:30] != bytes(2)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 6), st.data())
def test_payloads_with_some_bytes_changed_are_read_or_refused(index, data):
    frame = frames()[index]
    payload = bytearray(frame[16:-4])
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    size = data.draw(st.sampled_from([len(payload), len(payload) - 1, len(payload) // 2]))
    read_all(sealed(frame[6], bytes(payload[:size]), layout=zlib.crc32(bytes(payload[:size]))))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=9000))
def test_noise_is_no_message(noise):
    assert read_all(noise) == [None] * len(READERS)


def test_another_version_is_not_read():
    assert rt.frame_kind(sealed(3, b"", version=rt.PROTOCOL_VERSION + 1)) is None


@pytest.mark.parametrize(
    "robot",
    [
        ("", ["a"]),
        ("r" * 64, ["a"]),
        ("r", []),
        ("r", [""]),
        ("r", [str(index) for index in range(65)]),
        ("r", ["a"], 9),
        ("r", ["a"], 0, 0, 1025),
    ],
)
def test_descriptions_that_cannot_be_sent_are_refused(robot, port):
    assert rt.layout_of(rt.RobotDescription(*robot)) == 0
    with pytest.raises(rt.UserError, match="robot: it needs a name"):
        rt.RobotEnd(f"udp:127.0.0.1:{port()}", rt.RobotDescription(*robot))


def test_the_layout_tells_robots_apart():
    robots = [("r", ["a", "b"]), ("r", ["b", "a"]), ("s", ["a", "b"]), ("r", ["a", "b"], 1), ("r", ["a", "b"], 0, 1)]
    robots.append(("r", ["a", "b"], 0, 0, 1))
    assert len({rt.layout_of(rt.RobotDescription(*robot)) for robot in robots}) == len(robots)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("tcp:1", "udp:HOST:PORT, shm:NAME, dds:unitree_go or dds:unitree_hg"),
        ("", "udp:HOST:PORT"),
        ("udp:localhost", "port from 1 to 65535"),
        ("udp:localhost:0", "port from 1 to 65535"),
        ("udp:localhost:99999", "port from 1 to 65535"),
        ("udp:localhost:12x", "port from 1 to 65535"),
        ("udp:no.such.host.invalid:1", "not an IPv4 address or known host"),
        ("udp:127.0.0.1:9?states=2", "states must be 0 or 1"),
        ("udp:127.0.0.1:9?speed=2", "unknown option 'speed'; the options are states"),
        ("udp:127.0.0.1:9?states", "name=value"),
        ("udp:127.0.0.1:9?states=1&states=1", "twice"),
        ("shm:", "at most 64 letters"),
        ("shm:../etc/passwd", "at most 64 letters"),
        ("dds:other", "dds:unitree_go or dds:unitree_hg"),
        ("dds:unitree_go?domain=400", "domain must be a whole number from 0 to 230"),
        ("dds:unitree_go?interface=<lo/>", "interface must be the name"),
    ],
)
def test_wrong_addresses_are_refused_in_one_line(address, said):
    with pytest.raises(rt.UserError, match=said) as caught:
        rt.Transport(address)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("transport:" if said.startswith("not an IPv4") else f"transport={address}: ")


def test_nobody_is_no_commander(port):
    with pytest.raises(rt.UserError, match="commander=0: 0 means none"):
        rt.Transport(f"udp:127.0.0.1:{port()}", commander=0)
