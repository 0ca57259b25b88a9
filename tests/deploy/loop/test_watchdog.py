"""The second process: it damps where the first one dies or hangs, and is silent where that one ends as it should."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest


def child_of(process):
    """The watchdog's process id."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    return int(children[0])


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def walking(robot, start):
    """A function that starts the binary, with its own default of the watchdog's timeout, and waits until it walks."""

    def run(*words, watchdog_s=None, **more):
        process = start(*words, watchdog_s=watchdog_s, **more)
        robot.wait_for(lambda c: c.phase == "POLICY" and c.from_policy)
        return process

    return run


def test_kill_9_is_followed_by_damping(rt, robot, walking):
    process = walking()
    watchdog = child_of(process)
    process.kill()
    killed = rt.now_ns()
    process.wait()
    since = next(i for i, c in enumerate(robot.commands) if c.time_ns > killed - 50_000_000)
    first = robot.wait_for(lambda c: c.phase == "DAMPING", since=since)
    print(f"kill -9 -> damping at the robot: {(first.time_ns - killed) * 1e-6:.2f} ms")
    assert first.time_ns - killed < 1_000_000_000
    assert first.fault in ("INTERNAL", "STALLED")  # a process takes its time to end
    time.sleep(0.2)
    after = [c for c in robot.commands if c.time_ns > first.time_ns]
    assert after[-1].fault == "INTERNAL"
    assert len(after) >= 20
    assert all(c.phase == "DAMPING" and c.kp == 0 and c.kd > 0 for c in after)
    os.kill(watchdog, signal.SIGKILL)


def test_a_hang_is_followed_by_damping_and_without_an_operator_the_run_is_over(rt, robot, walking, report):
    process = walking()
    process.send_signal(signal.SIGSTOP)
    stopped, since = rt.now_ns(), len(robot.commands)
    first = robot.wait_for(lambda c: c.phase == "DAMPING", since=since)
    print(f"SIGSTOP -> damping at the robot: {(first.time_ns - stopped) * 1e-6:.2f} ms")
    time.sleep(0.1)
    process.send_signal(signal.SIGCONT)
    time.sleep(0.3)
    after = [c for c in robot.commands if c.time_ns > first.time_ns]
    assert len(after) >= 40
    assert sum(c.phase != "DAMPING" for c in after) <= 1  # at most what was already on its way when it was stopped
    assert after[-1].phase == "DAMPING"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 4, said
    assert "watchdog: the main process is silent for" in said
    assert report()["watchdog"]["takeovers"] == 1
    assert report()["fault"] == "stalled"


def test_after_a_hang_the_operator_has_it_walk_again(rt, robot, start, report, tmp_path):
    message, log = rt.OperatorInput(), tmp_path / "run.mcap"
    message.size = 3

    def change(_):
        message.sequence += 1
        robot.end.send_operator(message, 9)

    def ask(request, phase):
        since, message.request = len(robot.commands), request
        return robot.wait_for(lambda c: c.phase == phase, since=since)

    robot.change = change
    process = start("--log", log, watchdog_s=0.2, operator="robot", settings={"limits.operator_s": 30})
    for request, phase in ((rt.Request.STAND, "STAND"), (rt.Request.POLICY, "POLICY")):
        ask(request, phase)
    message.request, since = rt.Request.NONE, len(robot.commands)
    process.send_signal(signal.SIGSTOP)
    assert robot.wait_for(lambda c: c.phase == "DAMPING", since=since).fault == "STALLED"
    process.send_signal(signal.SIGCONT)
    # A request to stand clears nothing; a request to damp does, once the policy has answered again.
    woke = robot.wait_for(lambda c: c.from_policy, since=len(robot.commands))
    assert (woke.phase, woke.fault) == ("DAMPING", "STALLED")
    message.request = rt.Request.STAND
    time.sleep(0.05)
    message.request = rt.Request.DAMP
    robot.wait_for(lambda c: c.fault == "OPERATOR_STOP", since=len(robot.commands))
    ask(rt.Request.STAND, "STAND")
    walks = ask(rt.Request.POLICY, "POLICY")
    time.sleep(0.2)
    after = [c for c in robot.commands if c.time_ns > walks.time_ns]
    assert {c.phase for c in after} == {"POLICY"}  # the watchdog is silent again
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "DAMPING: stalled: this process was silent for" in said
    assert report()["watchdog"]["takeovers"] == 1
    assert rt.replay_log(log)["difference"] == ""


