"""robot-rl explain: the lines, the file and the page that a user sees."""

import json
import re

import numpy as np
import pytest
from robot_rl_assets import registry

from robot_rl.cli.main import main


@pytest.fixture
def folder(arm, swing, tmp_path, monkeypatch):
    """A folder with the arm's log, in which the arm is a robot that is found by name."""
    monkeypatch.chdir(tmp_path)
    get = registry.get_robot
    monkeypatch.setattr(registry, "get_robot", lambda name: arm if name == "arm" else get(name))
    np.savez("log.npz", **swing(friction=0.6))
    return tmp_path


def test_a_log_becomes_lines_a_file_and_a_page(folder, capsys):
    assert main(["explain", "log.npz", "robot=arm"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-2:] == ["log.explained.json", "log.explained.html"]
    assert any(line.startswith("cause: dry friction: 0.") for line in out)
    data = json.loads((folder / "log.explained.json").read_text())
    assert data["format"] == "robot_rl.explained"
    assert data["found"][0]["cause"] == "dry friction"
    page = (folder / "log.explained.html").read_text()
    (content,) = re.findall(r'id="data">(.*?)</script>', page)
    assert [chart["title"] for chart in json.loads(content)["charts"]][1:] == ["upper", "lower"]
    assert f"part at {data['first_s']:.2f} s" in "\n".join(out)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("explain", "log: is missing"),
        ("explain log.npz log.npz robot=arm", "log: name one"),
        ("explain log.npz", "robot: is missing"),
        ("explain log.npz robot=unitree_go2", "another robot than unitree_go2"),
        ("explain log.npz robot=arm against=log.npz", "log.npz"),
        ("explain log.npz robot=arm out=x.txt", "out=x.txt: must end in .json"),
    ],
)
def test_a_refusal_is_one_line_and_writes_nothing(folder, capsys, words, line):
    before = sorted(folder.iterdir())
    assert main(words.split()) == 2
    assert line in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before
