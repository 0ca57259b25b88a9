"""The bundles of a team with several policies: one for each, in a folder of its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robot_rl.evaluate.team_bundles import RobotRows


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
