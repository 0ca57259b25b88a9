"""Color images: the right colors in the right places."""

import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_envs.cameras import Camera, ImageGroup
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import objects, observations, rewards
from robot_rl_envs.objects import Box
from robot_rl_envs.task import Actions, Event, Observation, ObservationGroup, Reward, Sim, Task

pytestmark = pytest.mark.long


def test_colors_are_those_of_mujocos_renderer(rig, gl):
    r = rig(kind="rgb", body="world", pos=(0, -4, 3), forward=(0.6, 1, -0.6), up=(0, 0, 1), width=64, height=48)
    image = r.step()
    assert image.shape == (1, 3, 48, 64)
    assert image.dtype == np.float32
    other = r.gl().transpose(2, 0, 1)
    red = (image[0, 0] > 0.4) & (image[0, 1] < 0.3) & (image[0, 2] < 0.3)
    red_there = (other[0] > 0.4) & (other[1] < 0.3) & (other[2] < 0.3)
    assert red_there.sum() > 50
    assert (red ^ red_there).sum() < 0.15 * red_there.sum()
    seen = ~red_there & (other.sum(0) > 0.3)
    assert np.abs(image[0] - other)[:, seen].mean() < 0.06


def test_noise_stays_in_range(rig):
    plain, noisy = (rig(kind="rgb", pos=(0, -4, 0), noise=noise, num_envs=2).step() for noise in (0.0, 0.1))
    spread = noisy - plain
    assert 0.05 < spread.std() < 0.11
    assert abs(spread.mean()) < 0.02
    assert noisy.min() >= 0.0
    assert noisy.max() <= 1.0


def painted(events):
    """A cube that falls in front of a camera, next to a cart-pole."""
    eye = Camera(name="eye", body="world", pos=(0, -4, 1), forward=(0, 1, 0), up=(0, 0, 1), width=32, height=24)
    return Task(
        name="painted",
        robot=get_robot("cartpole"),
        sim=Sim(timestep=0.01, decimation=2),
        actions=Actions(kind="effort"),
        objects={"cube": Box(size=(0.8, 0.8, 0.8), pos=(0.0, -1.0, 1.0))},
        observations={
            "actor": ObservationGroup(terms={"angle": Observation(observations.joint_pos_rel)}),
            "eye": ImageGroup(camera=eye, kind="rgb"),
        },
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
        events=events,
    )


def test_worlds_draw_colors_that_only_the_camera_sees(closing_env):
    color = {"color": Event(objects.object_color, object="cube", lo=0.0, hi=1.0)}
    plain, drawn = (closing_env(painted(events)) for events in ({}, color))
    for env in (plain, drawn):
        for _ in range(3):
            images = env.step(torch.zeros(4, 1))[0]["eye"]
    assert torch.equal(plain.state.qpos, drawn.state.qpos)
    assert torch.equal(plain.state.qvel, drawn.state.qvel)
    before = plain.get_observations()["eye"]
    assert torch.equal(before[0], before[1])
    cube = (images - before).abs().sum(1).amax(0) > 0.05
    assert 0.02 < cube.float().mean() < 0.9
    seen = torch.stack([image[:, cube].median(1).values for image in images])
    assert (seen[:, None] - seen).abs().amax(-1)[~torch.eye(4, dtype=bool)].min() > 0.05
    # Lit alike in every world: up to a gloss that all have, in proportion to the colors that were drawn.
    tint = drawn.state.object_tint[:, 0, :3]
    assert np.corrcoef(seen.flatten(), tint.flatten())[0, 1] > 0.99


@pytest.fixture
def closing_env():
    """make(task): four worlds on two threads, closed in the end."""
    made = []

    def make(task):
        made.append(make_env(task, num_envs=4, engine="mujoco", num_threads=2, seed=3))
        return made[-1]

    yield make
    for one in made:
        one.close()
