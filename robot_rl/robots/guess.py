"""Guesses about a robot that was read. Each returns its value and the reasons for it, as lines for robot.py."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from robot_rl.errors import UserError
from robot_rl.robots.parts import Draft, Reasons, Source
from robot_rl.robots.shapes import COLLISION, round_about_joint

FOOT_RADIUS = 0.02
"""Radius of the sphere of a foot without one in the source [m]."""
CLEARANCE = 5e-4
"""Height of the lowest point above the ground in the default pose [m]."""
LEVEL = 0.999
"""Least cosine between the axis of a box and the vertical if it is a sole."""
HOVERS = 0.05
"""Largest height of the lowest point above the origin of a floating base [m]."""


class Pose:
    """A compiled robot in its default pose, its base at the origin.

    Attributes:
        inner: the bodies with joints below them.
    """

    def __init__(self, model: Any, base: str | None, default: dict[str, float]) -> None:
        import mujoco

        self.model, self.base, self.mj = model, base, mujoco
        self.data = data = mujoco.MjData(model)
        for name, value in default.items():
            data.joint(name).qpos[0] = value
        if base is not None:
            address = model.jnt_qposadr[model.body_jntadr[model.body(base).id]]
            data.qpos[address : address + 7] = [0, 0, 0, 1, 0, 0, 0]
        mujoco.mj_forward(model, data)
        jointed = [body for body in range(1, model.nbody) if model.body_jntnum[body]]
        self.inner = {above for body in jointed for above in self.chain(body)[1:]}

    def chain(self, body: int) -> list[int]:
        """Return a body and those above it, without the world."""
        found = []
        while body:
            found.append(body)
            body = int(self.model.body_parentid[body])
        return found

    def below(self, body: int) -> list[int]:
        """Return a body and those below it."""
        return [k for k in range(body, self.model.nbody) if body in self.chain(k)]

    def joints(self, body: int) -> list[int]:
        """Return the hinges and slides of a body."""
        first = int(self.model.body_jntadr[body])
        own = range(first, first + int(self.model.body_jntnum[body]))
        return [k for k in own if int(self.model.jnt_type[k]) in (2, 3)]

    def touching(self, body: int) -> np.ndarray:
        """Return the geoms of a body that touch."""
        return np.flatnonzero((self.model.geom_bodyid == body) & (self.model.geom_group == COLLISION))

    def lowest(self, body: int) -> tuple[float, int]:
        """Return the height of a body's lowest point that touches [m], and its geom; infinity if none touches."""
        from robot_rl_envs.motions.kinematics import lowest_point

        return lowest_point(self.model, self.data, self.touching(body))

    def support(self, geom: int) -> np.ndarray:
        """Return the lowest point of a geom (3,) [m], world frame."""
        from robot_rl_envs.motions.kinematics import support

        return support(self.model, self.data, geom)

    def overhang(self, body: int, center: np.ndarray) -> float:
        """Return by how much the sphere of a foot must be lower to touch first, at most its radius [m].

        Args:
            body: the link, with the bodies that are fixed to it.
            center: of the sphere (3,) [m], world frame.
        """
        from robot_rl_envs.entity.legs import overhang

        welded = np.flatnonzero(self.model.body_weldid == self.model.body_weldid[body])
        geoms = [int(geom) for one in welded for geom in self.touching(int(one))]
        over = overhang(self.model, self.data, geoms, lambda toward: float(center @ toward) + FOOT_RADIUS)
        return min(over, FOOT_RADIUS)

    def own_radius(self, geom: int) -> tuple[str, float] | None:
        """Return the kind of a geom and the distance from its center to the ground [m]; None unless it can be a foot.

        It is a sphere, or a flat box that lies level, as a sole does.
        """
        kinds, kind, size = self.mj.mjtGeom, int(self.model.geom_type[geom]), self.model.geom_size[geom]
        if kind == int(kinds.mjGEOM_SPHERE):
            return "spheres", float(size[0])
        is_flat = kind == int(kinds.mjGEOM_BOX) and size[2] < 0.5 * min(size[:2])
        is_level = abs(self.data.geom_xmat[geom].reshape(3, 3)[2, 2]) > LEVEL
        return ("soles", float(size[2])) if is_flat and is_level else None

    def height(self) -> float:
        """Return the height of the base at which the lowest point just touches the ground [m]."""
        return CLEARANCE - min(self.lowest(body)[0] for body in range(1, self.model.nbody))

    def place(self, body: int, point: np.ndarray) -> np.ndarray:
        """Return a point of the world in the frame of a body (3,) [m]."""
        return self.data.xmat[body].reshape(3, 3).T @ (point - self.data.xpos[body])


