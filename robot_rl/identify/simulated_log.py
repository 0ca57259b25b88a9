"""Logs of simulated robots with known parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.robot_log import make_log
from robot_rl.identify.windows import Problem, Window

NOISE = (2e-4, 0.05)
"""Standard deviations of measured positions [rad] and speeds [rad/s]."""


def simulated_log(
    plant: PlantModel,
    theta: NDArray[np.float64],
    commands: Mapping[str, Any],
    seed: int,
    noise: tuple[float, float] = NOISE,
) -> dict[str, Any]:
    """Return the arrays of an .npz that a robot with parameters `theta` would log.

    Args:
        plant: Its model, with the timestep of the simulation.
        theta: Its parameters.
        commands: time, target, kp, kd and joints, as of `robot_rl.identify.excite.excite`; it starts at rest there.
        seed: Of the noise.
        noise: Standard deviations of positions [rad] and speeds [rad/s].
    """
    offset = theta[plant.parameters.indices("offset")]
    arrays = {**commands, "q": commands["target"] + offset, "dq": np.zeros_like(commands["target"])}
    log = make_log("simulated", "", arrays, plant.robot)
    rows = np.arange(1, len(log.time))
    found = Problem(plant, [Window(log, 0, rows)]).predict([theta])[0]
    half, rng = found.shape[1] // 2, np.random.default_rng(seed)
    for key, values, width in (("q", found[:, :half], noise[0]), ("dq", found[:, half:], noise[1])):
        measured = np.concatenate([arrays[key][:1], values])
        arrays[key] = measured + width * rng.standard_normal(measured.shape)
    return arrays


def digest(arrays: Mapping[str, Any]) -> str:
    """Return a sha256 of arrays that are not in a file."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(arrays[key]).tobytes() for key in sorted(arrays))).hexdigest()
