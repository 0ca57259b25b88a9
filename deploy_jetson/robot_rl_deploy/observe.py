"""The observation vector from raw robot signals, by name, with NumPy only.

Everything is float32 and in the contract's order, operation by operation, so that another implementation can agree to
the last bit, except for sine and cosine.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from robot_rl_deploy.contract import Contract, resolve_joints
from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.terms import JOINT_SIGNALS, ObservationSpec

Array = NDArray[np.float32]


def needed_signals(contract: Contract) -> tuple[str, ...]:
    """Names of the signals that a robot has to deliver, in the order in which the terms first read them."""
    names = [term.signal for term in contract.observations if term.signal not in ("clock", "last_action")]
    if any(term.params.get("gate") == "command" for term in contract.observations):
        names.append("command")
    return tuple(dict.fromkeys(names))


class Observer:
    """Builds the observations of several robots of one kind, with clock and history of each.

    Attributes:
        last_action: Action in the next observation (num_envs, action_size); write it here if the robot gets another
            one.
    """

    def __init__(self, contract: Contract, num_envs: int = 1, joint_names: Sequence[str] | None = None):
        """Prepare buffers.

        Args:
            contract: What to build.
            num_envs: Number of robots.
            joint_names: Order of the joints in the signals; that of the contract if None.

        Raises:
            ContractError: The joints do not fit.
        """
        self.contract, self.num_envs = contract, num_envs
        order = resolve_joints(contract, contract.joint_names if joint_names is None else joint_names)
        self._order = np.array(order)
        self._needed = needed_signals(contract)
        self._sizes = contract.signal_sizes()
        self._default_pos = np.array([joint.default_pos for joint in contract.joints], np.float32)
        position = {name: i for i, name in enumerate(contract.joint_names)}
        self._subset = [
            np.array([position[name] for name in term.params.get("joints", contract.joint_names)])
            for term in contract.observations
        ]
        self._history = [np.zeros((num_envs, term.history, term.size), np.float32) for term in contract.observations]
        self._fresh = np.ones(num_envs, bool)
        self._steps = np.zeros(num_envs, np.int64)
        self.last_action = np.zeros((num_envs, len(contract.actions)), np.float32)

    def reset(self, mask: NDArray[np.bool_] | None = None) -> None:
        """Reset: clock at 0, last action 0, history filled with the next value.

        Args:
            mask: Robots to reset (num_envs,); None for all.
        """
        which = np.ones(self.num_envs, bool) if mask is None else np.asarray(mask, bool)
        self._fresh |= which
        self._steps[which] = 0
        self.last_action[which] = 0

    def observe(self, robot_state: Mapping[str, NDArray[np.floating]]) -> Array:
        """Build the next observation and advance clock and history by one control step.

        Args:
            robot_state: Signals by name (num_envs, size); the first axis may be omitted for one robot. Signals
                that are not needed are ignored.

        Returns:
            Observations (num_envs, observation_size).

        Raises:
            ContractError: A signal is missing or of another shape.
        """
        signals = {name: self.signal(name, robot_state) for name in self._needed}
        signals["last_action"] = self.last_action
        blocks = []
        for index, term in enumerate(self.contract.observations):
            value = self._value(term, index, signals)
            if term.clip is not None:
                value = np.clip(value, np.float32(term.clip[0]), np.float32(term.clip[1]))
            history = self._history[index]
            history[:, :-1] = history[:, 1:]
            history[:, -1] = value * np.float32(term.scale)
            history[self._fresh] = history[self._fresh, -1:]
            blocks.append(history.reshape(self.num_envs, -1))
        self._fresh[:] = False
        self._steps += 1
        return np.concatenate(blocks, axis=1)

    def signal(self, name: str, robot_state: Mapping[str, NDArray[np.floating]]) -> Array:
        """Return a signal (num_envs, size) as float32.

        Raises:
            ContractError: It is missing or of another shape.
        """
        if name not in robot_state:
            raise ContractError(f"the robot state has no signal '{name}'; the contract needs {', '.join(self._needed)}")
        value = np.asarray(robot_state[name], np.float32)
        if value.ndim == 1 and self.num_envs == 1:
            value = value[None]
        shape = (self.num_envs, self._sizes[name])
        if value.shape != shape:
            raise ContractError(f"the robot state's '{name}' has shape {value.shape}; the contract needs {shape}")
        return value[:, self._order] if name in JOINT_SIGNALS else value

    def _value(self, term: ObservationSpec, index: int, signals: Mapping[str, Array]) -> Array:
        if term.transform == "sin_cos_phase":
            return self._phase(term, signals)
        value = signals[term.signal]
        if term.transform == "projected_gravity":
            return projected_gravity(value)
        if term.transform == "minus_default":
            value = value - self._default_pos
        if term.transform == "minus_offset":
            value = value - np.float32(term.params["offset"])
        if term.signal in JOINT_SIGNALS:
            value = value[:, self._subset[index]]
        if term.transform == "sin_cos":
            return np.concatenate([np.sin(value), np.cos(value)], axis=1)
        return value

    def _phase(self, term: ObservationSpec, signals: Mapping[str, Array]) -> Array:
        """Sine and cosine of the clock (num_envs, 2). It counts steps, so that no rounding error adds up."""
        turns = self._steps * (term.params["frequency_hz"] * self.contract.control_period_s)
        angle = 2 * np.pi * (turns - np.floor(turns))
        value = np.stack([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)
        if term.params["gate"] == "command":
            norm = np.sqrt(np.sum(signals["command"] ** 2, axis=1))
            value[norm < np.float32(term.params["gate_norm"])] = 0
        return value


def projected_gravity(quat_wxyz: Array) -> Array:
    """Direction of gravity in the base frame: R^T (0, 0, -1), with R from base to world.

    Args:
        quat_wxyz: Unit quaternions of the base in the world (N, 4).

    Returns:
        Unit vectors (N, 3); (0, 0, -1) upright.
    """
    w, x, y, z = quat_wxyz.T
    two = np.float32(2)
    return np.stack([two * (w * y - x * z), -two * (y * z + w * x), two * (x * x + y * y) - np.float32(1)], axis=1)
