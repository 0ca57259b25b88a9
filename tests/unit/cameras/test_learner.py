"""Learners take the groups in their settings: images through an encoder, or not at all."""

from dataclasses import replace

import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_envs.cameras import Camera, ImageGroup
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import observations, rewards
from robot_rl_envs.task import Actions, Observation, ObservationGroup, Reward, Sim, Task

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.algorithms.rsl_rl.runner import RslRlRunner
from robot_rl.learn.policy import make_policy
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import ConvCfg, NetworkCfg

CFG = PPOLearnerCfg(num_steps=4, actor=NetworkCfg(hidden=(8,)), critic=NetworkCfg(hidden=(8,)))


@pytest.fixture
def env():
    terms = {"angle": Observation(observations.joint_pos_rel), "speed": Observation(observations.joint_vel)}
    camera = Camera(name="side", body="world", pos=(0, -3, 1), forward=(0, 1, 0), far=6.0, width=16, height=12)
    task = Task(
        name="seen_cart",
        robot=get_robot("cartpole"),
        sim=Sim(timestep=0.02, decimation=2),
        episode_length_s=0.2,
        actions=Actions(kind="effort"),
        observations={
            "actor": ObservationGroup(terms=terms),
            "critic": ObservationGroup(terms=dict(terms)),
            "side": ImageGroup(camera=camera, geometry="visual"),
        },
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
    )
    one = make_env(task, num_envs=4, engine="mujoco", num_threads=1)
    yield one
    one.close()


@pytest.mark.long
def test_ours_learns_with_images_in_the_observations_and_keeps_none(env, tmp_path):
    runner = Trainer(env, CFG, run_dir=tmp_path)
    assert torch.isfinite(torch.tensor(runner.train(2)["loss/value"]))
    shapes = [
        value.shape for value in (getattr(runner.collector.rollout, name) for name in ("actor_obs", "critic_obs"))
    ]
    assert shapes == [(4, 4, 4), (5, 4, 4)]
    again = Trainer(env, CFG, run_dir=tmp_path / "again")
    again.load(runner.checkpoint)
    assert again.train(3)["iteration"] == 3


@pytest.mark.long
def test_rsl_rl_stores_no_images(env, tmp_path):
    runner = RslRlRunner(env, CFG, run_dir=tmp_path)
    runner.train(1)
    stored = runner.runner.alg.storage.observations
    assert sorted(stored.keys()) == ["actor", "critic"]


def test_an_image_without_an_encoder_is_refused(env, tmp_path):
    line = r"actor_groups: group 'side' has shape \(num_envs, 1, 12, 16\), images, .* actor\.conv\.groups=\[side\]"
    with pytest.raises(UserError, match=line):
        Trainer(env, replace(CFG, actor_groups=("actor", "side")), run_dir=tmp_path)
    with pytest.raises(UserError, match="rsl_rl"):
        RslRlRunner(env, seeing("side"), run_dir=tmp_path)


def seeing(*groups, **fields):
    actor = replace(CFG.actor, conv=ConvCfg(groups=("side",), channels=(4,), features=8))
    return replace(CFG, actor=actor, actor_groups=groups, **fields)


def test_ours_learns_from_images(env, tmp_path):
    runner = Trainer(env, seeing("actor", "side"), run_dir=tmp_path)
    encoder = runner.actor.encoders.encoders[0]
    before = [weight.detach().clone() for weight in encoder.parameters()]
    assert torch.isfinite(torch.tensor(runner.train(2)["loss/value"]))
    assert all(not torch.equal(a, b) for a, b in zip(before, encoder.parameters(), strict=True))
    obs = env.get_observations()
    stored = runner.actor.layout.gather(obs, torch.empty(4, 4 + 12 * 16))
    assert torch.equal(stored[:, 4:].view(4, 1, 12, 16), obs["side"])
    policy = make_policy(tmp_path)
    assert torch.equal(policy(obs), runner.actor.mean(stored).detach())
    with torch.no_grad():
        blind = runner.actor.mean(torch.cat((stored[:, :4], torch.zeros(4, 192)), dim=1))
    assert not torch.equal(blind, policy(obs))
    again = Trainer(env, seeing("actor", "side"), run_dir=tmp_path / "again")
    again.load(runner.checkpoint)
    assert again.train(3)["iteration"] == 3