def guess_ranges(
    source: Source, model: Any, names: list[str]
) -> tuple[tuple[dict[str, tuple[float, float]], list[str]], Reasons]:
    """Guess the ranges of joints, and return the leaders whose range is narrowed so that their followers can follow.

    Raises:
        UserError: a joint cannot follow its leader anywhere.
    """
    ranges, narrowed, reasons, rest = {}, [], [], _rest(model, names)
    for name in names:
        joint = model.joint(name)
        ranges[name] = tuple(map(float, joint.range)) if joint.limited[0] else (-math.inf, math.inf)
    for name, (leader, factor, offset) in source.coupled.items():
        ends = sorted(rest[leader] + (end - rest[name] - offset) / factor for end in ranges[name])
        low, high = max(ends[0], ranges[leader][0]), min(ends[1], ranges[leader][1])
        if low > high:
            line = f"joint '{name}' follows '{leader}' and is out of its range wherever that is"
            raise UserError("from", source.path, f"{line}; correct one of the ranges or the coupling")
        if max(low - ranges[leader][0], ranges[leader][1] - high) > 1e-6:
            ranges[leader] = (low, high)
            narrowed.append(leader)
            reasons.append(f"range: that of '{leader}' is {low:.4g} to {high:.4g}, in which '{name}' can follow")
    return (ranges, narrowed), reasons


def _rest(model: Any, names: Any) -> dict[str, float]:
    return {name: float(model.qpos0[model.joint(name).qposadr[0]]) for name in names}


def follow(source: Source, model: Any, default: dict[str, float]) -> None:
    """Move joints that follow others; an equality counts from the model's position at rest."""
    rest = _rest(model, default)
    for name, (leader, factor, offset) in source.coupled.items():
        default[name] = float(np.round(rest[name] + offset + factor * (default[leader] - rest[leader]), 9))


def guess_pose(source: Source, model: Any, ranges: dict[str, tuple[float, float]]) -> tuple[dict[str, float], Reasons]:
    """Guess the default pose: that of the source, else zero, else the middle of a range without a zero.

    The joint above a knee that cannot be straight is turned so that the end of the limb is below it. An arm that would
    be stretched is bent.
    """
    default, middle, turned = {}, [], []
    for name, (low, high) in ranges.items():
        value = source.default.get(name, 0.0)
        if not low <= value <= high:
            value = 0.5 * (low + high)
            middle += [name] if name not in source.coupled else []
        default[name] = float(np.round(value, 6))
    follow(source, model, default)
    for name in middle if source.base is not None else ():
        knee, pose = model.joint(name), Pose(model, source.base, default)
        axes, body = pose.data.xaxis, int(knee.bodyid[0])
        above = pose.joints(int(model.body_parentid[body]))
        above = [k for k in above if model.jnt_type[k] == 3 and abs(float(axes[k] @ axes[knee.id])) > 0.99]
        if not above:
            continue
        hip, ends = model.joint(above[0]).name, pose.below(body)

        def offset(angle: float, hip: str = hip, ends: list[int] = ends, k: int = above[0]) -> float:
            data = Pose(model, source.base, {**default, hip: angle}).data
            lowest = min(ends, key=data.xipos[:, 2].item)
            reach = data.xipos[lowest] + (data.xipos[lowest] - data.xpos[lowest]) - data.xanchor[k]
            return float(np.linalg.norm(reach[:2])) + 2.0 * max(0.0, float(reach[2]))

        low, high = max(-2.0, ranges[hip][0]), min(2.0, ranges[hip][1])
        default[hip] = round(float(min(np.linspace(low, high, 81), key=offset)), 3)
        turned.append(hip)
    reasons = []
    if middle:
        reason = f"default pose: {', '.join(middle)} in the middle of their ranges, which lack 0"
        reasons.append(reason + (f"; {', '.join(turned)} turned so that the limbs end below them" if turned else ""))
    return default, reasons + _bend_arm(source, model, default)


