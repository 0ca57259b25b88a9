"""What the CPU engine must keep apart: worlds, precisions, resets, and what one bad world does to the others."""

from typing import Any

import numpy as np
import pytest
import torch
import warp as wp
from mujoco.batch import Batch
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events, observations, rewards
from robot_rl_envs.task import Event, Observation, ObservationGroup, Reward
from robot_rl_envs.terms import event


@event(writes="state")
@wp.func
def lift(s: Any, i: int, rng: wp.uint32, height: float):
    """Start even worlds in the air."""
    if i % 2 == 0:
        s.qpos[i, 2] = s.qpos[i, 2] + height


def actions_at(step, env):
    generator = torch.Generator().manual_seed(step)
    return 0.5 * torch.randn(env.num_envs, env.num_actions, generator=generator)


def test_a_world_reset_into_the_air_touches_nothing(go2_task):
    """Thirty resets of the worlds in the air, while the others stand: the same bits each time, at any thread."""
    groups = {
        "actor": ObservationGroup(
            terms={
                "contact": Observation(observations.foot_contact),
                "torque": Observation(observations.joint_torque),
                "air": Observation(observations.foot_air_time),
                "vel": Observation(observations.base_lin_vel),
            }
        )
    }
    task = go2_task(observations=groups, events={"lift": Event(lift, height=0.1)})
    env = make_env(task, num_envs=8, engine="mujoco", num_threads=2)
    high, low = torch.arange(0, 8, 2), torch.arange(1, 8, 2)
    zero = torch.zeros(8, 12)
    first, second = [], []
    for _ in range(30):
        for _ in range(12):
            env.step(zero)
        assert env.state.foot_contact.any(dim=1).all()
        env.episode_length_buf[high] = env.max_episode_length
        obs = env.step(zero)[0]["actor"][high]
        first.append(obs.clone())
        assert not env.state.foot_contact[high].any()
        assert not env.state.sensordata[high].any()
        assert env.state.foot_contact[low].any(dim=1).all()
        second.append(env.step(zero)[0]["actor"][high].clone())
        assert not env.state.foot_contact[high].any()
    for seen in (first, second):
        assert all(torch.equal(one, seen[0]) for one in seen)
        assert not seen[0][:, :4].any(), "a contact in the air"
    assert not first[0].any(), "torques or velocities of the episode before"


@pytest.fixture
def run_twin(busy_task):
    """run(spoil): 40 steps of eight worlds; ``spoil(env, step)`` may damage one. Returns every step's results."""

    def run(spoil=None):
        env = make_env(busy_task, num_envs=8, engine="mujoco", seed=3, num_threads=2)
        rows = []
        for step in range(40):
            if spoil is not None:
                spoil(env, step)
            obs, reward, dones, extras = env.step(actions_at(step, env))
            final = extras["final_obs"]["actor"].clone()
            rows.append((obs["actor"].clone(), reward.clone(), dones.clone(), extras["valid"].clone(), final))
        return env, [torch.stack(column) for column in zip(*rows, strict=True)]

    return run


@pytest.mark.parametrize("field", ["qpos", "qvel"])
def test_a_world_that_is_not_finite_is_quarantined_alone(run_twin, field):
    def spoil(env, step):
        if step == 10:
            getattr(env.engine.batch, field)[2, 1] = np.nan

    _, (obs, reward, dones, valid, _) = run_twin()
    env, (obs_nan, reward_nan, dones_nan, valid_nan, final_nan) = run_twin(spoil)
    others = [0, 1, 3, 4, 5, 6, 7]
    for clean, spoilt in ((obs, obs_nan), (reward, reward_nan), (dones, dones_nan), (valid, valid_nan)):
        assert torch.equal(clean[:, others], spoilt[:, others])
    assert valid.all()
    assert (~valid_nan).nonzero().tolist() == [[10, 2]]
    assert dones_nan[10, 2]
    assert reward_nan[10, 2] == 0
    assert torch.isfinite(obs_nan).all()
    assert torch.isfinite(reward_nan).all()
    assert torch.isfinite(final_nan).all()
    metrics = env.pop_metrics()
    assert metrics["quarantined"] == 1
    assert all(np.isfinite(value) for value in metrics.values())
    for name in ("qpos", "qvel", "joint_vel", "foot_pos_w", "reward_sums", "sensordata"):
        assert torch.isfinite(getattr(env.state, name)).all(), name
    assert np.isfinite(env.engine.get_state()).all()


def test_a_reward_that_is_not_finite_quarantines_its_world(puppet, cart_task):
    from robot_rl_envs.terms import reward

    @reward
    @wp.func
    def inverse(s: Any, i: int) -> float:
        """1 / x."""
        return 1.0 / s.joint_pos[i, 0]

    doll = puppet(cart_task(rewards={"inverse": Reward(inverse, weight=1.0)}))
    _, value, dones, extras = doll.step(qpos=[[0.5, 0.0], [0.0, 0.0]], qvel=[0.0, 0.0])
    assert value.tolist() == pytest.approx([0.2, 0.0])
    assert dones.tolist() == [False, True]
    assert extras["time_outs"].tolist() == [False, False]
    assert extras["valid"].tolist() == [True, False]
    assert doll.env.pop_metrics()["quarantined"] == 1


