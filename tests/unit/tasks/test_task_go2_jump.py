"""The jumping Go2's own terms, by hand: a box 0.2 m high whose middle is 1 m ahead, 0.9 m long and wide."""

import math

import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_envs.task import Observation, ObservationGroup, Reward
from robot_rl_tasks import go2_jump
from robot_rl_tasks.go2_jump import jump
from robot_rl_tasks.registry import get_task

AHEAD, TOP, STAND = 1.0, 0.2, 0.27
STANDING = {"object": "box", "up": 0.2, "half": 0.45, "height": 0.2, "tilt_rad": math.radians(25.0)}
AIR, GROUND = (0, 0, 0, 0), (1, 1, 1, 1)


@pytest.fixture(scope="module")
def env():
    """One world with the task's own terms, and its box where the tests have it."""
    task = get_task("go2_jump")
    top = {"object": "box", "up": 0.2}
    task.rewards = {
        "near": Reward(jump.near_place, weight=1.0, height=STAND, std=0.5, **top),
        "leap": Reward(jump.leap, weight=1.0, object="box"),
        "feet": Reward(jump.feet_on, weight=1.0, half=0.45, **top),
        "settled": Reward(jump.settled, weight=1.0, std=0.5, **STANDING),
    }
    task.observations = {"actor": ObservationGroup(terms={"box": Observation(jump.box_top, **top)})}
    task.events, task.terminations = {}, {}
    env = make_env(task, num_envs=1, engine="mujoco", num_threads=1)
    yield env
    env.close()


@pytest.fixture
def see(env):
    """see(...): terms, metrics and the observation after steps that end in the given state."""

    def run(*, pos=(0.0, 0.0, STAND), quat=(1.0, 0.0, 0.0, 0.0), vel=(0.0, 0.0, 0.0), feet=GROUND, joint=0.0, steps=1):
        state = env.state
        place = torch.tensor(env.scene.default_qpos, dtype=torch.float32)
        place[:3], place[3:7], place[7] = torch.tensor(pos), torch.tensor(quat), place[7] + joint

        def step(substeps):
            state.qpos.copy_(place[None])
            state.qvel.zero_()
            state.qvel[:, :3] = torch.tensor(vel)
            state.sensordata.zero_()
            state.sensordata[0, :16] = torch.tensor([[1.0, 0.0, 0.0, 50.0 * touch] for touch in feet]).reshape(-1)

        env.engine.step = step
        env.reset()
        state.object_pos_w[0, 0] = torch.tensor([AHEAD, 0.0, TOP - 0.2])
        for _ in range(steps):
            before = state.reward_sums.clone()
            obs, *_ = env.step(torch.zeros(1, env.num_actions))
        earned = (state.reward_sums - before)[0] / env.step_dt
        found = dict(zip(env.cfg.rewards, earned.tolist(), strict=True))
        return found | dict(zip(env.cfg.metrics, state.metric_values[0].tolist(), strict=True)), obs["actor"][0]

    return run


def test_the_box_is_seen_from_the_base(see):
    assert see(pos=(0.2, 0.1, 0.3))[1].tolist() == pytest.approx([0.8, -0.1, -0.1], abs=1e-5)
    turned = (math.cos(math.pi / 4), 0.0, 0.0, math.sin(math.pi / 4))
    assert see(pos=(0.0, 0.0, 0.2), quat=turned)[1].tolist() == pytest.approx([0.0, -1.0, 0.0], abs=1e-5)


@pytest.mark.parametrize(
    ("pos", "distance"), [((AHEAD, 0.0, TOP + STAND), 0.0), ((0.6, 0.3, TOP + STAND), 0.5), ((1.0, 0.0, STAND), 0.2)]
)
def test_the_place_to_stand_is_over_the_middle_of_the_top(see, pos, distance):
    assert see(pos=pos)[0]["near"] == pytest.approx(1 - math.tanh(distance / 0.5), abs=1e-5)


@pytest.mark.parametrize(
    ("vel", "feet", "roll", "value"),
    [
        ((1.5, 0.0, 3.0), AIR, 0.0, 1.5),  # only what goes towards the box counts
        ((-0.5, 1.0, 0.0), AIR, 0.0, -0.5),
        ((1.5, 0.0, 3.0), (0, 0, 0, 1), 0.0, 0.0),
        ((1.0, 0.0, 0.0), AIR, math.pi / 3, 0.25),  # cos^2 of 60 degrees
        ((1.0, 0.0, 0.0), AIR, math.pi, 0.0),
    ],
)
def test_a_leap_is_the_speed_towards_the_box_in_the_air(see, vel, feet, roll, value):
    quat = (math.cos(roll / 2), math.sin(roll / 2), 0.0, 0.0)
    assert see(vel=vel, feet=feet, quat=quat)[0]["leap"] == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize(
    ("x", "z", "feet", "stands"),
    [
        (AHEAD, TOP + 0.289, 1.0, 1.0),
        (AHEAD - 0.4, TOP + 0.289, 0.5, 0.0),  # the hind feet are in front of the box
        (AHEAD, TOP + 0.25, 0.0, 0.0),  # 4 cm below the top: beside it, or inside
        (AHEAD, 0.289, 0.0, 0.0),
        (AHEAD, TOP + 0.6, 1.0, 1.0),  # above it in the air
    ],
)
def test_feet_on_the_box_are_over_its_top(see, x, z, feet, stands):
    found, _ = see(pos=(x, 0.0, z))
    assert (found["feet"], found["settled"], found["on_box"]) == pytest.approx((feet, stands, stands), abs=1e-5)


def test_who_leans_does_not_stand(see):
    for roll, stands in ((0.4, 1.0), (0.5, 0.0)):  # 25 degrees are 0.436
        quat = (math.cos(roll / 2), math.sin(roll / 2), 0.0, 0.0)
        assert see(pos=(AHEAD, 0.0, TOP + 0.6), quat=quat)[0]["on_box"] == stands


def test_it_settles_in_the_default_pose(see):
    found, _ = see(pos=(AHEAD, 0.0, TOP + 0.4), joint=0.5)
    assert found["settled"] == pytest.approx(math.exp(-1.0), abs=1e-4)


def test_the_flight_is_the_time_without_a_foot_down(see, env):
    assert see(feet=AIR, steps=4)[0]["flight_time"] == pytest.approx(4 * env.step_dt, abs=1e-6)
    assert see(feet=(0, 0, 1, 0), steps=4)[0]["flight_time"] == 0.0


@pytest.mark.long
def test_the_box_is_as_high_and_as_far_as_the_task_says():
    env = make_env(get_task("go2_jump"), num_envs=200, engine="mujoco", num_threads=1)
    top = env.state.object_pos_w[:, 0] + torch.tensor([-go2_jump.SIDE_M / 2, 0.0, go2_jump.DEPTH_M / 2])
    for values, (low, high) in ((top[:, 2], go2_jump.HEIGHT_M), (top[:, 0], go2_jump.AHEAD_M)):
        assert low - 1e-5 <= values.min() < low + 0.02
        assert high - 0.02 < values.max() <= high + 1e-5
    env.close()
