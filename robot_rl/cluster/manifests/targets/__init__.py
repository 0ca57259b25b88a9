"""Targets that a run can be rendered for: each file here, or `module` of a plug-in's, with `USED` and `render`.

`USED` are the options that have an effect on it, in addition to those that all have; `render` returns the text for a
`ClusterJob`.
"""

from pathlib import Path

from robot_rl.plugins import Registry

REGISTRY = Registry("", "target", __name__, Path(__file__).parent, "*.py", lambda module: module)


def describe_targets() -> str:
    """Return a line of help for each target."""
    return "\n".join(f"  {name:<8} {text}" for name, text in REGISTRY.describe().items())
