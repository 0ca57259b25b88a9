"""Reads a URDF: refuses invalid robots, repairs parts that MuJoCo would refuse, decides whether the base floats."""

from __future__ import annotations

import functools
import re
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.errors import UserError
from robot_rl.robots.mesh_files import number_meshes
from robot_rl.robots.parts import Limits, Source, base_joint_name, listed

BALL_M = 0.01
"""Radius of the ball whose inertia a fixed link without a valid one gets [m]."""
TRUNK = 2
"""Most joints between a floating base and the beginning of its limbs; an arm has more before its fingers."""
JOINT_KINDS = ("fixed", "revolute", "continuous", "prismatic", "floating")
AXES = ("xx", "yy", "zz", "xy", "xz", "yz")
ROUND = ("sphere", "cylinder", "capsule")
SHAPES = {"box": "size", "sphere": "radius", "cylinder": "radius length", "capsule": "radius length", "mesh": "scale"}
"""Attributes with the size of each shape."""


class Tree:
    """Links and joints of a URDF by their names, as they are when it is built."""

    def __init__(self, root: ET.Element) -> None:
        self.links = {_name(link): link for link in root.findall("link")}
        self.joints = root.findall("joint")
        self.below: dict[str, list[ET.Element]] = {}
        for joint in self.joints:
            self.below.setdefault(_end(joint, "parent"), []).append(joint)
        self.moving = {_end(joint, "child") for joint in self.joints if _moves(joint)}
        children = {_end(joint, "child") for joint in self.joints}
        self.tops = [name for name in self.links if name not in children]
        self.trunks = [name for name in self.below if name not in children]
        self.empty = {_end(joint, end) for joint in self.joints for end in ("parent", "child")} | {*self.links}
        self.empty -= {name for name, link in self.links.items() if link.find("inertial") is not None}

    def branches(self, link: str) -> list[str]:
        """Return the links that move directly below one, or below links that are fixed to it."""
        found = []
        for joint in self.below.get(link, []):
            found += [_end(joint, "child")] if _moves(joint) else self.branches(_end(joint, "child"))
        return found

    def carrying(self, link: str) -> list[ET.Element]:
        """Return the joints of a link that move, or carry something that moves."""
        return [joint for joint in self.below.get(link, []) if _moves(joint) or self.branches(_end(joint, "child"))]


def _name(element: ET.Element) -> str:
    return str(element.get("name"))


def _end(joint: ET.Element, end: str, key: str = "link") -> str:
    """Return the link at an end of a joint, or another attribute of one of its elements; empty without the element."""
    element = joint.find(end)
    return "" if element is None else str(element.get(key))


def _moves(joint: ET.Element) -> bool:
    return joint.get("type") != "fixed"


def read_urdf(path: Path, root: ET.Element, base: str) -> Source:
    """Read a URDF, with its meshes wherever they lie around it; `root` is changed.

    Raises:
        UserError: it cannot be read, or is not a valid robot.
    """
    if root.tag != "robot":
        raise UserError("from", path, f"has <{root.tag}> instead of <robot>")
    notes = _name_joints(root)
    _check(path, root)
    tree = Tree(root)
    joints, limbs, wheels = tree.joints, count_limbs(tree), count_wheels(tree)
    floats = any(joint.get("type") == "floating" for joint in joints)
    is_floating = base == "floating" or (base == "auto" and (floats or limbs >= 2 or wheels >= 2))
    for old in root.findall("mujoco"):
        root.remove(old)
    for shape in (*root.iter("visual"), *root.iter("collision")):
        shape.attrib.pop("name", None)  # Of no use, and MuJoCo warns of each that is there twice.
    passive = find_unmotored(root, tree)
    notes += [*repair_inertias(tree), *remove_flat_shapes(tree)]
    if is_floating and (above := free_base(root)):
        notes.append(f"base: the link below {above}, which is without mass")
    spec = _parse(root, path)
    for geom in spec.geoms:  # A link without an inertia weighs nothing, even if it has a shape.
        if geom.parent.name != "world" and not geom.parent.explicitinertial:
            geom.mass = 0.0
    tops = [body for body in spec.worldbody.bodies if body.find_all("joint")] or spec.worldbody.bodies[:1]
    if is_floating and len(tops) == 1 and not tops[0].joints:
        tops[0].add_freejoint(name=base_joint_name(spec))
    if base == "auto":
        is_free = any(int(joint.type) == 0 for joint in spec.joints)
        why = "its joint is" if floats else f"the file has {limbs or 'no'} limb{'s' * (limbs != 1)}"
        why = f"{wheels} links may roll" if not floats and limbs < 2 <= wheels else why
        why = why if is_floating == is_free else "its first link moves with a joint"
        notes.append(f"base: {'floating' if is_free else 'fixed'}, since {why}; set base= to change it")
    return Source(path, spec, limits=_read_limits(path, joints), notes=notes, passive=passive)


