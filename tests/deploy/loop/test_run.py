"""The binary against a robot: it stands, walks, answers, stops, and leaves the robot damped."""

import contextlib
import json
import os
import shutil
import signal
import time

import numpy as np
import pytest
from robot_rl_deploy.bundle import write_sums
from robot_rl_deploy.synthetic import write_synthetic_bundle

from .conftest import Robot


def phases(commands):
    """The phases in the order in which they were entered."""
    return [c.phase for i, c in enumerate(commands) if i == 0 or c.phase != commands[i - 1].phase]


def test_stands_walks_and_stops_by_itself(robot, start, report):
    process = start("--seconds", "1.0")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    got = report()
    assert phases(robot.commands) in (["STAND", "POLICY", "DAMPING"], ["DAMPING", "STAND", "POLICY", "DAMPING"])
    numbers = [c.sequence for c in robot.commands]
    assert numbers == sorted(set(numbers))
    answers = [c for c in robot.commands if c.from_policy]
    assert 0 < len(answers) <= got["loop"]["policy_commands"] == got["loop"]["steps"]
    assert all((c.kp > 0) == (c.phase != "DAMPING") for c in robot.commands)
    assert len([c for c in robot.commands if c.phase == "DAMPING"]) >= 20  # a moment of damping at the end
    assert [change["phase"] for change in got["changes"]] == ["DAMPING", "STAND", "POLICY", "DAMPING"]
    assert got["fault"] == "none"
    assert got["changes"][-1]["fault"] == "operator_stop"


def test_nothing_is_allocated_and_no_page_faults_after_the_start(robot, start, report, tmp_path):
    """With a log, too: all that the real-time threads need is there before they begin."""
    process = start("--seconds", "1.0", "--log", tmp_path / "run.mcap")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    got = report()
    assert got["loop"]["steps"] >= 10
    for thread in got["threads"].values():
        assert thread["allocations"] == 0
        assert thread["major_faults"] == 0
        if got["realtime"]["memory_locked"]:
            assert thread["minor_faults"] == 0
    assert got["threads"]["writer"]["network_allocations"] == 0
    assert got["log"]["events"] > 100
    assert got["log"]["lost"] == 0


@pytest.fixture(scope="module")
def successors(go2_bundle, tmp_path_factory):
    """Two bundles for the Go2's joints with the same contract and other weights, of the size of a real policy."""
    folder = tmp_path_factory.mktemp("successors")
    joints = [joint["name"] for joint in json.loads((go2_bundle / "contract.json").read_text())["joints"]]
    for seed in (0, 1):
        write_synthetic_bundle(folder / str(seed), robot="unitree_go2", joints=joints, hidden=(256, 128), seed=seed)
    return folder / "0", folder / "1"


def test_other_bundles_take_over_without_an_allocation_and_without_a_missed_action(
    robot, start, report, successors, tmp_path
):
    folder = tmp_path / "follow"
    folder.mkdir()
    process = start("--follow", folder, "--log", tmp_path / "run.mcap", bundle=successors[0])
    robot.wait_for(lambda c: c.phase == "POLICY" and c.from_policy)
    for path in (successors[1], successors[0], successors[1]):
        (folder / "part").write_text(f"{path}\n")
        (folder / "part").rename(folder / "next")
        end = time.monotonic() + 60
        while f" {path} " not in (folder / "current").read_text() and time.monotonic() < end:
            time.sleep(0.01)
        since = len(robot.commands)
        robot.wait_for(lambda c: c.phase == "POLICY" and c.from_policy, since=since)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    got = report()
    steps = [one["first_step"] for one in got["bundles"]]
    assert len(steps) == 4
    assert steps == sorted(set(steps))
    for thread in got["threads"].values():
        assert thread["allocations"] == 0
        assert thread["major_faults"] == 0
        if got["realtime"]["memory_locked"]:
            assert thread["minor_faults"] == 0
    assert [change["phase"] for change in got["changes"]] == ["DAMPING", "STAND", "POLICY", "DAMPING"]
    assert got["log"]["lost"] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_damps_and_ends_it(robot, start, report, number):
    process = start()
    robot.wait_for(lambda c: c.phase == "POLICY" and c.from_policy)
    since = len(robot.commands)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert f"stopped by {number.name}" in said
    damped = robot.wait_for(lambda c: c.phase == "DAMPING", since=since)
    after = [c for c in robot.commands if c.sequence > damped.sequence]
    assert len(after) >= 20
    assert all(c.phase == "DAMPING" and c.kp == 0 and c.kd > 0 for c in after)
    assert report()["watchdog"]["takeovers"] == 0
    assert "watchdog" not in said


