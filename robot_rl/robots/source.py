"""Reads a robot from a file of MuJoCo's or a URDF, and leaves of it what is a robot."""

from __future__ import annotations

import math
import re
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.errors import UserError, suggest
from robot_rl.robots import urdf
from robot_rl.robots.guard import check_file
from robot_rl.robots.mesh_files import mesh_fault, number_meshes
from robot_rl.robots.motors import note_motors
from robot_rl.robots.parts import Limits, Source

BASES = ("auto", "floating", "fixed")
COLLISIONS = ("meshes", "primitives", "boxes")
TAKEN = {"geoms": ("floor",), "hfields": ("floor",), "textures": ("sky", "terrain"), "materials": ("terrain",)}
"""Names that a scene gives to its own ground and sky, by the list of the `mujoco.MjSpec`."""


def read_source(path: Path, base: str, collision: str) -> Source:
    """Read a robot.

    Args:
        path: an .xml of MuJoCo's, or a .urdf.
        base: "floating", "fixed", or "auto": as the file has it; a URDF floats where it has several limbs or wheels.
        collision: "meshes" and "primitives" need the mesh files, "boxes" does not.

    Raises:
        UserError: the file is missing or cannot be read, a mesh is missing, or it has no joint.
    """
    if not path.exists():
        raise UserError(f"from={path}: no such file")
    kind = path.suffix.lower()
    if kind not in (".xml", ".urdf", ".mjcf"):
        raise UserError(f"from={path}: must be an .xml of MuJoCo's or a .urdf")
    root = check_file(path)
    is_urdf = kind == ".urdf" or root.tag == "robot"
    source = _read_urdf(path, root, base) if is_urdf else _read_mjcf(path)
    spec = source.spec
    if spec.flexes:
        raise UserError(f"from={path}: has a soft body, flex '{spec.flexes[0].name}'; robots are made of rigid ones")
    _check_names(source)
    _name_all(source)
    _note_keyframe(source)
    _locate_meshes(source)
    _check_meshes(source, collision)
    driven = note_motors(source)
    root = _leave_the_robot(source, driven)
    if driven:
        kept = [joint.name for joint in spec.joints if int(joint.type) in (2, 3)]
        source.passive = [name for name in kept if name not in {*driven, *source.coupled}]
    source.passive = [name for name in source.passive if name not in source.coupled]
    if source.passive:
        source.said.append(f"passive: {', '.join(source.passive)}, which no motor drives")
    _leave_plain(spec)
    _leave_options(source)
    _rename_taken(source)
    _set_base(source, root, base)
    return source


def _leave_one(source: Source, driven: list[str]) -> Any:
    """Leave the one thing that is a robot: what motors drive, else what has hinges or slides; return its root."""
    spec, path = source.spec, source.path
    roots = [body for body in spec.worldbody.bodies if _moves(body)]
    if not roots:
        raise UserError(f"from={path}: has no joint; a robot has some")
    found = {body.name: [joint for joint in _joints_below(body) if not _is_free(joint)] for body in roots}
    moved = [body for body in roots if any(joint.name in driven for joint in found[body.name])]
    kept = moved or [body for body in roots if found[body.name]]
    if not kept:
        raise UserError(f"from={path}: has no hinge or slide, only bodies that move freely; a robot has joints")
    if len(kept) > 1:
        names = [body.name for body in kept]
        few = ", ".join(names if len(names) <= 5 else [*names[:5], "..."])
        raise UserError(f"from={path}: has {len(kept)} things that could be the robot ({few}); leave one in a copy")
    for body in roots:
        if body.name != kept[0].name:
            source.said.append(f"left out: body '{body.name}', which moves by itself")
            for joint in found[body.name]:
                source.limits.pop(joint.name, None)
                source.default.pop(joint.name, None)
            spec.delete(body)
    return spec.body(kept[0].name)


def _joints_below(body: Any) -> list[Any]:
    return [*body.joints, *(joint for child in body.bodies for joint in _joints_below(child))]


