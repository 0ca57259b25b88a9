"""Prepares a URDF for MuJoCo: what is refused with a line, and what is changed in its elements and said."""

from __future__ import annotations

import functools
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from robot_rl.errors import UserError

BALL_M = 0.01
"""Radius of the ball that stands for the inertia of a fixed link without a valid one [m]."""
TRUNK = 2
"""Most joints between a floating base and where its limbs begin; an arm has more before its fingers."""
JOINT_KINDS = ("fixed", "revolute", "continuous", "prismatic", "floating")
AXES = ("xx", "yy", "zz", "xy", "xz", "yz")
ROUND = ("sphere", "cylinder")
SHAPES = {"box": "size", "sphere": "radius", "cylinder": "radius length", "capsule": "radius length", "mesh": "scale"}
"""Attributes with the size of each shape."""


def name_joints(root: ET.Element) -> list[str]:
    """Give joints without a name one, so that all that is said of them finds them; return what is said of it."""
    unnamed = [joint for joint in root.findall("joint") if not joint.get("name")]
    for joint in unnamed:
        joint.set("name", f"{name_of(joint.find('child'), 'link')}_joint")
    return [f"names: {len(unnamed)} joints had none and got one, such as '{unnamed[0].get('name')}'"] if unnamed else []


def check_urdf(path: Path, root: ET.Element) -> None:
    """Check joints, and the links that they move.

    Raises:
        UserError: a name is there twice, a joint is of a kind that we do not have, floats below a link with a mass,
            mimics one that is not there or itself, also through others, or moves a link without inertia.
    """
    joints = root.findall("joint")
    for kind in ("link", "joint"):
        names = Counter(str(element.get("name")) for element in root.findall(kind))
        if twice := sorted(name for name, count in names.items() if count > 1):
            raise UserError(f"from={path}: {kind} '{twice[0]}' is there twice; names must be unique")
    for joint in joints:
        where, kind = f"from={path}: joint '{joint.get('name')}'", joint.get("type")
        if kind not in JOINT_KINDS:
            right = "; of a base that moves freely it is floating" if kind == "planar" else ""
            raise UserError(f"{where}: type={kind}: must be one of {', '.join(JOINT_KINDS)}{right}")
        parent = name_of(joint.find("parent"), "link")
        if kind == "floating" and not (parent in first_links(root) and is_empty(root, parent)):
            line = f"floats below link '{parent}', which is not an empty first link"
            raise UserError(f"{where} {line}; only the base of a robot may float, leave the rest in a copy")
    _check_mimics(path, joints)
    moving = moving_links(root)
    for link in root.findall("link"):
        if link.get("name") in moving and link.find("inertial") is None and not is_dummy(root, str(link.get("name"))):
            raise UserError(f"from={path}: link '{link.get('name')}' moves and has no <inertial>; give it one")


def _check_mimics(path: Path, joints: list[ET.Element]) -> None:
    names = {str(joint.get("name")) for joint in joints}
    leaders = {
        str(joint.get("name")): name_of(joint.find("mimic"), "joint")
        for joint in joints
        if joint.find("mimic") is not None
    }
    for name, leader in leaders.items():
        if leader not in names:
            raise UserError(f"from={path}: joint '{name}' mimics '{leader}', which is not there")
        chain = [name]
        while chain[-1] in leaders and len(chain) <= len(leaders):
            chain.append(leaders[chain[-1]])
            if chain[-1] == name:
                line = f"joint '{name}' mimics itself" + (f", through {', '.join(chain[1:-1])}" if chain[1:-1] else "")
                raise UserError(f"from={path}: {line}; take out one <mimic>, so that one joint leads")


def moving_links(root: ET.Element) -> set[str]:
    """Return the names of links below a joint that moves."""
    return {name_of(joint.find("child"), "link") for joint in root.findall("joint") if joint.get("type") != "fixed"}


def name_of(element: ET.Element | None, key: str) -> str:
    """Return an attribute; an empty text without the element."""
    return "" if element is None else str(element.get(key))


def first_links(root: ET.Element) -> list[str]:
    """Return the names of links that are below no other."""
    below = {name_of(joint.find("child"), "link") for joint in root.findall("joint")}
    return [name for link in root.findall("link") if (name := str(link.get("name"))) not in below]


def is_empty(root: ET.Element, name: str) -> bool:
    """Return whether a link has no inertia."""
    return all(link.find("inertial") is None for link in root.findall("link") if link.get("name") == name)


