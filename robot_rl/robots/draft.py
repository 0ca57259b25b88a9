"""Makes our robot of one that was read: shapes, gains, default pose, feet and mirror."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from robot_rl.errors import UserError
from robot_rl.robots.shapes import COLLISION, compile_source, replace_shapes, state_inertias
from robot_rl.robots.source import Limits, Source, positions

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


@dataclass(slots=True)
class Gains:
    """How stiff a joint is: its natural frequency [Hz] and damping ratio with the inertia that it moves."""

    frequency: float
    damping: float


@dataclass(slots=True)
class Draft:
    """A robot in the form of ours.

    Attributes:
        spec: its model.
        joints: by name the fields of `robot_rl_assets.robot.Joint`.
        base: name of the base's body; None for a fixed one.
        height: of the base in the default pose [m].
        feet: names, in pairs where there are two sides.
        radius: of a foot [m].
        foot_mirror: index of each foot on the other side.
        imu: name of the site of the IMU; None for a fixed base.
        said: what was guessed, left out or replaced, in lines.
    """

    spec: Any
    joints: dict[str, dict[str, Any]]
    base: str | None
    height: float = 0.0
    feet: list[str] = field(default_factory=list)
    radius: float = 0.0
    foot_mirror: list[int] = field(default_factory=list)
    imu: str | None = None
    said: list[str] = field(default_factory=list)


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
    names = [joint.name for joint in spec.joints if int(joint.type) in (2, 3)]
    model = compile_source(source)
    ranges = {name: _range(model, name) for name in names}
    draft = Draft(spec, {}, source.base, said=source.said)
    default = positions(source, names, ranges)
    if source.middle:
        _bend(source, model, default, ranges)
    if mirrored:
        _mirror_default(default, names)
    poser = _Poser(model, source.base, default)
    draft.joints = {name: {"default_pos": default[name]} for name in names}
    _add_feet(draft, poser)
    model = compile_source(source)
    poser = _Poser(model, source.base, default)
    if mirrored:
        _mirror(draft, model)
    if not any(joint.get("mirror") for joint in draft.joints.values()):
        draft.foot_mirror = list(range(len(draft.feet)))
    poser = _Poser(model, source.base, {name: joint["default_pos"] for name, joint in draft.joints.items()})
    draft.height = _base_height(source, poser) if source.base else 0.0
    _drive(draft, poser, source, gains)
    _mount_imu(draft)
    _add_hand(draft, poser, source)
    _settle(draft, source)
    return draft


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
        from robot_rl_envs.entity.robot_checks import lowest_point

        touching = np.flatnonzero((self.model.geom_bodyid == body) & (self.model.geom_group == COLLISION))
        return lowest_point(self.model, self.data, touching)

    def height(self) -> float:
        """Return the height of the base at which the lowest point just touches the ground [m]."""
        return CLEARANCE - min(self.lowest(body)[0] for body in range(1, self.model.nbody))


def _add_feet(draft: Draft, poser: _Poser) -> None:
    """Propose feet: the ends of limbs that reach the ground in the default pose."""
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
        reach[last] = min(reach.get(last, (math.inf, -1)), poser.lowest(body), poser.lowest(last))
    ground = min((height for height, _ in reach.values()), default=math.inf)
    feet = [(body, *found) for body, found in sorted(reach.items()) if found[0] < ground + 0.05]
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
    guessed: dict[str, list[str]] = {"effort": [], "velocity": []}
    held = HELD_BY_LEGS if draft.feet else HELD
    for name, joint in draft.joints.items():
        dof = int(model.joint(name).dofadr[0])
        inertia, weight = float(moved[dof]), float(loads[dof])
        limits = source.limits.get(name, Limits())
        if limits.effort is None:
            guessed["effort"].append(name)
        if limits.velocity is None:
            guessed["velocity"].append(name)
        effort = limits.effort or max(held * weight, held * inertia * (2 * math.pi * gains.frequency) ** 2 * 0.1)
        omega = 2.0 * math.pi * gains.frequency
        kp = max(inertia * omega**2, weight / 0.1)
        kd = max(0.0, 2.0 * gains.damping * math.sqrt(kp * inertia) - float(np.ravel(model.dof_damping[dof])[0]))
        joint |= {"effort_limit": _round(effort), "velocity_limit": _round(limits.velocity or SPEED)}
        # An action of 1 takes a quarter of the effort, where that is known.
        scale = 0.25 * limits.effort / kp if limits.effort else 0.25
        joint |= {"kp": _round(kp), "kd": _round(kd), "action_scale": _round(scale)}
    _share(draft)
    for name in source.coupled:
        draft.joints[name] |= {"effort_limit": 0.0, "kp": 0.0, "kd": 0.0}
        guessed["effort"] = [other for other in guessed["effort"] if other != name]
    for what, names in guessed.items():
        if names:
            which = "all joints" if len(names) == len(draft.joints) else ", ".join(names)
            rule = f"{held:g} times what holds the default pose" if what == "effort" else f"{SPEED:g}"
            draft.said.append(f"{what} limit: the file has none for {which}; guessed as {rule}; put the motor's there")
    draft.said.append(
        f"gains: {gains.frequency:g} Hz and a damping ratio of {gains.damping:g} with the inertia of each joint"
    )


def _standing_load(draft: Draft, poser: _Poser) -> np.ndarray:
    """Return what the feet's shares of the weight load each degree of freedom with (nv,) [N m or N]."""
    model, load = poser.model, np.zeros(poser.model.nv)
    weight = 9.81 * float(model.body_mass.sum()) / max(1, len(draft.feet))
    for foot in draft.feet:
        jacobian = np.zeros((3, model.nv))
        poser.mj.mj_jacGeom(model, poser.data, jacobian, None, model.geom(foot).id)
        load += np.abs(weight * jacobian[2])
    return load


