"""Who acts in an evaluation: the torch policy on the environment's observation, or a bundle on the raw robot state."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TorchPolicy = Callable[[Any], Tensor]


class Controller(Protocol):
    """Gives the actions of all worlds."""

    def act(self, env: Any, obs: Any) -> Tensor:
        """Give actions (N, num_actions) for the environment's present state."""
        ...

    def reset(self, done: Tensor) -> None:
        """Take note that these worlds (N,) bool start anew."""
        ...


class TorchController:
    """The torch policy, reading the environment's observation."""

    def __init__(self, policy: TorchPolicy) -> None:
        """Wrap a policy from observation groups to mean actions; one that remembers has a `reset(done)`."""
        self._policy = policy
        self._forget = getattr(policy, "reset", None)

    def act(self, env: Any, obs: Any) -> Tensor:
        """Give actions (N, num_actions)."""
        with torch.no_grad():
            return self._policy(obs)

    def reset(self, done: Tensor) -> None:
        """Let a policy with a memory forget; what the observation remembers the environment keeps."""
        if self._forget is not None:
            self._forget(done)


class BundleController:
    """A bundle run by ONNX Runtime, reading the robot's raw signals by name and never the environment's observation."""

    def __init__(self, directory: Path, env: Any) -> None:
        """Load a bundle for an environment.

        Args:
            directory: Where the bundle is.
            env: The environment; its joints are matched by name.

        Raises:
            FileNotFoundError: There is no such directory.
            ContractError: The bundle is damaged, or is one for another robot or another control period.
        """
        from robot_rl_deploy.contract import ContractError
        from robot_rl_deploy.policy import BundlePolicy

        names = [joint["name"] for joint in env.describe_policy()["joints"]]
        self.policy = BundlePolicy(directory, env.num_envs, joint_names=names)
        period = self.policy.contract.control_period_s
        if abs(period - env.step_dt) > 1e-9:
            raise ContractError(f"control_period_s is {period}; the environment steps every {env.step_dt} s")

    def act(self, env: Any, obs: Any) -> Tensor:
        """Give actions (N, num_actions)."""
        return torch.from_numpy(self.policy.act(robot_state(env))[1]).to(env.device)

    def reset(self, done: Tensor) -> None:
        """Clear clock, history and last action of these worlds (N,) bool."""
        self.policy.reset(done.cpu().numpy())


class Shadow:
    """A bundle that looks over the torch policy's shoulder: the same recorded states, and how far it would differ.

    Attributes:
        action_error: Largest difference of an action so far.
        observation_error: Largest difference of an observation, relative where the value is above 1; None where the
            environment's actor group is not the bundle's.
    """

    def __init__(self, bundle: BundleController) -> None:
        """Watch with a bundle of its own."""
        self._bundle = bundle
        self.action_error = 0.0
        self.observation_error: float | None = 0.0

    def compare(self, env: Any, obs: Any, action: Tensor) -> None:
        """Let the bundle act on the same state and compare.

        Args:
            env: The environment, not yet stepped.
            obs: Its observation groups.
            action: (N, num_actions) what the torch policy gave.
        """
        policy = self._bundle.policy
        _, own, seen = policy.act(robot_state(env))
        bounds = [float("inf") if spec.clip is None else spec.clip for spec in policy.contract.actions]
        bound = torch.tensor(bounds)
        wanted = action.detach().cpu().float()
        wanted = torch.minimum(torch.maximum(wanted, -bound), bound)
        self.action_error = max(self.action_error, _largest((torch.from_numpy(own) - wanted).abs()))
        self._compare_observation(obs["actor"].detach().cpu(), torch.from_numpy(seen))
        policy.last_action[:] = wanted.numpy()

    def reset(self, done: Tensor) -> None:
        """Clear clock, history and last action of these worlds (N,) bool."""
        self._bundle.reset(done)

    def _compare_observation(self, right: Tensor, seen: Tensor) -> None:
        if self.observation_error is None or right.shape != seen.shape:
            self.observation_error = None
            return
        error = _largest((seen - right).abs() / right.abs().clamp(min=1))
        self.observation_error = max(self.observation_error, error)


def _largest(error: Tensor) -> float:
    """The largest element; infinite where one is not a number, which no comparison would show."""
    return error.nan_to_num(nan=float("inf")).max().item()


def robot_state(env: Any) -> dict[str, "NDArray[np.float32]"]:
    """The environment's raw robot signals by name, each (N, size)."""
    return {name: signal.detach().cpu().numpy() for name, signal in env.robot_state().items()}
