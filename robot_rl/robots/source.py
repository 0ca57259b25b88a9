"""Reads a robot from a file of MuJoCo's or a URDF, and leaves of it what is a robot."""

from __future__ import annotations

import math
import re
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.errors import UserError, suggest
from robot_rl.robots.guard import check_file
from robot_rl.robots.mesh_files import number_meshes

BASES = ("auto", "floating", "fixed")
MESHES = (".obj", ".stl", ".msh")
"""Files of meshes that MuJoCo reads."""
COLLISIONS = ("meshes", "primitives", "boxes")
BALL_M = 0.01
"""Radius of the ball that stands for the inertia of a fixed link without a valid one [m]."""
TRUNK = 2
"""Most joints between a floating base and where its limbs begin; an arm has more before its fingers."""


@dataclass(slots=True)
class Limits:
    """What a source says of a joint's motor; None where it says nothing."""

    effort: float | None = None
    velocity: float | None = None


@dataclass(slots=True)
class Source:
    """A robot that was read.

    Attributes:
        path: its file.
        spec: the `mujoco.MjSpec`, with nothing in it but the robot.
        limits: by joint.
        default: positions of joints in the source's first keyframe; empty without one.
        base: name of the floating base's body; None for a fixed one.
        coupled: joint -> the joint that it follows, by an equality of the model, and its factor and offset.
        middle: joints that the default pose has in the middle of their range, since it has no zero.
        said: what was left out or guessed, in lines.
    """

    path: Path
    spec: Any
    limits: dict[str, Limits] = field(default_factory=dict)
    default: dict[str, float] = field(default_factory=dict)
    base: str | None = None
    coupled: dict[str, tuple[str, float, float]] = field(default_factory=dict)
    middle: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def read_source(path: Path, base: str, collision: str) -> Source:
    """Read a robot.

    Args:
        path: an .xml of MuJoCo's, or a .urdf.
        base: "floating", "fixed", or "auto": as the file has it; of a URDF floating where it has several limbs.
        collision: "meshes" and "primitives" need the mesh files, "boxes" does not.

    Raises:
        UserError: the file is missing or cannot be read, a mesh is missing, or it has no joint.
    """
    if not path.exists():
        raise UserError(f"from={path}: no such file")
    if path.suffix not in (".xml", ".urdf", ".mjcf"):
        raise UserError(f"from={path}: must be an .xml of MuJoCo's or a .urdf")
    check_file(path)
    source = _read_urdf(path, base) if path.suffix == ".urdf" else _read_mjcf(path)
    spec = source.spec
    if spec.flexes:
        raise UserError(f"from={path}: has a soft body, flex '{spec.flexes[0].name}'; robots are made of rigid ones")
    _name_all(source)
    _locate_meshes(source)
    _check_meshes(source, collision)
    _note_motors(source)
    driven = {joint.name for actuator in spec.actuators if (joint := _driven_joint(spec, actuator)) is not None}
    root = _leave_the_robot(source, driven)
    _leave_plain(spec)
    _set_base(source, root, base)
    return source


def _leave_one(source: Source, driven: set[str]) -> Any:
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
    source = Source(path, spec)
    if spec.keys:
        model = _compile_bare(spec, path)
        if model is not None and len(spec.keys[0].qpos) == model.nq:
            source.default = {
                model.joint(i).name: float(spec.keys[0].qpos[model.jnt_qposadr[i]])
                for i in range(model.njnt)
                if model.jnt_type[i] in (2, 3)
            }
            source.said.append(f"default pose: that of the keyframe '{spec.keys[0].name}'")
    return source


def _compile_bare(spec: Any, path: Path) -> Any:
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


