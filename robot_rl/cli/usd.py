"""robot-rl usd: a robot as a USD file, for Isaac Lab, Newton and Isaac Sim."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from collections.abc import Sequence
from dataclasses import dataclass

from robot_rl.cli.options import describe, option, read_all
from robot_rl.errors import UserError
from robot_rl.experiment.outputs import USD, check_output


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl usd."""

    robot: str = option("", "the robot; robot-rl list robots says which there are")
    out: str = option("", "the file, .usda (text) or .usd (binary); <robot>.usda here by default")
    visual: bool = option(True, "with the shapes that are only looked at")


HELP = f"""\
robot-rl usd: a robot's MJCF file as USD, every figure the one that MuJoCo compiles

usage: robot-rl usd robot=<name> [key=value ...]

{describe(Options)}

Masses, inertias, joint limits, armature, damping, friction, gains, the shapes that collide and what they are made of.
Nothing is downloaded. Needs the package usd-core: pip install 'robot-rl[usd]'; where Isaac Lab is it is there.
"""


def run(arguments: Sequence[str]) -> int:
    """Writes the file and says what is in it."""
    options = read_all(Options, arguments, first="robot")
    from robot_rl_assets.registry import get_robot, list_robots

    if not options.robot:
        raise UserError(f"robot: which one? One of {', '.join(list_robots())}")
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
        raise UserError(f"usd: the package {missing.name} is not here; pip install '{package}'") from None
    except ValueError as error:
        raise UserError(str(error)) from error
    stage = Usd.Stage.Open(str(path))
    prims = list(stage.Traverse())
    bodies = sum(prim.HasAPI(UsdPhysics.RigidBodyAPI) for prim in prims)
    joints = sum(prim.IsA(UsdPhysics.RevoluteJoint) or prim.IsA(UsdPhysics.PrismaticJoint) for prim in prims)
    shapes = sum(prim.HasAPI(UsdPhysics.CollisionAPI) for prim in prims)
    print(f"{path}: {bodies} bodies, {joints} joints, {shapes} shapes that collide")
    return 0
