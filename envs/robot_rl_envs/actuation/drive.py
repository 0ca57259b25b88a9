"""What explicit actuators compute for one joint of one world, in each substep; and the draw of a world's delay.

``a`` is the struct of :mod:`robot_rl_envs.codegen.actuating`: one row a driven joint, in the order of ctrl. A world's
first substep after a reset is known by its step count, so histories clear themselves.
"""

from typing import Any

import warp as wp


@wp.func
def softsign(x: float) -> float:
    """X / (1 + |x|)."""
    return x / (1.0 + wp.abs(x))


@wp.func
def tanh(x: float) -> float:
    """The hyperbolic tangent within 1e-6, without a branch or a call: so the compiler computes eight at once.

    Lambert's continued fraction at x / 4, then the double-angle formula twice, on numerator and denominator.
    """
    y = wp.clamp(x, -9.0, 9.0) * 0.25
    z = y * y
    a = y * (135135.0 + z * (17325.0 + z * (378.0 + z)))
    b = 135135.0 + z * (62370.0 + z * (3150.0 + z * 28.0))
    c = 2.0 * a * b
    d = a * a + b * b
    return 2.0 * c * d / (c * c + d * d)


@wp.func
def elu(x: float) -> float:
    """X where x > 0, else exp(x) - 1, which is 2 t / (1 - t) with t = tanh(x / 2)."""
    t = tanh(0.5 * wp.min(x, 0.0))
    return wp.where(x > 0.0, x, 2.0 * t / (1.0 - t))


@wp.func
def relu(x: float) -> float:
    """The larger of x and 0."""
    return wp.max(x, 0.0)


@wp.func
def pd_torque(s: Any, i: int, j: int, target: float, pos: float, vel: float) -> float:
    """Kp (target - q) - kd qd with the world's own gains [N m]."""
    return s.kp[i, j] * (target - pos) - s.kd[i, j] * vel


@wp.func
def pd_torque_or_speed(s: Any, a: Any, i: int, j: int, target: float, pos: float, vel: float) -> float:
    """The law of :func:`pd_torque`, or kd (target - qd) if the target is a speed [N m]."""
    speed = a.by_speed[j]
    return s.kp[i, j] * (target - pos) + s.kd[i, j] * (speed * target - vel)


@wp.func
def torque_speed(torque: float, vel: float, stall: float, no_load: float) -> float:
    """Clip a torque to the range of a supply voltage at this speed: stall (-1 - w / w0) to stall (1 - w / w0)."""
    share = vel / no_load
    return wp.clamp(torque, stall * (-1.0 - share), stall * (1.0 - share))


@wp.func
def delayed_target(s: Any, a: Any, i: int, j: int, substep: int, decimation: int) -> float:
    """The joint target of ``s.delay_steps[i]`` substeps ago; before the episode's first it is the default pose.

    Targets change once a control step, so one a control step is kept, newest first.
    """
    last = a.target_history.shape[2] - 1
    if substep == 0:
        for n in range(last):
            k = last - n
            a.target_history[i, j, k] = wp.where(
                s.step_count[i] == 0, a.default_target[j], a.target_history[i, j, k - 1]
            )
        a.target_history[i, j, 0] = s.joint_target[i, j]
    late = s.delay_steps[i] - substep
    back = wp.where(late > 0, (late + decimation - 1) / decimation, 0)
    return a.target_history[i, j, wp.min(back, last)]


@wp.func
def push_sample(s: Any, history: wp.array3d(dtype=wp.float32), i: int, j: int, substep: int, value: float):
    """Put a value in front of a joint's history, newest first; in an episode's first substep it fills the history."""
    fresh = s.step_count[i] == 0 and substep == 0
    last = history.shape[2] - 1
    for n in range(last):
        k = last - n
        history[i, j, k] = wp.where(fresh, value, history[i, j, k - 1])
    history[i, j, 0] = value


@wp.func
def draw_delay_steps(rng: wp.uint32, lo: float, hi: float, timestep: float, most: int) -> int:
    """A delay drawn in [lo, hi] [s], in whole substeps, at most ``most``."""
    delay = lo + (hi - lo) * wp.randf(rng)
    return wp.clamp(int(delay / timestep + 0.5), 0, most)


@wp.func
def draw_quantile(p: wp.array(dtype=wp.float32), first: int, last: int, rng: wp.uint32) -> float:
    """Draw from the distribution with the quantiles p[first], ..., p[last] at evenly spaced probabilities."""
    at = wp.randf(rng) * float(last - first)
    k = first + wp.min(int(at), last - first - 1)
    return p[k] + (at - float(k - first)) * (p[k + 1] - p[k])


@wp.func
def round_delay(rng: wp.uint32, delay: float, timestep: float, most: int) -> int:
    """A delay [s] in whole substeps, up or down by chance, so that it is right on average; at most ``most``."""
    return wp.clamp(int(wp.floor(delay / timestep + wp.randf(rng))), 0, most)


@wp.func
def set_engine_delay(s: Any, i: int, timestep: float):
    """Give MuJoCo's actuators of world i the delay of ``s.delay_steps[i]`` substeps; see actuators.engine_delay."""
    delay = wp.max(0.0, (float(s.delay_steps[i]) - 0.5) * timestep)
    for k in range(s.actuator_delay.shape[1]):
        s.actuator_delay[i, k, 0] = delay
