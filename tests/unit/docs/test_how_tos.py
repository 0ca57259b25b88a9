"""The how-tos are right: their files are written and their commands and code run, in order, in a copy of the tree.

A block's first line specifies what is done with it: `python file=PATH` writes a file, `append=PATH` adds to one,
`insert=PATH after="TEXT"` adds lines behind the first line with that text; a plain `python` is run, and so is each line
of `console`. Trainings and evaluations are made small. `console skip` needs a screen or a person; `console model=KIND`
begins with a model of a stranger's, and is run with one of ours.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import lacking
from tests.unit.own_models import write_arm, write_quadruped

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
HOW_TOS = ("new_reward", "new_task", "new_robot", "real_to_sim", "teams")
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TREES = ("tasks", "sim_assets", "envs")
SMALL = {
    "train": ["num_envs=8", "num_steps=4", "max_iterations=1", "num_threads=1"],
    "eval": ["episodes=2", "seconds=1.5"],
    "video": ["seconds=0.2", "width=160", "height=96"],
    "certify": ["budget=100", "seconds=1.0"],
    "check": [],
    "explain": [],
    "identify": [],
    "export": [],
}
OWN_MODELS = {"quadruped": write_quadruped, "arm": write_arm}


def blocks(text):
    """(language, attributes, content) of every block."""
    for language, head, content in BLOCK.findall(text):
        words = [word.partition("=") for word in shlex.split(head)]
        yield language, {key: value for key, _, value in words}, content


@pytest.fixture
def copy(tmp_path):
    """A copy of the packages and tests that a how-to may change."""
    ignore = shutil.ignore_patterns("__pycache__", "policy", ".pytest_cache")
    for name in TREES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    for name in ("envs", "assets"):
        shutil.copytree(ROOT / "tests" / "unit" / name, tmp_path / "tests" / "unit" / name, ignore=ignore)
    for name in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def python(start_python, copy):
    """Runs Python where the copy's packages come first."""
    path = os.pathsep.join(str(copy / name) for name in TREES)

    def call(*words):
        process = start_python(words, cwd=copy, env={**os.environ, "PYTHONPATH": path})
        output, _ = process.communicate()
        assert process.returncode == 0, f"{' '.join(words)}\n{output}"

    return call


def run_line(python, copy, line):
    """Runs one line of a console block."""
    program, *words = shlex.split(line)
    if program == "python":
        return python(*words)
    assert program == "robot-rl", line
    small = SMALL.get(words[0], []) if words[0] != "new" else [f"root={copy}"]
    return python("-m", "robot_rl.cli.main", *words, *small)


def write(copy, attributes, content):
    """Writes the content of a block into its file; returns the file, None where the block names none."""
    if "file" in attributes:
        path = copy / attributes["file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    elif "append" in attributes:
        path = copy / attributes["append"]
        path.write_text(path.read_text() + content)
    elif "insert" in attributes:
        path = copy / attributes["insert"]
        lines = path.read_text().splitlines(keepends=True)
        places = [number for number, line in enumerate(lines) if attributes["after"] in line]
        assert places, f"{path}: no line with {attributes['after']}"
        lines.insert(places[0] + 1, content)
        path.write_text("".join(lines))
    else:
        return None
    return str(path)


@pytest.mark.long
@pytest.mark.parametrize("name", HOW_TOS)
def test_a_how_to_works_from_top_to_bottom(python, copy, name):
    if name == "real_to_sim" and importlib.util.find_spec("robot_rl_runtime") is None:
        lacking("no robot_rl_runtime here (make runtime)")
    done, touched = 0, set()
    for language, attributes, content in blocks((DOCS / f"{name}.md").read_text()):
        if "skip" in attributes or "model" in attributes:
            continue
        if language == "console":
            for line in content.splitlines():
                run_line(python, copy, line)
        elif (path := write(copy, attributes, content)) is not None:
            touched.add(path)
        else:
            assert language == "python", language
            python("-c", content)
        done += 1
    assert done >= 2
    modules = sorted(path for path in touched if path.endswith(".py"))
    for check in (["check"], ["format", "--check"]) if modules else ():
        subprocess.run([sys.executable, "-m", "ruff", *check, *modules], cwd=copy, check=True)


@pytest.mark.long
@pytest.mark.parametrize("kind", OWN_MODELS)
def test_a_stranger_gets_from_a_model_to_a_policy(python, copy, gl, kind):
    """The walk-through of docs/new_robot.md, line by line, and the tests that it writes."""
    (block,) = [
        content
        for _, attributes, content in blocks((DOCS / "new_robot.md").read_text())
        if attributes.get("model") == kind
    ]
    lines = block.splitlines()
    (source,) = re.findall(r"from=(\S+)", block)
    OWN_MODELS[kind](copy / source)
    for line in lines:
        run_line(python, copy, line)
    assert [shlex.split(line)[1] for line in lines[:5]] == ["new", "check", "new", "train", "eval"]
    robot, task = (shlex.split(lines[k])[3] for k in (0, 2))
    python("-m", "pytest", "-q", f"tests/unit/assets/test_robot_{robot}.py", f"tests/unit/tasks/test_task_{task}.py")
    (run,) = (copy / "runs" / task).glob("2*")
    assert sorted(path.name for path in (run / "checkpoints").iterdir())[-1] == "000001"
    assert list(run.rglob("*.onnx" if kind == "arm" else "*.mp4"))


def test_every_link_in_the_documents_leads_somewhere():
    for page in (ROOT / "README.md", *DOCS.glob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_files_that_the_documents_name_are_there():
    for page in (ROOT / "README.md", *DOCS.glob("*.md")):
        text = BLOCK.sub("", page.read_text())
        for path in re.findall(r"`((?:envs|tasks|sim_assets|robot_rl|deploy_jetson|tests)/[\w/.-]+\.\w+)`", text):
            assert (ROOT / path).exists(), f"{page.name}: {path}"


def test_the_drawing_is_drawn():
    import xml.etree.ElementTree as ElementTree

    root = ElementTree.parse(DOCS / "architecture.svg").getroot()
    assert root.tag.endswith("svg")
    assert "architecture.svg" in (DOCS / "architecture.md").read_text()


def test_blocks_are_found_with_their_attributes():
    text = 'x\n```python insert=a/b.py after="c = {"\n  1\n```\n```console\nls\n```\n'
    assert list(blocks(text)) == [
        ("python", {"insert": "a/b.py", "after": "c = {"}, "  1\n"),
        ("console", {}, "ls\n"),
    ]
