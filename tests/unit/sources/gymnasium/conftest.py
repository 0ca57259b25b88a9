"""A world in which every observation is known: where it is, and in which episode.

Its observation is 100 * episode + step. Episodes last 3, 4, 5, 3, 4, 5, ... steps; the even ones are cut short, the odd
ones terminate. The reward of a step is its number in the episode.
"""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from robot_rl.sources.gymnasium.adapter import GymEnv

BOX = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)


def length_of(episode):
    return 3 + episode % 3


class Walk(gymnasium.Env):
    """The known world; `first` is the number of its first episode."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(self, first=0, bonus=0.0, render_mode=None):
        self.observation_space, self.action_space = BOX, gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.episode, self.bonus, self.render_mode = first - 1, bonus, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        return self.look(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        over, cut = self.steps == length_of(self.episode), self.episode % 2 == 0
        return self.look(), self.steps + self.bonus, over and not cut, over and cut, {}

    def look(self):
        return np.array([100.0 * self.episode + self.steps], dtype=np.float32)

    def render(self):
        return np.full((47, 65, 3), 5 * self.steps, dtype=np.uint8)


class WalkVector(VectorEnv):
    """The same worlds as a vector environment of its own that resets in the next step and hands out its own buffer."""

    def __init__(self, num_envs=1, metadata=None):
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP} if metadata is None else metadata
        self.single_observation_space, self.single_action_space = BOX, Walk().action_space
        self.observation_space = batch_space(BOX, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.buffer = np.zeros((num_envs, 1), dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.worlds = [Walk(first=k) for k in range(self.num_envs)]
        self.over = np.zeros(self.num_envs, dtype=bool)
        self.buffer[:] = [world.reset()[0] for world in self.worlds]
        return self.buffer, {}

    def step(self, actions):
        rows = []
        for k, world in enumerate(self.worlds):
            rows.append((world.reset()[0], 0.0, False, False) if self.over[k] else world.step(actions[k])[:4])
        self.buffer[:] = [row[0] for row in rows]
        reward, terminated, truncated = (np.array([row[k] for row in rows]) for k in (1, 2, 3))
        self.over = terminated | truncated
        return self.buffer, reward, terminated, truncated, {}


def make_walks(mode, num_envs=3, kind="sync", **options):
    """Worlds of the known kind behind the adapter, the first episode of world k being number k."""
    if kind == "own":
        return GymEnv(WalkVector(num_envs), **options)
    vector = {"sync": gymnasium.vector.SyncVectorEnv, "async": gymnasium.vector.AsyncVectorEnv}[kind]
    fns = [lambda k=k: Walk(first=k) for k in range(num_envs)]
    return GymEnv(vector(fns, autoreset_mode=mode), **options)


@pytest.fixture
def walks():
    """make(mode, num_envs=3, kind="sync", **options): the known worlds; closed at the end."""
    made = []

    def make(*args, **kwargs):
        made.append(make_walks(*args, **kwargs))
        return made[-1]

    yield make
    for env in made:
        env.close()


@pytest.fixture(scope="session")
def walk_class():
    """The class of the known world."""
    return Walk


@pytest.fixture(scope="session")
def walk_vector_class():
    """The class of known worlds that are a vector environment of their own."""
    return WalkVector


def make_constant(obs_space, action_space, obs=None):
    """A world that shows one observation for ever and keeps the last action."""

    class Constant(gymnasium.Env):
        metadata = {"render_modes": []}  # noqa: RUF012

        def __init__(self):
            self.observation_space, self.action_space = obs_space, action_space

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return obs_space.sample() if obs is None else obs, {}

        def step(self, action):
            assert action_space.contains(action), action
            return obs_space.sample() if obs is None else obs, 0.0, False, False, {"action": np.asarray(action)}

    vector = gymnasium.vector.SyncVectorEnv([Constant, Constant], autoreset_mode="SameStep")
    vector.reset(seed=0)
    return vector


@pytest.fixture(scope="session")
def constant():
    """make(observation space, action space, observation): two worlds as a vector environment."""
    return make_constant


@pytest.fixture
def zeros():
    """An action of nothing for an environment."""
    return lambda env: torch.zeros(env.num_envs, env.num_actions)


WALK_MODULE = '''
"""Registers a small environment, as somebody's module would."""

import signal

import gymnasium
import numpy as np


class Reach(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self, target=0.5, kind="near", render_mode=None):
        self.observation_space = gymnasium.spaces.Box(-9.0, 9.0, (2,), np.float64)
        self.action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)
        self.target, self.kind, self.render_mode = target, kind, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1.0, 1.0)
        return self.look(), {}

    def look(self):
        return np.array([self.x, self.target])

    def step(self, action):
        self.x = float(np.clip(self.x + 0.1 * action[0], -5.0, 5.0))
        return self.look(), -abs(self.x - self.target), abs(self.x) > 3.0, False, {}

    def render(self):
        return np.full((40, 64, 3), 99, dtype=np.uint8)

    def signals(self):
        numbers = (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM)
        return tuple(getattr(handler, "__name__", handler) for handler in map(signal.getsignal, numbers))


class Pick(Reach):
    def __init__(self, render_mode=None):
        super().__init__(render_mode=render_mode)
        self.action_space = gymnasium.spaces.MultiDiscrete([3, 2])

    def step(self, action):
        return super().step([action[0] - 1.0 + 0.5 * action[1]])


class Talk(Reach):
    def __init__(self):
        super().__init__()
        self.observation_space = gymnasium.spaces.Text(5)


gymnasium.register("Reach-v0", entry_point=Reach, max_episode_steps=20)
gymnasium.register("Endless-v0", entry_point=Reach)
gymnasium.register("Pick-v0", entry_point=Pick, max_episode_steps=20)
gymnasium.register("Talk-v0", entry_point=Talk, max_episode_steps=20)
'''


@pytest.fixture(scope="session")
def reach_folder(tmp_path_factory):
    """A folder with a module reach_worlds.py that registers Reach-v0, Endless-v0, Pick-v0 and Talk-v0."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "reach_worlds.py").write_text(WALK_MODULE)
    return folder
