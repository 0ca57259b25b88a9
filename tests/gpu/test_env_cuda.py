"""The environment on a CUDA device: one graph a step, the values of the CPU, nothing synchronized on the way."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import commands, events, observations, rewards, terminations
from robot_rl_envs.task import (
    Command,
    Event,
    Observation,
    ObservationGroup,
    Reward,
    Sim,
    Task,
    Termination,
    TorchTerm,
)
from robot_rl_tasks.registry import get_task, list_tasks

pytestmark = [pytest.mark.gpu, pytest.mark.long]

N = 64
VELOCITY = {"vx_lo": -1.0, "vx_hi": 1.5, "vy_lo": -0.6, "vy_hi": 0.6, "yaw_lo": -1.0, "yaw_hi": 1.0, "standing": 0.1}


def task(**fields):
    """A Go2 with commands, pushes, noise and every randomized model field."""
    terms = {
        "gyro": Observation(observations.base_ang_vel, noise=0.1),
        "command": Observation(observations.velocity_command),
        "joint_pos": Observation(observations.joint_pos_rel, history=3),
        "joint_vel": Observation(observations.joint_vel, scale=0.05),
        "contact": Observation(observations.foot_contact),
    }
    own = {
        "name": "cuda",
        "robot": get_robot("unitree_go2"),
        "sim": Sim(timestep=0.005, decimation=4, iterations=20, ls_iterations=20),
        "episode_length_s": 1.0,
        "observations": {"actor": ObservationGroup(terms=terms)},
        "rewards": {
            "track": Reward(rewards.track_lin_vel, weight=1.0, std=0.5),
            "torque": Reward(rewards.joint_torque, weight=-1e-4),
        },
        "terminations": {"low": Termination(terminations.base_below, height=0.1)},
        "commands": {"velocity": Command(commands.uniform_velocity, resample_s=(0.1, 0.3), **VELOCITY)},
        "events": {
            "mass": Event(events.base_mass, mode="startup", body=1, mass=1.0, com=0.02),
            "base": Event(events.reset_base, xy=0.5, yaw=3.14, velocity=0.2),
            "joints": Event(events.reset_joints, position=0.1, velocity=0.2),
            "friction": Event(events.foot_friction, lo=0.4, hi=1.2),
            "motors": Event(events.motor_strength, lo=0.9, hi=1.1),
            "push": Event(events.push, mode="interval", interval_s=(0.1, 0.3), xy=0.5, yaw=0.3),
        },
    }
    return Task(**(own | fields))


def actions_at(step, env):
    actions = torch.randn(env.num_envs, env.num_actions, generator=torch.Generator().manual_seed(step))
    return actions.to(env.device)


def play(env, steps, first=0):
    """What each step returned, on the CPU."""
    rows = []
    for step in range(first, first + steps):
        obs, reward, dones, extras = env.step(actions_at(step, env))
        final = torch.where(dones[:, None], extras["final_obs"]["actor"], 0.0)
        rows.append(torch.cat([obs["actor"], reward[:, None], dones[:, None].float(), final], dim=1).cpu())
    return torch.stack(rows)


@pytest.mark.parametrize("name", list_tasks())
def test_every_task_steps_on_the_gpu(name):
    cfg = get_task(name)
    if cfg.sim.solver == "pgs":  # It is of the CPU's engine only.
        cfg = replace(cfg, sim=replace(cfg.sim, solver="newton"))
    env = make_env(cfg, num_envs=N, device="cuda")
    assert env.engine.name == "mujoco_warp"
    for step in range(30):
        obs, reward, dones, extras = env.step(actions_at(step, env))
        for value in (*obs.values(), reward, dones, extras["time_outs"], extras["valid"]):
            assert value.device.type == "cuda"
            assert torch.isfinite(value.float()).all()
    assert env.pop_metrics()["quarantined"] == 0


def test_a_step_becomes_one_graph_that_does_what_its_launches_did(monkeypatch):
    """The first step launches, the later ones replay: against an environment that always launches."""
    graph, launches = (make_env(task(), num_envs=N, device="cuda", seed=2) for _ in range(2))
    monkeypatch.setattr(launches, "_capture", lambda: None)
    one, two = play(graph, 12), play(launches, 12)
    assert graph._graph is not None
    assert launches._graph is None
    # the GPU adds up contact forces in any order: equal but for rounding, while no foot's landing tips over
    torch.testing.assert_close(one[:5], two[:5], atol=1e-3, rtol=1e-3)
    close = ((one - two).abs().amax(dim=2) < 1e-2).float().mean()
    assert close > 0.9


def test_a_graph_follows_parameters_and_commands_that_change_later():
    env = make_env(task(rewards={"alive": Reward(rewards.alive, weight=1.0)}), num_envs=N, device="cuda")
    play(env, 3)
    env.set_param("rewards.alive.weight", 5.0)
    env.set_command((0.5, 0.0, 0.0))
    obs, reward, _, _ = env.step(actions_at(3, env))
    np.testing.assert_allclose(reward.cpu(), 5.0 * env.step_dt, rtol=1e-5)
    np.testing.assert_allclose(obs["actor"][:, 3:6].cpu(), np.tile([0.5, 0.0, 0.0], (N, 1)))


def test_the_gpu_agrees_with_the_cpu():
    """Ten control steps with the same draws (the reason is in tests/parity); a few worlds' feet may land otherwise."""
    envs = [make_env(task(), num_envs=N, device="cuda", seed=4), make_env(task(), num_envs=N, engine="mujoco", seed=4)]
    for name in ("command", "qpos", "qvel", "body_mass", "geom_friction", "actuator_gainprm"):
        one, two = (getattr(env.state, name).cpu() for env in envs)
        torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-6, msg=name)
    one, two = (play(env, 10) for env in envs)
    apart = (one - two).abs().amax(dim=2)
    assert apart[0].max() < 1e-3
    assert (apart < 5e-3).float().mean() > 0.95


