"""Makes our robot of one that was read: shapes, gains, default pose, feet and mirror."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr, unescape

import numpy as np
from robot_rl_deploy.plausible import EFFORT_MARGIN

from robot_rl.errors import UserError
from robot_rl.robots.parts import Draft, Gains, Limits, Source
from robot_rl.robots.shapes import COLLISION, compile_source, replace_shapes, round_about_joint, state_inertias
from robot_rl.robots.source import positions
from robot_rl.robots.standing import rounded, settle, turn_base

FOOT_RADIUS = 0.02
"""Radius of a foot's sphere where the source has none [m]."""
CLEARANCE = 5e-4
"""Height of the lowest point above the ground in the default pose [m]."""
HOVERS = 0.05
"""How far the lowest point may be above the origin of a floating base [m]."""
SPEED = 20.0
"""Speed limit of a joint where the source says nothing [rad/s or m/s]."""
HELD = 3.0
"""Effort limit where the source says nothing, in efforts that hold the default pose."""
HELD_BY_LEGS = 8.0
"""The same of a robot with feet: in a trot two of four carry it, and throw it up. Unitree's Go1 has 8 to 13."""


def make_draft(source: Source, collision: str, gains: Gains, *, mirrored: bool = True) -> Draft:
    """Make a robot of ours.

    Args:
        source: what was read; it is changed.
        collision: "meshes", "primitives" or "boxes".
        gains: of every joint.
        mirrored: whether joints and feet of two sides by their names are each other's mirror.

    Raises:
        UserError: the model does not compile, such as for a body without inertia.
    """
    spec = source.spec
    model = compile_source(source, without_meshes=collision == "boxes")
    state_inertias(spec, model)
    replace_shapes(source, model, collision)
    turn = turn_base(source, model)
    names = [joint.name for joint in spec.joints if int(joint.type) in (2, 3)]
    model = compile_source(source)
    ranges = _ranges(source, model, names)
    draft = Draft(spec, {}, source.base, turn=turn, said=source.said)
    default = positions(source, names, ranges)
    _couple(source, model, default)
    if source.middle:
        _bend(source, model, default, ranges)
    if mirrored:
        _mirror_default(default, names)
    poser = _Poser(model, source.base, default)
    draft.joints = {name: {"default_pos": default[name]} for name in names}
    _add_feet(draft, poser, _find_wheels(draft, poser, source))
    model = compile_source(source)
    if mirrored:
        _mirror(draft, model)
    if not any(joint.get("mirror") for joint in draft.joints.values()):
        draft.foot_mirror = list(range(len(draft.feet)))
    default = {name: joint["default_pos"] for name, joint in draft.joints.items()}
    _couple(source, model, default)
    for name, joint in draft.joints.items():
        joint["default_pos"] = default[name]
    poser = _Poser(model, source.base, default)
    draft.height = _base_height(source, poser) if source.base else 0.0
    _drive(draft, poser, source, gains)
    _mount_imu(draft, model)
    _add_hand(draft, poser, source)
    settle(draft, source)
    return draft


def _couple(source: Source, model: Any, default: dict[str, float]) -> None:
    """Put joints that follow others where these have them; an equality counts from where the model is at rest."""
    rest = {name: float(model.qpos0[model.joint(name).qposadr[0]]) for name in default}
    for name, (leader, factor, offset) in source.coupled.items():
        default[name] = float(np.round(rest[name] + offset + factor * (default[leader] - rest[leader]), 9))


def _ranges(source: Source, model: Any, names: list[str]) -> dict[str, tuple[float, float]]:
    """Return the ranges of joints, those that lead others narrowed to where these can follow.

    Raises:
        UserError: a joint cannot follow its leader anywhere.
    """
    ranges = {name: _range(model, name) for name in names}
    rest = {name: float(model.qpos0[model.joint(name).qposadr[0]]) for name in names}
    for name, (leader, factor, offset) in source.coupled.items():
        ends = sorted(rest[leader] + (end - rest[name] - offset) / factor for end in ranges[name])
        low, high = max(ends[0], ranges[leader][0]), min(ends[1], ranges[leader][1])
        if low > high:
            line = f"joint '{name}' follows '{leader}' and is out of its range wherever that is"
            raise UserError(f"from={source.path}: {line}; correct one of the ranges or the coupling")
        if max(low - ranges[leader][0], ranges[leader][1] - high) <= 1e-6:
            continue
        ranges[leader], joint = (low, high), source.spec.joint(leader)
        unit = math.degrees(1.0) if joint.compiler.degree and int(joint.type) == 3 else 1.0
        joint.limited, joint.range = True, [low * unit, high * unit]
        source.said.append(f"range: that of '{leader}' is {low:.4g} to {high:.4g}, in which '{name}' can follow")
    return ranges


