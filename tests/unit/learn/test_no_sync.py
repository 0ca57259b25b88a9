"""No host sync in an iteration: on tensors without values whatever reads one fails; on a CPU the reads are counted."""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from robot_rl.learn.algorithm import Snapshot
from robot_rl.learn.algorithms.ppo.augment import AugmentSymmetry
from robot_rl.learn.algorithms.ppo.config import PPOCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO
from robot_rl.learn.collector import Collector
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.distributions import Categorical
from robot_rl.learn.networks.layout import ObservationLayout
from robot_rl.learn.rollout import make_rollout
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import ConvCfg, MemoryCfg, NetworkCfg

META = torch.device("meta")
DIMS = EnvSpec(actor=4, critic=6, action=2)
MIRRORS = {
    "actor": (torch.tensor([1, 0, 2, 3]), torch.tensor([1.0, 1.0, 1.0, -1.0])),
    "critic": (torch.tensor([1, 0, 2, 3, 4, 5]), torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, 1.0])),
    "action": (torch.tensor([1, 0]), torch.tensor([1.0, 1.0])),
}


class ValuelessAdam:
    """The fused kernel does not exist for tensors without values."""

    def __init__(self, params, **_):
        self.params, self.state = params, {}

    def step(self):
        for param in self.params:
            param.grad.mul_(1.0)


@pytest.fixture(autouse=True)
def _adam(monkeypatch):
    monkeypatch.setattr(torch.optim, "Adam", ValuelessAdam)


def make(dims=DIMS, symmetry="none", cfg=None, **ppo):
    """An algorithm on the device without values: it takes the way that a GPU takes."""
    cfg = cfg or NetworkCfg(hidden=(8, 8))
    mirror = MIRRORS if symmetry == "network" else None
    actor = Actor(
        dims.actor_layout,
        dims.action,
        cfg,
        mirror=(mirror["actor"], mirror["action"]) if mirror else None,
        choices=dims.choices,
    )
    critic = Critic(dims.critic_layout, cfg, num_values=dims.num_values, mirror=mirror["critic"] if mirror else None)
    augment = None
    if symmetry == "augment":
        augment = AugmentSymmetry(**{name: (p.to(META), s.to(META)) for name, (p, s) in MIRRORS.items()})
    settings = PPOCfg(**{"epochs": 1, "minibatches": 2} | ppo)
    return PPO(actor.to(META), critic.to(META), settings, symmetry=augment)


def make_filled(algorithm, dims=DIMS, **flags):
    rollout = make_rollout(6, 8, dims, META, out_dim=algorithm.actor.distribution.out_dim)
    for name, value in flags.items():
        setattr(rollout, name, value)
    return rollout


@pytest.mark.parametrize("schedule", ["adaptive", "fixed", "linear"])
@pytest.mark.parametrize("symmetry", ["none", "augment", "network"])
@pytest.mark.parametrize("flags", [{}, {"has_invalid": True, "has_final_obs": True}])
def test_an_update_reads_nothing(schedule, symmetry, flags):
    algorithm = make(symmetry=symmetry, schedule=schedule)
    statistics = algorithm.update(make_filled(algorithm, **flags), 0.5)
    assert all(value.device == META and value.shape == () for value in statistics.values())


@pytest.mark.parametrize("options", [{"distribution": "squashed"}, {"state_std": True}, {"activation": "silu"}])
def test_nor_do_other_policies(options):
    algorithm = make(cfg=NetworkCfg(hidden=(8, 8), **options))
    algorithm.update(make_filled(algorithm))


def test_nor_choices_nor_several_critics():
    dims = replace(DIMS, choices=(3, 4), num_values=2)
    algorithm = make(dims)
    assert isinstance(algorithm.actor.distribution, Categorical)
    algorithm.update(make_filled(algorithm, dims, has_final_obs=True))


def test_nor_images():
    shapes = {"camera": (1, 12, 12), "rest": (3,)}
    dims = replace(DIMS, actor=147, actor_shapes=shapes, critic=147, critic_shapes=shapes)
    cfg = NetworkCfg(hidden=(8,), conv=ConvCfg(groups=("camera",)))
    algorithm = make(dims, cfg=cfg)
    assert ObservationLayout(shapes).size == 147
    algorithm.update(make_filled(algorithm, dims))


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_nor_does_a_memory(kind):
    algorithm = make(cfg=NetworkCfg(hidden=(8,), memory=MemoryCfg(kind=kind, hidden=5)))
    rollout = make_filled(algorithm, has_final_obs=True)
    rollout.hold_states(3, algorithm.actor.state_size, algorithm.critic.state_size)
    algorithm.update(rollout)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.item(),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: 1 if x.sum() > 0 else 2,
    ],
)
def test_reading_would_be_noticed(read):
    with pytest.raises((RuntimeError, NotImplementedError)):
        read(torch.zeros(1, device=META))


class ValuelessEnv:
    """Steps an environment's worlds on the device without values."""

    def __init__(self, env):
        self.env, self.device, self.num_actions = env, META, env.num_actions
        self.max_episode_length, self.num_envs = env.max_episode_length, env.num_envs
        self.episode_length_buf = env.episode_length_buf.to(META)

    def get_observations(self):
        return self.env.get_observations().to(META)

    def step(self, actions):
        assert actions.device == META
        obs, reward, done, extras = self.env.step(torch.zeros(actions.shape))
        moved = {"time_outs": extras["time_outs"].to(META), "final_obs": extras["final_obs"].to(META)}
        return obs.to(META), reward.to(META), done.to(META), moved | {"valid": torch.ones_like(done).to(META)}


def test_a_rollout_reads_nothing(make_point_env, small_cfg):
    runner = Trainer(make_point_env(), small_cfg)
    runner.env = ValuelessEnv(runner.env)
    actor, critic = runner.actor.to(META), runner.critic.to(META)
    collector = Collector(runner.env, small_cfg, runner.dims, runner.algorithm.spec(), noise=None)
    collector._stagger = False
    collector.collect(Snapshot(actor, 0))
    assert collector.rollout.has_final_obs
    assert collector.rollout.has_invalid
    PPO(actor, critic, small_cfg.ppo).update(collector.rollout)


class Reads(TorchDispatchMode):
    """Counts what a GPU would have to be waited for."""

    NAMES = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal", "aten::is_nonzero")

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.name() in self.NAMES:
            self.seen.append(func.name())
        return func(*args, **(kwargs or {}))


def test_an_iteration_reads_once(make_point_env, small_cfg, monkeypatch):
    """The figures of the whole iteration are read together; the environment reads its own."""
    env = make_point_env(final_obs=False)
    env.pop_metrics = dict
    env.step, quiet = None, env
    answers = (quiet.get_observations(), torch.zeros(64), torch.zeros(64, dtype=torch.bool), {})
    env.step = lambda actions: answers
    runner = Trainer(env, small_cfg)
    runner.train(1)
    lists, tolist = [], torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: lists.append(x.shape) or tolist(x))
    with Reads() as reads:
        runner._iterate(4)
    assert len(lists) == 1
    assert [name for name in reads.seen if name != "aten::nonzero"] == []
    assert reads.seen.count("aten::nonzero") <= 1  # Only on a CPU, where a time-out's row is looked up.
