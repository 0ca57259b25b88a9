"""Each actuator's torque against NumPy, over random states and targets."""

import numpy as np
import pytest
import torch
import warp as wp
from robot_rl_envs.actuation import drive
from robot_rl_envs.actuation.actuators import ActuatorNet, DcMotor, ExplicitPd, PositionPd

from tests.covering import chosen

KINDS = {
    "position_pd": (PositionPd(), 0.0),
    "dc_motor": (DcMotor(), 1.0),
    "dc_motor_with_headroom": (DcMotor(saturation_effort=1.7, voltage=48.0), 1.7),
    "explicit_pd": (ExplicitPd(), 0.0),
    "explicit_pd_with_curve": (ExplicitPd(saturation_effort=1.3), 1.3),
}


def random_actions(env, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).uniform(-3, 3, (env.num_envs, 12)).astype(np.float32))


def targets(env, actions):
    return np.array(env.cfg.robot.default_pos()) + 0.5 * actions.numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_torque_is_its_formula(kind, go2, put_states, formula):
    actuator, curve = KINDS[kind]
    env = go2(actuator, num_envs=64, sim={"decimation": 1})
    state, actions = put_states(env), random_actions(env)
    env.step(actions)
    want = formula(targets(env, actions), state.pos, state.vel, curve)
    np.testing.assert_allclose(env.state.joint_torque.numpy(), want, atol=2e-4)
    unclipped = formula(targets(env, actions), state.pos, state.vel)
    assert (np.abs(want) < 15).any()
    if curve:
        assert (np.abs(want - unclipped) > 1).mean() > 0.05  # the curve matters in a good part of the states


def test_speed_beyond_the_limit_brakes(go2, put_states, formula):
    """Above its speed without load a DC motor under full voltage pushes back."""
    for actuator in (DcMotor(), ExplicitPd(saturation_effort=1.0)):
        env = go2(actuator, num_envs=4, sim={"decimation": 1})
        put_states(env)
        env.state.qvel[:, 6:] = 40.0
        env.state.dirty.fill_(1)
        env.write_back()
        env.step(torch.full((4, 12), 9.0))
        assert (env.state.joint_torque < -5.0).all()


def test_explicit_gains_are_the_worlds_own(go2, put_states, formula):
    env = go2(ExplicitPd(), num_envs=8, sim={"decimation": 1})
    state, actions = put_states(env), random_actions(env)
    rng = np.random.default_rng(3)
    kp, kd, strength = (rng.uniform(0.5, 1.5, (8, 12)).astype(np.float32) for _ in range(3))
    env.state.kp.mul_(torch.from_numpy(kp))
    env.state.kd.mul_(torch.from_numpy(kd))
    env.state.strength.copy_(torch.from_numpy(strength))
    env.step(actions)
    effort = np.array([joint.effort_limit for joint in env.cfg.robot.joints])
    value = kp * 40.0 * (targets(env, actions) - state.pos) - kd * state.vel
    want = np.clip(strength * np.clip(value, -effort, effort), -effort, effort)
    np.testing.assert_allclose(env.state.joint_torque.numpy(), want, atol=2e-4)


@pytest.mark.parametrize("activation", chosen(["softsign", "tanh", "elu", "relu"], "softsign", "elu"))
def test_network_is_its_reference(activation, go2, put_states, random_net, frozen, formula):
    """Every substep's torque, with the histories that the substeps before it left."""
    path, net = random_net(activation)
    env = go2(ActuatorNet(file=str(path)), num_envs=16)
    seen, state = frozen(env), put_states(env)
    effort = np.array([joint.effort_limit for joint in env.cfg.robot.joints])
    errors, velocities = [], []
    for control_step in range(3):
        actions = random_actions(env, control_step)
        env.step(actions)
        for _ in range(4):
            errors.insert(0, targets(env, actions) - state.pos)
            velocities.insert(0, state.vel)
            lag = [min(k, len(errors) - 1) for k in range(3)]
            torque = net.torque(
                np.stack([errors[k] for k in lag], axis=-1), np.stack([velocities[k] for k in lag], axis=-1)
            )
            np.testing.assert_allclose(seen.pop(0), np.clip(torque, -effort, effort), atol=1e-4, rtol=1e-5)
    assert np.abs(torque).max() > 1.0


@wp.kernel(enable_backward=False)
def activate(x: wp.array(dtype=wp.float32), tanh_out: wp.array(dtype=wp.float32), elu_out: wp.array(dtype=wp.float32)):
    i = wp.tid()
    tanh_out[i] = drive.tanh(x[i])
    elu_out[i] = drive.elu(x[i])


def test_activations_without_a_call_are_exact_to_rounding():
    """Also far out, where the fraction is cut off."""
    x = np.concatenate([np.linspace(-12, 12, 50001), [-1e30, 1e30, 0.0]]).astype(np.float32)
    given = wp.array(x, device="cpu")
    tanh, elu = wp.zeros_like(given), wp.zeros_like(given)
    wp.launch(activate, dim=len(x), inputs=[given, tanh, elu], device="cpu")
    exact = x.astype(np.float64)
    np.testing.assert_allclose(tanh.numpy(), np.tanh(exact), atol=3e-7)
    np.testing.assert_allclose(
        elu.numpy(), np.where(exact > 0, exact, np.expm1(np.minimum(exact, 0))), atol=3e-7, rtol=1e-7
    )


@pytest.mark.parametrize("hidden", [(5,), (40, 3, 17)])
def test_networks_of_other_shapes(hidden, go2, put_states, random_net, frozen):
    """One lag, and layers of odd widths."""
    path, net = random_net("tanh", (0.0,), hidden)
    env = go2(ActuatorNet(file=str(path)), num_envs=4, sim={"decimation": 1})
    seen, state = frozen(env), put_states(env)
    actions = random_actions(env)
    env.step(actions)
    effort = np.array([joint.effort_limit for joint in env.cfg.robot.joints])
    want = net.torque((targets(env, actions) - state.pos)[..., None], state.vel[..., None])
    np.testing.assert_allclose(seen[0], np.clip(want, -effort, effort), atol=1e-4)


def test_an_effort_goes_through_unchanged(go2, put_states):
    """actions.kind="effort": the plain motor, and a DC motor within its voltage."""
    from robot_rl_envs.task import Actions

    for actuator, curve in ((PositionPd(), 0.0), (DcMotor(saturation_effort=1.5), 1.5)):
        env = go2(
            actuator, num_envs=16, sim={"decimation": 1}, task={"actions": Actions(kind="effort", actuator=actuator)}
        )
        state = put_states(env)
        actions = random_actions(env)
        env.step(actions)
        joints = env.cfg.robot.joints
        effort = np.array([joint.effort_limit for joint in joints])
        speed = np.array([joint.velocity_limit for joint in joints])
        want = actions.numpy() * effort * np.array([joint.action_scale for joint in joints])
        if curve:
            want = np.clip(want, curve * effort * (-1 - state.vel / speed), curve * effort * (1 - state.vel / speed))
        np.testing.assert_allclose(env.state.joint_torque.numpy(), np.clip(want, -effort, effort), atol=2e-4)
