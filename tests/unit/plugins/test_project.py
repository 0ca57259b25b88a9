"""The project in the working folder: found without an installation, and run only when it is named."""

import os
import subprocess
import sys

import pytest
from robot_rl_assets import project as projects
from robot_rl_assets.plugins import named_here
from robot_rl_assets.project import find_project
from robot_rl_tasks.registry import get_task, list_tasks

from robot_rl import plugins
from robot_rl.errors import UserError

TOML = """
[project]
name = "My_Stuff"
version = "1"
[project.entry-points."robot_rl.tasks"]
my_swing = "mystuff.swing:make_task"
[project.entry-points."robot_rl.launchers"]
mine = "mystuff.launcher:Mine"
[project.entry-points."robot_rl.commands"]
greet = "mystuff.greet"
[project.entry-points."robot_rl.sources"]
toy = "mystuff.toy:Toy"
[project.entry-points.console_scripts]
mine = "mystuff.cli:main"
"""
MARK = "import os, pathlib; pathlib.Path(os.environ['MARKS'], __name__).touch()\n"
TASK = """
from robot_rl_tasks.registry import get_task
def make_task():
    task = get_task("cartpole")
    task.name = "my_swing"
    return task
"""
MODULES = {
    "__init__": '"""Mine."""\n',
    "swing": f'"""A pole that swings."""\n{MARK}{TASK}',
    "greet": f'"""Greet.\n\nusage: robot-rl greet\n"""\n{MARK}def run(arguments):\n    print("hello")\n',
    "launcher": MARK,
    "toy": MARK,
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project in the working folder; its modules leave a mark when they are imported."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("MARKS", str(tmp_path / "marks"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "here"
    for part in ("marks", "here", "here/mystuff"):
        (tmp_path / part).mkdir()
    (folder / "pyproject.toml").write_text(TOML)
    for name, text in MODULES.items():
        (folder / "mystuff" / f"{name}.py").write_text(text)
    monkeypatch.chdir(folder)
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith("mystuff"):
            del sys.modules[name]


def marks(project):
    """The modules that were imported."""
    return sorted(path.name for path in (project.parent / "marks").iterdir())


def test_nothing_of_it_runs_before_it_is_named(run, project):
    assert "my_swing" in list_tasks()
    assert find_project().name == "my-stuff"
    assert "A pole that swings (of my-stuff, in this folder)" in run("list")[1]
    assert "greet         of my-stuff" in run("--help")[1]
    assert run("manifest", "--help")[0] == run("train", "--help")[0] == 0
    assert "mine" not in plugins.find_plugins("console_scripts")
    assert "unknown command 'gret': did you mean 'greet'?" in run("gret")[2]
    assert marks(project) == []
    assert get_task("my_swing").name == "my_swing"
    assert run("greet")[1] == "hello\n"
    assert marks(project) == ["mystuff.greet", "mystuff.swing"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\n\n@reward\ndef f(): ...\n", "gait.py:3: NameError: name 'reward' is not defined)"),
        ("x = 1\ny = (\n", "gait.py:2: SyntaxError"),
        ("import json\njson.loads('')\n", "gait.py:2: JSONDecodeError"),
        ("import mystuff.nothing\n", "gait.py:1: cannot import mystuff.nothing"),
    ],
)
def test_a_mistake_in_it_is_named_by_file_and_line(project, text, line):
    (project / "mystuff" / "gait.py").write_text(text)
    (project / "mystuff" / "swing.py").write_text("import mystuff.gait\n")
    for name in [name for name in sys.modules if name.startswith("mystuff")]:
        del sys.modules[name]
    with pytest.raises(UserError) as error:
        plugins.load(plugins.TASKS, "my_swing", "task")
    assert f"{project}/mystuff/{line}" in str(error.value)
    assert str(error.value).endswith("; correct the project in this folder")


def test_only_the_file_of_the_working_folder_counts(project, monkeypatch):
    monkeypatch.chdir(project / "mystuff")
    assert "my_swing" not in list_tasks()


def test_a_source_folder_is_where_its_packages_are(project):
    (project / "src").mkdir()
    (project / "mystuff").rename(project / "src" / "mystuff")
    assert get_task("my_swing").name == "my_swing"


def make_others(project, monkeypatch):
    monkeypatch.setattr(projects.os, "getuid", lambda: os.stat(project).st_uid + 1)


def make_open(project, _):
    (project / "pyproject.toml").chmod(0o666)


def make_damaged(project, _):
    (project / "pyproject.toml").write_text('# robot_rl.\nproject = "x"\n')


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (make_others, "is not used: it or its folder belongs to another user"),
        (make_open, "is not used: everybody may write it or its folder"),
        (make_damaged, "is not used: it is damaged (string indices"),
    ],
)
def test_one_that_is_not_used_says_why(run, project, monkeypatch, change, why):
    change(project, monkeypatch)
    assert "my_swing" not in list_tasks()
    code, _, err = run("train", "task=my_swing")
    assert (code, f"{project}/pyproject.toml {why}" in err) == (2, True)
    assert run("list", "tasks")[0] == 0


def test_a_link_is_not_followed(project):
    (project / "pyproject.toml").rename(project / "other.toml")
    (project / "pyproject.toml").symlink_to("other.toml")
    assert find_project() == projects.Project()


def test_of_an_installed_project_only_what_was_added_since_is_of_the_folder(install, project):
    groups = {"robot_rl.tasks": {"my_swing": "elsewhere:make_task"}, "robot_rl.robots": {"old": "elsewhere:ROBOT"}}
    install("my.stuff", groups, {"elsewhere": TASK})
    found = plugins.find_plugins(plugins.TASKS)["my_swing"]
    assert (found.target, found.packages, found.folder) == ("elsewhere:make_task", ("my.stuff",), "")
    assert plugins.find_plugins(plugins.LAUNCHERS)["mine"].folder == str(project)


def test_another_package_with_the_same_name_is_a_conflict(install, project):
    install("theirs", {"robot_rl.tasks": {"my_swing": "elsewhere:make_task"}}, {"elsewhere": TASK})
    with pytest.raises(UserError, match="of theirs and of my-stuff have the same name"):
        plugins.load(plugins.TASKS, "my_swing", "task")
    assert marks(project) == []


def test_a_run_of_somebody_else_does_not_run_it(run, project, tiny):
    assert run("train", "task=my_swing", *tiny, "run_id=a")[0] == 0
    assert run("eval", "run=a", "episodes=2", "seconds=0.2", "form=torch")[0] == 0  # Trained here, so it has a seal.
    (project.parent / "state" / "robot-rl" / "key").unlink()
    for command in (["eval", "run=a"], ["resume", "a"], ["export", "run=a"]):
        code, _, err = run(*command)
        assert code == 2
        assert "run a was not made here, and would import mystuff.swing:make_task; give trust=true" in err
    assert named_here(plugins.TASKS, "cartpole") == []


def test_processes_that_a_launcher_starts_find_it(project, tiny, start_python):
    words = ["train", "task=my_swing", *tiny, "run_id=b", "device=cpu", "launcher=local"]
    process = start_python(["-m", "robot_rl.cli.main", *words], cwd=project, env=dict(os.environ))
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert (project / "runs/my_swing/b/checkpoints/000002").is_dir()


def test_finding_it_imports_no_parser_if_there_is_none(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    code = "import sys; from robot_rl.cli.main import main; main(['--help']); sys.exit('tomllib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True).returncode == 0
