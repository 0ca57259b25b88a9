"""Domain randomization: events that draw per-world model fields, and forces on bodies.

Each draw starts from the model's nominal value, so nothing compounds over resets. The engine recomputes constants
derived from masses, inertias and armature in the worlds that changed, at startup, reset or interval.
"""

from typing import Any

import warp as wp

from robot_rl_envs.actuation.draws import joint_armature, joint_damping, joint_friction, motor_gains
from robot_rl_envs.engine import DIRTY_WRENCH
from robot_rl_envs.terms import State, event
from robot_rl_envs.terms.checks import (
    check_above,
    check_feet,
    check_least,
    check_range,
    contact_dimensions,
    movable_com,
    moving_body,
)

__all__ = [
    "body_com",
    "body_inertia",
    "body_mass",
    "body_payload",
    "foot_solimp",
    "foot_solref",
    "foot_spin_friction",
    "gravity",
    "joint_armature",
    "joint_damping",
    "joint_friction",
    "motor_gains",
    "principal_inertia",
    "release_wrench",
    "wrench",
]

MIN_SPIN = wp.constant(1.0e-5)
"""mjMINMU: MuJoCo raises a smaller torsional or rolling friction to it."""
RELEASED = wp.constant(DIRTY_WRENCH)


def _check_body_mass(params: dict[str, float], scene: Any) -> None:
    moving_body(params, scene)
    check_above(params, "lo", 0.0, ": the mass is multiplied by it")


@event(writes="model", model_fields=("body_mass", "body_inertia"), set_const=True, check=_check_body_mass)
def body_mass(s: State, i: int, rng: wp.uint32, body: float, lo: float, hi: float):
    """Multiply a body's mass and inertia by one factor in [lo, hi]: the same shape, of another density."""
    b = int(body)
    factor = lo + (hi - lo) * wp.randf(rng)
    s.body_mass[i, b, 0] = s.body_mass_nominal[b, 0] * factor
    for k in range(3):
        s.body_inertia[i, b, k] = s.body_inertia_nominal[b, k] * factor


def _check_payload(params: dict[str, float], scene: Any) -> None:
    mass = float(scene.model.body_mass[moving_body(params, scene)])
    check_above(params, "lo", -mass, f": the body's mass is {mass:g} kg")


@event(writes="model", model_fields=("body_mass", "body_inertia"), set_const=True, check=_check_payload)
def body_payload(s: State, i: int, rng: wp.uint32, body: float, lo: float, hi: float):
    """Add a mass in [lo, hi] [kg] to a body, distributed as its own: the inertia is scaled by the same factor."""
    b = int(body)
    factor = (s.body_mass_nominal[b, 0] + lo + (hi - lo) * wp.randf(rng)) / s.body_mass_nominal[b, 0]
    s.body_mass[i, b, 0] = s.body_mass_nominal[b, 0] * factor
    for k in range(3):
        s.body_inertia[i, b, k] = s.body_inertia_nominal[b, k] * factor


def _check_body_com(params: dict[str, float], scene: Any) -> None:
    body = moving_body(params, scene)
    for name in ("x", "y", "z"):
        check_least(params, name, 0.0)
    if params["x"] > 0 or params["y"] > 0 or params["z"] > 0:
        movable_com(body, scene)


@event(writes="model", model_fields=("body_ipos",), set_const=True, check=_check_body_com)
def body_com(s: State, i: int, rng: wp.uint32, body: float, x: float, y: float, z: float):
    """Move a body's center of mass by +-x, +-y, +-z [m] along the axes of the body's frame."""
    b = int(body)
    s.body_ipos[i, b, 0] = s.body_ipos_nominal[b, 0] + x * (2.0 * wp.randf(rng) - 1.0)
    s.body_ipos[i, b, 1] = s.body_ipos_nominal[b, 1] + y * (2.0 * wp.randf(rng) - 1.0)
    s.body_ipos[i, b, 2] = s.body_ipos_nominal[b, 2] + z * (2.0 * wp.randf(rng) - 1.0)


def _check_body_inertia(params: dict[str, float], scene: Any) -> None:
    moving_body(params, scene)
    check_above(params, "lo", 0.0, ": a second moment of a mass is; 0 or less makes the inertia invalid")


