"""Terms of Gymnasium's MuJoCo tasks, version 5: the whole state as observation, speed as reward, noise at the reset.

They read MuJoCo's own arrays as Gymnasium does (:mod:`robot_rl_envs.entity.mujoco_fields`), so that on the CPU engine
a step gives Gymnasium's numbers. Body 0 is the world, body 1 the torso.
"""

import warp as wp

from robot_rl_envs.entity import mirrors
from robot_rl_envs.terms import State, event, metric, observation, reward, termination
from robot_rl_envs.terms.checks import at_least

START = {"forward_from": wp.float64}
"""Position along x at the control step's start [m]; float64, since float32 rounds a difference over 10 ms too much."""


# -- observations ------------------------------------------------------------------------------------------------------


@observation(
    size=lambda scene: scene.model.nq - 1,
    unit="m, rad",
    frame="world",
    mirror=lambda scene: mirrors.without(1, mirrors.positions(scene)),
)
def planar_pos(s: State, i: int, j: int) -> float:
    """Generalized positions without the first: a planar robot's without x [m, rad]."""
    return s.qpos[i, j + 1]


@observation(
    size=lambda scene: scene.model.nq - 2,
    unit="m, 1, rad",
    frame="world",
    mirror=lambda scene: mirrors.without(2, mirrors.positions(scene)),
)
def floating_pos(s: State, i: int, j: int) -> float:
    """Generalized positions without the first two: a floating robot's without x and y [m, quaternion w x y z, rad]."""
    return s.qpos[i, j + 2]


@observation(size=lambda scene: scene.model.nv, unit="m/s, rad/s", frame="world", mirror=mirrors.velocities)
def all_vel(s: State, i: int, j: int) -> float:
    """Generalized velocities [m/s, rad/s]."""
    return s.qvel[i, j]


