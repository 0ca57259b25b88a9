"""A policy run from its bundle: raw robot state in, control targets out. NumPy and ONNX Runtime, no torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robot_rl_deploy.bundle import Bundle, read_bundle
from robot_rl_deploy.contract import Contract
from robot_rl_deploy.observe import Observer
from robot_rl_deploy.probe import probe
from robot_rl_deploy.replay import ReplayReport, replay
from robot_rl_deploy.session import Session
from robot_rl_deploy.strict import ContractError

Array = NDArray[np.float32]


class BundlePolicy:
    """The policy of a bundle for several robots of one kind.

    Attributes:
        contract: The contract.
        digest: Identifies the bundle.
        report: Result of the golden replay at the start.
        action_joints: Names of the joints that the targets are for, in their order.
    """

    contract: Contract
    digest: str
    report: ReplayReport
    action_joints: tuple[str, ...]

    def __init__(
        self,
        directory: Path,
        num_envs: int = 1,
        *,
        joint_names: Sequence[str] | None = None,
        signed_by: Path | None = None,
    ):
        """Load the bundle and replay its golden sequence.

        Args:
            directory: Where the bundle is.
            num_envs: Number of robots.
            joint_names: Order of the robot's joint signals; that of the contract if None.
            signed_by: File of an Ed25519 public key; a bundle without that key's signature is refused.

        Raises:
            FileNotFoundError: The directory does not exist.
            ContractError: The bundle is damaged, the joints do not fit, or the replay differs.
        """
        bundle = read_bundle(directory, signed_by=signed_by)
        self._session, self.report = open_session(bundle)
        self.contract, self.digest = bundle.contract, bundle.digest
        self.action_joints = tuple(action.joint for action in bundle.contract.actions)
        self._observer = Observer(bundle.contract, num_envs, joint_names)
        self._state = self._session.start_state(num_envs)
        names = self.contract.joint_names if joint_names is None else tuple(joint_names)
        self._driven = [names.index(name) for name in self.action_joints]

    @property
    def last_action(self) -> Array:
        """Action in the next observation (num_envs, action_size); writable."""
        return self._observer.last_action

    @property
    def network_state(self) -> Array:
        """State of the network before the next step (num_envs, state_size)."""
        return self._state

    def reset(self, mask: NDArray[np.bool_] | None = None) -> None:
        """Reset: clock at 0, last action 0, history filled with the next value, state of the network 0.

        Args:
            mask: Robots to reset (num_envs,); None for all.
        """
        self._observer.reset(mask)
        self._state = np.where(True if mask is None else np.asarray(mask, bool)[:, None], np.float32(0), self._state)

    def act(self, robot_state: Mapping[str, NDArray[np.floating]]) -> tuple[Array, Array, Array]:
        """Run one control step.

        Args:
            robot_state: Raw signals by name (num_envs, size), without noise or scale: "joint_pos" and "joint_vel" in
                the robot's order of joints [rad or m, and per s], "imu_gyro" [rad/s], "imu_quat_wxyz"
                (base in world), "imu_acc" [m/s^2], "foot_contact" (1 or 0), "foot_force" [N],
                "command", "measured/<name>" [as its term in the contract says]; those of the IMU in the frame of the
                contract, "imu" being the unit's own.

        Returns:
            Control targets (num_envs, action_size) for `action_joints`, actions (num_envs, action_size) and
            observations (num_envs, observation_size).

        Raises:
            ContractError: A signal is missing or of another shape.
        """
        observation = self._observer.observe(robot_state)
        action, target, self._state = self._session.run(observation, self._state)
        self._observer.last_action[:] = action
        if any(row.max_error is not None for row in self.contract.actions):
            joint_pos = self._observer.signal("joint_pos", robot_state)[:, self._driven]
            target = limit_targets(self.contract, target, joint_pos)
        return target, action, observation


def limit_targets(contract: Contract, target: Array, joint_pos: NDArray[np.floating]) -> Array:
    """Bring position targets within the largest error that the contract gives, so that no joint is too fast.

    Args:
        contract: The contract.
        target: Targets of the network (N, action_size).
        joint_pos: Measured positions of the driven joints in the actions' order (N, action_size) [rad or m].

    Returns:
        Targets (N, action_size), each at most `max_error` from its joint's position.
    """
    most = np.array([np.inf if row.max_error is None else row.max_error for row in contract.actions], np.float32)
    at = joint_pos.astype(np.float32)
    return np.clip(target, at - most, at + most)


def open_session(bundle: Bundle) -> tuple[Session, ReplayReport]:
    """Load a bundle's network, replay the golden sequence through it and try it on extreme observations.

    Args:
        bundle: The bundle.

    Returns:
        The network and the result of the replay.

    Raises:
        ContractError: The network was exported with another contract, the replay differs, or an extreme observation
            leads to an action that the contract does not allow.
    """
    session = Session(bundle.model, bundle.contract)
    found = session.metadata().get("contract_sha256")
    if found != bundle.contract_digest:
        raise ContractError(
            f"policy.onnx was exported with the contract of hash {found}; contract.json has {bundle.contract_digest}"
        )
    report = replay(bundle.contract, session, bundle.golden)
    probe(bundle.contract, session)
    return session, report
