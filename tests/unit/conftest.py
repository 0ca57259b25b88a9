"""A command line that runs in this process, a tiny run for the tests that need one, and packages made by hand."""

import sys
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


@pytest.fixture(scope="session")
def browser(chromium, tmp_path_factory):
    """A headless browser; starting one takes seconds."""
    from tests.unit.browser import Page

    page = Page(chromium, tmp_path_factory.mktemp("browser"))
    yield page
    page.close()


@pytest.fixture
def page(browser):
    """A headless browser's page."""
    browser.events.clear()
    yield browser
    browser.call("Emulation.clearDeviceMetricsOverride")
    browser.prefer("")
    browser.call("Page.navigate", url="about:blank")


@pytest.fixture
def in_tmp(tmp_path, monkeypatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def arm_task(tmp_path):
    """make(kind, **fields): the arm with a "position", "pose" or "moving" command, or one of one's own."""
    from tests.unit.arm import KINDS, make_arm_task

    return lambda kind, **fields: make_arm_task(tmp_path / "arm3.xml", KINDS.get(kind, kind), **fields)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """install(distribution, {group: {name: target}}, {module: text}): becomes installed for this test."""
    folder, before = tmp_path / "site", set(sys.modules)
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def make(distribution, groups, modules):
        for name, text in modules.items():
            path = folder / f"{name.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        lines = [
            line
            for group, entries in groups.items()
            for line in (f"[{group}]", *(f"{name} = {target}" for name, target in entries.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        return folder

    yield make
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