def _read_mjcf(path: Path) -> Source:
    import mujoco

    try:
        spec = mujoco.MjSpec.from_file(str(path))
    except ValueError as error:
        if "'mujocoinclude'" in str(error):
            line = "is a fragment (<mujocoinclude>), no model; take the file that includes it"
            raise UserError(f"from={path}: {line}") from None
        raise UserError(f"from={path}: {_line(error)}") from None
    return Source(path, spec)


def _note_keyframe(source: Source) -> None:
    """Take positions of joints, and how bases are turned, from the first keyframe."""
    spec, found = source.spec, source.default
    model = _compile_bare(spec) if spec.keys else None
    if model is None or len(spec.keys[0].qpos) != model.nq:
        return
    qpos = np.array(list(spec.keys[0].qpos))
    for i in range(model.njnt):
        at = int(model.jnt_qposadr[i])
        if model.jnt_type[i] in (2, 3):
            found[model.joint(i).name] = float(qpos[at])
        elif model.jnt_type[i] == 0 and np.linalg.norm(qpos[at + 3 : at + 7]) > 1e-6:
            source.turned[model.body(int(model.jnt_bodyid[i])).name] = qpos[at + 3 : at + 7]
    source.said.append(f"default pose: that of the keyframe '{spec.keys[0].name}'")


def _compile_bare(spec: Any) -> Any:
    """Return the model without its meshes, for the addresses of its joints; None where it does not compile."""
    copy = spec.copy()
    for geom in [geom for geom in copy.geoms if geom.meshname]:
        copy.delete(geom)
    for mesh in list(copy.meshes):
        copy.delete(mesh)
    try:
        return copy.compile()
    except ValueError:
        return None


def _read_urdf(path: Path, root: ET.Element, base: str) -> Source:
    """Read a URDF, with its meshes wherever they lie around it."""
    if root.tag != "robot":
        raise UserError(f"from={path}: has <{root.tag}> instead of <robot>")
    said = urdf.name_joints(root)
    urdf.check_urdf(path, root)
    joints, limbs, wheels = root.findall("joint"), urdf.count_limbs(root), urdf.count_wheels(root)
    floats = any(joint.get("type") == "floating" for joint in joints)
    is_floating = base == "floating" or (base == "auto" and (floats or limbs >= 2 or wheels >= 2))
    for old in root.findall("mujoco"):
        root.remove(old)
    for shape in (*root.iter("visual"), *root.iter("collision")):
        shape.attrib.pop("name", None)  # Of no use, and MuJoCo warns of each that is there twice.
    passive = urdf.unmotored(root)
    said += [*urdf.repair_inertias(root), *urdf.drop_pointless(root)]
    if is_floating and (above := urdf.free_base(root)):
        said.append(f"base: the link below {above}, which has no mass")
    spec = _parse_urdf(root, path)
    source = Source(path, spec, said=said, passive=passive, is_urdf=True)
    for geom in spec.geoms:  # A link without an inertia weighs nothing, whatever its shape.
        if geom.parent.name != "world" and not geom.parent.explicitinertial:
            geom.mass = 0.0
    tops = [body for body in spec.worldbody.bodies if _moves(body)] or spec.worldbody.bodies[:1]
    if is_floating and len(tops) == 1 and not tops[0].joints:
        tops[0].add_freejoint(name=_new_joint(spec))
    for joint in joints:
        if (limit := joint.find("limit")) is not None and joint.get("type") != "floating":
            low, high = (float(limit.get(key, 0)) for key in ("lower", "upper"))
            if low > high:
                raise UserError(f"from={path}: joint '{joint.get('name')}': lower={low:g} is above upper={high:g}")
            effort, velocity = (float(limit.get(key, 0)) or None for key in ("effort", "velocity"))
            source.limits[str(joint.get("name"))] = Limits(effort, velocity)
    if base == "auto":
        kind = "floating" if any(_is_free(joint) for joint in spec.joints) else "fixed"
        why = "its joint is" if floats else f"the file has {limbs} limbs"
        why = f"{wheels} links may roll" if not floats and limbs < 2 <= wheels else why
        why = why if is_floating == (kind == "floating") else "its first link moves with a joint"
        source.said.append(f"base: {kind}, since {why}; base= says it otherwise")
    return source


