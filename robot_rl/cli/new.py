"""robot-rl new: writes the working skeleton of a task or a robot, with its test."""

import keyword
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.cli.options import describe, option, read_all
from robot_rl.errors import UserError, as_user_error, suggest

TEMPLATES = Path(__file__).parent / "templates"
NAME = re.compile(r"[a-z][a-z0-9_]*")
KINDS = ("task", "robot")


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl new."""

    robot: str = option("unitree_go2", "the robot of a new task")
    root: str = option("", "the source tree to write into; the one this program runs from by default")


HELP = f"""\
robot-rl new: write the working skeleton of a task or a robot, with its test

usage: robot-rl new task <name> [robot=<robot>]
       robot-rl new robot <name>

{describe(Options)}

A task is one folder, tasks/robot_rl_tasks/<name>/; a robot is one folder, sim_assets/robot_rl_assets/<name>/. Nothing
else is edited: the registries find them, `robot-rl train task=<name>` works at once.
"""


def run(arguments: Sequence[str]) -> int:
    """Writes the files and says what to do next."""
    words = [word for word in arguments if "=" not in word]
    options = read_all(Options, [word for word in arguments if "=" in word])
    if len(words) != 2:
        raise UserError("new: write robot-rl new task <name>, or robot-rl new robot <name>")
    kind, name = words
    if kind not in KINDS:
        raise UserError(f"new {kind}: must be task or robot; {suggest(kind, KINDS)}")
    root = source_tree(options.root)
    check_name(kind, name, root)
    files = task_files(name, options.robot) if kind == "task" else robot_files(name)
    write_new(root, files)
    for path in files:
        print(root / path)
    print(f"next: {'robot-rl train task=' + name if kind == 'task' else 'robot-rl new task <name> robot=' + name}")
    return 0


def source_tree(root: str) -> Path:
    """The directory of the source tree.

    Raises:
        UserError: It is none, for example because the program runs from an installed wheel.
    """
    path = Path(root) if root else Path(__file__).resolve().parents[2]
    if not (path / "pyproject.toml").is_file() or not (path / "tasks" / "robot_rl_tasks").is_dir():
        raise UserError(f"root={path}: no source tree of robot-rl; clone it, pip install -e . and run it there")
    return path


def check_name(kind: str, name: str, root: Path) -> None:
    """Refuses a name that Python cannot import, or that is taken.

    Raises:
        UserError: The name does not do.
    """
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UserError(f"new {kind} {name}: a name is lower-case letters, digits and _, such as my_{kind}")
    for folder in ("tasks/robot_rl_tasks", "sim_assets/robot_rl_assets"):
        for taken in (root / folder / name, root / folder / f"{name}.py"):
            if taken.exists() and (kind == "task") == folder.startswith("tasks"):
                raise UserError(f"new {kind} {name}: {taken} is there already; take another name")


def task_files(name: str, robot_name: str) -> dict[str, str]:
    """The files of a new task, by path in the source tree.

    Raises:
        UserError: There is no such robot.
    """
    from robot_rl_assets.registry import get_robot

    with as_user_error():
        robot = get_robot(robot_name)
    driven = any(joint.kp for joint in robot.joints)
    words = {"name": name, "title": _title(name), "robot": robot_name, "actions": "position" if driven else "effort"}
    words |= dict.fromkeys(
        ("terminations_import", "termination_import", "base_observations", "terminations", "base_events"), ""
    )
    if robot.base_body is not None:
        words |= {
            "terminations_import": ", terminations",
            "termination_import": ", Termination",
            "base_observations": '        "gyro": Observation(observations.base_ang_vel, noise=0.2, scale=0.25),\n'
            '        "gravity": Observation(observations.projected_gravity, noise=0.05),\n',
            "terminations": '        terminations={"tilted": Termination(terminations.tilted, limit_rad=1.0)},\n',
            "base_events": '            "base": Event(events.reset_base, xy=0.5, yaw=3.14, velocity=0.2),\n',
        }
    return {
        f"tasks/robot_rl_tasks/{name}/__init__.py": fill("task.txt", words),
        f"tests/unit/tasks/test_task_{name}.py": fill("test_task.txt", words),
    }


def robot_files(name: str) -> dict[str, str]:
    """The files of a new robot, by path in the source tree."""
    words = {"name": name, "title": _title(name)}
    folder = f"sim_assets/robot_rl_assets/{name}"
    return {
        f"{folder}/__init__.py": f'"""{_title(name)}."""\n',
        f"{folder}/robot.py": fill("robot.txt", words),
        f"{folder}/model.xml": fill("model.txt", words),
        f"tests/unit/assets/test_robot_{name}.py": fill("test_robot.txt", words),
    }


def fill(template: str, words: Mapping[str, str]) -> str:
    """A template with every {{word}} replaced."""
    text = (TEMPLATES / template).read_text()
    for key, value in words.items():
        text = text.replace("{{" + key + "}}", value)
    return text


def write_new(root: Path, files: Mapping[str, str]) -> None:
    """Writes new files, all of them or none.

    Raises:
        UserError: One of them is there already.
        OSError: One cannot be written; those before it are removed again.
    """
    for path in files:
        if os.path.lexists(root / path):
            raise UserError(f"{root / path}: is there already")
    made: list[Path] = []
    try:
        for path, text in files.items():
            target = root / path
            made += [folder for folder in (target, *target.parents) if not folder.exists()]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
    except BaseException:
        for path in sorted(made, key=lambda path: len(path.parts), reverse=True):
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
        raise


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()
