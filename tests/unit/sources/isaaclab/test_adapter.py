"""What the learner is given of an environment of Isaac Lab: ends of episodes, last observations, worlds that break."""

from types import SimpleNamespace

import gymnasium
import pytest
import torch

from robot_rl.errors import UserError
from robot_rl.sources.isaaclab.adapter import IsaacEnv


class Counter:
    """An environment of Isaac Lab's kind that counts: a world's observation is its step, and 10 is the last."""

    def __init__(self, num_envs=3, space=None, finite=False, image=False):
        self.num_envs, self.device, self.extras = num_envs, "cpu", {}
        self.single_action_space = space or gymnasium.spaces.Box(-1, 1, (2,))
        self.cfg = SimpleNamespace(is_finite_horizon=finite)
        self.max_episode_length, self.step_dt = 10, 0.5
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)
        self.falls_at, self.breaks_at, self.seen, self.image = {}, {}, [], image
        self.reset_worlds, self.closed = [], 0

    def _observe(self):
        count = self.episode_length_buf.float()[:, None].repeat(1, 2)
        for world, step in self.breaks_at.items():
            if self.episode_length_buf[world] == step:
                count[world, 1] = torch.nan
        return {"policy": count} | ({"camera": torch.zeros(self.num_envs, 8, 6, 3)} if self.image else {})

    def reset(self, seed=None):
        self.episode_length_buf[:] = 0
        return self._observe(), self.extras

    def _reset_idx(self, which):
        self.reset_worlds += which.tolist()
        self.episode_length_buf[which.long()] = 0

    def step(self, action):
        self.seen.append(action.clone())
        self.episode_length_buf += 1
        truncated = self.episode_length_buf >= self.max_episode_length
        terminated = torch.tensor([self.falls_at.get(k) == int(n) for k, n in enumerate(self.episode_length_buf)])
        over = (terminated | truncated).nonzero().squeeze(-1)
        if len(over):
            self.extras["final_obs"] = self._observe()
            self.extras["log"] = {"Episode_Reward/alive": torch.tensor(2.0)}
            self.episode_length_buf[over] = 0
        return self._observe(), torch.ones(self.num_envs), terminated, truncated, self.extras

    def close(self):
        self.closed += 1


def walk(env, steps, action=None):
    for _ in range(steps):
        returned = env.step(torch.zeros(env.num_envs, env.num_actions) if action is None else action)
    return returned


def test_last_observations_time_outs_and_falls():
    lab = Counter()
    lab.falls_at = {1: 4, 2: 10}
    env = IsaacEnv(lab, name="isaac/X")
    assert (env.num_envs, env.num_actions, env.action_choices, env.max_episode_length, env.step_dt) == (
        3,
        2,
        None,
        10,
        0.5,
    )
    obs, reward, done, extras = walk(env, 4)
    assert done.tolist() == [False, True, False]
    assert extras["time_outs"].tolist() == [False, False, False]
    assert extras["final_obs"]["policy"][:, 0].tolist() == [4.0, 4.0, 4.0]
    assert obs["policy"][:, 0].tolist() == [4.0, 0.0, 4.0]
    assert extras["log"] == {"Episode_Reward/alive": torch.tensor(2.0)}
    # Nothing of the last end is reported again.
    obs, _, done, extras = walk(env, 1)
    assert not done.any()
    assert extras["log"] == {}
    assert extras["final_obs"] is obs
    obs, reward, done, extras = walk(env, 5)
    assert done.tolist() == [True, False, True]
    # World 2 fell in the step in which its time was up: its value ends.
    assert extras["time_outs"].tolist() == [True, False, False]
    assert extras["final_obs"]["policy"][0].tolist() == [10.0, 10.0]
    assert reward.tolist() == [1.0, 1.0, 1.0]


def test_a_finite_horizon_has_no_value_after_its_end():
    _, _, done, extras = walk(IsaacEnv(Counter(finite=True), name="isaac/X"), 10)
    assert done.all()
    assert not extras["time_outs"].any()


def test_a_world_that_breaks_ends_and_begins_again():
    lab = Counter()
    lab.breaks_at = {2: 3}
    env = IsaacEnv(lab, name="isaac/X")
    obs, reward, done, extras = walk(env, 3)
    assert done.tolist() == [False, False, True]
    assert not extras["time_outs"].any()
    assert lab.reset_worlds == [2]
    assert int(extras["log"]["worlds/broken"]) == 1
    assert torch.isfinite(obs["policy"]).all()
    assert torch.isfinite(extras["final_obs"]["policy"]).all()
    assert reward.tolist() == [1.0, 1.0, 0.0]
    assert not walk(env, 1)[2].any()