def _parse_urdf(root: ET.Element, path: Path) -> Any:
    """Return a prepared URDF as a `mujoco.MjSpec`, with the paths of its meshes."""
    import mujoco

    files = number_meshes(root, path)
    compiler = ET.SubElement(ET.SubElement(root, "mujoco"), "compiler")
    compiler.attrib |= {"strippath": "true", "discardvisual": "false", "fusestatic": "false"}
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "robot.urdf"
        copy.write_text(ET.tostring(root, encoding="unicode"), encoding="utf-8")
        try:
            spec = mujoco.MjSpec.from_file(str(copy))
        except ValueError as error:
            raise UserError(f"from={path}: {_urdf_line(error, path)}") from None
    for mesh in spec.meshes:
        mesh.file = files[mesh.file]
        mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL  # Of no use, but flat meshes have one.
    return spec


def _new_joint(spec: Any) -> str:
    """Return a name for the joint of a floating base that no other has."""
    taken = {joint.name for joint in spec.joints}
    return next(name for name in ("base_joint", *(f"base_joint_{k}" for k in range(2, 9999))) if name not in taken)


def _urdf_line(error: Exception, path: Path) -> str:
    """Return what MuJoCo says of a URDF, with the line in the file itself, whose copy has others."""
    import mujoco

    plain = re.sub(r", line \d+", "", _line(error))
    try:
        mujoco.MjSpec.from_file(str(path))
    except ValueError as own:
        return _line(own) if re.sub(r", line \d+", "", _line(own)) == plain else plain
    return plain


def _check_names(source: Source) -> None:
    """Refuse names with line breaks, which XML takes for spaces and MuJoCo for what they are."""
    spec = source.spec
    for kind in ("bodies", "joints", "geoms", "sites", "meshes", "materials", "textures", "tendons", "keys"):
        for element in getattr(spec, kind):
            if not element.name.isprintable():
                line = f"a name of its {kind} has {element.name[:60]!a}; use letters, digits and _ - . /"
                raise UserError(f"from={source.path}: {line}")


def _name_all(source: Source) -> None:
    """Give bodies and joints without a name one, so that lines about them can say which."""
    spec = source.spec
    for kind in ("bodies", "joints"):
        taken, count = {element.name for element in getattr(spec, kind)}, 0
        for element in getattr(spec, kind):
            if element.name or (kind == "joints" and _is_free(element)):
                continue
            stem = f"{element.parent.name}_joint" if kind == "joints" else "body"
            name = next(f"{stem}_{k}" for k in range(1, 10_000) if f"{stem}_{k}" not in taken)
            element.name, count = name, count + 1
            taken.add(name)
        if count:
            source.said.append(f"names: {count} {kind} had none and got one, such as '{name}'")


def _locate_meshes(source: Source) -> None:
    """Write each mesh's own path into it, and leave out what is only seen and no file that MuJoCo reads.

    A mesh of an attached model is in that model's folder.
    """
    spec = source.spec
    folders = [] if source.is_urdf else [source.path.parent, *_attached_folders(source.path)]
    for mesh in spec.meshes:
        if mesh.file:
            mesh.name = mesh.name or Path(mesh.file).stem
            paths = [(folder / mesh.compiler.meshdir / mesh.file).resolve() for folder in folders] or [Path(mesh.file)]
            there = {path.read_bytes(): path for path in paths if path.is_file()}
            if len(there) > 1:
                line = f"mesh '{mesh.name}' may be any of {', '.join(str(path) for path in there.values())}"
                raise UserError(f"from={source.path}: {line}; give the files different names")
            mesh.file = str(next(iter(there.values()), paths[0]))
    spec.meshdir, spec.strippath = "", False
    touching = {geom.meshname for geom in spec.geoms if geom.contype or geom.conaffinity}
    faults = {mesh.name: mesh_fault(Path(mesh.file)) for mesh in spec.meshes if mesh.file}
    seen_only = {name: fault for name, fault in faults.items() if fault and name not in touching}
    for geom in [geom for geom in spec.geoms if geom.meshname in seen_only]:
        spec.delete(geom)
    for mesh in [mesh for mesh in spec.meshes if mesh.name in seen_only]:
        spec.delete(mesh)
    for fault in dict.fromkeys(seen_only.values()):
        count = list(seen_only.values()).count(fault)
        source.said.append(f"left out: {count} meshes that are only seen: each {fault}")


