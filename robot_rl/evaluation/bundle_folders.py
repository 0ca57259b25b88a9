"""Where the bundles of a team lie: one for all robots, or a folder for each of its policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robot_rl.errors import UserError


def is_bundle(path: Path) -> bool:
    """Whether a directory is one bundle, not one with a bundle for each policy of a team."""
    return (path / "contract.json").is_file()


def policies_in(path: Path) -> list[str]:
    """Return the names of the policies that have a bundle each in a directory; none in that of one bundle."""
    return [] if is_bundle(path) else sorted(contract.parent.name for contract in path.glob("*/contract.json"))


def team_bundles(bundle: Path, task: Any) -> dict[str, Path]:
    """Return the bundle of each robot of a team: one for all, or in a folder of its policy's name in it.

    Raises:
        UserError: A robot has none.
    """
    if is_bundle(bundle):
        return dict.fromkeys(task.robots, bundle)
    bundles = {}
    for name, agent in task.robots.items():
        policies = [policy for policy in policies_in(bundle) if name in policy.split("+")]
        path = bundle / (policies[0] if policies else agent.group)
        if not is_bundle(path):
            raise UserError("policy", bundle, f"has no bundle for robot '{name}'", "export the run again")
        bundles[name] = path
    return bundles
