"""Unitree's messages over CycloneDDS: joints, checksums, the remote control, a second commander."""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import robot_rl_runtime as rt

if not rt.has_dds() and os.environ.get("ROBOT_RL_REQUIRE_ALL") != "1":
    pytest.skip("built without CycloneDDS", allow_module_level=True)

GO2 = Path(__file__).parents[3] / "tasks/robot_rl_tasks/go2_flat/policy/contract.json"
FAMILIES = {
    "unitree_go2": "unitree_go",
    "unitree_h1": "unitree_go",
    "unitree_g1": "unitree_hg",
    "unitree_g1_23dof": "unitree_hg",
}


def contract_for(robot):
    """The Go2 policy's contract with another robot's joints, in an order that is not the motors'."""
    contract = json.loads(GO2.read_text())
    names = sorted(name for name in rt.unitree_motors(robot) if name)
    joint, action = contract["joints"][0], contract["actions"][0]
    contract["robot"] = robot
    contract["joints"] = [joint | {"name": name} for name in names]
    contract["actions"] = [action | {"joint": name} for name in names]
    contract["fallback_pose"] = (
        dict.fromkeys(names, 0.0) if isinstance(contract["fallback_pose"], dict) else [0.0] * len(names)
    )
    count = len(names)
    for term in contract["observations"]:
        if term["signal"] in ("joint_pos", "joint_vel", "last_action"):
            term["size"] = count
    layout = contract["layout"]
    layout["action_size"] = count
    layout["observation_size"] = sum(term["size"] * term["history"] for term in contract["observations"])
    return names, json.dumps(contract)


@pytest.fixture(params=list(FAMILIES))
def pair(request, domain, tools):
    """Both ends of a robot: (robot's end, policy's end, contract's joints, robot's joints)."""
    names, contract = contract_for(request.param)
    motors = [name for name in rt.unitree_motors(request.param) if name]
    address = f"dds:{FAMILIES[request.param]}?domain={domain}"
    feet = 4 if request.param == "unitree_go2" else 0
    end = rt.RobotEnd(address, rt.RobotDescription(request.param, motors, feet))
    client = rt.Transport(address, commander=7)
    beat = tools.state(0, joints=len(motors), feet=feet)
    connect(end, client, contract, beat, tools)
    return end, client, names, motors


def drain(end, client):
    """Take what is still on its way."""
    while end.wait(0.05):
        while end.take_command() is not None:
            pass
    while client.wait(0.05):
        client.take_state()


def connect(end, client, contract, state, tools):
    """Connect while the robot sends states."""
    import threading

    result = []
    thread = threading.Thread(target=lambda: result.append(client.connect(contract, 20.0)))
    thread.start()
    while thread.is_alive():
        state.robot_time_ns += 2_000_000
        end.send_state(state)
        thread.join(0.01)
    assert result
    drain(end, client)


@pytest.fixture
def domain():
    """A DDS domain for this process."""
    return 1 + os.getpid() % 200


def meet(end, client, state, command, tools):
    """Send either way until both ends have found each other."""
    for _ in range(1000):
        state.robot_time_ns += 2_000_000
        end.send_state(state)
        client.send(command)
        client.wait(0.005)
        client.take_state()
        if end.take_command() is not None:
            return drain(end, client)
    raise AssertionError("no command arrived")


