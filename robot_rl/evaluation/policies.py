"""Policies that are run outside a training: one protocol and one loader for networks, bundles and functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from robot_rl.evaluation.bundle_folders import is_bundle, team_bundles
from robot_rl.evaluation.team_rows import AllRows, RobotRows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from robot_rl_deploy.policy import BundlePolicy

TRACED = 32
"""Worlds of which a `Tracer` keeps the observations."""


class Policy(Protocol):
    """Computes the actions of all rows of an environment; a `robot_rl.learn.policy.TrainedPolicy` is one."""

    def __call__(self, obs: Any) -> Tensor:
        """Return actions (N, num_actions) at observation groups, and advance a memory by one step."""
        ...

    def reset(self, done: Tensor | None = None) -> None:
        """Begin an episode in these rows (N,) bool, or in all if None."""
        ...


Loadable = Policy | Callable[[Any], Tensor] | Path | None
"""What `load_policy` takes."""


def load_policy(source: Loadable, env: Any) -> Policy:
    """Return a policy for an environment.

    Args:
        source: A policy; a function of observation groups without a memory; the directory of a bundle, or of the
            bundles of a team; None for zero actions.
        env: The environment, which the policy is for from now on.

    Raises:
        UserError: A robot of a team has no bundle.
        ContractError: A bundle is damaged, or is for another robot or another control period.
    """
    if isinstance(source, Path):
        return ExportedPolicy(source, env)
    if source is None:
        return FunctionPolicy(lambda _: torch.zeros(env.num_envs, env.num_actions, device=env.device))
    return source if hasattr(source, "reset") else FunctionPolicy(source)  # type: ignore[return-value]


class FunctionPolicy:
    """A function of observation groups as a policy."""

    def __init__(self, function: Callable[[Any], Tensor]) -> None:
        """Wrap a function that returns actions (N, num_actions)."""
        self._function = function

    @torch.no_grad()
    def __call__(self, obs: Any) -> Tensor:
        """Return actions (N, num_actions)."""
        return self._function(obs)

    def reset(self, done: Tensor | None = None) -> None:
        """Do nothing: a function is without a memory."""


class Tracer:
    """A run's policy on the CPU that keeps its inputs in the first worlds, on any device.

    Attributes:
        obs: The actor's observations (N, D) of each step.
        begins: Whether an episode begins (N,) at each step, and after the last one.
    """

    def __init__(self, policy: Any) -> None:
        """Wrap a `robot_rl.learn.policy.TrainedPolicy`."""
        self._policy, self._layout = policy, policy.actor.layout
        self.obs: list[Tensor] = []
        self.begins: list[Tensor] = []

    def __call__(self, obs: Any) -> Tensor:
        """Return actions (N, num_actions)."""
        first = obs[:TRACED].to("cpu")
        self.obs.append(self._layout.gather(first, torch.empty(first.batch_size[0], self._layout.size)))
        return self._policy(obs.to("cpu")).to(obs[self._layout.spans[0].group].device)

    def reset(self, done: Tensor | None = None) -> None:
        """Reset the memory of the policy, and record in which rows (N,) bool an episode begins."""
        self._policy.reset(done)
        if done is not None:
            self.begins.append(done[:TRACED].to("cpu", copy=True))

    def outputs(self, actor: Any) -> Tensor:
        """Return the outputs (T N, P) of a policy's network at the recorded inputs, a recurrent one with its memory."""
        if actor.memory is None:
            return actor.step(actor.encode(torch.cat(self.obs)), None)[0]
        state, outputs = torch.zeros(len(self.obs[0]), actor.state_size), []
        for obs, begins in zip(self.obs, self.begins, strict=False):
            out, state = actor.step(actor.encode(obs), state.masked_fill(begins[:, None], 0.0))
            outputs.append(out)
        return torch.cat(outputs)


class ExportedPolicy:
    """Bundles run by ONNX Runtime, which read the robots' raw signals by name and never the observation groups.

    Attributes:
        parts: The robots of each bundle, the bundle, and the name of its folder; "" for one bundle of all robots.
    """

    def __init__(self, directory: Path, env: Any) -> None:
        """Load a bundle, or those of a team in the folders of a directory; joints are matched by name.

        Raises:
            FileNotFoundError: There is no such directory.
            UserError: A robot has none.
            ContractError: A bundle is damaged, or is for another robot or another control period.
        """
        self._env = env
        self.parts: list[tuple[AllRows | RobotRows, BundlePolicy, str]] = []
        if is_bundle(directory) or not getattr(env, "agents", ()):
            self._add(directory, AllRows(env), "")
            return
        bundles, places = team_bundles(directory, env.cfg), {name: place for place, name in enumerate(env.agents)}
        for path in dict.fromkeys(bundles.values()):
            robots = RobotRows(env, [places[name] for name, bundle in bundles.items() if bundle == path])
            self._add(path, robots, path.name)

    def _add(self, directory: Path, robots: AllRows | RobotRows, name: str) -> None:
        from robot_rl_deploy.contract import ContractError
        from robot_rl_deploy.policy import BundlePolicy

        names = [joint["name"] for joint in robots.describe_policy()["joints"]]
        bundle = BundlePolicy(directory, robots.num_envs, joint_names=names)
        period = bundle.contract.control_period_s
        if abs(period - robots.step_dt) > 1e-9:
            raise ContractError(f"control_period_s is {period}; the environment steps every {robots.step_dt} s")
        self.parts.append((robots, bundle, name))

    def __call__(self, obs: Any) -> Tensor:
        """Return actions (N, num_actions)."""
        env = self._env
        actions = torch.zeros(env.num_envs, env.num_actions, device=env.device)
        for robots, bundle, _ in self.parts:
            action = torch.from_numpy(bundle.act(robot_state(robots))[1])
            actions[robots.rows, : robots.num_actions] = action.to(env.device)
        return actions

    def reset(self, done: Tensor | None = None) -> None:
        """Clear clock, history and last action of these rows (N,) bool, or of all if None."""
        for robots, bundle, _ in self.parts:
            bundle.reset(None if done is None else done[robots.rows].cpu().numpy())


def robot_state(env: Any) -> dict[str, NDArray[np.float32]]:
    """Return the environment's raw robot signals by name, each (N, size)."""
    return {name: signal.detach().cpu().numpy() for name, signal in env.robot_state().items()}
