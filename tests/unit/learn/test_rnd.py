"""Curiosity: what is new is rewarded, what is known is not, and nothing else has an influence."""

from dataclasses import replace

import pytest
import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.learn.auxiliaries.config import RndCfg
from robot_rl.learn.auxiliaries.rnd import CLIP, Rnd
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.rollout import make_rollout
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import NetworkCfg

STEPS, WORLDS, SIZE = 6, 16, 3


def make_rnd(**changes):
    return Rnd(RndCfg(**{"weight": 1.0, "groups": ("state",), "hidden": (32,), "features": 8} | changes), SIZE, seed=1)


def rollout_at(states, done=None):
    """A rollout with steps that lead to states (T, N, D)."""
    rollout = make_rollout(*states.shape[:2], EnvSpec(actor=1, critic=1, action=1), "cpu", groups={"state": SIZE})
    rollout.groups["state"][1:] = states
    if done is not None:
        rollout.done.copy_(done)
    return rollout


def normal(mean, steps=STEPS, worlds=WORLDS, seed=0):
    return mean + 0.3 * torch.randn(steps, worlds, SIZE, generator=torch.Generator().manual_seed(seed))


def test_the_reward_by_hand():
    rnd = make_rnd(weight=0.5)
    states = normal(0.0)
    with torch.no_grad():
        seen = rnd.normalizer(states.flatten(0, 1)).clamp(-CLIP, CLIP)
        error = (rnd.predictor.plain(seen) - rnd.target.plain(seen)).square().mean(-1)
    expected = 0.5 * error / error.square().mean().sqrt()
    torch.testing.assert_close(rnd.reward(rollout_at(states)).flatten(), expected)
    # The second rollout is measured against everything seen so far.
    more = normal(2.0, seed=1)
    with torch.no_grad():
        seen = rnd.normalizer(more.flatten(0, 1)).clamp(-CLIP, CLIP)
        other = (rnd.predictor.plain(seen) - rnd.target.plain(seen)).square().mean(-1)
    expected = 0.5 * other / torch.cat((error, other)).square().mean().sqrt()
    torch.testing.assert_close(rnd.reward(rollout_at(more)).flatten(), expected)


def test_known_states_earn_less_than_new_ones():
    rnd = make_rnd(learning_rate=3e-3, epochs=4)
    first = float(rnd.reward(rollout_at(normal(0.0))).mean())
    for seed in range(60):
        rollout = rollout_at(normal(0.0, seed=seed))
        rnd.reward(rollout)
        loss = float(rnd.update(rollout, 0.0)["rnd/loss"])
    known = float(rnd.reward(rollout_at(normal(0.0, seed=99))).mean())
    new = float(rnd.reward(rollout_at(normal(1.0, seed=99))).mean())
    assert known < 0.1 * first
    assert new > 20.0 * known
    assert 0.0 < loss < 0.1


def test_the_target_never_changes():
    rnd = make_rnd()
    before = {name: tensor.clone() for name, tensor in rnd.target.state_dict().items()}
    weights = [p.detach().clone() for p in rnd.predictor.parameters()]
    rnd.update(rollout_at(normal(0.0)), 0.0)
    assert all(torch.equal(before[name], tensor) for name, tensor in rnd.target.state_dict().items())
    assert not any(torch.equal(a, b) for a, b in zip(weights, rnd.predictor.parameters(), strict=True))


def test_the_normalizer_is_frozen_until_the_rollout_is_learned_from():
    rnd = make_rnd()
    rollout = rollout_at(normal(5.0))
    rnd.reward(rollout)
    assert int(rnd.normalizer.count) == 0
    rnd.update(rollout, 0.0)
    assert int(rnd.normalizer.count) == STEPS * WORLDS
    torch.testing.assert_close(rnd.normalizer.mean, normal(5.0).flatten(0, 1).mean(0))


def test_a_step_leads_to_its_own_episode():
    """What follows an end is another episode's: the final state counts, or the one before it if that is unknown."""
    states, done = normal(0.0), torch.zeros(STEPS, WORLDS, dtype=torch.bool)
    done[2, 3] = True
    rollout = rollout_at(states, done)
    reward = make_rnd().reward(rollout)
    known = rollout_at(states, done)
    known.has_final_obs = True
    known.ends["state"][2, 3] = states[1, 3]  # What it was before: the same reward as without a final observation.
    torch.testing.assert_close(make_rnd().reward(known), reward)
    known.ends["state"][2, 3] = 4.0
    assert float(make_rnd().reward(known)[2, 3]) > float(reward[2, 3])
    rollout.groups["state"][3, 3] = torch.nan  # The next episode's first state never enters this step.
    assert float(make_rnd().reward(rollout)[2, 3]) == pytest.approx(float(reward[2, 3]))


def test_quarantined_samples_never_enter():
    results = []
    for poison in (0.0, torch.nan):
        rollout = rollout_at(normal(0.0))
        rollout.has_invalid = rollout.has_final_obs = True
        for t, world in ((2, 5), (STEPS - 1, 7)):
            rollout.valid[t, world], rollout.done[t, world] = False, True
            rollout.groups["state"][t, world] = rollout.ends["state"][t, world] = poison
        rollout.groups["state"][STEPS, 7] = poison
        rnd = make_rnd()
        reward = rnd.reward(rollout)
        assert float(reward[2, 5]) == float(reward[STEPS - 1, 7]) == 0.0
        statistics = rnd.update(rollout, 0.0)
        assert int(rnd.count) == int(rnd.normalizer.count) == STEPS * WORLDS - 2
        results.append({"reward": reward, **statistics, **rnd.state_dict()})
    assert all(torch.equal(tensor, results[1][name]) for name, tensor in results[0].items())
    assert all(bool(tensor.isfinite().all()) for tensor in results[1].values())


