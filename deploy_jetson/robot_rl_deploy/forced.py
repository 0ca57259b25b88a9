"""Robot states that every golden sequence ends with: standing, the ends of the command's range, a tilted body.

A recorded simulation contains only a few commands and a robot that walks upright. Parts of the contract that it does
not exercise, such as a clock's gate or the range of a command, could be changed without being noticed.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from robot_rl_deploy.contract import Contract
from robot_rl_deploy.observe import needed_signals
from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.terms import MEASURED, kind_of

STANDING_STEPS = 4
"""Steps with a command of zero: more than one, so that the clock of an open gate would advance."""
TILTS = ((0.5, 0.0), (-0.5, 0.0), (0.0, 0.5), (0.0, -0.5), (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0))
"""Roll and pitch of the tilted body [rad]."""
TOGETHER = 3
"""Components of a command that are at their ends at once; of more, all are at that share of them."""
DECLARED_ENDS = {
    "foot_contact": (1.0, 0.0),
    "foot_force": (50.0, 0.0),
    MEASURED: (0.3, -0.2),
}
"""Signal -> its value while the robot stands, and one that alternates with it while the body is tilted."""
LEAST_TILT = 0.45
"""Tilt that a sequence has to reach [rad]."""

Array = NDArray[np.float32]


def forced_states(contract: Contract) -> dict[str, Array]:
    """Return the raw robot states that a golden sequence ends with; the policy is reset before the first of them.

    Args:
        contract: Which signals are needed, limits and ranges.

    Returns:
        Signal -> values (steps, size): standing, each component of the command at either end, all of them, then
        tilted bodies with fast joints far from the default pose.
    """
    commands = _commands(contract)
    steps = len(commands) + len(TILTS)
    sizes = contract.signal_sizes()
    sign = np.where((np.arange(len(TILTS))[:, None] + np.arange(len(contract.joints))) % 2, 1.0, -1.0)
    default = np.array([joint.default_pos for joint in contract.joints])
    low, high = (
        np.array([default + step if (limit := getattr(joint, field)) is None else limit for joint, default in pairs])
        for field, step, pairs in (
            ("lower", -0.5, list(zip(contract.joints, default, strict=True))),
            ("upper", 0.5, list(zip(contract.joints, default, strict=True))),
        )
    )
    speed = np.array([min(15.0, 0.5 * (joint.velocity_limit or 10.0)) for joint in contract.joints])
    signals = {
        "joint_pos": _ends(steps, default, np.where(sign > 0, 0.1 * default + 0.9 * high, 0.1 * default + 0.9 * low)),
        "joint_vel": _ends(steps, 0.0 * default, sign * speed),
        "imu_gyro": _ends(steps, np.zeros(3), 3.0 * _signs(3)),
        "imu_quat_wxyz": _ends(steps, np.array([1.0, 0, 0, 0]), np.array([_quat(*tilt) for tilt in TILTS])),
        "imu_acc": _ends(steps, np.array([0, 0, 9.81]), 9.81 * _signs(3)),
        "command": np.concatenate([commands, commands[-2:][np.arange(len(TILTS)) % 2]]),
    }
    for name, size in sizes.items():
        if ends := DECLARED_ENDS.get(kind_of(name)):
            signals[name] = _ends(steps, np.full(size, ends[0]), np.where(_signs(size) > 0, *ends))
    return {name: signals[name].astype(np.float32) for name in needed_signals(contract)}


def check_coverage(contract: Contract, signals: Mapping[str, Array]) -> None:
    """Refuse a sequence without standing, an end of the command's range or a tilted body.

    Args:
        contract: Which signals are needed, and the command's range.
        signals: Signal -> values (steps, size).

    Raises:
        ContractError: The line names the missing parts.
    """
    again = "export the bundle again"
    if "command" in signals:
        command = signals["command"]
        if not (command == 0).all(axis=1).any():
            raise ContractError(f"golden.npz: no step has a command of zero; {again}")
        for index, component in enumerate(contract.command):
            column = command[:, index]
            if column.max() < np.float32(component.upper) or column.min() > np.float32(component.lower):
                ends = f"[{component.lower:g}, {component.upper:g}]"
                raise ContractError(
                    f"golden.npz: the command '{component.name}' does not reach both of {ends}; {again}"
                )
    if "imu_quat_wxyz" in signals:
        quat = signals["imu_quat_wxyz"].astype(np.float64)
        if (2 * (quat[:, 1] ** 2 + quat[:, 2] ** 2) - 1).max() < -math.cos(LEAST_TILT):
            raise ContractError(f"golden.npz: no step has a body that is tilted by {LEAST_TILT:g} rad; {again}")


def _commands(contract: Contract) -> NDArray[np.float64]:
    """Zero for standing, each component at each of its ends, and all of them together (steps, components).

    The frame of a motion has dozens of components. With all of them at their ends a network's outputs are hundreds, of
    which float32 rounds more away than an action may differ by.
    """
    lower, upper = (np.array([getattr(item, side) for item in contract.command]) for side in ("lower", "upper"))
    single, share = np.eye(len(upper)), min(1.0, TOGETHER / max(len(upper), 1))
    return np.concatenate(
        [
            np.zeros((STANDING_STEPS, len(upper))),
            *(single * upper, single * lower),
            *(share * upper[None], share * lower[None]),
        ]
    )


def _ends(steps: int, still: NDArray[np.float64], moving: NDArray[np.float64]) -> NDArray[np.float64]:
    """One value that stays, then those of the tilted body (steps, size)."""
    return np.concatenate([np.tile(still, (steps - len(moving), 1)), moving])


def _signs(size: int) -> NDArray[np.float64]:
    return np.where((np.arange(len(TILTS))[:, None] + np.arange(size)) % 2, 1.0, -1.0)


def _quat(roll: float, pitch: float) -> tuple[float, float, float, float]:
    return (math.cos((roll + pitch) / 2), math.sin(roll / 2), math.sin(pitch / 2), 0.0)
