"""Finds robots by name: folders of this package with a `robot.py`, plug-ins, and `module:name` of any package.

A folder's `robot.py` has a `ROBOT`; an entry point in the group `robot_rl.robots` names such an object, or a function
that returns one.
"""

from pathlib import Path

from robot_rl_assets import plugins
from robot_rl_assets.robot import Robot

REGISTRY = plugins.Registry(
    plugins.ROBOTS,
    "robot",
    "robot_rl_assets",
    Path(__file__).parent,
    "*/robot.py",
    lambda module: getattr(module, "ROBOT", None),
)


def list_robots() -> list[str]:
    """Names of all robots, those of other packages among them, sorted; whether each can be used is not tried."""
    return REGISTRY.names()


def get_robot(name: str) -> Robot:
    """The robot called `name`.

    Args:
        name: A name from `list_robots`, or `module:name`.

    Raises:
        ValueError: The robot does not exist (the line offers the nearest name), its file is wrong (the line names the
            place), or the name leads to something other than a `Robot` of that name.
    """
    found = REGISTRY.get(name)
    if name in REGISTRY.files():
        if not isinstance(found, Robot):
            raise ValueError(f"robot={name}: {name}/robot.py must define ROBOT = Robot(...), found {found!r}")
    else:
        found = plugins.make(found, Robot, f"robot={name}", "it must be a Robot, or a function that returns one")
    if found.name != name and ":" not in name:
        raise ValueError(f"robot={name}: its name is '{found.name}'; must be '{name}', as it is registered")
    return found
