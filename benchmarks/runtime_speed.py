"""Measure the robot's binary at a steady pace: how fast it infers, answers a state, and damps when it is killed.

    python benchmarks/runtime_speed.py out=benchmarks/bench_runtime.json

A still robot sends 500 states a second and the policy runs at each of them. The time of an answer is from just before
the state is passed to the system until the command is: the robot's own wake-up is not included. The runtime must be
built (make runtime). ``--help`` lists the options.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import facts, run_bench, say
from robot_rl_deploy.bundle import read_bundle
from robot_rl_deploy.synthetic import write_synthetic_bundle
from words import run_script

from robot_rl.cli.options import MAX_COUNT, option
from robot_rl.errors import PeerError, UserError
from robot_rl.runs.policies import find_bundle
from robot_rl.sim2sim.binary import Binary, load_runtime, runtime_environment
from robot_rl.sim2sim.link import LOOPBACK, Link, free_ports

G1 = "unitree_g1"
PERIOD_S = 0.002
SETTLE_S = 1.0
WAIT_S = 60.0
GOALS = {
    "inference": {"p50": 60.0, "p99": 250.0},
    "udp": {"p50": 150.0, "p99": 600.0, "answered": 0.999},
    "dds": {"p50": 150.0, "answered": 0.99},
}
KILL_GOAL_MS = 20.0
SETTINGS = {"steps_per_state": 1.0, "stand_s": 0.0, "blend_s": 0.0}


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of the script."""

    policy: str = option("", "a bundle; by default a synthetic one, 98 -> 3 x 512 -> 29, over dds with a G1's joints")
    transports: str = option("udp,shm,dds", "what to measure; dds where the runtime was built with it")
    seconds: float = option(20.0, "how long to measure each [s]")
    kills: int = option(5, "how often the binary is killed", least=0, most=MAX_COUNT)
    out: str = option("", "file for the figures as JSON")


def bench_runtime(options: Options, dotted: dict[str, Any]) -> dict[str, Any]:
    """Run all measurements.

    Returns:
        "inference", "inference_cold" (the same without rehearsals), a block for each transport, "kill" and "machine";
        times in microseconds, those of "kill" in milliseconds.

    Raises:
        UserError: An option cannot be used, or the runtime is not installed.
        PeerError: The binary ended or does not answer.
    """
    names = [name for name in options.transports.split(",") if name]
    for name in names:
        if name not in ("udp", "shm", "dds"):
            raise UserError(f"transports={options.transports}: '{name}' must be one of udp, shm, dds")
    if not 0 < options.seconds <= 3600:
        raise UserError(f"seconds={options.seconds:g}: must be in (0, 3600]")
    if "dds" in names and not load_runtime().has_dds():
        names.remove("dds")
    result = facts("runtime") | {"goals": GOALS | {"kill_ms": KILL_GOAL_MS}}
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = Path(scratch)
        bundle = find_bundle(options.policy) if options.policy else write_synthetic(folder / "policy")
        say(f"robot-rl: inference for {options.seconds:g} s ...")
        result["inference"] = _inference(bundle, folder, options.seconds)
        result["inference_cold"] = _inference(bundle, folder, options.seconds, "--no-rehearsal")
        for name in sorted(names, key="dds".__eq__):
            say(f"robot-rl: {name} for {options.seconds:g} s ...")
            measured = for_dds(bundle, folder) if name == "dds" else bundle
            result[name] = _paced(measured, folder, name, options.seconds)
        if options.kills:
            say(f"robot-rl: killed {options.kills} times ...")
            result["kill"] = _killed(bundle, folder, options.kills)
    return result


def write_synthetic(folder: Path, **robot: Any) -> Path:
    """Write a synthetic bundle into a folder, and return that."""
    write_synthetic_bundle(folder, **robot)
    return folder


def for_dds(bundle: Path, folder: Path) -> Path:
    """Return the bundle where Unitree's messages know its robot, else a synthetic one with a G1's joints."""
    runtime = load_runtime()
    try:
        runtime.unitree_family(read_bundle(bundle).contract.robot)
    except runtime.UserError:
        joints = [name for name in runtime.unitree_motors(G1) if name]
        return write_synthetic(folder / "policy-g1", robot=G1, joints=joints)
    return bundle


