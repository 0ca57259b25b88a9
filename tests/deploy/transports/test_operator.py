"""The operator's channel: heartbeats and commands come in, a request to damp is never lost."""

import socket
import time

import numpy as np
import pytest
import robot_rl_runtime as rt


@pytest.fixture
def channel(address, robot, contract, tools, port):
    """(robot's end, policy's end, operator's address)."""
    where = f"udp:127.0.0.1:{port()}"
    end = rt.RobotEnd(address, robot)
    client = rt.Transport(address, where, commander=7)
    tools.connect(end, client, contract)
    return end, client, where


def taken(client, seconds=5.0):
    until = rt.now_ns() + int(seconds * 1e9)
    while rt.now_ns() < until:
        client.wait(0.02)
        found = client.take_operator()
        if found is not None:
            return found
    return None


def message(sequence, request=rt.Request.NONE, command=(1.0, 2.0, 3.0)):
    made = rt.OperatorInput()
    made.sequence, made.request, made.size, made.command = sequence, request, len(command), command
    return made


def test_a_message_ends_the_wait_and_is_taken_once(channel):
    _, client, where = channel
    operator = rt.OperatorEnd(where)
    assert operator.send([0.5, -0.25, 1.0], rt.Request.STAND)
    before = rt.now_ns()
    assert client.wait(5.0)
    got = client.take_operator()
    assert got.request == rt.Request.STAND
    assert (got.size, got.sequence) == (3, 1)
    assert before - 10**9 < got.receive_time_ns <= rt.now_ns()
    np.testing.assert_array_equal(got.command[:3], [0.5, -0.25, 1.0])
    assert client.take_operator() is None


def test_a_request_to_damp_outlives_what_follows_it(channel):
    _, client, where = channel
    operator = rt.OperatorEnd(where)
    for request in (rt.Request.POLICY, rt.Request.DAMP, rt.Request.NONE, rt.Request.STAND):
        operator.send([float(request.value)], request)
    got = taken(client)
    assert got.request == rt.Request.DAMP
    assert got.command[0] == rt.Request.STAND.value  # the newest command


def test_the_newest_wish_holds_over_later_heartbeats(channel):
    _, client, where = channel
    operator = rt.OperatorEnd(where)
    for request in (rt.Request.STAND, rt.Request.POLICY, rt.Request.NONE):
        operator.send([], request)
    assert taken(client).request == rt.Request.POLICY
    operator.send([], rt.Request.NONE)
    assert taken(client).request == rt.Request.NONE


def test_a_second_operator_is_not_heard_but_may_stop(channel):
    _, client, where = channel
    first, second = rt.OperatorEnd(where), rt.OperatorEnd(where)
    first.send([1.0])
    assert taken(client).command[0] == 1.0
    first.send([1.5])
    second.send([2.0], rt.Request.POLICY)
    got = taken(client)
    assert (got.request, got.command[0]) == (rt.Request.NONE, 1.5)
    first.send([1.75])
    second.send([3.0], rt.Request.DAMP)
    got = taken(client)
    assert (got.request, got.command[0]) == (rt.Request.DAMP, 1.75)


def test_operators_by_way_of_the_robot(channel):
    end, client, _ = channel
    for sequence in (3, 2, 3):  # an older one and a repetition are passed over
        assert end.send_operator(message(sequence, command=(float(sequence),)), 5) == 1
    got = taken(client)
    assert (got.sequence, got.command[0]) == (3, 3.0)
    assert client.take_operator() is None


