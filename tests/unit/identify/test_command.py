"""robot-rl identify: the file and the lines that a user sees."""

import json
import re

import numpy as np
import pytest
from robot_rl_assets import registry

from robot_rl.cli.main import main


@pytest.fixture
def folder(arm, arrays, tmp_path, monkeypatch):
    """A folder with the arm's log, in which the arm is a robot that is found by name."""
    monkeypatch.chdir(tmp_path)
    get = registry.get_robot
    monkeypatch.setattr(registry, "get_robot", lambda name: arm if name == "arm" else get(name))
    np.savez("log.npz", **arrays)
    return tmp_path


def test_a_log_becomes_a_file_and_a_table(folder, capsys):
    assert main(["identify", "log.npz", "robot=arm", "fit=gain,damping,friction,armature,delay"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["log.identified.json", "log.identified.html"]
    assert lines[0].startswith("log.npz: 4.0 s, 800 rows")
    assert any(line.startswith("held-out log: positions ") for line in lines)
    data = json.loads((folder / "log.identified.json").read_text())
    assert data["format"] == "robot_rl.identified"
    assert [log["part"] for log in data["logs"]] == ["fit", "held"]
    page = (folder / "log.identified.html").read_text()
    (content,) = re.findall(r'id="data">(.*?)</script>', page)
    charts = json.loads(content)["charts"]
    assert [chart["title"] for chart in charts][::2] == ["turn", "upper", "lower"]
    assert [series["name"] for series in charts[0]["series"]] == ["measured", "fitted", "nominal"]
    assert "not seen" in page
    assert data["joints"]["lower"]["gain"]["value"] == pytest.approx(1.15, abs=0.03)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("identify", "log: is missing"),
        ("identify log.npz", "robot: is missing"),
        ("identify log.npz robot=arm held=log.npz", "held=log.npz: is also fitted"),
        ("identify log.npz robot=unitree_go2", "another robot than unitree_go2"),
        ("identify log.npz robot=arm out=x.txt", "out=x.txt: must end in .json"),
        ("identify excite", "robot: is missing"),
        ("identify excite robot=unitree_go2 out=log.npz", "is not an excitation of robot-rl identify"),
    ],
)
def test_a_refusal_is_one_line_and_writes_nothing(folder, capsys, words, line):
    before = sorted(folder.iterdir())
    assert main(words.split()) == 2
    assert line in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_an_excitation_is_written_and_written_again(folder):
    for _ in range(2):
        assert main(["identify", "excite", "robot=unitree_go2", "seconds=5", "rate=50", "out=play.npz"]) == 0
    with np.load("play.npz") as arrays:
        assert arrays["target"].shape == (250, 12)
        assert list(arrays["joints"])[:1] == ["FL_hip_joint"]
