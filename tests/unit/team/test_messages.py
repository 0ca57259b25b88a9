"""Messages between robots: what is sent, when it arrives, what gets lost, and who sends nothing."""

import dataclasses

import pytest
import torch
from robot_rl_envs.agents import Message, Team
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import observations, team
from robot_rl_envs.task import Observation, ObservationGroup, Termination

from robot_rl.evaluation.policies import FunctionPolicy
from robot_rl.evaluation.rollout import evaluate_team, evaluation_task
from robot_rl.settings.tree import apply_tree, override, task_tree
from tests.unit.team.terms import number_is


def sending(puck_task, count=2, *, noise=True, message=None, **fields):
    """A task of pucks that send each other the paddle's angle and speed, and receive it in group "actor"."""
    terms = {
        "pos": Observation(observations.joint_pos_rel),
        "vel": Observation(observations.joint_vel),
    }
    incoming = {f"received_{k}": Observation(team.received, message="paddle", sender=k) for k in range(count - 1)}
    own = {"pos": Observation(observations.joint_pos_rel), "vel": Observation(observations.joint_vel)}
    groups = {
        "actor": ObservationGroup(terms={**own, **incoming}, noise=noise),
        "critic": ObservationGroup(terms={**own, **incoming}, noise=False),
    }
    message = message or {}
    return puck_task(
        count, observations=groups, messages={"paddle": Message(terms=terms, width=2, **message)}, **fields
    )


def received_and_sent(rows, count=2, group="actor"):
    """(steps, worlds, robots, senders, 3) what is received, and (steps, worlds, robots, 2) what each robot measures."""
    seen = torch.stack([row[group] for row in rows])
    seen = seen.view(len(rows), -1, count, seen.shape[-1])
    return seen[..., 2:].unflatten(-1, (count - 1, 3)), seen[..., :2]


@pytest.mark.long
def test_a_message_without_delay_is_what_the_sender_measures(puck_task, walk):
    env = make_env(sending(puck_task, 3), num_envs=4, seed=0)
    received, sent = received_and_sent(walk(env, 60), 3)
    for robot in range(3):
        for sender in range(2):
            other = (robot + 1 + sender) % 3
            assert torch.equal(received[:, :, robot, sender, :2], sent[:, :, other])
            assert (received[:, :, robot, sender, 2] == 1).all()
    assert sent.std() > 0.1


@pytest.mark.long
def test_latency_is_drawn_by_each_receiver_and_the_critic_receives_at_once(puck_task, walk):
    env = make_env(sending(puck_task, message={"latency_s": (0.04, 0.1)}), num_envs=30, seed=1)
    rows = walk(env, 40)
    received, sent = received_and_sent(rows)
    assert torch.equal(received_and_sent(rows, group="critic")[0][:, :, 0, 0, :2], sent[:, :, 1])
    ages = set()
    for world in range(30):
        for robot in range(2):
            fits = [
                lag
                for lag in range(8)
                if torch.equal(received[20:40, world, robot, 0, :2], sent[20 - lag : 40 - lag, world, 1 - robot])
            ]
            assert len(fits) == 1
            ages |= set(fits)
    assert ages == {2, 3, 4, 5}


@pytest.mark.long
def test_a_lost_message_is_the_last_one_that_arrived(puck_task, walk):
    env = make_env(sending(puck_task, message={"loss": 0.3}), num_envs=50, seed=1)
    received, sent = received_and_sent(walk(env, 40))
    fresh = (received[1:40, :, 0, 0, :2] == sent[1:40, :, 1]).all(-1)
    held = (received[1:40, :, 0, 0] == received[:39, :, 0, 0]).all(-1)
    assert (fresh | held).all()
    assert float(held.float().mean()) == pytest.approx(0.3, abs=0.03)


@pytest.mark.long
def test_a_new_episode_receives_nothing_of_the_last(puck_task, walk):
    task = sending(puck_task, message={"latency_s": (0.1, 0.1)}, events={}, episode_length_s=0.5)
    env = make_env(task, num_envs=2, seed=0)
    received, sent = received_and_sent(walk(env, 30))
    assert sent[23].abs().max() > 0.05
    assert (sent[24] == 0).all()
    assert (received[24:30, :, :, 0, :2] == 0).all()
    assert torch.equal(received[30 - 1 - 0, :, 0, 0, :2], sent[24, :, 1])


@pytest.mark.long
def test_a_robot_that_is_out_sends_nothing(puck_task, walk):
    out = Termination(number_is, number=1.0, after=5.0, scope="robot")
    task = sending(puck_task, 3, message={"latency_s": (0.04, 0.04)}, terminations={"out": out})
    received, _ = received_and_sent(walk(make_env(task, num_envs=2, seed=0), 20), 3)
    flag = received[:, 0, 0, :, 2]
    assert (flag[:, 1] == 1).all()
    first = int((flag[:, 0] == 0).int().argmax())
    assert 5 <= first <= 7
    assert (received[first:, 0, 0, 0] == 0).all()


def test_messages_can_be_made_late_while_it_runs(puck_task, walk):
    env = make_env(sending(puck_task, message={"max_age_s": 0.2}), num_envs=3, seed=0)
    for end in (0, 1):
        env.set_param(f"observations.actor.received_0.delay_s.{end}", 0.2)
    env.reset()
    received, sent = received_and_sent(walk(env, 30))
    assert torch.equal(received[12:30, :, 0, 0, :2], sent[2:20, :, 1])


