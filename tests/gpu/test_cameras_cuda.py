"""Cameras on a CUDA device: inside the graph of a step, and the CPU's images."""

from itertools import pairwise

import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_envs.cameras import Camera, ImageGroup
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import observations, rewards
from robot_rl_envs.task import Observation, ObservationGroup, Reward, Sim, Task

pytestmark = [pytest.mark.gpu, pytest.mark.long]


def make(device, **faults):
    camera = Camera(
        name="front", body="base_link", pos=(0.36, 0, 0.1), forward=(1, 0, -0.5), width=32, height=24, **faults
    )
    task = Task(
        name="seen_go2",
        robot=get_robot("unitree_go2"),
        sim=Sim(timestep=0.005, decimation=4),
        observations={
            "actor": ObservationGroup(terms={"joint_pos": Observation(observations.joint_pos_rel)}),
            "front": ImageGroup(camera=camera),
        },
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
    )
    return make_env(task, num_envs=8, device=device, engine="mujoco_warp")


def test_the_images_of_the_same_states_are_those_of_the_cpu():
    env, other = make("cuda"), make("cpu")
    for _ in range(6):
        obs, *_ = env.step(torch.zeros(8, env.num_actions, device="cuda"))
    assert env._graph is not None
    other.state.qpos.copy_(env.state.qpos)
    other._images.update()
    image = torch.from_numpy(other._images.sensors["front"].out.numpy())
    off = (obs["front"].cpu() - image).abs() > 1e-3
    assert off.float().mean() < 0.01
    assert image.std() > 0.05


def test_a_captured_step_renders_images_in_turns():
    env = make("cuda", every=3, delay_steps=(0, 2))
    seen = []
    for t in range(14):
        actions = torch.full((8, env.num_actions), 0.5 * (-1.0) ** t, device="cuda")
        seen.append(env.step(actions)[0]["front"].clone())
    changed = torch.stack([(a != b).flatten(1).any(1) for a, b in pairwise(seen)])
    assert 0.2 < changed[4:].float().mean() < 0.5