def _base_height(source: Source, poser: _Poser) -> float:
    """Return the height of the base in the default pose [m], at least the clearance: a car's is on the ground."""
    height = round(poser.height(), 4)
    if height < -HOVERS:
        line = f"nothing of it is lower than {-height:.3f} m above the origin of its base '{source.base}'"
        raise UserError(f"from={source.path}: {line}, so that it cannot stand on the ground; write base=fixed")
    return max(CLEARANCE, height)


def _range(model: Any, name: str) -> tuple[float, float]:
    joint = model.joint(name)
    low, high = joint.range
    return (float(low), float(high)) if joint.limited[0] else (-math.inf, math.inf)


def _mirror_default(default: dict[str, float], names: list[str]) -> None:
    """Give both of a pair the same magnitude, where the source's differ by rounding only."""
    from robot_rl_envs.entity.robot_checks import other_side

    for name in names:
        partner = other_side(name, default)
        if partner != name and abs(abs(default[name]) - abs(default[partner])) < 1e-3:
            default[partner] = math.copysign(default[name], default[partner])


def _bend(source: Source, model: Any, default: dict[str, float], ranges: dict[str, tuple[float, float]]) -> None:
    """Turn the joint above a knee that cannot be straight, so that the end of the limb is below it."""
    turned = []
    for name in source.middle:
        knee = model.joint(name)
        poser = _Poser(model, source.base, default)
        body = int(model.body_parentid[knee.bodyid[0]])
        count, first = int(model.body_jntnum[body]), int(model.body_jntadr[body])
        above = [first + k for k in range(count) if int(model.jnt_type[first + k]) == 3]
        above = [k for k in above if abs(float(poser.data.xaxis[k] @ poser.data.xaxis[knee.id])) > 0.99]
        if not above or source.base is None:
            continue
        hip = model.joint(above[0]).name
        low, high = (max(-2.0, ranges[hip][0]), min(2.0, ranges[hip][1]))

        def offset(angle: float, hip: str = hip, last: int = int(knee.bodyid[0]), k: int = above[0]) -> float:
            data = _Poser(model, source.base, {**default, hip: angle}).data
            ends = [b for b in range(last, model.nbody) if _is_below(model, b, last)]
            lowest = min(ends, key=lambda b: float(data.xipos[b, 2]))
            end = data.xipos[lowest] + (data.xipos[lowest] - data.xpos[lowest])
            return float(np.linalg.norm((end - data.xanchor[k])[:2])) + 2.0 * max(
                0.0, float(end[2] - data.xanchor[k][2])
            )

        default[hip] = round(float(min(np.linspace(low, high, 81), key=offset)), 3)
        turned.append(hip)
    said = f"default pose: {', '.join(source.middle)} in the middle of their ranges, which have no 0"
    source.said.append(said + (f"; {', '.join(turned)} turned so that the limbs end below them" if turned else ""))


def _is_below(model: Any, body: int, ancestor: int) -> bool:
    while body > ancestor:
        body = int(model.body_parentid[body])
    return body == ancestor


class _Poser:
    """A compiled robot in its default pose, its base at the origin."""

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

    def lowest(self, body: int) -> tuple[float, int]:
        """Return the height of a body's lowest point that touches [m], and its geom; infinity where none does."""
        from robot_rl_envs.motions.kinematics import lowest_point

        touching = np.flatnonzero((self.model.geom_bodyid == body) & (self.model.geom_group == COLLISION))
        return lowest_point(self.model, self.data, touching)

    def height(self) -> float:
        """Return the height of the base at which the lowest point just touches the ground [m]."""
        return CLEARANCE - min(self.lowest(body)[0] for body in range(1, self.model.nbody))


