"""Motors, delay and mass, fitted together, and the part that each explains: the score when it is taken back.

Singly, one of these causes takes over the others'. Every joint has its own motor in the fit, since motors that differ
from each other otherwise show as a mass or as damping. What is reported is the part that all joints have in common, and
the joints that are far from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_rl.explain.rank import make_problem, residuals, score
from robot_rl.identify.fit import fit
from robot_rl.identify.parameters import BODY, DELAY, FIELDS
from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.start_values import alike_start
from robot_rl.identify.windows import Problem, Window

Array = NDArray[np.float64]
MOTORS = ("gain", "friction", "damping", "armature", DELAY)
ROUNDS = (2, 2)
"""Iterations of the fit with each joint's own motor."""
USUAL = 0.5
"""A difference is usual up to so many standard deviations of its prior."""
LEAST_EXPLAINS = 0.04
"""A difference that explains less of the score than this is not shown by the log."""
ODD_JOINT = 1.0
"""A joint is far from the others if it differs by more standard deviations from the common value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A parameter of the joint fit, for all joints together.

    Attributes:
        name: Of the parameter.
        nominal: Its value in the model, the mean over joints.
        value: Its fitted value, the mean over joints.
        size: The difference in standard deviations of its prior, the mean over joints.
        explains: By how much the score of other windows rises if this difference is taken back.
        unit: Its unit.
        joints: Joints that are far from the others, with their values.
    """

    name: str
    nominal: float
    value: float
    size: float
    explains: float
    unit: str
    joints: dict[str, float]

    @property
    def unusual(self) -> bool:
        """Return whether motors are seldom as far from a model as this."""
        return abs(self.size) > USUAL and self.explains > LEAST_EXPLAINS


@dataclass(frozen=True, kw_only=True, slots=True)
class Motors:
    """The joint fit.

    Attributes:
        theta: Its vector of parameters.
        before: The score of the model as it is.
        after: That of the fit.
        parts: Its parameters, the largest difference first.
    """

    theta: Array
    before: float
    after: float
    parts: tuple[Part, ...]


def fit_motors(model: PlantModel, windows: Sequence[Window]) -> Motors:
    """Fit motors, delay and mass to even windows; score on odd ones."""
    parameters = model.parameters
    names = (*MOTORS, "mass") if model.base == "free" else MOTORS
    train, test = (make_problem(model, windows[first::2], adapt=True) for first in (0, 1))
    theta = _fit(train, names)
    deviations = (theta - parameters.nominal) / parameters.prior
    common = {name: float(deviations[parameters.indices(name)].mean()) for name in names}
    cases = [parameters.nominal, theta]
    for name in names:
        at = parameters.indices(name)
        cases.append(theta.copy())
        cases[-1][at] = np.maximum(theta[at] - common[name] * parameters.prior[at], parameters.lower[at])
    every = np.ones(len(test.windows), bool)
    before, after, *without = (score(test, off, every) for off in residuals(test, cases))
    units, parts = {**FIELDS, **BODY, DELAY: "s"}, []
    for name, worse in zip(names, without, strict=True):
        at = parameters.indices(name)
        odd = np.flatnonzero(np.abs(deviations[at] - common[name]) > ODD_JOINT) if name in FIELDS else []
        parts.append(
            Part(
                name=name,
                nominal=float(parameters.nominal[at].mean()),
                value=float(theta[at].mean()),
                size=common[name],
                explains=worse - after,
                unit=units[name],
                joints={parameters.joints[n]: float(theta[at[n]]) for n in odd},
            )
        )
    ordered = sorted(parts, key=lambda part: -abs(part.size))
    return Motors(theta=theta, before=before, after=after, parts=tuple(ordered))


def _fit(train: Problem, names: tuple[str, ...]) -> Array:
    """Return the fitted vector: first with motors that are alike in all limbs, then with each joint's own."""
    robot = train.model.robot
    free = train.model.parameters.free(names, tuple(joint.name for joint in robot.joints if joint.passive))
    return fit(train, [alike_start(train, free)], free, rounds=ROUNDS).theta