def test_states_and_commands_by_name(pair, tools):
    end, client, names, motors = pair
    count = len(names)
    state = tools.state(0, joints=count, robot_time_ns=10**12, feet=4 if "FL_hip_joint" in motors else 0)
    meet(end, client, state, tools.command(1, joints=count), tools)
    values = np.arange(count) + 1.0
    state.joint_pos, state.joint_vel, state.joint_effort = values, -values, 10 * values
    state.temperature_c = 20 + values
    state.quat_wxyz, state.gyro, state.acc = [0.5, -0.5, 0.5, -0.5], [1, 2, 3], [4, 5, 6]
    state.foot_contact = [1, 0, 0, 1]
    state.robot_time_ns += 4_000_000
    state.sequence = 4711  # the robot's own number, which DDS does not carry
    assert end.send_state(state) == 1
    got = tools.take_state(client)
    where = [motors.index(name) for name in names]
    np.testing.assert_array_equal(got.joint_pos[:count], values[where])
    np.testing.assert_array_equal(got.joint_vel[:count], -values[where])
    np.testing.assert_array_equal(got.joint_effort[:count], 10 * values[where])
    np.testing.assert_array_equal(got.temperature_c[:count], 20 + values[where])
    assert list(got.quat_wxyz) == [0.5, -0.5, 0.5, -0.5]
    assert (list(got.gyro), list(got.acc)) == ([1, 2, 3], [4, 5, 6])
    if state.feet:
        assert list(got.foot_contact[:4]) == [1, 0, 0, 1]
    assert got.robot_time_ns == state.robot_time_ns

    command = tools.command(41, joints=count, kp=values, kd=2 * values, tau=3 * values, dq=4 * values, q=5 * values)
    command.phase, command.fault, command.from_policy = rt.Phase.POLICY, rt.Fault.NONE, True
    command.state_sequence, command.state_robot_time_ns, command.state_age_ns = got.sequence, got.robot_time_ns, 1234
    assert client.send(command)
    back = tools.take_command(end)
    at = [names.index(name) for name in motors]
    for offset, name in enumerate(("kp", "kd", "tau", "dq", "q")):
        np.testing.assert_array_equal(getattr(back, name)[:count], np.float32((offset + 1) * values[at]))
    assert (back.sequence, back.commander, back.state_sequence, back.state_age_ns) == (41, 7, 4711, 1234)
    assert (back.phase, back.from_policy) == (rt.Phase.POLICY, True)
    assert not client.second_commander


def test_equal_commands_keep_their_own_numbers(pair, tools):
    """Information without a field in LowCmd is sent apart and found by the checksum, which equal commands share."""
    end, client, names, motors = pair
    state = tools.state(0, joints=len(names), feet=4 if "FL_hip_joint" in motors else 0, robot_time_ns=10**12)
    meet(end, client, state, tools.command(1, joints=len(names)), tools)
    for sequence in (11, 12, 13):
        client.send(tools.command(sequence, joints=len(names)))
    client.send(tools.command(14, joints=len(names), tau=[1.0]))
    client.send(tools.command(15, joints=len(names)))
    assert [tools.take_command(end).sequence for _ in range(5)] == [11, 12, 13, 14, 15]


def test_a_state_with_a_bit_turned_is_damaged(pair, tools):
    end, client, names, motors = pair
    state = tools.state(0, joints=len(names), feet=4 if "FL_hip_joint" in motors else 0, robot_time_ns=10**12)
    meet(end, client, state, tools.command(1, joints=len(names)), tools)
    before = client.counters
    for bit in (0, 31, 32 * len(names) + 5):
        state.robot_time_ns += 2_000_000
        end.send_corrupt(state, bit)
        client.wait(0.2)
        assert client.take_state() is None
    assert client.counters["damaged"] == before["damaged"] + 3
    state.robot_time_ns += 2_000_000
    end.send_state(state)
    assert tools.take_state(client).robot_time_ns == state.robot_time_ns


def test_motor_faults_of_the_g1(domain, tools):
    names, contract = contract_for("unitree_g1")
    motors = [name for name in rt.unitree_motors("unitree_g1") if name]
    end = rt.RobotEnd(f"dds:unitree_hg?domain={domain}", rt.RobotDescription("unitree_g1", motors))
    client = rt.Transport(f"dds:unitree_hg?domain={domain}", commander=7)
    state = tools.state(0, joints=29)
    state.motor_fault = [0, 5]
    connect(end, client, contract, state, tools)
    state.robot_time_ns += 2_000_000
    end.send_state(state)
    got = tools.take_state(client)
    assert got.motor_fault[names.index(motors[1])] == 5
    assert np.count_nonzero(got.motor_fault) == 1