def _name_joints(root: ET.Element) -> list[str]:
    """Name the joints without a name, so that every line can name its joint; return a note."""
    unnamed = [joint for joint in root.findall("joint") if not joint.get("name")]
    for joint in unnamed:
        joint.set("name", f"{_end(joint, 'child')}_joint")
    return [f"names: {len(unnamed)} joints had none and got one, such as '{_name(unnamed[0])}'"] if unnamed else []


def _check(path: Path, root: ET.Element) -> None:
    """Raise UserError for names that are there twice, kinds of joints that are not supported, and missing inertias."""
    tree = Tree(root)
    for kind in ("link", "joint"):
        names = Counter(_name(element) for element in root.findall(kind))
        if twice := sorted(name for name, count in names.items() if count > 1):
            raise UserError("from", path, f"{kind} '{twice[0]}' is there twice; names must be unique")
    for joint in tree.joints:
        where, kind, parent = f"from={path}: joint '{_name(joint)}'", joint.get("type"), _end(joint, "parent")
        if kind not in JOINT_KINDS:
            right = "; of a base that moves freely it is floating" if kind == "planar" else ""
            raise UserError(f"{where}: type={kind}: must be one of {', '.join(JOINT_KINDS)}{right}")
        if kind == "floating" and not (parent in tree.tops and parent in tree.empty):
            line = f"floats below link '{parent}', which is not an empty first link"
            raise UserError(f"{where} {line}; only the base of a robot may float, leave the rest in a copy")
    _check_mimics(path, tree)
    # An empty frame may float, with the base fixed to it.
    floating = {_end(joint, "child") for joint in tree.joints if joint.get("type") == "floating"}
    frames = {name for name in floating if [joint.get("type") for joint in tree.below.get(name, [])] == ["fixed"]}
    for name in tree.links:
        if name in tree.moving & tree.empty - frames:
            raise UserError("from", path, f"link '{name}' moves and has no <inertial>; give it one")


def _check_mimics(path: Path, tree: Tree) -> None:
    names = {_name(joint) for joint in tree.joints}
    leaders = {_name(joint): _end(joint, "mimic", "joint") for joint in tree.joints if joint.find("mimic") is not None}
    for name, leader in leaders.items():
        if leader not in names:
            raise UserError("from", path, f"joint '{name}' mimics '{leader}', which is not there")
        chain = [name]
        while chain[-1] in leaders and len(chain) <= len(leaders):
            chain.append(leaders[chain[-1]])
            if chain[-1] == name:
                line = f"joint '{name}' mimics itself" + (f", through {', '.join(chain[1:-1])}" if chain[1:-1] else "")
                raise UserError("from", path, f"{line}; take out one <mimic>, so that one joint leads")


def _read_limits(path: Path, joints: list[ET.Element]) -> dict[str, Limits]:
    limits = {}
    for joint in joints:
        if (limit := joint.find("limit")) is not None and joint.get("type") != "floating":
            low, high = (float(limit.get(key, 0)) for key in ("lower", "upper"))
            if low > high:
                raise UserError("from", path, f"joint '{_name(joint)}': lower={low:g} is above upper={high:g}")
            limits[_name(joint)] = Limits(*(float(limit.get(key, 0)) or None for key in ("effort", "velocity")))
    return limits


def _parse(root: ET.Element, path: Path) -> Any:
    """Return a prepared URDF as a `mujoco.MjSpec`, with the paths of its meshes."""
    import mujoco

    def read(file: Path) -> Any:
        try:
            return mujoco.MjSpec.from_file(str(file)), "", ""
        except ValueError as error:
            line = " ".join(str(error).split())
            return None, line, re.sub(r", line \d+", "", line)

    files = number_meshes(root, path)
    compiler = ET.SubElement(ET.SubElement(root, "mujoco"), "compiler")
    compiler.attrib |= {"strippath": "true", "discardvisual": "false", "fusestatic": "false"}
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "robot.urdf"
        copy.write_text(ET.tostring(root, encoding="unicode"), encoding="utf-8")
        spec, _, plain = read(copy)
    if spec is None:  # The line number is that of the file itself, if MuJoCo refuses it for the same reason.
        _, own, same = read(path)
        raise UserError("from", path, own if same == plain else plain)
    for mesh in spec.meshes:
        mesh.file = files[mesh.file]
        mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL  # Of no use, but flat meshes have one.
    return spec