def _share(draft: Draft) -> None:
    """Give both of a pair the mean of their limits and gains, which differ by small asymmetries of the model."""
    for name, joint in draft.joints.items():
        partner = draft.joints.get(joint.get("mirror") or name, joint)
        for key in ("effort_limit", "velocity_limit", "kp", "kd", "action_scale"):
            joint[key] = partner[key] = _round(0.5 * (joint[key] + partner[key]))


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _settle(draft: Draft, source: Source) -> None:
    """Let a floating robot stand on a floor in its default pose; stiffen it if it sinks far, and say how far."""
    if draft.base is None:
        return
    sunk = math.inf
    for _ in range(4):
        sunk, tilt = _stand(draft, source)
        if sunk < 0.1 * draft.height:
            break
        if tilt > 0.5:
            break
        for name, joint in draft.joints.items():
            joint["kp"], joint["kd"] = _round(2.0 * joint["kp"]), _round(math.sqrt(2.0) * joint["kd"])
            if name in source.limits and source.limits[name].effort:
                joint["action_scale"] = _round(0.5 * joint["action_scale"])
    else:
        tilt = 0.0
    if tilt > 0.5:
        draft.said.append("standing: it falls within a second in its default pose; a policy has to balance it")
    else:
        draft.said.append(f"standing: it holds its default pose and sinks by {100 * sunk:.1f} cm with its gains")


def _stand(draft: Draft, source: Source) -> tuple[float, float]:
    """Return how far the base sinks in a second [m], and how far it tilts [rad]."""
    import mujoco

    spec = source.spec.copy()
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], contype=1, conaffinity=0)
    spec.option.timestep = 0.001
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    model = spec.compile()
    data = mujoco.MjData(model)
    base = int(model.jnt_qposadr[model.body_jntadr[model.body(draft.base).id]])
    ids = [model.joint(name).id for name in draft.joints]
    at, dofs = model.jnt_qposadr[ids], model.jnt_dofadr[ids]
    column = {
        key: np.array([joint[key] for joint in draft.joints.values()])
        for key in ("default_pos", "kp", "kd", "effort_limit")
    }
    data.qpos[at] = column["default_pos"]
    data.qpos[base : base + 7] = [0, 0, draft.height, 1, 0, 0, 0]
    for _ in range(1000):
        effort = column["kp"] * (column["default_pos"] - data.qpos[at]) - column["kd"] * data.qvel[dofs]
        data.qfrc_applied[dofs] = np.clip(effort, -column["effort_limit"], column["effort_limit"])
        mujoco.mj_step(model, data)
        if not np.isfinite(data.qpos).all():
            return math.inf, math.pi
    up = 1.0 - 2.0 * (data.qpos[base + 4] ** 2 + data.qpos[base + 5] ** 2)
    return draft.height - float(data.qpos[base + 2]), math.acos(min(1.0, max(-1.0, float(up))))


def _mount_imu(draft: Draft) -> None:
    if draft.base is None:
        return
    body = draft.spec.body(draft.base)
    own = next((site for site in body.sites if "imu" in site.name.lower()), None)
    if own is not None:
        draft.imu, own.quat = own.name, [1, 0, 0, 0]
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
    for file, short in moved.items():
        text = text.replace(f"file={quoteattr(file)}", f"file={quoteattr(short)}")
    return (text.replace("<compiler ", '<compiler meshdir="meshes" ', 1) if meshes else text), meshes
