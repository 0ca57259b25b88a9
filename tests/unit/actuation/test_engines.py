"""Every actuator on mujoco_warp: the torques of the CPU engine, the same delays, a checkpoint in the middle of one."""

import numpy as np
import pytest
import torch
from robot_rl_envs.actuation.actuators import ActuatorNet, DcMotor, ExplicitPd, PositionPd

pytestmark = pytest.mark.long  # mujoco_warp compiles for most of a minute where its kernels are not cached

DELAY = {"delay_s": (0.0, 0.04)}


@pytest.fixture
def actuators(random_net):
    return {
        "position_pd": PositionPd(**DELAY),
        "dc_motor": DcMotor(saturation_effort=1.2, **DELAY),
        "explicit_pd": ExplicitPd(saturation_effort=1.2, **DELAY),
        "actuator_net": ActuatorNet(file=str(random_net("tanh")[0]), **DELAY),
    }


KINDS = ("position_pd", "dc_motor", "explicit_pd", "actuator_net")


def roll(env, steps):
    rng, torques, positions = np.random.default_rng(2), [], []
    for _ in range(steps):
        env.step(torch.from_numpy(rng.normal(0, 0.5, (env.num_envs, 12)).astype(np.float32)))
        torques.append(env.state.joint_torque.clone())
        positions.append(env.state.joint_pos.clone())
    return torch.stack(torques), torch.stack(positions)


@pytest.mark.parametrize("kind", KINDS)
def test_both_engines_drive_alike_and_a_checkpoint_goes_on(kind, actuators, go2, put_states):
    """In the air, for 0.16 s. A joint that meets its limit within a rounding error goes a little apart; no other."""
    cpu, other = (go2(actuators[kind], engine=engine) for engine in ("mujoco", "mujoco_warp"))
    assert torch.equal(cpu.state.delay_steps, other.state.delay_steps)
    for env in (cpu, other):
        put_states(env)
    torques, positions = roll(cpu, 8)
    torques_warp, positions_warp = roll(other, 8)
    assert torques.abs().max() > 5.0
    apart = (torques - torques_warp).abs()
    assert (apart < 2e-3).float().mean() > 0.9
    assert apart.max() < 0.1
    np.testing.assert_allclose(positions_warp, positions, atol=1e-3)
    saved = other.state_dict()
    want = roll(other, 4)
    other.reset()
    other.load_state_dict(saved)
    again = roll(other, 4)
    assert all(torch.equal(a, b) for a, b in zip(want, again, strict=True))
