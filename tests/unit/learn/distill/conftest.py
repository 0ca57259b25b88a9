"""Teacher and student on a task where errors add up: a point that falls away from the origin unless it is held."""

from dataclasses import fields

import pytest
import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from robot_rl.learn.algorithms.distill.config import DistillLearnerCfg, TeacherCfg
from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import NetworkCfg

GAIN = torch.tensor([[-3.0, -2.5]])
"""The teacher's action of position and velocity."""


class FallEnv(VecEnv):
    """N points: x'' = 2 x + action + gusts. "state" is (x, x'), "seen" a coarse x and the last action."""

    def __init__(self, num_envs=64, seed=0, episode=60, noise=0.1, gust=0.3):
        self.num_envs, self.num_actions, self.max_episode_length = num_envs, 1, episode
        self.device, self.cfg, self.step_dt = torch.device("cpu"), {}, 0.1
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.int64)
        self.generator = torch.Generator().manual_seed(seed)
        self.noise, self.gust = noise, gust
        self.x, self.v, self.last = self._draw(), torch.zeros(num_envs), torch.zeros(num_envs)
        self._look()

    def _draw(self):
        return torch.rand(self.num_envs, generator=self.generator) - 0.5

    def _normal(self):
        return torch.randn(self.num_envs, generator=self.generator)

    def _look(self):
        state = torch.stack((self.x, self.v), dim=-1)
        seen = torch.stack((self.x + self.noise * self._normal(), self.last), dim=-1)
        groups = {"state": state, "seen": seen, "critic": state.clone()}
        self.obs = TensorDict(groups, batch_size=[self.num_envs])

    def get_observations(self):
        return self.obs

    def step(self, actions):
        action = actions[:, 0].clamp(-10.0, 10.0)
        self.v = self.v + self.step_dt * (2.0 * self.x + action + self.gust * self._normal())
        self.x, self.last = self.x + self.step_dt * self.v, action
        reward = -self.x.square().clamp(max=4.0)
        self.episode_length_buf += 1
        fallen = self.x.abs() > 2.0
        time_outs = (self.episode_length_buf >= self.max_episode_length) & ~fallen
        done = fallen | time_outs
        self.x = torch.where(done, self._draw(), self.x)
        self.v, self.last = torch.where(done, 0.0, self.v), torch.where(done, 0.0, self.last)
        self.episode_length_buf[done] = 0
        self._look()
        return self.obs, reward, done, {"time_outs": time_outs}


def teacher_cfg(groups=("state",), **actor):
    network = NetworkCfg(**({"hidden": (4,), "activation": "relu", "init_std": 0.3} | actor))
    return PPOLearnerCfg(actor=network, critic=NetworkCfg(hidden=(8,)), actor_groups=groups, normalize_obs=False)


def make_teacher_run(path, env, cfg=None):
    """A run with a linear policy: relu(x) - relu(-x) = x."""
    runner = Trainer(env, cfg or teacher_cfg(), run_dir=path)
    with torch.no_grad():
        first, last = runner.actor.body.layers
        first.weight.copy_(torch.cat((torch.eye(2), -torch.eye(2))))
        last.weight.copy_(torch.cat((GAIN, -GAIN), dim=-1))
    runner.save()
    return path


def student_cfg(run, *, ppo=None, actor=None, **settings):
    base = {
        "name": "distill",
        "num_steps": 16,
        "max_iterations": 40,
        "save_interval": 1000,
        "actor": NetworkCfg(hidden=(32, 32), **(actor or {})),
        "critic": NetworkCfg(hidden=(32,), output_gain=1.0),
        "ppo": PPOCfg(learning_rate=3e-3, schedule="linear", epochs=3, **(ppo or {})),
        "actor_groups": ("seen",),
        "teacher": TeacherCfg(run=str(run)),
    }
    return DistillLearnerCfg(**(base | settings))


def without_teacher(cfg, **changes):
    """The same settings for PPO."""
    settings = {field.name: getattr(cfg, field.name) for field in fields(PPOLearnerCfg)}
    return PPOLearnerCfg(**settings | {"name": "ppo"} | changes)


@pytest.fixture
def teacher_run(tmp_path):
    return make_teacher_run(tmp_path / "teacher", FallEnv())