def free_base(root: ET.Element) -> str:
    """Remove empty links above the base, so that the base itself floats; return their names.

    A first link such as base_footprint or world is massless, and the base is fixed to it; its height above the ground
    follows from the default pose. MuJoCo treats a first link `world` as the fixed world.
    """
    taken: list[str] = []
    while True:
        tree = Tree(root)
        top = tree.tops[0] if tree.tops else ""
        below = tree.carrying(top)
        if len(below) != 1 or top not in tree.empty or below[0].get("type") not in ("fixed", "floating"):
            break
        if top != "world":
            _rename(root, top, "world")
            taken.append(top)
        child = _end(below[0], "child")
        under = tree.carrying(child)
        origins = [_origin(joint) for joint in (*below, *under[:1])]
        if child not in tree.empty or len(under) != 1 or _moves(under[0]) or None in origins:
            break
        _merge(root, below[0], under[0], child)
        taken.append(child)
    return ", ".join(f"'{name}'" for name in taken)


def _rename(root: ET.Element, old: str, new: str) -> None:
    for link in root.findall("link"):
        if link.get("name") == old:
            link.set("name", new)
    for end in (*root.findall("joint/parent"), *root.findall("joint/child")):
        if end.get("link") == old:
            end.set("link", new)


def _merge(root: ET.Element, upper: ET.Element, lower: ET.Element, link: str) -> None:
    """Remove the link between two joints, and the upper one; all other links fixed to the link stay with the world."""
    (one, turn_1), (two, turn_2) = _frame(upper), _frame(lower)
    for old in lower.findall("origin"):
        lower.remove(old)
    turn = turn_1 @ turn_2
    pitch = float(np.arctan2(-turn[2, 0], np.hypot(turn[2, 1], turn[2, 2])))
    rpy = (float(np.arctan2(turn[2, 1], turn[2, 2])), pitch, float(np.arctan2(turn[1, 0], turn[0, 0])))
    words = [" ".join(repr(float(value)) for value in values) for values in (one + turn_1 @ two, rpy)]
    ET.SubElement(lower, "origin", {"xyz": words[0], "rpy": words[1]})
    lower.set("type", str(upper.get("type")))
    root.remove(upper)
    for element in root.findall("link"):
        if element.get("name") == link:
            root.remove(element)
    _rename(root, link, "world")


def _origin(joint: ET.Element) -> list[list[float]] | None:
    """Return xyz [m] and rpy [rad] of a joint; None unless they are three numbers each, which MuJoCo refuses."""
    origin = joint.find("origin")
    texts = ["0 0 0", "0 0 0"] if origin is None else [origin.get("xyz", "0 0 0"), origin.get("rpy", "0 0 0")]
    try:
        found = [[float(word) for word in text.split()] for text in texts]
    except ValueError:
        return None
    return found if [len(values) for values in found] == [3, 3] else None


def _frame(joint: ET.Element) -> tuple[np.ndarray, np.ndarray]:
    """Return position (3,) [m] and rotation (3, 3) of a joint's child: about x, then y, then z of the parent."""
    place, angles = (np.array(values) for values in _origin(joint) or [[0.0] * 3] * 2)
    (cr, cp, cy), (sr, sp, sy) = np.cos(angles), np.sin(angles)
    about_x = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    about_y = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    about_z = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
    return place, about_z @ about_y @ about_x


