"""Event terms: resets, pushes and domain randomization.

Model fields start from their nominal values each time, so nothing compounds over resets.
"""

from typing import Any

import warp as wp

from robot_rl_envs.quat import quat_from_axis_angle
from robot_rl_envs.terms import State, event
from robot_rl_envs.terms.checks import above, at_least, check_least, check_share, movable_com, moving_body

TWO_PI = wp.constant(6.283185307179586)
MIN_FRICTION = wp.constant(0.01)
"""Contacts with less turn NaN: a Go2 on pyramidal cones at 0.001 in float32 and at 0.00001 in float64."""


@event(writes="state", check=at_least(0.0, "xy", "yaw", "velocity"))
def reset_base(s: State, i: int, rng: wp.uint32, xy: float, yaw: float, velocity: float):
    """Spread the base over +-xy [m] and +-yaw [rad], with +-velocity [m/s, rad/s] in every direction."""
    at = s.base_qpos
    s.qpos[i, at] = s.qpos[i, at] + xy * (2.0 * wp.randf(rng) - 1.0)
    s.qpos[i, at + 1] = s.qpos[i, at + 1] + xy * (2.0 * wp.randf(rng) - 1.0)
    q = quat_from_axis_angle(wp.vec3(0.0, 0.0, 1.0), yaw * (2.0 * wp.randf(rng) - 1.0))
    for k in range(4):
        s.qpos[i, at + 3 + k] = q[k]
    for k in range(6):
        s.qvel[i, s.base_dof + k] = velocity * (2.0 * wp.randf(rng) - 1.0)


def _check_fall(params: dict[str, float], scene: Any) -> None:
    check_least(params, "height", 0.0)
    check_share(params, "joints")
    if not scene.base:
        raise ValueError(f"height={params['height']:g}: robot {scene.robot.name!r} is bolted down; leave the event out")


@event(writes="state", check=_check_fall)
def reset_anyhow(s: State, i: int, rng: wp.uint32, height: float, joints: float):
    """Drop the robot: any orientation, its base ``height`` [m] above its start, joints anywhere in their limits.

    Joints are uniform between the default pose and either limit, of which ``joints`` is the share that is used; without
    a limit it is half a turn. Orientations are uniform: Shoemake, "Uniform random rotations", Graphics Gems III, 1992.
    """
    at = s.base_qpos
    s.qpos[i, at + 2] = s.qpos[i, at + 2] + height
    u = wp.randf(rng)
    v = TWO_PI * wp.randf(rng)
    w = TWO_PI * wp.randf(rng)
    s.qpos[i, at + 3] = wp.sqrt(1.0 - u) * wp.sin(v)
    s.qpos[i, at + 4] = wp.sqrt(1.0 - u) * wp.cos(v)
    s.qpos[i, at + 5] = wp.sqrt(u) * wp.sin(w)
    s.qpos[i, at + 6] = wp.sqrt(u) * wp.cos(w)
    for j in range(s.joint_pos.shape[1]):
        rest = s.default_joint_pos[j]
        lower = wp.max(s.joint_lower[j], rest - wp.pi)
        upper = wp.min(s.joint_upper[j], rest + wp.pi)
        anywhere = lower + (upper - lower) * wp.randf(rng)
        s.qpos[i, s.joint_qpos[j]] = rest + joints * (anywhere - rest)


@event(writes="state", check=at_least(0.0, "position", "velocity"))
def reset_joints(s: State, i: int, rng: wp.uint32, position: float, velocity: float):
    """Put the joints at the default pose +-position [rad or m], within their limits, with +-velocity [rad/s or m/s]."""
    for j in range(s.joint_pos.shape[1]):
        q = s.default_joint_pos[j] + position * (2.0 * wp.randf(rng) - 1.0)
        s.qpos[i, s.joint_qpos[j]] = wp.clamp(q, s.joint_lower[j], s.joint_upper[j])
        s.qvel[i, s.joint_dof[j]] = velocity * (2.0 * wp.randf(rng) - 1.0)


