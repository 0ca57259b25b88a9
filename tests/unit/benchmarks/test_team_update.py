"""A team's update compared with skrl's, at toy size."""

import json

import pytest
import team_update

pytest.importorskip("skrl")


def test_both_learn_from_the_same_rollout(tmp_path, capsys):
    out = tmp_path / "b.json"
    team_update.main(["agents=2", "hidden=[8]", "num_envs=[4,8]", "num_steps=4", "repeats=2", f"out={out}"])
    found = json.loads(out.read_text())
    assert [(one["rollout"], one["required"]) for one in found["comparisons"]] == [("4 x 4 x 2", 2), ("8 x 4 x 2", 2)]
    assert found["rows"][1]["who"] == "skrl 8, 4 x 4 x 2"
    assert "skrl / ours" in capsys.readouterr().out