def _find_wheels(draft: Draft, poser: _Poser, source: Source) -> set[int]:
    """Find the wheels that a floating robot stands on: round about an endless level hinge, with nothing below them.

    Returns:
        The bodies that roll: those of the wheels, and those of castors, which nothing drives and which may be balls.
    """
    rolling: set[int] = set()
    if draft.base is None:
        return rolling
    import mujoco

    model, ground = poser.model, -poser.height()
    for name in draft.joints:
        joint = model.joint(name)
        body = int(joint.bodyid[0])
        if _has_joints_below(model, body) or abs(float(poser.data.xaxis[joint.id][2])) > 0.5 or name in source.coupled:
            continue
        below = [k for k in range(body, model.nbody) if model.body_weldid[k] == body]
        low, geom = min(poser.lowest(k) for k in below)
        found = round_about_joint(model, geom) if geom >= 0 and model.geom_bodyid[geom] == body else None
        if name in source.passive:
            is_ball = geom >= 0 and model.geom_type[geom] == int(mujoco.mjtGeom.mjGEOM_SPHERE)
            rolling |= {body} if found is not None or (is_ball and not joint.limited[0]) else set()
        elif found is not None and low < ground + HOVERS:
            draft.wheels[name] = found[0]
            rolling.add(body)
    if draft.wheels:
        draft.said.append(f"wheels: {', '.join(draft.wheels)}, driven by their speed, without a position to hold")
    return rolling


def _add_feet(draft: Draft, poser: _Poser, rolling: set[int]) -> None:
    """Propose feet: the ends of limbs that reach the ground in the default pose, but for bodies that roll."""
    if draft.base is None:
        return
    import mujoco
    from robot_rl_envs.entity.robot_checks import other_side

    model, spec = poser.model, draft.spec
    ends = [body for body in range(1, model.nbody) if not _has_joints_below(model, body) and _limb(model, body) >= 2]
    # What is fixed to the last link belongs to it.
    reach: dict[int, tuple[float, int]] = {}
    for body in ends:
        last = body
        while not model.body_jntnum[last]:
            last = int(model.body_parentid[last])
        if last not in rolling:
            reach[last] = min(reach.get(last, (math.inf, -1)), poser.lowest(body), poser.lowest(last))
    ground = min((height for height, _ in reach.values()), default=math.inf)
    feet = [(body, *found) for body, found in sorted(reach.items()) if found[0] < ground + 0.05]
    if rolling and (not feet or ground > 0.05 - poser.height()):
        return
    if not math.isfinite(ground) or not feet:
        draft.said.append("feet: none found, no end of a limb has a shape that touches; name them in robot.py")
        return
    names = _short_names([model.body(body).name for body, _, _ in feet])
    spheres = [model.geom_type[geom] == int(mujoco.mjtGeom.mjGEOM_SPHERE) for _, _, geom in feet]
    radii = {float(model.geom_size[geom, 0]) for _, _, geom in feet}
    keep = all(spheres) and len(radii) == 1
    draft.radius = radii.pop() if keep else FOOT_RADIUS
    for name, (body, height, geom) in zip(names, feet, strict=True):
        owner = spec.body(model.body(int(model.geom_bodyid[geom]) if keep else body).name)
        if keep:
            own = next(g for k, g in enumerate(spec.geoms) if k == geom)
            _free_name(spec.geoms, name)
            own.name, place = name, model.geom_pos[geom]
        else:
            turn = poser.data.xmat[body].reshape(3, 3)
            world = np.array([*poser.data.geom_xpos[geom][:2], height + draft.radius])
            place = turn.T @ (world - poser.data.xpos[body])
            shape = {
                "type": mujoco.mjtGeom.mjGEOM_SPHERE,
                "size": [draft.radius, 0, 0],
                "pos": place,
                "group": COLLISION,
            }
            _free_name(spec.geoms, name)
            owner.add_geom(spec.default, name=name, contype=0, conaffinity=1, condim=3, **shape)
        for site in [site for site in spec.sites if site.name == f"{name}_foot"]:
            spec.delete(site)
        owner.add_site(spec.default, name=f"{name}_foot", pos=place)
    draft.feet = names
    draft.foot_mirror = [names.index(other_side(name, names)) for name in names]
    kind = "their own spheres" if keep else f"spheres of {FOOT_RADIUS:g} m were added at their lowest points"
    draft.said.append(f"feet: {', '.join(names)}, the ends of limbs that reach the ground; {kind}")