def _bend_arm(source: Source, model: Any, default: dict[str, float]) -> Reasons:
    """Bend an arm with a fixed base that is stretched in its default pose, unless that is the source's own."""
    from robot_rl_envs.entity.limbs import LEAST_JOINTS, STRETCHED, Arm, bend

    pose = Pose(model, source.base, default)
    leaders = {leader for leader, *_ in source.coupled.values()}
    fingers = {name for name in leaders if int(model.joint(name).bodyid[0]) not in pose.inner}
    driven = [name for name in default if name not in {*source.coupled, *source.passive, *fingers}]
    if source.base is not None or source.default or len(driven) < LEAST_JOINTS:
        return []
    arm = Arm(model, driven)
    arm.data.qpos[:] = pose.data.qpos
    names = [model.joint(k).name for k in arm.joints]
    before = np.array([default[name] for name in names])
    if not arm.is_single or arm.freedom(before) >= STRETCHED:
        return []
    floor = min(0.0, *(float(pose.data.xpos[k, 2]) for k in range(1, model.nbody)))
    after = bend(arm, before, floor=floor)
    bent = {name: float(value) for name, value, old in zip(names, after, before, strict=True) if value != old}
    if not bent:
        return []
    default |= bent
    follow(source, model, default)
    values = ", ".join(f"{name} {value:g}" for name, value in bent.items())
    line = f"bent to {values}, since the arm is at the boundary of its reach in the file's zero pose"
    return [f"default pose: {line}; put the pose from which it works into default_pos"]


def bend_legs(
    source: Source, pose: Pose, rolling: set[int], default: dict[str, float], *, mirrored: bool
) -> tuple[Pose, Reasons]:
    """Bend straight legs of a floating base, unless their pose is the source's own; return the default pose then.

    Args:
        source: the robot.
        pose: it in its default pose.
        rolling: bodies that roll.
        default: positions of all joints; those of bent legs are changed.
        mirrored: whether a leg is bent as its partner on the other side by names.
    """
    from robot_rl_envs.entity.legs import STRAIGHT, bend_leg, find_legs, mobility
    from robot_rl_envs.entity.limbs import Point
    from robot_rl_envs.entity.robot_checks import mirror_by_names

    model = pose.model
    driven = [name for name in default if name not in {*source.coupled, *source.passive}]
    if source.base is None or source.default:
        return pose, []
    partners = mirror_by_names(list(default), model) if mirrored else {}
    points = [Point(name, body, place) for name, body, place, _ in guess_feet(pose, rolling)[0][1]]
    bent: dict[str, float] = {}
    for leg in find_legs(model, source.base, points, driven):
        leg.data.qpos[:] = pose.data.qpos
        before = pose.data.qpos[model.jnt_qposadr[leg.joints]].copy()
        own = [model.joint(k).name for k in leg.joints]
        others = [(other or "", sign) for other, sign in (partners.get(name, (None, 0.0)) for name in own)]
        if mobility(leg, before) >= STRAIGHT or all(name in bent for name in own):
            continue
        if all(other in bent for other, _ in others):
            after = [sign * bent[other] + 0.0 for other, sign in others]
        else:
            after = bend_leg(leg, before)
        bent |= dict(zip(own, map(float, after), strict=True))
    bent = {name: value for name, value in bent.items() if value != default[name]}
    if not bent:
        return pose, [] if any(default.values()) else ["default pose: all joints at 0"]
    default |= bent
    follow(source, model, default)
    values = ", ".join(f"{name} {value:g}" for name, value in bent.items())
    line = f"bent to {values}, since straight legs cannot move their feet in every direction"
    reason = f"default pose: {line}; put the pose in which it stands into default_pos"
    return Pose(model, source.base, default), [reason]


def match_sides(default: dict[str, float]) -> None:
    """Give both of a pair the same magnitude, if the source's differ by rounding only."""
    from robot_rl_envs.entity.robot_checks import other_side

    for name, value in default.items():
        partner = other_side(name, default)
        if partner != name and abs(abs(value) - abs(default[partner])) < 1e-3:
            default[partner] = math.copysign(value, default[partner])


