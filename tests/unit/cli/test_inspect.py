"""robot-rl inspect from the command line."""

import numpy as np
import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.cli.main import main


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The file of a cart-pole that was given an action that is not a number."""
    env = make_env(get_task("cartpole"), num_envs=2, engine="mujoco", num_threads=1)
    env.quarantine_dir = tmp_path_factory.mktemp("quarantine")
    for step in range(15):
        env.step(torch.full((2, 1), np.nan if step == 14 else 0.2))
    env.close()
    return min(env.quarantine_dir.iterdir())


def test_a_table_a_page_and_an_image(recorded, tmp_path, capsys, gl):
    out = tmp_path / "deep" / "page.html"
    assert main(["inspect", str(recorded), f"out={out}"]) == 0
    output = capsys.readouterr().out
    for words in ("world 0 of cartpole", "the action was not finite (action of", "Not reproduced", "fastest growing"):
        assert words in output
    assert str(out) in output
    assert "data:image/jpeg" in out.read_text()
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_the_page_is_next_to_the_file(recorded, tmp_path, capsys):
    mine = tmp_path / recorded.name
    mine.write_bytes(recorded.read_bytes())
    assert main(["inspect", str(mine)]) == 0
    assert mine.with_suffix(".html").is_file()
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "inspect: takes one file, got 0"),
        (["a.npz", "b.npz"], "inspect: takes one file, got 2"),
        (["nowhere.npz"], "nowhere.npz: no such file"),
        (["nowhere.npz", "outt=x"], "unknown key 'outt'"),
    ],
)
def test_bad_input_is_one_line(words, line, capsys):
    assert main(["inspect", *words]) == 2
    output = capsys.readouterr().err
    assert line in output
    assert output.count("\n") == 1


def test_a_page_has_its_name(recorded, capsys):
    assert main(["inspect", str(recorded), "out=page.txt"]) == 2
    assert "out=page.txt: must end in .html" in capsys.readouterr().err


def test_a_foreign_file_is_refused_without_advice_to_load_pickles(tmp_path, capsys):
    file = tmp_path / "foreign.npz"
    file.write_text("junk")
    assert main(["inspect", str(file)]) == 2
    line = capsys.readouterr().err
    assert str(file) in line
    assert "no zip archive" in line
    assert "pickle" not in line
