"""Episodes: their ends, rewards and figures, worked out by hand on a cart-pole that is moved by the test."""

import math

import pytest
import torch
from robot_rl_envs.mdp import metrics, rewards, terminations
from robot_rl_envs.task import Metric, Reward, Termination

DT = 0.1  # [s] control period of the cart task; an episode lasts ten of them
HINGE, SLIDER = 1, 0


@pytest.fixture
def doll(puppet, cart_task):
    task = cart_task(
        rewards={
            "alive": Reward(rewards.alive, weight=2.0),
            "centred": Reward(rewards.centred, weight=-1.0, joint=SLIDER),
        },
        terminations={
            "off_rail": Termination(terminations.joint_beyond, joint=SLIDER, limit=1.0),
            "turned": Termination(terminations.joint_beyond, time_out=True, joint=HINGE, limit=10.0),
        },
        metrics={"upright": Metric(metrics.joint_cos, joint=HINGE)},
    )
    return puppet(task, num_envs=3)


def run(doll, steps, qpos=((0.5, 0.0),) * 3):
    for _ in range(steps):
        out = doll.step(qpos=qpos, qvel=[0.0, 0.0])
    return out


def test_the_reward_is_weight_times_term_times_step(doll):
    _, reward, _, _ = run(doll, 1, [[0.0, 0.0], [0.5, 0.0], [1.0, 0.0]])
    torch.testing.assert_close(reward, torch.tensor([2.0, 2.0 - 0.25, 2.0 - 1.0]) * DT)


def test_an_episode_ends_after_its_time(doll):
    assert doll.env.max_episode_length == 10
    for step in range(1, 21):
        _, _, dones, extras = run(doll, 1)
        assert dones.tolist() == [step % 10 == 0] * 3
        assert extras["time_outs"].tolist() == dones.tolist()
        assert doll.env.episode_length_buf.tolist() == [step % 10] * 3


def test_a_learner_may_spread_the_first_episodes(doll):
    """rsl_rl starts worlds at random ages, so that they do not all end together."""
    doll.env.episode_length_buf = torch.tensor([9, 4, 0])
    assert run(doll, 1)[2].tolist() == [True, False, False]
    assert run(doll, 5)[2].tolist() == [False, True, False]
    assert doll.env.episode_length_buf.tolist() == [5, 0, 6]


def test_only_running_out_of_time_is_a_time_out(doll):
    """World 0 fails, world 1 meets a condition listed as a time-out, world 2 goes on."""
    _, _, dones, extras = run(doll, 1, [[1.5, 0.0], [0.0, 11.0], [0.0, 0.0]])
    assert dones.tolist() == [True, True, False]
    assert extras["time_outs"].tolist() == [False, True, False]


def test_a_failure_in_the_last_step_is_a_failure(doll):
    run(doll, 9)
    _, _, dones, extras = run(doll, 1, [[1.5, 0.0], [0.5, 0.0], [1.5, 11.0]])
    assert dones.tolist() == [True, True, True]
    assert extras["time_outs"].tolist() == [False, True, False]


def test_the_state_has_each_metric_s_value_before_the_reset_and_what_ended_the_episode(doll):
    """Worlds 0 and 1 meet one termination each, the second and the first one of the task; world 2 meets both."""
    run(doll, 1, [[0.0, 11.0], [1.5, 1.0], [1.5, -12.0]])
    upright = doll.state.metric_values
    assert upright.shape == (3, 1)
    torch.testing.assert_close(upright[:, 0], torch.tensor([11.0, 1.0, -12.0]).cos())
    assert doll.state.termination_bits.tolist() == [2, 1, 3]
    run(doll, 1, [[0.5, 0.25]] * 3)
    torch.testing.assert_close(upright[:, 0], torch.full((3,), 0.25).cos())
    assert doll.state.termination_bits.tolist() == [0, 0, 0]
    assert not {"state.metric_values", "state.termination_bits"} & set(doll.env.state_dict())


