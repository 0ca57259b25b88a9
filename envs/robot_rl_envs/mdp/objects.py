"""Terms about a task's objects and about named sites: reaching, holding, lifting and opening, and the objects' starts.

Positions that an actor or a command names are in the frame of the robot's base: of its floating base, or of the world
for a robot with a fixed base. A command is then a target: its first three components are a position [m] there.
"""

from typing import Any

import warp as wp

from robot_rl_envs.quat import quat_from_axis_angle, quat_multiply, quat_rotate_inverse
from robot_rl_envs.terms import State, event, metric, observation, reward, termination
from robot_rl_envs.terms.checks import above, at_least, check_above, check_range


@wp.func
def to_base(s: State, i: int, vector: wp.vec3) -> wp.vec3:
    """Return a vector of the world's frame in that of world i's base; a fixed base has the world's."""
    quat = s.base_quat_wxyz[i]
    if wp.length_sq(quat) < 0.5:
        return vector
    return quat_rotate_inverse(quat, vector)


@wp.func
def site_in_base(s: State, i: int, site: int) -> wp.vec3:
    """Return the position of a site from world i's base, in the base's frame [m]."""
    return to_base(s, i, s.site_pos_w[i, site] - s.base_pos_w[i])


@wp.func
def object_in_base(s: State, i: int, thing: int) -> wp.vec3:
    """Return the position of an object from world i's base, in the base's frame [m]."""
    return to_base(s, i, s.object_pos_w[i, thing] - s.base_pos_w[i])


@wp.func
def target_position(s: State, i: int) -> wp.vec3:
    """Return the position that world i's command names, in the base's frame [m]."""
    return wp.vec3(s.command[i][0], s.command[i][1], s.command[i][2])


@wp.func
def nearness(distance: float, std: float) -> float:
    """1 - tanh(distance / std): 1 at the target, with a slope that also shows the way from far."""
    return 1.0 - wp.tanh(distance / std)


# -- observations ----------------------------------------------------------------------------------------------------


@observation(size=3, unit="m", frame="base")
def site_pos(s: State, i: int, j: int, site: float) -> float:
    """Position of a site in the base's frame [m]."""
    return site_in_base(s, i, int(site))[j]


@observation(size=3, unit="m/s", frame="base")
def site_lin_vel(s: State, i: int, j: int, site: float) -> float:
    """Velocity of a site in the world, in the base's frame [m/s]."""
    return to_base(s, i, s.site_lin_vel_w[i, int(site)])[j]


@observation(size=3, unit="m", frame="base")
def site_to_target(s: State, i: int, j: int, site: float) -> float:
    """Vector from a site to the commanded position, in the base's frame [m]."""
    return (target_position(s, i) - site_in_base(s, i, int(site)))[j]


@observation(size=3, unit="m", frame="base")
def object_pos(s: State, i: int, j: int, object: float) -> float:
    """Position of an object in the base's frame [m]."""
    return object_in_base(s, i, int(object))[j]


@observation(size=4, unit="1", frame="world")
def object_quat(s: State, i: int, j: int, object: float) -> float:
    """Orientation of an object in the world, w x y z with w >= 0."""
    quat = s.object_quat_wxyz[i, int(object)]
    if quat[0] < 0.0:
        return -quat[j]
    return quat[j]


@observation(size=3, unit="m/s", frame="base")
def object_lin_vel(s: State, i: int, j: int, object: float) -> float:
    """Velocity of an object in the world, in the base's frame [m/s]."""
    return to_base(s, i, s.object_lin_vel_w[i, int(object)])[j]


@observation(size=3, unit="m", frame="base")
def site_to_object(s: State, i: int, j: int, site: float, object: float) -> float:
    """Vector from a site to an object, in the base's frame [m]."""
    return to_base(s, i, s.object_pos_w[i, int(object)] - s.site_pos_w[i, int(site)])[j]


@observation(size=3, unit="m", frame="base")
def site_to_site(s: State, i: int, j: int, site: float, to_site: float) -> float:
    """Vector from one site to another, such as a drawer's handle, in the base's frame [m]."""
    return to_base(s, i, s.site_pos_w[i, int(to_site)] - s.site_pos_w[i, int(site)])[j]


@observation(size=3, unit="m", frame="base")
def object_to_target(s: State, i: int, j: int, object: float) -> float:
    """Vector from an object to the commanded position, in the base's frame [m]."""
    return (target_position(s, i) - object_in_base(s, i, int(object)))[j]


@observation(unit="m", frame="joint")
def object_joint_pos(s: State, i: int, j: int, object_joint: float) -> float:
    """Position of a joint of an articulated object [m or rad]."""
    return s.object_joint_pos[i, int(object_joint)]


