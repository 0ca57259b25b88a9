"""A policy in another model of its robot: joints are matched by name, control remains that of our robot."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError

CONTROL = ("actuators", "sensors", "keys", "cameras", "lights")
"""Elements that our scene adds itself, or that a file for looking at a robot has."""
STEP_S = 0.002
"""Physics step, about [s]."""


def with_model(task: Any, path: Path, folder: Path) -> Any:
    """Return a task with the bodies, joints, collisions and contact options of another file of its robot.

    Meshes are omitted: they are for looks, or the file is one of many without them. Gains, effort limits, default pose
    and action scale remain the robot's own. A floating base and feet without the robot's names get them: the base is
    the body with a free joint, a foot the lowest geom of the foot's body. Sites that only our model has are added. The
    physics take shorter steps and iterate until they converge, as the file's own simulator does.

    Args:
        task: The task.
        path: The MJCF file.
        folder: The folder for the changed file.

    Raises:
        UserError: The file cannot be read, or is of another robot.
    """
    mujoco: Any = importlib.import_module("mujoco")
    robot = task.robot
    if not path.is_file():
        raise UserError("model", path, "does not exist", "name an MJCF file of the robot")
    try:
        spec = mujoco.MjSpec.from_file(str(path))
    except ValueError as error:
        raise UserError("model", path, f"cannot be read ({' '.join(str(error).split())})") from None
    names = {joint.name for joint in spec.joints}
    if lacking := [joint.name for joint in robot.joints if joint.name not in names]:
        right = f"must be a model of {robot.name}"
        raise UserError("model", path, f"is without the joint {lacking[0]} ({len(lacking)} are missing)", right)
    _strip(mujoco, spec)
    _name_base(mujoco, spec, robot, path)
    ours = mujoco.MjSpec.from_file(str(robot.model))
    _name_feet(spec, ours, robot)
    _add_sites(spec, ours)
    try:
        spec.compile()
    except ValueError as error:
        raise UserError("model", path, f"does not compile ({' '.join(str(error).split())})") from None
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{path.stem}_adopted.xml"
    out.write_text(spec.to_xml())
    cone = "elliptic" if spec.option.cone == mujoco.mjtCone.mjCONE_ELLIPTIC else "pyramidal"
    steps = max(1, round(task.sim.step_dt / STEP_S))
    exact = {"timestep": task.sim.step_dt / steps, "decimation": steps, "iterations": 100, "ls_iterations": 50}
    sim = dataclasses.replace(task.sim, cone=cone, **exact)
    from robot_rl_envs.motions.files import find_motion

    # The robot's library of motions is next to its own file.
    motions = {name: str(find_motion(value, robot, f"motions.{name}")) for name, value in task.motions.items()}
    return dataclasses.replace(task, robot=dataclasses.replace(robot, model=out), sim=sim, motions=motions)


def _strip(mujoco: Any, spec: Any) -> None:
    """Remove everything but the robot's body: meshes, ground, lights, actuators and sensors."""
    for kind in CONTROL:
        for each in list(getattr(spec, kind)):
            spec.delete(each)
    for geom in list(spec.geoms):
        if geom.type == mujoco.mjtGeom.mjGEOM_MESH or geom.meshname or geom.parent.name == "world":
            spec.delete(geom)
    for material in spec.materials:
        material.textures = [""] * len(material.textures)
    for kind in ("meshes", "textures"):
        for each in list(getattr(spec, kind)):
            spec.delete(each)


def _name_base(mujoco: Any, spec: Any, robot: Any, path: Path) -> None:
    if robot.base_body is None:
        return
    free = [joint.parent for joint in spec.joints if joint.type == mujoco.mjtJoint.mjJNT_FREE]
    if len(free) != 1:
        raise UserError("model", path, f"has {len(free)} free joints, {robot.name} floats by one")
    if free[0].name != robot.base_body:
        free[0].name = robot.base_body


def _name_feet(spec: Any, ours: Any, robot: Any) -> None:
    """Give each foot a geom of its name: the lowest one of the body that has the foot in our model."""
    for foot in robot.feet:
        if spec.geom(foot) is not None:
            continue
        body = _counterpart(spec, ours.geom(foot).parent)
        geoms = [geom for geom in body.geoms if geom.contype or geom.conaffinity] if body is not None else []
        if not geoms:
            raise UserError("model", robot.name, f"nothing of its foot {foot} touches the ground", "add a geom to it")
        min(geoms, key=lambda geom: (float(geom.pos[2]), float(geom.pos[0]))).name = foot


def _add_sites(spec: Any, ours: Any) -> None:
    for site in ours.sites:
        body = _counterpart(spec, site.parent)
        if spec.site(site.name) is None and body is not None:
            body.add_site(name=site.name, pos=site.pos, quat=site.quat)


def _counterpart(spec: Any, body: Any) -> Any:
    """Return the body of the same name or with the same joint; None if there is none."""
    found = spec.body(body.name)
    if found is None and len(body.joints):
        joint = spec.joint(body.joints[-1].name)
        found = None if joint is None else joint.parent
    return found
