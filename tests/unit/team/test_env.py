"""Worlds with several robots: rows, contacts between robots, who drops out and joins, whose reward it is."""

import numpy as np
import pytest
import torch
from robot_rl_envs.agents import Agent, Role, Team
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events, objects, team
from robot_rl_envs.objects import Box, Contact
from robot_rl_envs.task import Event, Metric, Reward, Termination

from tests.unit.team.terms import number_is, own_number


def equal(one, other) -> list[str]:
    """Names of what differs between two walks."""
    return sorted({name for a, b in zip(one, other, strict=True) for name in a if not torch.equal(a[name], b[name])})


def test_a_team_of_one_has_the_bits_of_one_robot(puck_task, walk):
    alone, team_of_one = (make_env(puck_task(count), num_envs=9, seed=4) for count in (0, 1))
    assert (alone.agents, team_of_one.agents) == ((), ("p0",))
    first, second = walk(alone, 120), walk(team_of_one, 120)
    assert sum(int(row["done"].sum()) for row in first) >= 18
    for row in second:
        assert row.pop("team").shape == (9, 1)
        assert row.pop("final_team").shape == (9, 1)
    assert equal(first, second) == []
    assert alone.pop_metrics() == team_of_one.pop_metrics()


def test_any_number_of_threads_gives_the_same_bits(puck_task, walk):
    walks = [walk(make_env(puck_task(3), num_envs=100, seed=1, num_threads=n), 30) for n in (1, 2)]
    assert equal(*walks) == []


def test_rows_are_robots_with_draws_of_their_own_at_their_places(puck_task):
    env = make_env(puck_task(3), num_envs=40, seed=2)
    assert (env.num_envs, env.num_worlds, env.agents) == (120, 40, ("p0", "p1", "p2"))
    at = env.crews["puck"].state.base_pos_w.view(40, 3, 3)[..., 0]
    assert torch.allclose(at.mean(dim=0), torch.tensor([0.0, 1.0, 2.0]), atol=0.05)
    assert ((at - torch.tensor([0.0, 1.0, 2.0])).abs() <= 0.1).all()
    assert len(torch.unique(at - torch.tensor([0.0, 1.0, 2.0]))) > 100


@pytest.mark.long
def test_robots_touch_each_other(puck_task):
    apart = {"events": {}, "contacts": {"others": Contact(first="robot", second="others")}}
    task = puck_task(2, **apart, metrics={"hit": Metric(team.collides, contact="others", force=1.0)})
    env = make_env(task, num_envs=1, seed=0)
    state = env.crews["puck"].state
    forces, gaps = [], []
    for step in range(40):
        state.qvel[1, 0] = -1.5  # The second robot runs into the first.
        state.dirty[1] |= 1
        if step < 20:
            env.crews["puck"].write_back()
        env.step(torch.zeros(2, 1))
        forces.append(state.contact_force[:, 0].clone())
        gaps.append(float(state.base_pos_w[1, 0] - state.base_pos_w[0, 0]))
    assert torch.stack(forces)[:3].max() == 0.0
    assert torch.stack(forces).max() > 5.0
    assert torch.stack(forces)[:, 0].tolist() == pytest.approx(torch.stack(forces)[:, 1].tolist(), abs=1e-3)
    assert min(gaps) > 0.18  # Each is 0.2 m wide.
    assert float(state.base_pos_w[0, 0]) < -0.01  # The first was pushed.


