"""Reads a robot from a file of MuJoCo's or a URDF, and removes everything that is not part of the robot."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.errors import UserError
from robot_rl.robots.guard import check_file
from robot_rl.robots.mesh_files import check_meshes, locate_meshes
from robot_rl.robots.motors import note_motors
from robot_rl.robots.parts import Source, base_joint_name, free_name, listed, remove_all
from robot_rl.robots.shapes import compile_source
from robot_rl.robots.urdf import read_urdf

BASES = ("auto", "floating", "fixed")
COLLISIONS = ("meshes", "primitives", "boxes")
FREE, BALL, SCALARS = 0, 1, (2, 3)
"""Types of joints of MuJoCo's; the last are a slide and a hinge."""
TAKEN = {"geoms": ("floor",), "hfields": ("floor",), "textures": ("sky", "terrain"), "materials": ("terrain",)}
"""Names that a scene gives to its own ground and sky, by the list of the `mujoco.MjSpec`."""
NAMED = ("bodies", "joints", "geoms", "sites", "meshes", "materials", "textures", "tendons", "keys")


def read_source(path: Path, base: str, collision: str) -> Source:
    """Read a robot.

    Args:
        path: an .xml of MuJoCo's, or a .urdf.
        base: "floating", "fixed", or "auto": as the file has it; a URDF floats if it has several limbs or wheels.
        collision: "meshes" and "primitives" need the mesh files, "boxes" does not.

    Raises:
        UserError: the file is missing or cannot be read, a mesh is missing, or it does not have a joint.
    """
    if not path.exists():
        raise UserError("from", path, "no such file")
    kind = path.suffix.lower()
    if kind not in (".xml", ".urdf", ".mjcf"):
        raise UserError("from", path, "must be an .xml of MuJoCo's or a .urdf")
    root, folders = check_file(path)
    is_urdf = kind == ".urdf" or root.tag == "robot"
    source = read_urdf(path, root, base) if is_urdf else _read_mjcf(path, folders)
    spec = source.spec
    if spec.flexes:
        raise UserError("from", path, f"has a soft body, flex '{spec.flexes[0].name}'; robots are made of rigid ones")
    _name_all(source)
    _read_keyframe(source)
    locate_meshes(source)
    check_meshes(source, collision)
    driven = note_motors(source)
    robot = _remove_others(source, driven)
    if driven:
        source.passive = [
            joint.name for joint in spec.joints if int(joint.type) in SCALARS and joint.name not in driven
        ]
    source.passive = [name for name in source.passive if name not in source.coupled]
    if source.passive:
        source.notes.append(f"passive: {', '.join(source.passive)}, which no motor drives")
    _remove_looks(spec)
    _reset_options(source)
    _rename_taken(source)
    _set_base(source, robot, base)
    return source


def _read_mjcf(path: Path, folders: list[Path]) -> Source:
    import mujoco

    try:
        spec = mujoco.MjSpec.from_file(str(path))
    except ValueError as error:
        line = " ".join(str(error).split())
        if "'mujocoinclude'" in line:
            line = "is a fragment (<mujocoinclude>), no model; take the file that includes it"
        raise UserError("from", path, line) from None
    return Source(path, spec, folders=[path.parent, *folders])


def _name_all(source: Source) -> None:
    """Name bodies and joints without a name, so that lines can name them.

    Raises:
        UserError: a name has a line break, which XML takes for a space and MuJoCo does not.
    """
    spec = source.spec
    for kind in NAMED:
        for element in getattr(spec, kind):
            if not element.name.isprintable():
                line = f"a name of its {kind} has {element.name[:60]!a}; use letters, digits and _ - . /"
                raise UserError("from", source.path, line)
    for kind in ("bodies", "joints"):
        taken, count = {element.name for element in getattr(spec, kind)}, 0
        for element in getattr(spec, kind):
            if element.name or (kind == "joints" and int(element.type) == FREE):
                continue
            element.name = name = free_name(f"{element.parent.name}_joint" if kind == "joints" else "body", taken)
            count += 1
            taken.add(name)
        if count:
            source.notes.append(f"names: {count} {kind} had none and got one, such as '{name}'")