@event(writes="model", model_fields=("body_inertia",), set_const=True, check=_check_body_inertia)
def body_inertia(s: State, i: int, rng: wp.uint32, body: float, lo: float, hi: float):
    """Redistribute a body's mass: multiply its second moment along each principal axis by a factor in [lo, hi].

    With principal moments I_k the second moments are c_k = (I_x + I_y + I_z) / 2 - I_k = integral of x_k^2 dm >= 0, and
    I_x = c_y + c_z and so on. An inertia is that of some distribution of mass exactly where all c_k are (Traversaro et
    al., "Identification of fully physical consistent inertial parameters using optimization on manifolds", IROS 2016;
    Wensing, Kim and Slotine, "Linear matrix inequalities for physically-consistent inertial parameter identification",
    RA-L 2018), so every draw is positive definite and keeps the triangle inequality.
    """
    b = int(body)
    half = float(0.0)
    for k in range(3):
        half = half + 0.5 * s.body_inertia_nominal[b, k]
    moment = wp.vec3(0.0, 0.0, 0.0)
    for k in range(3):
        moment[k] = (half - s.body_inertia_nominal[b, k]) * (lo + (hi - lo) * wp.randf(rng))
    total = moment[0] + moment[1] + moment[2]
    for k in range(3):
        s.body_inertia[i, b, k] = total - moment[k]


def _check_principal_inertia(params: dict[str, float], scene: Any) -> None:
    body = moving_body(params, scene)
    check_above(params, "lo", 0.0, ": the inertia is multiplied by it")
    moments = sorted(float(value) for value in scene.model.body_inertia[body])
    if moments[2] * params["hi"] > (moments[0] + moments[1]) * params["lo"]:
        most = params["lo"] * (moments[0] + moments[1]) / moments[2]
        raise ValueError(
            f"hi={params['hi']:g}: can make the inertia of {scene.model.body(body).name!r} invalid (its largest "
            f"principal moment more than the sum of the others); at most {most:.6g} with lo={params['lo']:g}, or "
            "use body_inertia"
        )


@event(writes="model", model_fields=("body_inertia",), set_const=True, check=_check_principal_inertia)
def principal_inertia(s: State, i: int, rng: wp.uint32, body: float, lo: float, hi: float):
    """Multiply each principal moment of a body's inertia by an independent factor in [lo, hi].

    Ranges that could break the triangle inequality are refused; ``body_inertia`` does not have this limit.
    """
    b = int(body)
    for k in range(3):
        s.body_inertia[i, b, k] = s.body_inertia_nominal[b, k] * (lo + (hi - lo) * wp.randf(rng))


def _check_foot_spin(params: dict[str, float], scene: Any) -> None:
    check_feet(params, scene, "torsional_lo")
    for name in ("torsional_lo", "rolling_lo"):
        check_least(params, name, 0.0)
    condim = min(contact_dimensions(scene))
    for name, least in (("torsional_hi", 4), ("rolling_hi", 6)):
        if params[name] > 0 and condim < least:
            raise ValueError(
                f"{name}={params[name]:g}: acts in contacts of condim {least} or more, and the feet of "
                f"{scene.robot.name!r} have condim {condim}; set it to 0, or the model's condim to {least}"
            )


@event(writes="model", model_fields=("geom_friction",), covers=("geom_friction[1:]",), check=_check_foot_spin)
def foot_spin_friction(
    s: State, i: int, rng: wp.uint32, torsional_lo: float, torsional_hi: float, rolling_lo: float, rolling_hi: float
):
    """Draw one torsional and one rolling friction [m] for all feet of a world; see ``foot_friction`` for sliding."""
    torsional = wp.max(torsional_lo + (torsional_hi - torsional_lo) * wp.randf(rng), MIN_SPIN)
    rolling = wp.max(rolling_lo + (rolling_hi - rolling_lo) * wp.randf(rng), MIN_SPIN)
    for f in range(s.foot_geoms.shape[0]):
        s.geom_friction[i, s.foot_geoms[f], 1] = torsional
        s.geom_friction[i, s.foot_geoms[f], 2] = rolling


def _check_foot_solref(params: dict[str, float], scene: Any) -> None:
    check_feet(params, scene, "time_lo")
    least = 2 * scene.model.opt.timestep
    check_least(params, "time_lo", least, " s, two physics steps: MuJoCo takes no shorter one")
    check_above(params, "damping_lo", 0.0)


@event(writes="model", model_fields=("geom_solref",), check=_check_foot_solref)
def foot_solref(s: State, i: int, rng: wp.uint32, time_lo: float, time_hi: float, damping_lo: float, damping_hi: float):
    """Draw how soft the feet of a world are: the contact's time constant [s] and damping ratio."""
    time = time_lo + (time_hi - time_lo) * wp.randf(rng)
    damping = damping_lo + (damping_hi - damping_lo) * wp.randf(rng)
    for f in range(s.foot_geoms.shape[0]):
        s.geom_solref[i, s.foot_geoms[f], 0] = time
        s.geom_solref[i, s.foot_geoms[f], 1] = damping