def test_what_is_no_operators_message_is_counted(channel):
    _, client, where = channel
    host, port = where.removeprefix("udp:").split(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for data in (b"", b"x" * 9000, rt.write_hello(3), rt.write_operator(message(1), 4)[:-1]):
            stranger.sendto(data, (host, int(port)))
        stranger.sendto(rt.write_operator(message(1), 4), (host, int(port)))
    assert taken(client).sequence == 1
    assert client.counters["damaged"] == 2
    assert client.counters["foreign"] == 1


def test_an_operators_port_that_is_taken_is_said(channel, port):
    _, _, where = channel
    with pytest.raises(rt.UserError, match="operator: cannot listen at udp"):
        rt.Transport(f"udp:127.0.0.1:{port()}", where)
    with pytest.raises(rt.UserError, match="operator"):
        rt.OperatorEnd("shm:a")


def test_a_strangers_datagrams_never_reach_a_connected_policy(robot, contract, tools, port):
    """The policy's socket receives only from the robot's address."""
    address = f"udp:127.0.0.1:{port()}"
    end = rt.RobotEnd(address, robot)
    client = rt.Transport(address, commander=7)
    tools.connect(end, client, contract)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        state = rt.write_state(tools.state(1), rt.layout_of(robot))
        for target in range(32768, 61000):
            stranger.sendto(state, ("127.0.0.1", target))
    assert client.take_state() is None
    assert client.counters["states"] == 0


def test_frames_of_another_layout_or_damaged_are_counted(robot, contract, tools, port):
    """A relay between the ends changes what passes."""
    robot_port, relay_port = port(), port()
    end = rt.RobotEnd(f"udp:127.0.0.1:{robot_port}", robot)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as front,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as back,
    ):
        front.bind(("127.0.0.1", relay_port))
        back.connect(("127.0.0.1", robot_port))
        front.settimeout(5)
        back.settimeout(5)
        client = rt.Transport(f"udp:127.0.0.1:{relay_port}", commander=7)
        with pytest.raises(rt.UserError, match="no answer"):
            client.connect(contract, 0.01)
        hello, who = front.recvfrom(9000)
        assert rt.read_hello(hello) == (7, True)
        back.send(hello)
        assert end.wait(5.0)
        assert end.take_command() is None
        described = back.recv(9000)
        front.sendto(described, who)
        client.connect(contract, 5.0)
        layout = rt.layout_of(robot)
        good = rt.write_state(tools.state(2), layout)
        for data in (good[:-1], good[:-1] + b"\0", rt.write_state(tools.state(1), layout + 1), good):
            front.sendto(data, who)
        assert tools.take_state(client).sequence == 2
        assert client.counters["damaged"] == 2
        assert client.counters["foreign"] == 1
        back.send(rt.write_command(tools.command(1), layout + 1))
        back.send(rt.write_command(tools.command(2), layout)[:-4])
        back.send(rt.write_command(tools.command(3), layout))
        assert tools.take_command(end).sequence == 3
        assert end.counters["foreign"] == 1
        assert end.counters["damaged"] == 1


def test_a_robot_of_another_version_is_named(contract, port):
    where = port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as old:
        old.bind(("127.0.0.1", where))
        old.settimeout(5)
        client = rt.Transport(f"udp:127.0.0.1:{where}", commander=7)
        with pytest.raises(rt.UserError, match="no answer"):
            client.connect(contract, 0.01)
        hello, who = old.recvfrom(9000)
        import zlib

        changed = hello[:4] + (rt.PROTOCOL_VERSION + 1).to_bytes(2, "little") + hello[6:-4]
        old.sendto(changed + zlib.crc32(changed).to_bytes(4, "little"), who)
        with pytest.raises(rt.UserError, match="but one in another version"):
            client.connect(contract, 0.05)


def test_one_that_was_started_again_may_count_from_the_beginning(channel):
    end, client, _ = channel
    end.send_operator(message(50, command=(1.0,)), 1)
    assert taken(client).command[0] == 1.0
    end.send_operator(message(1, command=(2.0,)), 1)  # While it is heard that is an old message.
    assert taken(client, 0.2) is None
    assert client.counters["old"] == 1
    time.sleep(0.6)
    end.send_operator(message(2, rt.Request.DAMP, command=(3.0,)), 1)
    got = taken(client)
    assert (got.request, got.command[0]) == (rt.Request.DAMP, 3.0)
    end.send_operator(message(3, command=(4.0,)), 1)
    assert taken(client).command[0] == 4.0