def _read_keyframe(source: Source) -> None:
    """Read positions of joints, and orientations of bases, from the first keyframe."""
    spec = source.spec
    try:
        model = compile_source(source, without_meshes=True) if spec.keys else None
    except UserError:
        return
    if model is None or len(spec.keys[0].qpos) != model.nq:
        return
    qpos = np.array(list(spec.keys[0].qpos))
    for i in range(model.njnt):
        at = int(model.jnt_qposadr[i])
        if model.jnt_type[i] in SCALARS:
            source.default[model.joint(i).name] = float(qpos[at])
        elif model.jnt_type[i] == FREE and np.linalg.norm(qpos[at + 3 : at + 7]) > 1e-6:
            source.turned[model.body(int(model.jnt_bodyid[i])).name] = qpos[at + 3 : at + 7]
    source.notes.append(f"default pose: that of the keyframe '{spec.keys[0].name}'")


def _remove_others(source: Source, driven: list[str]) -> Any:
    """Remove everything but the robot: the bodies that motors drive, else those with hinges or slides; return its root.

    Args:
        source: the file that was read.
        driven: joints with an actuator.
    """
    spec, notes, path = source.spec, source.notes, source.path
    for kind in ("actuators", "sensors", "keys", "lights", "cameras", "excludes", "pairs"):
        remove_all(spec, getattr(spec, kind, ()))
    remove_all(spec, [*spec.worldbody.geoms, *spec.worldbody.sites])
    joints = {body.name: body.find_all("joint") for body in spec.worldbody.bodies}
    for body in [body for body in spec.worldbody.bodies if not joints[body.name]]:
        notes.append(f"left out: body '{body.name}', which does not move")
        spec.delete(body)
    roots = list(spec.worldbody.bodies)
    if not roots:
        raise UserError("from", path, "is without a joint; a robot has some")
    found = {body.name: [one.name for one in joints[body.name] if int(one.type) != FREE] for body in roots}
    kept = [name for name, names in found.items() if {*names} & {*driven}] or [name for name in found if found[name]]
    if not kept:
        raise UserError("from", path, "has only bodies that move freely, without a hinge or slide; a robot has joints")
    if len(kept) > 1:
        line = f"has {len(kept)} things that could be the robot ({listed(kept)}); leave one in a copy"
        raise UserError("from", path, line)
    for body in [body for body in roots if body.name != kept[0]]:
        notes.append(f"left out: body '{body.name}', which moves by itself")
        for name in found[body.name]:
            source.limits.pop(name, None)
            source.default.pop(name, None)
        spec.delete(body)
    pairs = _read_couplings(source, driven)
    for kind in ("tendons", "equalities"):
        ends = [(one, {getattr(one, "name1", ""), getattr(one, "name2", "")}) for one in getattr(spec, kind, ())]
        if count := remove_all(spec, [one for one, names in ends if names not in pairs]):
            notes.append(f"left out: {count} {kind}; our joints are driven one by one")
    return spec.body(kept[0])


def _read_couplings(source: Source, driven: list[str]) -> list[set[str]]:
    """Read from the model's equalities which joint follows which; return the pairs of joints that stay coupled.

    Raises:
        UserError: they follow each other in a circle.
    """
    import mujoco
    from robot_rl_envs.entity.couplings import find_leaders

    names, found = {joint.name for joint in source.spec.joints}, []
    for equality in source.spec.equalities:
        offset, factor, *higher = (float(value) for value in equality.data[:5])
        is_pair = equality.type == mujoco.mjtEq.mjEQ_JOINT and {equality.name1, equality.name2} <= names
        if is_pair and equality.active and factor and not any(higher):
            found.append((equality.name1, equality.name2, factor, offset))
    try:
        source.coupled = find_leaders(found, driven)
    except ValueError as error:
        raise UserError("from", source.path, str(error)) from None
    for follower, (leader, *_) in source.coupled.items():
        source.notes.append(f"coupled: joint '{follower}' follows '{leader}'; one action drives both")
    return [{one, two} for one, two, *_ in found]


