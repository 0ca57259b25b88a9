"""Find the file of a flow by name, path or module, make its graph, copy it, and check the user's input."""

from __future__ import annotations

import importlib.util
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from robot_rl.cluster.flow.dag import Flow, FlowCfg
from robot_rl.errors import UserError, suggest
from robot_rl.plugins import Registry

REGISTRY = Registry(
    "", "flow", f"{__package__}.flows", Path(__file__).parent / "flows", "*.py", lambda module: module.make_flow
)
"""The flows that come with the project."""


def find_maker(source: str) -> Callable[[FlowCfg], Any]:
    """Return the function that makes a flow.

    Args:
        source: A flow that comes with the project, a file.py with `make_flow`, or <module>:<function>.

    Raises:
        UserError: There is none, or it cannot be imported.
    """
    if source in REGISTRY.files():
        return REGISTRY.get(source)
    if ":" in source:
        return _check_callable(REGISTRY.get(source), source)
    if source.endswith(".py"):
        return _check_callable(getattr(_load(source, Path(source)), "make_flow", None), source)
    near = suggest(source, REGISTRY.files())
    raise UserError(f"flow {source}: is none; {near}, or give a file.py or <module>:<function>")


def _load(source: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"flow {source}: does not exist; robot-rl flow three_computers copy={source} makes one")
    spec = importlib.util.spec_from_file_location(f"flow_of_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"flow {source}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, ImportError) as error:
        raise UserError(f"flow {source}: {error}; correct the file") from None
    return module


def _check_callable(maker: Any, source: str) -> Callable[[FlowCfg], Any]:
    if not callable(maker):
        raise UserError(f"flow {source}: does not have a function make_flow; it makes the Flow of a FlowCfg")
    return maker


def named_code(source: str) -> list[str]:
    """Return the code that a flow would run: a file's absolute path, or a module; empty for the project's own."""
    if source in REGISTRY.files():
        return []
    return [str(Path(source).resolve()) if source.endswith(".py") else source]


def make(source: str, cfg: FlowCfg) -> Flow:
    """Return the graph of a flow; raise UserError if its file does not make one."""
    flow = find_maker(source)(cfg)
    if not isinstance(flow, Flow):
        raise UserError(f"flow {source}: its function returns {type(flow).__name__}, must be a Flow")
    return flow


def new_id() -> str:
    """Return a new id, which begins with a letter: it is also the training's run id."""
    return f"flow-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def copy_flow(source: str, to: str) -> Path:
    """Copy the file of a flow that comes with the project; raise UserError if the target exists already."""
    from robot_rl.files import write_atomic

    if source not in REGISTRY.files():
        raise UserError(
            f"flow {source}: only a flow that comes with the project is copied; {suggest(source, REGISTRY.files())}"
        )
    path = Path(to)
    if path.suffix != ".py":
        raise UserError("copy", to, "must end in .py")
    if path.exists() or path.is_symlink():
        raise UserError("copy", to, "is there already", "name a new file")
    if not path.parent.is_dir():
        raise UserError("copy", to, f"the folder {path.parent} does not exist")
    write_atomic(path, REGISTRY.files()[source].read_text())
    return path
