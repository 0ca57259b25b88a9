"""Logs of the real binary: played back bit for bit, and readable where it was killed."""

import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest
from robot_rl_envs.actuation.latency import read_latency

from robot_rl.cli.main import main
from robot_rl.sim2sim.latency.measure import histogram, split, stage
from robot_rl.sim2sim.link import free_ports


class Robot:
    """A Go2 in the air at its default pose: the robot's end of UDP, and the binary as a process."""

    def __init__(self, rt, bundle, env, *words):
        self.rt, contract = rt, bundle.contract
        address = f"udp:127.0.0.1:{free_ports(1)[0]}"
        self.end = rt.RobotEnd(address, rt.RobotDescription(contract.robot, list(contract.joint_names), 4))
        fixed = ["--bundle", bundle.path, "--transport", address, "--operator", "none", "--set", "stand_s=0.2"]
        loose = ["--set", "limits.state_age_s=5", "--set", "limits.missed_deadlines=1000", "--no-watchdog"]
        command = [rt.binary(), *fixed, *loose, *words]
        self.process = subprocess.Popen([str(word) for word in command], env=env, stderr=subprocess.PIPE, text=True)
        self.state, self.random = rt.LowState(), np.random.default_rng(0)
        self.state.joints, self.state.feet, self.state.acc = len(contract.joints), 4, [0.0, 0.0, 9.81]
        self.pose = np.array([joint.default_pos for joint in contract.joints])
        self.phases = set()

    def serve(self, seconds):
        """States at 500 Hz until the binary ends, or for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            self.end.wait(0.002)
            while (command := self.end.take_command()) is not None:
                self.phases.add(command.phase)
            noise = 0.01 * self.random.standard_normal((2, len(self.pose)))
            self.state.robot_time_ns = self.rt.now_ns()
            self.state.joint_pos, self.state.joint_vel = self.pose + noise[0], noise[1]
            self.state.gyro = noise[0, :3]
            self.end.send_state(self.state)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def robot(rt, go2, binary_env):
    """robot(*options): a robot with robot-rl-infer at it."""
    made = []

    def start(*words):
        made.append(Robot(rt, go2, binary_env, *words))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_a_run_comes_again_bit_for_bit_and_its_latencies_go_into_training(rt, robot, tmp_path, capfd):
    log, report = tmp_path / "run.mcap", tmp_path / "report.json"
    served = robot("--log", log, "--report", report, "--seconds", 2)
    served.serve(40)
    assert served.process.returncode == 0
    assert served.phases >= {rt.Phase.DAMPING, rt.Phase.STAND, rt.Phase.POLICY}
    result = rt.replay_log(log)
    assert result["difference"] == ""
    assert result["same_backend"] is True
    assert result["cut"] is False
    assert result["steps"] > 20
    assert result["commands"] > 300
    written = json.loads(report.read_text())["log"]
    assert (written["events"], written["lost"], written["failed"]) == (result["events"], 0, "")
    for source in (log, report):
        assert main(["latency", str(source), f"out={tmp_path / 'latency.png'}"]) == 0
        assert "state in -> command out" in capfd.readouterr().out
        assert (tmp_path / "latency.png").stat().st_size > 10_000
        delay, jitter = read_latency(str(tmp_path / "latency.json"))
        assert 0 < delay[0] <= delay[-1] < 1
        assert jitter[0] <= jitter[16] <= jitter[-1]


def test_a_log_of_a_killed_run_is_played_back_up_to_its_last_second(rt, robot, tmp_path):
    log = tmp_path / "killed.mcap"
    served = robot("--log", log)
    served.serve(4)
    os.kill(served.process.pid, signal.SIGKILL)
    served.process.wait()
    result = rt.replay_log(log)
    assert result["cut"] is True
    assert result["difference"] == ""
    assert result["states"] > 100


def test_the_delay_is_the_median_of_each_second_and_jitter_the_rest():
    seconds = np.array([5.0, 5.5, 5.9, 8.1, 8.2, 8.3])
    delay, jitter = split(seconds, np.array([1.0, 2.0, 4.0, 10.0, 30.0, 20.0]))
    assert delay.tolist() == [2.0, 20.0]
    assert jitter.tolist() == [-1.0, 0.0, 2.0, -10.0, 10.0, 0.0]


def test_a_stage_has_the_percentiles_of_its_values():
    made = stage(np.arange(1, 1001) * 1000)
    assert (made["unit"], made["count"], made["min"], made["max"]) == ("us", 1000, 1.0, 1000.0)
    assert made["p50"] == pytest.approx(500.5)
    assert made["p99"] == pytest.approx(990.01)
    assert sum(count for _, _, count in made["buckets"]) == 1000
    assert all(low < high for low, high, _ in made["buckets"])


def test_one_value_makes_a_histogram_of_one_bin():
    made = histogram(np.array([0.25, 0.25]))
    assert made == {"edges": [0.25, 0.250001], "counts": [2]}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "source: is missing"),
        (["{}/none.json"], "no such file"),
        (["{}/noise.json"], "is neither a log *.mcap nor JSON"),
        (["{}/empty.json"], "has no 'latencies'"),
        (["{}/empty.json", "out=x.gif"], "must end in .png or .json"),
        (["{}/empty.json", "out={}/empty.png"], "is the source"),
        (["{}/empty.json", "extra_s=2"], "extra_s=2: must be in [0, 0.5] s"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_line(words, line, tmp_path, capfd):
    (tmp_path / "noise.json").write_bytes(b"\xff")
    (tmp_path / "empty.json").write_text("{}")
    assert main(["latency", *(word.replace("{}", str(tmp_path)) for word in words)]) == 2
    error = capfd.readouterr().err
    assert line in error
    assert error.count("\n") == 1
