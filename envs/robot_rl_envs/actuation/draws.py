"""Events that draw each world's own motors and joints: gains, strength, damping, friction and armature.

Every factor multiplies the nominal value, so nothing compounds over resets. Tasks take them from
:mod:`robot_rl_envs.mdp.actuation` and :mod:`robot_rl_envs.mdp.randomize`.
"""

from typing import Any

import warp as wp

from robot_rl_envs.terms import State, event
from robot_rl_envs.terms.checks import check_least


@event(writes="model")
def explicit_gains(
    s: State,
    i: int,
    rng: wp.uint32,
    kp_lo: float,
    kp_hi: float,
    kd_lo: float,
    kd_hi: float,
    strength_lo: float,
    strength_hi: float,
):
    """Scale each joint's kp, kd and strength by independent factors; an ActuatorNet knows only the strength."""
    for j in range(s.kp.shape[1]):
        s.kp[i, j] = s.kp_nominal[j] * (kp_lo + (kp_hi - kp_lo) * wp.randf(rng))
        s.kd[i, j] = s.kd_nominal[j] * (kd_lo + (kd_hi - kd_lo) * wp.randf(rng))
        s.strength[i, j] = strength_lo + (strength_hi - strength_lo) * wp.randf(rng)


@event(writes="model", model_fields=("actuator_gainprm",))
def dc_motor_gains(
    s: State,
    i: int,
    rng: wp.uint32,
    kp_lo: float,
    kp_hi: float,
    kd_lo: float,
    kd_hi: float,
    strength_lo: float,
    strength_hi: float,
):
    """Scale each DC motor's kp, kd and, by its resistance, the torque its voltage drives at standstill."""
    for a in range(s.actuator_gainprm.shape[1]):
        # MuJoCo keeps there: 0 resistance, 1 motor constant, 4 kp, 6 kd, 7 voltage
        s.actuator_gainprm[i, a, 4] = s.actuator_gainprm_nominal[a, 4] * (kp_lo + (kp_hi - kp_lo) * wp.randf(rng))
        s.actuator_gainprm[i, a, 6] = s.actuator_gainprm_nominal[a, 6] * (kd_lo + (kd_hi - kd_lo) * wp.randf(rng))
        strength = strength_lo + (strength_hi - strength_lo) * wp.randf(rng)
        s.actuator_gainprm[i, a, 0] = s.actuator_gainprm_nominal[a, 0] / strength


def _check_joints(field: str, what: str) -> Any:
    def check(params: dict[str, float], scene: Any) -> None:
        check_least(params, "lo", 0.0)
        if not getattr(scene.model, field)[scene.joint_dof].any():
            raise ValueError(
                f"hi={params['hi']:g}: the joints of {scene.robot.name!r} have no {what} to be multiplied; give its "
                "model some, or leave the event out"
            )

    return check


@event(writes="model", model_fields=("dof_damping",), check=_check_joints("dof_damping", "damping"))
def joint_damping(s: State, i: int, rng: wp.uint32, lo: float, hi: float):
    """Multiply each joint's viscous damping by an independent factor in [lo, hi]."""
    for j in range(s.joint_dof.shape[0]):
        d = s.joint_dof[j]
        s.dof_damping[i, d, 0] = s.dof_damping_nominal[d, 0] * (lo + (hi - lo) * wp.randf(rng))


@event(writes="model", model_fields=("dof_frictionloss",), check=_check_joints("dof_frictionloss", "dry friction"))
def joint_friction(s: State, i: int, rng: wp.uint32, lo: float, hi: float):
    """Multiply each joint's dry friction by an independent factor in [lo, hi]."""
    for j in range(s.joint_dof.shape[0]):
        d = s.joint_dof[j]
        s.dof_frictionloss[i, d, 0] = s.dof_frictionloss_nominal[d, 0] * (lo + (hi - lo) * wp.randf(rng))


@event(writes="model", model_fields=("dof_armature",), set_const=True, check=_check_joints("dof_armature", "armature"))
def joint_armature(s: State, i: int, rng: wp.uint32, lo: float, hi: float):
    """Multiply each joint's armature, the inertia of its rotor and gears, by an independent factor in [lo, hi]."""
    for j in range(s.joint_dof.shape[0]):
        d = s.joint_dof[j]
        s.dof_armature[i, d, 0] = s.dof_armature_nominal[d, 0] * (lo + (hi - lo) * wp.randf(rng))


def _check_motor_gains(params: dict[str, float], scene: Any) -> None:
    if scene.actions.kind != "position":
        raise ValueError(f"kp_lo={params['kp_lo']:g}: actions.kind='effort' is without gains; use motor_strength")
    for name in ("kp_lo", "kd_lo"):
        check_least(params, name, 0.0)


@event(writes="model", model_fields=("actuator_gainprm", "actuator_biasprm"), check=_check_motor_gains)
def motor_gains(s: State, i: int, rng: wp.uint32, kp_lo: float, kp_hi: float, kd_lo: float, kd_hi: float):
    """Multiply each servo's kp and kd by independent factors; for the engine's own position servo."""
    for a in range(s.ctrl.shape[1]):
        kp = kp_lo + (kp_hi - kp_lo) * wp.randf(rng)
        kd = kd_lo + (kd_hi - kd_lo) * wp.randf(rng)
        follows = s.actuator_biasprm_nominal[a, 1] != 0.0  # A servo without a kp follows a speed by its kd.
        s.actuator_gainprm[i, a, 0] = s.actuator_gainprm_nominal[a, 0] * wp.where(follows, kp, kd)
        s.actuator_biasprm[i, a, 1] = s.actuator_biasprm_nominal[a, 1] * kp
        s.actuator_biasprm[i, a, 2] = s.actuator_biasprm_nominal[a, 2] * kd
