"""Write the skeleton of your own task, robot or package, with its tests.

usage: robot-rl new task <name> [robot=<robot>] [kind=velocity|drive|reach|pose] [hand=<site or body>]
       robot-rl new robot <name> [from=<model.xml or .urdf>]
       robot-rl new project <name>

{Options}

A task is made for its robot: one with feet or with wheels follows a velocity command, a fixed arm reaches for targets,
another holds its default pose (kind=).

With from= a robot is drafted from its own model: joints, limits, gains, default pose, feet and mirror; the guesses
are reported. Without it a small arm is written, to be replaced.

A task is one folder, and so is a robot: in robot-rl's source tree tasks/robot_rl_tasks/<name>/ and
sim_assets/robot_rl_assets/<name>/, where nothing else is edited. A project is a package outside of it, with a robot, a
task, a loss, tests and the entry points by which robot-rl finds them in its folder, and everywhere once it is installed
(docs/plugins.md); inside one, new tasks and robots are written into its package and its pyproject.toml.
"""

import ast
import importlib.util
import keyword
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from robot_rl.cli.options import option, read_all, split_bare
from robot_rl.errors import UserError, as_user_error, one_of

TEMPLATES = Path(__file__).parent / "templates"
NAME = re.compile(r"[a-z][a-z0-9_]*")
KINDS = ("task", "robot", "project")


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl new."""

    robot: str = option("unitree_go2", "the robot of a new task")
    kind: str = option("auto", "the kind of a new task: velocity, drive, reach, pose, or auto: as the robot can")
    hand: str = option("", "site or body that a new task brings to targets; by default a gripper's or tool's frame")
    from_: str = option("", "a new robot's own model: an .xml of MuJoCo's or a .urdf")
    base: str = option("auto", "floating, fixed, or auto: as the model has it; a URDF with several limbs floats")
    collision: str = option(
        "meshes", "meshes, primitives (boxes and capsules around them) or boxes (no mesh files needed)"
    )
    frequency: float = option(5.0, "natural frequency of the joints with their gains [Hz]", least=0.1, most=100.0)
    damping: float = option(1.0, "damping ratio of the joints with their gains", least=0.0, most=100.0)
    image: str = option("", "a PNG with the source on the left and the new robot on the right")
    root: str = option("", "where to write; by default the current project, else robot-rl's source tree")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where skeletons are written: the root of robot-rl's source tree (`package` is empty), or of a project."""

    root: Path
    package: str = ""

    def folder(self, kind: str, name: str) -> str:
        """Return the folder of a task or robot, relative to the root."""
        tree = {"task": "tasks/robot_rl_tasks", "robot": "sim_assets/robot_rl_assets"}[kind]
        return f"{self.package or tree}/{name}"

    def test(self, kind: str, name: str) -> str:
        """Return the file of its test, relative to the root."""
        folder = "tests" if self.package else {"task": "tests/unit/tasks", "robot": "tests/unit/assets"}[kind]
        return f"{folder}/test_{kind}_{name}.py"


def run(arguments: Sequence[str]) -> int:
    """Write the files and print the next steps."""
    words, rest = split_bare(arguments)
    options = read_all(Options, rest)
    if len(words) != 2:
        raise UserError("new: write robot-rl new task <name>, robot-rl new robot <name> or robot-rl new project <name>")
    kind, name = words
    if kind not in KINDS:
        raise UserError(f"new {kind}: {one_of(kind, KINDS)}")
    if keyword.iskeyword(name):
        raise UserError(f"new {kind} {name}: is a word of Python; take another name, such as my_{kind}")
    if not NAME.fullmatch(name):
        raise UserError(f"new {kind} {name}: a name is lower-case letters, digits and _, such as my_{kind}")
    _refuse_unused(kind, options)
    if kind == "project":
        root, files = make_project(name, Path(options.root or "."))
        steps = f"cd {root} && robot-rl train task={name}_task max_iterations=20"
        for path in files:
            print(root / path)
    else:
        place = find_place(options.root)
        check_free(kind, name, place)
        if options.from_:
            return _draft_robot(name, options, place)
        if kind == "task":
            files = task_files(name, options.robot, place, options.kind, options.hand)
        else:
            files = robot_files(name, place)
        write_into(place, kind, name, files)
        if kind == "task":
            _print_targets(place.folder("task", name), files)
        steps = f"robot-rl train task={name}" if kind == "task" else f"robot-rl new task <name> robot={name}"
        steps = f"cd {place.root} && {steps}" if place.package and place.root.resolve() != Path.cwd() else steps
    print(f"next: {steps}")
    return 0


def _print_targets(folder: str, files: Mapping[str, str]) -> None:
    """Print the hand of a reaching task and the box of its targets."""
    found = dict(re.findall(r"^(HAND|REACH_M) = (.+)$", files[f"{folder}/__init__.py"], re.MULTILINE))
    if found:
        hand, box = ast.literal_eval(found["HAND"]), ast.literal_eval(found["REACH_M"])
        ends = ", ".join(f"{axis} {box[f'{axis}_lo']:g} to {box[f'{axis}_hi']:g}" for axis in "xyz")
        where = f"{folder}/__init__.py has them as HAND and REACH_M"
        print(f"  the hand '{hand}' reaches for targets in the box {ends} m; {where}")


