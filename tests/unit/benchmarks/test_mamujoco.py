"""The benchmark on divided robots: its curve, what is compared, and a short one from the command line."""

import functools
import json
import xml.etree.ElementTree as ET

import mamujoco
import pytest
from mamujoco import PUBLISHED_STEPS, _at, _first, draw, returns_of

from robot_rl.errors import UserError


def row(iteration, episodes, value):
    return {"iteration": iteration, "episodes": float(episodes), **({"episode/return": value} if episodes else {})}


def test_the_curve_is_the_mean_of_the_last_hundred_episodes():
    rows = [row(1, 0, 0.0), row(2, 50, 10.0), row(3, 50, 20.0), row(4, 25, 40.0), row(5, 100, 50.0)]
    curve = returns_of(rows, 1000)
    assert curve["steps"] == [2000, 3000, 4000, 5000]
    # Episodes that would leave fewer than a hundred stay: after the fourth row these are all 125.
    assert curve["return"] == [10.0, 15.0, (50 * 10 + 50 * 20 + 25 * 40) / 125, 50.0]


def test_what_is_compared_with_the_published_return():
    curve = {"steps": [0.0, PUBLISHED_STEPS / 2, PUBLISHED_STEPS * 1.5], "return": [0.0, 100.0, 300.0]}
    assert _at(curve, PUBLISHED_STEPS) == 200.0
    assert _at({"steps": [10.0], "return": [1.0]}, PUBLISHED_STEPS) is None
    assert _first(curve, 100.0) == PUBLISHED_STEPS / 2
    assert _first(curve, 301.0) is None


@pytest.mark.long
def test_a_short_training_from_the_command_line(tmp_path, monkeypatch, capsys):
    robots = pytest.importorskip("gymnasium_robotics").mamujoco_v1
    monkeypatch.setattr(mamujoco, "EVALUATED", 2)
    # Episodes of the evaluation have 50 steps, not 1000.
    monkeypatch.setattr(robots, "parallel_env", functools.partial(robots.parallel_env, max_episode_steps=50))
    monkeypatch.chdir(tmp_path)
    words = ["divisions=Ant-4x2", "steps=1056", "num_envs=1", "num_steps=264", "out=m.json", "root=runs"]
    words += ["num_threads=1", "learner_threads=1", "actor.hidden=[8]", "critic.hidden=[8]", "ppo.epochs=1"]
    mamujoco.main(words)
    result = json.loads((tmp_path / "m.json").read_text())
    (run,) = result["runs"]
    assert (run["steps"], run["at_published"], run["reached"]) == (1056, None, None)
    assert len(run["evaluation"]) == 2
    assert result["ratio"] is None
    assert "Ant-4x2 HARL's MAPPO" in capsys.readouterr().out
    assert ET.fromstring((tmp_path / "m.svg").read_text()).tag.endswith("svg")
    # Once more, and over its own files: the run has ended, so only the policy is evaluated again.
    mamujoco.main(words)
    assert json.loads((tmp_path / "m.json").read_text())["runs"][0]["evaluation"] == run["evaluation"]


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("divisions=Ant-9x9", "MaMuJoCo has no such division of Ant"),
        ("divisions=,", "divisions=,: name at least one"),
        ("steps=4000", "steps=4000: no episode of 64 worlds would end; must be at least 64000"),
    ],
)
def test_bad_words(word, line):
    pytest.importorskip("gymnasium_robotics")
    with pytest.raises(UserError, match=line):
        mamujoco.main([word])


def test_two_plots_are_side_by_side():
    run = {"task": "mamujoco:Ant-4x2", "steps": 100, "curve": {"steps": [1, 2], "return": [-3.0, 5.0]}}
    found = ET.fromstring(draw({"runs": [run, run | {"task": "mamujoco:Ant-2x4"}]}))
    assert found.get("viewBox") == "0 0 840 240"
