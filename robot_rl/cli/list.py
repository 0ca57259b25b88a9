"""List tasks, robots, learners, launchers, engines (and why one is not available), policies, plug-ins.

usage: robot-rl list [tasks] [key=value ...]

{Options}
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass

from robot_rl.cli.options import option, read_all
from robot_rl.cli.table import two_columns
from robot_rl.plugins import ALGORITHMS, GROUPS, LAUNCHERS, ROBOTS, TASKS, describe_plugins

KINDS = ("tasks", "robots", "learners", "launchers", "engines", "policies", "plugins")


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl list."""

    what: str = option("", f"one of {', '.join(KINDS)}; all of them by default")


def run(arguments: Sequence[str]) -> int:
    """Print the lists."""
    from robot_rl_assets import registry as robots

    from robot_rl.cluster import launchers
    from robot_rl.learn import algorithms
    from robot_rl.settings.checks import check_choice

    options = read_all(Options, arguments, first="what")
    if options.what:
        check_choice("what", options.what, KINDS)
    makers = {
        "tasks": task_rows,
        "robots": lambda: list(robots.REGISTRY.describe().items()),
        "learners": lambda: list(algorithms.REGISTRY.describe().items()),
        "launchers": lambda: list(launchers.REGISTRY.describe().items()),
        "engines": engine_rows,
        "policies": policy_rows,
        "plugins": plugin_rows,
    }
    for kind in [options.what] if options.what else KINDS:
        print(f"{kind}:\n{two_columns(makers[kind]()) or '  none yet'}")
    return 0


Rows = list[tuple[str, str]]
"""Names and descriptions."""


def task_rows() -> Rows:
    """Return the tasks that can be listed, without importing those that come with robot-rl."""
    from robot_rl.sources.registry import list_sources

    return [row for source in list_sources() for row in source.list_tasks().items()]


def plugin_rows() -> Rows:
    """Return the remaining plugins of other packages, and why one of these cannot be used."""
    groups = [group for group in GROUPS if group not in (TASKS, ROBOTS, ALGORITHMS, LAUNCHERS)]
    return [(f"{group} {name}", text) for group in groups for name, text in describe_plugins(group, "name").items()]


def engine_rows() -> Rows:
    """Return the engines: the purpose of each, or why it cannot be used here."""
    found = []
    for name, package, purpose in (
        ("mujoco", "mujoco", "the CPU, all cores"),
        ("mujoco_warp", "mujoco_warp", "the GPU; on a CPU slow, for comparison"),
        ("isaac", "isaaclab", "Isaac Lab's scene and Newton; in its own environment (make isaac)"),
    ):
        missing = importlib.util.find_spec(package) is None
        found.append((name, f"not available: the package {package} is not installed" if missing else purpose))
    return found


def policy_rows() -> Rows:
    """Return the trained policies that come with the project."""
    from robot_rl.runs.policies import list_policies

    return [(name, str(path)) for name, path in list_policies().items()]
