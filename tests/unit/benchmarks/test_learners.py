"""How soon learners solve a task: what is looked at, when a training ends, and what goes on from a file."""

import json
import math
import re
from types import SimpleNamespace

import pytest
from learners import Goal, find_goal, main, summarize
from robot_rl_tasks.registry import get_task

from robot_rl.errors import UserError

SMALL = "+num_envs=4+num_steps=4+max_iterations=2+num_threads=1"


def point(error, failures=0.0):
    return {"lin_vel_error": error, "failure_rate": failures}


def test_both_bounds_have_to_hold():
    goal = Goal(metric="lin_vel_error", bound=0.25)
    assert goal.is_met(point(0.25, 0.02))
    assert not goal.is_met(point(0.26))
    assert not goal.is_met(point(0.1, 0.03))
    assert not goal.is_met(point(None))
    assert Goal(metric="lin_vel_error", bound=0.25, is_least=False).is_met(point(0.3))


def test_a_seed_that_never_solves_it_is_slower_than_all_others():
    def one(learner, seed, steps):
        reached = None if steps is None else {"env_steps": steps, "cpu_s": steps / 10, "time_s": steps / 20}
        return {"learner": learner, "seed": seed, "reached": reached}

    trainings = [one("ppo", 1, 100), one("ppo", 2, 300), one("ppo", 3, 200)]
    trainings += [one("other", 1, 50), one("other", 2, None), one("other", 3, 40), one("last", 1, None)]
    first, second, third = summarize(["ppo", "other", "last"], trainings)
    assert (first["env_steps"], first["env_steps ratio"], first["solved"]) == (200, 1.0, 3)
    assert (second["env_steps"], second["env_steps ratio"], second["solved"]) == (50, 0.25, 2)
    assert (third["env_steps"], third["env_steps ratio"], third["solved"]) == (None, None, 0)
    assert math.isfinite(second["time_s"])


def test_another_bound_may_be_given():
    task = get_task("walker2d_v5")
    goal = find_goal(task, metric="return", bound=1000.0, failures=1.0)
    assert (goal.metric, goal.bound, goal.is_least) == ("return", 1000.0, False)
    assert goal.is_met({"return": 1200.0, "failure_rate": 0.9})
    assert not goal.is_met({"return": 900.0, "failure_rate": 0.0})
    with pytest.raises(UserError, match="task=mine: does not say when it is solved"):
        find_goal(SimpleNamespace(name="mine", solved=None))
    with pytest.raises(UserError, match="metric=speeed: task=walker2d_v5 has no such metric; must be one of speed"):
        find_goal(task, metric="speeed", bound=1.0)
    with pytest.raises(UserError, match="metric=return: needs the value that solves the task, such as bound=1000"):
        find_goal(task, metric="return")


@pytest.mark.long
def test_learners_in_turn_and_again_from_the_file(tmp_path, capsys):
    out = tmp_path / "found.json"
    words = ("task=cartpole", "every=0", "episodes=2", f"out={out}", "actor.hidden=[8]")
    small = SMALL + "+world_model.rows=4+world_model.horizon=2+world_model.warm_up=4+world_model.replay=64"
    main([*words, f"learners=ppo+ppo.minibatches=2{SMALL},world_model{small}", "seeds=1"])
    printed = capsys.readouterr()
    assert "cartpole until upright" in printed.out
    assert "0 of 1" in printed.out
    assert printed.err.count("seed 1: iteration") == 4
    found = json.loads(out.read_text())
    assert [len(one["points"]) for one in found["trainings"]] == [2, 2]
    again = [*words, f"learners=ppo+critic.hidden=[8,8]+ppo.minibatches=2{SMALL}", "seeds=1"]
    main(again)
    assert "ppo+critic.hidden=[8,8]" in capsys.readouterr().out
    with pytest.raises(UserError, match="has trainings of another task or bound; name another file"):
        main([*again, "metric=return", "bound=1"])
    main([*again[:-1], "seeds=1,2"])
    assert "seed 1" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("seeds=a", "seeds=a: must be whole numbers"),
        ("until=never", "until=never: must be first or end"),
        ("learners=ppo+symmetry", "+symmetry: must be a setting, such as +symmetry=none"),
        ("learners=,", "learners: names none"),
        ("failures=2", "failures=2.0: must be in [0, 1]"),
        ("bound=1", "bound=1: of what? Add metric=, such as metric=return"),
        ("learners=ppq", "learner=ppq"),
    ],
)
def test_words_that_cannot_be_are_refused(word, line):
    with pytest.raises((UserError, ValueError), match=re.escape(line)):
        main([word])