def _attached_folders(path: Path, seen: tuple[Path, ...] = ()) -> list[Path]:
    """Return the folders of the models that a model attaches, and of theirs, through what they include."""
    try:
        root = ET.parse(path).getroot()
    except (ET.ParseError, OSError):
        return []
    found = []
    for element in (*root.iter("model"), *root.iter("include")):
        own = (path.parent / str(element.get("file"))).resolve()
        if own in seen or not element.get("file"):
            continue
        if element.tag == "model":
            found.append(own.parent)
        found += _attached_folders(own, (*seen, own))
    return list(dict.fromkeys(found))


def _check_meshes(source: Source, collision: str) -> None:
    """Raise UserError for a mesh file that is missing or cannot be read, and is needed."""
    if collision == "boxes":
        return
    right = "or write collision=boxes, which replaces meshes by boxes of the bodies' inertia"
    for mesh in source.spec.meshes:
        where = f"from={source.path}: mesh '{mesh.name}'"
        if mesh.file and not Path(mesh.file).is_file():
            raise UserError(f"{where} is missing: {mesh.file}; put it there, {right}")
        if mesh.file and (fault := mesh_fault(Path(mesh.file))):
            raise UserError(f"{where} {fault}, {right}")


def _leave_plain(spec: Any) -> None:
    """Take out skins and textures from files, and reset what would reach elements that are added later.

    Its defaults are in every element already.
    """
    import mujoco

    for skin in list(getattr(spec, "skins", ())):
        spec.delete(skin)
    files = {texture.name for texture in spec.textures if texture.file or any(texture.cubefiles)}
    for material in spec.materials:
        if files & set(material.textures):
            material.textures = ["" if name in files else name for name in material.textures]
    for texture in [texture for texture in spec.textures if texture.name in files]:
        spec.delete(texture)
    default, nothing = spec.default, [math.nan, 0.0, 0.0, 0.0, 0.0, 0.0]
    default.geom.fromto, default.geom.pos, default.geom.quat = nothing, [0.0] * 3, [1.0, 0.0, 0.0, 0.0]
    default.geom.type, default.geom.size, default.geom.meshname = mujoco.mjtGeom.mjGEOM_SPHERE, [0.0] * 3, ""
    default.site.fromto, default.site.pos, default.site.quat = nothing, [0.0] * 3, [1.0, 0.0, 0.0, 0.0]
    default.actuator.ctrllimited = default.actuator.forcelimited = mujoco.mjtLimited.mjLIMITED_AUTO
    default.actuator.ctrlrange = default.actuator.forcerange = [0.0, 0.0]
    for element in (*spec.geoms, *spec.sites):
        element.classname = default
    spec.nkey = 0


def _leave_options(source: Source) -> None:
    """Reset the options of the source's own scene, such as its gravity or that nothing touches; a task has its own."""
    import mujoco

    spec, plain = source.spec, mujoco.MjSpec()
    found = []
    for name in (name for name in dir(plain.option) if not name.startswith("_")):
        value = getattr(plain.option, name)
        if not np.array_equal(value, getattr(spec.option, name)):
            setattr(spec.option, name, value)
            found.append(name)
    for name in ("memory", "njmax", "nconmax", "nstack"):
        if getattr(spec, name) != getattr(plain, name):
            setattr(spec, name, getattr(plain, name))
            found.append(name)
    if found:
        source.said.append(f"left out: {', '.join(found)}: options of the source's scene; a task sets its own")
    if carried := [body.name for body in spec.bodies if body.gravcomp]:
        names = ", ".join(carried if len(carried) <= 5 else [*carried[:5], "..."])
        source.said.append(f"gravity compensation: kept, MuJoCo carries the weight of {names} (gravcomp in model.xml)")


