"""Faults put into simulated walks of a Go2, and how often `robot-rl explain` names them first.

    python benchmarks/explain.py out=benchmarks/explain.json

The shipped go2_flat policy walks for 4 s, or until it falls, in a plant that is stepped at 1 ms and whose motors differ
in every joint, by a third of the differences in benchmarks/identify.py; the explanation simulates at 2 ms. "wiring":
swapped legs, an IMU upside down or turned by 90 degrees, swapped gyro axes, a conjugated quaternion, a frozen encoder.
"none": nothing else, so nothing may be named. "motors": a delay of 10 ms, kp x 0.8, 0.5 N m of friction, 3 kg on the
base.
A part that is not measured keeps its figures in the file.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import measure_parts, run_bench
from identify import hidden
from robot_rl_assets.registry import get_robot

from robot_rl.cli.options import option
from robot_rl.errors import UserError
from robot_rl.explain.causes import product
from robot_rl.explain.explain import ExplainCfg, explain
from robot_rl.explain.result import headline
from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.simulated_walk import Walk, walking_log

Row = dict[str, np.ndarray]
POLICY = Path(__file__).parents[1] / "tasks/robot_rl_tasks/go2_flat/policy"
SECONDS, SHARE = 4.0, 1.0 / 3.0
"""Length of a walk [s]; share of the differences of a hidden robot."""
SWAPPED = np.array([3, 4, 5, 0, 1, 2, 6, 7, 8, 9, 10, 11])
FROZEN_JOINT, FROZEN_ROW = 4, 500
ROOT = float(np.sqrt(0.5))


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of this script."""

    parts: str = option("wiring,none,motors", "which parts, of wiring, none, motors")
    seeds: int = option(5, "walks with each fault", least=1, most=100)
    out: str = option("", "the file; by default nothing is written")


def swapped_legs(row: Row) -> Row:
    """Read FL for FR and the other way round."""
    return row | {key: row[key][SWAPPED] for key in ("q", "dq")} | {"feet": row["feet"][[1, 0, 2, 3]]}


def mounted(turn: tuple[float, float, float, float]) -> Callable[[Row], Row]:
    """Turn the IMU in the base by a quaternion."""
    inverse = np.array(turn) * [1.0, -1.0, -1.0, -1.0]

    def vector(value: np.ndarray) -> np.ndarray:
        return product(product(inverse, np.concatenate([[0.0], value])), np.array(turn))[1:]

    def sense(row: Row) -> Row:
        quat = product(row["quat"], np.array(turn))
        return row | {"quat": quat, "gyro": vector(row["gyro"]), "accel": vector(row["accel"])}

    return sense


def frozen() -> Callable[[Row], Row]:
    """Freeze an encoder after a second."""
    rows: list[float] = []

    def sense(row: Row) -> Row:
        rows.append(float(row["q"][FROZEN_JOINT]))
        if len(rows) <= FROZEN_ROW:
            return row
        q, dq = row["q"].copy(), row["dq"].copy()
        q[FROZEN_JOINT], dq[FROZEN_JOINT] = rows[FROZEN_ROW], 0.0
        return row | {"q": q, "dq": dq}

    return sense


WIRING: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "swapped legs": (
        "joint order: FL and FR are swapped",
        lambda: {"sense": swapped_legs, "act": lambda target: target[SWAPPED]},
    ),
    "IMU upside down": ("IMU mounted turned by +180 degrees about x", lambda: {"sense": mounted((0.0, 1.0, 0.0, 0.0))}),
    "IMU turned": ("IMU mounted turned by +90 degrees about z", lambda: {"sense": mounted((ROOT, 0.0, 0.0, ROOT))}),
    "gyro axes": (
        "gyro axes x and y swapped",
        lambda: {"sense": lambda row: row | {"gyro": row["gyro"][[1, 0, 2]]}},
    ),
    "quaternion": (
        "quaternion conjugated",
        lambda: {"sense": lambda row: row | {"quat": row["quat"] * [1.0, -1.0, -1.0, -1.0]}},
    ),
    "frozen encoder": ("the encoder of FR_thigh_joint is frozen", lambda: {"sense": frozen()}),
}
"""Faults of the wiring: how the named cause begins, and what changes in the walk."""
MOTORS = {
    "delay": ("delay", lambda value: value + 0.01),
    "kp": ("motors", lambda value: value * 0.8),
    "friction": ("dry friction", lambda value: value + 0.5),
    "mass": ("mass", lambda value: value + 3.0),
}


def walk(seed: int, fault: str = "") -> dict[str, Any]:
    """Return the log of a walk with a fault."""
    plant = PlantModel(get_robot("unitree_go2"), 0.001, base="free")
    parameters, theta = plant.parameters, plant.parameters.nominal.copy()
    until = parameters.delay + 1  # The base is as in the model.
    theta[:until] += SHARE * (hidden(parameters, np.random.default_rng(1000 + seed)) - theta)[:until]
    if fault in MOTORS:
        at = parameters.indices("gain" if fault == "kp" else fault)
        theta[at] = MOTORS[fault][1](theta[at])
    changes = WIRING[fault][1]() if fault in WIRING else {}
    return walking_log(Walk(plant, theta, POLICY, seed), SECONDS, **changes)


def measure_part(faults: dict[str, str], seeds: int, *, with_motors: bool) -> dict[str, Any]:
    """Explain walks with each fault; count those whose cause is named first, or for which nothing is named."""
    rows: dict[str, Any] = {}
    for fault, expected in faults.items():
        firsts, seconds, lengths = [], [], []
        for seed in range(seeds):
            arrays, begin = walk(seed, fault), time.process_time()
            found = explain(
                (fault, f"{fault}{seed}", arrays), get_robot("unitree_go2"), ExplainCfg(with_motors=with_motors)
            )
            seconds.append(time.process_time() - begin)
            lengths.append(float(arrays["time"][-1]))
            named = found.named[0].cause if found.named else ""
            firsts.append(named.startswith(expected) and bool(named) == bool(expected))
            print(f"{fault or 'none'} {seed}: {headline(found)}, {seconds[-1]:.1f} s", flush=True)
        rows[fault or "none"] = {"first": sum(firsts), "of": seeds, "seconds": float(np.median(seconds))}
        rows[fault or "none"]["log_s"] = lengths
    total = {"first": sum(row["first"] for row in rows.values()), "of": sum(row["of"] for row in rows.values())}
    return total | {"faults": rows}


def measure(options: Options, _: dict[str, Any]) -> dict[str, Any]:
    """Measure the parts; the others keep their figures."""
    known: dict[str, Callable[[], dict[str, Any]]] = {
        "wiring": lambda: measure_part(
            {name: row[0] for name, row in WIRING.items()}, options.seeds, with_motors=False
        ),
        "none": lambda: measure_part({"": ""}, options.seeds, with_motors=True),
        "motors": lambda: measure_part({name: row[0] for name, row in MOTORS.items()}, options.seeds, with_motors=True),
    }
    return measure_parts("explain", options.parts, options.out, known)


def show(result: dict[str, Any]) -> None:
    """Print the figures."""
    print(json.dumps(result["parts"], indent=1))


if __name__ == "__main__":
    try:
        run_bench(sys.argv[1:], Options, measure, show)  # type: ignore[arg-type]
    except UserError as error:
        sys.exit(str(error))
