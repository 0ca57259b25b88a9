"""The form of the learner's benchmark."""

import json

import pytest

from robot_rl.performance.learner import bench_learner


def test_it_is_a_result():
    lines = []
    result = bench_learner(sizes=((16, 8), (128, 128, 128)), num_envs=(8, 16), num_steps=2, repeats=2, say=lines.append)
    assert json.loads(json.dumps(result)) == result
    cases = [("16-8", "8 x 2"), ("128-128-128", "8 x 2"), ("16-8", "16 x 2"), ("128-128-128", "16 x 2")]
    who = [f"{who} {network}, {rollout}" for network, rollout in cases for who in ("robot-rl", "rsl_rl")]
    assert [row["who"] for row in result["rows"]] == who
    assert all(row["value"] > 0.0 and row["repeats"] == 2 for row in result["rows"])
    assert [(one["network"], one["rollout"]) for one in result["comparisons"]] == cases
    assert [one["required"] for one in result["comparisons"]] == [None, 1.3, None, 1.3]
    assert result["comparisons"][0]["ratio"] == pytest.approx(result["ratio"])
    assert result["ratio"] > 0.0
    assert [line.partition(": ")[0] for line in lines] == [f"{network}, {rollout}" for network, rollout in cases]
