"""Replay of the golden sequence through observer and network: the last check before a policy may move a robot."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl_deploy.contract import Contract
from robot_rl_deploy.golden import ACTION_TOLERANCE, OBSERVATION_TOLERANCE, Golden
from robot_rl_deploy.observe import Observer
from robot_rl_deploy.session import Session
from robot_rl_deploy.strict import ContractError

Array = NDArray[np.float32]
BATCH = 7
"""Rows of the batch that is compared with its rows one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What a replay measured.

    Attributes:
        steps: Control steps replayed.
        resets: How often the policy was reset.
        observation_error: Largest error of an observation; relative if the value is above 1.
        action_error: Largest error of an action.
        joint_target_error: Largest error of a target, in its unit.
    """

    steps: int
    resets: int
    observation_error: float
    action_error: float
    joint_target_error: float


def replay(contract: Contract, session: Session, golden: Golden) -> ReplayReport:
    """Replay the sequence and compare.

    Observations may differ by `OBSERVATION_TOLERANCE`, relative to the value if that is above 1: float32
    itself resolves 1e-6 only below 16. Actions may differ by `action_tolerances`.

    Args:
        contract: The contract.
        session: The network.
        golden: The sequence.

    Returns:
        The errors, all within tolerance.

    Raises:
        ContractError: Something differs; the line names term or joint, component and step.
    """
    observed = _observe(contract, golden)
    wanted = golden.observation
    error = np.abs(observed - wanted) / np.maximum(np.abs(wanted), 1)
    _compare(observation_labels(contract), "observation", OBSERVATION_TOLERANCE, (error, observed, wanted))
    action, target = _act(contract, session, golden, observed)
    tolerances = action_tolerances(golden)
    joints = [f"'{spec.joint}'" for spec in contract.actions]
    errors = [float(error.max(initial=0))]
    stated = apply_actions(contract, golden.action, wanted)
    for what, most, found, right in (
        ("the contract's joint target", ACTION_TOLERANCE, stated, golden.joint_target),
        ("action", tolerances, action, golden.action),
        ("joint target", target_tolerances(contract, golden), target, golden.joint_target),
    ):
        difference = np.abs(found - right)
        _compare(joints, what, most, (difference, found, right))
        errors.append(float(difference.max()))
    _check_rows(contract, session, observed, tolerances)
    return ReplayReport(
        steps=len(golden.reset),
        resets=int(golden.reset.sum()),
        observation_error=errors[0],
        action_error=errors[2],
        joint_target_error=max(errors[1], errors[3]),
    )


def action_tolerances(golden: Golden) -> NDArray[np.float64]:
    """Return how far the actions of each step may be from the recorded ones (steps,), `ACTION_TOLERANCE` in fp32."""
    if golden.action_bound is None:
        return np.full(len(golden.reset), ACTION_TOLERANCE)
    return golden.action_bound.astype(np.float64)


def target_tolerances(contract: Contract, golden: Golden) -> NDArray[np.float64]:
    """Return how far the targets of each step may be from the recorded ones, with a precision by the largest scale."""
    if golden.action_bound is None:
        return action_tolerances(golden)
    scale = max(abs(spec.scale) for spec in contract.actions)
    return np.maximum(ACTION_TOLERANCE, action_tolerances(golden) * max(1.0, scale))


def apply_actions(contract: Contract, action: Array, observation: Array) -> Array:
    """Compute the control targets of the contract: offset + scale * clip(action), and the commanded value.

    Args:
        contract: The contract.
        action: Policy outputs (N, action_size).
        observation: What the policy saw (N, observation_size).

    Returns:
        Targets (N, action_size).
    """
    scale = np.array([spec.scale for spec in contract.actions], np.float32)
    offset = np.array([spec.offset for spec in contract.actions], np.float32)
    bound = np.array([np.inf if spec.clip is None else spec.clip for spec in contract.actions], np.float32)
    target = np.clip(action, -bound, bound) * scale + offset
    places = contract.commanded()
    return target + observation[:, places] if places else target


def observation_labels(contract: Contract) -> list[str]:
    """Return for each element of the observation vector the name of its term, its component and frame of history."""
    labels = []
    for term in contract.observations:
        for frame in range(term.history):
            when = f" {term.history - 1 - frame} steps ago" if term.history > 1 else ""
            labels += [f"'{term.name}'[{i}]{when}" for i in range(term.size)]
    return labels


def _observe(contract: Contract, golden: Golden) -> Array:
    observer = Observer(contract)
    observed = np.empty_like(golden.observation)
    for step, reset in enumerate(golden.reset):
        if reset:
            observer.reset()
        observed[step] = observer.observe({name: signal[step] for name, signal in golden.signals.items()})[0]
        observer.last_action[0] = golden.action[step]
    return observed


def _act(contract: Contract, session: Session, golden: Golden, observed: Array) -> tuple[Array, Array]:
    """Run the network over the sequence one step after the other, as a robot does."""
    state, rows = session.start_state(), []
    for step, reset in enumerate(golden.reset):
        if reset:
            state = session.start_state()
        *row, state = session.run(observed[step : step + 1], state)
        rows.append(row)
    actions, targets = zip(*rows, strict=True)
    return np.concatenate(actions), np.concatenate(targets)


def _check_rows(contract: Contract, session: Session, observed: Array, tolerances: NDArray[np.float64]) -> None:
    """Raise if a row of a batch differs from the network's result for that row by itself."""
    chosen = np.arange(0, len(observed), max(1, len(observed) // BATCH))[:BATCH]
    rows = observed[chosen]
    single = [session.run(row[None], session.start_state())[0] for row in rows]
    joints = [f"'{spec.joint}' in a batch" for spec in contract.actions]
    for order in (np.arange(len(rows)), np.arange(len(rows))[::-1]):
        together = session.run(rows[order], session.start_state(len(rows)))[0]
        wanted = np.concatenate(single)[order]
        _compare(joints, "action", tolerances[chosen[order]], (np.abs(together - wanted), together, wanted))


def _compare(labels: list[str], what: str, most: float | NDArray[np.float64], arrays: tuple[NDArray[Any], ...]) -> None:
    error, found, right = arrays
    tolerances = np.broadcast_to(most, len(error))
    wrong = np.argwhere(~(error <= tolerances[:, None]))  # a NaN is also wrong
    if len(wrong):
        step, column = wrong[0]
        tolerance = tolerances[step]
        raise ContractError(
            f"golden replay: {what} {labels[column]} is {found[step, column]:.9g} at step {step}, recorded was "
            f"{right[step, column]:.9g} (tolerance {tolerance:g}); this bundle must not move a robot, export it again"
        )
