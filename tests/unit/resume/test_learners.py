"""Every option of the learner: a run in two pieces is the run, bit for bit."""

import pytest
import torch
from robot_rl_envs.motion import MOTION, with_motion
from robot_rl_tasks.registry import get_task
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from robot_rl.learn.algorithms import get_learner
from robot_rl.learn.auxiliaries.motions import write_motion
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.settings import apply_overrides
from tests.resuming import assert_same_run, in_two, learner

GRU = {"actor.memory.kind": "gru", "actor.memory.hidden": 6, "actor.memory.sequence": 4}
LSTM = {
    f"{part}.memory.{key}": value for part in ("actor", "critic") for key, value in (("kind", "lstm"), ("hidden", 6))
}
OPTIONS = {
    "ppo": {},
    "fixed": {"ppo.schedule": "fixed", "ppo.bootstrap": "state", "normalize_obs": False, "stagger_episodes": False},
    "augment": {"symmetry": "augment"},
    "network": {"symmetry": "network", "ppo.schedule": "linear"},
    "normalize_values": {"normalize_values": True, "ppo.clip_value_loss": False},
    "squashed": {"actor.distribution": "squashed"},
    "state_std": {"actor.state_std": True},
    "gru": GRU,
    "lstm": LSTM | {"symmetry": "network"},
    "rnd": {"rnd.weight": 0.5, "rnd.groups": ["actor"], "rnd.hidden": [8], "rnd.decay": 1.0},
    "rsl_rl": {"name": "rsl_rl"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_resumed_run_is_the_run(name, maker, tmp_path):
    whole, resumed = in_two(maker("cartpole"), learner(**OPTIONS[name]), tmp_path)
    assert_same_run(whole, resumed)


def test_a_runner_goes_back_to_a_checkpoint_of_its_own(maker, tmp_path):
    whole, resumed = in_two(maker("cartpole"), learner(**GRU), tmp_path)
    resumed.load(tmp_path / "resumed" / "checkpoints" / "000002")
    assert resumed.iteration == 2
    resumed.train(4)
    assert_same_run(whole, resumed)


class Drift(VecEnv):
    """N points that are pushed about, rewarded for two things; it keeps no statistics and can return its state."""

    reward_groups = ("place", "push")

    def __init__(self):
        self.num_envs, self.num_actions, self.max_episode_length = 6, 1, 9
        self.device, self.cfg = torch.device("cpu"), {}
        self.episode_length_buf = torch.zeros(6, dtype=torch.int64)
        self.generator = torch.Generator().manual_seed(0)
        self.pos = torch.zeros(6)

    def get_observations(self):
        return TensorDict({"actor": self.pos[:, None].clone()}, batch_size=[6])

    def step(self, actions):
        push = actions[:, 0].clamp(-1.0, 1.0)
        self.pos = self.pos + push + torch.randn(6, generator=self.generator)
        self.episode_length_buf += 1
        over = self.episode_length_buf >= self.max_episode_length
        self.pos = torch.where(over, 0.0, self.pos)
        self.episode_length_buf[over] = 0
        parts = torch.stack((-self.pos.abs(), -push.abs()), dim=-1)
        return self.get_observations(), parts.sum(-1), over, {"time_outs": over, "rewards": parts, "log": {}}

    def state_dict(self):
        return {"pos": self.pos, "length": self.episode_length_buf, "random": self.generator.get_state()}

    def load_state_dict(self, tensors):
        self.pos = tensors["pos"].clone()
        self.episode_length_buf.copy_(tensors["length"])
        self.generator.set_state(tensors["random"])


def test_several_critics_and_statistics_kept_by_the_learner(tmp_path):
    """In an environment of another make: one that returns its state goes on with it; returns go on in mid-episode."""
    cfg = learner(several_critics=True, critic_groups=["actor"])
    whole, resumed = in_two(Drift, cfg, tmp_path)
    assert whole.dims.num_values == 2
    assert_same_run(whole, resumed)


@pytest.mark.long
def test_an_encoder(maker, tmp_path):
    settings = {"critic.conv.groups": ["critic.scan"], "critic.conv.channels": [2], "critic.conv.kernels": [3]}
    whole, resumed = in_two(maker("go2_rough", 4), learner(**settings, **{"critic.conv.strides": [2]}), tmp_path)
    assert_same_run(whole, resumed)


def test_a_motion_prior(maker, tmp_path):
    """With a replay buffer that is full before the first checkpoint and goes round."""
    make = maker(with_motion(get_task("cartpole")))
    env = make()
    frames = torch.randn(40, env.get_observations()[MOTION].shape[1], generator=torch.Generator().manual_seed(1))
    file = write_motion(tmp_path / "motion.safetensors", frames, torch.zeros(40), env.components(MOTION), env.step_dt)
    settings = {"amp.weight": 0.5, "amp.motions": str(file), "amp.hidden": [8], "amp.batch": 16, "amp.replay": 100}
    whole, resumed = in_two(make, learner(**settings), tmp_path)
    assert_same_run(whole, resumed)


@pytest.mark.parametrize("kind", ["distill", "reference"])
def test_a_policy_to_go_by_that_remembers(kind, maker, tmp_path):
    """What the other policy remembers of each world goes on as well."""
    make = maker("cartpole")
    other = make_trainer(make(), learner(**GRU), run_dir=tmp_path / "other")
    other.train(1)
    settings = {
        "distill": {
            "name": "distill",
            "teacher.run": str(other.checkpoint),
            "teacher.mix": 0.5,
            "teacher.mix_until": 1.0,
        },
        "reference": {"reference.run": str(other.checkpoint), "reference.decay": 0.9},
    }
    whole, resumed = in_two(make, learner(**settings[kind], **{"actor.memory.kind": "none"}), tmp_path)
    name = {"distill": "teacher", "reference": "reference"}[kind]
    assert float(whole.worlds()[f"auxiliary.{name}.memory"].abs().max()) > 0.0
    assert_same_run(whole, resumed)


def test_flashsac_goes_on_with_its_replay_memory(maker, tmp_path):
    settings = {
        "name": "flashsac",
        "num_steps": 6,
        "flashsac.batch": 16,
        "flashsac.replay": 100,
        "flashsac.warm_up": 30,
        "flashsac.policy_width": 8,
        "flashsac.critic_width": 8,
        "flashsac.updates": 0.7,
    }
    cfg = apply_overrides(get_learner("flashsac")(), {key: value for key, value in settings.items() if key != "name"})
    whole, resumed = in_two(maker("go2_flat"), cfg, tmp_path)
    assert int(whole.algorithm.steps) > 8
    assert_same_run(whole, resumed)
