"""A robot of three joints, its environment and a bundle of a policy for it."""

import math

import numpy as np
import pytest
import torch
from robot_rl_deploy.contract import TrainingSpec
from robot_rl_deploy.export import export_policy

NAMES = ("hip", "knee", "tail")


def toy_description():
    """What the toy's describe_policy() gives: two driven joints, a passive one, every signal and transform."""
    hip = {"name": "hip", "default_pos": 0.1, "kp": 20.0, "kd": 0.5, "effort_limit": 23.7, "velocity_limit": 30.1}
    knee = {"name": "knee", "default_pos": -1.5, "kp": 20.0, "kd": 0.5, "effort_limit": 35.55, "velocity_limit": 20.0}
    tail = {
        "name": "tail",
        "default_pos": math.pi,
        "kp": 0.0,
        "kd": 0.0,
        "effort_limit": 0.0,
        "velocity_limit": math.inf,
    }
    limits = [(hip, -1.0, 1.0), (knee, -2.7, -0.8), (tail, -math.inf, math.inf)]
    joints = [joint | {"lower": lower, "upper": upper} for joint, lower, upper in limits]

    def term(name, signal, transform, unit, frame, size, **more):
        keys = ("name", "signal", "transform", "unit", "frame", "size")
        return dict(zip(keys, (name, signal, transform, unit, frame, size), strict=True)) | more

    observations = [
        term("gyro", "imu_gyro", "identity", "rad/s", "base", 3, scale=0.25, clip=2.0),
        term("gravity", "imu_quat_wxyz", "projected_gravity", "1", "base", 3),
        term("command", "command", "identity", "m/s, m/s, rad/s", "base", 3, scale=2.0),
        term("joint_pos", "joint_pos", "minus_default", "rad", "joint", 3, history=2),
        term("joint_vel", "joint_vel", "identity", "rad/s", "joint", 3, scale=0.05, history=3),
        term("tail", "joint_pos", "sin_cos", "1", "joint", 2, params={"joints": ["tail"]}),
        term("last_action", "last_action", "identity", "1", "none", 2),
        term("clock", "clock", "sin_cos_phase", "1", "none", 2, params={"frequency_hz": 2.0, "gate": "command"}),
    ]
    return {
        "robot": "toy",
        "joints": joints,
        "actions": [
            {"joint": "hip", "scale": 0.25, "offset": 0.1, "clip": 10.0},
            {"joint": "knee", "scale": 0.3, "offset": -1.5, "clip": 10.0},
        ],
        "observations": observations,
        "control_period_s": 0.02,
        "physics_timestep_s": 0.005,
        "command": {"name": "velocity", "ranges": {"vx": [-1.0, 1.5], "vy": [-0.6, 0.6], "yaw": [-1.0, 1.0]}},
    }


class ToyEnv:
    """Worlds with signals that wander at random around the last targets; every 60 steps a world ends on its own."""

    device = "cpu"

    def __init__(self, num_envs=1, seed=0):
        self.num_envs, self.num_actions, self.step_dt = num_envs, 2, 0.02
        self.random = torch.Generator().manual_seed(seed)
        self.reset()

    def describe_policy(self):
        return toy_description()

    def reset(self):
        self.steps = torch.zeros(self.num_envs, dtype=torch.int64)
        self.signals = {}
        self._draw(torch.zeros(self.num_envs, 2))

    def _normal(self, *size):
        return torch.randn(self.num_envs, *size, generator=self.random)

    def _draw(self, actions):
        quat = torch.nn.functional.normalize(torch.tensor([1.0, 0, 0, 0]) + 0.2 * self._normal(4), dim=1)
        moving = (torch.rand(self.num_envs, 1, generator=self.random) > 0.3).float()
        targets = torch.cat([actions, self._normal(1)], 1)
        self.signals = {
            "joint_pos": torch.tensor([0.1, -1.5, math.pi]) + 0.1 * targets,
            "joint_vel": 5 * self._normal(3),
            "imu_gyro": 2 * self._normal(3),
            "imu_quat_wxyz": quat,
            "command": moving * self._normal(3),
        }

    def robot_state(self):
        return self.signals

    def step(self, actions):
        self.steps += 1
        self._draw(actions)
        done = self.steps % 60 == 0
        return None, torch.zeros(self.num_envs), done, {}


class ToyActor:
    """A small network with a normalizer, as a learner hands it over."""

    def __init__(self, size, outputs, seed=0):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.net = torch.nn.Sequential(torch.nn.Linear(size, 16), torch.nn.ELU(), torch.nn.Linear(16, outputs))
            self.mean, self.scale = torch.randn(size), torch.rand(size) + 0.5

    def export_module(self):
        actor = self

        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net = actor.net
                self.register_buffer("mean", actor.mean)
                self.register_buffer("scale", actor.scale)

            def forward(self, obs):
                return self.net((obs - self.mean) * self.scale)

        return Module().eval()


@pytest.fixture
def description():
    return toy_description()


@pytest.fixture
def training():
    return TrainingSpec(run_id="20261120-220000-1-abcd", task="toy_task", git_commit="0" * 40, iteration=300)


@pytest.fixture(scope="session")
def toy_actor():
    return ToyActor(30, 2)


@pytest.fixture
def make_toy_env():
    return ToyEnv


@pytest.fixture(scope="session")
def toy_bundle(tmp_path_factory, toy_actor):
    """A bundle, exported once; tests copy it before they change it."""
    out = tmp_path_factory.mktemp("bundle") / "policy"
    run = TrainingSpec(run_id="20261120-220000-1-abcd", task="toy_task", git_commit="0" * 40, iteration=300)
    export_policy(ToyEnv(num_envs=2), toy_actor, out, run=run)
    return out


@pytest.fixture
def random_states():
    """A function that draws raw robot states by name."""

    def draw(num_envs, steps, seed=0):
        rng = np.random.default_rng(seed)
        for _ in range(steps):
            quat = rng.normal(size=(num_envs, 4))
            state = {name: rng.normal(size=(num_envs, 3)) for name in ("joint_pos", "joint_vel", "imu_gyro", "command")}
            state["imu_quat_wxyz"] = quat / np.linalg.norm(quat, axis=1, keepdims=True)
            yield {name: value.astype(np.float32) for name, value in state.items()}

    return draw
