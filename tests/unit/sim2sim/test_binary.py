"""Where the robot's binary is missing."""

import sys
from pathlib import Path

import pytest

from robot_rl.errors import UserError
from robot_rl.sim2sim.binary import load_runtime


def test_the_line_names_sources_that_are_here(monkeypatch):
    monkeypatch.setitem(sys.modules, "robot_rl_runtime", None)
    with pytest.raises(UserError, match="the robot's runtime is not here .*; pip install .* compiles it") as error:
        load_runtime()
    folder = Path(str(error.value).partition("pip install ")[2].partition(" compiles")[0])
    assert (folder / "pyproject.toml").is_file()