def ends(domain, name, robot="", policy=""):
    """Both ends of a robot with options of their addresses, the contract and the robot's joints."""
    _, contract = contract_for(name)
    motors = [joint for joint in rt.unitree_motors(name) if joint]
    address, feet = f"dds:{FAMILIES[name]}?domain={domain}", 4 if name == "unitree_go2" else 0
    end = rt.RobotEnd(address + robot, rt.RobotDescription(name, motors, feet))
    return end, rt.Transport(address + policy, commander=7), contract, motors


def g1_ends(domain, robot="", policy=""):
    """Both ends of a G1 of 29 joints."""
    return ends(domain, "unitree_g1", robot, policy)


def refusal(end, client, contract, state):
    """What connecting is refused with, while the robot sends states."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.connect, contract, 20.0)
        while not waiting.done():
            state.robot_time_ns += 2_000_000
            end.send_state(state)
            time.sleep(0.005)
        return str(waiting.exception())


@pytest.mark.parametrize(
    ("robot", "policy", "said"),
    [
        ("&mode_machine=4", "", "robot: it says mode_machine 4, a G1 of 23 joints; the policy drives the 29 joints of"),
        ("&mode_machine=6", "&mode_machine=6", "mode_machine 6, a G1 with a locked waist"),
        ("&mode_machine=9", "", "mode_machine 9, a build that is not known here; .* mode_machine=9 in the transport's"),
    ],
)
def test_another_build_is_refused_before_the_first_command(domain, tools, robot, policy, said):
    end, client, contract, _ = g1_ends(domain, robot, policy)
    assert re.search(said, refusal(end, client, contract, tools.state(0, joints=29, temperature_c=30)))
    assert end.take_command() is None


@pytest.mark.parametrize(("robot", "policy"), [("&mode_machine=5", ""), ("&mode_machine=9", "&mode_machine=9")])
def test_the_build_of_the_table_and_one_that_is_named_are_driven(domain, tools, robot, policy):
    end, client, contract, _ = g1_ends(domain, robot, policy)
    connect(end, client, contract, tools.state(0, joints=29, temperature_c=30), tools)


def test_a_state_that_was_overtaken_is_not_used(domain, tools):
    end, client, contract, _ = ends(domain, "unitree_go2")
    state = tools.state(0, joints=12, feet=4, temperature_c=30, robot_time_ns=10**12)
    connect(end, client, contract, state, tools)
    state.robot_time_ns += 20_000_000
    end.send_state(state)
    newest = tools.take_state(client).robot_time_ns
    state.robot_time_ns -= 10_000_000
    end.send_state(state)
    client.wait(0.2)
    assert client.take_state() is None
    assert client.counters["old"] == 1
    state.robot_time_ns = 2_000_000  # it started again
    end.send_state(state)
    assert tools.take_state(client).robot_time_ns < newest


def test_the_smaller_g1_is_a_robot_of_its_own(domain, tools):
    motors = rt.unitree_motors("unitree_g1_23dof")
    larger = rt.unitree_motors("unitree_g1")
    assert [place for place in range(35) if motors[place]] == [*range(13), *range(15, 20), *range(22, 27)]
    assert all(name in ("", larger[place]) for place, name in enumerate(motors))
    end, client, contract, _ = ends(domain, "unitree_g1_23dof", "&mode_machine=5")
    line = refusal(end, client, contract, tools.state(0, joints=23, temperature_c=30))
    assert line.startswith("robot: it says mode_machine 5, a G1 of 29 joints; the policy drives the 23 joints of")


OFF, LOST = 0x40000000, 0x20000000  # motor faults that a simulated robot shows in its messages: switched off, lost


def test_motors_that_are_off_are_named_before_the_first_command(domain, tools):
    end, client, contract, _ = ends(domain, "unitree_go2")
    state = tools.state(0, joints=12, feet=4, temperature_c=30)
    state.motor_fault = [OFF, 0, OFF]
    assert refusal(end, client, contract, state) == (
        "robot: other motors are on, those of FR_calf_joint, FR_hip_joint are off (mode 0); switch them on"
    )


@pytest.mark.parametrize("bit", [OFF, LOST])
def test_a_motor_that_goes_off_or_whose_messages_get_lost_has_a_fault(domain, tools, bit):
    end, client, contract, motors = ends(domain, "unitree_go2")
    names, _ = contract_for("unitree_go2")
    state = tools.state(0, joints=12, feet=4, temperature_c=30)
    connect(end, client, contract, state, tools)

    def faults(motor_fault, states):
        state.motor_fault = motor_fault
        for _ in range(states):
            state.robot_time_ns += 2_000_000
            end.send_state(state)
            got = tools.take_state(client).motor_fault[:12]
        return dict(zip(names, got, strict=True))

    assert not any(faults([0] * 12, 3).values())
    assert not any(faults([0, LOST] + [0] * 10, 3).values())  # a few may get lost
    got = faults([0, bit] + [0] * 10, 30)
    assert got.pop(motors[1]) == bit
    assert not any(got.values())


def test_an_empty_battery_is_refused_and_may_be_accepted(domain, tools):
    state = tools.state(0, joints=12, feet=4, temperature_c=30)
    end, client, contract, _ = ends(domain, "unitree_go2", "&battery=7")
    line = refusal(end, client, contract, state)
    assert line == "robot: its battery has 7 %; charge it, or begin with less by battery=7 in the transport's address"
    client = rt.Transport(f"dds:unitree_go?domain={domain}&battery=7", commander=7)
    connect(end, client, contract, state, tools)


def test_a_motor_that_is_not_there_is_named(domain, tools):
    end, client, contract, motors = g1_ends(domain)
    state = tools.state(0, joints=29)
    state.temperature_c = [np.nan if name.startswith("waist_r") else 30 for name in motors]  # How it is simulated.
    line = refusal(end, client, contract, state)
    assert line == "robot: no motor answers for waist_roll_joint; the policy drives all joints of unitree_g1"


def test_a_robot_that_becomes_another_one_has_motor_faults(domain, tools):
    end, client, contract, motors = g1_ends(domain, "&mode_machine=5")
    names, _ = contract_for("unitree_g1")
    state = tools.state(0, joints=29, temperature_c=30)
    connect(end, client, contract, state, tools)

    def faults(robot):
        state.robot_time_ns += 2_000_000
        robot.send_state(state)
        return list(tools.take_state(client).motor_fault[:29])

    assert faults(end) == [0] * 29
    state.temperature_c = [np.nan if name == motors[3] else 30 for name in motors]
    assert faults(end) == [0xFFFFFFFF if name == motors[3] else 0 for name in names]
    state.temperature_c = 30
    other = rt.RobotEnd(f"dds:unitree_hg?domain={domain}&mode_machine=6", rt.RobotDescription("unitree_g1", motors))
    while other.clients == 0:
        time.sleep(0.01)
    assert faults(other) == [0xFFFFFFFF] * 29


def test_a_counter_that_stands_still_keeps_its_number(pair, tools):
    end, client, names, motors = pair
    state = tools.state(0, joints=len(names), feet=4 if "FL_hip_joint" in motors else 0, robot_time_ns=5 * 10**9)
    meet(end, client, state, tools.command(1, joints=len(names)), tools)
    numbers = []
    for step in (2, 0, 0, 2):
        state.robot_time_ns += step * 1_000_000
        end.send_state(state)
        numbers.append(tools.take_state(client).sequence)
    assert numbers == [numbers[0]] * 3 + [numbers[0] + 1]


def test_the_remote_control_is_the_operator_where_none_is_named(pair, tools):
    end, client, names, motors = pair
    state = tools.state(0, joints=len(names), feet=4 if "FL_hip_joint" in motors else 0, robot_time_ns=5 * 10**9)
    meet(end, client, state, tools.command(1, joints=len(names)), tools)
    assert client.take_operator() is None  # the receiver hears no remote control
    pushed = rt.OperatorInput()
    pushed.size, pushed.command, pushed.request = 3, [1.0, -0.5, 0.02], rt.Request.STAND
    end.send_operator(pushed, 1)
    state.robot_time_ns += 2_000_000
    end.send_state(state)
    tools.take_state(client)
    got = client.take_operator()
    ranges = {part["name"]: (part["lower"], part["upper"]) for part in json.loads(GO2.read_text())["command"]}
    (_, forward), (right, _), _ = ranges.values()
    assert got.request == rt.Request.STAND
    np.testing.assert_allclose(got.command[:3], [forward, 0.5 * right, 0.0], rtol=1e-6)


@pytest.fixture
def remote(domain, tools):
    """remote(options): a function that gives what the operator commands, by way of a Go2's remote control."""

    def make(options=""):
        end, client, contract, _ = ends(domain, "unitree_go2", policy=options)
        state = tools.state(0, joints=12, feet=4, temperature_c=30, robot_time_ns=5 * 10**9)
        connect(end, client, contract, state, tools)

        def hear(pushed=None):
            """The command after one more state; `pushed`: the sticks move to this. None: nobody is heard."""
            if pushed is not None:
                end.send_operator(pushed, 1)
            client.take_operator()
            state.robot_time_ns += 2_000_000
            end.send_state(state)
            tools.take_state(client)
            got = client.take_operator()
            return None if got is None else list(got.command[: got.size])

        return hear

    return make