@pytest.mark.parametrize("spoilt", ["qpos", "qvel", "actions"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_reward_has_to_notice(puppet, cart_task, spoilt, value):
    """Here every world earns 1, whatever its state."""
    doll = puppet(cart_task(), num_envs=3)
    fields = {"qpos": np.zeros((3, 2)), "qvel": np.zeros((3, 2)), "actions": np.zeros((3, 1))}
    fields[spoilt][1, 0] = value
    obs, reward, dones, extras = doll.step(**fields)
    assert extras["valid"].tolist() == [True, False, True]
    assert dones.tolist() == [False, True, False]
    assert reward.tolist() == pytest.approx([0.1, 0.0, 0.1])
    assert torch.isfinite(obs["actor"]).all()
    assert doll.step(qpos=np.zeros((3, 2)), qvel=np.zeros((3, 2)))[3]["valid"].all()


def test_an_absurd_velocity_is_taken_for_an_explosion(puppet, cart_task):
    doll = puppet(cart_task(), num_envs=2)
    assert doll.step(qpos=[0.0, 0.0], qvel=[[9e3, 0.0], [2e4, 0.0]])[3]["valid"].tolist() == [True, False]


def test_an_action_that_is_not_finite_costs_only_its_own_world(go2_task):
    env = make_env(go2_task(rewards={"rate": Reward(rewards.action_rate, weight=-1.0)}), num_envs=3, engine="mujoco")
    actions = torch.zeros(3, 12)
    actions[1, 5] = torch.nan
    obs, reward, dones, extras = env.step(actions)
    assert dones.tolist() == [False, True, False]
    assert extras["valid"].tolist() == [True, False, True]
    assert torch.isfinite(obs["actor"]).all()
    assert torch.isfinite(reward).all()
    assert not env.step(torch.zeros(3, 12))[2].any()


def test_a_world_that_nobody_touched_is_never_rounded(go2_task):
    """Fifty control steps give the bits of plain MuJoCo under the same float32 controls."""
    env = make_env(go2_task(), num_envs=4, engine="mujoco", num_threads=2)
    bare = Batch(env.scene.model, 4, 1)
    bare.state[...] = env.engine.get_state()
    bare_force = bare.bind("actuator_force")  # bound before the call that fills it
    for step in range(50):
        actions = actions_at(step, env)
        assert not env.step(actions)[2].any()
        bare.ctrl[...] = env.state.ctrl.numpy()
        bare.step(nstep=4)
        np.testing.assert_array_equal(env.engine.batch.state, bare.state)
    assert not np.array_equal(bare.qpos, bare.qpos.astype(np.float32)), "the states are float32 numbers by chance"
    np.testing.assert_array_equal(env.state.qpos, bare.qpos.astype(np.float32))
    np.testing.assert_array_equal(env.state.qvel, bare.qvel.astype(np.float32))
    np.testing.assert_array_equal(env.state.actuator_force, bare_force.astype(np.float32))


def test_a_reset_elsewhere_rounds_nothing_here(go2_task):
    env = make_env(go2_task(), num_envs=4, engine="mujoco", num_threads=1)
    bare = Batch(env.scene.model, 4, 1)
    bare.state[...] = env.engine.get_state()
    for step in range(20):
        if step % 3 == 0:
            env.episode_length_buf[1] = env.max_episode_length
        env.step(actions_at(step, env))
        bare.ctrl[...] = env.state.ctrl.numpy()
        bare.step(nstep=4)
        np.testing.assert_array_equal(env.engine.batch.state[[0, 2, 3]], bare.state[[0, 2, 3]])


def test_a_push_changes_the_velocity_of_the_pushed_world_only(go2_task):
    task = go2_task(events={"push": Event(events.push, mode="interval", interval_s=(50.0, 60.0), xy=0.5, yaw=0.3)})
    pushed, calm = (make_env(task, num_envs=4, engine="mujoco", seed=1) for _ in range(2))
    pushed.state.interval_left_s[2] = 0.05
    for step in range(3):
        for env in (pushed, calm):
            env.step(actions_at(step, env))
        if step < 2:
            np.testing.assert_array_equal(pushed.engine.batch.state, calm.engine.batch.state)
    one, other = pushed.engine.batch, calm.engine.batch
    np.testing.assert_array_equal(one.state[[0, 1, 3]], other.state[[0, 1, 3]])
    np.testing.assert_array_equal(one.qpos, other.qpos)
    delta = one.qvel[2] - other.qvel[2]
    assert (np.abs(delta[[0, 1, 5]]) > 1e-3).all()
    np.testing.assert_allclose(np.delete(delta, [0, 1, 5]), 0.0, atol=1e-6)
    torch.testing.assert_close(pushed.state.base_lin_vel_w[2].double(), torch.from_numpy(one.qvel[2, :3].copy()))
    assert not pushed.step(actions_at(9, pushed))[2].any()


def test_a_push_by_hand_moves_the_worlds_it_names(go2_task):
    env = make_env(go2_task(), num_envs=3, engine="mujoco")
    before = env.engine.batch.qvel.copy()
    env.push((1.0, -0.5, 0.25), torch.tensor([1]))
    delta = env.engine.batch.qvel - before
    np.testing.assert_allclose(delta[1, :3], [1.0, -0.5, 0.25], atol=1e-6)
    np.testing.assert_array_equal(delta[[0, 2]], 0.0)


def test_randomization_does_not_compound(busy_task):
    """After 200 resets every drawn field spreads as after the first, about the nominal value."""
    env = make_env(busy_task, num_envs=32, engine="mujoco", seed=4)
    nominal = env.state.actuator_gainprm_nominal[:, 0]
    masses = env.state.body_mass.clone()
    spreads = []
    for _ in range(200):
        env.reset()
        factor = env.state.actuator_gainprm[:, :, 0] / nominal
        assert factor.min() >= 0.9
        assert factor.max() <= 1.1
        spreads.append(factor.std().item())
        mu = env.state.geom_friction[:, env.scene.foot_geoms, 0]
        assert mu.min() >= 0.4
        assert mu.max() <= 1.2
    # 384 uniform draws in [0.9, 1.1]: spread 0.0577 with a standard error of 0.0013
    np.testing.assert_allclose([np.mean(spreads[:20]), np.mean(spreads[-20:])], 0.2 / np.sqrt(12), atol=0.002)
    assert torch.equal(env.state.body_mass, masses), "a startup event happened again"
    body = env.scene.model.body_mass
    assert (np.abs(masses[:, 1, 0].numpy() - body[1]) <= 1.0).all()
    np.testing.assert_allclose(masses[:, 2:, 0].numpy(), np.tile(body[2:], (32, 1)), rtol=1e-6)


@event(writes="model", model_fields=("geom_friction",))
@wp.func
def icy(s: Any, i: int, rng: wp.uint32, low: float, high: float):
    """Give world 0 slippery feet."""
    mu = high
    if i == 0:
        mu = low
    for f in range(s.foot_geoms.shape[0]):
        s.geom_friction[i, s.foot_geoms[f], 0] = mu


def test_friction_of_one_s_own_acts(go2_task):
    """A standing robot at 1 m/s, stopped only by the ground, slides on where its feet are slippery."""
    env = make_env(go2_task(events={"icy": Event(icy, low=0.05, high=1.0)}), num_envs=2, engine="mujoco")
    zero = torch.zeros(2, 12)
    for _ in range(15):
        env.step(zero)
    start = env.state.base_pos_w[:, 1].clone()
    env.push((0.0, 0.8, 0.0))
    for _ in range(10):
        env.step(zero)
    feet = env.state.foot_vel_w[:, :, 1].abs().mean(dim=1)
    slid = env.state.base_pos_w[:, 1] - start
    assert slid[0] > 1.5 * slid[1]
    assert feet[0] > 3 * feet[1]


@event(writes="model", model_fields=("body_mass",), set_const=True)
@wp.func
def heavy(s: Any, i: int, rng: wp.uint32, extra: float):
    """Load world 1."""
    if i == 1:
        s.body_mass[i, 1, 0] = s.body_mass_nominal[1, 0] + extra


def test_a_mass_of_one_s_own_acts_and_its_constants_are_recomputed(go2_task):
    load = 5.0
    task = go2_task(events={"heavy": Event(heavy, mode="startup", extra=load)})
    env = make_env(task, num_envs=2, engine="mujoco")
    light, loaded = (env.engine.batch.get_model(i) for i in range(2))
    assert loaded.body_subtreemass[1] - light.body_subtreemass[1] == pytest.approx(load, rel=1e-5)
    assert loaded.body_invweight0[1, 0] < 0.95 * light.body_invweight0[1, 0]
    np.testing.assert_allclose(light.body_mass, env.scene.model.body_mass, rtol=1e-6)
    for _ in range(150):
        env.step(torch.zeros(2, 12))
    weight = env.state.foot_force.sum(dim=1)
    total = env.scene.model.body_mass.sum()
    # the net force of a standing foot is nearly vertical
    np.testing.assert_allclose(weight, [9.81 * total, 9.81 * (total + load)], rtol=0.03)


def test_motor_strength_acts(go2_task):
    """Half the gain on half the robots: they give way twice as far under their own weight."""

    def sag(factor):
        task = go2_task(events={"motors": Event(events.motor_strength, lo=factor, hi=factor)})
        env = make_env(task, num_envs=1, engine="mujoco")
        for _ in range(100):
            env.step(torch.zeros(1, 12))
        return (env.state.joint_pos - env.state.default_joint_pos)[0, 2::3].abs().mean().item()

    assert sag(0.5) > 1.7 * sag(1.0)


def test_warnings_are_counted_where_they_happen(go2_task):
    env = make_env(go2_task(), num_envs=3, engine="mujoco")
    env.engine.batch.qvel[1, 0] = np.nan
    env.step(torch.zeros(3, 12))
    counts = env.engine.batch.warning.reshape(3, -1).sum(axis=1)
    assert counts[1] > 0
    assert counts[[0, 2]].tolist() == [0, 0]
