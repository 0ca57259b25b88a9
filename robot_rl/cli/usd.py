"""Write a robot as USD for Isaac Lab and Newton, with every value as MuJoCo compiles it.

usage: robot-rl usd robot=<name> [key=value ...]

{Options}

Masses, inertias, joint limits, armature, damping, friction, gains, collision shapes and their materials. Nothing is
downloaded. Needs the package usd-core (pip install 'robot-rl[usd]'), which Isaac Lab also brings.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from collections.abc import Sequence
from dataclasses import dataclass

from robot_rl.cli.options import option, read_all
from robot_rl.errors import UserError
from robot_rl.runs.outputs import USD, check_output


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl usd."""

    robot: str = option("", "the robot, one of robot-rl list robots")
    out: str = option("", "the file, .usda (text) or .usd (binary); <robot>.usda here by default")
    visual: bool = option(True, "include the visual shapes")


def run(arguments: Sequence[str]) -> int:
    """Write the file and print a summary of it."""
    options = read_all(Options, arguments, first="robot")
    from robot_rl_assets.registry import get_robot, list_robots

    if not options.robot:
        raise UserError(f"robot: is missing; must be one of {', '.join(list_robots())}")
    try:
        from pxr import Usd, UsdPhysics
        from robot_rl_assets.usd import write_usd

        robot = get_robot(options.robot)
        path = check_output("out", options.out or f"{options.robot}.usda", USD, makes_folder=False)
        write_usd(robot, path, visual=options.visual)
    except ModuleNotFoundError as missing:
        if missing.name not in ("pxr", "mujoco"):
            raise
        package = "robot-rl[usd]" if missing.name == "pxr" else "mujoco"
        raise UserError(f"usd: the package {missing.name} is not installed; pip install '{package}'") from None
    except ValueError as error:
        raise UserError(str(error)) from error
    stage = Usd.Stage.Open(str(path))
    prims = list(stage.Traverse())
    bodies = sum(prim.HasAPI(UsdPhysics.RigidBodyAPI) for prim in prims)
    joints = sum(prim.IsA(UsdPhysics.RevoluteJoint) or prim.IsA(UsdPhysics.PrismaticJoint) for prim in prims)
    shapes = sum(prim.HasAPI(UsdPhysics.CollisionAPI) for prim in prims)
    print(f"{path}: {bodies} bodies, {joints} joints, {shapes} shapes that collide")
    return 0
