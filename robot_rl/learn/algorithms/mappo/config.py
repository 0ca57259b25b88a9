"""Settings of multi-agent PPO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.settings.schema import setting

SHARINGS = ("role", "separate")
VIEWS = ("world", "attention", "others", "own")
OTHERS = "team"
"""The observation group that shows a robot's critic the others."""


@dataclass(kw_only=True, slots=True)
class MAPPOLearnerCfg(PPOLearnerCfg):
    """PPO for a team, with a critic that sees all robots (Yu et al. 2022, arXiv 2103.01955): `learner=mappo`.

    Samples of robots that take no part have weight 0.

    Attributes:
        view: the critic's input for a robot's value: "world" (the observations of each robot, in one pass for all),
            "attention" (the same, with weights that do not depend on the number of robots), "others" (a pass for each
            robot, feature-pruned: its own part, that of each other robot in turn, and who it is), or "own" (only its
            robot: independent PPO, de Witt et al. 2020, arXiv 2011.09533). Of the groups of `critic_groups`, "team"
            shows the others.
        sharing: which robots have one policy: "role" (those of a role) or "separate" (each has its own).
        groups: the robots of each policy by name, instead of `sharing`, such as [[front, rear], [left]].
    """

    implementation: ClassVar[str] = "robot_rl.learn.algorithms.mappo.mappo"
    presets: ClassVar[tuple[str, ...]] = ("mappo", "ppo")
    is_team: ClassVar[bool] = True

    name: str = "mappo"
    view: str = setting("world", choices=VIEWS)
    sharing: str = setting("role", choices=SHARINGS)
    groups: tuple[tuple[str, ...], ...] = ()
    normalize_values: bool = True

    def __post_init__(self) -> None:
        """Check the ranges."""
        PPOLearnerCfg.__post_init__(self)
        own = tuple(group for group in self.critic_groups if group != OTHERS)
        self.critic_groups = (*own, OTHERS) if self.view == "others" else own

    def policies(self, dims: Any) -> dict[str, list[int]]:
        """Return the policies by name, each with the places of its robots in the team.

        Takes a `robot_rl.learn.dims.EnvSpec`. Raises UserError for robots that are not in the scene, that are in two
        groups or in none, or that do not fit one policy.
        """
        agents, roles = list(dims.agents), list(dims.roles)
        if not agents:
            raise UserError("learner", self.name, "is for a team, the environment has 1 robot", "use learner=ppo")
        if self.groups:
            found = {"+".join(group): _places(group, agents) for group in self.groups}
            _check_cover(self.groups, agents)
        elif self.sharing == "separate":
            found = {agent: [place] for place, agent in enumerate(agents)}
        else:
            found = {role: [place for place, own in enumerate(roles) if own == role] for role in dict.fromkeys(roles)}
        for name, places in found.items():
            sizes = {roles[place]: tuple(dims.role_sizes[roles[place]]) for place in places}
            if len(sizes) > 1:
                (one, first), (other, second) = list(sizes.items())[:2]
                raise UserError(
                    f"groups: {name} are of the roles {one} and {other}, with {first[0]} and {second[0]} observations "
                    f"and {first[1]} and {second[1]} actions; robots of one policy are alike"
                )
        return found


def _places(group: Sequence[str], agents: list[str]) -> list[int]:
    for name in group:
        if name not in agents:
            raise UserError(f"groups: '{name}' is not one of the {len(agents)} robots {', '.join(agents)}")
    return [agents.index(name) for name in group]


def _check_cover(groups: Sequence[Sequence[str]], agents: list[str]) -> None:
    """Raise UserError unless each robot is in one group."""
    named = [name for group in groups for name in group]
    for agent in agents:
        count = named.count(agent)
        if count != 1:
            right = "give it to one" if count == 0 else "leave it in one of them"
            raise UserError(f"groups: robot '{agent}' is in {count} of the {len(groups)} groups; {right}")
