"""Pages of the terms, from their declarations and docstrings, and of the state that they read."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import robot_rl_envs.actuation
import robot_rl_envs.mdp
import robot_rl_envs.sensing
import robot_rl_tasks
from pieces import boosted, code, formula, paragraphs, prose, table
from robot_rl_envs.entity import state
from robot_rl_envs.terms import TermInfo
from robot_rl_envs.terms.declare import FIXED_ARGUMENTS
from robot_rl_tasks.registry import get_task, list_tasks

KINDS = {
    "reward": ("Rewards", "rewards={...}", "Each is multiplied by its weight and by the control period."),
    "observation": ("Observations", "observations={...}", "Each gives `width` values in each control step."),
    "termination": ("Terminations", "terminations={...}", "Each ends an episode in the worlds for which it holds."),
    "command": ("Commands", "commands={...}", "Each draws the goal that the policy is given."),
    "event": ("Events", "events={...}", "Each changes worlds at the start, at resets or at intervals."),
    "curriculum": ("Curricula", "curricula={...}", "Each changes the difficulty of a world between episodes."),
    "metric": ("Metrics", "metrics={...}", "Each is logged in training and measured in an evaluation."),
}
"""Heading, place in a task and meaning of each kind of term."""
GROUPS = (robot_rl_envs.mdp, robot_rl_envs.actuation, robot_rl_envs.sensing, robot_rl_tasks)
WIDTHS = {"nj": "joints", "na": "actions", "nf": "feet", "nc": "commands", "ni": "intervals", "nr": "rewards"}
WIDTHS |= {"nm": "metrics", "no": "objects", "ns": "sites", "noj": "joints of objects", "nk": "contacts"}
WIDTHS |= {"nq": "positions", "nv": "velocities", "nu": "actuators", "nsensordata": "numbers", "nt": "robots"}
WIDTHS |= {"nms": "measured numbers", "npoint": "points", "nff": "feet and substeps"}


def modules() -> Iterator[Any]:
    """Yield the modules that may define terms."""
    for package in GROUPS:
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(info.name)


def find_terms() -> dict[str, list[tuple[str, Any]]]:
    """Return module and function of each term by kind, in the order of their sources."""
    found: dict[str, list[tuple[str, Any]]] = {kind: [] for kind in KINDS}
    for module in modules():
        for value in vars(module).values():
            info = getattr(value, "term_info", None)
            if isinstance(info, TermInfo) and value.func.__module__ == module.__name__:
                found[info.kind].append((module.__name__, value))
    for kind, terms in found.items():  # The library of the kind comes first.
        terms.sort(key=lambda term: term[0] != f"robot_rl_envs.mdp.{KINDS[kind][0].lower()}")
    return found


def find_users() -> dict[tuple[str, str], list[str]]:
    """Return the shipped tasks that use each term, by the term's module and name."""
    users: dict[tuple[str, str], list[str]] = {}
    for name in list_tasks():
        for terms in get_task(name).sections().values():
            for term in terms.values():
                if hasattr(term, "info"):
                    tasks = users.setdefault(key(term.fn), [])
                    tasks += [name] if name not in tasks else []
    return users


def key(fn: Any) -> tuple[str, str]:
    """Return module and name of a term's function."""
    return fn.func.__module__, fn.term_info.name


def anchor(fn: Any) -> str:
    """Return the place of a term in the page of its kind."""
    module, name = key(fn)
    return f"{module.rpartition('.')[2]}.{name}"


def page_of(kind: str) -> str:
    """Return the page of a kind of terms, from the folder reference/."""
    return f"terms/{KINDS[kind][0].lower()}.md"


def facts(info: TermInfo) -> list[str]:
    """Return what a term declares, beyond its docstring."""
    signal = info.signal or "none: only a simulator knows it"
    found = {
        "parameters": ", ".join(f"`{name}`" for name in info.params),
        "width": _width(info.size) if info.kind == "observation" else "",
        "unit": code(info.unit) if info.unit not in ("", "1") else "",
        "frame": info.frame if info.kind in ("observation", "command") and info.frame != "none" else "",
        "signal of the robot": signal if info.kind == "observation" else "",
        "components": _components(info.components),
        "modes": ", ".join(info.modes),
        "writes": ", ".join(f"`{name}`" for name in info.model_fields) if info.kind == "event" else "",
        "better": info.better,
        "fields of the state": ", ".join(f"`s.{name}`" for name in info.fields),
    }
    return [f"{name}: {text}" for name, text in found.items() if text]


def _width(size: Any) -> str:
    return "as the scene has it" if callable(size) else str(size).replace("_", " ")


def _components(components: Any) -> str:
    if callable(components):
        return "as the robot has them"
    return ", ".join(f"`{name}` [{unit}]" if unit != "1" else f"`{name}`" for name, unit in components.items())