def test_a_robot_drops_out_and_the_others_go_on(puck_task, walk):
    out = Termination(number_is, number=1.0, after=5.0, scope="robot")
    env = make_env(puck_task(3, terminations={"out": out}), num_envs=2, seed=0)
    rows = walk(env, 60)
    valid = torch.stack([row["valid"].view(2, 3) for row in rows])
    done = torch.stack([row["done"].view(2, 3) for row in rows])
    ends = torch.stack([row["time_outs"].view(2, 3) for row in rows])
    assert valid[:, :, 0].all()
    assert valid[:, :, 2].all()
    assert valid[:5, :, 1].all()
    assert not valid[5:50, :, 1].any()
    assert valid[50:55, :, 1].all()
    assert done[4, :, 1].all()
    assert not ends[4].any()
    assert not done[5:49].any()
    assert done[49, :, 0].all()
    assert ends[49, :, 0].all()
    assert not ends[49, :, 1].any()
    for row in rows[4:49]:
        assert all((row[name].view(2, 3, -1)[:, 1] == 0).all() for name in ("actor", "critic"))
        seen = row["team"].view(2, 3, -1)
        assert (seen[:, 1, :-3] == 0).all()
        assert (seen[:, 1, -3:] == torch.tensor([0.0, 1.0, 0.0])).all()
        assert (seen[:, 0, 0] == 0).all()
        assert (seen[:, 0, 6] == 1).all()
    assert env.pop_metrics()["episodes"] == 2 * (3 + 1)  # The second episode is one step past the drop.


@pytest.mark.long
def test_a_termination_of_the_team_ends_it_for_all(puck_task, walk):
    env = make_env(
        puck_task(2, terminations={"end": Termination(number_is, number=1.0, after=5.0)}), num_envs=2, seed=0
    )
    rows = walk(env, 12)
    assert [int(row["done"].sum()) for row in rows] == [0, 0, 0, 0, 4, 0, 0, 0, 0, 4, 0, 0]
    assert not any(row["time_outs"].any() for row in rows)
    assert all(row["valid"].all() for row in rows)


def test_an_episode_ends_when_too_few_are_left(puck_task, walk):
    out = Termination(number_is, number=1.0, after=5.0, scope="robot")
    env = make_env(puck_task(2, terminations={"out": out}, team=Team(least=2)), num_envs=1, seed=0)
    rows = walk(env, 6)
    assert rows[4]["done"].all()
    assert not rows[4]["time_outs"].any()
    assert rows[5]["valid"].all()


def test_the_critic_sees_the_others_in_turn(puck_task, walk):
    env = make_env(puck_task(3), num_envs=2, seed=0)
    row = walk(env, 3)[-1]
    own, seen = row["critic"].view(2, 3, 5), row["team"].view(2, 3, -1)
    assert seen.shape[-1] == 2 * (5 + 1) + 3
    for robot in range(3):
        first, second = ((robot + n) % 3 for n in (1, 2))
        assert torch.equal(seen[:, robot, 1:6], own[:, first])
        assert torch.equal(seen[:, robot, 7:12], own[:, second])
        assert (seen[:, robot, [0, 6]] == 1).all()
        assert (seen[:, robot, 12 + robot] == 1).all()


@pytest.mark.long
@pytest.mark.parametrize(("credit", "expected"), [("robot", (1, 2, 3)), ("role", (2, 2, 2)), ("team", (2, 2, 2))])
def test_whose_reward_it_is(puck_task, walk, credit, expected):
    rewards = {"number": Reward(own_number, weight=1.0, credit=credit)}
    env = make_env(puck_task(3, rewards=rewards), num_envs=2, seed=0)
    row = walk(env, 1)[0]
    assert row["reward"].view(2, 3)[0].tolist() == pytest.approx([n * env.step_dt for n in expected])


def test_a_robot_that_is_out_shares_no_reward(puck_task, walk):
    rewards = {"number": Reward(own_number, weight=1.0, credit="team")}
    out = Termination(number_is, number=2.0, after=2.0, scope="robot")
    env = make_env(puck_task(3, rewards=rewards, terminations={"out": out}), num_envs=1, seed=0)
    found = [row["reward"].tolist() for row in walk(env, 4)]
    dt = env.step_dt
    assert found[1] == pytest.approx([2 * dt] * 3)  # It still acted in this step.
    assert found[2] == pytest.approx([1.5 * dt, 1.5 * dt, 0.0])