def is_dummy(root: ET.Element, name: str) -> bool:
    """Return whether a link is an empty frame that floats, with the base fixed to it."""
    joints = root.findall("joint")
    floats = [j for j in joints if name_of(j.find("child"), "link") == name and j.get("type") == "floating"]
    held = [j for j in joints if name_of(j.find("parent"), "link") == name]
    return bool(floats) and len(held) == 1 and held[0].get("type") == "fixed" and is_empty(root, name)


def free_base(root: ET.Element) -> str:
    """Take empty links above the base out, so that the base itself floats; return the names of those.

    A first link such as base_footprint or world has no mass, and the base is fixed to it; where it lies above the
    ground is for the default pose to say. MuJoCo knows a first link `world` as what does not move.
    """
    taken: list[str] = []
    while True:
        top, children = first_links(root)[:1], joints_by_parent(root)
        below = [joint for joint in children.get(top[0], []) if _carries(children, joint)] if top else []
        if len(below) != 1 or not is_empty(root, top[0]) or below[0].get("type") not in ("fixed", "floating"):
            return ", ".join(f"'{name}'" for name in taken)
        (joint,) = below
        if top[0] != "world":
            _rename(root, top[0], "world")
            taken.append(top[0])
        child = name_of(joint.find("child"), "link")
        under = [other for other in children.get(child, []) if _carries(children, other)]
        origins = [_origin(other) for other in (joint, *under[:1])]
        if not is_empty(root, child) or len(under) != 1 or under[0].get("type") != "fixed" or None in origins:
            return ", ".join(f"'{name}'" for name in taken)
        _merge(root, joint, under[0], child)
        taken.append(child)


def joints_by_parent(root: ET.Element) -> dict[str, list[ET.Element]]:
    """Return the joints below each link, by its name."""
    found: dict[str, list[ET.Element]] = {}
    for joint in root.findall("joint"):
        found.setdefault(name_of(joint.find("parent"), "link"), []).append(joint)
    return found


def _carries(children: Mapping[str, list[ET.Element]], joint: ET.Element) -> bool:
    """Return whether something moves at or below a joint."""
    waiting = [joint]
    while waiting:
        one = waiting.pop()
        if one.get("type") != "fixed":
            return True
        waiting += children.get(name_of(one.find("child"), "link"), [])
    return False


def _rename(root: ET.Element, old: str, new: str) -> None:
    for link in root.findall("link"):
        if link.get("name") == old:
            link.set("name", new)
    for joint in root.findall("joint"):
        for end in (joint.find("parent"), joint.find("child")):
            if end is not None and end.get("link") == old:
                end.set("link", new)


def _merge(root: ET.Element, upper: ET.Element, lower: ET.Element, link: str) -> None:
    """Take out the link between two joints, and the upper one; what else is fixed to the link stays with the world."""
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
    """Return xyz [m] and rpy [rad] of a joint; None where they are not three numbers each, of which MuJoCo says so."""
    origin = joint.find("origin")
    texts = ["0 0 0", "0 0 0"] if origin is None else [origin.get("xyz", "0 0 0"), origin.get("rpy", "0 0 0")]
    try:
        found = [[float(word) for word in text.split()] for text in texts]
    except ValueError:
        return None
    return found if [len(values) for values in found] == [3, 3] else None


def _frame(joint: ET.Element) -> tuple[np.ndarray, np.ndarray]:
    """Return where a joint's child is (3,) [m], and how it is turned (3, 3): about x, then y, then z of the parent."""
    place, angles = (np.array(values) for values in _origin(joint) or [[0.0] * 3] * 2)
    (cr, cp, cy), (sr, sp, sy) = np.cos(angles), np.sin(angles)
    about_x = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    about_y = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    about_z = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
    return place, about_z @ about_y @ about_x


def repair_inertias(root: ET.Element) -> list[str]:
    """Make valid inertias of those that MuJoCo refuses and that are near one; return what is said of it.

    - Links that are fixed to another and have one that is not positive get a ball's: frames of sensors have any, and
      their mass is what counts.
    - No body has a principal moment above the sum of the other two: the largest is divided, and the other two are
      multiplied, by one factor, so that none is further from the file's value than the others.
    """
    moving, balls, said = moving_links(root), [], []
    for link in root.findall("link"):
        name, inertial = str(link.get("name")), link.find("inertial")
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
                said.append(f"inertia: that of '{name}' {line}; all three are changed by a factor of {factor:.3g}")
        elif name not in moving and weight > 0.0:
            ball = max(float(np.trace(matrix)) / 3.0, 0.4 * weight * BALL_M**2)
            _write_inertia(inertia, ball * np.eye(3))
            balls.append(name)
        elif name not in moving:
            link.remove(inertial)
    which = ", ".join(balls if len(balls) <= 5 else [*balls[:5], "..."])
    return [*said, f"inertia: that of {which} is invalid, a ball's of the same mass is there"] if balls else said


