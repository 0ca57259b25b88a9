"""The reward that leads a pole from hanging still to its swing-up: its energy."""

import warp as wp
from robot_rl_envs.terms import State, reward


@reward
@wp.func
def swing_energy(s: State, i: int, joint: float, frequency: float) -> float:
    """max(0, 1 - |E - 1| / 2) of a pole's energy E: 1 at that of standing still upright, 0 hanging still.

    E = velocity^2 / (2 frequency^2) + cos angle, in units of m g l; frequency = sqrt(m g l / I) is that of small
    swings [rad/s] (Astrom and Furuta, Automatica 36, 2000).
    """
    v = s.joint_vel[i, int(joint)] / frequency
    energy = 0.5 * v * v + wp.cos(s.joint_pos[i, int(joint)])
    return wp.max(1.0 - 0.5 * wp.abs(energy - 1.0), 0.0)