def _free_name(elements: Sequence[Any], name: str) -> None:
    """Rename the element that has a name, so that another can take it."""
    taken = {element.name: element for element in elements}
    if name in taken:
        taken[name].name = next(other for k in range(1, 10_000) if (other := f"{name}_{k}") not in taken)


def _has_joints_below(model: Any, body: int) -> bool:
    return any(
        model.body_parentid[k] == body and (model.body_jntnum[k] or _has_joints_below(model, k))
        for k in range(body + 1, model.nbody)
    )


def _limb(model: Any, body: int) -> int:
    """Return how many hinges and slides lead from the base to a body."""
    count = 0
    while body:
        first = int(model.body_jntadr[body])
        count += sum(int(model.jnt_type[first + k]) in (2, 3) for k in range(int(model.body_jntnum[body])))
        body = int(model.body_parentid[body])
    return count


def _short_names(names: list[str]) -> list[str]:
    """Return names without the words for the part of a leg, where they stay different."""
    short = [
        re.sub(r"(?i)[_.-]?(foot|calf|ankle|roll|pitch|link|toe|shank|lower|leg|lowerleg)(?=[_.-]|$)", "", name)
        for name in names
    ]
    short = [name.strip("_.-") for name in short]
    return short if len(set(short)) == len(names) and all(short) else names


def _mirror(draft: Draft, model: Any) -> None:
    """Find each joint's partner by its name, and the sign by the axes: in a mirror a turn goes the other way."""
    from robot_rl_envs.entity.robot_checks import mirror_by_names

    joints, named = draft.joints, mirror_by_names(list(draft.joints), model)
    if not any(partner for partner, _ in named.values()):
        return
    for name, joint in joints.items():
        partner, sign = named[name]
        joint |= {"mirror": partner, "mirror_sign": sign}
        if partner is None and sign < 0 and abs(joint["default_pos"]) > 1e-9 and draft.base is not None:
            draft.said.append(
                f"default pose: joint '{name}' at 0 instead of {joint['default_pos']:g}, as its mirror wants"
            )
            joint["default_pos"] = 0.0
    if draft.base is not None:
        for name, joint in joints.items():
            if joint["mirror"] and name < joint["mirror"]:
                joints[joint["mirror"]]["default_pos"] = joint["mirror_sign"] * joint["default_pos"] + 0.0
    _match_ranges(draft)
    pairs = sum(joint["mirror"] is not None for joint in joints.values()) // 2
    draft.said.append(f"mirror: {pairs} pairs of joints by their names, the signs by their axes")


def _match_ranges(draft: Draft) -> None:
    """Give both of a pair the range that both have, where the source's are no mirror images of each other."""
    narrowed = []
    for name, joint in draft.joints.items():
        one, two = draft.spec.joint(name), draft.spec.joint(joint["mirror"] or name)
        own, other = np.array(one.range), np.sort(joint["mirror_sign"] * np.array(two.range))
        shared = [max(own[0], other[0]), min(own[1], other[1])]
        if joint["mirror"] and name < joint["mirror"] and not np.array_equal(own, other) and shared[0] < shared[1]:
            one.range, two.range = shared, np.sort(joint["mirror_sign"] * np.array(shared)).tolist()
            if np.abs(own - other).max() > 1e-4:
                narrowed.append(f"{name} and {joint['mirror']}")
    if narrowed:
        draft.said.append(f"ranges: {', '.join(narrowed)} got the range that both have")


