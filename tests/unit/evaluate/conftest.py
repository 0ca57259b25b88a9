"""A scripted walker: two joints, two feet, states by hand."""

from types import SimpleNamespace

import pytest
import torch


class ScriptedEnv:
    """Worlds in which nothing happens but what a test writes into `script`: step -> changes of state, reward, done."""

    device, step_dt = "cpu", 0.1

    def __init__(self, num_envs=2, script=None, commanded=True, feet=2):
        self.num_envs, self.script, self.commanded = num_envs, script or {}, commanded
        self.closed = False
        n = num_envs
        self.state = SimpleNamespace(
            base_lin_vel_b=torch.zeros(n, 3),
            base_ang_vel_b=torch.zeros(n, 3),
            joint_torque=torch.zeros(n, 3),
            joint_vel=torch.zeros(n, 3),
            foot_vel_w=torch.zeros(n, feet, 3),
            foot_contact=torch.zeros(n, feet),
            command=torch.zeros(n, 3),
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
            "command": {"name": "velocity", "ranges": {}} if self.commanded else None,
        }

    def reset(self):
        self.time = 0
        return {"actor": torch.zeros(self.num_envs, 4)}

    def step(self, action):
        self.actions.append(action.clone())
        self.time += 1
        done, time_out = torch.zeros(self.num_envs, dtype=torch.bool), torch.zeros(self.num_envs, dtype=torch.bool)
        reward = torch.ones(self.num_envs)
        for name, value in self.script.get(self.time, {}).items():
            {"done": done, "time_out": time_out, "reward": reward}.get(name, getattr(self.state, name, None)).copy_(
                torch.as_tensor(value)
            )
        return {"actor": torch.zeros(self.num_envs, 4)}, reward, done | time_out, {"time_outs": time_out}

    def close(self):
        self.closed = True


@pytest.fixture
def scripted_env():
    return ScriptedEnv
