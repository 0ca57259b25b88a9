"""Test of a network with extreme observations: actions stay within the contract's clip, and targets follow from them.

A golden sequence contains a robot's actions. A network could clip its actions at another bound than the contract, or
compute other targets, without a recorded step that shows it.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from robot_rl_deploy.contract import Contract, JointSpec
from robot_rl_deploy.replay import apply_actions
from robot_rl_deploy.session import Session
from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.terms import JOINT_SIGNALS, MEASURED, ObservationSpec, kind_of

AMPLITUDES = (1.0, 1e2, 1e4)
"""Multiples of the range of a signal on a robot."""
PATTERNS = 32
"""Patterns of signs for each of them."""
REACH = {
    "imu_gyro": 35.0,
    "imu_acc": 160.0,
    "foot_force": 1e3,
    MEASURED: 10.0,
    "last_action": 100.0,
}
"""Largest magnitudes of signals; 1 for the others."""
JOINT_SPEED, TURN = 30.0, 3.141592653589793
"""Speed [rad/s or m/s] and distance from the default pose [rad or m] of a joint without a limit."""
TOLERANCE = 1e-4

Array = NDArray[np.float32]


def probe(contract: Contract, session: Session) -> None:
    """Run the network on extreme observations.

    Args:
        contract: The contract.
        session: The network.

    Raises:
        ContractError: An output is not finite, an action is beyond its clip, or a target does not follow from it.
    """
    clip = np.array([np.inf if spec.clip is None else spec.clip for spec in contract.actions], np.float32)
    for index, (observation, state) in enumerate(extreme_inputs(contract)):
        action, target, after = session.run(observation, state)
        if not np.isfinite(after).all():
            raise _refusal("the next state is not finite", index)
        stated = apply_actions(contract, action, observation)
        for name, a, t, bound, right in zip(
            (spec.joint for spec in contract.actions), action[0], target[0], clip, stated[0], strict=True
        ):
            if not (np.isfinite(a) and np.isfinite(t)):
                raise _refusal(f"the action of '{name}' is {a:.9g}, its joint target {t:.9g}, not finite", index)
            if abs(a) > bound:
                raise _refusal(f"the action of '{name}' is {a:.9g}, beyond the contract's clip {bound:.9g}", index)
            if abs(float(t) - float(right)) > TOLERANCE * max(1.0, abs(float(right))):
                raise _refusal(f"the joint target of '{name}' is {t:.9g}, the contract's {right:.9g}", index)


def _refusal(what: str, index: int) -> ContractError:
    return ContractError(
        f"policy.onnx: {what}, at extreme observation {index}; this bundle must not move a robot, export it again"
    )


def extreme_inputs(contract: Contract) -> Iterator[tuple[Array, Array]]:
    """Generate observations at and far beyond the range of a robot, within the clips of the contract.

    Args:
        contract: Terms, limits, ranges.

    Yields:
        Observation (1, observation_size): zero, each component of the command at either end, then all elements with
        many patterns of signs. State (1, state_size): zero, and with some patterns 1 or -1.
    """
    elements = [_frame(term, contract) for term in contract.observations for _ in range(term.history)]
    reach = np.concatenate([frame for frame, _ in elements])
    low, high, scale = (
        np.concatenate([np.full(len(frame), value) for frame, term in elements for value in (of(term),)])
        for of in (
            lambda term: -np.inf if term.clip is None else term.clip[0],
            lambda term: np.inf if term.clip is None else term.clip[1],
            lambda term: term.scale,
        )
    )
    component = np.concatenate(
        [np.arange(len(frame)) if term.signal == "command" else np.full(len(frame), -1) for frame, term in elements]
    )
    size = contract.layout.state_size

    def observed(values: NDArray[np.float64], state: NDArray[np.float64]) -> tuple[Array, Array]:
        row = np.clip(values, low, high) * scale
        return row[None].astype(np.float32), state[None].astype(np.float32)

    yield observed(np.zeros_like(reach), np.zeros(size))
    for index, spec in enumerate(contract.command):
        for end in (spec.lower, spec.upper):
            yield observed(np.where(component == index, end, 0.0), np.zeros(size))
    for amplitude in AMPLITUDES:
        for pattern in range(PATTERNS):
            yield observed(amplitude * reach * _signs(pattern, len(reach)), (pattern % 2) * _signs(pattern, size))


def _signs(pattern: int, size: int) -> NDArray[np.float64]:
    """Signs of a Walsh pattern: of the lowest four bits of an element's place, or of the four above."""
    place = np.arange(16)
    parity = np.array([bin((pattern & 15) & int(value)).count("1") % 2 for value in place], np.float64)
    return (1.0 - 2.0 * parity)[(np.arange(size) >> (4 if pattern >= 16 else 0)) & 15]


def _frame(term: ObservationSpec, contract: Contract) -> tuple[NDArray[np.float64], ObservationSpec]:
    """Largest magnitudes of one frame of a term, before its clip and scale (size,)."""
    if term.signal == "command":
        return np.array([max(abs(spec.lower), abs(spec.upper)) for spec in contract.command]), term
    if term.signal == "last_action":
        clips = [REACH["last_action"] if spec.clip is None else spec.clip for spec in contract.actions]
        return np.array(clips), term
    if term.signal in JOINT_SIGNALS and term.transform != "sin_cos":
        joints = {joint.name: joint for joint in contract.joints}
        names = term.params.get("joints", contract.joint_names)
        return np.array([_joint_reach(term, joints[name]) for name in names]), term
    return np.full(term.size, REACH.get(kind_of(term.signal), 1.0)), term


def _joint_reach(term: ObservationSpec, joint: JointSpec) -> float:
    if term.signal == "joint_vel":
        return JOINT_SPEED if joint.velocity_limit is None else joint.velocity_limit
    middle = joint.default_pos if term.transform == "minus_default" else 0.0
    ends = [
        joint.default_pos + step if limit is None else limit
        for limit, step in ((joint.lower, -TURN), (joint.upper, TURN))
    ]
    return max(abs(end - middle) for end in ends)