def test_a_world_that_is_not_finite_is_quarantined_alone():
    env = make_env(task(), num_envs=N, device="cuda", seed=5)
    play(env, 3)
    env.pop_metrics()
    env.state.qpos[7, 2] = torch.nan
    obs, reward, dones, extras = env.step(actions_at(3, env))
    assert (~extras["valid"]).nonzero().flatten().tolist() == [7]
    assert dones[7]
    assert reward[7] == 0
    for step in range(4, 10):
        assert torch.isfinite(obs["actor"]).all()
        assert torch.isfinite(extras["final_obs"]["actor"]).all()
        obs, _, _, extras = env.step(actions_at(step, env))
        assert extras["valid"].all()
    assert env.pop_metrics()["quarantined"] == 1


def test_a_reset_into_the_air_touches_nothing():
    env = make_env(task(events={}, commands={}), num_envs=N, device="cuda")
    for _ in range(20):
        env.step(torch.zeros(N, 12, device="cuda"))
    assert env.state.foot_contact.any(dim=1).all()
    env.episode_length_buf[::2] = env.max_episode_length
    obs = env.step(torch.zeros(N, 12, device="cuda"))[0]
    assert not obs["actor"][::2, -4:].any()
    assert not env.state.sensordata[::2].any()
    assert obs["actor"][1::2, -4:].any(dim=1).all()


def test_a_step_waits_for_nothing_on_the_host():
    env = make_env(task(), num_envs=N, device="cuda")
    play(env, 3)
    actions = actions_at(3, env)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            env.step(actions)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.isfinite(env.get_observations()["actor"]).all()


def test_torch_terms_go_without_a_graph_and_give_the_same():
    def tracking(state):
        error = (state.command - state.base_lin_vel_b)[:, :2]
        return torch.exp(-error.square().sum(dim=1) / 0.25)

    fused = make_env(
        task(rewards={"track": Reward(rewards.track_lin_vel, weight=1.0, std=0.5)}), num_envs=N, device="cuda"
    )
    plain = make_env(
        task(rewards={"track": TorchTerm(kind="reward", fn=tracking, weight=1.0)}), num_envs=N, device="cuda"
    )
    reward_at = fused.get_observations()["actor"].shape[1]
    one, two = play(fused, 5), play(plain, 5)
    torch.testing.assert_close(one[:, :, reward_at], two[:, :, reward_at], atol=1e-3, rtol=1e-3)