def entry(fn: Any, users: list[str]) -> str:
    """Return the section of a term."""
    info, doc = fn.term_info, paragraphs(fn.func.__doc__ or "").split("\n\n")
    first = formula(" ".join(inspect.cleandoc(fn.func.__doc__ or "").split("\n\n")[0].split()))
    lines = [f"### `{info.name}` {{ #{anchor(fn)} }}", "\n\n".join([first, *doc[1:]])]
    more = facts(info)
    if users:
        more.append(f"used by {', '.join(f'[{name}](../tasks/{name}.md)' for name in users)}")
    if more:
        lines.append("\n".join(f"- {line}" for line in more))
    source = "\n".join(f"    {line}".rstrip() for line in inspect.getsource(fn.func).rstrip().split("\n"))
    lines.append(f'??? quote "Source"\n\n    ```python\n{source}\n    ```')
    return "\n\n".join(lines)


def kind_page(kind: str, terms: list[tuple[str, Any]], users: dict[tuple[str, str], list[str]]) -> str:
    """Return the page of a kind of terms."""
    heading, place, purpose = KINDS[kind]
    arguments = ", ".join((*FIXED_ARGUMENTS[kind], "*params"))
    parts = [
        f"{boosted(2)}# {heading}\n\n{purpose} A task lists them in `{place}`; the function has the arguments "
        f"`({arguments})`: the [state](../state.md) `s`, the world `i`, and parameters that a task sets by name.\n"
    ]
    module = ""
    for name, fn in terms:
        if name != module:
            module = name
            parts.append(f"## `{name}`\n\n{paragraphs(importlib.import_module(name).__doc__ or '')}")
        parts.append(entry(fn, users.get(key(fn), [])))
    return "\n\n".join(parts)


def state_page(terms: dict[str, list[tuple[str, Any]]]) -> str:
    """Return the page of the fields of the state."""

    def rows(fields: Any) -> list[tuple[str, str, str]]:
        return [(f"`{name}`", _shape(dtype, shape), prose(text)) for name, (dtype, shape, text) in fields.items()]

    constants = [(f"`{name}`", _type(dtype), prose(text)) for name, (dtype, _, text) in state.CONSTANTS.items()]
    declared = {
        name: (f"`{name}`", f"[`{fn.term_info.name}`]({page_of(kind)}#{anchor(fn)})", formula(fn.term_info.summary))
        for kind, found in terms.items()
        for _, fn in found
        for name in fn.term_info.fields
    }
    heads = ("field", "values of a world", "meaning")
    return f"""# Fields of the state

A term reads the state `s` at its world `i`: `s.base_lin_vel_b[i]`, `s.joint_pos[i, j]`. `env.state` has the same fields
as torch tensors with a row for each world. The suffix `_w` is for the frame of the world, `_b` for that of the base,
`_s` for seconds. Quaternions are w, x, y, z. `s.step_dt` is the control period [s].

## The robot

{table(heads, rows(state.ENTITY_FIELDS), "settings")}

## The world

{table(heads, rows(state.WORLD_FIELDS), "settings")}

## Parts of a task

A task has these fields if it has such parts: a [command](terms/commands.md), [objects, sites and
contacts](../objects.md) that terms name, [sensors](../sensors.md), explicit [actuators](../actuators.md),
[motions](../motions.md), or a [team](../teams.md).

{table(heads, rows(state.TASK_FIELDS), "settings")}

## A team

A row is a world; row `i` of a role of `n` robots belongs to world `i // n`.

{table(heads, rows(state.TEAM_FIELDS), "settings")}

## The engine

{table(heads, rows(state.ENGINE_FIELDS), "settings")}

A term that declares `data=("cvel",)` also reads MuJoCo's own array as `s.engine_cvel`. An event that declares
`model_fields=("body_mass",)` writes `s.body_mass`, the model of its world, and reads `s.body_mass_nominal`. The frames
of [motions](../motions.md) are `s.reference_<name>`, such as `s.reference_joint_pos`.

## Constants

They are the same for all worlds: `s.default_joint_pos[j]`.

{table(("field", "type", "meaning"), constants, "settings")}

## Fields that terms add

{table(("field", "term", "meaning of the term"), declared.values(), "settings")}
"""


def _type(dtype: Any) -> str:
    return str(dtype.__name__).removesuffix("f") if dtype.__name__.startswith("vec") else str(dtype.__name__)


def _shape(dtype: Any, shape: tuple[str | int, ...]) -> str:
    if dtype is Any:
        return "a vector"
    each = "".join(f" for each of the {WIDTHS.get(str(size), size)}" for size in shape)
    return f"{_type(dtype)}{each}"


def pages() -> dict[str, str]:
    """Return the pages by their place in the site."""
    terms, users = find_terms(), find_users()
    found = {f"reference/{page_of(kind)}": kind_page(kind, terms[kind], users) for kind in KINDS}
    return found | {"reference/state.md": state_page(terms)}