def _drive(draft: Draft, poser: _Poser, source: Source, gains: Gains) -> None:
    """Give each joint limits and gains.

    The stiffness is I (2 pi f)^2 and the damping 2 d I (2 pi f), less the joint's own, for the natural frequency f and
    the damping ratio d, and the inertia I that the joint moves: the inverse of its element on the diagonal of the
    inverse mass matrix in the default pose. A joint that would give way by more than 0.1 rad under what it carries is
    stiffer, and damped alike.
    """
    from robot_rl_envs.entity.robot_checks import moved_inertia

    model, data = poser.model, poser.data
    moved = moved_inertia(model, data)
    loads = np.maximum(np.abs(data.qfrc_bias), _standing_load(draft, poser))
    limits = {name: replace(source.limits.get(name, Limits())) for name in draft.joints}
    limits |= {name: Limits(0.0, limits[name].velocity) for name in (*source.passive, *source.coupled)}
    _take_from_partners(draft, limits)
    held = HELD_BY_LEGS if draft.feet else HELD
    omega = 2.0 * math.pi * gains.frequency
    for name, joint in draft.joints.items():
        dof = int(model.joint(name).dofadr[0])
        inertia, weight, known = float(moved[dof]), float(loads[dof]), limits[name].effort
        effort = max(held * weight, held * inertia * omega**2 * 0.1) if known is None else known
        kp = max(inertia * omega**2, weight / 0.1)
        reach = float(np.ptp(model.joint(name).range)) if model.joint(name).limited[0] else 0.0
        if reach > 0:  # With less the strong motor of a light link would never be used, and its export be refused.
            kp = max(kp, effort / (0.9 * EFFORT_MARGIN * reach))
        kd = max(0.0, 2.0 * gains.damping * math.sqrt(kp * inertia) - float(np.ravel(model.dof_damping[dof])[0]))
        # An action of 1 takes a quarter of the effort, where that is known.
        scale = 0.25 * known / kp if known else 0.25
        if name in draft.wheels:  # Its target is a speed: all its effort where a quarter of the largest is missing.
            grip = 9.81 * float(model.body_mass.sum()) * draft.wheels[name] / len(draft.wheels)
            effort = max(effort, grip) if known is None else known
            scale = 0.25 * (limits[name].velocity or SPEED)
            kp, kd = 0.0, effort / scale
        elif known == 0.0:
            kp, kd = 0.0, 0.0
        joint |= {"effort_limit": rounded(effort), "velocity_limit": rounded(limits[name].velocity or SPEED)}
        joint |= {"kp": rounded(kp), "kd": rounded(kd), "action_scale": rounded(scale)}
    _share(draft, limits)
    passive = {name for name, joint in draft.joints.items() if not joint["effort_limit"]}
    for what, rule in (("effort", f"{held:g} times what holds the default pose"), ("velocity", f"{SPEED:g}")):
        names = [name for name in draft.joints if getattr(limits[name], what) is None and name not in passive]
        if names:
            which = "all joints" if len(names) == len(draft.joints) else ", ".join(names)
            draft.said.append(f"{what} limit: the file has none for {which}; guessed as {rule}; put the motor's there")
    if any(joint["kp"] for joint in draft.joints.values()):
        draft.said.append(
            f"gains: {gains.frequency:g} Hz and a damping ratio of {gains.damping:g} with the inertia of each joint"
        )


def _take_from_partners(draft: Draft, limits: dict[str, Limits]) -> None:
    """Give a joint without a limit in the file that of the other side; say where those of two sides differ."""
    taken: dict[str, list[str]] = {"effort": [], "velocity": []}
    for name, joint in draft.joints.items():
        partner = joint.get("mirror") or name
        for what in ("effort", "velocity"):
            own, other = getattr(limits[name], what), getattr(limits[partner], what)
            if own is None and other:
                setattr(limits[name], what, other)
                taken[what].append(name)
            elif own and other and name < partner and abs(own - other) > 1e-3 * max(own, other):
                line = f"'{name}' has {own:g} and '{partner}' {other:g}, as in the file"
                draft.said.append(f"{what} limit: two sides differ: {line}; correct one that is wrong")
    for what, names in taken.items():
        if names:
            draft.said.append(
                f"{what} limit: the file has none for {', '.join(names)}; that of the other side is there"
            )


def _standing_load(draft: Draft, poser: _Poser) -> np.ndarray:
    """Return what feet's and wheels' shares of the weight load each degree of freedom with (nv,) [N m or N]."""
    model, load = poser.model, np.zeros(poser.model.nv)
    places = [(int(model.geom(foot).bodyid[0]), poser.data.geom(foot).xpos) for foot in draft.feet]
    wheels = [int(model.joint(name).bodyid[0]) for name in draft.wheels]
    places += [(body, poser.data.xpos[body]) for body in wheels]
    weight = 9.81 * float(model.body_mass.sum()) / max(1, len(places))
    for body, point in places:
        jacobian = np.zeros((3, model.nv))
        poser.mj.mj_jac(model, poser.data, jacobian, None, point, body)
        load += np.abs(weight * jacobian[2])
    return load


