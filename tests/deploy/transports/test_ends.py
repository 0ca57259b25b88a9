"""Both ends over UDP and shared memory: what goes in at one comes out at the other, or is counted."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import robot_rl_runtime as rt

NAMES = ("joint_pos", "joint_vel", "joint_effort", "temperature_c", "motor_fault")


def test_a_state_without_a_time_has_that_of_its_arrival(pair, tools):
    end, client = pair
    assert end.send_state(tools.state(5, robot_time_ns=0)) == 1
    got = tools.take_state(client)
    assert got.robot_time_ns == got.receive_time_ns > 0


def test_joints_are_resolved_by_name_either_way(pair, tools):
    end, client = pair
    sent = tools.state(5, quat_wxyz=[0.5, 0.5, 0.5, 0.5], gyro=[1, 2, 3], acc=[4, 5, 6], robot_time_ns=-17)
    for offset, name in enumerate(NAMES):
        setattr(sent, name, [offset * 10 + 1, offset * 10 + 2, offset * 10 + 3])  # tail, hip, knee
    before = rt.now_ns()
    assert end.send_state(sent) == 1
    got = tools.take_state(client)
    assert (got.sequence, got.robot_time_ns, got.joints, got.commander) == (5, -17, 3, 0)
    assert before <= got.receive_time_ns <= rt.now_ns()
    for offset, name in enumerate(NAMES):
        assert list(getattr(got, name)[:3]) == [offset * 10 + 2, offset * 10 + 3, offset * 10 + 1]  # hip, knee, tail
    assert list(got.quat_wxyz) == [0.5] * 4
    assert list(got.gyro) == [1, 2, 3]
    assert list(got.acc) == [4, 5, 6]

    command = tools.command(9, dq=[1, 2, 3], kp=[4, 5, 6], kd=[7, 8, 9], tau=[0.1, 0.2, 0.3])
    command.phase, command.fault, command.from_policy = rt.Phase.POLICY, rt.Fault.TILT, True
    command.state_sequence, command.state_robot_time_ns, command.state_age_ns, command.send_time_ns = 5, -17, 123, 456
    assert client.send(command)
    back = tools.take_command(end)
    assert list(back.q[:3]) == [12, 10, 11]
    assert list(back.dq[:3]) == [3, 1, 2]
    assert list(back.kp[:3]) == [6, 4, 5]
    assert list(back.kd[:3]) == [9, 7, 8]
    np.testing.assert_array_equal(back.tau[:3], np.float32([0.3, 0.1, 0.2]))
    assert (back.sequence, back.commander, back.state_sequence, back.joints) == (9, 7, 5, 3)
    assert (back.state_robot_time_ns, back.state_age_ns, back.send_time_ns) == (-17, 123, 456)
    assert (back.phase, back.fault, back.from_policy) == (rt.Phase.POLICY, rt.Fault.TILT, True)


def test_the_newest_state_is_given_and_all_are_counted(pair, tools):
    end, client = pair
    for sequence in (1, 2, 2, 5, 3, 6):
        end.send_state(tools.state(sequence))
    assert tools.take_state(client).sequence == 6
    assert client.take_state() is None
    counters = client.counters
    assert counters["states"] == 4
    assert counters["duplicate"] == 1
    assert counters["old"] == 1
    assert counters["lost"] == 1  # 3 and 4 were missing at 5, then 3 came late
    assert counters["damaged"] == counters["foreign"] == 0


def test_a_robot_that_numbers_nothing_gets_numbers(pair, tools):
    end, client = pair
    for sequence in (1, 2, 3):
        end.send_state(tools.state())
        assert tools.take_state(client).sequence == sequence


def test_commands_come_in_order_and_old_ones_are_dropped(pair, tools):
    end, client = pair
    for sequence in (1, 2, 4, 3, 4, 5):
        client.send(tools.command(sequence))
    assert [tools.take_command(end).sequence for _ in range(4)] == [1, 2, 4, 5]
    assert end.take_command() is None
    assert end.counters["old"] == end.counters["duplicate"] == 1


def test_wait_ends_at_its_deadline(pair):
    end, client = pair
    for one in (end, client):
        before = rt.now_ns()
        assert not one.wait(0.03)
        assert rt.now_ns() - before >= 30_000_000


def test_a_state_of_other_counts_is_not_sent(pair, tools):
    end, _ = pair
    assert end.send_state(tools.state(1, joints=2)) == 0
    assert end.send_state(tools.state(1, feet=1)) == 0
    assert end.counters["send_failed"] == 2


def test_another_commander_is_seen_by_both(pair, address, contract, tools):
    end, first = pair
    first.send(tools.command(1))
    tools.take_command(end)
    end.send_state(tools.state(1))
    assert tools.take_state(first).commander == 7
    assert not first.second_commander
    second = rt.Transport(address, commander=8)
    tools.connect(end, second, contract)
    for sequence in (1, 2):  # the first one's command is always the last before a state
        second.send(tools.command(sequence))
        tools.take_command(end)
        first.send(tools.command(sequence + 1))
        tools.take_command(end)
        end.send_state(tools.state(sequence + 1))
    assert tools.take_state(first).commander == 8
    assert tools.take_state(second).commander == 7
    assert first.second_commander
    end.send_state(tools.state(9))
    tools.take_state(second)
    second.send(tools.command(9))
    tools.take_command(end)
    end.send_state(tools.state(10))
    tools.take_state(second)
    first.send(tools.command(9))
    tools.take_command(end)
    end.send_state(tools.state(11))
    tools.take_state(second)
    assert second.second_commander


def test_whoever_commanded_before_is_no_second_commander(address, robot, contract, tools):
    end = rt.RobotEnd(address, robot)
    client = rt.Transport(address, commander=7)
    tools.connect(end, client, contract)
    for sequence in (1, 2):
        end.send_state(tools.state(sequence, commander=99))
        tools.take_state(client)
    client.send(tools.command(1))
    end.send_state(tools.state(3, commander=99))  # sent before the robot got the command
    tools.take_state(client)
    end.send_state(tools.state(4, commander=7))
    tools.take_state(client)
    assert not client.second_commander
    end.send_state(tools.state(5, commander=99))
    tools.take_state(client)
    assert client.second_commander


def test_a_watchdog_wants_no_states_and_is_no_second_commander(pair, address, contract, tools):
    end, client = pair
    watchdog = rt.Transport(address + "?states=0", commander=7)
    tools.connect(end, watchdog, contract)
    assert end.clients == 2
    client.send(tools.command(1))
    watchdog.send(tools.command(1))
    assert [tools.take_command(end).sequence for _ in range(2)] == [1, 1]
    assert end.send_state(tools.state(1)) == 1
    tools.take_state(client)
    assert not client.second_commander
    del watchdog
    end.wait(1.0)
    assert end.take_command() is None
    assert end.clients == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"robot": "other"}, "robot: the policy is for 'toy', the transport leads to 'other'"),
        ({"joints": ["hip", "knee"]}, "tail"),
        ({"joints": ["hip", "knee", "tail", "nose"]}, "nose"),
    ],
)
def test_a_robot_that_does_not_fit_is_refused(address, contract, tools, changes, said):
    robot = {"robot": "toy", "joints": ["hip", "knee", "tail"]} | changes
    end = rt.RobotEnd(address, rt.RobotDescription(**robot))
    with pytest.raises(rt.ContractError, match=said):
        tools.connect(end, rt.Transport(address), contract)


def measuring(contract, size):
    """The contract with measured signals: 3 values, and `size` more."""
    data = json.loads(contract)
    more = {"transform": "identity", "unit": "m", "frame": "base", "scale": 1.0, "clip": None, "history": 1}
    more |= {"params": {}}
    for name, width in (("cube", 3), ("door", size)):
        data["observations"].append(more | {"name": name, "signal": f"measured/{name}", "size": width})
    data["layout"]["observation_size"] += 3 + size
    return json.dumps(data)


def test_measured_values_arrive_in_their_order(address, contract, tools):
    end = rt.RobotEnd(address, rt.RobotDescription("toy", ["tail", "hip", "knee"], measured=5))
    client = rt.Transport(address, commander=7)
    assert tools.connect(end, client, measuring(contract, 2)).measured == 5
    assert end.send_state(tools.state(1)) == 0
    end.send_state(tools.state(2, measured_count=5, measured=[0.5, 1.5, 2.5, 3.5, 4.5]))
    state = tools.take_state(client)
    assert state.measured_count == 5
    assert state.measured[:6].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 0.0]


def test_the_heights_of_an_older_robot_arrive_where_the_policy_reads_them(address, contract, tools):
    end = rt.RobotEnd(address, rt.RobotDescription("toy", ["tail", "hip", "knee"], heights=4, measured=3))
    client, data = rt.Transport(address, commander=7), json.loads(measuring(contract, 4))
    grid = {"size": [1.0, 1.0], "resolution": 1.0, "offset": [0.0, 0.0]}
    scan = {"signal": "height_scan", "transform": "minus_offset", "frame": "heading"}
    data["observations"][-1] |= scan | {"params": {"offset": 0.3, "grid": grid}}
    tools.connect(end, client, json.dumps(data))
    end.send_state(tools.state(1, measured_count=7, measured=[0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5]))
    assert tools.take_state(client).measured[:8].tolist() == [4.5, 5.5, 6.5, 0.5, 1.5, 2.5, 3.5, 0.0]


def test_a_robot_that_measures_something_runs_a_policy_that_reads_none(address, contract, tools):
    end = rt.RobotEnd(address, rt.RobotDescription("toy", ["tail", "hip", "knee"], measured=2))
    tools.connect(end, rt.Transport(address), contract)


@pytest.mark.parametrize("given", [0, 4, 6])
def test_a_robot_that_measures_another_number_of_values_is_refused(address, contract, tools, given):
    end = rt.RobotEnd(address, rt.RobotDescription("toy", ["tail", "hip", "knee"], measured=given))
    line = f"measured/cube, measured/door: the policy reads 5 measured values, the robot gives {given}"
    with pytest.raises(rt.ContractError, match=line):
        tools.connect(end, rt.Transport(address), measuring(contract, 2))


def test_nobody_there_is_said_in_one_line(address, contract):
    client = rt.Transport(address)
    with pytest.raises(rt.UserError, match=r"no answer from (udp|shm) .* within 0\.05 s; is the robot"):
        client.connect(contract, 0.05)
    assert not client.send(rt.LowCommand())


def test_the_robot_may_come_later_than_the_policy(address, robot, contract, tools):
    client = rt.Transport(address)
    with pytest.raises(rt.UserError):
        client.connect(contract, 0.02)
    end = rt.RobotEnd(address, robot)
    assert tools.connect(end, client, contract).joints == robot.joints


def test_two_robots_at_one_address_are_refused(address, robot):
    end = rt.RobotEnd(address, robot)
    with pytest.raises(rt.UserError, match="another program listens there|serves .* already"):
        rt.RobotEnd(address, robot)
    del end
    rt.RobotEnd(address, robot)


CLIENT = """
import sys
import robot_rl_runtime as rt
client = rt.Transport(sys.argv[1], commander=7)
client.connect(open(sys.argv[2]).read(), 20.0)
command = rt.LowCommand()
command.joints = 3
for sequence in range(1, 10**9):
    command.sequence = sequence
    client.send(command)
