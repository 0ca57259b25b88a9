"""The events that draw motors of their own: pinned factors against the formula, ranges against their ends."""

import numpy as np
import pytest
import torch
from robot_rl_envs.actuation.actuators import DcMotor, ExplicitPd
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import actuation
from robot_rl_envs.task import Actions, Event

N = 32
RANGES = {"kp": (0.8, 1.2), "kd": (0.5, 1.5), "strength": (0.9, 1.0)}


def spread(ranges):
    return {f"{name}_{end}": ranges[name][k] for name in ranges for k, end in enumerate(("lo", "hi"))}


def env_with(go2_task, actuator, fn, ranges, mode="reset"):
    task = go2_task(actions=Actions(actuator=actuator), events={"gains": Event(fn, mode=mode, **spread(ranges))})
    return make_env(task, num_envs=N, engine="mujoco", num_threads=1, seed=5)


def factors(env, actuator):
    """Each world's factors on kp, kd and strength, (N, 12) each, from what the event left."""
    if isinstance(actuator, ExplicitPd):
        state = env.state
        return [(state.kp / 40.0).numpy(), state.kd.numpy(), state.strength.numpy()]
    gains = env.engine.batch.expand("actuator_gainprm").reshape(N, 12, -1)
    nominal = env.scene.model.actuator_gainprm
    return [gains[:, :, 4] / 40.0, gains[:, :, 6], nominal[:, 0] / gains[:, :, 0]]


CASES = {"explicit_gains": ExplicitPd(), "dc_motor_gains": DcMotor()}


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_pinned_factors_are_the_formula(name, go2_task):
    pinned = {"kp": (0.7, 0.7), "kd": (1.4, 1.4), "strength": (0.8, 0.8)}
    env = env_with(go2_task, CASES[name], getattr(actuation, name), pinned)
    for got, want in zip(factors(env, CASES[name]), (0.7, 1.4, 0.8), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", ["reset", "startup"])
def test_factors_fill_their_ranges_and_do_not_compound(name, mode, go2_task):
    env = env_with(go2_task, CASES[name], getattr(actuation, name), RANGES, mode)
    first = [got.copy() for got in factors(env, CASES[name])]
    for _ in range(30):
        env.reset()
    for before, got, (lo, hi) in zip(first, factors(env, CASES[name]), RANGES.values(), strict=True):
        assert got.min() >= lo - 1e-6
        assert got.max() <= hi + 1e-6
        assert got.min() < lo + 0.1 * (hi - lo)
        assert got.max() > hi - 0.1 * (hi - lo)
        assert np.array_equal(before, got) == (mode == "startup")
    kp, kd, strength = (values.ravel() for values in factors(env, CASES[name]))
    assert abs(np.corrcoef([kp, kd, strength]) - np.eye(3)).max() < 0.2


def test_weaker_dc_motors_push_less(go2_task):
    """Half the strength: half the torque at standstill; a small position error still gets the full torque."""
    pinned = {"kp": (1.0, 1.0), "kd": (1.0, 1.0), "strength": (0.5, 0.5)}
    env = env_with(go2_task, DcMotor(), actuation.dc_motor_gains, pinned)
    env.state.qpos[:, 2] = 1.0
    env.state.dirty.fill_(2)
    env.write_back()
    env.state.ctrl.copy_(torch.tensor(env.scene.robot.default_pos()))
    env.state.ctrl[:, 0] += 0.1
    env.state.ctrl[:, 1] += 3.0
    env.engine.step(1)
    torque = env.state.actuator_force
    np.testing.assert_allclose(torque[:, 0], 4.0, atol=1e-3)
    np.testing.assert_allclose(torque[:, 1], 0.5 * 23.7, atol=1e-2)
