"""The worst corner of a task's own ranges, found by Optuna's sampler of Parzen estimators, many candidates at once.

A candidate that was only unlucky in its few episodes is not the worst: the worst ones are tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from robot_rl.certify.axes import Axis
from robot_rl.certify.worlds import Plant


def search_corner(
    axes: Sequence[Axis],
    judge: Callable[[Sequence[Plant]], list[float]],
    *,
    tries: int,
    candidates: int,
    seed: int,
) -> list[dict[str, float]]:
    """Return values in the ranges, those with the least worth first.

    Args:
        axes: Properties with a range of the task's.
        judge: Returns the worth of each plant; less is worse.
        tries: Rounds.
        candidates: Plants of a round.
        seed: Of the sampler.
    """
    import optuna
    from optuna.distributions import BaseDistribution, FloatDistribution

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=2 * candidates, constant_liar=True)
    study = optuna.create_study(sampler=sampler, direction="minimize")
    space: dict[str, BaseDistribution] = {axis.name: FloatDistribution(0.0, 1.0) for axis in axes}
    for corner in _first_corners(axes, candidates):
        study.enqueue_trial(corner)
    for _ in range(tries):
        trials = [study.ask(space) for _ in range(candidates)]
        worths = judge([_plant(axes, trial.params) for trial in trials])
        for trial, worth in zip(trials, worths, strict=True):
            study.tell(trial, worth)
    ranked = sorted(study.trials, key=lambda trial: (trial.value, trial.number))
    return [_plant(axes, trial.params) for trial in ranked]


def _first_corners(axes: Sequence[Axis], count: int) -> list[dict[str, float]]:
    """Return corners to begin with: those with properties at both ends in turn, like the bits of a number."""
    most = min(count, 2 ** len(axes))
    step = max(1, 2 ** len(axes) // most)
    return [{axis.name: float(n * step >> k & 1) for k, axis in enumerate(axes)} for n in range(most)]


def _plant(axes: Sequence[Axis], shares: Plant) -> dict[str, float]:
    return {axis.name: axis.in_box(shares[axis.name]) for axis in axes}
