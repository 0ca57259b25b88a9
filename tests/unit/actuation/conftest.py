"""A Go2 under each kind of actuator, and a small network that has learned a PD law with a lag of one substep."""

import dataclasses
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_envs.actuation.actuator_net import save_actuator_net
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import observations, rewards
from robot_rl_envs.task import Actions, Observation, ObservationGroup, Reward, Sim, Task

DT = 0.005
KP, KD = 40.0, 1.0
LAGS = (0.0, DT, 2 * DT)


def by_speed(robot, *names, kd=KD):
    """The robot with a speed as the target of these joints."""
    joints = (dataclasses.replace(joint, kp=0.0, kd=kd) if joint.name in names else joint for joint in robot.joints)
    return dataclasses.replace(robot, joints=tuple(joints))


@pytest.fixture(scope="session")
def go2():
    """make(actuator, num_envs=4, **options): an environment; `sim` and `task` hold fields of Sim and Task."""

    def make(actuator, num_envs=4, sim=None, task=None, **options):
        terms = {"joint_pos": Observation(observations.joint_pos_rel), "joint_vel": Observation(observations.joint_vel)}
        fields = {
            "name": "actuated",
            "robot": get_robot("unitree_go2"),
            "sim": Sim(**({"timestep": DT, "decimation": 4} | (sim or {}))),
            "actions": Actions(actuator=actuator, scale=2.0),
            "observations": {"actor": ObservationGroup(terms=terms)},
            "rewards": {"alive": Reward(rewards.alive, weight=1.0)},
        }
        options = {"engine": "mujoco", "num_threads": 1, "seed": 7} | options
        return make_env(Task(**(fields | (task or {}))), num_envs=num_envs, **options)

    return make


@pytest.fixture(scope="session")
def put_states():
    """put(env, seed): random joint states 1 m above the floor; what was written, float32."""

    def put(env, seed=0):
        rng, n = np.random.default_rng(seed), env.num_envs
        state = env.state
        qpos = np.tile(env.scene.default_qpos, (n, 1))
        qpos[:, 2] = 1.0
        qpos[:, 7:] += rng.uniform(-0.4, 0.4, size=(n, 12))
        qvel = np.zeros((n, 18))
        qvel[:, 6:] = rng.uniform(-25.0, 25.0, size=(n, 12))
        state.qpos.copy_(torch.from_numpy(qpos))
        state.qvel.copy_(torch.from_numpy(qvel))
        state.dirty.fill_(2)
        env.write_back()
        state.dirty.zero_()
        return SimpleNamespace(pos=state.qpos.numpy()[:, 7:].copy(), vel=state.qvel.numpy()[:, 6:].copy())

    return put


@pytest.fixture(scope="session")
def formula():
    """formula(target, pos, vel, curve=0, lag=None): the torque of a Go2's joints, clipped, in NumPy."""
    joints = get_robot("unitree_go2").joints
    effort = np.array([joint.effort_limit for joint in joints])
    speed = np.array([joint.velocity_limit for joint in joints])

    def torque(target, pos, vel, curve=0.0):
        value = KP * (target - pos) - KD * vel
        if curve > 0:
            value = np.clip(value, curve * effort * (-1 - vel / speed), curve * effort * (1 - vel / speed))
        return np.clip(value, -effort, effort)

    return torque


@pytest.fixture
def frozen(monkeypatch):
    """frozen(env): the engine stands still; a list that gets a copy of the controls before each substep."""

    def freeze(env):
        seen = []
        monkeypatch.setattr(
            env.engine, "step", lambda substeps: seen.extend([env.state.ctrl.numpy().copy()] * substeps)
        )
        return seen

    return freeze


@pytest.fixture(scope="session")
def random_net(tmp_path_factory):
    """random_net(activation, lags, hidden=(16, 8)): a file with random weights, and what was written."""
    folder = tmp_path_factory.mktemp("nets")

    def make(activation="softsign", lags=LAGS, hidden=(16, 8), **fields):
        rng = np.random.default_rng(len(lags))
        sizes = [2 * len(lags), *hidden, 1]
        layers = [
            (rng.normal(size=(rows, columns)), rng.normal(size=rows)) for columns, rows in itertools.pairwise(sizes)
        ]
        path = folder / f"{activation}_{len(lags)}_{len(hidden)}.safetensors"
        scales = {"error_scale": 1.5, "velocity_scale": 0.1, "output_scale": 3.0} | fields
        return path, save_actuator_net(path, layers, activation=activation, lags_s=lags, **scales)

    return make


@pytest.fixture(scope="session")
def learned_net(tmp_path_factory):
    """A file with a 6-24-24-1 network fitted to `40 error[t - dt] - 1 velocity[t]`: a PD law one substep late."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(6, 24),
        torch.nn.Softsign(),
        torch.nn.Linear(24, 24),
        torch.nn.Softsign(),
        torch.nn.Linear(24, 1),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1500)
    for _ in range(1500):
        error, velocity = torch.rand(512, 3) * 2 - 1, torch.rand(512, 3) * 2 - 1
        want = (KP * 0.6 * error[:, 1] - KD * 12.0 * velocity[:, 0]) / 30.0
        loss = torch.nn.functional.mse_loss(net(torch.cat([error, velocity], dim=1))[:, 0], want)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    path = tmp_path_factory.mktemp("learned") / "go2.safetensors"
    layers = [(layer.weight, layer.bias) for layer in net if isinstance(layer, torch.nn.Linear)]
    save_actuator_net(path, layers, lags_s=LAGS, error_scale=1 / 0.6, velocity_scale=1 / 12.0, output_scale=30.0)
    return path, loss.item()
