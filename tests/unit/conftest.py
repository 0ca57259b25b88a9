"""A command line that runs in this process, and a tiny run for the tests that need one."""

from pathlib import Path

import pytest

from robot_rl.cli.main import main


class Settings(tuple[str, ...]):
    """Words key=value, each key once."""

    def but(self, *words: str) -> tuple[str, ...]:
        """These words, in the place of those that set the same."""
        keys = {word.partition("=")[0] for word in words}
        return (*(word for word in self if word.partition("=")[0] not in keys), *words)


# Cartpole, as little of it as trains at all.
TINY = Settings(
    ("num_envs=4", "num_steps=4", "max_iterations=2", "actor.hidden=[8]", "critic.hidden=[8]", "num_threads=1")
)


@pytest.fixture(scope="session")
def tiny() -> Settings:
    """Settings of a training that takes a moment."""
    return TINY


@pytest.fixture(scope="session")
def small_run(tmp_path_factory) -> Path:
    """The directory of a finished tiny run, to be read and not changed."""
    root = tmp_path_factory.mktemp("small") / "runs"
    assert main(["train", "task=cartpole", *TINY, f"root={root}"]) == 0
    (path,) = root.glob("cartpole/*")
    return path


@pytest.fixture
def in_tmp(tmp_path, monkeypatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