def test_a_world_that_breaks_at_its_end_bootstraps_from_no_nonsense():
    lab = Counter()
    lab.breaks_at = {0: 10}
    _, _, done, extras = walk(IsaacEnv(lab, name="isaac/X"), 10)
    assert done.all()
    assert lab.reset_worlds == []
    assert torch.isfinite(extras["final_obs"]["policy"]).all()
    assert extras["time_outs"].tolist() == [False, True, True]
    assert int(extras["log"]["worlds/broken"]) == 1


def test_episodes_can_be_staggered():
    lab = Counter()
    env = IsaacEnv(lab, name="isaac/X")
    env.episode_length_buf.copy_(torch.tensor([8, 0, 9]))
    assert walk(env, 1)[2].tolist() == [False, False, True]
    env.episode_length_buf = torch.tensor([9, 9, 9])
    assert walk(env, 1)[2].all()


@pytest.mark.parametrize(
    ("space", "choices", "action", "given"),
    [
        (gymnasium.spaces.Box(-1, 1, (2,)), None, [[3.0, -0.5]], [[1.5, -0.5]]),
        (gymnasium.spaces.Discrete(4), (4,), [[3.0]], [3]),
        (gymnasium.spaces.MultiDiscrete([2, 3]), (2, 3), [[1.0, 2.0]], [[1, 2]]),
    ],
)
def test_actions_arrive_clipped_or_as_choices(space, choices, action, given):
    lab = Counter(num_envs=1, space=space)
    env = IsaacEnv(lab, name="isaac/X", action_clip=1.5)
    assert env.action_choices == choices
    walk(env, 1, torch.tensor(action))
    assert lab.seen[-1].tolist() == given
    assert lab.seen[-1].is_floating_point() == (choices is None)


def test_actions_that_cannot_be_learned_are_refused():
    with pytest.raises(UserError, match="task=isaac/X: its actions are a Dict; numbers"):
        IsaacEnv(Counter(space=gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2)})), name="isaac/X")


def test_a_stack_of_images_comes_with_its_channels_first():
    env = IsaacEnv(Counter(), name="isaac/X")
    image = torch.arange(2.0 * 8 * 7 * 6).view(2, 8, 7, 6)
    env.num_envs = 2
    assert torch.equal(env._read({"camera": image})["camera"], image.permute(0, 3, 1, 2))
    assert torch.equal(env._read({"camera": image.permute(0, 3, 1, 2)})["camera"], image.permute(0, 3, 1, 2))


def test_two_terms_with_one_name_are_refused():
    env = IsaacEnv(Counter(), name="isaac/X")
    value = torch.zeros(3, 2)
    with pytest.raises(UserError, match=r"\['a.b'\] and \['a'\]\['b'\] have one name, a\.b; rename one"):
        env._read({"a.b": value, "a": {"b": value}})


def test_images_come_with_their_channels_first():
    env = IsaacEnv(Counter(image=True), name="isaac/X")
    assert env.get_observations()["camera"].shape == (3, 3, 8, 6)


def test_it_is_closed_once():
    lab = Counter()
    env = IsaacEnv(lab, name="isaac/X", on_close=lab.close)
    env.close()
    env.close()
    assert lab.closed == 1


class Buffer:
    """A history of two frames, the newest last."""

    def __init__(self, num_envs):
        self.frames = torch.zeros(num_envs, 2)

    def append(self, value):
        self.frames = torch.stack([self.frames[:, 1], value], dim=1)


class Manager:
    """Observations with a history, computed as Isaac Lab does it."""

    def __init__(self, lab):
        self.lab, self.buffer = lab, Buffer(lab.num_envs)
        self._group_obs_term_history_buffer = {"policy": {"count": self.buffer}}

    def compute(self, update_history=False):
        if update_history:
            self.buffer.append(self.lab.episode_length_buf.float())
        return {"policy": self.buffer.frames.clone()}


class Remembering(Counter):
    def __init__(self):
        super().__init__()
        self.observation_manager = Manager(self)

    def _observe(self):
        return self.observation_manager.compute(update_history=not self.extras.get("in_reset"))

    def step(self, action):
        self.episode_length_buf += 1
        truncated = self.episode_length_buf >= self.max_episode_length
        if truncated.any():
            self.extras["final_obs"] = self.observation_manager.compute()
            self.episode_length_buf[truncated] = 0
        return self._observe(), torch.ones(3), torch.zeros(3, dtype=torch.bool), truncated, self.extras


def test_the_last_observation_has_its_newest_frame_and_the_history_goes_on_as_before():
    env = IsaacEnv(Remembering(), name="isaac/X")
    env.episode_length_buf.copy_(torch.tensor([7, 0, 0]))
    obs, _, done, extras = walk(env, 3)
    assert done.tolist() == [True, False, False]
    assert extras["final_obs"]["policy"].tolist() == [[9.0, 10.0], [2.0, 3.0], [2.0, 3.0]]
    assert obs["policy"].tolist() == [[9.0, 0.0], [2.0, 3.0], [2.0, 3.0]]