@pytest.mark.long
def test_teams_of_any_size_and_late_ones(puck_task, walk):
    sizes = Team(size=(1, 4), joins=1.0, join_s=(0.2, 0.2), parking=(-20.0, 5.0), spacing=2.0)
    metrics = {"size": Metric(team.team_size)}
    env = make_env(puck_task(4, team=sizes, metrics=metrics), num_envs=64, seed=3)
    state = env.crews["puck"].state
    active = state.active.view(64, 4)
    assert sorted(set(active.sum(dim=1).tolist())) == [1, 2, 3, 4]
    assert all(row == sorted(row, reverse=True) for row in active.tolist())  # The first ones of the task.
    parked = state.base_pos_w.view(64, 4, 3)[active == 0]
    assert (parked[:, 0] < -19).all()
    assert len(parked) > 60
    rows = walk(env, 12)
    assert torch.equal(rows[0]["valid"].view(64, 4), active == 1) or (state.active == 1).all()
    assert not rows[8]["valid"].all()
    assert rows[10]["valid"].all()
    joined = rows[9]["actor"].view(64, 4, -1)[:, 3]
    assert (joined.abs().sum(dim=1) > 0).all()  # Observed where it begins.
    x = state.base_pos_w.view(64, 4, 3)[..., 0]
    assert (x[:, 3] > 1.0).all()


@pytest.mark.long
def test_team_draws_are_one_for_all(puck_task):
    box = Box(size=(0.2, 0.2, 0.2), pos=(0.0, 2.0, 0.1))
    place = Event(
        objects.reset_object,
        team=True,
        object="box",
        x_lo=-1.0,
        x_hi=1.0,
        y_lo=0.0,
        y_hi=1.0,
        z_lo=0.0,
        z_hi=0.0,
        yaw=1.0,
    )
    task = puck_task(2, objects={"box": box}, events={"place": place})
    env = make_env(task, num_envs=30, seed=5)
    at = env.crews["puck"].state.object_pos_w[:, 0].view(30, 2, 3)
    assert torch.equal(at[:, 0], at[:, 1])
    assert len(torch.unique(at[:, 0, 0])) == 30
    assert torch.allclose(torch.from_numpy(env.engine.batch.state[:, 1:4]).float()[:0], at[:0, 0])
    env.step(torch.zeros(60, 1))
    at = env.crews["puck"].state.object_pos_w[:, 0].view(30, 2, 3)
    assert torch.equal(at[:, 0], at[:, 1])


@pytest.mark.long
def test_crews_of_several_kinds(puck, puck_task, walk):
    robots = {
        "a": Agent(robot=puck),
        "b": Agent(robot=puck, pos=(1.0, 0.0, 0.0), role="other"),
        "c": Agent(robot=puck, pos=(2.0, 0.0, 0.0)),
    }
    mine = puck_task(0)
    wide = {"actor": mine.observations["critic"], "critic": mine.observations["critic"]}
    rewards = {"number": Reward(own_number, weight=1.0, credit="team")}
    task = puck_task(0, robot=None, robots=robots, roles={"other": Role(observations=wide)}, rewards=rewards)
    env = make_env(task, num_envs=2, seed=0)
    assert env.roles == ("puck", "other", "puck")
    assert env.role_sizes == {"puck": (2, 1), "other": (5, 1)}
    row = walk(env, 4)[-1]
    seen = row["actor"].view(2, 3, 5)
    assert (seen[:, [0, 2], 2:] == 0).all()
    assert (seen[:, 1] == row["critic"].view(2, 3, 5)[:, 1]).all()
    assert row["reward"].tolist() == pytest.approx([2 * env.step_dt] * 6)
    assert {name for name in env.pop_metrics() if name.startswith("reward")} <= {
        "reward/puck.number",
        "reward/other.number",
    }
    env.episode_length_buf = torch.arange(6)
    assert env.episode_length_buf.tolist() == list(range(6))
    with pytest.raises(ValueError, match="no parameter 'tail.rewards.number.weight'.*puck"):
        env.set_param("tail.rewards.number.weight", 2.0)
    action = torch.zeros(6, 1)
    action[1] = torch.nan
    env.step(action)  # A fault of one is that of all robots in its world.
    found = env.pop_metrics()
    assert sum(value for name, value in found.items() if name.startswith("quarantined/")) == found["quarantined"] == 3


