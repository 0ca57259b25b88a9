"""A synthetic run to report on, and a browser to open the report in."""

import json
import math
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

RUN_YAML = """\
run_id: 20261120-221000-1-ab12
config:
  task: go2_flat
  seed: 1
  num_envs: 1024
  max_iterations: 300
  engine: mujoco
  learner: ppo
  ppo: {desired_kl: 0.01}
  sim: {timestep: 0.005, decimation: 4}
  rewards:
    track: {weight: 1.5}
versions: {python: 3.11.2, robot-rl: 0.1.0, torch: 2.13.0}
git: {commit: 0123456789abcdef, dirty: true}
metrics:
  lin_vel_error: {unit: m/s, meaning: how far off, over: mean, after_s: 1.0, better: smaller}
  yaw_vel_error: {unit: rad/s, meaning: '', over: mean, after_s: 1.0, better: smaller}
solved: [tracking/lin_vel_error, 0.25]
"""
METRIC = {"unit": "m/s", "meaning": "how far off", "over": "mean", "after_s": 1.0, "better": "smaller"}


def make_row(i: int, rng: np.random.Generator) -> dict[str, float]:
    """Metrics of iteration i of a training that goes well: the velocity error decays from 0.9 to 0.1 m/s."""
    done = 1 - math.exp(-i / 60)
    fall = math.exp(-i / 20)
    return {
        "iteration": i,
        "env_steps": i * 24576,
        "time_s": i * 1.25,
        "perf/steps_per_s": 19660.8,
        "perf/simulate_s": 0.6 + rng.uniform(0, 0.1),
        "perf/infer_s": 0.06,
        "perf/learn_s": 0.45,
        "perf/other_s": 0.05,
        "loss/value": 0.4 * math.exp(-i / 40) + 0.02,
        "loss/surrogate": -0.01,
        "loss/entropy": 17 - 9 * done,
        "loss/kl": 0.01,
        "policy/learning_rate": 1e-3,
        "policy/std": 0.5 - 0.25 * done,
        "episode/return": 20 * done + rng.normal(0, 0.2),
        "episode/length_s": 1 + 19 * done,
        "tracking/lin_vel_error": 0.1 + 0.8 * (1 - done),
        "tracking/yaw_vel_error": 0.2,
        "reward/track": 1.4 * done,
        "reward/action_rate": -0.1 * done,
        "termination/time_out": 1 - fall,
        "termination/base_contact": fall,
        "episodes": 200,
    }


def write_rows(path: Path, rows: int) -> None:
    """metrics.jsonl of `rows` iterations."""
    rng = np.random.default_rng(0)
    path.write_text("".join(json.dumps(make_row(i, rng)) + "\n" for i in range(1, rows + 1)))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run of 300 iterations, evaluated, without a video."""
    path = tmp_path / "go2_flat" / "20261120-221000-1-ab12"
    path.mkdir(parents=True)
    write_rows(path / "metrics.jsonl", 300)
    (path / "run.yaml").write_text(RUN_YAML)
    torch = {"lin_vel_error": {"mean": 0.094, "std": 0.02}, "failure_rate": {"mean": 0.01, "std": 0.1}}
    onnx = {"lin_vel_error": {"mean": 0.104, "std": 0.02}, "failure_rate": {"mean": 0.01, "std": 0.1}}
    rate = {"unit": "1", "meaning": "share of episodes", "better": "smaller"}
    metrics = {"lin_vel_error": METRIC, "failure_rate": rate}
    (path / "eval.json").write_text(json.dumps({"torch": torch, "onnx": onnx, "metrics": metrics, "episodes": 100}))
    return path


@pytest.fixture
def dump_dom(chromium: Path, tmp_path: Path) -> Callable[[Path], str]:
    """Opens a page in headless Chromium and returns its DOM after the scripts ran; REPORT_SHOTS keeps a screenshot."""

    def dump(page: Path) -> str:
        switches = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
        switches += " disable-component-update disable-sync hide-scrollbars window-size=1280,1600"
        options = [f"--{switch}" for switch in switches.split()]
        command = [str(chromium), *options, f"--user-data-dir={tmp_path / 'browser'}", page.as_uri()]
        if folder := os.environ.get("REPORT_SHOTS"):
            shot = Path(folder) / f"{page.parent.name}.png"
            subprocess.run([*command, f"--screenshot={shot}"], capture_output=True, timeout=120, check=True)
        done = subprocess.run([*command, "--dump-dom"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    return dump