@observation(unit="m/s", frame="joint")
def object_joint_vel(s: State, i: int, j: int, object_joint: float) -> float:
    """Velocity of a joint of an articulated object [m/s or rad/s]."""
    return s.object_joint_vel[i, int(object_joint)]


@observation(unit="N")
def contact_force(s: State, i: int, j: int, contact: float) -> float:
    """Size of the net force between the parts of a contact sensor in the last substep [N]."""
    return s.contact_force[i, int(contact)]


@observation()
def sensor_value(s: State, i: int, j: int, sensor: float) -> float:
    """Value of a sensor of one number in the robot's model, of the last substep; 0 in an episode's first step."""
    return s.sensordata[i, int(sensor)]


@observation(size=3)
def sensor_vector(s: State, i: int, j: int, sensor: float) -> float:
    """Value of a sensor of three numbers in the robot's model, of the last substep; 0 in an episode's first step."""
    return s.sensordata[i, int(sensor) + j]


# -- rewards ---------------------------------------------------------------------------------------------------------


@wp.func
def distance_to_target(s: State, i: int, position: wp.vec3) -> float:
    """Distance of a position in the base's frame from the commanded one [m]."""
    return wp.length(target_position(s, i) - position)


@reward(reads_command=3)
def reach_target(s: State, i: int, site: float, std: float) -> float:
    """1 - tanh(d / std) of the distance d [m] from a site to the commanded position."""
    return nearness(distance_to_target(s, i, site_in_base(s, i, int(site))), std)


@reward
def reach_object(s: State, i: int, site: float, object: float, std: float) -> float:
    """1 - tanh(d / std) of the distance d [m] from a site to an object."""
    return nearness(wp.length(s.object_pos_w[i, int(object)] - s.site_pos_w[i, int(site)]), std)


@reward
def reach_site(s: State, i: int, site: float, to_site: float, std: float) -> float:
    """1 - tanh(d / std) of the distance d [m] from one site to another."""
    return nearness(wp.length(s.site_pos_w[i, int(to_site)] - s.site_pos_w[i, int(site)]), std)


@reward
def object_lifted(s: State, i: int, object: float, height: float) -> float:
    """1 where an object is above a height [m]."""
    if s.object_pos_w[i, int(object)][2] > height:
        return 1.0
    return 0.0


@reward
def object_raised(s: State, i: int, object: float, rest: float, height: float) -> float:
    """Height of an object above ``rest`` [m], its height at rest, as a share of ``height`` [m], in [0, 1]."""
    return wp.clamp((s.object_pos_w[i, int(object)][2] - rest) / height, 0.0, 1.0)


@reward(reads_command=3)
def object_at_target(s: State, i: int, object: float, std: float, height: float) -> float:
    """1 - tanh(d / std) of the distance d [m] from an object to the commanded position; 0 below a height [m]."""
    if s.object_pos_w[i, int(object)][2] < height:
        return 0.0
    return nearness(distance_to_target(s, i, object_in_base(s, i, int(object))), std)


@reward
def object_joint_open(s: State, i: int, object_joint: float, goal: float) -> float:
    """Position of a joint of an articulated object as a share of ``goal`` [m or rad], in [0, 1]."""
    return wp.clamp(s.object_joint_pos[i, int(object_joint)] / goal, 0.0, 1.0)


@reward
def touches(s: State, i: int, contact: float, force: float) -> float:
    """1 if the force at a contact sensor is more than ``force`` [N]."""
    if s.contact_force[i, int(contact)] > force:
        return 1.0
    return 0.0


@reward(check=above(0.0, "force", why=": the force is divided by it"))
def contact_load(s: State, i: int, contact: float, force: float) -> float:
    """Force at a contact sensor as a share of ``force`` [N], in [0, 1]."""
    return wp.min(s.contact_force[i, int(contact)] / force, 1.0)


@wp.func
def closed_near(s: State, i: int, joint: int, opened: float, d: float) -> float:
    """Return (1 - q / opened) exp(-d^2), q the position of a finger and d a distance as a share of one that is near."""
    return wp.clamp(1.0 - s.joint_pos[i, joint] / opened, 0.0, 1.0) * wp.exp(-d * d)


@wp.func
def held_near(s: State, i: int, left: int, right: int, force: float, d: float) -> float:
    """Return min(f / force, 1) exp(-d^2), f the smaller of two contact forces [N], d as of :func:`closed_near`."""
    weaker = wp.min(s.contact_force[i, left], s.contact_force[i, right])
    return wp.min(weaker / force, 1.0) * wp.exp(-d * d)