def _refuse_unused(kind: str, options: Options) -> None:
    """Raise UserError for an option that is given and does not have an effect."""
    of_models = ("base", "collision", "frequency", "damping", "image")
    used = {"task": ("robot", "kind", "hand"), "robot": ("from_", *of_models), "project": ()}[kind]
    default = Options()
    for name in (field.name for field in fields(Options)):
        value = getattr(options, name)
        if name == "root" or value == getattr(default, name):
            continue
        if name not in used:
            raise UserError(name.rstrip("_"), value, f"does not affect new {kind}", "omit it")
        if name in of_models and not options.from_:
            raise UserError(name, value, f"does not affect new {kind} without from=", "omit it")


def _draft_robot(name: str, options: Options, place: Place) -> int:
    """Write a robot that is drafted from its own model, check it, and print the reasons of every guess."""
    from robot_rl.robots.draft import draft_robot, listening, make_robot
    from robot_rl.robots.parts import Gains
    from robot_rl.robots.source import BASES
    from robot_rl.robots.writing import draw, robot_words
    from robot_rl.runs.outputs import IMAGE, check_optional
    from robot_rl.runs.robot_facts import find_all
    from robot_rl.settings.checks import check_choice

    check_choice("base", options.base, BASES)
    image = check_optional("image", options.image, IMAGE)
    gains = Gains(options.frequency, options.damping)
    path = Path(options.from_).expanduser()
    draft, model = draft_robot(name, path, base=options.base, collision=options.collision, gains=gains)
    folder = place.folder("robot", name)
    mass = sum(float(body.mass) for body in draft.spec.bodies if body.name != "world")
    files: dict[str, str | bytes] = {
        f"{folder}/__init__.py": f'"""{_title(name)}."""\n',
        f"{folder}/robot.py": fill("drafted_robot.txt", robot_words(draft, name, path)),
        **{f"{folder}/{file}": content for file, content in model.items()},
        place.test("robot", name): fill("test_drafted_robot.txt", {"name": name, "mass": f"{mass:.4f}"}),
    }
    write_into(place, "robot", name, files)
    for line in draft.notes:
        print(f"  {line}")
    robot = make_robot(draft, name, place.root / folder / "model.xml")
    with listening():
        findings = find_all(robot)
        for finding in findings:
            print(f"{'problem' if finding.is_problem else 'note'}: {finding.text}")
        for line in draft.problems:
            print(f"problem: {line}")
        if image is not None:
            missing = draw(image, robot, draft, path)
            print(f"{image} ({missing})" if missing else image)
    print(f"next: robot-rl check robot={name}, then robot-rl new task <name> robot={name}")
    return int(bool(draft.problems) or any(finding.is_problem for finding in findings))


def find_place(root: str) -> Place:
    """Return the project around the current directory, or the source tree of robot-rl.

    Args:
        root: The directory of either; empty for the usual place.
    """
    here = Path.cwd()
    for path in [Path(root)] if root else [here, *here.parents]:
        if package := project_package(path):
            return Place(root=path, package=package)
    path = Path(root) if root else Path(__file__).resolve().parents[2]
    if not (path / "pyproject.toml").is_file() or not (path / "tasks" / "robot_rl_tasks").is_dir():
        raise UserError("root", path, "no source tree of robot-rl or project", "write robot-rl new project <name>")
    return Place(root=path)


