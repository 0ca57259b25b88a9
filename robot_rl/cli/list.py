"""robot-rl list: what there is to choose from."""

import ast
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.cli.options import describe, option, read_all

KINDS = ("tasks", "robots", "engines", "policies", "runs")
MAX_RUNS = 10


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl list."""

    what: str = option("", f"one of {', '.join(KINDS)}; all of them by default")
    root: str = option("runs", "where runs are")


HELP = f"""\
robot-rl list: tasks, robots, engines (and why one is not available), policies, runs

usage: robot-rl list [tasks] [key=value ...]

{describe(Options)}
"""


def run(arguments: Sequence[str]) -> int:
    """Prints the lists."""
    from robot_rl.errors import UserError, suggest

    options = read_all(Options, [word if "=" in word else f"what={word}" for word in arguments])
    if options.what and options.what not in KINDS:
        raise UserError(f"what={options.what}: must be one of {', '.join(KINDS)}; {suggest(options.what, KINDS)}")
    makers = {
        "tasks": task_lines,
        "robots": robot_lines,
        "engines": engine_lines,
        "policies": policy_lines,
        "runs": lambda: run_lines(options.root),
    }
    for kind in [options.what] if options.what else KINDS:
        print(f"{kind}:")
        for line in makers[kind]() or ["  none yet"]:
            print(line)
    return 0


def task_lines() -> list[str]:
    """A line for each task, its name and what its module says it is; nothing is imported."""
    from robot_rl_tasks import registry

    folder = Path(registry.__file__).parent
    return _rows([(name, first_line(folder / name / "__init__.py")) for name in registry.list_tasks()])


def robot_lines() -> list[str]:
    """A line for each robot."""
    from robot_rl_assets import registry

    folder = Path(registry.__file__).parent
    return _rows([(name, first_line(folder / name / "robot.py")) for name in registry.list_robots()])


def engine_lines() -> list[str]:
    """A line for each engine: what it is for, or why it cannot be used here."""
    rows = []
    for name, package, purpose in (
        ("mujoco", "mujoco", "the CPU, all cores"),
        ("mujoco_warp", "mujoco_warp", "the GPU; on a CPU slow, for comparison"),
        ("isaac", "isaaclab", "Isaac Lab's scene and Newton; in an environment of its own (make isaac)"),
    ):
        missing = importlib.util.find_spec(package) is None
        rows.append((name, f"not available: the package {package} is not installed" if missing else purpose))
    return _rows(rows)


def policy_lines() -> list[str]:
    """A line for each trained policy that comes with the project."""
    from robot_rl.cli.policies import list_policies

    return _rows([(name, str(path)) for name, path in list_policies().items()])


def run_lines(root: str) -> list[str]:
    """A line for each of the newest runs."""
    paths = sorted((path.parent for path in Path(root).glob("*/*/run.yaml")), key=lambda path: path.name, reverse=True)
    rows = []
    for path in paths[:MAX_RUNS]:
        checkpoints = sorted(entry.name for entry in (path / "checkpoints").glob("[0-9]*"))
        extras = [name for name in ("policy", "eval.json", "video.mp4", "report.html") if (path / name).exists()]
        done = f"{int(checkpoints[-1])} iterations" if checkpoints else "no checkpoint"
        rows.append((path.name, f"{path.parent.name}, {', '.join([done, *extras])}"))
    return _rows(rows)


def first_line(path: Path) -> str:
    """The first line of a module's docstring, read without importing it; empty where there is none."""
    try:
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        return f"cannot be read: {error}"
    return text.split("\n")[0].rstrip(".")


def _rows(rows: list[tuple[str, str]]) -> list[str]:
    width = max((len(name) for name, _ in rows), default=0)
    return [f"  {name:<{width}}  {text}" for name, text in rows]