def _remove_looks(spec: Any) -> None:
    """Remove skins and textures from files, and reset defaults that would reach elements added later.

    Its defaults are in every element already.
    """
    import mujoco

    remove_all(spec, getattr(spec, "skins", ()))
    files = {texture.name for texture in spec.textures if texture.file or any(texture.cubefiles)}
    for material in spec.materials:
        if files & set(material.textures):
            material.textures = ["" if name in files else name for name in material.textures]
    remove_all(spec, [texture for texture in spec.textures if texture.name in files])
    default, nothing = spec.default, [math.nan, 0.0, 0.0, 0.0, 0.0, 0.0]
    for shape in (default.geom, default.site):
        shape.fromto, shape.pos, shape.quat = nothing, [0.0] * 3, [1.0, 0.0, 0.0, 0.0]
    default.geom.type, default.geom.size, default.geom.meshname = mujoco.mjtGeom.mjGEOM_SPHERE, [0.0] * 3, ""
    default.actuator.ctrllimited = default.actuator.forcelimited = mujoco.mjtLimited.mjLIMITED_AUTO
    default.actuator.ctrlrange = default.actuator.forcerange = [0.0, 0.0]
    for element in (*spec.geoms, *spec.sites):
        element.classname = default
    spec.nkey = 0


def _reset_options(source: Source) -> None:
    """Reset the options of the source's own scene, such as its gravity or disabled contacts; a task has its own."""
    import mujoco

    spec, plain, found = source.spec, mujoco.MjSpec(), []
    options = [(spec.option, plain.option, name) for name in dir(plain.option) if not name.startswith("_")]
    for own, default, name in (*options, *((spec, plain, name) for name in ("memory", "njmax", "nconmax", "nstack"))):
        value = getattr(default, name)
        if not np.array_equal(value, getattr(own, name)):
            setattr(own, name, value)
            found.append(name)
    if found:
        source.notes.append(f"left out: {', '.join(found)}: options of the source's scene; a task sets its own")
    if carried := [body.name for body in spec.bodies if body.gravcomp]:
        line = f"MuJoCo carries the weight of {listed(carried)} (gravcomp in model.xml)"
        source.notes.append(f"gravity compensation: kept, {line}")


def _rename_taken(source: Source) -> None:
    """Rename elements with a name of the scene's own ground and sky."""
    spec = source.spec
    for kind, names in TAKEN.items():
        elements = list(getattr(spec, kind))
        for element in [element for element in elements if element.name in names]:
            old = element.name
            new = free_name(f"robot_{old}", {other.name for other in elements})
            for user in (*spec.geoms, *spec.sites) if kind == "materials" else ():
                user.material = new if user.material == old else user.material
            for material in spec.materials if kind == "textures" else ():
                material.textures = [new if name == old else name for name in material.textures]
            element.name = new
            source.notes.append(f"names: '{old}' of the {kind} is now '{new}'; the scene has its own '{old}'")


def _set_base(source: Source, root: Any, base: str) -> None:
    spec = source.spec
    if balls := [joint.name for joint in spec.joints if int(joint.type) == BALL]:
        raise UserError("from", source.path, f"joint '{balls[0]}' is a ball; joints must be hinges or slides")
    free = [joint for joint in spec.joints if int(joint.type) == FREE]
    if base == "fixed":
        remove_all(spec, free)
    elif free:
        source.base = free[0].parent.name
    elif base == "floating":
        if root.joints:
            line = f"body '{root.name}' of {source.path} has its own joints; write base=fixed"
            raise UserError("base", "floating", line)
        root.add_freejoint(name=base_joint_name(spec))
        source.base = root.name