def test_the_operator_leads(rt, robot, start, free_address, report):
    address = free_address()
    process = start(operator=address)
    robot.wait_for(lambda c: c.phase == "DAMPING")
    operator = rt.OperatorEnd(address)

    def ask(request, phase):
        since, end = len(robot.commands), time.monotonic() + 20
        while time.monotonic() < end:
            operator.send([0.5, 0.0, 0.0], request)
            time.sleep(0.02)
            if any(c.phase == phase for c in robot.commands[since:]):
                return
        raise AssertionError(f"{request} did not lead to {phase}")

    ask(rt.Request.STAND, "STAND")
    ask(rt.Request.POLICY, "POLICY")
    ask(rt.Request.DAMP, "DAMPING")
    ask(rt.Request.STAND, "STAND")
    since = len(robot.commands)  # and now not a word more
    lost = robot.wait_for(lambda c: c.phase == "DAMPING", since=since)
    assert lost.fault == "OPERATOR_LOST"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 4, said
    assert report()["fault"] == "operator_lost"


def test_after_a_second_commander_is_gone_the_operator_goes_on(rt, robot, start, free_address):
    address = free_address()
    process = start(operator=address, settings={"limits.operator_s": 5})
    robot.wait_for(lambda c: c.phase == "DAMPING")
    time.sleep(0.6)  # until then whoever commanded before us is named
    operator = rt.OperatorEnd(address)

    def ask(request, test):
        since, end = len(robot.commands), time.monotonic() + 20
        while time.monotonic() < end and not any(test(c) for c in robot.commands[since:]):
            operator.send([0.0, 0.0, 0.0], request)
            time.sleep(0.02)
        return robot.wait_for(test, since=since)

    def name(commander):
        robot.change = lambda state: setattr(state, "commander", commander)

    ask(rt.Request.STAND, lambda c: c.phase == "STAND")
    name(0xBAD)
    assert ask(rt.Request.NONE, lambda c: c.phase == "DAMPING").fault == "SECOND_COMMANDER"
    name(0)
    time.sleep(0.7)
    ask(rt.Request.DAMP, lambda c: c.fault == "OPERATOR_STOP")
    ask(rt.Request.STAND, lambda c: c.phase == "STAND")
    since = len(robot.commands)
    ask(rt.Request.NONE, lambda c: c.sequence > robot.commands[since - 1].sequence + 50)
    assert {c.phase for c in robot.commands[since:]} == {"STAND"}
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)


def test_a_robot_that_another_program_commands_is_refused_before_the_first_command(robot, start):
    first = start()
    robot.wait_for(lambda c: c.phase == "POLICY" and c.from_policy)
    second = start()
    _, said = second.communicate(timeout=60)
    assert second.returncode == 2, said
    assert "robot: another program commands it, or for 10 s the watchdog of a run that was killed" in said
    assert {c.phase for c in robot.commands[-50:]} == {"POLICY"}
    first.send_signal(signal.SIGTERM)
    _, said = first.communicate(timeout=60)
    assert first.returncode == 0, said
    since = len(robot.commands)
    again = start("--seconds", "0.5")  # that one has gone
    robot.wait_for(lambda c: c.phase == "POLICY", since=since)
    again.communicate(timeout=60)
    assert again.returncode == 0


def test_states_slightly_faster_than_the_control_rate_lose_no_step(rt, robot, start, report, go2_bundle, free_address):
    contract = json.loads((go2_bundle / "contract.json").read_text())
    robot.address = free_address()
    with Robot(rt, robot.address, contract, period_s=0.018) as slow:
        process = start("--seconds", "4.0")
        slow.wait_for(lambda c: c.phase == "POLICY")
        process.communicate(timeout=60)
    got = report()
    assert got["loop"]["steps"] / got["seconds"] > 48  # of 50 a second; every second state would give 28


def test_no_states_damp_and_stay_damped(robot, start, report):
    process = start(settings={"limits.state_age_s": 0.2})
    robot.wait_for(lambda c: c.phase == "POLICY" and c.from_policy)
    since = len(robot.commands)
    robot.silent = True
    assert robot.wait_for(lambda c: c.phase == "DAMPING", since=since).fault == "STATE_AGE"
    robot.silent = False
    time.sleep(0.3)
    assert robot.commands[-1].phase == "DAMPING"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 4, said
    assert "DAMPING: state_age" in said


