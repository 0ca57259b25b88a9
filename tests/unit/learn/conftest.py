"""A task small enough to be understood at a glance: a point on a line is pushed toward the origin."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.settings import NetworkCfg


class PointEnv(VecEnv):
    """N points on a line: the action is a velocity, the reward minus the squared distance; a mirror changes nothing."""

    def __init__(self, num_envs: int = 64, seed: int = 0, episode: int = 10, final_obs: bool = True) -> None:
        self.num_envs, self.num_actions, self.max_episode_length = num_envs, 1, episode
        self.device, self.cfg, self.step_dt = torch.device("cpu"), {}, 0.1
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.int64)
        self.generator = torch.Generator().manual_seed(seed)
        self.with_final_obs = final_obs
        self.pos = self._draw()
        self.mirror = {
            "actor": (torch.tensor([0]), torch.tensor([-1.0])),
            "critic": (torch.tensor([0, 1]), torch.tensor([-1.0, 1.0])),
            "action": (torch.tensor([0]), torch.tensor([-1.0])),
        }

    def _draw(self) -> torch.Tensor:
        return torch.rand(self.num_envs, generator=self.generator) * 4.0 - 2.0

    def get_observations(self) -> TensorDict:
        age = self.episode_length_buf / self.max_episode_length
        groups = {"actor": self.pos[:, None].clone(), "critic": torch.stack((self.pos, age), dim=-1)}
        return TensorDict(groups, batch_size=[self.num_envs])

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        self.pos = self.pos + 0.5 * actions[:, 0].clamp(-1.0, 1.0)
        reward = -self.pos.square()
        self.episode_length_buf += 1
        time_outs = self.episode_length_buf >= self.max_episode_length
        extras = {"time_outs": time_outs, "log": {"/distance": self.pos.abs()}}
        if self.with_final_obs:
            extras["final_obs"] = self.get_observations()
        self.pos = torch.where(time_outs, self._draw(), self.pos)
        self.episode_length_buf[time_outs] = 0
        return self.get_observations(), reward, time_outs, extras


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Networks this small gain nothing from a second thread, and lose much where other work keeps it waiting."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def make_point_env() -> Callable[..., PointEnv]:
    """The class of the point task: make_point_env(num_envs=64, seed=0, episode=10, final_obs=True)."""
    return PointEnv


@pytest.fixture
def small_cfg() -> PPOLearnerCfg:
    """Networks and rollouts for tests of a second."""
    return PPOLearnerCfg(
        num_steps=8,
        max_iterations=4,
        save_interval=2,
        actor=NetworkCfg(hidden=(32, 32), init_std=0.5),
        critic=NetworkCfg(hidden=(32, 32), output_gain=1.0),
        ppo=PPOCfg(learning_rate=3e-3, entropy_coef=0.0),
    )


class Replaying:
    """Records what to do, and does it again at every replay: from the memory that was there at the recording."""

    def __init__(self, fails=False):
        self.fails, self.runs, self.recorded, self.replays = fails, 0, 0, 0

    def run(self, work):
        self.runs += 1
        work()

    def record(self, work):
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing\nsecond line")
        self.recorded += 1

        def replay():
            self.replays += 1
            work()

        return replay