def project_package(path: Path) -> str:
    """Return the package of the project in a directory; empty if there is none with entry points for robot-rl.

    Raises:
        UserError: Its pyproject.toml cannot be read, or does not say which folder is the package.
    """
    file = path / "pyproject.toml"
    try:
        content = tomllib.loads(file.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: cannot be read: {getattr(error, 'strerror', '') or error}; correct it") from error
    if not any(group.startswith("robot_rl.") for group in _entries(content)):
        return ""
    try:
        (package,) = content["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        if (path / package).is_dir():
            return package
    except (ValueError, LookupError, TypeError):
        pass
    right = 'packages in [tool.hatch.build.targets.wheel] must name one folder, as in packages = ["my_package"]'
    raise UserError(f"{file}: {right}")


def _entries(content: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the tables of entry points of a pyproject.toml by group; those that are not tables are omitted."""
    project = content.get("project")
    groups = project.get("entry-points") if isinstance(project, dict) else None
    return {name: table for name, table in (groups or {}).items() if isinstance(table, dict)}


def check_free(kind: str, name: str, place: Place) -> None:
    """Raise UserError if the folder of a task or robot exists."""
    folder = place.root / place.folder(kind, name)
    for taken in (folder, folder.with_suffix(".py")):
        if taken.exists():
            raise UserError(f"new {kind} {name}: {taken} exists; choose another name")


def make_project(name: str, parent: Path) -> tuple[Path, dict[str, str]]:
    """Write a package with a robot, a task and a loss; return its directory and its files."""
    root = parent / name
    if os.path.lexists(root):
        raise UserError(f"new project {name}: {root} exists; choose another name")
    if importlib.util.find_spec(name) is not None:
        raise UserError(f"new project {name}: a package of that name can be imported here; choose another name")
    place, words = Place(root=root, package=name), {"name": name, "title": _title(name)}
    toml = add_entry(fill("pyproject.txt", words), "task", f"{name}_task", place)
    files = {
        "pyproject.toml": add_entry(toml, "robot", f"{name}_robot", place),
        "README.md": fill("readme.txt", words),
        f"{name}/__init__.py": f'"""{_title(name)}: a robot and a task for robot-rl."""\n',
        f"{name}/losses.py": fill("losses.txt", words),
        "tests/test_losses.py": fill("test_losses.txt", words),
        **robot_files(f"{name}_robot", place),
        **_fill_task(f"{name}_task", f"{name}_robot", place, "pose", {"floats": "", "actions": "position"}),
    }
    write_new(root, files)
    return root, files


def add_entry(text: str, kind: str, name: str, place: Place) -> str:
    """Return a pyproject.toml with the entry point of a task or a robot, which it may have already.

    Raises:
        UserError: It lacks the table of these entry points, or has another one of that name.
    """
    file, group = place.root / "pyproject.toml", f"robot_rl.{kind}s"
    target = f"{place.package}.{name}:make_task" if kind == "task" else f"{place.package}.{name}.robot:ROBOT"
    kept = _entries(tomllib.loads(text)).get(group, {}).get(name)
    if kept == target:
        return text
    if kept is not None:
        raise UserError(f"new {kind} {name}: {file} has that name for {kept}; choose another name")
    head = f'[project.entry-points."{group}"]\n'
    if head not in text:
        raise UserError(f"{file}: is without the line {head.strip()}; add it")
    return text.replace(head, f'{head}{name} = "{target}"\n')


def task_files(name: str, robot_name: str, place: Place, kind: str = "auto", hand: str = "") -> dict[str, str]:
    """Return the files of a new task by path relative to the root.

    Raises:
        UserError: The robot does not exist, it cannot do a task of that kind, or it is without that hand.
    """
    from robot_rl_assets.registry import get_robot

    from robot_rl.robots.tasks import choose_kind, task_words

    with as_user_error():
        robot = get_robot(robot_name)
    kind = choose_kind(kind, robot)
    return _fill_task(name, robot_name, place, kind, task_words(kind, robot, hand))


def _fill_task(name: str, robot: str, place: Place, kind: str, words: Mapping[str, str]) -> dict[str, str]:
    words = {**words, "name": name, "robot": robot}
    test = "velocity" if kind == "drive" else kind
    return {
        f"{place.folder('task', name)}/__init__.py": fill(f"{kind}.txt", words),
        place.test("task", name): fill(f"test_{test}.txt", words),
    }


def robot_files(name: str, place: Place) -> dict[str, str]:
    """Return the files of a new robot by path relative to the root."""
    words = {"name": name, "title": _title(name)}
    folder = place.folder("robot", name)
    return {
        f"{folder}/__init__.py": f'"""{_title(name)}."""\n',
        f"{folder}/robot.py": fill("robot.txt", words),
        f"{folder}/model.xml": fill("model.txt", words),
        place.test("robot", name): fill("test_robot.txt", words),
    }


def fill(template: str, words: Mapping[str, str]) -> str:
    """Return a template with every {{word}} replaced.

    A line after {{#word}} is kept if the word is not empty, one after {{^word}} if it is.
    """

    def line(found: re.Match[str]) -> str:
        return found[3] if bool(words[found[2]]) == (found[1] == "#") else ""

    text = re.sub(r"^{{([#^])(\w+)}}(.*\n)", line, (TEMPLATES / template).read_text(), flags=re.MULTILINE)
    return re.sub(r"{{(\w+)}}", lambda found: words[found[1]], text)


def write_into(place: Place, kind: str, name: str, files: Mapping[str, str | bytes]) -> None:
    """Write and print the new files of a task or a robot, and its entry point into the pyproject.toml of a project."""
    toml = place.root / "pyproject.toml"
    entry = add_entry(toml.read_text(), kind, name, place) if place.package else ""
    write_new(place.root, files)
    if entry:
        toml.write_text(entry)
    for path in files:
        print(place.root / path)


def write_new(root: Path, files: Mapping[str, str | bytes]) -> None:
    """Write new files, all of them or none.

    Raises:
        UserError: One of them exists.
        OSError: One cannot be written; those before it are removed again.
    """
    for path in files:
        if os.path.lexists(root / path):
            raise UserError(f"{root / path}: exists; remove it, or choose another name")
    made: list[Path] = []
    try:
        for path, text in files.items():
            target = root / path
            made += [folder for folder in (target, *target.parents) if not folder.exists()]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode() if isinstance(text, str) else text)
    except BaseException:
        for path in sorted(made, key=lambda path: len(path.parts), reverse=True):
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
        raise


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()
