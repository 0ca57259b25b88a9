"""Pages of the tasks, robots and policies that come with the project, and of the command line."""

import json
from pathlib import Path
from typing import Any

import terms
from pieces import code, plain, prose, table
from robot_rl_assets import registry as robots
from robot_rl_envs.task import TorchTerm
from robot_rl_tasks.registry import REGISTRY, get_task, list_tasks

from robot_rl.cli import main
from robot_rl.runs.policies import list_policies
from robot_rl.settings.tree import leaves, task_tree

DEFAULTS: dict[str, tuple[Any, ...]] = {
    "reward": (("group", "task"), ("credit", "robot")),
    "termination": (("time_out", False), ("scope", "team")),
    "command": (("team", False),),
    "event": (("team", False), ("interval_s", [8.0, 12.0])),
    "metric": (("over", "mean"), ("after_s", 0.0)),
    "observation": (
        *(("noise", 0.0), ("scale", 1.0), ("clip", 100.0), ("history", 1), ("noise_kind", "uniform"), ("bias", 0.0)),
        *(("drift", 0.0), ("delay_s", [0.0, 0.0]), ("delay_steps", 0), ("dropout", 0.0), ("measured", "")),
    ),
}
"""Options of terms that a page of a task omits if they have these values."""


def shipped_page() -> str:
    """Return the table of all tasks, and those of robots and of policies."""
    policies = list_policies()
    rows = []
    for name, summary in REGISTRY.describe().items():
        task = get_task(name)
        names = list(dict.fromkeys(agent.robot.name for agent in task.robots.values())) or [task.robot.name]
        trained = "yes" if name in policies else ""
        rows.append((f"[`{name}`](tasks/{name}.md)", prose(summary), ", ".join(names), task.learner_name, trained))
    machines = [_robot_row(name) for name in robots.list_robots()]
    bundles = [_policy_row(name, path) for name, path in policies.items()]
    return f"""# Tasks, robots and policies

`robot-rl list` prints these lists, with those of installed packages.

## Tasks

{table(("task", "what it is", "robot", "learner", "policy"), rows)}

## Robots

{table(("robot", "joints", "driven", "feet", "base"), machines)}

## Policies

`robot-rl play policy=<name>` drives one in the browser, and `rr.load("<name>")` returns it in Python.

{table(("policy", "observations", "actions", "control rate"), bundles)}
"""


def _robot_row(name: str) -> tuple[str, ...]:
    robot = robots.get_robot(name)
    driven = sum(not joint.passive for joint in robot.joints)
    base = "floating" if robot.base_body else "fixed"
    return f"`{name}`", str(len(robot.joints)), str(driven), str(len(robot.feet)), base


def _policy_row(name: str, path: Path) -> tuple[str, ...]:
    """Return the row of a policy, from its contract."""
    contract = json.loads((path / "contract.json").read_text())
    widths = (str(contract["layout"][f"{kind}_size"]) for kind in ("observation", "action"))
    return f"[`{name}`](tasks/{name}.md)", *widths, f"{1 / contract['control_period_s']:g} Hz"


def task_page(name: str) -> str:
    """Return the page of a task: its terms with their parameters, and its other settings."""
    task = get_task(name)
    tree = task_tree(task)
    parts = [f"# `{name}`\n\n{prose(REGISTRY.describe()[name])}.\n\n```console\nrobot-rl train task={name}\n```\n"]
    if name in list_policies():
        parts.append(f"A trained policy comes with it: `robot-rl play policy={name}`.\n")
    if task.solved:
        parts.append(f"The task counts as solved at `{task.solved[0]}` of {plain(task.solved[1])}.\n")
    for section, entries in task.sections().items():
        if entries:
            rows = [_term_row(section, entry, term, tree) for entry, term in entries.items()]
            parts.append(f"## `{section}`\n\n{table(('name', 'term', 'options and parameters'), rows, 'settings')}")
    named = {section.partition(".")[0] for section in task.sections()}
    rest = [(f"`{key}`", code(value)) for key, value in leaves(tree) if key.partition(".")[0] not in named]
    parts.append(f"## Other settings\n\n{table(('setting', 'value'), rest, 'settings')}")
    for key, words in (("learner", "Presets of the learner"), ("learner_cpu", "Presets of the learner on a CPU")):
        if getattr(task, key):
            rows = [(f"`{one}`", code(value)) for one, value in getattr(task, key).items()]
            parts.append(f"## {words}\n\n{table(('setting', 'value'), rows, 'settings')}")
    for learner, preset in task.presets.items():
        rows = [(f"`{one}`", code(value)) for one, value in preset.items()]
        parts.append(f"## Presets with `learner={learner}`\n\n{table(('setting', 'value'), rows, 'settings')}")
    return "\n".join(parts)


def _term_row(section: str, name: str, term: Any, tree: Any) -> tuple[str, str, str]:
    if isinstance(term, TorchTerm):
        return f"`{name}`", "a torch function", ""
    kind = term.info.kind
    link = f"[`{term.info.name}`](../{terms.page_of(kind)}#{terms.anchor(term.fn)})"
    node: Any = tree
    for part in section.split("."):
        node = node.get(part, {})
    node = node.get("terms", node).get(name, {})
    given = [(key, value) for key, value in node.items() if (key, value) not in DEFAULTS.get(kind, ())]
    return f"`{name}`", link, ", ".join(f"`{key}={plain(value)}`" for key, value in given)


def command_line_page() -> str:
    """Return the help of every command."""
    parts = [
        "# Command line\n\nThe help of each command; [commands by example](../commands.md) shows them in use.\n",
        f"```text\n{main.usage()}```\n",
    ]
    parts += [f"## `robot-rl {name}` {{ #{name} }}\n\n```text\n{main.help_text(name)}```\n" for name in main.COMMANDS]
    return "\n".join(parts)


def place_of(task: str) -> str:
    """Return the place of a task's page in the site."""
    return f"reference/tasks/{task}.md"


def pages() -> dict[str, str]:
    """Return the pages by their place in the site."""
    found = {"reference/shipped.md": shipped_page(), "reference/command_line.md": command_line_page()}
    return found | {place_of(name): task_page(name) for name in list_tasks()}
