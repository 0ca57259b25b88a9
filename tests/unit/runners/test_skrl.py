"""Our environments under skrl's trainer and PPO."""

import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

pytest.importorskip("skrl")
from robot_rl_envs.adapters.skrl_env import SkrlEnv
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
from skrl.trainers.torch import SequentialTrainer, SequentialTrainerCfg

N = 16


@pytest.fixture
def env():
    task = get_task("cartpole")
    task.episode_length_s = 0.4  # so that episodes end by their time in a short test
    wrapped = SkrlEnv(make_env(task, num_envs=N, seed=3, num_threads=1))
    yield wrapped
    wrapped.close()


def mlp(width, out):
    return torch.nn.Sequential(torch.nn.Linear(width, 32), torch.nn.ELU(), torch.nn.Linear(32, out))


class Policy(GaussianMixin, Model):
    def __init__(self, env):
        Model.__init__(self, observation_space=env.observation_space, action_space=env.action_space, device="cpu")
        GaussianMixin.__init__(self)
        self.net = mlp(env.observation_space.shape[0], self.num_actions)
        self.log_std = torch.nn.Parameter(torch.zeros(self.num_actions))

    def compute(self, inputs, role=""):
        return self.net(inputs["observations"]), {"log_std": self.log_std}


class Value(DeterministicMixin, Model):
    """Of the critic's group: skrl's state."""

    def __init__(self, env):
        Model.__init__(self, observation_space=env.observation_space, state_space=env.state_space,
                       action_space=env.action_space, device="cpu")  # fmt: skip
        DeterministicMixin.__init__(self)
        self.net = mlp(env.state_space.shape[0], 1)

    def compute(self, inputs, role=""):
        return self.net(inputs["states"]), {}


def test_steps_are_those_of_the_environment(env):
    other = make_env(env.cfg, num_envs=N, seed=3, num_threads=1)
    seen, _ = env.reset()
    assert torch.equal(seen, other.reset()["actor"])
    torch.manual_seed(0)
    cut = 0
    for _ in range(30):
        actions = torch.randn(N, 1)
        seen, reward, terminated, truncated, info = env.step(actions)
        groups, wanted, dones, extras = other.step(actions)
        assert torch.equal(seen, groups["actor"])
        assert torch.equal(env.state(), groups["critic"])
        assert torch.equal(reward[:, 0], wanted)
        assert torch.equal((terminated | truncated)[:, 0], dones)
        assert torch.equal(info["final_obs"], extras["final_obs"]["actor"])
        cut += int(truncated.sum())
    assert cut >= N
    other.close()


def test_ppo_trains_with_the_critic_s_group(env, tmp_path):
    torch.manual_seed(0)
    models = {"policy": Policy(env), "value": Value(env)}
    before = [p.detach().clone() for p in models["value"].parameters()]
    cfg = PPO_CFG(rollouts=16, learning_epochs=2, mini_batches=2, time_limit_bootstrap=True)
    cfg.experiment.directory, cfg.experiment.write_interval, cfg.experiment.checkpoint_interval = str(tmp_path), 0, 0
    agent = PPO(models=models, memory=RandomMemory(memory_size=16, num_envs=N), cfg=cfg, device="cpu",
                observation_space=env.observation_space, state_space=env.state_space,
                action_space=env.action_space)  # fmt: skip
    SequentialTrainer(
        cfg=SequentialTrainerCfg(timesteps=64, headless=True, close_environment_at_exit=False), env=env, agents=agent
    ).train()
    after = list(models["value"].parameters())
    assert all(not torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert all(p.isfinite().all() for model in models.values() for p in model.parameters())


def test_a_group_that_is_not_there_is_one_line():
    env = make_env(get_task("cartpole"), num_envs=2, seed=1, num_threads=1)
    with pytest.raises(ValueError, match=r"group='actr': must be one of actor, critic"):
        SkrlEnv(env, observation="actr")
    assert SkrlEnv(env, state=None).state() is None
    env.close()
