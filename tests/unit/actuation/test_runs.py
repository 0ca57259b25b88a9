"""Environments with each actuator: they stand, repeat themselves, go on from a checkpoint, and survive a bad world."""

import numpy as np
import pytest
import torch
from robot_rl_envs.actuation.actuators import ActuatorNet, DcMotor, ExplicitPd, PositionPd

from tests.covering import chosen

DELAY = {"delay_s": (0.0, 0.04)}


@pytest.fixture
def actuators(learned_net):
    return {
        "position_pd": PositionPd(**DELAY),
        "dc_motor": DcMotor(saturation_effort=1.5, **DELAY),
        "explicit_pd": ExplicitPd(saturation_effort=1.5, **DELAY),
        "actuator_net": ActuatorNet(file=str(learned_net[0]), **DELAY),
    }


KINDS = ("position_pd", "dc_motor", "explicit_pd", "actuator_net")


def roll(env, steps, seed=0):
    """Random actions; every torque and joint position of the way."""
    rng, seen = np.random.default_rng(seed), []
    for _ in range(steps):
        env.step(torch.from_numpy(rng.normal(0, 0.3, (env.num_envs, 12)).astype(np.float32)))
        seen.append(torch.cat([env.state.joint_torque, env.state.qpos], dim=1).clone())
    return torch.stack(seen)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_go2_stands_for_two_seconds(kind, actuators, go2):
    env = go2(actuators[kind], num_envs=8)
    for _ in range(100):
        env.step(torch.zeros(8, 12))
    assert (env.state.step_count == 100).all()
    height = env.state.base_pos_w[:, 2]
    assert ((height > 0.23) & (height < 0.30)).all()
    assert (env.state.projected_gravity_b[:, 2] < -0.99).all()
    assert (env.state.joint_vel.abs() < 0.2).all()


@pytest.mark.parametrize("kind", chosen(KINDS, "dc_motor"))
def test_the_same_seed_gives_the_same_bits_on_any_number_of_threads(kind, actuators, go2):
    one = roll(go2(actuators[kind], num_envs=300), 6)
    two = roll(go2(actuators[kind], num_envs=300, num_threads=2), 6)
    other = roll(go2(actuators[kind], num_envs=300, seed=8), 6)
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("kind", chosen(KINDS, "actuator_net"))
def test_a_run_goes_on_from_a_checkpoint_bit_for_bit(kind, actuators, go2):
    """Saved in the middle of a delay, loaded into an environment of another seed and other delays."""
    env = go2(actuators[kind], num_envs=16)
    roll(env, 5)
    saved = env.state_dict()
    want = roll(env, 8, seed=1)
    other = go2(actuators[kind], num_envs=16, seed=99)
    roll(other, 3)
    other.load_state_dict(saved)
    assert torch.equal(roll(other, 8, seed=1), want)


@pytest.mark.parametrize("kind", ["explicit_pd", "actuator_net"])
def test_a_bad_action_ends_its_world_alone_and_leaves_nothing_behind(kind, actuators, go2):
    good, bad = (go2(actuators[kind], num_envs=4) for _ in range(2))
    actions = torch.full((4, 12), 0.2)
    for env in (good, bad):
        env.step(actions)
    broken = actions.clone()
    broken[2, 5] = torch.nan
    good.step(actions)
    extras = bad.step(broken)[3]
    assert extras["valid"].tolist() == [True, True, False, True]
    for _ in range(10):
        good.step(actions)
        bad.step(actions)
        assert bad.state.joint_torque.isfinite().all()
    kept = [0, 1, 3]
    assert torch.equal(good.state.qpos[kept], bad.state.qpos[kept])


def test_the_learned_network_moves_a_go2_as_what_it_learned_from(go2, learned_net):
    """Closed loop against the explicit PD one substep late: the same heights and joints through steps of the target."""
    path, loss = learned_net
    assert loss < 2e-4
    net, pd = go2(ActuatorNet(file=str(path))), go2(ExplicitPd(delay_s=(0.005, 0.005)))
    errors, travel = [], []
    for k in range(100):
        actions = torch.full((4, 12), 0.3 * (1 if k // 20 % 2 else -1))
        for env in (net, pd):
            env.step(actions)
        errors.append((net.state.joint_pos - pd.state.joint_pos).abs().mean().item())
        travel.append(pd.state.joint_pos.clone())
    moved = torch.stack(travel)
    assert (moved.amax(0) - moved.amin(0)).mean() > 0.2
    assert np.mean(errors) < 0.02
    assert (net.state.base_pos_w[:, 2] - pd.state.base_pos_w[:, 2]).abs().max() < 0.01


def test_the_default_is_the_engines_own_servo(go2):
    from robot_rl_envs.task import Actions

    assert Actions().actuator == PositionPd()
    env = go2(PositionPd())
    model = env.scene.model
    assert not env.only._drive
    assert (model.actuator_gainprm[:, 0] == 40.0).all()
    assert (model.actuator_biasprm[:, 1:3] == [-40.0, -1.0]).all()


def test_the_contract_does_not_know_the_actuator(actuators, go2):
    """An action is a joint target whatever drives the joint in simulation."""
    plain = go2(PositionPd()).describe_policy()
    assert plain["action_kind"] == "position"
    assert plain["actions"][1] == {"joint": "FL_thigh_joint", "scale": 0.5, "offset": 0.9}
    for actuator in actuators.values():
        assert go2(actuator).describe_policy() == plain