def _share(draft: Draft, limits: dict[str, Limits]) -> None:
    """Give both of a pair the mean of gains and guessed limits, which differ by small asymmetries of the model."""
    for name, joint in draft.joints.items():
        partner = draft.joints.get(joint.get("mirror") or name, joint)
        if not (joint["effort_limit"] and partner["effort_limit"]) or bool(joint["kp"]) != bool(partner["kp"]):
            continue  # One is not driven, or only one is a wheel.
        known = [key for key in ("effort", "velocity") if getattr(limits[name], key) is not None]
        for key in ("effort_limit", "velocity_limit", "kp", "kd", "action_scale"):
            if key.removesuffix("_limit") not in known:
                joint[key] = partner[key] = rounded(0.5 * (joint[key] + partner[key]))


def _mount_imu(draft: Draft, model: Any) -> None:
    import mujoco

    if draft.base is None:
        return
    body = draft.spec.body(draft.base)
    own = next((site for site in body.sites if "imu" in site.name.lower()), None)
    if own is not None:
        own.set_frame(body.add_frame())  # Its place is that in the body, and it is not turned, whatever it was in.
        own.pos, own.quat, own.alt.type = (
            model.site(own.name).pos,
            [1, 0, 0, 0],
            mujoco.mjtOrientation.mjORIENTATION_QUAT,
        )
        draft.imu = own.name
        return
    draft.imu = "imu"
    _free_name(draft.spec.sites, "imu")
    body.add_site(draft.spec.default, name="imu")
    draft.said.append(f"IMU: at the origin of {draft.base}; move the site to where it sits")


def _add_hand(draft: Draft, poser: _Poser, source: Source) -> None:
    """Propose a gripper: joints at the end of a chain that follow each other; a site goes between their tips."""
    model, data = poser.model, poser.data
    fingers = {leader: [leader] for leader, *_ in source.coupled.values()}
    for follower, (leader, *_) in source.coupled.items():
        fingers[leader].append(follower)
    for leader, joints in fingers.items():
        bodies = [int(model.joint(name).bodyid[0]) for name in joints]
        palms = {int(model.body_parentid[body]) for body in bodies}
        if len(palms) != 1 or any(_has_joints_below(model, body) for body in bodies):
            continue
        palm = palms.pop()
        owned = [np.flatnonzero((model.geom_bodyid == body) & (model.geom_group == COLLISION)) for body in bodies]
        points = [
            data.geom_xpos[geoms].mean(0) if len(geoms) else data.xipos[body]
            for geoms, body in zip(owned, bodies, strict=True)
        ]
        place = data.xmat[palm].reshape(3, 3).T @ (np.mean(points, axis=0) - data.xpos[palm])
        name = f"{model.body(palm).name}_tcp"
        if not any(site.name == name for site in draft.spec.sites):
            draft.spec.body(model.body(palm).name).add_site(draft.spec.default, name=name, pos=place)
        draft.said.append(
            f"gripper: {', '.join(joints)} on {model.body(palm).name}, driven by {leader}; site '{name}' is in the "
            "middle of its fingers; move it to where it holds things"
        )


def write_model(draft: Draft, name: str) -> tuple[str, dict[str, bytes]]:
    """Return the model as text, and the files of its meshes by their path in the robot's folder."""
    spec, meshes, moved = draft.spec, {}, {}
    spec.modelname = name
    for mesh in spec.meshes:
        if mesh.file and mesh.file not in moved:
            own, count = Path(mesh.file), 1
            short = own.name
            while f"meshes/{short}" in meshes:
                count += 1
                short = f"{own.stem}_{count}{own.suffix}"
            meshes[f"meshes/{short}"], moved[mesh.file] = own.read_bytes(), short
    text = spec.to_xml()

    def in_folder(found: re.Match[str]) -> str:
        file = unescape(found[1], {"&quot;": '"', "&apos;": "'"})
        return f" file={quoteattr(moved.get(file, file))}"

    text = re.sub(r' file="([^"]*)"', in_folder, text)
    return (text.replace("<compiler ", '<compiler meshdir="meshes" ', 1) if meshes else text), meshes
