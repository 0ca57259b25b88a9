"""Levenberg-Marquardt on rollouts of windows, with priors, robust to outliers.

A log without torques shows the scale of all torques of a joint least: gain, damping with kd, friction and the whole
inertia times one factor move the last link alike, but for gravity. One direction of the fit is therefore this scale.
Its derivative is small; as a sum of those of single parameters it would consist of their errors, and the log would
seem to show a scale that it does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from robot_rl.identify.parameters import Parameters
from robot_rl.identify.windows import Columns, Directions, Problem, differentiate

Array = NDArray[np.float64]
HUBER = 3.0
"""Residuals beyond so many standard deviations count linearly."""
ROUNDS = (3, 3, 6)
"""Iterations between estimates of the standard deviations."""
ENOUGH = 1e-4
"""An iteration that lowers the cost by less than this share is the last of its round."""


@dataclass(kw_only=True, slots=True)
class Fit:
    """A fit, with all that its intervals need.

    Attributes:
        theta: The vector of parameters.
        free: Indices of those that were fitted, P.
        sigma: (K,) standard deviations of the measurements.
        columns: The derivatives of the last iteration.
        directions: Those of its derivatives.
        hessians: (W, P, P) of each window along the directions, without the prior.
        scores: (W, P) gradients of each window along them.
        residual: (M, K) in standard deviations.
        dependence: (P,) by how much windows' gradients vary more than independent residuals would make them; the prior
            counts as much more, since so many fewer residuals are independent.
        iterations: How many.
        converged: Whether the last one hardly lowered the cost.
        column_errors: (P,) how far the response to a tenth of a column's step is off, as a share.
    """

    theta: Array
    free: NDArray[np.int64]
    sigma: Array
    directions: Directions = field(
        default_factory=lambda: Directions(free=np.zeros(0, np.int64), basis=np.zeros((0, 0)))
    )
    columns: Sequence[Columns] = ()
    hessians: Array = field(default_factory=lambda: np.zeros(0))
    scores: Array = field(default_factory=lambda: np.zeros(0))
    residual: Array = field(default_factory=lambda: np.zeros(0))
    dependence: Array = field(default_factory=lambda: np.ones(1))
    iterations: int = 0
    converged: bool = False
    column_errors: Array = field(default_factory=lambda: np.zeros(0))


def fit(
    problem: Problem,
    starts: Sequence[Array],
    free: NDArray[np.int64],
    say: Callable[[str], None] = lambda _: None,
    rounds: Sequence[int] = (),
) -> Fit:
    """Fit the free parameters to the windows.

    Args:
        problem: The windows.
        starts: Start values; the best of them is used.
        free: Indices of the parameters to fit.
        say: Called with a line of progress after each iteration.
        rounds: Iterations between estimates of the standard deviations, if only the parameters are wanted: the
            derivatives at the end, for intervals, are omitted. (): `ROUNDS`, with derivatives.
    """
    state = Fit(theta=starts[0], free=free, sigma=problem.sigmas(0), dependence=np.ones(len(free)))
    predictions = problem.predict(starts)
    best = int(np.argmin([cost(problem, state, *pair) for pair in zip(starts, predictions, strict=True)]))
    state.theta, prediction = starts[best].copy(), predictions[best]
    for number, iterations in enumerate(rounds or ROUNDS):
        if number:
            state.sigma = _estimate_sigma(problem, prediction)
            state.dependence = _estimate_dependence(problem, state, prediction)
        prediction = _descend(problem, state, prediction, iterations, say)
    if rounds:
        return state
    if not state.converged:  # Else the last columns are as good: the last step was tiny.
        _differentiate(problem, state, prediction)
    state.column_errors = _check_columns(problem, state)
    state.residual = (problem.measured - prediction) / state.sigma
    state.hessians, state.scores = normal_equations(problem, state)
    return state


def _descend(problem: Problem, state: Fit, prediction: Array, iterations: int, say: Callable[[str], None]) -> Array:
    """Take some steps; return the prediction at the end."""
    parameters, free = problem.model.parameters, state.free
    damping, value = 1e-3, cost(problem, state, state.theta, prediction)
    for _ in range(iterations):
        state.residual = (problem.measured - prediction) / state.sigma
        _differentiate(problem, state, prediction)
        hessians, scores = normal_equations(problem, state)
        basis, precision = state.directions.basis, state.dependence * parameters.prior[free] ** -2.0
        hessian = hessians.sum(0) + basis.T @ (precision[:, None] * basis)
        gradient = scores.sum(0) - basis.T @ (precision * (state.theta - parameters.nominal)[free])
        for _ in range(5):
            theta = step(parameters, state, hessian + damping * np.diag(np.diag(hessian)), gradient)
            trial = problem.predict([theta])[0]
            new = cost(problem, state, theta, trial)
            if new < value:
                break
            damping *= 10.0
        state.iterations += 1
        state.converged = new > value * (1.0 - ENOUGH)
        if new >= value:
            break
        say(f"iteration {state.iterations}: cost {value:.5g} -> {new:.5g}")
        state.theta, prediction, value, damping = theta, trial, new, damping / 10.0
        if state.converged:
            break
    return prediction


def _differentiate(problem: Problem, state: Fit, prediction: Array) -> None:
    """Compute directions and derivatives at the parameters."""
    state.directions = Directions(free=state.free, basis=scale_basis(problem, state.theta, state.free))
    state.columns = differentiate(problem, state.theta, state.directions, prediction)


def step(parameters: Parameters, state: Fit, hessian: Array, gradient: Array) -> Array:
    """Return the parameters after a step along the directions, within the bounds."""
    change = state.directions.basis @ np.linalg.solve(hessian, gradient)
    theta = state.theta.copy()
    theta[state.free] = np.maximum(theta[state.free] + change, parameters.lower[state.free])
    return theta


def cost(problem: Problem, state: Fit, theta: Array, prediction: Array) -> float:
    """Return Huber's cost of the residuals, and the prior's."""
    parameters, free = problem.model.parameters, state.free
    off = np.abs((problem.measured - prediction) / state.sigma)
    pull = ((theta - parameters.nominal) / parameters.prior)[free]
    return float(
        np.where(off < HUBER, 0.5 * off * off, HUBER * (off - 0.5 * HUBER)).sum()
        + 0.5 * (state.dependence * pull) @ pull
    )


def normal_equations(problem: Problem, state: Fit) -> tuple[Array, Array]:
    """Return (W, P, P) and (W, P): J^T J and J^T r of each window along the directions, weighted.

    The sums are `numpy.einsum`'s own, without a library whose order of additions depends on its threads.
    """
    windows, count = len(problem.windows), len(state.free)
    hessians, scores = np.zeros((windows, count, count)), np.zeros((windows, count))
    weight = np.minimum(1.0, HUBER / np.maximum(np.abs(state.residual), 1e-9))
    ends = [*problem.first, len(weight)]
    for at, channels, values in state.columns:
        scaled = values / state.sigma[channels]
        for w in range(windows):
            rows = slice(ends[w], ends[w + 1])
            part = scaled[:, rows].reshape(len(at), -1)
            weighted = part * weight[rows][:, channels].ravel()
            hessians[w][np.ix_(at, at)] += np.einsum("pk,qk->pq", weighted, part)
            scores[w, at] += np.einsum("pk,k->p", weighted, state.residual[rows][:, channels].ravel())
    return hessians, scores


def scale_basis(problem: Problem, theta: Array, free: NDArray[np.int64]) -> Array:
    """Return the directions of a fit, (P, P): each parameter for itself, and for a gain the scale of its joint."""
    parameters, kd, inertia = problem.model.parameters, problem.mean_kd, problem.model.link_inertia
    basis, place = np.eye(len(free)), {int(index): n for n, index in enumerate(free)}
    gain, armature, damping, friction = (
        parameters.indices(name) for name in ("gain", "armature", "damping", "friction")
    )
    for n in range(len(parameters.joints)):
        if int(gain[n]) not in place:
            continue
        column = place[int(gain[n])]
        moved = ((armature[n], inertia[n]), (damping[n], kd[n]), (friction[n], 0.0))
        for index, more in moved:
            if int(index) in place:
                basis[place[int(index)], column] = (theta[index] + more) / theta[gain[n]]
    return basis


def _estimate_sigma(problem: Problem, prediction: Array) -> Array:
    """Return the standard deviation of each channel by its median."""
    off = np.abs(problem.measured - prediction)
    return np.maximum(1.4826 * np.median(off, axis=0), problem.sigmas(1))


def _estimate_dependence(problem: Problem, state: Fit, prediction: Array) -> Array:
    """Return for each parameter the windows' squared gradients over those of independent residuals, at least 1."""
    state.residual = (problem.measured - prediction) / state.sigma
    hessians, scores = normal_equations(problem, state)
    diagonal = np.maximum(np.einsum("wpp->p", hessians), 1e-12)
    return np.maximum(1.0, (scores**2).sum(0) / diagonal)


def _check_columns(problem: Problem, state: Fit) -> Array:
    """Return by how much columns differ from those of a tenth of the step, as shares, from the first windows.

    Rollouts that are rough at the scale of a step show here, and only here: a fit with wrong derivatives predicts well.
    """
    few = problem.part(problem.windows[:2])
    base = few.predict([state.theta])[0]
    usual, finer = (differentiate(few, state.theta, state.directions, base, share) for share in (1.0, 0.1))
    # A column that is small against the prior matters little, with any error.
    prior = state.dependence * problem.model.parameters.prior[state.free] ** -2.0
    change, size = np.zeros(len(state.free)), prior * len(few.windows) / len(problem.windows)
    for (at, channels, fine), (_, _, coarse) in zip(finer, usual, strict=True):
        sigma = state.sigma[channels]
        change[at] += (((fine - coarse) / sigma) ** 2).sum((1, 2))
        size[at] += ((coarse / sigma) ** 2).sum((1, 2))
    return np.sqrt(change / size)