@reward
def closes(s: State, i: int, site: float, object: float, joint: float, distance: float, opened: float) -> float:
    """How far a finger has closed if the object is between the fingers, in [0, 1].

    (1 - q / opened) exp(-(d / distance)^2) with the finger's position q, ``opened`` [m or rad] of the open finger, and
    the distance d [m] from a site between the fingers to the object.
    """
    d = wp.length(s.object_pos_w[i, int(object)] - s.site_pos_w[i, int(site)]) / distance
    return closed_near(s, i, int(joint), opened, d)


@reward
def grasps(
    s: State,
    i: int,
    site: float,
    object: float,
    distance: float,
    left_contact: float,
    right_contact: float,
    force: float,
) -> float:
    """How firmly an object is held, in [0, 1]: min(f / force, 1) exp(-(d / distance)^2).

    f is the smaller of the forces at two contact sensors [N], d the distance from a site between the fingers to the
    object [m]: without it, fingers that press on the object from above would earn as much.
    """
    d = wp.length(s.object_pos_w[i, int(object)] - s.site_pos_w[i, int(site)]) / distance
    return held_near(s, i, int(left_contact), int(right_contact), force, d)


# -- metrics and terminations ----------------------------------------------------------------------------------------


@metric(unit="m", better="smaller", reads_command=3)
def site_error(s: State, i: int, site: float) -> float:
    """Distance of a site from the commanded position [m]."""
    return distance_to_target(s, i, site_in_base(s, i, int(site)))


@metric(better="larger", reads_command=3)
def site_reached(s: State, i: int, site: float, distance: float) -> float:
    """1 where a site is within ``distance`` [m] of the commanded position."""
    if distance_to_target(s, i, site_in_base(s, i, int(site))) < distance:
        return 1.0
    return 0.0


@metric(unit="m", better="smaller")
def site_distance(s: State, i: int, site: float, to_site: float) -> float:
    """Distance between two sites [m]."""
    return wp.length(s.site_pos_w[i, int(to_site)] - s.site_pos_w[i, int(site)])


@metric(unit="m", better="smaller", reads_command=3)
def object_error(s: State, i: int, object: float) -> float:
    """Distance of an object from the commanded position [m]."""
    return distance_to_target(s, i, object_in_base(s, i, int(object)))


@metric(better="larger", reads_command=3)
def object_reached(s: State, i: int, object: float, distance: float) -> float:
    """1 where an object is within ``distance`` [m] of the commanded position."""
    if distance_to_target(s, i, object_in_base(s, i, int(object))) < distance:
        return 1.0
    return 0.0


@metric(better="larger")
def joint_opened(s: State, i: int, object_joint: float, goal: float) -> float:
    """1 where a joint of an articulated object is at ``goal`` [m or rad] or beyond."""
    if s.object_joint_pos[i, int(object_joint)] >= goal:
        return 1.0
    return 0.0


@termination
def object_below(s: State, i: int, object: float, height: float) -> int:
    """An object is below a height [m]: it fell off its table."""
    if s.object_pos_w[i, int(object)][2] < height:
        return 1
    return 0


# -- events ----------------------------------------------------------------------------------------------------------


def _check_free(params: dict[str, float], scene: Any) -> None:
    name = list(scene.objects)[int(params["object"])]
    if scene.objects[name].fixed:
        raise ValueError(f"object={name!r}: is fixed, so its pose cannot be drawn; use place_fixed")


@event(writes="state", check=_check_free)
def reset_object(
    s: State,
    i: int,
    rng: wp.uint32,
    object: float,
    x_lo: float,
    x_hi: float,
    y_lo: float,
    y_hi: float,
    z_lo: float,
    z_hi: float,
    yaw: float,
):
    """Put a free object at its start plus a vector of the box x, y, z [m], turned by +-yaw [rad], at rest."""
    at = s.object_qpos[int(object)]
    s.qpos[i, at] = s.qpos[i, at] + x_lo + (x_hi - x_lo) * wp.randf(rng)
    s.qpos[i, at + 1] = s.qpos[i, at + 1] + y_lo + (y_hi - y_lo) * wp.randf(rng)
    s.qpos[i, at + 2] = s.qpos[i, at + 2] + z_lo + (z_hi - z_lo) * wp.randf(rng)
    turn = quat_from_axis_angle(wp.vec3(0.0, 0.0, 1.0), yaw * (2.0 * wp.randf(rng) - 1.0))
    rest = wp.vec4(s.qpos[i, at + 3], s.qpos[i, at + 4], s.qpos[i, at + 5], s.qpos[i, at + 6])
    quat = quat_multiply(turn, rest)
    for k in range(4):
        s.qpos[i, at + 3 + k] = quat[k]