def sticks(*command, request=rt.Request.NONE):
    pushed = rt.OperatorInput()
    pushed.size, pushed.command, pushed.request = 3, list(command), request
    return pushed


def test_a_remote_control_whose_bytes_stand_still_commands_nothing_and_is_lost(remote):
    hear = remote("&still_ms=500")
    assert hear(sticks(1.0, 0.0, 0.0))[0] > 0
    begin = time.monotonic()
    heard = []
    while time.monotonic() < begin + 1.3:
        heard.append((time.monotonic() - begin, hear()))
        time.sleep(0.02)
    assert all(command[0] > 0 for at, command in heard if at < 0.4)
    assert all(command == [0.0, 0.0, 0.0] for at, command in heard if 0.6 < at < 0.9)
    assert all(command is None for at, command in heard if at > 1.1)
    assert hear(sticks(0.5, 0.0, 0.0))[0] > 0  # a hand moves it


@pytest.mark.parametrize(("still", "forward"), [("&still_ms=100", 0.0), ("&still_ms=0", 1.0)])
def test_a_remote_control_at_rest_may_stand_still_and_any_by_setting(remote, still, forward):
    hear = remote(still)
    command = hear(sticks(forward, 0.0, 0.0))
    time.sleep(0.3)
    assert hear() == command


