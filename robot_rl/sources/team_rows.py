"""Rows of environments with several agents whose environment names no roles: agents of equal sizes have one."""

from __future__ import annotations

from collections.abc import Mapping


class TeamRows:
    """Rows of agents: row ``w T + a`` is agent a of T in world w.

    Attributes:
        agents: Names of all agents that there may be.
        num_worlds, team_size, num_envs: N, T and N T.
        num_actions: Components of the widest action.
        roles, role_sizes: The role of each agent, such as "12x3", and the sizes of each role.
    """

    def _set_team(self, sizes: Mapping[str, tuple[int, ...]], num_worlds: int) -> None:
        """Set the attributes from the components of the observation and of the action of each agent."""
        self._sizes = sizes
        self.agents, self.num_worlds, self.team_size = tuple(sizes), num_worlds, len(sizes)
        self.num_envs = num_worlds * self.team_size
        self.roles = tuple("x".join(map(str, size)) for size in sizes.values())
        self.role_sizes = dict(zip(self.roles, sizes.values(), strict=True))
        self._width, self.num_actions = (max(size[k] for size in sizes.values()) for k in (0, 1))
