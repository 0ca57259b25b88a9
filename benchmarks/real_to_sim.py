"""A policy that was trained for an identified robot, on that robot: against one for the model, and one for wide ranges.

    python benchmarks/real_to_sim.py out=benchmarks/real_to_sim.json
    python benchmarks/real_to_sim.py plants=1 seeds=1 iterations=40     a quick look

A hidden plant is a Go2 with other motors in every joint and a delay. It hangs, plays an excitation, and its noisy log
is identified; then policies are trained with the identified joints ("identified"), with the task's own ranges
("nominal") and with ranges that contain all hidden plants ("wide"), with the same seeds. All are evaluated on the
hidden plant: its motors and its delay, 100 worlds of 10 s. On two cores a training takes some minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import facts, run_bench
from robot_rl_assets.registry import get_robot
from robot_rl_assets.robot import Robot

from robot_rl.cli.options import option
from robot_rl.identify.excite import excite
from robot_rl.identify.identify import IdentifyCfg, identify
from robot_rl.identify.parameters import Parameters
from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.robot_log import make_log
from robot_rl.identify.simulated_log import digest, simulated_log
from robot_rl.sim2sim.adapt.plants import other_motors

TASK, TIMESTEP = "go2_flat", 0.02 / 3
DELAY_S = (0.004, 0.016)
"""Of the hidden plants [s]."""
WIDE = {"gain": (0.65, 1.2), "armature": (0.4, 3.5), "damping": (0.9, 1.5), "friction": (0.35, 4.3)}
"""Factors that contain the hidden plants."""
FIELDS = ("gain", "armature", "damping", "friction")
EPISODES, SECONDS = 100, 10


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of this script."""

    plants: int = option(2, "hidden plants", least=1, most=20)
    seeds: int = option(3, "trainings of each kind on each", least=1, most=20)
    iterations: int = option(400, "of a training", least=1, most=100_000)
    root: str = option("runs", "the directory of the runs; a training that is there is continued")
    out: str = option("", "the file; by default nothing is written")


def truth_of(parameters: Parameters, robot: Robot, delay: float) -> np.ndarray:
    """Return a robot's dynamics as a vector of parameters."""
    truth = parameters.nominal.copy()
    for name in FIELDS:
        for index, joint in zip(parameters.indices(name), robot.joints, strict=True):
            truth[index] = getattr(joint.dynamics, name)
    truth[parameters.delay] = delay
    return truth


def identified(robot: Robot, hidden: Robot, delay: float, seed: int, path: Path) -> dict[str, Any]:
    """Identify a hidden plant from its log, write the file, and return the errors on the held-out part."""
    plant = PlantModel(robot, 0.001)
    arrays = simulated_log(plant, truth_of(plant.parameters, hidden, delay), excite(robot, 20.0), seed)
    log = make_log("hidden", digest(arrays), arrays, robot)
    result = identify([log], None, robot, IdentifyCfg(task_timesteps=(TIMESTEP,))).result
    result.write(path)
    return result.errors["held"]


def dynamics_words(hidden: Robot, delay: float) -> list[str]:
    """Return the settings by which an evaluation has the plant's motors and delay."""
    words = [f"actions.actuator.delay_s=[{delay},{delay}]"]
    for name in FIELDS:
        words.append(f"randomize.{name}={[getattr(joint.dynamics, name) for joint in hidden.joints]}".replace(" ", ""))
        words.append(f"randomize.{name}_range=[1.0,1.0]" if name != "damping" else "randomize.damping_range=[1.0,1.0]")
    return words


def wide_words(robot: Robot) -> list[str]:
    """Return the settings of a training with wide ranges around the model."""
    model = PlantModel(robot, TIMESTEP).parameters
    words = [f"actions.actuator.delay_s=[0.0,{DELAY_S[1] + 0.004}]"]
    for name in FIELDS:
        words.append(f"randomize.{name}={model.nominal[model.indices(name)].tolist()}".replace(" ", ""))
        words.append(f"randomize.{name}_range=[{WIDE[name][0]},{WIDE[name][1]}]")
    return words


def run(*words: str) -> None:
    """Run a command of robot-rl."""
    print("robot-rl", *(word[:60] for word in words), flush=True)
    subprocess.run([sys.executable, "-m", "robot_rl.cli.main", *words], check=True, stdout=subprocess.DEVNULL)


def policy_errors(options: Options, name: str, words: list[str], plant: list[str], seed: int) -> dict[str, Any]:
    """Train, evaluate on the plant, and return the errors."""
    root = options.root
    folder, out = Path(root) / TASK / name, Path(root) / f"{name}.eval.json"
    if not (folder / "run.yaml").exists():
        settings = (f"seed={seed}", f"max_iterations={options.iterations}", *words)
        run("train", f"task={TASK}", f"run_id={name}", f"root={root}", *settings)
    run("eval", f"run={name}", f"root={root}", f"episodes={EPISODES}", f"seconds={SECONDS}", f"out={out}", *plant)
    found = json.loads(out.read_text())["torch"]
    return {key: found[key]["mean"] for key in ("lin_vel_error", "yaw_vel_error", "failure_rate")}


def measure(options: Options, _: dict[str, Any]) -> dict[str, Any]:
    """Measure all plants."""
    robot, rows = get_robot("unitree_go2"), []
    for number in range(options.plants):
        hidden = other_motors(robot, number)
        delay = float(np.random.default_rng(1000 + number).uniform(*DELAY_S))
        file = Path(options.root) / f"plant{number}.identified.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        held, plant = identified(robot, hidden, delay, number, file), dynamics_words(hidden, delay)
        kinds = {"nominal": [], "identified": [f"randomize.identified_from={file}"], "wide": wide_words(robot)}
        found = {
            kind: [
                policy_errors(options, f"p{number}_{kind}_{seed}", words, plant, seed)
                for seed in range(1, options.seeds + 1)
            ]
            for kind, words in kinds.items()
        }
        rows.append({"plant": number, "delay_s": delay, "held_out": held, "policies": found})
        print(json.dumps(rows[-1]["policies"], indent=1), flush=True)
    found = {"iterations": options.iterations, "plants": rows, "summary": summary(rows)}
    return facts("real_to_sim") | found


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return each kind's mean velocity error and failures over plants and seeds, and the ratios of the errors."""
    every = {kind: [one for row in rows for one in row["policies"][kind]] for kind in rows[0]["policies"]}
    mean = {
        kind: {key: float(np.mean([one[key] for one in found])) for key in found[0]} for kind, found in every.items()
    }
    ratio = {kind: mean["identified"]["lin_vel_error"] / mean[kind]["lin_vel_error"] for kind in ("nominal", "wide")}
    return {"mean": mean, "identified_over": ratio}


def show(result: Mapping[str, Any]) -> None:
    """Print the summary."""
    print(json.dumps(result["summary"], indent=2))


if __name__ == "__main__":
    run_bench(sys.argv[1:], Options, measure, show)