def test_sticks_count_only_while_the_dead_mans_button_is_held(remote):
    hear = remote("&dead_man=A")  # the button that a request for the policy presses
    assert hear(sticks(1.0, 0.0, 0.0)) == [0.0, 0.0, 0.0]
    assert hear(sticks(1.0, 0.0, 0.0, request=rt.Request.POLICY))[0] > 0
    assert hear(sticks(1.0, 0.0, 0.0)) == [0.0, 0.0, 0.0]


OTHER = """
import sys, time
import robot_rl_runtime as rt
client = rt.Transport(sys.argv[1], commander=8)
client.connect(open(sys.argv[2]).read(), 20.0)
command = rt.LowCommand()
command.joints = int(sys.argv[3])
while True:
    command.sequence += 1
    client.send(command)
    time.sleep(0.005)
"""


def test_somebody_else_on_the_command_topic_is_a_second_commander(domain, tools, tmp_path):
    _, contract = contract_for("unitree_go2")
    path = tmp_path / "contract.json"
    path.write_text(contract)
    motors = [name for name in rt.unitree_motors("unitree_go2") if name]
    address = f"dds:unitree_go?domain={domain}"
    end = rt.RobotEnd(address, rt.RobotDescription("unitree_go2", motors, 4))
    client = rt.Transport(address, commander=7)
    state = tools.state(0, joints=12, feet=4)
    connect(end, client, contract, state, tools)
    meet(end, client, state, tools.command(1, joints=12), tools)
    assert not client.second_commander
    other = subprocess.Popen([sys.executable, "-c", OTHER, address, str(path), "12"])
    seen, found = set(), False
    try:
        end_ns = rt.now_ns() + 30 * 10**9  # it has a Python to start
        while rt.now_ns() < end_ns:
            state.robot_time_ns += 2_000_000
            end.send_state(state)
            client.wait(0.01)
            client.take_state()
            found = found or client.second_commander
            while (command := end.take_command()) is not None:
                seen.add(command.commander)
            if found and 8 in seen:
                break
    finally:
        other.kill()
        other.wait()
    assert found
    assert 8 in seen


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("dds:unitree_hg", "speaks dds:unitree_go, not dds:unitree_hg"),
        ("dds:unitree_go?interface=none0", "'none0' is not a network interface"),
        ("dds:unitree_go?robot=unitree_h1", "the transport leads to 'unitree_h1'"),
        ("dds:unitree_go?robot=spot", "'spot' has no table of motors here"),
        ("dds:unitree_go?dead_man=B", "dead_man=B: must be a button of the remote control: R1, L1, select"),
        ("dds:unitree_go?dead_man=Q", "dead_man=Q: must be a button of the remote control: R1, L1, select"),
        ("dds:unitree_go?battery=101", "battery must be a whole number from 0 to 100"),
        ("dds:unitree_go?domain={domain}", "no state on rt/lowstate within 0.05 s"),
    ],
)
def test_what_cannot_be_is_said(address, said, domain):
    with pytest.raises(ValueError, match=said):
        rt.Transport(address.format(domain=domain)).connect(GO2.read_text(), 0.05)