def _read_urdf(path: Path, base: str) -> Source:
    """Read a URDF, with its meshes wherever they lie around it."""
    import mujoco

    try:
        root = ET.fromstring(path.read_bytes().strip(b" \t\r\n\0"))
    except ET.ParseError as error:
        raise UserError(f"from={path}: {_line(error)}") from None
    if root.tag != "robot":
        raise UserError(f"from={path}: has <{root.tag}> instead of <robot>")
    _check_urdf(path, root)
    joints = root.findall("joint")
    limbs = _count_limbs(root)
    is_floating = base == "floating" or (base == "auto" and limbs >= 2)
    for old in root.findall("mujoco"):
        root.remove(old)
    for shape in (*root.iter("visual"), *root.iter("collision")):
        shape.attrib.pop("name", None)  # Of no use, and MuJoCo warns of each that is there twice.
    said = _round_inertias(root)
    files = number_meshes(root, path)
    compiler = ET.SubElement(ET.SubElement(root, "mujoco"), "compiler")
    compiler.attrib |= {"strippath": "true", "discardvisual": "false"}
    compiler.attrib |= {"fusestatic": "false", "balanceinertia": "true"}
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / path.name
        copy.write_text(ET.tostring(root, encoding="unicode"))
        try:
            spec = mujoco.MjSpec.from_file(str(copy))
        except ValueError as error:
            raise UserError(f"from={path}: {_urdf_line(error, path)}") from None
    for mesh in spec.meshes:
        mesh.file = files[mesh.file]
        mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL  # Of no use, but flat meshes have one.
    source = Source(path, spec, said=said)
    _leave_pointless(source)
    if is_floating:
        spec.worldbody.bodies[0].add_freejoint(name=_new_joint(spec))
    for joint in joints:
        if (limit := joint.find("limit")) is not None:
            low, high = (float(limit.get(key, 0)) for key in ("lower", "upper"))
            if low > high:
                raise UserError(f"from={path}: joint '{joint.get('name')}': lower={low:g} is above upper={high:g}")
            effort, velocity = (float(limit.get(key, 0)) or None for key in ("effort", "velocity"))
            source.limits[str(joint.get("name"))] = Limits(effort, velocity)
    for joint in joints:
        if (mimic := joint.find("mimic")) is not None:
            factor, offset = float(mimic.get("multiplier", 1.0)), float(mimic.get("offset", 0.0))
            pair = {"name1": str(joint.get("name")), "name2": str(mimic.get("joint"))}
            if pair["name2"] not in [str(other.get("name")) for other in joints]:
                line = f"joint '{pair['name1']}' mimics '{pair['name2']}', which is not there"
                raise UserError(f"from={path}: {line}")
            data = [offset, factor, *[0.0] * (len(spec.add_equality().data) - 2)]
            equality = spec.equalities[-1]
            equality.type, equality.data = mujoco.mjtEq.mjEQ_JOINT, data
            equality.name1, equality.name2 = pair["name1"], pair["name2"]
    if base == "auto":
        kind = "floating" if is_floating else "fixed"
        source.said.append(f"base: {kind}, since the file has {limbs} limbs; base= says it otherwise")
    return source


def _new_joint(spec: Any) -> str:
    """Return a name for the joint of a floating base that no other has."""
    taken = {joint.name for joint in spec.joints}
    return next(name for name in ("base_joint", *(f"base_joint_{k}" for k in range(2, 9999))) if name not in taken)


def _urdf_line(error: Exception, path: Path) -> str:
    """Return what MuJoCo says of a URDF, with the line in the file itself, whose copy has others."""
    import mujoco

    try:
        mujoco.MjSpec.from_file(str(path))
    except ValueError as own:
        return _line(own)
    return re.sub(r", line \d+", "", _line(error))


def _round_inertias(root: ET.Element) -> list[str]:
    """Give links that are fixed to another, whose inertia is invalid, that of a ball; return what is said of it.

    MuJoCo refuses an inertia that is not positive, and frames of sensors have any. Their mass is what counts.
    """
    moving, changed = _moving_links(root), []
    for link in root.findall("link"):
        inertial = link.find("inertial")
        inertia = None if inertial is None else inertial.find("inertia")
        if inertial is None or inertia is None or link.get("name") in moving:
            continue
        own = {axes: float(inertia.get(f"i{axes}", 0)) for axes in ("xx", "yy", "zz", "xy", "xz", "yz")}
        matrix = np.array([[own["".join(sorted(row + column))] for column in "xyz"] for row in "xyz"])
        if np.linalg.eigvalsh(matrix).min() > 0.0:
            continue
        mass = inertial.find("mass")
        weight = 0.0 if mass is None else float(mass.get("value", 0))
        if weight <= 0.0:
            link.remove(inertial)
            continue
        ball = max(float(np.trace(matrix)) / 3.0, 0.4 * weight * BALL_M**2)
        inertia.attrib |= {f"i{axes}": repr(ball if axes[0] == axes[1] else 0.0) for axes in own}
        changed.append(str(link.get("name")))
    which = ", ".join(changed if len(changed) <= 5 else [*changed[:5], "..."])
    return [f"inertia: that of {which} is invalid, a ball's of the same mass is there"] if changed else []


def _leave_pointless(source: Source) -> None:
    """Take out shapes of size 0 that are only seen; a link without an inertia weighs nothing, whatever its shape."""
    spec = source.spec
    for geom in list(spec.geoms):
        if geom.parent.name != "world" and not geom.parent.explicitinertial:
            geom.mass = 0.0
        if not (geom.meshname or geom.contype or geom.conaffinity or geom.size[0] > 0.0):
            source.said.append(f"left out: a shape of size 0 of link '{geom.parent.name}'")
            spec.delete(geom)


def _moving_links(root: ET.Element) -> set[str]:
    return {_name(joint.find("child"), "link") for joint in root.findall("joint") if joint.get("type") != "fixed"}