def _write_inertia(inertia: ET.Element, matrix: np.ndarray) -> None:
    for axes in AXES:
        inertia.set(f"i{axes}", repr(float(matrix["xyz".index(axes[0]), "xyz".index(axes[1])])))


def drop_pointless(root: ET.Element) -> list[str]:
    """Take out shapes of size 0, which MuJoCo refuses; return what is said of it."""
    said = []
    for link in root.findall("link"):
        for kind in ("visual", "collision"):
            for shape in link.findall(kind):
                sizes = [
                    element.get(key, "1") for tag, keys in SHAPES.items() for element in shape.iter(tag)
                    for key in keys.split()
                ]  # fmt: skip
                if any(_is_zero(word) for text in sizes for word in text.split()):
                    link.remove(shape)
                    said.append(f"left out: a shape of size 0 of link '{link.get('name')}'")
    return said


def _is_zero(word: str) -> bool:
    try:
        return float(word) == 0.0
    except ValueError:
        return False


def count_limbs(root: ET.Element) -> int:
    """Return how many chains of two moving joints or more begin at the first link that branches; fingers are none."""
    below: dict[str, list[tuple[str, bool]]] = {}
    for joint in root.findall("joint"):
        parent, child = name_of(joint.find("parent"), "link"), name_of(joint.find("child"), "link")
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


def count_wheels(root: ET.Element) -> int:
    """Return how many joints turn without end, with nothing moving below, a link whose shape may roll."""
    parents = {name_of(joint.find("parent"), "link") for joint in root.findall("joint") if joint.get("type") != "fixed"}
    links = {link.get("name"): link for link in root.findall("link")}
    ends = [
        links.get(name_of(joint.find("child"), "link"))
        for joint in root.findall("joint")
        if joint.get("type") == "continuous" and name_of(joint.find("child"), "link") not in parents
    ]
    round_shapes = ("cylinder", "sphere", "mesh")
    return sum(
        link is not None and any(shape.find(f"geometry/{kind}") is not None for kind in round_shapes)
        for link in ends
        for shape in (link.findall("collision") or link.findall("visual") if link is not None else [])[:1]
    )


def _branches(link: str, below: Mapping[str, list[tuple[str, bool]]]) -> list[tuple[str, bool]]:
    """Return the links below one and whether each moves, through what is fixed to it."""
    found = []
    for child, moves in below.get(link, []):
        found += [(child, True)] if moves else _branches(child, below)
    return found


def unmotored(root: ET.Element) -> list[str]:
    """Return the joints that nothing drives, though others have motors: by transmissions, else castors.

    A castor's joints turn without end and have no effort limit, with nothing else below them.
    """
    joints = {str(joint.get("name")): joint for joint in root.findall("joint")}
    moving = [name for name, joint in joints.items() if joint.get("type") not in ("fixed", "floating")]
    motored = {str(one.get("name")) for transmission in root.iter("transmission") for one in transmission.iter("joint")}
    followers = {name for name in moving if joints[name].find("mimic") is not None}
    if motored & set(moving):
        return [name for name in moving if name not in motored | followers]
    efforts = {name for name in moving if effort_of(joints[name]) > 0.0}

    children = joints_by_parent(root)
    round_ones = {str(link.get("name")) for link in root.findall("link") if _is_round(link)}

    @functools.cache
    def is_castor(name: str) -> bool:
        child, kind = name_of(joints[name].find("child"), "link"), joints[name].get("type")
        below = [str(one.get("name")) for one in children.get(child, [])]
        turns = kind == "fixed" or (kind == "continuous" and name not in efforts)
        return turns and (all(is_castor(one) for one in below) if below else child in round_ones)

    return [name for name in moving if efforts and name not in followers and is_castor(name)]


def _is_round(link: ET.Element) -> bool:
    return any(shape.find(f"geometry/{kind}") is not None for shape in link for kind in ROUND)


def effort_of(joint: ET.Element) -> float:
    """Return the effort of a joint's limit [N m or N]; 0 without one."""
    limit = joint.find("limit")
    return 0.0 if limit is None else float(limit.get("effort", 0.0))