def test_the_weight_decays():
    rnd = make_rnd(weight=2.0, decay=0.5)
    for progress, expected in ((0.0, 2.0), (0.25, 1.0), (0.5, 0.0), (1.0, 0.0)):
        rnd.update(rollout_at(normal(0.0)), progress)
        assert float(rnd.weight) == pytest.approx(expected)
    assert float(rnd.reward(rollout_at(normal(0.0))).abs().max()) == 0.0


def with_rnd(cfg, **changes):
    return replace(cfg, rnd=RndCfg(**{"weight": 0.1, "hidden": (16,), "features": 4, "groups": ("actor",)} | changes))


def test_it_is_in_the_log_and_in_the_reward(make_point_env, small_cfg):
    runner = Trainer(make_point_env(), with_rnd(small_cfg, weight=0.5))
    row = runner.train(1)
    assert row["rnd/loss"] > 0.0
    # Curiosity is 1 a step in the square mean, so a little less in the mean, times its weight.
    assert 0.1 < row["rnd/reward"] <= 0.5
    runner.collect()
    rollout = runner.collector.rollout
    values = torch.zeros(rollout.critic_obs.shape[:2])
    rollout.done.fill_(True)  # Then an advantage is only the reward.
    rollout.time_out.fill_(False)
    with torch.no_grad():
        added = runner.algorithm.targets.advantages(rollout, values)[0] - rollout.reward
    assert float(added.mean()) == pytest.approx(float(runner.algorithm.auxiliaries[0]._reward), rel=1e-4)
    assert float(added.min()) > 0.0


def test_a_resumed_run_goes_on_to_the_bit(make_point_env, small_cfg, tmp_path):
    env, cfg = make_point_env(), with_rnd(small_cfg, decay=1.0, epochs=2)
    whole = Trainer(env, cfg, run_dir=tmp_path)
    whole.train(2)
    other = make_point_env()
    other.pos, other.episode_length_buf = env.pos.clone(), env.episode_length_buf.clone()
    other.generator.set_state(env.generator.get_state())
    resumed = Trainer(other, cfg, seed=5)
    resumed.load(whole.checkpoint)
    expected, found = whole.train(4), resumed.train(4)
    for key in ("loss/value", "rnd/reward", "rnd/loss"):
        assert found[key] == expected[key]
    theirs = whole.networks() | whole.state()
    assert theirs.keys() >= {
        "auxiliary.rnd.trainer.exp_avg",
        "auxiliary.rnd.trainer.random",
        "auxiliary.rnd.target.layers.0.weight",
    }
    for name, tensor in (resumed.networks() | resumed.state()).items():
        assert torch.equal(tensor, theirs[name]), name


def test_a_group_that_does_not_exist(make_point_env, small_cfg):
    with pytest.raises(UserError, match=r"rnd.groups: the environment has no group 'crtic', did you mean 'critic'"):
        Trainer(make_point_env(), with_rnd(small_cfg, groups=("crtic",)))
    with pytest.raises(UserError, match=r"rnd.groups: group 'critic' is named twice"):
        Trainer(make_point_env(), with_rnd(small_cfg, groups=("critic", "critic")))
    with pytest.raises(UserError, match=r"groups=\[\]: must name at least one"):
        RndCfg(weight=1.0, groups=())


class LockEnv(VecEnv):
    """A lock of so many wheels: the right turn leads to the next one, a wrong turn back to the first.

    The state is one-hot; the only reward is at the end. Turning at random opens it once in 2^wheels tries.
    """

    def __init__(self, num_envs: int = 32, wheels: int = 18) -> None:
        self.num_envs, self.num_actions, self.max_episode_length = num_envs, 1, 64
        self.device, self.cfg, self.wheels = "cpu", {}, wheels
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.int64)
        self.right = torch.randint(2, (wheels,), generator=torch.Generator().manual_seed(3)) == 1
        self.at = torch.zeros(num_envs, dtype=torch.int64)
        self.opened = 0

    def get_observations(self) -> TensorDict:
        state = torch.nn.functional.one_hot(self.at, self.wheels + 1).float()
        return TensorDict({"actor": state, "critic": state}, batch_size=[self.num_envs])

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        at_end = self.at == self.wheels  # From the end everything leads back to the first wheel.
        is_right = (actions[:, 0] > 0) == self.right[self.at.clamp(max=self.wheels - 1)]
        self.at = torch.where(is_right & ~at_end, self.at + 1, 0)
        opened = self.at == self.wheels
        self.opened += int(opened.sum())
        self.episode_length_buf += 1
        time_outs = self.episode_length_buf >= self.max_episode_length
        self.at = torch.where(time_outs, 0, self.at)
        self.episode_length_buf[time_outs] = 0
        return self.get_observations(), opened.float(), time_outs, {"time_outs": time_outs}


@pytest.mark.long
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_curiosity_opens_a_lock_that_chance_does_not(weight):
    cfg = PPOLearnerCfg(
        num_steps=32,
        actor=NetworkCfg(hidden=(32,), min_std=1.0),  # Both keep on trying both ways at every wheel.
        critic=NetworkCfg(hidden=(32,), output_gain=1.0),
        ppo=PPOCfg(learning_rate=3e-3, schedule="fixed", entropy_coef=0.01),
        rnd=RndCfg(weight=weight, groups=("actor",), hidden=(32,), features=16),
    )
    env = LockEnv()
    Trainer(env, cfg, seed=1).train(60)
    if weight > 0:
        assert env.opened > 100
    else:
        assert env.opened == 0
