"""Events that draw the gains and strength of explicit actuators and of DC motors.

The native servo's are drawn by :mod:`robot_rl_envs.mdp.events` and :mod:`.randomize`.
"""

from robot_rl_envs.actuation.draws import dc_motor_gains, explicit_gains

__all__ = ["dc_motor_gains", "explicit_gains"]