def guess_height(source: Source, pose: Pose) -> float:
    """Guess the height of the base in the default pose [m], at least the clearance: a car's is on the ground.

    Raises:
        UserError: nothing is below a floating base.
    """
    height = round(pose.height(), 4) if source.base else 0.0
    if height < -HOVERS:
        line = f"nothing of it is lower than {-height:.3f} m above the origin of its base '{source.base}'"
        raise UserError("from", source.path, f"{line}, so that it cannot stand on the ground; write base=fixed")
    return max(CLEARANCE, height) if source.base else 0.0


def guess_wheels(source: Source, pose: Pose, names: list[str]) -> tuple[tuple[dict[str, float], set[int]], Reasons]:
    """Guess the wheels that a floating robot stands on: round about an endless level hinge, with nothing below them.

    Returns:
        The radius [m] of each wheel by its joint, and the bodies that roll: those of wheels, and those of castors,
        which nothing drives and which may be balls.
    """
    wheels, rolling, balls = {}, set(), []
    if source.base is None:
        return (wheels, rolling), []
    model, ground, kinds = pose.model, -pose.height(), pose.mj.mjtGeom
    round_ends = {int(kinds.mjGEOM_SPHERE): "a sphere", int(kinds.mjGEOM_CAPSULE): "a capsule"}
    for name in names:
        joint = model.joint(name)
        body = int(joint.bodyid[0])
        if body in pose.inner or abs(float(pose.data.xaxis[joint.id][2])) > 0.5 or name in source.coupled:
            continue
        low, geom = min(pose.lowest(k) for k in range(body, model.nbody) if model.body_weldid[k] == body)
        found = round_about_joint(model, geom) if geom >= 0 and model.geom_bodyid[geom] == body else None
        if name in source.passive:
            is_ball = geom >= 0 and model.geom_type[geom] == int(kinds.mjGEOM_SPHERE)
            rolling |= {body} if found is not None or (is_ball and not joint.limited[0]) else set()
        elif found is not None and low < ground + HOVERS:
            wheels[name] = found[0]
            rolling.add(body)
            if shape := round_ends.get(int(model.geom_type[geom])):
                balls.append(f"wheels: the only shape of '{name}' that touches is {shape} centered on its endless axis")
    reason = f"wheels: {', '.join(wheels)}, driven by their speed, without a position to hold"
    return (wheels, rolling), [reason, *balls] if wheels else []


Feet = tuple[float, list[tuple[str, int, np.ndarray, int | None]]]
"""The radius [m] of feet, and of each its name, body, position in it (3,) [m], and its own geom if it has one."""


def guess_feet(pose: Pose, rolling: set[int]) -> tuple[Feet, Reasons]:
    """Guess feet: the ends of limbs that reach the ground in the default pose, but for bodies that roll."""
    none: Feet = (0.0, [])
    if pose.base is None:
        return none, []
    from robot_rl_envs.entity.legs import SEARCHED

    model = pose.model
    reach: dict[int, tuple[float, int]] = {}
    for body in range(1, model.nbody):
        last = int(model.body_weldid[body])  # What is fixed to the last link belongs to it.
        is_end = body not in pose.inner and sum(len(pose.joints(k)) for k in pose.chain(body)) >= 2
        if is_end and last not in rolling:
            reach[last] = min(reach.get(last, (math.inf, -1)), pose.lowest(body), pose.lowest(last))
    ground = min((height for height, _ in reach.values()), default=math.inf)
    found = [(body, height, geom) for body, (height, geom) in sorted(reach.items()) if height < ground + 0.05]
    if rolling and (not found or ground > 0.05 - pose.height()):
        return none, []
    if not math.isfinite(ground) or not found:
        return none, ["feet: none found, no end of a limb has a shape that touches; name them in robot.py"]
    names = _short_names([model.body(body).name for body, *_ in found])
    shapes = {pose.own_radius(geom) for *_, geom in found}
    own = shapes.pop() if len(shapes) == 1 else None
    feet: list[tuple[str, int, np.ndarray, int | None]] = []
    for name, (body, _, geom) in zip(names, found, strict=True):
        point = pose.support(geom) + np.array([0.0, 0.0, FOOT_RADIUS])
        if sum(len(pose.joints(k)) for k in pose.chain(body)) <= SEARCHED:
            point[2] -= pose.overhang(body, point)
        theirs = (int(model.geom_bodyid[geom]), model.geom_pos[geom], geom)
        place = theirs if own else (body, pose.place(body, point), None)
        feet.append((name, place[0], place[1], place[2]))
    kind = f"their own {own[0]}" if own else f"spheres of {FOOT_RADIUS:g} m were added that touch first"
    reason = f"feet: {', '.join(names)}, the ends of limbs that reach the ground; {kind}"
    return (own[1] if own else FOOT_RADIUS, feet), [reason]