def repair_inertias(tree: Tree) -> list[str]:
    """Make valid inertias of those that MuJoCo refuses and that are near one; return notes.

    - Links that are fixed to another and have one that is not positive get a ball's: frames of sensors have any, and
      only their mass counts.
    - No body has a principal moment above the sum of the other two: the largest is divided, and the other two are
      multiplied, by one factor, so that none is further from the file's value than the others.
    """
    balls, notes = [], []
    for name, link in tree.links.items():
        inertial = link.find("inertial")
        inertia = None if inertial is None else inertial.find("inertia")
        if inertial is None or inertia is None:
            continue
        own = {axes: float(inertia.get(f"i{axes}", 0)) for axes in AXES}
        matrix = np.array([[own["".join(sorted(row + column))] for column in "xyz"] for row in "xyz"])
        moments, turn = np.linalg.eigh(matrix)
        mass = inertial.find("mass")
        weight = 0.0 if mass is None else float(mass.get("value", 0))
        if moments[0] > 0.0:
            if moments[2] <= moments[0] + moments[1]:
                continue
            factor = float(np.sqrt(moments[2] / (moments[0] + moments[1]))) * (1.0 + 1e-6)
            _write_inertia(inertia, turn @ np.diag(moments * [factor, factor, 1.0 / factor]) @ turn.T)
            if factor > 1.01:
                line = "has a principal moment above the sum of the other two"
                notes.append(f"inertia: that of '{name}' {line}; all three are changed by a factor of {factor:.3g}")
        elif name not in tree.moving and weight > 0.0:
            ball = max(float(np.trace(matrix)) / 3.0, 0.4 * weight * BALL_M**2)
            _write_inertia(inertia, ball * np.eye(3))
            balls.append(name)
        elif name not in tree.moving:
            link.remove(inertial)
    if balls:
        notes.append(f"inertia: that of {listed(balls)} is invalid, a ball's of the same mass is there")
    return notes


def _write_inertia(inertia: ET.Element, matrix: np.ndarray) -> None:
    for axes in AXES:
        inertia.set(f"i{axes}", repr(float(matrix["xyz".index(axes[0]), "xyz".index(axes[1])])))


def remove_flat_shapes(tree: Tree) -> list[str]:
    """Remove shapes of size 0, which MuJoCo refuses; return notes."""
    notes = []
    for name, link in tree.links.items():
        for shape in (*link.findall("visual"), *link.findall("collision")):
            sizes = [
                element.get(key, "1") for tag, keys in SHAPES.items() for element in shape.iter(tag)
                for key in keys.split()
            ]  # fmt: skip
            if any(map(_is_zero, " ".join(sizes).split())):
                link.remove(shape)
                notes.append(f"left out: a shape of size 0 of link '{name}'")
    return notes


def _is_zero(word: str) -> bool:
    try:
        return float(word) == 0.0
    except ValueError:
        return False


def count_limbs(tree: Tree) -> int:
    """Return how many chains of two moving joints or more begin at the first link that branches; fingers are none."""
    links, before = tree.trunks[:1], 0
    while links and before <= TRUNK:
        links = tree.branches(links[0])
        if len(links) > 1:
            return sum(bool(tree.branches(link)) for link in links)
        before += 1
    return 1


def count_wheels(tree: Tree) -> int:
    """Return how many joints turn without end, with nothing moving below, a link whose shape may roll."""
    ends = [_end(joint, "child") for joint in tree.joints if joint.get("type") == "continuous"]
    count = 0
    for end in ends:
        link = tree.links.get(end)
        if link is not None and not any(map(_moves, tree.below.get(end, []))):
            shape = (*link.findall("collision"), *link.findall("visual"))[:1]
            count += any(one.find(f"geometry/{kind}") is not None for one in shape for kind in (*ROUND, "mesh"))
    return count


def find_unmotored(root: ET.Element, tree: Tree) -> list[str]:
    """Return the joints that nothing drives, though others have motors: by transmissions, else castors.

    A castor's joints turn without end and without an effort limit, with nothing else below them.
    """
    joints = {_name(joint): joint for joint in tree.joints}
    moving = [name for name, joint in joints.items() if joint.get("type") not in ("fixed", "floating")]
    motored = {_name(one) for transmission in root.iter("transmission") for one in transmission.iter("joint")}
    followers = {name for name in moving if joints[name].find("mimic") is not None}
    if motored & set(moving):
        return [name for name in moving if name not in motored | followers]
    limits = {name: joints[name].find("limit") for name in moving}
    efforts = {name for name, limit in limits.items() if limit is not None and float(limit.get("effort", 0.0)) > 0.0}
    round_ones = {
        name for name, link in tree.links.items() for kind in ROUND if link.find(f"*/geometry/{kind}") is not None
    }

    @functools.cache
    def is_castor(name: str) -> bool:
        child, kind = _end(joints[name], "child"), joints[name].get("type")
        below = [_name(one) for one in tree.below.get(child, [])]
        turns = kind == "fixed" or (kind == "continuous" and name not in efforts)
        return turns and (all(map(is_castor, below)) if below else child in round_ones)

    return [name for name in moving if efforts and name not in followers and is_castor(name)]