def _inference(bundle: Path, folder: Path, seconds: float, *more: str) -> dict[str, Any]:
    """Return the report of `robot-rl-infer --bench`."""
    report = folder / "bench.json"
    words = [str(load_runtime().binary()), "--bench", "--bundle", str(bundle), "--seconds", f"{seconds:g}"]
    done = subprocess.run(
        [*words, *more, "--report", str(report)], capture_output=True, text=True, check=False, env=runtime_environment()
    )
    if done.returncode:
        raise PeerError(f"robot-rl-infer --bench ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(report.read_text())


class StillRobot:
    """A robot that stands still and sends a state every 2 ms."""

    def __init__(self, bundle: Path, folder: Path, transport: str, arguments: Sequence[str] = ()) -> None:
        contract = read_bundle(bundle).contract
        port = free_ports(1)[0]
        addresses = {"udp": f"udp:{LOOPBACK}:{port}", "shm": f"shm:bench-{port}"}
        feet = 0
        if transport == "dds":
            family = load_runtime().unitree_family(contract.robot)
            addresses["dds"] = f"dds:{family}?domain={1 + port % 200}&interface=lo"
            feet = 4 if contract.robot == "unitree_go2" else 0
        self._rng = np.random.default_rng(0)
        self._pos = np.array([joint.default_pos for joint in contract.joints], np.float32)
        self.link = Link(addresses[transport], contract.robot, contract.joint_names, feet=feet)
        low = self.link.low
        low.joints, low.feet, low.quat_wxyz = len(self._pos), feet, [1.0, 0.0, 0.0, 0.0]
        self.binary = Binary(
            bundle, folder, transport=addresses[transport], operator="none", settings=SETTINGS, arguments=arguments
        )
        self._due = time.monotonic()

    def tick(self) -> None:
        """Wait for the next period, take what was received, and send a state with small noise."""
        self._due = max(self._due + PERIOD_S, time.monotonic() - 0.05)
        time.sleep(max(0.0, self._due - time.monotonic()))
        self.link.take()
        self.link.low.joint_pos = self._pos + 1e-3 * self._rng.standard_normal(len(self._pos))
        self.link.send(self._due)

    def walk(self) -> None:
        """Tick until the policy has been running for a moment."""
        end = time.monotonic() + WAIT_S
        while self.link.phase != "POLICY":
            if not self.binary.alive or time.monotonic() > end:
                raise PeerError(f"robot-rl-infer does not run its policy: {self.binary.last_line()}")
            self.tick()
        for _ in range(round(SETTLE_S / PERIOD_S)):
            self.tick()

    def close(self) -> None:
        """Stop the binary and close the link."""
        self.binary.stop()
        self.link.close()


def _paced(bundle: Path, folder: Path, transport: str, seconds: float) -> dict[str, Any]:
    """Measure state to command over a transport."""
    with contextlib.closing(StillRobot(bundle, folder / transport, transport)) as robot:
        robot.walk()
        begin, first = len(robot.link.notes), int(robot.link.low.sequence)
        for _ in range(round(seconds / PERIOD_S)):
            robot.tick()
        last = int(robot.link.low.sequence)
        for _ in range(10):  # Answers still to be received; these states do not count.
            robot.tick()
        notes = robot.link.notes[begin:]
    report = robot.binary.report()
    block: dict[str, Any] = {"robot": report.get("robot", ""), "states": last - first, "seconds": seconds}
    answers = {n.state_sequence: n.answer_ns for n in notes if n.from_policy and first < n.state_sequence <= last}
    figures = _figures(np.array(list(answers.values())) / 1e3)
    # Over DDS the library is half of the robot's, too.
    block |= {"at_robot": figures} if transport == "dds" else figures
    block["answered"] = len(answers) / (last - first)
    binary = report.get("latencies", {}).get("state_to_command", {})
    block["in_binary"] = {key: binary[key] for key in ("p50", "p99", "p99.9", "max", "count") if key in binary}
    block["realtime"] = report.get("realtime", {})
    block["counters"] = report.get("transport_counters", {})
    return block


def _figures(values: np.ndarray) -> dict[str, float]:
    p50, p99, p999 = np.percentile(values, [50, 99, 99.9])
    figures = {"p50": p50, "p99": p99, "p99.9": p999, "max": values.max()}
    return {name: round(float(value), 1) for name, value in figures.items()}


def _killed(bundle: Path, folder: Path, times: int) -> dict[str, Any]:
    """Measure from `kill -9` of the main process to the watchdog's first damping command [ms]."""
    found = []
    for count in range(times):
        with contextlib.closing(StillRobot(bundle, folder / f"kill-{count}", "udp")) as robot:
            robot.walk()
            robot.link.take()
            begin, killed_ns = len(robot.link.notes), time.monotonic_ns()
            robot.binary.process.send_signal(signal.SIGKILL)
            end = time.monotonic() + 5.0
            while time.monotonic() < end:
                robot.tick()
                damping = [n.send_time_ns for n in robot.link.notes[begin:] if n.phase == "DAMPING"]
                if damping:
                    found.append((damping[0] - killed_ns) / 1e6)
                    break
    figures: dict[str, Any] = {"times": times, "damped": len(found)}
    if found:
        figures |= {"median_ms": round(float(np.median(found)), 2), "worst_ms": round(max(found), 2)}
    return figures


def show_runtime(result: Mapping[str, Any]) -> None:
    """Print each measured figure with its goal."""
    for name, goal in GOALS.items():
        block = result.get(name)
        if block is None:
            continue
        values = block.get("inference_us", block)
        values = values if "p50" in values else values.get("in_binary", {}) | {"answered": block.get("answered")}
        for key, bound in goal.items():
            value = values.get(key)
            if value is None:
                continue
            holds = value >= bound if key == "answered" else value <= bound
            shown = f"{100 * value:.3f} %" if key == "answered" else f"{value:.1f} us"
            wanted = f"at least {100 * bound:g} %" if key == "answered" else f"at most {bound:g} us"
            print(f"{name:<9} {key:<8} {shown:>12}   {wanted}: {'holds' if holds else 'MISSED'}")
    if "worst_ms" in result.get("kill", {}):
        worst = result["kill"]["worst_ms"]
        word = "holds" if worst <= KILL_GOAL_MS else "MISSED"
        print(f"{'kill -9':<9} {'worst':<8} {worst:>9.2f} ms   at most {KILL_GOAL_MS:g} ms: {word}")


def main(arguments: list[str]) -> None:
    """Measure, print the table, write the figures."""
    run_bench(arguments, Options, bench_runtime, show_runtime)


if __name__ == "__main__":
    run_script(main)