def test_metrics_are_described_as_the_task_declares_them(cart_task):
    from robot_rl_envs.describe import describe_metrics

    options = {"over": "end", "after_s": 2.0, "unit": "rad"}
    own = {"upright": Metric(metrics.joint_cos, joint=HINGE), "last": Metric(metrics.joint_cos, joint=HINGE, **options)}
    found = describe_metrics(cart_task(metrics=own))
    meaning = "Cos of one joint's angle: 1 upright"
    assert found == {
        "upright": {"unit": "1", "meaning": meaning, "over": "mean", "after_s": 0.0, "better": "larger"},
        "last": {**options, "meaning": meaning, "better": "larger"},
    }


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"over": "median"}, "over='median': must be mean, end, max or min"),
        ({"after_s": -1.0}, "after_s=-1.0: must be >= 0"),
        ({"after_s": math.nan}, "after_s=nan: must be a finite number"),
        ({"after_s": -1e39}, r"after_s=-1e\+39: must be a finite number"),
    ],
)
def test_a_metric_s_options_are_checked(options, line):
    with pytest.raises(ValueError, match=line.replace("(", r"\(")):
        Metric(metrics.joint_cos, joint=HINGE, **options)


def test_what_counts_as_solved_is_a_metric_of_the_task_with_better_values(cart_task):
    own = {"level": Metric(metrics.terrain_level), "upright": Metric(metrics.joint_cos, joint=HINGE)}
    assert cart_task(metrics=own, solved=("tracking/upright", 0.6)).solved == ("tracking/upright", 0.6)
    for solved in (("upright", 0.6), ("tracking/lin_vel_error", 0.25)):
        with pytest.raises(
            ValueError, match=f"solved='{solved[0]}': .* must be one of tracking/level, tracking/upright"
        ):
            cart_task(metrics=own, solved=solved)
    with pytest.raises(ValueError, match="solved='tracking/level': must declare better values: @metric"):
        cart_task(metrics=own, solved=("tracking/level", 3.0))


def test_more_terminations_than_bits_are_refused(cart_task):
    many = {f"t{k}": Termination(terminations.joint_beyond, joint=SLIDER, limit=1.0) for k in range(32)}
    with pytest.raises(ValueError, match="terminations=32: terms, must be 31 or fewer"):
        cart_task(terminations=many)


def test_a_reset_world_starts_from_nothing(doll):
    actions = torch.tensor([[0.3], [0.4], [0.5]])
    doll.step(actions, qpos=[[1.5, 2.0], [0.5, 2.0], [0.5, 2.0]], qvel=[3.0, 3.0])
    s = doll.state
    assert s.episode_return.tolist() == pytest.approx([0.0, 0.175, 0.175])
    assert s.action[:, 0].tolist() == pytest.approx([0.0, 0.4, 0.5])
    assert s.step_count.tolist() == [0, 1, 1]
    assert s.joint_pos[0].tolist() == pytest.approx([0.25, math.pi])
    assert s.joint_vel[0].tolist() == [0.0, 0.0]
    assert s.last_joint_vel.tolist() == [[0.0, 0.0], [3.0, 3.0], [3.0, 3.0]]


def test_actions_are_remembered_for_two_steps_and_clipped(doll):
    for value in (0.1, 0.2, 99.0):
        doll.step(torch.full((3, 1), value), qpos=[0.0, 0.0], qvel=[0.0, 0.0])
    s = doll.state
    assert [s.action[0, 0].item(), s.prev_action[0, 0].item(), s.prev_prev_action[0, 0].item()] == pytest.approx(
        [10.0, 0.2, 0.1]
    )
    # an effort-driven joint: limit 15 N times the action
    assert s.ctrl[0, 0].item() == pytest.approx(150.0)


