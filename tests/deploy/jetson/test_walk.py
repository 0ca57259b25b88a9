"""docs/robot.md: its commands, options, lines and names are those of the programs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from robot_rl.cli.main import COMMANDS

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "robot.md").read_text()
FAULTS = (ROOT / "docs" / "safety.md").read_text()
SCRIPTS = ROOT / "deploy_jetson" / "robot_rl_deploy" / "jetson"


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_its_commands_are_there():
    named = set(re.findall(r"robot-rl ([a-z0-9-]+)", TEXT))
    assert {"deploy", "sim2sim", "sign", "replay", "latency", "import-mjlab"} <= named
    assert named <= set(COMMANDS)
    for script in re.findall(r"\./([a-z]+\.sh)", TEXT):
        assert (SCRIPTS / script).is_file()
    for page in re.findall(r"\]\(([a-z_]+\.md)", TEXT):
        assert (ROOT / "docs" / page).is_file()


def test_its_options_are_those_of_the_programs(infer):
    known = infer("--help").stdout + "".join(path.read_text() for path in SCRIPTS.glob("*.*"))
    options = set(re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*", TEXT))
    assert {"--cpu-writer", "--require-realtime", "--operator", "--packages", "--service"} <= options
    assert {option for option in options if not re.search(rf"{option}(?![a-z-])", known)} == set()


def test_the_doctors_lines_are_those_that_it_prints():
    table = TEXT[TEXT.index("| line |") :].split("\n\n")[0]
    described = {
        name for row in table.strip().splitlines()[2:] for name in re.findall(r"`([a-z_]+)[^`]*`", row.split("|")[1])
    }
    words = [sys.executable, SCRIPTS / "doctor.py", "--seconds", "0.02"]
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stdout
    printed = {line.split()[1] for line in said.splitlines()[:-1]}
    assert printed == described


def test_the_faults_that_it_names_are_faults():
    table = TEXT[TEXT.index("| symptom |") :].split("\n\n")[0]
    names = set(re.findall(r"`([a-z]+(?:_[a-z]+)*)`", table)) & set(
        re.findall(r"^\| `([a-z_]+)` \|", FAULTS, re.MULTILINE)
    )
    assert {"second_commander", "state_age", "deadline"} <= names


@pytest.mark.parametrize("code", blocks("python"))
def test_its_python_is_an_operator_that_the_binary_hears(rt, code, monkeypatch):
    sent = []

    class Ears(rt.OperatorEnd):
        def send(self, command, request):
            sent.append((list(command), request, super().send(command, request)))

    monkeypatch.setattr(rt, "OperatorEnd", Ears)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    exec(compile(code, "docs/robot.md", "exec"), {})
    assert sent[0] == ([0.0, 0.0, 0.0], rt.Request.STAND, True)
    assert len(sent) == 200
