"""The bundles of a team with several policies: one for each, in a folder of its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor


class PolicyRows:
    """The robots of one policy of a team, as an environment to record their golden sequence in.

    The others are driven by their own policies.
    """

    def __init__(self, env: Any, actor: Any, index: int) -> None:
        """Take the robots of policy `index` of a `robot_rl.learn.networks.team.TeamActor`."""
        self._env, self._actor, self._index = env, actor, index
        places = actor.members.groups[index]
        role = env.roles[places[0]]
        self._crew, rows = env.parts()[role]
        members = [agent for agent, own in enumerate(env.roles) if own == role]
        self._rows = torch.arange(env.num_envs).view(env.num_worlds, -1)[:, places].flatten()
        self._own = torch.tensor([members.index(place) for place in places])
        self._size = len(members)
        assert len(rows) == env.num_worlds * self._size
        self.num_envs, self.num_actions = len(self._rows), self._crew.num_actions
        self.device, self.step_dt = env.device, env.step_dt

    def describe_policy(self) -> dict[str, Any]:
        """Return the description of the policy."""
        return self._crew.describe_policy() | {"task": self._env.cfg.name}

    def robot_state(self) -> dict[str, Tensor]:
        """Return the raw signals of its robots, one row each."""
        signals = self._crew.robot_state()
        return {
            name: value.view(-1, self._size, *value.shape[1:])[:, self._own].flatten(0, 1)
            for name, value in signals.items()
        }

    def reset(self) -> Any:
        """Reset every world."""
        return self._env.reset()

    @torch.no_grad()
    def step(self, action: Tensor) -> tuple[Any, Tensor, Tensor, dict[str, Any]]:
        """Apply the actions (n, num_actions) of its robots; see the environment's own."""
        everything = self._actor.mean(self._env.get_observations()["actor"])
        everything[self._rows, : self.num_actions] = action
        obs, reward, done, extras = self._env.step(everything)
        return obs, reward[self._rows], done[self._rows], extras


def export_team(env: Any, actor: Any, out: Path, *, training: Any) -> dict[str, Any]:
    """Write the bundle of each policy into a folder of its name below `out`; return the reports of their checks."""
    from robot_rl_deploy.export import export_policy

    reports = {}
    for index, name in enumerate(actor.names):
        rows = PolicyRows(env, actor, index)
        reports[name] = export_policy(rows, actor.each()[index], out / name, run=training)
    return reports
