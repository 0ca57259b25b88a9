"""What evaluates, shows and films a team."""

import numpy as np
import pytest
import torch
from robot_rl_envs.agents import Agent, Role, Team
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import team
from robot_rl_envs.objects import Box
from robot_rl_envs.task import Metric, Reward, Termination

from robot_rl.evaluation.policies import FunctionPolicy
from robot_rl.evaluation.rollout import evaluate, evaluate_team
from robot_rl.view.viewer.drive import Driver, free_objects, goal, is_team, num_worlds
from tests.unit.team.terms import number_is, own_number


def still(obs):
    return torch.zeros(obs.batch_size[0], 1)


@pytest.fixture
def make(puck_task):
    """make(count, num_envs, **fields): worlds of pucks whose number is their reward, and a metric."""

    def build(count=3, num_envs=2, **fields):
        fields = {
            "rewards": {"n": Reward(own_number, weight=1.0)},
            "metrics": {"size": Metric(team.team_size)},
        } | fields
        return make_env(puck_task(count, **fields), num_envs=num_envs, seed=1)

    return build


def test_each_robot_has_an_episode(make):
    summary = evaluate(make(), FunctionPolicy(still), seconds=1.0)
    assert summary["return"]["mean"] == pytest.approx((1 + 2 + 3) / 3)
    assert summary["size"] == {"mean": 3.0, "std": 0.0}
    assert summary["failure_rate"]["mean"] == summary["quarantine_rate"]["mean"] == 0.0


@pytest.mark.long
def test_a_robot_that_drops_out_failed_and_one_that_is_parked_is_no_quarantine(make):
    out = {"out": Termination(number_is, number=1.0, after=10.0, scope="robot")}
    summary = evaluate(make(terminations=out, num_envs=4), FunctionPolicy(still), seconds=1.0)
    assert summary["failure_rate"]["mean"] == pytest.approx(1 / 3)
    assert summary["ended/out"]["mean"] == pytest.approx(1 / 3)
    parked = evaluate(make(team=Team(size=(1, 1))), FunctionPolicy(still), seconds=1.0)
    assert parked["quarantine_rate"]["mean"] == 0.0


def test_what_the_others_lose_without_one(make):
    found = evaluate_team(lambda: make(), FunctionPolicy(still), 0.9)
    assert [found["robots"][name]["return"]["mean"] for name in ("p0", "p1", "p2")] == pytest.approx([0.9, 1.8, 2.7])
    assert found["robots"]["p0"]["size"]["mean"] == 3.0
    assert list(found["without"]) == ["p0", "p1", "p2"]
    lost = found["without"]["p1"]
    assert lost["return"]["mean"] == pytest.approx((0.9 + 2.7) / 2)  # Those of the two others.
    assert lost["size"]["mean"] == pytest.approx(3 - 2 / 3, abs=0.03)


@pytest.mark.long
def test_robots_of_several_roles_have_metrics_of_their_own(puck, puck_task):
    robots = {"a": Agent(robot=puck), "b": Agent(robot=puck, pos=(1.0, 0.0, 0.0), role="other")}
    roles = {"other": Role(metrics={"extra": Metric(team.team_size)})}
    task = puck_task(0, robot=None, robots=robots, roles=roles, rewards={"n": Reward(own_number, weight=1.0)})
    summary = evaluate(make_env(task, num_envs=2, seed=0), FunctionPolicy(still), seconds=0.5)
    assert summary["puck.return"]["mean"] == pytest.approx(0.5)
    assert summary["other.return"]["mean"] == pytest.approx(1.0)
    assert summary["other.extra"]["mean"] == 2.0
    assert "puck.extra" not in summary


@pytest.mark.long
def test_a_driver_knows_worlds_and_rows(make):
    box = Box(size=(0.2, 0.2, 0.2), pos=(0.0, 2.0, 0.1))
    env = make(objects={"box": box})
    driver = Driver(env, still)
    assert (num_worlds(env), is_team(env), list(driver.rows(1))) == (2, True, [3, 4, 5])
    driver.step()
    assert driver.qpos.shape == (2, env.scene.model.nq)
    np.testing.assert_allclose(free_objects(env)["box"][:2], [0.0, 2.0], atol=1e-3)
    assert goal(env, 0) is None
    env.place_object("box", (1.0, 1.0, 0.5))
    np.testing.assert_allclose(free_objects(env)["box"][:3], [1.0, 1.0, 0.5])


def test_only_a_robot_of_the_team_drops_out(make):
    env = make()
    with pytest.raises(ValueError, match="agent='p9': did you mean"):
        env.drop("p9")
    env.drop("p1", torch.tensor([1]))
    _, _, _, extras = env.step(torch.zeros(6, 1))
    assert extras["acted"].tolist() == [True, True, True, True, False, True]


@pytest.mark.long
def test_a_film_shows_all_robots(make, gl):
    from robot_rl.view.viewer.video import VideoCfg

    env = make(2, 4)
    (first, *_) = VideoCfg(seconds=0.1, fps=20, num_robots=4, width=320, height=240).film(env, still)
    assert first.shape == (240, 320, 3)
    assert first.std() > 10
