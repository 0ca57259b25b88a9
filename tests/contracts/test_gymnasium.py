"""Our tasks as Gymnasium's environments: its checker passes, and the worlds are the very ones that the learner sees."""

import functools
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers
from robot_rl_envs.adapters.gymnasium_env import TaskVectorEnv
from robot_rl_envs.cameras import Camera, ImageGroup
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import observations
from robot_rl_envs.task import Observation, ObservationGroup
from robot_rl_tasks.gymnasium import env_id
from robot_rl_tasks.registry import get_task, list_tasks

from robot_rl.sources.gymnasium.adapter import GymEnv
from tests.covering import tasks

TASKS = [name for name in list_tasks() if not get_task(name).robots]
CHOSEN = tasks(lambda task: not task.robots, ("ant_v5", "go2_flat"))
MODES = ["NextStep", "SameStep", "Disabled"]
# The warnings of the checker about infinite boxes and about actions beyond one are advice.
ADVICE = ("probably too", "recommend using a symmetric")


@pytest.fixture
def make():
    """make(task, num_envs, **options): worlds through Gymnasium's registry; closed at the end."""
    made = []

    def call(task, num_envs=4, **options):
        options = {"num_threads": 1, **options}
        made.append(gymnasium.make_vec(env_id(task), num_envs, vectorization_mode="vector_entry_point", **options))
        return made[-1]

    yield call
    for env in made:
        env.close()


def short(**changes):
    """Cartpole with episodes of 5 steps that are cut short, unless the cart leaves its rail before."""
    task = get_task("cartpole")
    task.episode_length_s = 5 * task.sim.step_dt
    for name, value in changes.items():
        setattr(task, name, value)
    return task


def remembering():
    """The same with everything that an observation can remember: a history, sensors that drift and lag, a camera."""
    terms = {
        "pos": Observation(observations.joint_pos_rel, noise=0.1, history=3, bias=0.1, drift=0.5, dropout=0.4),
        "vel": Observation(observations.joint_vel, history=2, delay_s=(0.02, 0.06)),
    }
    side = {"body": "world", "pos": (0.0, -3.0, 1.0), "forward": (0.0, 1.0, 0.0), "far": 6.0, "width": 24, "height": 16}
    groups = {
        "actor": ObservationGroup(terms=terms),
        "critic": ObservationGroup(terms=dict(terms)),
        "side": ImageGroup(
            camera=Camera(name="side", **side, every=2, delay_steps=(1, 3), dropout=(0.1, 0.3)), geometry="visual"
        ),
    }
    return short(observations=groups, mirror=False)


BUILT = {name: functools.partial(get_task, name) for name in TASKS} | {"remembering": remembering}


def actions_of(env, rng, steps):
    shape = (steps, *env.action_space.shape)
    return rng.uniform(-1.0, 1.0, size=shape).astype(np.float32)


@pytest.mark.parametrize("task", CHOSEN)
def test_the_checker_passes(task):
    env = gymnasium.make(env_id(task), num_threads=1)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        check_env(env.unwrapped, skip_render_check=True)
    env.close()
    messages = [str(one.message) for one in heard if "gymnasium" in one.filename]
    assert [line for line in messages if not any(words in line for words in ADVICE)] == []


@pytest.mark.parametrize("task", CHOSEN)
def test_a_vector_of_worlds_keeps_its_word(make, task):
    env = make(task, 3, groups="all")
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert env.spec.id == env_id(task)
    assert set(env.single_observation_space) == set(get_task(task).observations)
    obs, info = env.reset(seed=7)
    assert info == {}
    assert env.observation_space.contains(obs)
    env.action_space.seed(1)
    actions = [env.action_space.sample() for _ in range(3)]
    seen = []
    for action in actions:
        obs, reward, terminated, truncated, info = env.step(action)
        assert env.observation_space.contains(obs)
        assert [array.dtype for array in (reward, terminated, truncated)] == [np.float64, bool, bool]
        assert [array.shape for array in (reward, terminated, truncated)] == [(3,)] * 3
        assert ("final_obs" in info) == (terminated | truncated).any()
        seen.append((obs, reward))
    env.reset(seed=7)
    for action, (obs, reward) in zip(actions, seen, strict=True):
        again = env.step(action)
        assert all(np.array_equal(again[0][name], obs[name]) for name in obs)
        assert np.array_equal(again[1], reward)


