"""Controllers of an evaluation: the torch policy on the observation, or a bundle on the raw robot state."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ACTION_BOUND = 1e-4
"""Difference of actions that float32 itself may make between two programs; it never made as much."""
TRACED = 32
"""Worlds of which a `Tracer` keeps the observations."""
Bound = Callable[..., Tensor]
"""Takes observations (N, D), of a policy with a memory its state, and how far other observations are (N, D) or None;
returns how far their actions (N, A) may be off."""
TorchPolicy = Callable[[Any], Tensor]


class Controller(Protocol):
    """Computes the actions of all worlds."""

    def act(self, env: Any, obs: Any) -> Tensor:
        """Return actions (N, num_actions) for the environment's current state."""
        ...

    def reset(self, done: Tensor) -> None:
        """Note that these worlds (N,) bool begin an episode."""
        ...


class TorchController:
    """The torch policy, reading the environment's observation."""

    def __init__(self, policy: TorchPolicy) -> None:
        """Wrap a policy from observation groups to mean actions; one with memory has a `reset(done)`."""
        self._policy = policy
        self._forget = getattr(policy, "reset", None)

    def act(self, env: Any, obs: Any) -> Tensor:
        """Return actions (N, num_actions)."""
        with torch.no_grad():
            return self._policy(obs)

    def reset(self, done: Tensor) -> None:
        """Reset the memory of the policy; the environment resets that of the observation."""
        if self._forget is not None:
            self._forget(done)


class Tracer(TorchController):
    """A run's policy on the CPU that keeps what it sees in the first worlds, on whatever device these are.

    Attributes:
        obs: The actor's observations (N, D) of each step.
        begins: Where an episode begins (N,) bool at each step, and after the last one.
    """

    def __init__(self, policy: Any) -> None:
        """Wrap a `robot_rl.learn.policy.Policy`."""
        super().__init__(policy)
        self._layout = policy.actor.layout
        self.obs: list[Tensor] = []
        self.begins: list[Tensor] = []

    def act(self, env: Any, obs: Any) -> Tensor:
        """Return actions (N, num_actions)."""
        own = obs[:TRACED].to("cpu")
        self.obs.append(self._layout.gather(own, torch.empty(own.batch_size[0], self._layout.size)))
        return super().act(env, obs.to("cpu")).to(env.device)

    def reset(self, done: Tensor) -> None:
        """Reset the memory of the policy, and note where an episode begins."""
        super().reset(done)
        self.begins.append(done[:TRACED].to("cpu", copy=True))

    def outputs(self, actor: Any) -> Tensor:
        """Return the outputs (T N, P) of a policy's network at what was seen, a recurrent one with its own memory."""
        if actor.memory is None:
            return actor.step(actor.encode(torch.cat(self.obs)), None)[0]
        state, found = torch.zeros(len(self.obs[0]), actor.state_size), []
        for obs, begins in zip(self.obs, self.begins, strict=False):
            out, state = actor.step(actor.encode(obs), state.masked_fill(begins[:, None], 0.0))
            found.append(out)
        return torch.cat(found)


class BundleController:
    """A bundle run by ONNX Runtime, reading the robot's raw signals by name and never the environment's observation."""

    def __init__(self, directory: Path, env: Any) -> None:
        """Load a bundle for an environment; joints are matched by name.

        Raises:
            FileNotFoundError: There is no such directory.
            ContractError: The bundle is damaged, or is for another robot or another control period.
        """
        from robot_rl_deploy.contract import ContractError
        from robot_rl_deploy.policy import BundlePolicy

        names = [joint["name"] for joint in env.describe_policy()["joints"]]
        self.policy = BundlePolicy(directory, env.num_envs, joint_names=names)
        period = self.policy.contract.control_period_s
        if abs(period - env.step_dt) > 1e-9:
            raise ContractError(f"control_period_s is {period}; the environment steps every {env.step_dt} s")

    def act(self, env: Any, obs: Any) -> Tensor:
        """Return actions (N, num_actions)."""
        return torch.from_numpy(self.policy.act(robot_state(env))[1]).to(env.device)

    def reset(self, done: Tensor) -> None:
        """Clear clock, history and last action of these worlds (N,) bool."""
        self.policy.reset(done.cpu().numpy())


class Shadow:
    """A bundle that computes its actions on the torch policy's states, to compare the two.

    Attributes:
        action_error: Largest difference of an action so far.
        action_bound: Largest difference that the policy's arithmetic allows in the states so far.
        are_within: Whether no difference was larger than its own state allows.
        observation_error: Largest difference of an observation, relative for values above 1; None if the environment's
            groups have another size than the bundle's observation.
    """

    def __init__(self, bundle: BundleController, bound: Bound | None = None) -> None:
        """Compare with a bundle.

        Args:
            bundle: The bundle.
            bound: How far actions may be off; None: everywhere `ACTION_BOUND`.
        """
        self._bundle, self._bound = bundle, bound
        self.action_bound, self.are_within = ACTION_BOUND, True
        terms = bundle.policy.contract.observations
        self._groups = dict.fromkeys(term.name if "image" in term.params else "actor" for term in terms)
        self.action_error = 0.0
        self.observation_error: float | None = 0.0

    def compare(self, env: Any, obs: Any, action: Tensor) -> None:
        """Compare the bundle's action and observation with the torch policy's, before the step."""
        policy = self._bundle.policy
        state = torch.from_numpy(policy.network_state.copy())
        own, seen = (torch.from_numpy(part) for part in policy.act(robot_state(env))[1:])
        # In a team the environment computes nothing for robots that take no part, and nobody runs their actions.
        counted = getattr(env, "taking_part", torch.ones(len(own), dtype=torch.bool)).cpu()
        bound = torch.tensor([float("inf") if spec.clip is None else spec.clip for spec in policy.contract.actions])
        wanted = action.detach().cpu().float()
        wanted = torch.minimum(torch.maximum(wanted, -bound), bound)
        difference, off = (own - wanted).abs()[counted], None
        self.action_error = max(self.action_error, _largest(difference))
        observed = torch.cat([obs[name].detach().cpu().flatten(1) for name in self._groups], dim=1)
        if self.observation_error is not None and observed.shape == seen.shape:
            off = (seen - observed).abs()
            error = _largest((off / observed.abs().clamp(min=1))[counted])
            self.observation_error = max(self.observation_error, error)
        else:
            self.observation_error = None
        allowed = torch.full_like(difference, ACTION_BOUND)
        if self._bound is not None:
            given = (seen, state) if state.shape[1] else (seen,)
            allowed = self._bound(*given, off)[counted].clamp(min=ACTION_BOUND)
            self.action_bound = max(self.action_bound, float(allowed.max()))
        self.are_within = self.are_within and bool((difference <= allowed).all())
        policy.last_action[:] = wanted.numpy()

    def reset(self, done: Tensor) -> None:
        """Clear clock, history and last action of these worlds (N,) bool."""
        self._bundle.reset(done)


def _largest(error: Tensor) -> float:
    """Return the largest element; infinite if one is NaN, which no comparison would show."""
    return error.nan_to_num(nan=float("inf")).max().item()


def robot_state(env: Any) -> dict[str, "NDArray[np.float32]"]:
    """Return the environment's raw robot signals by name, each (N, size)."""
    return {name: signal.detach().cpu().numpy() for name, signal in env.robot_state().items()}
