"""A short training with the settings of Isaac Lab's own agent improves the return."""

import json

import pytest

pytestmark = [pytest.mark.isaac, pytest.mark.long]


def test_the_return_of_a_cartpole_improves(run, tmp_path):
    code, _, err = run(
        "train", "task=isaac/Isaac-Cartpole-Direct", "assets=own", "num_envs=64", "max_iterations=45", "run_id=learns"
    )
    assert code == 0, err
    lines = (tmp_path / "runs" / "isaac-Isaac-Cartpole-Direct" / "learns" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]

    def mean_return(some):
        return sum(row["episode/return"] * row["episodes"] for row in some if row["episodes"]) / sum(
            row["episodes"] for row in some
        )

    assert mean_return(rows[-10:]) > mean_return(rows[:15]) + 2.0