"""


@pytest.mark.parametrize("address", ["shm"], indirect=True)
def test_a_client_killed_while_it_writes_holds_up_nobody(address, robot, contract, tools, tmp_path):
    """Clients that are killed occupy every lane of shared memory; the ninth client still connects."""
    path = tmp_path / "contract.json"
    path.write_text(contract)
    end = rt.RobotEnd(address, robot)
    processes = [subprocess.Popen([sys.executable, "-c", CLIENT, address, str(path)]) for _ in range(3)]
    try:
        while end.clients < 3:
            end.wait(0.05)
            while end.take_command() is not None:
                pass
    finally:
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    while end.take_command() is not None:
        pass
    clients = [rt.Transport(address, commander=50 + index) for index in range(8)]
    for client in clients:
        tools.connect(end, client, contract)
    for client in clients:
        client.send(tools.command(1))
    assert {tools.take_command(end).commander for _ in clients} == set(range(50, 58))
    with pytest.raises(rt.UserError, match="all 8 lanes"):
        rt.Transport(address).connect(contract, 0.1)


DEAD_ROBOT = """
import os, sys
import robot_rl_runtime as rt
end = rt.RobotEnd(sys.argv[1], rt.RobotDescription("toy", ["a"]))
os._exit(0)
"""


@pytest.mark.parametrize("address", ["shm"], indirect=True)
def test_a_segment_left_by_a_dead_robot_is_made_anew(address, robot, contract, tools):
    subprocess.run([sys.executable, "-c", DEAD_ROBOT, address], check=True)
    with pytest.raises(rt.UserError, match="no answer"):
        rt.Transport(address).connect(contract, 0.02)
    end = rt.RobotEnd(address, robot)
    tools.connect(end, rt.Transport(address), contract)


def test_a_state_with_a_bit_turned_is_never_taken(pair, tools):
    """The last is whole; those before it were counted, as damaged or as of another version or layout."""
    end, client = pair
    for bit in range(0, 4000, 97):
        assert end.send_corrupt(tools.state(), bit) == 1
        if bit % 5 == 0:
            client.take_state()
    end.send_state(tools.state(joint_vel=[7, 8, 9]))
    assert sorted(tools.take_state(client).joint_vel[:3]) == [7, 8, 9]
    counted = client.counters
    assert (counted["states"], counted["damaged"] + counted["foreign"]) == (1, 42)


def test_a_robot_that_begins_anew_is_greeted_again(robot, contract, tools, port):
    """Its states are heard, its numbers begin at 1 again, and it hears the commands."""
    address = f"udp:127.0.0.1:{port()}"
    end = rt.RobotEnd(address, robot)
    client = rt.Transport(address, commander=7)
    tools.connect(end, client, contract)
    end.send_state(tools.state(5000))
    tools.take_state(client)
    del end
    end, heard, sequence = rt.RobotEnd(address, robot), None, 0
    until = rt.now_ns() + 20_000_000_000
    while heard is None and rt.now_ns() < until:
        sequence += 1
        client.send(tools.command(sequence))
        end.wait(0.02)
        end.take_command()
        end.send_state(tools.state(sequence))
        client.wait(0.02)
        heard = client.take_state()
    assert heard is not None
    assert heard.sequence <= sequence
    client.send(tools.command(sequence + 1))
    assert tools.take_command(end).sequence == sequence + 1
    assert client.counters["foreign"] == client.counters["damaged"] == 0


def test_a_robot_that_repeats_itself_has_not_begun_anew(robot, contract, tools, port):
    """However often it answers a greeting, the state that it is stuck at is not taken for a new one."""
    address = f"udp:127.0.0.1:{port()}"
    end, client = rt.RobotEnd(address, robot), rt.Transport(address, commander=7)
    tools.connect(end, client, contract)
    end.send_state(tools.state(50))
    tools.take_state(client)
    for number in range(25):
        client.send(tools.command(number + 1))
        end.wait(0.02)
        end.take_command()
        end.send_state(tools.state(50))
        client.wait(0.02)
        assert client.take_state() is None
    assert client.counters["duplicate"] > 10


def test_a_watchdog_that_was_silent_for_long_is_heard_though_others_took_its_place(robot, contract, tools, port):
    address = f"udp:127.0.0.1:{port()}"
    end = rt.RobotEnd(address, robot)
    watchdog = rt.Transport(address + "?states=0", commander=7)
    tools.connect(end, watchdog, contract)
    others = [rt.Transport(address, commander=8 + count) for count in range(8)]
    for other in others:
        tools.connect(end, other, contract)
    time.sleep(0.11)  # so long a robot is taken to be there
    watchdog.send(tools.command(1))
    assert tools.take_command(end).sequence == 1