def _check_foot_solimp(params: dict[str, float], scene: Any) -> None:
    check_feet(params, scene, "dmin_lo")
    for name in ("dmin", "dmax"):
        check_range(params, f"{name}_lo", f"{name}_hi", least=0.0001, most=0.9999)
    check_above(params, "width_lo", 0.0)
    if params["dmin_hi"] > params["dmax_lo"]:
        raise ValueError(f"dmin_hi={params['dmin_hi']:g}: must be at most dmax_lo={params['dmax_lo']:g}")


@event(writes="model", model_fields=("geom_solimp",), check=_check_foot_solimp)
def foot_solimp(
    s: State,
    i: int,
    rng: wp.uint32,
    dmin_lo: float,
    dmin_hi: float,
    dmax_lo: float,
    dmax_hi: float,
    width_lo: float,
    width_hi: float,
):
    """Draw the impedance of a world's feet: dmin at the surface, dmax from a depth of width [m] on."""
    dmin = dmin_lo + (dmin_hi - dmin_lo) * wp.randf(rng)
    dmax = dmax_lo + (dmax_hi - dmax_lo) * wp.randf(rng)
    width = width_lo + (width_hi - width_lo) * wp.randf(rng)
    for f in range(s.foot_geoms.shape[0]):
        s.geom_solimp[i, s.foot_geoms[f], 0] = dmin
        s.geom_solimp[i, s.foot_geoms[f], 1] = dmax
        s.geom_solimp[i, s.foot_geoms[f], 2] = width


def _check_gravity(params: dict[str, float], scene: Any) -> None:
    if not scene.model.opt.gravity.any():
        raise ValueError(f"lo={params['lo']:g}: the model of {scene.robot.name!r} is without gravity")
    why = ": without gravity nothing stands" if scene.base else ": gravity keeps its direction"
    check_above(params, "lo", 0.0, why)


@event(writes="model", model_fields=("opt.gravity",), check=_check_gravity)
def gravity(s: State, i: int, rng: wp.uint32, lo: float, hi: float):
    """Multiply a world's gravity by a factor in [lo, hi]."""
    factor = lo + (hi - lo) * wp.randf(rng)
    for k in range(3):
        s.gravity[i, k, 0] = s.gravity_nominal[k, 0] * factor


@wp.func
def release_wrench(
    s: State,
    i: int,
    body: float,
    force_xy: float,
    force_z: float,
    torque: float,
    duration_lo: float,
    duration_hi: float,
):
    """Count down, and remove the force when the time is over."""
    b = int(body)
    if s.wrench_left_s[i, b] > 0.0:
        s.wrench_left_s[i, b] = s.wrench_left_s[i, b] - s.step_dt
        if s.wrench_left_s[i, b] < 0.5 * s.step_dt:
            s.wrench_left_s[i, b] = 0.0
            for k in range(6):
                s.xfrc_applied[i, b, k] = 0.0
            s.dirty[i] = s.dirty[i] | RELEASED


def _check_wrench(params: dict[str, float], scene: Any) -> None:
    moving_body(params, scene)
    for name in ("force_xy", "force_z", "torque"):
        check_least(params, name, 0.0)
    check_least(params, "duration_lo", scene.sim.step_dt, " s, a control step")


@event(
    writes="wrench",
    covers=("forces on a body",),
    fields={"wrench_left_s": ("bodies",)},
    update=release_wrench,
    check=_check_wrench,
    modes=("reset", "interval"),
)
def wrench(
    s: State,
    i: int,
    rng: wp.uint32,
    body: float,
    force_xy: float,
    force_z: float,
    torque: float,
    duration_lo: float,
    duration_hi: float,
):
    """Push a body for a time in [duration_lo, duration_hi] [s], rounded to control steps, world frame.

    The force at its center of mass is +-force_xy along x and y and +-force_z along z [N], the torque +-torque about
    each axis [N m]; they replace the body's previous push, and end with the episode.
    """
    b = int(body)
    for k in range(2):
        s.xfrc_applied[i, b, k] = force_xy * (2.0 * wp.randf(rng) - 1.0)
    s.xfrc_applied[i, b, 2] = force_z * (2.0 * wp.randf(rng) - 1.0)
    for k in range(3):
        s.xfrc_applied[i, b, 3 + k] = torque * (2.0 * wp.randf(rng) - 1.0)
    s.wrench_left_s[i, b] = duration_lo + (duration_hi - duration_lo) * wp.randf(rng)