def test_a_world_that_fails_is_reset_for_all_its_robots(puck_task, walk):
    env = make_env(puck_task(2), num_envs=3, seed=0)
    walk(env, 2)
    action = torch.zeros(6, 1)
    action[3] = torch.nan
    obs, reward_, done, extras = env.step(action)
    assert extras["valid"].tolist() == [True, True, False, False, True, True]
    assert done.tolist() == [False, False, True, True, False, False]
    assert obs["actor"].isfinite().all()
    _, _, done, extras = env.step(torch.zeros(6, 1))
    assert extras["valid"].all()
    assert not done.any()
    assert reward_.isfinite().all()


def test_a_late_robot_that_fails_is_recorded(puck_task, tmp_path):
    env = make_env(puck_task(2, team=Team(size=(1, 1), joins=1.0, join_s=(0.1, 0.1))), num_envs=3, seed=0)
    env.quarantine_dir = tmp_path
    active = env._all[0].state.active
    before = active.clone()
    while torch.equal(before, active):
        env.step(torch.zeros(6, 1))
    action = torch.zeros(6, 1)
    action[(before == 0).nonzero()[0]] = torch.nan
    env.step(action)
    assert env.pop_metrics()["quarantined"] == 2
    (file,) = tmp_path.rglob("*.npz")  # None of the other robot, which did nothing wrong.
    assert file.name.startswith("action-")
    assert np.isfinite(np.load(file)["qpos"]).all()


def test_a_restored_team_goes_on_to_the_bit(puck_task, walk):
    sizes = Team(size=(1, 3), joins=0.5, join_s=(0.1, 0.5))
    env, other = (make_env(puck_task(3, team=sizes), num_envs=7, seed=4) for _ in range(2))
    walk(env, 33)
    walk(other, 5, seed=1)
    other.load_state_dict({name: tensor.clone() for name, tensor in env.state_dict().items()})
    assert all(torch.equal(env.get_observations()[name], other.get_observations()[name]) for name in ("actor", "team"))
    assert equal(walk(env, 60, seed=2), walk(other, 60, seed=2)) == []


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"team": Team(size=(1, 5))}, r"team\.size=\(1, 5\): the task has 2 robots, p0, p1"),
        ({"team": Team(least=3)}, r"team\.least=3: the task has 2 robots"),
        (
            {"team": Team(least=2, size=(1, 2))},
            r"team\.least=2: an episode may begin with 1 of them \(team\.size=\(1, 2",
        ),
        ({"roles": {"cook": Role()}}, r"roles='cook': no robot has that role; there are puck"),
    ],
)
def test_bad_teams(puck_task, fields, line):
    with pytest.raises(ValueError, match=line):
        puck_task(2, **fields)


def test_a_task_of_one_robot_has_no_team_and_one_robot_touches_no_others(puck_task):
    with pytest.raises(ValueError, match="a task of one robot has none; omit it"):
        puck_task(0, team=Team(joins=0.5))
    touch = {"others": Contact(first="robot", second="others")}
    assert puck_task(2, contacts=touch).contacts == touch
    with pytest.raises(
        ValueError, match=r"contacts\.others=\('robot', 'others'\): the task has 1 robot, and no others"
    ):
        puck_task(1, contacts=touch)


def test_an_event_of_an_object_must_be_the_teams(puck_task):
    lone = Event(
        objects.reset_object, object="box", x_lo=0.0, x_hi=1.0, y_lo=0.0, y_hi=1.0, z_lo=0.0, z_hi=0.0, yaw=0.0
    )
    with pytest.raises(ValueError, match=r"events\.lone\.team=False: its object belongs to all robots"):
        puck_task(2, objects={"box": Box(size=(0.1, 0.1, 0.1))}, events={"lone": lone})


@pytest.mark.long
def test_turned_teams_start_turned(puck_task):
    turn = {
        "turn": Event(team.turn_team, team=True, yaw=3.0),
        "base": Event(events.reset_base, xy=0.0, yaw=0.0, velocity=0.0),
    }
    env = make_env(puck_task(2, events=turn), num_envs=20, seed=1)
    at = env.crews["puck"].state.base_pos_w.view(20, 2, 3)
    assert at[:, 1, :2].norm(dim=1).tolist() == pytest.approx([1.0] * 20, abs=1e-5)
    assert at[:, 0, :2].abs().max() < 1e-6
    assert at[:, 1, 1].abs().max() > 0.5
