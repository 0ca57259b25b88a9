"""robot-rl bench learner: the table, the file, and what it refuses."""

import json

import pytest


def test_the_command_line(run, in_tmp):
    small = ("hidden=[8]", "num_envs=8", "num_steps=2", "repeats=2")
    code, out, err = run("bench", "learner", *small, "out=b.json")
    assert code == 0, err
    assert "8 x 2" in out
    assert "rsl_rl / ours" in out
    assert json.loads((in_tmp / "b.json").read_text())["comparisons"][0]["network"] == "8"


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("rival=skrl", "run python benchmarks/team_update.py"),
        ("num_envs=[8,0]", "num_envs=[8,0]: must be whole numbers from 1 to"),
        ("out=/dev/null/x.json", "out=/dev/null/x.json: /dev/null is not a directory"),
    ],
)
def test_what_cannot_be_measured(run, word, line):
    code, _, err = run("bench", "learner", word)
    assert (code, err.count("\n")) == (2, 1)
    assert line in err
