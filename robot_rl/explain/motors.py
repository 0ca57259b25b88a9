"""Motors, delay and mass, fitted together, and what each of them explains: the score when it is left out.

All joints change alike, in standard deviations of their priors. Singly, one of these causes takes over the others'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_rl.explain.rank import make_problem, odd, residuals, score
from robot_rl.identify.fit import fit
from robot_rl.identify.parameters import BODY, DELAY, FIELDS
from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.windows import Window

Array = NDArray[np.float64]
MOTORS = ("gain", "friction", "damping", "armature", DELAY)
DELAYS = (0.0, 0.005, 0.01, 0.02)
"""Start values [s]."""
ROUNDS, AGAIN = (3, 3), (2,)
"""Iterations of the fit, and of those that omit a parameter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A parameter of the joint fit.

    Attributes:
        name: Of the parameter.
        nominal: Its value in the model, the mean over joints.
        value: Its fitted value, the mean over joints.
        sizes: The difference in standard deviations of its prior.
        explains: By how much the score of other windows rises when it is left out.
        unit: Its unit.
    """

    name: str
    nominal: float
    value: float
    sizes: float
    explains: float
    unit: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Motors:
    """The joint fit: its vector of all joints, the scores before and after, and its parts, the most important first."""

    theta: Array
    before: float
    after: float
    parts: tuple[Part, ...]


def fit_motors(model: PlantModel, windows: Sequence[Window]) -> Motors:
    """Fit motors, delay and mass to even windows; score on odd ones."""
    parameters = model.parameters
    names = MOTORS if model.base == "fixed" else (*MOTORS, "mass")
    problem = make_problem(model, windows, tied=True, adapt=True)
    use = odd(problem)
    train = problem.part([w for w, held in zip(windows, use, strict=True) if not held])
    nominal = parameters.nominal
    starts = [nominal.copy() for _ in DELAYS]
    for start, delay in zip(starts, DELAYS, strict=True):
        start[parameters.delay] += delay
    free = np.array([parameters.indices(name)[0] for name in names])
    theta = fit(train, starts, free, rounds=ROUNDS).theta
    found = [theta]
    for index in free:
        start = theta.copy()
        start[index] = nominal[index]
        found.append(fit(train, [start], free[free != index], rounds=AGAIN).theta)
    before, after, *without = (score(problem, off, use) for off in residuals(problem, [nominal, *found]))
    units = {**FIELDS, **BODY, DELAY: "s"}
    parts = [
        Part(
            name=name,
            nominal=float(nominal[parameters.indices(name)].mean()),
            value=float(problem.expand(theta)[parameters.indices(name)].mean()),
            sizes=float((theta - nominal)[index] / parameters.prior[index]),
            explains=worse - after,
            unit=units[name],
        )
        for name, index, worse in zip(names, free, without, strict=True)
    ]
    ordered = sorted(parts, key=lambda part: -part.explains)
    return Motors(theta=problem.expand(theta), before=before, after=after, parts=tuple(ordered))