def _short_names(names: list[str]) -> list[str]:
    """Return names without the words for the part of a leg, if they stay different."""
    words = r"(?i)[_.-]?(foot|calf|ankle|roll|pitch|link|toe|shank|lower|leg|lowerleg)(?=[_.-]|$)"
    short = [re.sub(words, "", name).strip("_.-") for name in names]
    return short if len(set(short)) == len(names) and all(short) else names


def guess_mirror(
    draft: Draft, model: Any, default: dict[str, float]
) -> tuple[tuple[dict[str, tuple[str | None, float]], dict[str, tuple[float, float]]], Reasons]:
    """Guess each joint's partner by its name, and the sign by the axes: in a mirror a turn goes the other way.

    Joints in the plane that mirror to their opposite get a default of 0, and pairs mirrored defaults.

    Args:
        draft: the robot, with its joints.
        model: the same, compiled.
        default: positions of all joints; those of a floating robot are changed.

    Returns:
        Partner (None in the plane) and sign by joint, empty without a pair; and ranges that both of a pair have, if
        the source's are not mirror images of each other.
    """
    from robot_rl_envs.entity.robot_checks import mirror_by_names

    named, ranges, narrowed, reasons = mirror_by_names(list(draft.joints), model), {}, [], []
    if not any(partner for partner, _ in named.values()):
        return ({}, {}), []
    for name, (partner, sign) in named.items() if draft.base else ():
        if partner is None and sign < 0 and abs(default[name]) > 1e-9:
            reasons.append(f"default pose: joint '{name}' at 0 instead of {default[name]:g}, as its mirror wants")
            default[name] = 0.0
    pairs = [(name, partner, sign) for name, (partner, sign) in named.items() if partner and name < partner]
    for name, partner, sign in pairs:
        if draft.base:
            default[partner] = sign * default[name] + 0.0
        own, other = (np.array(draft.spec.joint(one).range) for one in (name, partner))
        other = np.sort(sign * other)
        shared = [max(own[0], other[0]), min(own[1], other[1])]
        if not np.array_equal(own, other) and shared[0] < shared[1]:
            ranges |= {name: shared, partner: np.sort(sign * np.array(shared)).tolist()}
            narrowed += [f"{name} and {partner}"] if np.abs(own - other).max() > 1e-4 else []
    if narrowed:
        reasons.append(f"ranges: {', '.join(narrowed)} got the range that both have")
    count = sum(partner is not None for partner, _ in named.values()) // 2
    return (named, ranges), [*reasons, f"mirror: {count} pair{'s' * (count != 1)} of joints by names, signs by axes"]


def guess_hands(source: Source, pose: Pose) -> tuple[list[tuple[str, str, np.ndarray]], Reasons]:
    """Guess grippers: joints at the end of a chain that follow each other; a site goes between their tips.

    Returns:
        Name of the site, of the body that the fingers are on, and the position in it (3,) [m].
    """
    model, data, hands, reasons = pose.model, pose.data, [], []
    fingers = {leader: [leader] for leader, *_ in source.coupled.values()}
    for follower, (leader, *_) in source.coupled.items():
        fingers[leader].append(follower)
    for leader, joints in fingers.items():
        bodies = [int(model.joint(name).bodyid[0]) for name in joints]
        palms = {int(model.body_parentid[body]) for body in bodies}
        if len(palms) != 1 or pose.inner & {*bodies}:
            continue
        palm = palms.pop()
        owned = [pose.touching(body) for body in bodies]
        points = [
            data.geom_xpos[geoms].mean(0) if len(geoms) else data.xipos[body]
            for geoms, body in zip(owned, bodies, strict=True)
        ]
        owner = model.body(palm).name
        hands.append((f"{owner}_tcp", owner, pose.place(palm, np.mean(points, axis=0))))
        line = f"{', '.join(joints)} on {owner}, driven by {leader}; site '{owner}_tcp' is in the middle of its fingers"
        reasons.append(f"gripper: {line}; move it to the place of things it holds")
    return hands, reasons