def _count_limbs(root: ET.Element) -> int:
    """Return how many chains of two moving joints or more begin at the first link that branches; fingers are none."""
    below: dict[str, list[tuple[str, bool]]] = {}
    for joint in root.findall("joint"):
        parent, child = _name(joint.find("parent"), "link"), _name(joint.find("child"), "link")
        below.setdefault(parent, []).append((child, joint.get("type") != "fixed"))
    children = {child for pairs in below.values() for child, _ in pairs}

    def depth(link: str, seen: tuple[str, ...] = ()) -> int:
        pairs = [] if link in seen else below.get(link, [])
        return max((moves + depth(child, (*seen, link)) for child, moves in pairs), default=0)

    links, before = [link for link in below if link not in children][:1], 0
    while links and before <= TRUNK:
        chains = [(child, moves + depth(child)) for child, moves in _branches(links[0], below)]
        if len([length for _, length in chains if length]) > 1:
            return sum(length >= 2 for _, length in chains)
        links, before = [child for child, length in chains if length], before + 1
    return 1


def _branches(link: str, below: Mapping[str, list[tuple[str, bool]]]) -> list[tuple[str, bool]]:
    """Return the links below one and whether each moves, through what is fixed to it."""
    found = []
    for child, moves in below.get(link, []):
        found += [(child, True)] if moves else _branches(child, below)
    return found


def _check_urdf(path: Path, root: ET.Element) -> None:
    names = [str(joint.get("name")) for joint in root.findall("joint")]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"from={path}: joint '{twice[0]}' is there twice; names must be unique")
    moving = _moving_links(root)
    for link in root.findall("link"):
        if link.get("name") in moving and link.find("inertial") is None:
            raise UserError(f"from={path}: link '{link.get('name')}' moves and has no <inertial>; give it one")


def _name(element: ET.Element | None, key: str) -> str:
    return "" if element is None else str(element.get(key))


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
    folders = [source.path.parent, *_attached_folders(source.path)] if source.path.suffix != ".urdf" else []
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
    unread = {mesh.name for mesh in spec.meshes if mesh.file and Path(mesh.file).suffix.lower() not in MESHES}
    seen_only = unread - {geom.meshname for geom in spec.geoms if geom.contype or geom.conaffinity}
    for geom in [geom for geom in spec.geoms if geom.meshname in seen_only]:
        spec.delete(geom)
    for mesh in [mesh for mesh in spec.meshes if mesh.name in seen_only]:
        spec.delete(mesh)
    if seen_only:
        source.said.append(
            f"left out: {len(seen_only)} meshes that are only seen, in a format that MuJoCo does not read"
        )


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
        if mesh.file and Path(mesh.file).suffix.lower() not in MESHES:
            raise UserError(
                f"{where} is a {Path(mesh.file).suffix}, which MuJoCo does not read; make it an .obj or .stl, {right}"
            )


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


def _note_motors(source: Source) -> None:
    """Take the limits of the motors from actuators and joints."""
    spec = source.spec
    for actuator in spec.actuators:
        joint = _driven_joint(spec, actuator)
        if joint is None:
            continue
        gear = abs(float(actuator.gear[0])) or 1.0
        found: float | None = None
        if actuator.forcerange[1] > 0:
            found = float(actuator.forcerange[1]) * gear
        elif actuator.ctrlrange[1] > 0 and not actuator.biasprm[1]:
            found = float(actuator.ctrlrange[1]) * gear * (float(actuator.gainprm[0]) or 1.0)
        if found:
            source.limits.setdefault(joint.name, Limits()).effort = found
    for joint in spec.joints:
        if joint.actfrcrange[1] > 0:
            limits = source.limits.setdefault(joint.name, Limits())
            limits.effort = limits.effort or float(joint.actfrcrange[1])


def _driven_joint(spec: Any, actuator: Any) -> Any:
    """Return the joint that an actuator drives, of a fixed tendon its first; None where there is none."""
    import mujoco

    if actuator.trntype != mujoco.mjtTrn.mjTRN_TENDON:
        return spec.joint(actuator.target) if actuator.target else None
    tendon = spec.tendon(actuator.target)
    wraps = [wrap for wrap in tendon.path if wrap.type == mujoco.mjtWrap.mjWRAP_JOINT] if tendon else []
    return wraps[0].target if wraps else None


def _note_couplings(source: Source) -> None:
    """Take which joint follows which from the model's equalities; a driven one is followed, not a follower."""
    import mujoco

    spec = source.spec
    names = [joint.name for joint in spec.joints]
    for equality in list(spec.equalities):
        if equality.type != mujoco.mjtEq.mjEQ_JOINT or equality.name1 not in names or equality.name2 not in names:
            continue
        offset, factor, *higher = (float(value) for value in equality.data[:5])
        if any(higher) or not factor:
            continue
        follower, leader = equality.name1, equality.name2
        if follower in source.limits and leader not in source.limits:
            follower, leader, offset, factor = leader, follower, -offset / factor, 1.0 / factor
        source.coupled[follower] = (leader, factor, offset)
        source.said.append(f"coupled: joint '{follower}' follows '{leader}'; one action drives both")


def _leave_the_robot(source: Source, driven: set[str]) -> Any:
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
    _note_couplings(source)
    pairs = [{follower, leader} for follower, (leader, *_) in source.coupled.items()]
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
            source.middle.append(name)
        found[name] = float(np.round(value, 6))
    for name, (leader, factor, offset) in source.coupled.items():
        found[name] = offset + factor * found[leader]
    return found
