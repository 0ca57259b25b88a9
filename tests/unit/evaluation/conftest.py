"""A scripted walker: two joints, two feet, states by hand."""

from types import SimpleNamespace

import pytest
import torch
from robot_rl_envs.describe import describe_metrics
from robot_rl_envs.mdp import metrics, terminations
from robot_rl_envs.task import Metric, Termination, TorchTerm


class ScriptedEnv:
    """Worlds in which nothing happens but what a test writes into `script`: step -> changes of state, reward, done."""

    device, step_dt, max_episode_length, num_actions = "cpu", 0.1, 3, 2

    def __init__(self, num_envs=2, script=None, feet=2, **own):
        self.num_envs, self.script = num_envs, script or {}
        ends = {
            "low": Termination(terminations.base_below, height=0.1),
            "mine": TorchTerm(kind="termination", fn=lambda state: state.done),
        }
        self.cfg = SimpleNamespace(metrics=own, terminations=ends)
        self.closed = False
        n = num_envs
        self.state = SimpleNamespace(
            base_lin_vel_b=torch.zeros(n, 3),
            base_ang_vel_b=torch.zeros(n, 3),
            joint_torque=torch.zeros(n, 3),
            joint_vel=torch.zeros(n, 3),
            foot_vel_w=torch.zeros(n, feet, 3),
            foot_contact=torch.zeros(n, feet),
            metric_values=torch.zeros(n, len(own)),
            termination_bits=torch.zeros(n, dtype=torch.int32),
        )
        self.actions = []

    def describe_policy(self):
        joints = [
            {"name": name, "effort_limit": limit} for name, limit in (("hip", 20.0), ("tail", 0.0), ("knee", 30.0))
        ]
        return {
            "joints": joints,
            "actions": [{"joint": "hip", "scale": 0.5, "offset": 0.0}, {"joint": "knee", "scale": 0.25, "offset": 0.0}],
            "action_clip": 2.0,
        }

    def describe_metrics(self):
        return describe_metrics(self.cfg)

    def reset(self):
        self.time = 0
        return {"actor": torch.zeros(self.num_envs, 4)}

    def step(self, action):
        self.actions.append(action.clone())
        self.time += 1
        done, time_out = torch.zeros(self.num_envs, dtype=torch.bool), torch.zeros(self.num_envs, dtype=torch.bool)
        reward, valid = torch.ones(self.num_envs), torch.ones(self.num_envs, dtype=torch.bool)
        for name, value in self.script.get(self.time, {}).items():
            flags = {"done": done, "time_out": time_out, "reward": reward, "valid": valid}
            flags.get(name, getattr(self.state, name, None)).copy_(torch.as_tensor(value))
        extras = {"time_outs": time_out, "valid": valid}
        return {"actor": torch.zeros(self.num_envs, 4)}, reward, done | time_out, extras

    def close(self):
        self.closed = True


@pytest.fixture
def own():
    """Make a metric of the task with these options; its values are the script's."""
    return lambda **options: Metric(metrics.command_range, **options)


@pytest.fixture
def scripted_env():
    return ScriptedEnv