def test_lockstep_answers_every_state(robot, start, report):
    process = start("--seconds", "0.5", settings={"steps_per_state": 1, "stand_s": 0, "blend_s": 0})
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    got = report()
    assert got["loop"]["steps"] >= 0.9 * got["latencies"]["state_interval"]["count"]
    assert got["loop"]["missed_deadlines"] == 0
    answered = [c.state_sequence for c in robot.commands if c.from_policy]
    assert answered == sorted(set(answered))


@pytest.mark.parametrize("settings", [{}, {"steps_per_state": 5}])
def test_the_network_is_rehearsed_once_before_a_step(robot, start, report, settings):
    process = start("--seconds", "1.0", settings=settings)
    process.communicate(timeout=60)
    got = report()
    assert 0 < got["latencies"]["rehearsal"]["count"] <= got["loop"]["steps"] + 1
    assert got["threads"]["policy"]["allocations"] == 0
    start("--seconds", "0.5", "--no-rehearsal", settings=settings).communicate(timeout=60)
    assert report()["latencies"]["rehearsal"]["count"] == 0


def test_a_network_that_fails_its_golden_sequence_moves_nothing(robot, start, report, go2_bundle, tmp_path):
    forged = tmp_path / "forged"
    shutil.copytree(go2_bundle, forged)
    with np.load(forged / "golden.npz") as file:
        arrays = dict(file)
    arrays["action"] = arrays["action"] + np.float32(0.01)
    np.savez(forged / "golden.npz", **arrays)
    write_sums(forged)
    process = start("--seconds", "0.5", "--follow", tmp_path, bundle=forged)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 3, said
    assert "refused, staying in damping" in said
    assert "no bundle takes over from one that was refused" in said
    (only,) = report()["bundles"]
    assert "golden replay" in only["refused"]
    assert (only["time_s"], only["first_step"]) == (None, None)
    assert len(robot.commands) > 20
    assert all(c.phase == "DAMPING" and c.kp == 0 and c.kd > 0 for c in robot.commands)


def test_a_robot_that_sends_no_state_is_not_commanded(robot, start):
    robot.silent = True
    process = start("--connect-timeout", "0.5")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2, said
    assert "sends no state" in said
    assert not robot.commands


def test_a_signal_before_the_robot_is_found_ends_it(start, robot, free_address):
    robot.address = free_address()
    process = start("--connect-timeout", "60")
    assert "bundle" in process.stderr.readline()
    assert "backend" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 0, said
    assert "stopped by SIGTERM before it began" in said


def test_a_log_that_cannot_be_written_on_stops_no_robot(robot, start, tmp_path):
    """A file may hold 200 kB: the robot walks on, and the exit code shows that the log is incomplete."""
    process = start("--seconds", "1.0", "--log", tmp_path / "run.mcap", limit=200_000)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 74, said
    lines = said.splitlines()
    failed = next(i for i, line in enumerate(lines) if "the log is incomplete" in line)
    assert "DAMPING: operator_stop" in "".join(lines[failed:])  # said when it happened, not at the end
    assert "File too large" in lines[failed]
    assert max(i for i, c in enumerate(robot.commands) if c.phase == "POLICY") > 300


def test_a_disk_that_is_full_from_the_start_is_said_before_anything_moves(robot, start, tmp_path):
    for limit in (10, 3000):
        process = start("--log", tmp_path / "run.mcap", limit=limit)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 74, said
        assert said.splitlines()[-1] == f"robot-rl-infer: --log={tmp_path}/run.mcap: File too large"
        assert not list(tmp_path.iterdir())
    assert not robot.commands


@pytest.fixture
def deaf():
    """The writing end of a full pipe that nobody reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_terminal_that_takes_no_lines_holds_up_nothing(robot, start, deaf, number):
    process = start(stderr=deaf)
    robot.wait_for(lambda c: c.phase == "POLICY" and c.from_policy)
    since = len(robot.commands)
    process.send_signal(number)
    damped = robot.wait_for(lambda c: c.phase == "DAMPING", since=since)
    process.wait(60)
    time.sleep(0.2)
    after = [c for c in robot.commands if c.sequence >= damped.sequence]
    assert len(after) >= 20
    assert all(c.phase == "DAMPING" for c in after)


def test_without_a_robot_one_line_says_so(start, robot, free_address):
    robot.address = free_address()
    process = start("--connect-timeout", "0.2")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2, said
    assert said.splitlines()[-1].startswith("robot-rl-infer: transport: no answer from udp 127.0.0.1")