def _rename_taken(source: Source) -> None:
    """Rename what has a name of the scene's own ground and sky."""
    spec = source.spec
    for kind, names in TAKEN.items():
        elements = list(getattr(spec, kind))
        for element in [element for element in elements if element.name in names]:
            old, taken = element.name, {*(other.name for other in elements), *names}
            new = next(name for k in range(1, 10_000) if (name := f"robot_{old}_{k}") not in taken)
            for user in (*spec.geoms, *spec.sites) if kind == "materials" else ():
                user.material = new if user.material == old else user.material
            for material in spec.materials if kind == "textures" else ():
                material.textures = [new if name == old else name for name in material.textures]
            element.name = new
            source.said.append(f"names: '{old}' of the {kind} is now '{new}'; the scene has its own '{old}'")


def _note_couplings(source: Source, driven: list[str]) -> list[set[str]]:
    """Take which joint follows which from the model's equalities; return the pairs of joints that stay coupled.

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
        raise UserError(f"from={source.path}: {error}") from None
    for follower, (leader, *_) in source.coupled.items():
        source.said.append(f"coupled: joint '{follower}' follows '{leader}'; one action drives both")
    return [{one, two} for one, two, *_ in found]


def _leave_the_robot(source: Source, driven: list[str]) -> Any:
    """Take out actuators, sensors, keyframes, lights, cameras, contacts, and what is beside the robot; return its root.

    Args:
        source: what was read.
        driven: joints with an actuator.
    """
    spec = source.spec
    for kind in ("actuators", "sensors", "keys", "lights", "cameras", "excludes", "pairs"):
        for element in list(getattr(spec, kind, ())):
            spec.delete(element)
    for kind in ("geoms", "sites"):
        for element in list(getattr(spec.worldbody, kind)):
            spec.delete(element)
    for body in [body for body in spec.worldbody.bodies if not _moves(body)]:
        source.said.append(f"left out: body '{body.name}', which does not move")
        spec.delete(body)
    root = _leave_one(source, driven)
    pairs = _note_couplings(source, driven)
    for kind in ("tendons", "equalities"):
        elements = [
            e for e in getattr(spec, kind, ()) if {getattr(e, "name1", ""), getattr(e, "name2", "")} not in pairs
        ]
        if elements:
            source.said.append(f"left out: {len(elements)} {kind}; our joints are driven one by one")
            for element in elements:
                spec.delete(element)
    return root


def _moves(body: Any) -> bool:
    return bool(body.joints) or any(_moves(child) for child in body.bodies)


def _set_base(source: Source, root: Any, base: str) -> None:
    import mujoco

    spec = source.spec
    free = [joint for joint in spec.joints if joint.type == mujoco.mjtJoint.mjJNT_FREE]
    if any(joint.type == mujoco.mjtJoint.mjJNT_BALL for joint in spec.joints):
        ball = next(joint for joint in spec.joints if joint.type == mujoco.mjtJoint.mjJNT_BALL)
        raise UserError(f"from={source.path}: joint '{ball.name}' is a ball; joints must be hinges or slides")
    if base == "fixed":
        for joint in free:
            spec.delete(joint)
    elif base == "floating" and not free:
        if root.joints:
            raise UserError(
                f"base=floating: body '{root.name}' of {source.path} has joints of its own; write base=fixed"
            )
        root.add_freejoint(name=_new_joint(spec))
        free = [root]
    if free and base != "fixed":
        owner = next(body for body in spec.bodies if any(_is_free(joint) for joint in body.joints))
        source.base = owner.name


def _is_free(joint: Any) -> bool:
    import mujoco

    return joint.type == mujoco.mjtJoint.mjJNT_FREE


def require_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise UserError for a value that is none of the choices."""
    if value not in choices:
        raise UserError(f"{key}={value}: must be one of {', '.join(choices)}; {suggest(value, choices)}")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def positions(source: Source, names: list[str], ranges: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Return the default pose: that of the source, else zero, else the middle of a range that has no zero."""
    found = {}
    for name in names:
        low, high = ranges[name]
        value = source.default.get(name, 0.0)
        if not low <= value <= high:
            value = 0.5 * (low + high)
            if name not in source.coupled:
                source.middle.append(name)
        found[name] = float(np.round(value, 6))
    return found
