"""Our environments under rl_games' runner, with a central value function."""

import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

pytest.importorskip("rl_games")
from rl_games.algos_torch.a2c_continuous import A2CAgent
from rl_games.torch_runner import Runner
from robot_rl_envs.adapters.rl_games_env import RlGamesEnv, register

N = 16
MLP = {"units": [32], "activation": "elu", "initializer": {"name": "default"}}


@pytest.fixture
def task():
    task = get_task("cartpole")
    task.episode_length_s = 0.4  # so that episodes end by their time in a short test
    return task


def config(folder):
    """As Isaac Lab's and mjlab's users write it, small."""
    space = {"mu_activation": "None", "sigma_activation": "None", "mu_init": {"name": "default"},
             "sigma_init": {"name": "const_initializer", "val": 0}, "fixed_sigma": True}  # fmt: skip
    train = {
        "name": "cartpole", "env_name": "cartpole", "device": "cpu", "device_name": "cpu", "ppo": True,
        "normalize_input": True, "normalize_value": True, "value_bootstrap": True, "normalize_advantage": True,
        "mixed_precision": False, "reward_shaper": {"scale_value": 1.0}, "gamma": 0.99, "tau": 0.95,
        "learning_rate": 1e-3, "lr_schedule": None, "grad_norm": 1.0, "entropy_coef": 0.0, "truncate_grads": True,
        "e_clip": 0.2, "clip_value": True, "critic_coef": 1.0, "bounds_loss_coef": 0.0, "max_epochs": 3,
        "num_actors": N, "horizon_length": 16, "minibatch_size": 128, "mini_epochs": 2, "save_frequency": 0,
        "save_best_after": 1000, "score_to_win": 1e9, "train_dir": str(folder), "print_stats": False,
        "central_value_config": {
            "minibatch_size": 128, "mini_epochs": 2, "learning_rate": 1e-3, "lr_schedule": None, "clip_value": True,
            "normalize_input": True, "truncate_grads": True, "grad_norm": 1.0, "e_clip": 0.2,
            "network": {"name": "actor_critic", "central_value": True, "mlp": MLP},
        },
    }  # fmt: skip
    network = {"name": "actor_critic", "separate": False, "space": {"continuous": space}, "mlp": MLP}
    model = {"name": "continuous_a2c_logstd"}
    return {
        "params": {
            "seed": 3, "algo": {"name": "a2c_continuous"}, "model": model, "network": network, "config": train,
            "torch_threads": 1,
        }
    }  # fmt: skip


def test_steps_are_those_of_the_environment(task):
    env, other = (make_env(task, num_envs=N, seed=3, num_threads=1) for _ in range(2))
    wrapped = RlGamesEnv(env)
    assert torch.equal(wrapped.reset()["obs"], other.reset()["actor"])
    torch.manual_seed(0)
    cut = 0
    for _ in range(30):
        actions = torch.randn(N, 1)
        seen, reward, dones, info = wrapped.step(actions)
        groups, wanted, done, extras = other.step(actions)
        assert torch.equal(seen["obs"], groups["actor"])
        assert torch.equal(seen["states"], groups["critic"])
        assert torch.equal(reward, wanted)
        assert torch.equal(dones.bool(), done)
        assert torch.equal(info["time_outs"], extras["time_outs"])
        cut += int(info["time_outs"].sum())
    assert cut >= N
    assert isinstance(RlGamesEnv(other, state=None).reset(), torch.Tensor)
    for one in (env, other):
        one.close()


@pytest.mark.long
def test_its_runner_trains_policy_and_central_value(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agents = []
    made = A2CAgent.__init__
    monkeypatch.setattr(A2CAgent, "__init__", lambda self, *a, **k: (made(self, *a, **k), agents.append(self))[0])
    register("cartpole", task, seed=3, num_threads=1)
    runner = Runner()
    runner.load(config(tmp_path))
    runner.run({"train": True, "play": False})
    (agent,) = agents
    assert agent.epoch_num == 3
    assert agent.has_central_value
    weights = [*agent.model.parameters(), *agent.central_value_net.parameters()]
    assert all(p.isfinite().all() for p in weights)
    agent.vec_env.close()