def _check_fixed(params: dict[str, float], scene: Any) -> None:
    name = list(scene.objects)[int(params["object"])]
    if not scene.objects[name].fixed:
        raise ValueError(f"object={name!r}: moves freely; use reset_object")


@event(writes="model", model_fields=("body_pos",), check=_check_fixed)
def place_fixed(
    s: State,
    i: int,
    rng: wp.uint32,
    object: float,
    x_lo: float,
    x_hi: float,
    y_lo: float,
    y_hi: float,
    z_lo: float,
    z_hi: float,
):
    """Move a fixed object from its place by a vector of the box x, y, z [m]."""
    o = int(object)
    b = s.object_body[o]
    s.body_pos[i, b, 0] = s.body_pos_nominal[b, 0] + x_lo + (x_hi - x_lo) * wp.randf(rng)
    s.body_pos[i, b, 1] = s.body_pos_nominal[b, 1] + y_lo + (y_hi - y_lo) * wp.randf(rng)
    s.body_pos[i, b, 2] = s.body_pos_nominal[b, 2] + z_lo + (z_hi - z_lo) * wp.randf(rng)
    s.object_pos_w[i, o] = wp.vec3(s.body_pos[i, b, 0], s.body_pos[i, b, 1], s.body_pos[i, b, 2])


@event(writes="state", check=at_least(0.0, "velocity"))
def reset_object_joint(s: State, i: int, rng: wp.uint32, object_joint: float, lo: float, hi: float, velocity: float):
    """Put a joint of an articulated object in [lo, hi] [m or rad], with +-velocity."""
    j = int(object_joint)
    s.qpos[i, s.object_joint_qpos[j]] = lo + (hi - lo) * wp.randf(rng)
    s.qvel[i, s.object_joint_dof[j]] = velocity * (2.0 * wp.randf(rng) - 1.0)


@event(
    writes="model",
    model_fields=("geom_friction",),
    covers=("friction of an object",),
    check=at_least(0.0, "lo"),
)
def object_friction(s: State, i: int, rng: wp.uint32, object: float, lo: float, hi: float):
    """Draw one sliding friction in [lo, hi] for all geoms of an object."""
    o = int(object)
    mu = wp.max(lo + (hi - lo) * wp.randf(rng), 0.01)
    for g in range(s.object_geom[o], s.object_geom[o] + s.object_geom_count[o]):
        s.geom_friction[i, g, 0] = mu


def _check_size(params: dict[str, float], scene: Any) -> None:
    from robot_rl_envs.objects import Box, Cylinder, Sphere

    check_above(params, "lo", 0.0, ": the size is multiplied by it")
    name = list(scene.objects)[int(params["object"])]
    if not isinstance(scene.objects[name], Box | Cylinder | Sphere):
        raise ValueError(f"object={name!r}: its size cannot be multiplied; that of a Box, Cylinder or Sphere can")


@event(
    writes="model",
    model_fields=("geom_size", "geom_rbound", "geom_aabb", "body_mass", "body_inertia"),
    covers=("size of an object",),
    set_const=True,
    modes=("startup", "reset"),
    check=_check_size,
)
def object_size(s: State, i: int, rng: wp.uint32, object: float, lo: float, hi: float):
    """Multiply an object's size by a factor in [lo, hi], at the same density: mass by its cube, inertia by its fifth.

    Lengths of a box, cylinder or sphere are in proportion; the frame stays in the middle.
    """
    o = int(object)
    factor = lo + (hi - lo) * wp.randf(rng)
    g, b = s.object_geom[o], s.object_body[o]
    for k in range(3):
        s.geom_size[i, g, k] = s.geom_size_nominal[g, k] * factor
        s.geom_aabb[i, g, 3 + k] = s.geom_aabb_nominal[g, 3 + k] * factor
        s.body_inertia[i, b, k] = s.body_inertia_nominal[b, k] * wp.pow(factor, 5.0)
    s.geom_rbound[i, g, 0] = s.geom_rbound_nominal[g, 0] * factor
    s.body_mass[i, b, 0] = s.body_mass_nominal[b, 0] * factor * factor * factor


@event(
    writes="nothing",
    fields={"object_tint": ("objects", 4)},
    covers=("color of an object",),
    check=lambda params, _: check_range(params, "lo", "hi", least=0.0, most=1.0),
)
def object_color(s: State, i: int, rng: wp.uint32, object: float, lo: float, hi: float):
    """Draw red, green and blue of an object in [lo, hi], for color images; physics does not see it."""
    o = int(object)
    for k in range(3):
        s.object_tint[i, o, k] = lo + (hi - lo) * wp.randf(rng)
    s.object_tint[i, o, 3] = 1.0