def test_metrics_of_episodes_by_hand(doll):
    """World 0 fails after 3 steps, world 1 after 5, world 2 lives; every number is an average since the last call."""
    doll.env.pop_metrics()
    stay = [[0.5, math.pi], [0.2, math.pi], [0.0, 0.0]]
    run(doll, 2, stay)
    run(doll, 1, [[1.5, math.pi], *stay[1:]])
    run(doll, 1, [[0.25, math.pi], *stay[1:]])
    run(doll, 1, [[0.25, math.pi], [2.0, math.pi], stay[2]])
    got = doll.env.pop_metrics()
    returns = [DT * (3 * 2 - 2 * 0.25 - 2.25), DT * (5 * 2 - 4 * 0.04 - 4.0)]
    assert got["episodes"] == 2
    assert got["quarantined"] == 0
    assert got["episode/return"] == pytest.approx(sum(returns) / 2, rel=1e-5)
    assert got["episode/length_s"] == pytest.approx(0.4)
    assert got["reward/alive"] == pytest.approx(2.0, rel=1e-5), "per second of all worlds, of running episodes too"
    assert got["reward/centred"] == pytest.approx(-(2 * 0.25 + 2.25 + 2 * 0.0625 + 4 * 0.04 + 4.0) / 15, rel=1e-5)
    assert got["termination/off_rail"] == 1.0
    assert got["termination/time_limit"] == 0.0
    # two worlds hang for all five steps, one stands upright
    assert got["tracking/upright"] == pytest.approx((1 - 2) / 3, rel=1e-5)


def test_metrics_start_from_zero_after_each_call(doll):
    run(doll, 10)
    assert doll.env.pop_metrics()["termination/time_limit"] == 1.0
    again = doll.env.pop_metrics()
    assert again["episodes"] == 0
    assert "episode/return" not in again
    assert "reward/alive" not in again


def test_a_hand_made_reset_is_no_episode(doll):
    run(doll, 3)
    doll.env.pop_metrics()
    obs = doll.env.reset()
    assert doll.env.pop_metrics()["episodes"] == 0
    assert doll.env.episode_length_buf.tolist() == [0, 0, 0]
    torch.testing.assert_close(obs["actor"][:, 0], torch.full((3,), 0.25))
    assert run(doll, 1)[2].tolist() == [False] * 3


def test_only_positive_rewards_floors_the_sum_and_not_the_terms(puppet, cart_task):
    task = cart_task(
        rewards={
            "alive": Reward(rewards.alive, weight=1.0),
            "centred": Reward(rewards.centred, weight=-8.0, joint=SLIDER),
        },
        only_positive_rewards=True,
    )
    doll = puppet(task, num_envs=3)
    _, reward, _, _ = run(doll, 1, [[0.0, 0.0], [0.25, 0.0], [0.5, 0.0]])
    torch.testing.assert_close(reward, torch.tensor([1.0, 0.5, 0.0]) * DT)
    torch.testing.assert_close(doll.state.episode_return, reward)
    assert doll.state.reward_sums[2].tolist() == pytest.approx([DT, -2.0 * DT])


def test_held_commands_are_drawn_by_nobody(puppet, go2_task):
    from robot_rl_envs.mdp import commands
    from robot_rl_envs.task import Command

    ranges = {"vx_lo": 1.0, "vx_hi": 2.0, "vy_lo": 0.0, "vy_hi": 0.0, "yaw_lo": 0.0, "yaw_hi": 0.0, "standing": 0.0}
    task = go2_task(
        commands={"velocity": Command(commands.uniform_velocity, resample_s=(0.1, 0.2), **ranges)},
        episode_length_s=0.3,
    )
    doll = puppet(task, num_envs=2)
    qpos = doll.state.default_qpos.numpy()
    doll.env.set_command((0.5, 0.25, -0.5), torch.tensor([1]))
    for _ in range(40):
        doll.step(qpos=qpos, qvel=[0.0] * 18)
        assert doll.state.command[1].tolist() == [0.5, 0.25, -0.5]
        assert 1.0 <= doll.state.command[0, 0] <= 2.0
    doll.env.set_command(None)
    doll.step(qpos=qpos, qvel=[0.0] * 18)
    assert doll.state.command[1, 0] >= 1.0
