"""The page about Gymnasium is right: its code and its commands run, in order."""

import re
import shlex
from pathlib import Path

import pytest

from robot_rl.cli.main import main

PAGE = (Path(__file__).parents[4] / "docs" / "gymnasium.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CODE = [code for language, code in BLOCKS if language == "python"]
COMMANDS = [line for language, code in BLOCKS if language == "console" for line in code.splitlines()]
SMALL = {"train": ["num_envs=2", "ppo.minibatches=2", "ppo.epochs=1"]}


@pytest.mark.long
def test_the_commands_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) == 5
    for line in COMMANDS:
        program, *words = shlex.split(line)
        assert program == "robot-rl"
        assert main([words[0], *SMALL.get(words[0], []), *words[1:]]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("code", CODE, ids=["learner", "worlds"])
def test_the_code_runs(code, capsys):
    exec(compile(code, "docs/gymnasium.md", "exec"), {})
