"""Events that draw each world's own motors: gains and strength of explicit actuators and of DC motors.

The native servo's are drawn by :mod:`robot_rl_envs.mdp.events` and :mod:`.randomize`. Every factor multiplies the
nominal value, so nothing compounds over resets.
"""

import warp as wp

from robot_rl_envs.terms import State, event


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
