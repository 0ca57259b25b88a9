"""The form of the learner's benchmark."""

import json

from robot_rl.bench.learner import bench_learner


def test_it_is_a_result():
    result = bench_learner(sizes=((16, 8), (8, 8)), num_envs=16, num_steps=4, repeats=2)
    assert json.loads(json.dumps(result)) == result
    assert [row["who"] for row in result["rows"]] == ["robot-rl 16-8", "rsl_rl 16-8", "robot-rl 8-8", "rsl_rl 8-8"]
    assert all(row["value"] > 0.0 and row["repeats"] == 2 for row in result["rows"])
    assert result["ratio"] > 0.0
    assert set(result["notes"]["ratios"]) == {"16-8", "8-8"}