@pytest.mark.parametrize("task", ["go2_flat", "hopper_v5"])
def test_the_worlds_are_those_of_the_learner(make, task):
    """The same seed gives the same bits here and there, with the observations that episodes ended in."""
    env = make(task, 4, groups="all")
    direct = make_env(get_task(task), num_envs=4, seed=11, engine="mujoco", num_threads=1)
    obs, _ = env.reset(seed=11)
    expected, ended = direct.get_observations(), 0
    for action in actions_of(env, np.random.default_rng(2), 60) * 3.0:
        for name, array in obs.items():
            assert np.array_equal(array, expected[name].numpy())
        obs, reward, terminated, truncated, info = env.step(action)
        expected, rewards, dones, extras = direct.step(torch.from_numpy(action))
        assert np.array_equal(reward, rewards.double().numpy())
        assert np.array_equal(terminated | truncated, dones.numpy())
        assert np.array_equal(truncated, extras["time_outs"].numpy())
        for k in np.flatnonzero(dones.numpy()):
            ended += 1
            for name in obs:
                assert np.array_equal(info["final_obs"][k][name], extras["final_obs"][name][k].numpy())
    assert ended > 0
    direct.close()


@pytest.mark.parametrize("mode", MODES)
def test_there_and_back_again(mode):
    """Through this form and the adapter the learner is given what the environment gives it directly."""
    env = GymEnv(TaskVectorEnv(short(), 3, groups="all", autoreset_mode=mode, num_threads=1), seed=5)
    direct = make_env(short(), num_envs=3, seed=5, engine="mujoco", num_threads=1)
    assert env.step_dt == direct.step_dt
    assert torch.equal(env.get_observations()["critic"], direct.get_observations()["critic"])
    first = env.get_observations()["actor"].clone()
    for step in range(5):
        action = torch.full((3, 1), 0.3 * step - 0.5)
        obs, reward, done, extras = env.step(action)
        expected, rewards, dones, more = direct.step(action)
        assert torch.equal(reward, rewards)
        assert torch.equal(done, dones)
        assert torch.equal(extras["time_outs"], more["time_outs"])
        if step < 4:
            assert torch.equal(obs["actor"], expected["actor"])
    assert done.all()
    assert torch.equal(extras["final_obs"]["actor"], more["final_obs"]["actor"])
    if mode == "NextStep":
        assert torch.equal(obs["actor"], extras["final_obs"]["actor"])
        obs, reward, _, extras = env.step(action)
        assert not extras["valid"].any()
        assert not reward.any()
    # The next episode begins where no episode began before, and its first step counts.
    assert not torch.equal(obs["actor"], first)
    assert env.step(action)[2].sum() == 0
    assert env.pop_metrics()["episode/steps"] == 5


def test_a_team_is_refused():
    with pytest.raises(
        ValueError, match="task='go2_pair_carry': has 2 robots, front, rear, and this interface knows one"
    ):
        TaskVectorEnv(get_task("go2_pair_carry"), num_envs=1)


def test_statistics_of_a_wrapper_are_ours():
    for mode in MODES[:2]:
        env = TaskVectorEnv(short(), 3, autoreset_mode=mode, num_threads=1)
        recorded = wrappers.RecordEpisodeStatistics(env)
        adapter = GymEnv(env, seed=2)
        adapter.env = recorded
        adapter.reset(seed=2)
        for step in range(17):
            adapter.step(torch.full((3, 1), 0.1 * step))
        ours = adapter.pop_metrics()
        assert ours["episodes"] == recorded.episode_count >= 6
        assert ours["episode/return"] == pytest.approx(np.mean(recorded.return_queue))
        assert ours["episode/steps"] == np.mean(recorded.length_queue) == 5
        env.close()


def test_observations_are_normalized_where_worlds_reset_in_the_next_step(make):
    env = wrappers.NormalizeObservation(make("cartpole", autoreset_mode="NextStep"))
    env.reset(seed=1)
    for action in actions_of(env, np.random.default_rng(0), 50):
        obs, *_ = env.step(action)
    assert np.abs(obs).max() < 20
    assert np.isfinite(obs).all()
    with pytest.raises(ValueError, match="NEXT_STEP"):
        wrappers.NormalizeObservation(make("cartpole"))


def test_infos_of_single_worlds():
    listed = wrappers.DictInfoToList(TaskVectorEnv(short(), 2, num_threads=1))
    listed.reset(seed=1)
    infos = [listed.step(np.zeros((2, 1), np.float32))[4] for _ in range(5)]
    assert infos[0] == [{}, {}]
    assert [set(info) for info in infos[4]] == [{"final_obs", "final_info"}] * 2
    assert infos[4][1]["final_info"] == {"quarantined": False}
    listed.close()


SHORT = ("ant_v5", "go2_flat", "remembering")
ENGINES = [pytest.param(task, "mujoco", marks=() if task in SHORT else pytest.mark.long) for task in BUILT]
ENGINES += [pytest.param(task, "mujoco_warp", marks=pytest.mark.long) for task in ("remembering", "go2_flat")]