@pytest.mark.long
def test_late_robots_send_when_they_join(puck_task, walk):
    task = sending(puck_task, 3, team=Team(size=(2, 2), joins=1.0, join_s=(0.1, 0.1)))
    received, sent = received_and_sent(walk(make_env(task, num_envs=2, seed=0), 12), 3)
    flag = received[:, :, 0, 1, 2]
    assert (flag[:3] == 0).all()
    assert (flag[6:] == 1).all()
    assert torch.equal(received[6:, :, 0, 1, :2], sent[6:, :, 2])


def test_what_the_contract_says_of_a_message(puck_task):
    task = sending(puck_task, message={"latency_s": (0.02, 0.06), "loss": 0.1})
    env = make_env(task, num_envs=1, seed=0)
    found = env.describe_policy()
    assert found["team"] == ["p0", "p1"]
    (message,) = found["messages"]
    assert {name: message[name] for name in ("name", "width", "latency_s", "loss", "max_age_s")} == {
        "name": "paddle",
        "width": 2,
        "latency_s": [0.02, 0.06],
        "loss": 0.1,
        "max_age_s": 0.2,
    }
    assert [(row["name"], row["signal"], row["size"]) for row in message["terms"]] == [
        ("pos", "joint_pos", 1),
        ("vel", "joint_vel", 1),
    ]
    assert message["received"] == [{"sender": 0, "signal": "measured/message_paddle_0"}]
    assert env.robot_state()["measured/message_paddle_0"].shape == (2, 3)


def test_figures_of_messages_are_settings(puck_task):
    task = sending(puck_task, message={"latency_s": (0.02, 0.06)})
    tree = override(task_tree(task), {"messages.paddle.loss": 0.25, "messages.paddle.max_age_s": 0.5})
    changed = apply_tree(task, tree)
    assert (changed.messages["paddle"].loss, changed.messages["paddle"].latency_s) == (0.25, (0.02, 0.06))
    assert (changed.received["received_0"].dropout, changed.received["received_0"].delay_steps) == (0.25, 25)
    with pytest.raises(ValueError, match="messages.paddle.width=3: its terms have 2 values"):
        make_env(apply_tree(task, override(task_tree(task), {"messages.paddle.width": 3})), num_envs=1)


def observed(term):
    return {"actor": ObservationGroup(terms={"own": Observation(observations.joint_vel), "received": term})}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"messages": {"paddle": Message(terms={"vel": Observation(observations.joint_vel)}, width=2)}},
            r"messages.paddle.width=2: its terms have 1 values \(vel 1\); declare 1",
        ),
        (
            {"messages": {"paddle": Message(terms={"vel": Observation(observations.joint_vel, noise=0.1)}, width=1)}},
            "messages.paddle.terms.vel='noise': is sent as it is; give this to the term that receives it",
        ),
        (
            {"observations": observed(Observation(team.received, message="paddle", sender=0, dropout=0.1))},
            "observations.actor.received='dropout': is set by the message; set messages.paddle",
        ),
        (
            {"observations": observed(Observation(team.received, message="padle", sender=0))},
            "observations.actor.received.message='padle': the task has no message of that name; did you mean 'paddle'",
        ),
        (
            {"observations": observed(Observation(team.received, message="paddle", sender=1))},
            "observations.actor.received.sender=1.0: must be a whole number from 0 to 0",
        ),
    ],
)
def test_bad_messages(puck_task, change, line):
    with pytest.raises(ValueError, match=line):
        make_env(dataclasses.replace(sending(puck_task), **change), num_envs=1)


def test_one_robot_has_no_messages(puck_task):
    message = Message(terms={"vel": Observation(observations.joint_vel)}, width=1)
    with pytest.raises(ValueError, match=r"messages=\['paddle'\]: a task of one robot has none"):
        make_env(puck_task(0, messages={"paddle": message}), num_envs=1)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"width": 0}, "width=0: must be an int in"),
        ({"width": 1, "loss": 1.0}, "loss=1.0: must be in"),
        ({"width": 1, "latency_s": (0.3, 0.1)}, "latency_s="),
        ({"width": 1, "latency_s": (0.0, 0.3), "max_age_s": 0.2}, "max_age_s=0.2: must be from latency_s's 0.3 to 2"),
    ],
)
def test_bad_figures_of_messages(fields, line):
    with pytest.raises(ValueError, match=line):
        Message(terms={}, **fields)


def test_nothing_is_late_in_a_group_without_noise(puck_task):
    assert sending(puck_task).late_messages()
    assert sending(puck_task, noise=False).late_messages() == {}


def test_an_evaluation_with_late_messages(puck_task):
    task = sending(puck_task, message={"latency_s": (0.0, 0.02)})
    rows, generator = [], torch.Generator().manual_seed(0)

    def policy(obs):
        rows.append({"actor": obs["actor"].clone()})
        return torch.randn(4, 1, generator=generator)

    found = evaluate_team(lambda: make_env(evaluation_task(task), num_envs=2, seed=1), FunctionPolicy(policy), 0.8)
    assert set(found) == {"robots", "without", "worlds", "late"}
    assert "return" in found["late"]
    prompt, late = (received_and_sent(part) for part in (rows[:40], rows[-40:]))
    assert torch.equal(prompt[0][:, :, 0, 0, :2], prompt[1][:, :, 1])
    assert torch.equal(late[0][12:, :, 0, 0, :2], late[1][2:-10, :, 1])
