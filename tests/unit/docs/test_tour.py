"""docs/tour.md is true: its files, their lines, and the way from the command to the loss."""

import re
import traceback
from pathlib import Path

from robot_rl.cli.main import main
from robot_rl.learn.algorithms.ppo.ppo import PPO

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "tour.md").read_text()


def lines(path):
    return len((ROOT / path).read_text().splitlines())


def test_twelve_files_of_at_most_3000_lines_as_it_says():
    files = re.findall(r"^\d+\. \[`([^`]+)`\]\(\.\./([^)]+)\)", TEXT, re.MULTILINE)
    assert all(name == link for name, link in files)
    assert len(files) == 12
    total = sum(lines(name) for name, _ in files)
    assert total <= 3000
    assert f"Twelve files, {total} lines" in TEXT


def test_from_the_command_to_the_loss_are_the_files_that_it_names(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    loss, found = PPO.loss, []

    def noted(self, *arguments):
        stack = [Path(frame.filename) for frame in traceback.extract_stack()[:-1]]
        own = [path.relative_to(ROOT) for path in stack if path.is_relative_to(ROOT / "robot_rl")]
        found[:] = dict.fromkeys(map(str, own))
        return loss(self, *arguments)

    monkeypatch.setattr(PPO, "loss", noted)
    assert main(["train", "task=cartpole", "num_envs=4", "max_iterations=1", "device=cpu", "num_threads=1"]) == 0
    named = re.findall(r"`(\w+/[\w/]+\.py)`", TEXT.partition("From the command to the loss")[2])
    assert sorted(found) == sorted(f"robot_rl/{name}" for name in named)
    assert len(found) <= 10
    assert sum(map(lines, found)) <= 2500
