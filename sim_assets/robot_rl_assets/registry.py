"""Finds robots by name: every folder of this package that holds a `robot.py` with a `ROBOT`."""

import difflib
from pathlib import Path

from robot_rl_assets.authored import run
from robot_rl_assets.robot import Robot


def list_robots() -> list[str]:
    """Names of all robots, sorted."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob("*/robot.py"))


def get_robot(name: str) -> Robot:
    """The robot called `name`.

    Args:
        name: A name from `list_robots`.

    Raises:
        ValueError: There is no such robot (the line offers the nearest name), or its folder's `robot.py` does not
            define a `ROBOT` of that name, or is wrong (the line names the place).
    """
    known = list_robots()
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.3)
        hint = f"did you mean '{nearest[0]}'? " if nearest else ""
        raise ValueError(f"robot: unknown name '{name}'; {hint}known robots: {', '.join(known)}")
    module = f"robot_rl_assets.{name}.robot"
    robot = run(f"robot {name!r}", module, lambda made: getattr(made, "ROBOT", None))
    if not isinstance(robot, Robot):
        raise ValueError(f"robot '{name}': {name}/robot.py must define ROBOT = Robot(...), found {robot!r}")
    if robot.name != name:
        raise ValueError(f"robot '{name}': ROBOT.name is '{robot.name}'; it must be the folder's name")
    return robot