@event(writes="state", check=at_least(0.0, "spread", "velocity"))
def reset_joint_to(s: State, i: int, rng: wp.uint32, joint: float, centre: float, spread: float, velocity: float):
    """Put one joint, given by its index, at center +-spread [rad or m] with +-velocity."""
    j = int(joint)
    s.qpos[i, s.joint_qpos[j]] = centre + spread * (2.0 * wp.randf(rng) - 1.0)
    s.qvel[i, s.joint_dof[j]] = velocity * (2.0 * wp.randf(rng) - 1.0)


@event(writes="velocity", check=at_least(0.0, "xy", "yaw"))
def push(s: State, i: int, rng: wp.uint32, xy: float, yaw: float):
    """Add +-xy [m/s] to the base's horizontal velocity and +-yaw [rad/s] to its turn."""
    at = s.base_dof
    s.qvel[i, at] = s.qvel[i, at] + xy * (2.0 * wp.randf(rng) - 1.0)
    s.qvel[i, at + 1] = s.qvel[i, at + 1] + xy * (2.0 * wp.randf(rng) - 1.0)
    s.qvel[i, at + 5] = s.qvel[i, at + 5] + yaw * (2.0 * wp.randf(rng) - 1.0)


@event(
    writes="model",
    model_fields=("geom_friction",),
    covers=("geom_friction[0]",),
    check=at_least(0.0, "lo"),
)
def foot_friction(s: State, i: int, rng: wp.uint32, lo: float, hi: float):
    """Draw one sliding friction in [lo, hi] for all feet of a world; less than 0.01 becomes 0.01."""
    mu = wp.max(lo + (hi - lo) * wp.randf(rng), MIN_FRICTION)
    for f in range(s.foot_geoms.shape[0]):
        s.geom_friction[i, s.foot_geoms[f], 0] = mu


def _check_base_mass(params: dict[str, float], scene: Any) -> None:
    body = moving_body(params, scene)
    mass = float(scene.model.body_mass[body])
    check_least(params, "mass", 0.0)
    check_least(params, "com", 0.0)
    if params["mass"] >= mass:
        raise ValueError(f"mass={params['mass']:g}: must be less than {mass:g} kg, the mass of the body itself")
    if params["com"] > 0:
        movable_com(body, scene)


@event(writes="model", model_fields=("body_mass", "body_inertia", "body_ipos"), set_const=True, check=_check_base_mass)
def base_mass(s: State, i: int, rng: wp.uint32, body: float, mass: float, com: float):
    """Add +-mass [kg] to a body, its inertia scaled alike, and move its center of mass by +-com [m] along each axis."""
    b = int(body)
    delta = mass * (2.0 * wp.randf(rng) - 1.0)
    ratio = (s.body_mass_nominal[b, 0] + delta) / s.body_mass_nominal[b, 0]
    s.body_mass[i, b, 0] = s.body_mass_nominal[b, 0] * ratio
    for k in range(3):
        s.body_inertia[i, b, k] = s.body_inertia_nominal[b, k] * ratio
        s.body_ipos[i, b, k] = s.body_ipos_nominal[b, k] + com * (2.0 * wp.randf(rng) - 1.0)


@event(
    writes="model",
    model_fields=("actuator_gainprm", "actuator_biasprm"),
    check=above(0.0, "lo", why=": gains are multiplied by it"),
)
def motor_strength(s: State, i: int, rng: wp.uint32, lo: float, hi: float):
    """Scale each motor's gains (or, driven by effort, its force) by a factor in [lo, hi]."""
    for a in range(s.ctrl.shape[1]):
        factor = lo + (hi - lo) * wp.randf(rng)
        s.actuator_gainprm[i, a, 0] = s.actuator_gainprm_nominal[a, 0] * factor
        for k in range(3):
            s.actuator_biasprm[i, a, k] = s.actuator_biasprm_nominal[a, k] * factor
