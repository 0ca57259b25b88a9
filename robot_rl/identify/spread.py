"""Intervals of fitted parameters, and which of them the logs show.

Intervals from the curvature of the cost are void once the model is off. These are from the spread of the fit when
blocks of the logs are omitted (a delete-one jackknife of blocks), are never narrower than the sandwich's with windows
as clusters, nor than those of a fit with the prior, and include the error of the integrator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from robot_rl.identify.fit import Fit, cost, normal_equations, step
from robot_rl.identify.windows import Problem, blocks_of

Array = NDArray[np.float64]
NORMAL = 1.959964
"""Of a normal distribution, 95 % are within so many standard deviations."""
SEEN = 0.5
"""A parameter is seen if its interval is below this share of its prior's."""

STEPS = 4
"""Steps of the fit at half the timestep."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """95 % intervals of the fitted parameters.

    Attributes:
        half: (P,) half their widths.
        seen: (P,) whether the logs show the parameter; else its value is the prior's.
        ratio: (P,) half the width that a parameter has while its joint's scale is held: gain's is 0.
        timestep: (P,) by how much half the timestep would change the values; 0 if the logs prefer this timestep.
    """

    half: Array
    seen: NDArray[np.bool_]
    ratio: Array
    timestep: Array


def spread(problem: Problem, fit: Fit, finer: Problem | None = None) -> Spread:
    """Return the intervals of a fit.

    Args:
        problem: The windows that were fitted.
        fit: The fit.
        finer: The same windows with half the timestep, None: the integrator's error is not included.
    """
    parameters, free, basis = problem.model.parameters, fit.free, fit.directions.basis
    precision = parameters.prior[free] ** -2.0
    hessian, root = fit.hessians.sum(0), np.sqrt(fit.dependence)
    bread = hessian + basis.T @ ((fit.dependence * precision)[:, None] * basis)
    weakened = hessian / np.outer(root, root) + basis.T @ (precision[:, None] * basis)
    blocks = blocks_of(problem.windows)
    count = int(blocks.max()) + 1
    covariances, widths = [np.linalg.inv(weakened), _sandwich(fit, bread)], [NORMAL, NORMAL]
    if count > 2:
        covariances.append(_jackknife(fit, bread, blocks))
        widths.append(_student(count - 1))
    shift = _timestep_shift(problem, fit, bread, finer) if finer is not None else np.zeros(len(free))
    half, ratio = np.zeros(len(free)), np.zeros(len(free))
    for width, covariance in zip(widths, covariances, strict=True):
        ratio = np.maximum(ratio, width * np.sqrt(np.diag(covariance)))
        half = np.maximum(half, width * np.sqrt(np.diag(basis @ covariance @ basis.T)))
    half = half + 2.0 * np.abs(shift)
    return Spread(
        half=half,
        seen=half < SEEN * NORMAL * parameters.prior[free],
        ratio=np.where(np.isin(free, parameters.indices("gain")), 0.0, ratio),
        timestep=shift,
    )


def _sandwich(fit: Fit, bread: Array) -> Array:
    """Return the covariance with windows as clusters."""
    windows = len(fit.scores)
    scores = fit.scores - fit.scores.mean(0)
    inverse = np.linalg.inv(bread)
    return inverse @ np.einsum("wp,wq->pq", scores, scores) @ inverse * windows / max(windows - 1, 1)


def _jackknife(fit: Fit, bread: Array, blocks: NDArray[np.int64]) -> Array:
    """Return the covariance by one step of the fit without each block."""
    moved = []
    for block in range(int(blocks.max()) + 1):
        inside = blocks == block
        left = bread - fit.hessians[inside].sum(0)
        moved.append(np.linalg.solve(left, -fit.scores[inside].sum(0)))
    off = np.array(moved) - np.mean(moved, axis=0)
    return (len(off) - 1) / len(off) * np.einsum("bp,bq->pq", off, off)


def _timestep_shift(problem: Problem, fit: Fit, bread: Array, finer: Problem) -> Array:
    """Return how the fit moves at half the timestep; 0 if the logs are predicted better at the whole one."""
    parameters, free = problem.model.parameters, fit.free
    base = problem.predict([fit.theta])[0]
    moved, best = fit.theta.copy(), np.inf
    found = moved
    for _ in range(STEPS):
        prediction = finer.predict([moved])[0]
        state = replace(fit, theta=moved)
        state.residual = (finer.measured - prediction) / fit.sigma
        value = cost(finer, state, moved, prediction)
        if value >= best:
            break
        best, found = value, moved
        pull = fit.dependence * (moved - parameters.nominal)[free] / parameters.prior[free] ** 2
        gradient = normal_equations(problem, state)[1].sum(0) - fit.directions.basis.T @ pull
        moved = step(parameters, state, bread, gradient)
    if best > cost(problem, fit, fit.theta, base) + 4.0 * np.median(fit.dependence):
        return np.zeros(len(free))
    return (found - fit.theta)[free]


def _student(freedom: int) -> float:
    """Return the bound that contains 95 % of Student's t (Abramowitz and Stegun 26.7.5)."""
    z, v = NORMAL, float(freedom)
    first, second = (z**3 + z) / 4.0, (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    return z + first / v + second / v**2 + (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / (384.0 * v**3)