def test_a_death_after_a_hang_is_damped_too(robot, walking):
    process = walking(watchdog_s=0.2)
    watchdog, since = child_of(process), len(robot.commands)
    process.send_signal(signal.SIGSTOP)
    robot.wait_for(lambda c: c.fault == "STALLED", since=since)
    process.kill()
    process.wait()
    assert robot.wait_for(lambda c: c.fault == "INTERNAL", since=since).phase == "DAMPING"
    os.kill(watchdog, signal.SIGKILL)


def test_ctrl_z_in_the_terminal_is_followed_by_damping(robot, walking):
    """It stops every process of the job; the watchdog is not to be stopped."""
    process = walking()
    since = len(robot.commands)
    os.killpg(process.pid, signal.SIGTSTP)
    first = robot.wait_for(lambda c: c.phase == "DAMPING", since=since)
    assert first.fault == "STALLED"
    os.killpg(process.pid, signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 4


@pytest.mark.parametrize(
    ("number", "line"), [(signal.SIGKILL, "watchdog died"), (signal.SIGSTOP, "watchdog is silent")]
)
def test_without_its_watchdog_it_damps(robot, walking, damped, tmp_path, number, line):
    log = tmp_path / "run.mcap"
    process = walking("--log", log, watchdog_s=10)
    since = len(robot.commands)
    os.kill(child_of(process), number)
    assert robot.wait_for(lambda c: c.phase == "DAMPING", since=since).fault == "INTERNAL"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 4, said
    assert line in said
    answer = damped(log)
    assert (answer.fault, answer.active) == ("internal", 0)
    print(f"the watchdog's death, found -> damping: {answer.after_ms:.2f} ms, {answer.ticks} writer ticks")


def test_a_run_that_ends_takes_its_watchdog_along(robot, walking):
    process = walking(watchdog_s=10)
    watchdog = child_of(process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert gone(watchdog)
    count = len(robot.commands)
    time.sleep(0.1)
    assert len(robot.commands) == count


@pytest.mark.long
def test_at_twenty_normal_ends_it_says_nothing(robot, start, report):
    """By the clock, by SIGTERM and by SIGINT in turn, while it walks and while it stands up."""
    for count in range(20):
        by_clock = count % 3 == 0
        seconds = ["--seconds", f"{0.02 + 0.01 * count:.2f}"] if by_clock else []
        since = len(robot.commands)
        process = start(*seconds)
        if not by_clock:
            phase = "POLICY" if count % 2 else "STAND"
            robot.wait_for(lambda c, phase=phase: c.phase == phase, since=since)
            process.send_signal(signal.SIGTERM if count % 3 == 1 else signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert "watchdog" not in said
        assert report()["watchdog"] | {"longest_silence_s": 0} == {
            "running": True,
            "takeovers": 0,
            "longest_silence_s": 0,
        }


def test_no_watchdog_means_no_second_process(robot, walking):
    process = walking("--no-watchdog", watchdog_s=10)
    assert Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split() == []
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)


def test_a_death_before_the_first_command_sends_nothing(rt, robot, start):
    robot.silent = True
    process = start()
    end = time.monotonic() + 20
    while robot.end.clients < 2 and time.monotonic() < end:
        time.sleep(0.01)
    watchdog = child_of(process)
    process.kill()
    process.wait()
    end = time.monotonic() + 5
    while not gone(watchdog) and time.monotonic() < end:
        time.sleep(0.01)
    assert gone(watchdog)
    assert robot.commands == []


def test_without_permission_it_says_so_and_runs(rt, robot, go2_bundle, binary_env):
    """The capabilities for priority and locked memory are taken away, and what is permitted without them is 0."""
    words = ["prlimit", "--rtprio=0", "--memlock=65536"]
    if os.geteuid() == 0:
        words += ["setpriv", "--bounding-set=-sys_nice,-ipc_lock,-sys_resource", "--inh-caps=-all"]
    words += [rt.binary(), "--bundle", go2_bundle, "--transport", robot.address, "--operator", "none"]
    words += ["--backend", "onnxruntime", "--seconds", "0.2", "--set", "limits.state_age_s=5"]
    ended = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=binary_env, timeout=60)
    assert ended.returncode in (0, 4), ended.stderr
    for needed in (
        "memory is not locked",
        "SCHED_FIFO 80 is not permitted",
        "SCHED_FIFO 70 is not permitted",
        "LimitRTPRIO=95",
    ):
        assert ended.stderr.count(needed) >= 1, ended.stderr
    assert robot.commands
    words.append("--require-realtime")
    refused = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=binary_env, timeout=60)
    assert refused.returncode == 2, refused.stderr
    assert "--require-realtime: " in refused.stderr.splitlines()[-1]
