"""Spaces of Gymnasium: what the learner sees of an observation, and what the environment gets of an action."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from robot_rl.errors import UserError
from robot_rl.sources.gymnasium.adapter import GymEnv
from robot_rl.sources.gymnasium.spaces import ActionMap

ACTION = spaces.Box(-1.0, 1.0, (1,), np.float32)
BOX = spaces.Box(-9.0, 9.0, (2,), np.float64)
IMAGE = np.arange(2 * 5 * 3, dtype=np.uint8).reshape(2, 5, 3)

SHARED = [
    (BOX, np.array([1.5, -2.0]), [1.5, -2.0]),
    (spaces.Box(0, 9, (), np.int64), np.array(7), [7.0]),
    (spaces.Box(-1, 1, (2, 2), np.float32), np.eye(2, dtype=np.float32), [[1.0, 0.0], [0.0, 1.0]]),
    (spaces.Discrete(3), 1, [0.0, 1.0, 0.0]),
    (spaces.Discrete(3, start=5), 7, [0.0, 0.0, 1.0]),
    (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), [0.0, 1.0, 0.0, 0.0, 1.0]),
    (spaces.MultiDiscrete([2, 2], start=[4, 6]), np.array([4, 7]), [1.0, 0.0, 0.0, 1.0]),
    (spaces.MultiBinary(3), np.array([1, 0, 1], dtype=np.int8), [1.0, 0.0, 1.0]),
    (spaces.Tuple((spaces.Discrete(2), BOX)), (1, np.array([3.0, 4.0])), [0.0, 1.0, 3.0, 4.0]),
    (spaces.Box(0, 255, (3,), np.uint8), np.array([0, 51, 255], np.uint8), [0.0, 51.0, 255.0]),
    # Images: from 0 to 1, channels first.
    (spaces.Box(0, 255, (2, 2), np.uint8), np.array([[0, 51], [102, 255]], np.uint8), [[0.0, 0.2], [0.4, 1.0]]),
    (spaces.Box(0, 255, (2, 5, 3), np.uint8), IMAGE, (IMAGE.transpose(2, 0, 1) / 255.0).tolist()),
    (spaces.Box(0, 255, (3, 2, 5), np.uint8), IMAGE.transpose(2, 0, 1), (IMAGE.transpose(2, 0, 1) / 255).tolist()),
]


@pytest.mark.parametrize(("space", "obs", "expected"), SHARED, ids=[str(row[0])[:40] for row in SHARED])
def test_one_observation_is_seen_by_actor_and_critic(constant, space, obs, expected):
    env = GymEnv(constant(space, ACTION, obs))
    for seen in (env.get_observations(), env.step(torch.zeros(2, 1))[0]):
        for group in ("actor", "critic"):
            assert seen[group].dtype == torch.float32
            torch.testing.assert_close(seen[group], torch.tensor([expected, expected]))
    assert env.groups == {"actor": np.shape(expected), "critic": np.shape(expected)}
    assert env.default_groups == {"actor": ("actor",), "critic": ("critic",)}


@pytest.mark.parametrize(
    ("shape", "seen"),
    [
        ((32, 24, 1), (1, 32, 24)),
        ((32, 24, 2), (2, 32, 24)),
        ((32, 24, 6), (6, 32, 24)),
        ((32, 24, 9), (9, 32, 24)),
        ((32, 24, 12), (12, 32, 24)),
        ((2, 32, 24), (2, 32, 24)),
        ((12, 32, 24), (12, 32, 24)),
        ((3, 2, 5), (3, 2, 5)),
        ((2, 5, 3), (3, 2, 5)),
        ((4, 32, 3), (3, 4, 32)),  # Both are usual: the smaller one.
        ((3, 32, 4), (3, 32, 4)),
        ((3, 32, 3), (3, 3, 32)),  # As Gymnasium's own images.
        ((8, 8, 8), (8, 8, 8)),
        ((2, 32, 24, 3), (6, 32, 24)),  # A stack of frames.
        ((2, 3, 32, 24), (6, 32, 24)),
    ],
)
def test_channels_come_first(constant, shape, seen):
    space = spaces.Box(0, 255, shape, np.uint8)
    obs = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    env = GymEnv(constant(spaces.Dict({"eye": space}), ACTION, {"eye": obs}))
    (channels, rows, columns), image = seen, env.get_observations()["eye"]
    assert env.groups == {"eye": seen}
    assert image.shape == (2, *seen)
    frames = obs if len(shape) == 4 else obs[None]
    is_last = frames.shape[1:] == (rows, columns, channels // len(frames))
    wanted = (np.moveaxis(frames, 3, 1) if is_last else frames).reshape(seen) / 255
    torch.testing.assert_close(image[1], torch.from_numpy(wanted).float())


def test_two_keys_with_one_name_are_refused(constant):
    twice = {"a.b": BOX, "a": spaces.Dict({"b": spaces.Discrete(2)})}
    for space in (spaces.Dict(twice), spaces.Dict({"in": spaces.Dict(twice)})):
        with pytest.raises(UserError, match=r"\['a'\]\['b'\].*\['a.b'\] have one name, .*a\.b; rename one"):
            GymEnv(constant(space, ACTION))


def test_the_keys_of_a_dict_are_groups(constant):
    space = spaces.Dict(
        {
            "eye": spaces.Box(0, 255, (8, 6, 3), np.uint8),
            "arm": spaces.Dict({"pos": BOX, "grip": spaces.Discrete(2)}),
            "pair": spaces.Tuple((spaces.Discrete(2), BOX)),
        }
    )
    obs = {
        "eye": np.zeros((8, 6, 3), np.uint8),
        "arm": {"pos": np.array([1.0, 2.0]), "grip": 1},
        "pair": (0, np.array([5.0, 6.0])),
    }
    env = GymEnv(constant(space, ACTION, obs))
    seen = env.get_observations()
    assert env.groups == {"arm.grip": (2,), "arm.pos": (2,), "eye": (3, 8, 6), "pair": (4,)}
    assert {name: tuple(seen[name].shape) for name in env.groups} == {n: (2, *s) for n, s in env.groups.items()}
    assert seen["arm.pos"].tolist() == [[1.0, 2.0]] * 2
    assert seen["arm.grip"].tolist() == [[0.0, 1.0]] * 2
    assert seen["pair"].tolist() == [[1.0, 0.0, 5.0, 6.0]] * 2
    assert env.default_groups == {"actor": tuple(env.groups), "critic": tuple(env.groups)}


def test_groups_called_actor_and_critic_are_theirs(constant):
    env = GymEnv(constant(spaces.Dict({"actor": BOX, "critic": BOX, "more": BOX}), ACTION))
    assert env.default_groups == {"actor": ("actor",), "critic": ("critic",)}
    env = GymEnv(constant(spaces.Dict({"actor": BOX, "hidden": BOX}), ACTION))
    assert env.default_groups == {"actor": ("actor",), "critic": ("actor", "hidden")}


def test_last_observations_of_a_dict_are_in_their_rows():
    class Short(gymnasium.Env):
        observation_space = spaces.Dict({"at": BOX, "kind": spaces.Discrete(3)})
        action_space = ACTION

        def reset(self, *, seed=None, options=None):
            return {"at": np.zeros(2), "kind": 0}, {}

        def step(self, action):
            return {"at": np.ones(2), "kind": 2}, 0.0, False, True, {}

    env = GymEnv(gymnasium.vector.SyncVectorEnv([Short, Short], autoreset_mode="SameStep"))
    obs, _, _, extras = env.step(torch.zeros(2, 1))
    assert obs["kind"].tolist() == [[1.0, 0.0, 0.0]] * 2
    assert extras["final_obs"]["kind"].tolist() == [[0.0, 0.0, 1.0]] * 2
    assert extras["final_obs"]["at"].tolist() == [[1.0, 1.0]] * 2


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Sequence(BOX), spaces.Dict({"a": spaces.Text(3)})])
def test_an_observation_that_is_no_row_of_numbers_is_refused(space):
    class Odd(gymnasium.vector.VectorEnv):
        metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}  # noqa: RUF012
        num_envs, single_observation_space, single_action_space = 1, space, ACTION

    with pytest.raises(UserError, match=r"^observation_space=(Text|Sequence)\(.*: cannot be learned from; it must be"):
        GymEnv(Odd())


BOUNDED = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([4.0, 1.0], np.float32))
HALF = spaces.Box(np.array([-np.inf, 0.0], np.float32), np.array([np.inf, np.inf], np.float32))
ACTIONS = [
    (BOUNDED, "clip", [0.5, -3.0], [0.5, 0.0]),
    (BOUNDED, "clip", [9.0, 9.0], [4.0, 1.0]),
    (BOUNDED, "rescale", [0.0, 0.5], [1.0, 0.75]),
    (BOUNDED, "rescale", [-7.0, 1.0], [-2.0, 1.0]),
    (HALF, "rescale", [5.0, -2.0], [5.0, 0.0]),
    (spaces.Box(-3, 3, (2,), np.int32), "clip", [1.6, -9.0], [2, -3]),
    (spaces.Box(-1, 1, (1, 2), np.float64), "clip", [0.25, 3.0], [[0.25, 1.0]]),
    (spaces.Discrete(3), "clip", [2.0], 2),
    (spaces.Discrete(3, start=-1), "clip", [2.0], 1),
    (spaces.MultiDiscrete([2, 3]), "clip", [1.0, 2.0], [1, 2]),
    (spaces.MultiDiscrete([2, 3], start=[5, 5]), "clip", [1.0, 2.0], [6, 7]),
    (spaces.MultiBinary(2), "clip", [1.0, 0.0], [1, 0]),
]


@pytest.mark.parametrize(("space", "mapping", "action", "expected"), ACTIONS)
def test_an_action_gets_into_its_space(constant, space, mapping, action, expected):
    vector = constant(BOX, space, np.zeros(2))
    env = GymEnv(vector, actions=mapping)
    given = env._actions.to_env(torch.tensor([action, action]))
    assert vector.action_space.contains(given)  # The worlds themselves check theirs, too.
    np.testing.assert_array_equal(given, np.array([expected, expected], dtype=given.dtype))
    env.step(torch.tensor([action, action]))


def test_how_many_choices_there_are():
    assert ActionMap(spaces.Discrete(4)).choices == (4,)
    assert ActionMap(spaces.MultiDiscrete([[2, 3], [4, 5]])).choices == (2, 3, 4, 5)
    assert ActionMap(spaces.MultiBinary([2, 2])).choices == (2, 2, 2, 2)
    assert ActionMap(BOUNDED).choices is None
    assert [ActionMap(space).num_actions for space in (spaces.Discrete(4), BOUNDED)] == [1, 2]


@pytest.mark.parametrize("bad", [[0.5], [3.0], [-1.0]])
def test_an_index_that_is_none_is_found(bad):
    with pytest.raises(ValueError, match=r"must be indices, whole numbers below \(3,\)"):
        ActionMap(spaces.Discrete(3)).to_env(torch.tensor([bad]))


def test_actions_of_another_kind_are_refused():
    with pytest.raises(
        UserError, match=r"^action_space=Dict\('a'.*: no policy can act in it; it must be Box, Discrete"
    ):
        ActionMap(spaces.Dict({"a": ACTION}))
    with pytest.raises(UserError, match="actions=stretch: must be one of clip, rescale"):
        ActionMap(ACTION, "stretch")
    with pytest.raises(ValueError, match=r"shape \(2, 3\), must be \(num_envs, 1\)"):
        ActionMap(ACTION).to_env(torch.zeros(2, 3))
