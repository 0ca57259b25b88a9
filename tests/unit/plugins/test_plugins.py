"""Plug-ins: found without an import, loaded by name or by module, and one line where one cannot be used."""

import subprocess
import sys

import pytest
from robot_rl_assets.registry import get_robot, list_robots
from robot_rl_tasks.registry import get_task, list_tasks

from robot_rl import plugins
from robot_rl.errors import UserError
from robot_rl.sources.registry import list_sources

ROBOT = """
import dataclasses
from robot_rl_assets.registry import get_robot as _get
ROBOT = dataclasses.replace(_get("cartpole"), name="{name}")
def make():
    return ROBOT
"""
TASK = """
from robot_rl_tasks.registry import get_task
def make_task():
    task = get_task("cartpole")
    task.name = "{name}"
    return task
"""


def test_a_robot_and_a_task_of_another_package(install):
    groups = {
        "robot_rl.robots": {"their_cart": "their_stuff:make"},
        "robot_rl.tasks": {"their_swing": "swing:make_task"},
    }
    modules = {"their_stuff": ROBOT.format(name="their_cart"), "swing": TASK.format(name="their_swing")}
    install("their-package", groups, modules)
    assert "their_cart" in list_robots()
    assert "their_swing" in list_tasks()
    assert "their_stuff" not in sys.modules
    assert get_robot("their_cart").name == "their_cart"
    assert get_robot("their_stuff:ROBOT").name == "their_cart"
    assert get_task("their_swing").name == get_task("swing:make_task").name == "their_swing"
    assert plugins.find_plugins(plugins.TASKS)["their_swing"].packages == ("their-package",)


def test_a_module_in_the_working_directory_need_not_be_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "local_tasks.py").write_text(TASK.format(name="here"))
    assert get_task("local_tasks:make_task").name == "here"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises", "x=raises: the plug-in of bad-one cannot be used: raises fails at its import (/"),
        ("raises", "/raises.py:2: RuntimeError: no luck); repair or uninstall that package"),
        ("leaves", "/leaves.py:1: SystemExit: 3); repair or uninstall that package"),
        ("gone", "cannot import nowhere_at_all; repair or uninstall that package"),
        ("lacks", "good has no 'make_taks'; did you mean 'make_task'?"),
        ("twice", "x=twice: the plug-in of bad-one and of bad-two have the same name; uninstall one of them"),
        ("nothing", "x=nothing: must be one of a b, fine, "),
        ("fne", "did you mean 'fine'?"),
        ("a b", "must be called by letters, digits"),
        ("good:", "x=good:: must be written module:name"),
        ("..good:x", "must be written module:name"),
        ("good:mak_task", "x=good:mak_task: good has no 'mak_task'; did you mean 'make_task'?"),
        (
            "no_such_module:x",
            "x=no_such_module:x: cannot import no_such_module; install it, or start in the folder of its file",
        ),
    ],
)
def test_one_that_cannot_be_used_is_one_line_and_the_others_work(install, name, message):
    modules = {
        "good": TASK.format(name="fine"),
        "raises": "\nraise RuntimeError('no\\nluck')",
        "leaves": "raise SystemExit(3)",
    }
    targets = {"fine": "good:make_task", "raises": "raises:x", "leaves": "leaves:x", "gone": "nowhere_at_all:x"}
    targets |= {"lacks": "good:make_taks", "twice": "good:make_task", "a b": "good:make_task"}
    install("bad-one", {"robot_rl.tasks": targets}, modules)
    install("bad-two", {"robot_rl.tasks": {"twice": "good:make_task"}}, {})
    with pytest.raises(UserError) as error:
        plugins.load(plugins.TASKS, name, "x")
    assert message in str(error.value)
    assert plugins.load(plugins.TASKS, "fine", "x")().name == "fine"
    assert get_task("cartpole").name == "cartpole"


def test_a_name_that_leads_to_something_else(install):
    targets = {"other": "stuff:make_task", "number": "stuff:NUMBER", "path": "stuff:PATH"}
    text = TASK.format(name="their") + "NUMBER = 3\n\ndef up():\n    task = make_task()\n    task.name = '../up'\n"
    install(
        "x",
        {"robot_rl.tasks": targets, "robot_rl.robots": {"number": "stuff:NUMBER"}},
        {"stuff": text + "    return task\n"},
    )
    for find, name, message in (
        (get_task, "other", "its name is 'their'; must be 'other'"),
        (get_task, "number", "must lead to a function that returns a Task, found 3"),
        (get_task, "stuff:up", "its name is '../up'; must be letters"),
        (get_robot, "number", "it must be a Robot, or a function that returns one, found 3"),
    ):
        with pytest.raises(ValueError, match="=") as error:
            find(name)
        assert message in str(error.value)


MAKERS = """
called = []

def needs(name):
    called.append(name)

def fails():
    return 1 / 0

def leaves():
    raise SystemExit(3)

def wrong():
    raise ValueError("gains=-1: must be positive")
"""
UNUSABLE = [
    ("needs", "cannot be called without arguments (missing a required argument: 'name')"),
    ("fails", "makers.py:8: ZeroDivisionError: division by zero"),
    ("leaves", "makers.py:11: SystemExit: 3"),
    ("wrong", "makers.py:14: gains=-1: must be positive"),
    ("called", "found []"),
]


@pytest.mark.parametrize(("name", "message"), [*UNUSABLE, ("os:system", "cannot be called without arguments")])
@pytest.mark.parametrize(("command", "key"), [("check", "robot"), ("train", "task")])
def test_a_reference_to_something_else_is_one_line(run, tmp_path, monkeypatch, command, key, name, message):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "makers", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "makers.py").write_text(MAKERS)
    reference = name if ":" in name else f"makers:{name}"
    code, out, err = run(command, f"{key}={reference}")
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert f"{key}={reference}: " in err
    assert message in err


def test_a_function_with_arguments_gets_them():
    assert plugins.make(lambda rows: dict(rows), dict, "x=y", "must return a dict", [(1, 2)]) == {1: 2}
    for arguments, message in (((1, 2), "cannot be called with 2 arguments"), ((3,), "TypeError: 'int' object")):
        with pytest.raises(UserError, match=f"^x=y: .*{message}"):
            plugins.make(lambda rows: dict(rows), dict, "x=y", "must return a dict", *arguments)
    with pytest.raises(UserError, match="^x=y: must return a dict, found 3"):
        plugins.make(lambda rows: rows, dict, "x=y", "must return a dict", 3)


@pytest.mark.parametrize("name", ["needs", "fails", "called"])
def test_a_source_that_cannot_be_made_leaves_the_others(install, name):
    install("bad-source", {"robot_rl.sources": {"bad": f"makers:{name}"}}, {"makers": MAKERS})
    list_sources.cache_clear()
    try:
        assert [source.name for source in list_sources()][-1] == "robot-rl"
    finally:
        list_sources.cache_clear()


def test_nothing_heavy_is_imported():
    code = "import sys, robot_rl.plugins as p; p.find_plugins(p.TASKS); print({'torch', 'mujoco'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
