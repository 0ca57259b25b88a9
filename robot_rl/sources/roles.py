"""Roles of agents whose environment names none: agents of equal sizes have one role."""

from __future__ import annotations

from collections.abc import Mapping


def roles_by_size(sizes: Mapping[str, tuple[int, int]]) -> tuple[tuple[str, ...], dict[str, tuple[int, int]]]:
    """Return the role of each agent, such as "12x3", and the sizes of each role.

    Args:
        sizes: Components of the observation and of the action of each agent.
    """
    roles = tuple("x".join(map(str, size)) for size in sizes.values())
    return roles, dict(zip(roles, sizes.values(), strict=True))
