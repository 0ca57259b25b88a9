"""Robots of an environment by the policy that drives them, and the bundles of a team with several policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


class AllRows:
    """All rows of an environment, as `RobotRows` has some; other attributes are the environment's."""

    rows = slice(None)

    def __init__(self, env: Any) -> None:
        """Take an environment."""
        self._env = env

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the environment."""
        return getattr(self.__dict__["_env"], name)

    def observed(self, obs: Any) -> Any:
        """Return the observation groups."""
        return obs


class RobotRows:
    """Some robots of one role, in every world of a team, as an environment of robots.

    Attributes:
        rows: (n,) their rows in the team's environment.
        num_envs: Number n of rows.
        num_actions: Components of an action of theirs.
        device, step_dt: As of the team's environment.
    """

    def __init__(self, env: Any, places: Sequence[int]) -> None:
        """Take the robots at these places in a team, which have one role."""
        self._env = env
        role = env.roles[places[0]]
        self._crew, _ = env.parts()[role]
        members = [agent for agent, other in enumerate(env.roles) if other == role]
        self.rows = torch.arange(env.num_envs).view(env.num_worlds, -1)[:, list(places)].flatten()
        self._members = torch.tensor([members.index(place) for place in places])
        self._size, self._observed = len(members), env.role_sizes[role][0]
        self.num_envs, self.num_actions = len(self.rows), self._crew.num_actions
        self.device, self.step_dt = env.device, env.step_dt

    @property
    def taking_part(self) -> Tensor:
        """(n,) bool, which of them take part."""
        return self._env.taking_part[self.rows]

    def describe_policy(self) -> dict[str, Any]:
        """Return the description of the policy."""
        return self._crew.describe_policy() | {"task": self._env.cfg.name}

    def robot_state(self) -> dict[str, Tensor]:
        """Return the raw signals of its robots, one row each."""
        signals = self._crew.robot_state()
        return {
            name: value.view(self._env.num_worlds, self._size, *value.shape[1:])[:, self._members].flatten(0, 1)
            for name, value in signals.items()
        }

    def observed(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the rows of a team's group "actor", as wide as the role's."""
        return {"actor": obs["actor"][self.rows][:, : self._observed]}


class PolicyRows(RobotRows):
    """The robots of one policy of a team, as an environment to record their golden sequence in.

    The others are driven by their own policies.
    """

    def __init__(self, env: Any, actor: Any, index: int) -> None:
        """Take the robots of policy `index` of a `robot_rl.learn.networks.team.TeamActor`."""
        super().__init__(env, actor.members.groups[index])
        self._actor = actor

    def reset(self) -> Any:
        """Reset every world."""
        return self._env.reset()

    @torch.no_grad()
    def step(self, action: Tensor) -> tuple[Any, Tensor, Tensor, dict[str, Any]]:
        """Apply the actions (n, num_actions) of its robots; see the environment's own."""
        everything = self._actor.mean(self._env.get_observations()["actor"])
        everything[self.rows, : self.num_actions] = action
        obs, reward, done, extras = self._env.step(everything)
        return obs, reward[self.rows], done[self.rows], extras


def export_team(env: Any, actor: Any, out: Path, *, training: Any, opset: int | None = None) -> dict[str, Any]:
    """Write the bundle of each policy into a folder of its name below `out`; return the reports of their checks."""
    from robot_rl_deploy.export import export_policy

    reports = {}
    for index, name in enumerate(actor.names):
        rows = PolicyRows(env, actor, index)
        reports[name] = export_policy(rows, actor.each()[index], out / name, run=training, opset=opset)
    return reports
