"""Files of quarantined worlds, as an environment writes them."""

from typing import Any

import numpy as np
import pytest
import torch
import warp as wp
from robot_rl_assets.registry import get_robot
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import observations, rewards
from robot_rl_envs.task import Actions, Event, Observation, ObservationGroup, Reward, Sim, Task
from robot_rl_envs.terms import event

SLIDER = 0


@event(writes="model", model_fields=("dof_damping",))
@wp.func
def feed(s: Any, i: int, rng: wp.uint32, damping: float):
    """Damping below zero: the hinge of every world is driven by its own motion."""
    s.dof_damping[i, 1, 0] = damping


@pytest.fixture(scope="session")
def make_files(tmp_path_factory):
    """make(spoil, damping): the files of a cart-pole's worlds; ``spoil(env, actions, step)`` may break one."""

    def make(spoil=None, damping=0.0, steps=40):
        folder = tmp_path_factory.mktemp("quarantine")
        task = Task(
            name="cart",
            robot=get_robot("cartpole"),
            sim=Sim(timestep=0.005, decimation=4, integrator="euler"),
            actions=Actions(kind="effort"),
            observations={"actor": ObservationGroup(terms={"angle": Observation(observations.joint_pos_rel)})},
            rewards={"alive": Reward(rewards.alive, weight=1.0)},
            events={"feed": Event(feed, damping=damping)},
        )
        env = make_env(task, num_envs=3, engine="mujoco", seed=1, num_threads=1)
        env.quarantine_dir = folder
        generator = torch.Generator().manual_seed(0)
        for step in range(steps):
            actions = torch.randn(3, 1, generator=generator)
            if spoil is not None:
                spoil(env, actions, step)
            env.step(actions)
        env.close()
        return sorted(folder.glob("*.npz"))

    return make


@pytest.fixture(scope="session")
def exploded(make_files):
    """The file of a world where the physics diverges by itself."""
    return make_files(damping=-0.6)[0]


@pytest.fixture(scope="session")
def bad_action(make_files):
    """The file of a world that was given an action that is not a number."""

    def spoil(env, actions, step):
        if step == 20:
            actions[1] = np.nan

    return make_files(spoil)[0]
