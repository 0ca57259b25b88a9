"""`robot-rl adapt` with the real binary, in real time: bundles are exchanged while it walks, and nothing stops it."""

import json

import pytest

from robot_rl.cli.main import main

WORDS = ["minutes=1", "segment=10", "window=2", "measure=5", "fit=1", "seed=2"]


@pytest.fixture
def adapted(tmp_path):
    """adapted(*words): exit code and directory of an adaptation."""

    def adapt(*words):
        code = main(["adapt", "policy=go2_flat", f"root={tmp_path}", *WORDS, *words])
        return code, next(path.parent for path in tmp_path.glob("go2_flat/*/adapt.json"))

    return adapt


@pytest.mark.long
def test_a_robot_adapts_while_it_walks(adapted, capsys):
    code, folder = adapted("plant=heavier")
    found = json.loads((folder / "adapt.json").read_text())
    assert found["steps"] >= 6 * 500
    assert 1 <= found["updates"] <= 5  # A slow machine learns from the newest segments only.
    assert not [one["refused"] for one in found["bundles"] if one["refused"]]
    assert sum(one["first_step"] is not None for one in found["bundles"]) >= 2
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == list(range(1, found["updates"] + 1))
    assert rows[0]["staleness/plain_ratio"] == pytest.approx(0.0, abs=1e-3)
    assert all(row["robot/lin_vel_error"] < 0.6 for row in rows)
    assert (folder / "policy" / "contract.json").is_file()
    assert not (folder / "robot.mcap").exists()
    out = capsys.readouterr().out
    assert "newer bundles acted, 0 were refused" in out
    assert main(["resume", f"run={folder.name}", f"root={folder.parents[1]}"]) == 2
    assert "is an adaptation, and its robot is gone; begin another" in capsys.readouterr().err
    assert code == (0 if "NOT better" not in out and "stopped by the safety layer: never" in out else 1)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["plant=heavyer"], "plant=heavyer: no such plant; did you mean 'heavier'?"),
        (["payload_at=1,2"], "payload_at=1,2: must be three numbers, such as 0.15,0,0.05"),
        (["segment=60", "window=5"], "minutes=1: is less than window=5 segments of segment=60 s; give more minutes"),
        (["explore=0"], "explore=0.0: must be in [0.01, 2]"),
        (["policy=go2_team"], "task=go2_team: a team does not adapt; name a policy of one robot"),
        (["policy=panda_reach"], "task=panda_reach: has no velocity command, by which policies are compared"),
        (["ppo.gama=0.9"], "ppo.gama"),
    ],
)
def test_bad_words_are_one_line(words, line, tmp_path, capsys):
    given = {word.partition("=")[0]: word for word in ["policy=go2_flat", f"root={tmp_path}", *WORDS, *words]}
    assert main(["adapt", *given.values()]) == 2
    err = capsys.readouterr().err.strip()
    assert line in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())
