"""A robot of the Go2's joints that obeys at once, served by a thread of this process, and the binary."""

import dataclasses
import json
import subprocess
import threading
import time

import numpy as np
import pytest

from robot_rl.sim2sim.link import free_ports

# No fault may come from this machine's noise: what a test is about it sets itself.
PATIENT = {
    "limits.state_age_s": 5,
    "limits.state_frozen_s": 5,
    "limits.sensor_frozen_s": 1e6,  # its IMU never moves
    "limits.missed_deadlines": 1000,
    "limits.action_rate": 1e6,
    "stand_s": 0.1,
    "blend_s": 0.1,
}


@dataclasses.dataclass
class Seen:
    """A command as the robot got it; time_ns is CLOCK_MONOTONIC."""

    time_ns: int
    sequence: int
    phase: str
    fault: str
    from_policy: bool
    state_sequence: int
    kp: float
    kd: float


class Robot:
    """Sends a state every `period_s` and takes commands; joints move to their targets at once."""

    def __init__(self, rt, address, contract, period_s=0.002):
        self.rt, self.period_s = rt, period_s
        names = [joint["name"] for joint in contract["joints"]]
        self.count = len(names)
        self.end = rt.RobotEnd(address, rt.RobotDescription(contract["robot"], names, 4))
        self.state = rt.LowState()
        self.state.joints, self.state.feet = self.count, 4
        self.state.quat_wxyz = [1, 0, 0, 0]
        self.state.acc = [0, 0, 9.81]
        self.state.joint_pos = [joint["default_pos"] for joint in contract["joints"]]
        self.commands, self.silent, self.change = [], False, None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()

    def serve(self):
        due = self.rt.now_ns()
        while not self.stopping.is_set():
            due += int(self.period_s * 1e9)
            while self.rt.now_ns() < due:
                self.end.wait_until(due)
                self.take()
            due = max(due, self.rt.now_ns() - 20_000_000)
            if not self.silent:
                self.state.robot_time_ns = self.rt.now_ns()
                if self.change:
                    self.change(self.state)
                self.end.send_state(self.state)

    def take(self):
        while (command := self.end.take_command()) is not None:
            active = command.phase.name in ("STAND", "POLICY")
            if active:
                self.state.joint_pos = np.array(command.q[: self.count])
            self.commands.append(
                Seen(
                    time_ns=self.rt.now_ns(),
                    sequence=command.sequence,
                    phase=command.phase.name,
                    fault=command.fault.name,
                    from_policy=command.from_policy,
                    state_sequence=command.state_sequence,
                    kp=float(np.abs(command.kp[: self.count]).max()),
                    kd=float(np.abs(command.kd[: self.count]).max()),
                )
            )

    def wait_for(self, test, timeout_s=20.0, since=0):
        """The first command from number `since` on that passes a test."""
        end = time.monotonic() + timeout_s
        at = since
        while time.monotonic() < end:
            while at < len(self.commands):
                if test(self.commands[at]):
                    return self.commands[at]
                at += 1
            time.sleep(0.002)
        raise AssertionError(
            f"no such command in {timeout_s} s; {len(self.commands)} came, the last {self.commands[-1:]}"
        )


@pytest.fixture
def free_address():
    """A UDP address of this machine that nobody uses; a function."""

    def give():
        return f"udp:127.0.0.1:{free_ports(1)[0]}"

    return give


@pytest.fixture
def robot(rt, go2_bundle, free_address):
    contract = json.loads((go2_bundle / "contract.json").read_text())
    address = free_address()
    with Robot(rt, address, contract) as robot:
        robot.address = address
        yield robot


@pytest.fixture
def start(rt, go2_bundle, binary_env, robot, tmp_path):
    """A function that starts the binary against the robot, with more options and settings; it is ended.

    The watchdog waits as long as it may, or as long as the binary has it wait by default (watchdog_s=None).
    """
    started = []

    def run(
        *words,
        bundle=go2_bundle,
        operator="none",
        settings=None,
        limit=None,
        stderr=subprocess.PIPE,
        watchdog_s=10,
    ):
        command = [rt.binary(), "--bundle", bundle, "--transport", robot.address, "--operator", operator]
        command += ["--backend", "onnxruntime", "--report", tmp_path / "report.json", *words]
        if watchdog_s is not None:
            command += ["--watchdog-timeout", watchdog_s]
        for name, value in (PATIENT | (settings or {})).items():
            command += ["--set", f"{name}={value}"]
        if limit:  # of bytes in a file
            command = ["prlimit", f"--fsize={limit}", *command]
        process = subprocess.Popen(  # in a process group of its own, as a shell starts a job
            [str(word) for word in command], stderr=stderr, text=True, env=binary_env, process_group=0
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def report(tmp_path):
    """A function that reads the report of the run that ended."""
    return lambda: json.loads((tmp_path / "report.json").read_text())