def measuring(contract):
    """The contract with a measured signal of 3 values at its end."""
    data = json.loads(contract)
    more = {"transform": "identity", "unit": "m", "frame": "base", "scale": 1.0, "clip": None, "history": 1}
    data["observations"].append(more | {"name": "cube", "signal": "measured/cube", "size": 3, "params": {}})
    data["layout"]["observation_size"] += 3
    return json.dumps(data)


@pytest.fixture
def go2(domain):
    """A Go2's end that gives so many measured values, the policy's end, and the contract that reads three."""

    def make(measured):
        _, contract = contract_for("unitree_go2")
        motors = [name for name in rt.unitree_motors("unitree_go2") if name]
        address = f"dds:unitree_go?domain={domain}"
        end = rt.RobotEnd(address, rt.RobotDescription("unitree_go2", motors, 4, measured=measured))
        return end, rt.Transport(address, commander=7), measuring(contract)

    return make


def test_measured_values_come_on_a_topic_of_their_own_and_grow_old(go2, tools):
    end, client, contract = go2(3)
    state = tools.state(0, joints=12, feet=4, measured_count=3, measured=[0.5, -1.5, 2.5])
    connect(end, client, contract, state, tools)
    state.measured = np.array([1.0, 2.0, 3.0], np.float32)
    seen = None
    for _ in range(200):
        state.robot_time_ns += 2_000_000
        end.send_state(state)
        client.wait(0.01)
        seen = client.take_state() or seen
        if seen is not None and seen.measured[0] == 1.0:
            break
    assert seen is not None
    assert (seen.measured_count, seen.measured[:3].tolist()) == (3, [1.0, 2.0, 3.0])
    state.measured_count = 0  # What measures them is silent; the robot goes on.
    counts = []
    until = time.monotonic() + 5.0
    while (not counts or counts[-1] > 0) and time.monotonic() < until:
        state.robot_time_ns += 10_000_000
        end.send_state(state)
        time.sleep(0.01)
        if (seen := client.take_state()) is not None:
            counts.append(seen.measured_count)
    assert counts[0] == 3
    assert counts[-1] == 0


def test_without_measured_values_it_does_not_connect(go2):
    _, client, contract = go2(0)
    with pytest.raises(rt.UserError, match="none came on rt/robot_rl/measured"):
        client.connect(contract, 0.3)
