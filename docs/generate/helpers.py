"""The page of the functions that terms call: those of the library that return a value and are not terms."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import robot_rl_envs.mdp
import warp as wp
from pieces import boosted, formula, paragraphs

PLACE = "reference/terms/helpers.md"
OTHERS = ("robot_rl_envs.quat", "robot_rl_envs.rng", "robot_rl_envs.terrain.lookup")
"""Modules with such functions outside of the library of terms."""
NEEDS = {
    "command": "a command",
    "foot": "a robot with feet",
    "object_": "objects",
    "site_": "sites",
    "contact_force": "contacts that a term names",
    "motion_": "motions",
    "bin_": "motions",
    "place_": "a team",
    "start_": "a team",
    "team_": "a team",
}
"""Parts of a task, by the beginning of the names of their fields in the state, and of arguments."""
FIRST = ("observations", "rewards", "objects", "commands")
"""Modules of the library that most terms need."""
INTRODUCTION = """\
A term may call these functions, and every `wp.func` that you write. Import them from the module in the heading, such as
`from robot_rl_envs.mdp.observations import is_moving`. `s` is the [state](../state.md) and `i` the world. "Needs" lists
the parts that a task must have; a function without such a line fits every robot."""
SIGNATURE = re.compile(r"^def (\w+\(.*?\) -> [\w.]+):$", re.MULTILINE | re.DOTALL)


def modules() -> Iterator[Any]:
    """Yield the modules, those of the library first."""
    others = [info.name for info in pkgutil.iter_modules(robot_rl_envs.mdp.__path__) if info.name not in FIRST]
    library = [f"robot_rl_envs.mdp.{name}" for name in (*FIRST, *others)]
    yield from map(importlib.import_module, (*library, *OTHERS))


def helpers(module: Any) -> list[Any]:
    """Return the Warp functions of a module that are not terms and return a value, in the order of the source."""
    found = [value for value in vars(module).values() if isinstance(value, wp.Function) and is_helper(value, module)]
    return sorted(found, key=lambda fn: fn.func.__code__.co_firstlineno)


def is_helper(fn: Any, module: Any) -> bool:
    """Return whether a Warp function is such a function of the module itself."""
    own = fn.func.__module__ == module.__name__ and not hasattr(fn, "term_info")
    return own and SIGNATURE.search(inspect.getsource(fn.func)) is not None


def reads(fn: Any, known: dict[str, Any]) -> set[str]:
    """Return the fields of the state that a function reads, itself or in those that it calls."""
    source = inspect.getsource(fn.func)
    called = {name for name in re.findall(r"\b(\w+)\(", source) if name in known and known[name] is not fn}
    return set(re.findall(r"\bs\.(\w+)", source)).union(*(reads(known[name], known) for name in called))


def entry(fn: Any, known: dict[str, Any]) -> str:
    """Return the section of a function."""
    first, *more = inspect.cleandoc(fn.func.__doc__ or "").split("\n\n")
    (signature,) = SIGNATURE.findall(inspect.getsource(fn.func))
    fields = sorted(reads(fn, known))
    names = (*fields, *re.findall(r"\b(\w+): ", signature))
    needs = dict.fromkeys(text for start, text in NEEDS.items() if any(name.startswith(start) for name in names))
    facts = [f"- needs: {', '.join(needs)}"] if needs else []
    facts += [f"- fields of the state: {', '.join(f'`s.{name}`' for name in fields)}"] if fields else []
    parts = [f"### `{fn.func.__name__}`", formula(" ".join(first.split())), paragraphs("\n\n".join(more))]
    return "\n\n".join(filter(None, [*parts, f"```python\n{signature}\n```", "\n".join(facts)]))


def page() -> str:
    """Return the page."""
    found = {module: helpers(module) for module in modules()}
    known = {fn.func.__name__: fn for functions in found.values() for fn in functions}
    parts = [f"{boosted(2)}# Functions for terms", INTRODUCTION]
    for module, functions in found.items():
        if functions:
            parts += [f"## `{module.__name__}`", *(entry(fn, known) for fn in functions)]
    return "\n\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    """Return the page by its place in the site."""
    return {PLACE: page()}
