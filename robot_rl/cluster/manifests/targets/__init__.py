"""Targets that a run can be rendered for: each file here, or `module` of a plug-in's, with `USED` and `render`.

`USED` are the options that have an effect on it, in addition to those that all have; `render` returns the text for a
`ClusterJob`.
"""

from pathlib import Path
from typing import Any

from robot_rl.errors import UserError
from robot_rl.plugins import Registry

REGISTRY = Registry("", "target", __name__, Path(__file__).parent, "*.py", lambda module: module)


def get_target(name: str) -> Any:
    """Return a target by name; raise UserError if there is none, or the name leads to something else."""
    found = REGISTRY.get(name)
    if not (callable(getattr(found, "render", None)) and isinstance(getattr(found, "USED", None), frozenset)):
        raise UserError("target", name, f"is {found!r}", "must have USED, a frozenset of options, and render(job)")
    return found


def describe_targets() -> str:
    """Return a line of help for each target."""
    return "\n".join(f"  {name:<8} {text}" for name, text in REGISTRY.describe().items())
