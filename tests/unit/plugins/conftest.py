"""Distributions made by hand: a module and the metadata that declares its entry points."""

import sys

import pytest


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