@observation(
    size=lambda scene: 10 * (scene.model.nbody - 1),
    unit="kg m^2, kg m, kg",
    frame="world",
    data=("cinert",),
    mirror=lambda scene: mirrors.bodies(scene, mirrors.INERTIA),
)
def body_inertias(s: State, i: int, j: int) -> float:
    """Inertia of every body about the robot's center of mass, ten numbers each: MuJoCo's ``cinert``."""
    return float(s.engine_cinert[i, 1 + j // 10, j % 10])


@observation(
    size=lambda scene: 6 * (scene.model.nbody - 1),
    unit="rad/s, m/s",
    frame="world",
    data=("cvel",),
    mirror=lambda scene: mirrors.bodies(scene, mirrors.SPATIAL),
)
def body_velocities(s: State, i: int, j: int) -> float:
    """Angular and linear velocity of every body about the robot's center of mass: MuJoCo's ``cvel``."""
    return float(s.engine_cvel[i, 1 + j // 6, j % 6])


@observation(
    size=lambda scene: scene.model.nv - 6,
    unit="N m",
    frame="joint",
    data=("qfrc_actuator",),
    mirror=lambda scene: mirrors.without(6, mirrors.velocities(scene)),
)
def actuator_forces(s: State, i: int, j: int) -> float:
    """Actuators' force on every degree of freedom after the floating base's six [N m]."""
    return float(s.engine_qfrc_actuator[i, 6 + j, 0])


@observation(
    size=lambda scene: 6 * (scene.model.nbody - 1),
    unit="N m, N",
    frame="world",
    data=("cfrc_ext",),
    mirror=lambda scene: mirrors.bodies(scene, mirrors.SPATIAL),
)
def contact_forces(s: State, i: int, j: int) -> float:
    """Torque and force from outside on every body about the robot's center of mass: MuJoCo's ``cfrc_ext``."""
    return float(s.engine_cfrc_ext[i, 1 + j // 6, j % 6])


# -- rewards -----------------------------------------------------------------------------------------------------------


@wp.func
def note_slider(s: State, i: int):
    """Store the first coordinate before the physics."""
    s.forward_from[i] = wp.float64(s.engine_qpos[i, 0, 0])


@reward(fields=START, data=("qpos",), before=note_slider)
def slider_speed(s: State, i: int) -> float:
    """Mean speed of the first coordinate over the control step [m/s]."""
    return float((wp.float64(s.engine_qpos[i, 0, 0]) - s.forward_from[i]) / s.step_dt64)


@wp.func
def note_torso(s: State, i: int):
    """Store the position of the torso's body frame before the physics."""
    s.forward_from[i] = wp.float64(s.engine_xpos[i, 1, 0])


@reward(fields=START, data=("xpos",), before=note_torso)
def torso_speed(s: State, i: int) -> float:
    """Mean speed of the torso along x over the control step [m/s]."""
    return float((wp.float64(s.engine_xpos[i, 1, 0]) - s.forward_from[i]) / s.step_dt64)


@wp.func
def note_mass(s: State, i: int):
    """Store the center of all masses before the physics."""
    s.forward_from[i] = wp.float64(s.engine_subtree_com[i, 0, 0])


@reward(fields=START, data=("subtree_com",), before=note_mass)
def mass_speed(s: State, i: int) -> float:
    """Mean speed of the center of all masses along x over the control step [m/s]."""
    return float((wp.float64(s.engine_subtree_com[i, 0, 0]) - s.forward_from[i]) / s.step_dt64)


@reward(data=("cfrc_ext",))
def contact_size(s: State, i: int, clip: float, most: float) -> float:
    """Sum of squares of all bodies' forces from outside, each clipped to +-clip, at most ``most`` [N^2, N^2 m^2]."""
    total = wp.float64(0.0)
    bound = wp.float64(clip)
    for b in range(s.engine_cfrc_ext.shape[1]):
        for k in range(6):
            force = wp.clamp(wp.float64(s.engine_cfrc_ext[i, b, k]), -bound, bound)
            total = total + force * force
    return float(wp.min(total, wp.float64(most)))


@metric
def first_vel(s: State, i: int) -> float:
    """The first generalized velocity: the robot's along x [m/s]."""
    return s.qvel[i, 0]


# -- health: a reward while the robot stands, and the end of the episode when it does not ------------------------------


@wp.func
def is_between(value: wp.float64, lo: float, hi: float) -> int:
    """1 where lo < value < hi, 0 elsewhere and for NaN."""
    if value > wp.float64(lo) and value < wp.float64(hi):
        return 1
    return 0


@wp.func
def planar_stands(s: State, i: int, z_lo: float, z_hi: float, angle: float, limit: float) -> int:
    """Whether a planar robot's height and pitch are in range, and every coordinate but x and z in +-limit."""
    good = is_between(wp.float64(s.engine_qpos[i, 1, 0]), z_lo, z_hi)
    good = good * is_between(wp.float64(s.engine_qpos[i, 2, 0]), -angle, angle)
    for k in range(2, s.qpos.shape[1]):
        good = good * is_between(wp.float64(s.engine_qpos[i, k, 0]), -limit, limit)
    for k in range(s.qvel.shape[1]):
        good = good * is_between(wp.float64(s.engine_qvel[i, k, 0]), -limit, limit)
    return good


@reward(data=("qpos", "qvel"))
def planar_healthy(s: State, i: int, z_lo: float, z_hi: float, angle: float, limit: float) -> float:
    """1 while z_lo < z < z_hi [m], abs(pitch) < angle [rad] and every other coordinate and velocity is in +-limit."""
    return float(planar_stands(s, i, z_lo, z_hi, angle, limit))


@termination(data=("qpos", "qvel"))
def planar_unhealthy(s: State, i: int, z_lo: float, z_hi: float, angle: float, limit: float) -> int:
    """The planar robot's height [m], pitch [rad] or another coordinate or velocity is out of range."""
    return 1 - planar_stands(s, i, z_lo, z_hi, angle, limit)


@reward(data=("qpos",))
def floating_healthy(s: State, i: int, z_lo: float, z_hi: float) -> float:
    """1 while the floating robot's height is in (z_lo, z_hi) [m]."""
    return float(is_between(wp.float64(s.engine_qpos[i, 2, 0]), z_lo, z_hi))


@termination(data=("qpos",))
def floating_unhealthy(s: State, i: int, z_lo: float, z_hi: float) -> int:
    """The floating robot's height is not in (z_lo, z_hi) [m]."""
    return 1 - is_between(wp.float64(s.engine_qpos[i, 2, 0]), z_lo, z_hi)


# -- resets ------------------------------------------------------------------------------------------------------------


@event(writes="state", modes=("reset",), check=at_least(0.0, "position", "velocity"))
def noise_uniform(s: State, i: int, rng: wp.uint32, position: float, velocity: float):
    """Add noise to every position, evenly from +-position, and to every velocity, evenly from +-velocity."""
    for k in range(s.qpos.shape[1]):
        s.qpos[i, k] = s.qpos[i, k] + position * (2.0 * wp.randf(rng) - 1.0)
    for k in range(s.qvel.shape[1]):
        s.qvel[i, k] = s.qvel[i, k] + velocity * (2.0 * wp.randf(rng) - 1.0)


@event(writes="state", modes=("reset",), check=at_least(0.0, "position", "velocity"))
def noise_normal(s: State, i: int, rng: wp.uint32, position: float, velocity: float):
    """Add noise to every position, evenly from +-position, and to every velocity, normal with deviation velocity."""
    for k in range(s.qpos.shape[1]):
        s.qpos[i, k] = s.qpos[i, k] + position * (2.0 * wp.randf(rng) - 1.0)
    for k in range(s.qvel.shape[1]):
        s.qvel[i, k] = s.qvel[i, k] + velocity * wp.randn(rng)
