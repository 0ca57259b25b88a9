"""Delays: exact to the substep, drawn by each world, cleared at a reset, the same on explicit and native actuators."""

import numpy as np
import pytest
import torch
from robot_rl_envs.actuation.actuators import ActuatorNet, DcMotor, ExplicitPd, PositionPd, engine_delay

DT = 0.005
DEFAULT = np.tile([0.0, 0.9, -1.8], 4)


def late(targets, steps, n):
    """The target in force at substep n of an episode, `steps` late; the default pose before the first."""
    return targets[n - steps] if n >= steps else DEFAULT


def test_explicit_delay_is_exact_to_the_substep(go2, frozen):
    """Joints stand still, so the torque determines the target; the reference is a list with one entry per substep."""
    env = go2(ExplicitPd(delay_s=(0.0, 11 * DT), delay_history=11), num_envs=64)
    seen = frozen(env)
    steps = env.state.delay_steps.numpy().copy()
    assert set(steps) == set(range(12))
    rng, targets = np.random.default_rng(0), []
    for _ in range(8):
        actions = torch.from_numpy(rng.uniform(-0.3, 0.3, (64, 12)).astype(np.float32))
        env.step(actions)
        targets += [DEFAULT + 0.5 * actions.numpy()] * 4
    want = np.zeros((32, 64, 12))
    for n in range(32):
        for i in range(64):
            want[n, i] = 40.0 * (np.broadcast_to(late(targets, steps[i], n), (64, 12))[i] - DEFAULT)
    np.testing.assert_allclose(np.array(seen), want, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("actuator", [PositionPd, DcMotor, ExplicitPd])
def test_delay_is_exact_to_the_substep_in_motion(actuator, go2, formula, put_states):
    """A target a substep; the torque of each is the formula's with the target so many substeps ago."""
    curve = 1.0 if actuator is DcMotor else 0.0
    env = go2(actuator(delay_s=(0.0, 6 * DT), delay_history=6), num_envs=32, sim={"decimation": 1})
    steps = env.state.delay_steps.numpy().copy()
    assert set(steps) == set(range(7))
    put_states(env)
    rng, targets = np.random.default_rng(0), []
    for n in range(20):
        actions = torch.from_numpy(rng.uniform(-0.3, 0.3, (32, 12)).astype(np.float32))
        targets.append(DEFAULT + 0.5 * actions.numpy())
        pos, vel = env.state.qpos[:, 7:].numpy().copy(), env.state.qvel[:, 6:].numpy().copy()
        env.step(actions)
        target = np.array([np.broadcast_to(late(targets, steps[i], n), (32, 12))[i] for i in range(32)])
        np.testing.assert_allclose(env.state.joint_torque.numpy(), formula(target, pos, vel, curve), atol=1e-3)


@pytest.mark.long
def test_long_episodes_keep_the_delay_exact(go2):
    """Twenty seconds on, the engine's clock has gathered rounding errors; the sample it picks has not moved."""
    env = go2(PositionPd(delay_s=(3 * DT, 3 * DT)), num_envs=1, sim={"decimation": 1}, task={"episode_length_s": 1e3})
    for _ in range(4000):
        env.step(torch.zeros(1, 12))
    pushed = torch.full((1, 12), 0.2)
    torques = []
    for _ in range(5):
        env.step(pushed)
        torques.append(env.state.joint_torque.numpy()[0, 0])
    jumps = np.abs(np.diff(torques)) > 2.0
    assert jumps.tolist() == [False, False, True, False]


def test_engine_delay_is_between_two_samples():
    assert engine_delay(0, DT) == 0.0
    assert engine_delay(1, DT) == pytest.approx(0.5 * DT)
    assert engine_delay(4, DT) == pytest.approx(3.5 * DT)


@pytest.mark.parametrize("actuator", [PositionPd, ExplicitPd])
def test_every_reset_draws_again_within_the_range(actuator, go2):
    env = go2(actuator(delay_s=(0.01, 0.03)), num_envs=64)
    before = env.state.delay_steps.numpy().copy()
    env.reset()
    after = env.state.delay_steps.numpy()
    assert before.min() == after.min() == 2
    assert before.max() == after.max() == 6
    assert (before != after).any()
    if actuator is PositionPd:
        want = np.array([engine_delay(int(k), DT) for k in after])
        np.testing.assert_allclose(env.engine.batch.expand("actuator_delay")[:, 0], want, atol=1e-7)


def test_a_delay_can_be_changed_while_running_up_to_the_history(go2):
    env = go2(ExplicitPd(delay_s=(0.01, 0.01), delay_history=8), num_envs=4)
    for name in ("0", "1"):
        env.set_param(f"actions.actuator.delay_s.{name}", 0.5)
    env.reset()
    assert (env.state.delay_steps == 8).all()


@pytest.mark.parametrize("actuator", [PositionPd, DcMotor, ExplicitPd, ActuatorNet])
def test_a_reset_world_knows_nothing_of_its_past(actuator, go2, random_net):
    """Two worlds of one reset: one was thrown about before. Both go the same way from there, bit for bit."""
    file = {"file": str(random_net()[0])} if actuator is ActuatorNet else {}
    env = go2(actuator(delay_s=(4 * DT, 4 * DT), **file), num_envs=2)
    wild = torch.zeros(2, 12)
    wild[1] = 1.5
    for _ in range(5):
        env.step(wild)
    assert not torch.equal(env.state.qpos[0], env.state.qpos[1])
    env.reset()
    for k in range(6):
        env.step(torch.full((2, 12), 0.1 * k))
        assert torch.equal(env.state.joint_torque[0], env.state.joint_torque[1])
        assert torch.equal(env.state.qpos[0], env.state.qpos[1])


def test_no_delay_costs_nothing(go2):
    env = go2(ExplicitPd())
    assert not hasattr(env.state, "delay_steps")
    assert not hasattr(env.state, "target_history")
    native = go2(PositionPd())
    assert native.scene.model.nhistory == 0
    assert "actuator_delay" not in dir(native.state)