@pytest.mark.parametrize(("task", "engine"), ENGINES)
def test_worlds_that_are_not_reset_go_on_as_they_were(task, engine):
    """A reset of one world leaves the others' next steps the same bits as without it."""
    made = [make_env(BUILT[task](), num_envs=3, seed=4, engine=engine, num_threads=1) for _ in range(2)]
    mask = torch.tensor([False, True, False])
    for step in range(6):
        action = torch.full((3, made[0].num_actions), 0.1 * step)
        results = [env.step(action) for env in made]
        if step == 3:
            before = made[0].get_observations().clone()
            fresh = made[0].restart(mask)
            for name in fresh.keys():  # noqa: SIM118, a TensorDict
                assert torch.equal(fresh[name][~mask], before[name][~mask])
            assert not torch.equal(fresh["actor"][mask], before["actor"][mask])
            assert made[0].state.step_count[mask].tolist() == [0]
        (obs, *plain, _), (other_obs, *other, _) = results
        names = list(obs.keys())
        for one, two in (*((obs[name], other_obs[name]) for name in names), *zip(plain, other, strict=True)):
            assert torch.equal(one[~mask], two[~mask])
    for env in made:
        env.close()


def test_a_reset_of_all_by_a_mask_is_a_reset():
    one, other = (make_env(short(), num_envs=2, seed=4, engine="mujoco", num_threads=1) for _ in range(2))
    for env in (one, other):
        env.step(torch.ones(2, 1))
    assert torch.equal(one.restart(torch.ones(2, dtype=torch.bool))["actor"], other.reset()["actor"])
    assert torch.equal(one.step(torch.ones(2, 1))[0]["actor"], other.step(torch.ones(2, 1))[0]["actor"])


def test_a_mask_resets_some_worlds(make):
    env = make("cartpole", 3)
    first, _ = env.reset(seed=3)
    env.step(np.ones((3, 1), np.float32))
    before, *_ = env.step(np.ones((3, 1), np.float32))
    mask = np.array([True, False, False])
    after, info = env.reset(options={"reset_mask": mask})
    assert info == {}
    assert np.array_equal(after[1:], before[1:])
    assert not np.array_equal(after[0], before[0])
    assert not np.array_equal(after[0], first[0])
    for bad in (mask[:2], mask.tolist(), mask.astype(int), ~mask & mask):
        with pytest.raises(ValueError, match="reset_mask"):
            env.reset(options={"reset_mask": bad})
    with pytest.raises(ValueError, match="seed=1: seeds all worlds"):
        env.reset(seed=1, options={"reset_mask": mask})


def test_seeds(make):
    env, twin = make("cartpole", 2), make("cartpole", 2)
    unseeded = [env.reset()[0], twin.reset()[0]]
    assert not np.array_equal(*unseeded)
    firsts = [env.reset(seed=8)[0], env.reset(seed=8)[0], twin.reset(seed=8)[0]]
    assert all(np.array_equal(first, firsts[0]) for first in firsts)
    seconds = [env.reset()[0], twin.reset()[0]]
    assert np.array_equal(*seconds)
    assert not np.array_equal(firsts[0], seconds[0])
    given = make("cartpole", 2, seed=8)
    assert np.array_equal(given.reset()[0], firsts[0])
    assert np.array_equal(given.reset()[0], seconds[0])


def test_a_world_that_waits_for_its_reset_is_not_stepped():
    env = TaskVectorEnv(short(), 2, autoreset_mode="Disabled", num_threads=1)
    action = np.zeros((2, 1), np.float32)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(action)
    env.reset(seed=1)
    for _ in range(5):
        last, _, _, truncated, _ = env.step(action)
    assert truncated.all()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(action)
    half, _ = env.reset(options={"reset_mask": np.array([True, False])})
    assert np.array_equal(half[1], last[1])
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(action)
    env.reset(options={"reset_mask": np.array([False, True])})
    env.step(action)
    env.close()


def test_observation_groups(make):
    assert make("cartpole").single_observation_space.shape == (5,)
    assert list(make("cartpole", groups=["critic"]).single_observation_space) == ["critic"]
    with pytest.raises(ValueError, match="groups='eyes': must be one of actor, critic"):
        make("cartpole", groups="eyes")
    for groups in ([], ["actor", "actor"]):
        with pytest.raises(ValueError, match="must name at least one group, none of them twice"):
            make("cartpole", groups=groups)
    with pytest.raises(ValueError, match="render_mode='human': must be 'rgb_array'"):
        make("cartpole", render_mode="human")


def test_images(make, gl):
    env = make("cartpole", 2, render_mode="rgb_array")
    env.reset(seed=1)
    frames = env.render()
    assert [frame.shape for frame in frames] == [(360, 480, 3)] * 2
    assert not np.array_equal(*frames)
    assert make("cartpole").render() is None
    one = gymnasium.make(env_id("cartpole"), render_mode="rgb_array", num_threads=1)
    one.reset(seed=1)
    assert np.array_equal(one.render(), frames[0])
    one.close()
