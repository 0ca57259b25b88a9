"""Image groups of an environment: next to the others, after the resets, from the same state on both engines."""

import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_envs.cameras import Camera, ImageGroup
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events, observations, rewards, terminations
from robot_rl_envs.task import Actions, Event, Observation, ObservationGroup, Reward, Sim, Task, Termination

SIDE_ON = {"body": "world", "pos": (0.0, -3.0, 1.0), "forward": (0.0, 1.0, 0.0), "far": 6.0, "width": 48, "height": 32}


def cart(**camera):
    """A cart-pole that is pushed off its rail now and then, seen from the side."""
    terms = {"angle": Observation(observations.joint_pos_rel), "speed": Observation(observations.joint_vel)}
    return Task(
        name="seen_cart",
        robot=get_robot("cartpole"),
        sim=Sim(timestep=0.02, decimation=2),
        episode_length_s=0.4,
        actions=Actions(kind="effort"),
        observations={
            "actor": ObservationGroup(terms=terms),
            "critic": ObservationGroup(terms=dict(terms)),
            "side": ImageGroup(camera=Camera(**({"name": "side"} | SIDE_ON | camera)), geometry="visual"),
        },
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
        terminations={"off_rail": Termination(terminations.joint_beyond, joint=0, limit=1.0)},
        events={"cart": Event(events.reset_joints, position=0.8, velocity=1.0)},
    )


def actions(env, t):
    return torch.sin(torch.arange(env.num_envs)[:, None] * 1.7 + 0.3 * t) * 0.5


@pytest.fixture
def env():
    """make(task, **options): an environment that is closed in the end."""
    made = []

    def make(task=None, **options):
        made.append(make_env(task or cart(), **({"num_envs": 5, "engine": "mujoco", "num_threads": 2} | options)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_the_group_is_in_the_observations(env):
    one = env()
    obs = one.reset()
    assert obs["side"].shape == (5, 1, 32, 48)
    assert obs["side"].dtype == torch.float32
    assert obs["actor"].ndim == 2
    assert obs.batch_size == torch.Size([5])
    assert 0.05 < (obs["side"] < 0.9).float().mean() < 0.9


def test_the_image_is_of_the_state_after_the_reset(env):
    one = env()
    one.reset()
    done = torch.zeros(5, dtype=torch.bool)
    for t in range(25):
        obs, _, dones, _ = one.step(actions(one, t))
        done |= dones
        # What a camera without a past sees of the very state that the terms have seen.
        other = one.only._images.sensors["side"]
        seen = obs["side"].clone()
        other.update()
        torch.testing.assert_close(torch.from_numpy(other.out.numpy()), seen, rtol=0, atol=0)
    assert done.all()


def test_an_episodes_last_image_is_the_one_returned_before_it_ended(env):
    one = env()
    last = one.reset()["side"].clone()
    ended = 0
    for t in range(15):
        obs, _, dones, extras = one.step(actions(one, t))
        torch.testing.assert_close(extras["final_obs"]["side"], last, rtol=0, atol=0)
        assert extras["final_obs"]["critic"].shape == obs["critic"].shape
        ended += int(dones.sum())
        last = obs["side"].clone()
    assert ended > 0


def test_the_last_steps_images_stay_readable(env):
    one = env()
    one.reset()
    before, *_ = one.step(actions(one, 0))
    kept = before["side"].clone()
    after, *_ = one.step(actions(one, 1))
    assert torch.equal(before["side"], kept)
    assert not torch.equal(after["side"], kept)


def run(one, steps, start=0):
    return [one.step(actions(one, t))[0]["side"].clone() for t in range(start, start + steps)]


FAULTS = {"noise": 0.02, "missing": 0.01, "every": 2, "delay_steps": (0, 2), "dropout": (0.0, 0.3), "pos_jitter": 0.02}


def test_the_same_seed_gives_the_same_bits_at_any_number_of_threads(env):
    one, other, third = (env(cart(**FAULTS), seed=s, num_threads=k) for s, k in ((4, 1), (4, 2), (5, 2)))
    mine, theirs, not_theirs = (run(k, 14) for k in (one, other, third))
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert not torch.equal(mine[-1], not_theirs[-1])


def test_a_resumed_environment_goes_on_with_the_same_bits(env):
    one, other = env(cart(**FAULTS), seed=4), env(cart(**FAULTS), seed=4)
    run(one, 7)
    other.load_state_dict(one.state_dict())
    assert torch.equal(other.get_observations()["side"], one.get_observations()["side"])
    assert all(torch.equal(a, b) for a, b in zip(run(one, 12, 7), run(other, 12, 7), strict=True))


def test_the_other_groups_do_not_notice(env):
    bare = cart()
    bare.observations = {name: group for name, group in bare.observations.items() if name != "side"}
    one, other = env(), env(bare)
    for t in range(12):
        seen, unseen = (k.step(actions(k, t))[0]["critic"] for k in (one, other))
        assert torch.equal(seen, unseen)


def test_the_policys_description_contains_the_camera(env):
    (row,) = env().describe_policy()["images"]
    assert (row["name"], row["camera"], row["kind"], row["shape"]) == ("side", "side", "depth", [1, 32, 48])
    focal = 16 / np.tan(np.radians(29))
    assert row["intrinsics"] == pytest.approx({"fx": focal, "fy": focal, "cx": 24, "cy": 16})
    assert (row["body"], row["pos"], row["near"], row["far"]) == ("world", [0.0, -3.0, 1.0], 0.1, 6.0)


def test_a_camera_that_does_not_fit_is_named_with_its_group():
    with pytest.raises(ValueError, match=r"observations.side: camera 'side': body='crt': robot 'cartpole' .*'cart'"):
        make_env(cart(body="crt"), num_envs=1)


def test_an_actor_needs_terms():
    task = cart()
    with pytest.raises(ValueError, match="needs a group 'actor' of terms"):
        Task(name="t", robot=task.robot, rewards=task.rewards, observations={"actor": task.observations["side"]})


@pytest.mark.long
def test_both_engines_show_the_same_state_alike(env):
    one, other = env(engine="mujoco", num_envs=3), env(engine="mujoco_warp", num_envs=3)
    for k in (one, other):
        k.reset()
    for t in range(3):
        one.step(actions(one, t))
    other.state.qpos.copy_(one.state.qpos)
    for k in (one, other):
        k.only._images.update()
    images = [k.only._images.sensors["side"].out.numpy() for k in (one, other)]
    assert not np.array_equal(images[0][0], images[0][1])
    np.testing.assert_array_equal(*images)


def test_physics_does_not_notice_the_camera_on_mujoco_warp(env):
    pytest.importorskip("mujoco_warp")
    one = env(engine="mujoco_warp", num_envs=2)
    data = one.engine.warp_data
    before = {name: getattr(data, name).numpy().copy() for name in ("qpos", "qvel", "xpos", "geom_xpos", "cam_xpos")}
    one.only._images.update()
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(data, name).numpy(), value)
