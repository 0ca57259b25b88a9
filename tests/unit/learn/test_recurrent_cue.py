"""The use of a memory: acting on what is no longer observed."""

from dataclasses import replace

import pytest
import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import MemoryCfg, NetworkCfg


class CueEnv(VecEnv):
    """The direction is shown only in an episode's first step; the reward is minus the squared miss in the others.

    The best without a memory is to do nothing: -1 a step.
    """

    def __init__(self, num_envs=64, seed=0, episode=6):
        self.num_envs, self.num_actions, self.max_episode_length = num_envs, 1, episode
        self.device, self.cfg, self.step_dt = torch.device("cpu"), {}, 0.1
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.int64)
        self.generator = torch.Generator().manual_seed(seed)
        self.cue = self._draw()

    def _draw(self):
        return torch.randint(2, (self.num_envs,), generator=self.generator) * 2.0 - 1.0

    def get_observations(self):
        age = self.episode_length_buf
        shown = torch.stack((torch.where(age == 0, self.cue, 0.0), (age == 0).float()), dim=-1)
        return TensorDict({"actor": shown, "critic": shown.clone()}, batch_size=[self.num_envs])

    def step(self, actions):
        reward = -torch.where(self.episode_length_buf > 0, (actions[:, 0] - self.cue).square(), 0.0)
        self.episode_length_buf += 1
        time_outs = self.episode_length_buf >= self.max_episode_length
        extras = {"time_outs": time_outs, "final_obs": self.get_observations()}
        self.cue = torch.where(time_outs, self._draw(), self.cue)
        self.episode_length_buf[time_outs] = 0
        return self.get_observations(), reward, time_outs, extras


def cue_cfg(kind, sequence=0):
    memory = MemoryCfg(kind=kind, hidden=32, sequence=sequence)
    network = NetworkCfg(hidden=(32,), init_std=0.5, memory=memory)
    return PPOLearnerCfg(
        num_steps=12,
        actor=network,
        critic=replace(network, output_gain=1.0),
        ppo=PPOCfg(learning_rate=3e-3, entropy_coef=0.0, gamma=0.9),
    )


@pytest.mark.long
@pytest.mark.parametrize(("kind", "sequence"), [("gru", 0), ("lstm", 0), ("gru", 4)])
def test_a_cue_is_remembered(kind, sequence):
    """Shown once, needed five steps long; sequences of 4 steps begin with what is remembered, so 5 is no bound."""
    env = CueEnv()
    runner = Trainer(env, cue_cfg(kind, sequence))
    last = runner.train(25)
    assert last["episode/return"] > -0.5
    state, miss = torch.zeros(64, runner.actor.state_size), []
    with torch.no_grad():
        env.episode_length_buf.zero_()
        for _ in range(6):
            _, reward, done, _ = env.step(runner.actor.mean(env.get_observations()["actor"], state))
            state[done] = 0.0
            miss.append(-float(reward.mean()))
    assert max(miss) < 0.1


@pytest.mark.long
def test_without_a_memory_a_cue_is_lost():
    assert Trainer(CueEnv(), cue_cfg("none")).train(25)["episode/return"] < -4.5
