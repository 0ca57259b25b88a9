"""Fingerprints of what the code makes of tasks and policies, the same on every machine: hashes of texts, by name.

``bundle/<policy>/<file>`` is a file of a shipped policy; ``bundle/<policy>/contract``, ``golden`` and ``network`` are
its contract, read and written again, and the structure of its golden sequence and its network. ``settings/<task>`` are
all settings as ``robot-rl train task=<task> --cfg job`` prints them, ``run/<task>`` is the configuration in run.yaml of
a run, ``kernels/<task>`` the generated text of its kernels, and ``terms/<task>`` the source of the functions that these
call, without comments and docstrings, wherever it is.

They do not depend on processor, paths, versions, time, or seed of hashes; nothing is compiled, stepped or trained.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import hashlib
import importlib.util
import inspect
import io
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TASKS = ROOT / "tasks" / "robot_rl_tasks"
GOLDEN_KERNELS = ("go2_flat", "g1_track", "panda_lift", "go2_team")
"""Tasks with the whole text of their kernels in tests/data/kernels."""
NEEDED = dict.fromkeys(("ant_v5", "half_cheetah_v5", "hopper_v5", "humanoid_v5", "walker2d_v5"), "gymnasium")
"""Optional packages that tasks need."""
Texts = dict[str, str | bytes]


def is_available(name: str) -> bool:
    """Return whether the fingerprint of a name can be made with the installed packages."""
    kind, _, rest = name.partition("/")
    package = NEEDED.get(rest) if kind != "bundle" else None
    return package is None or importlib.util.find_spec(package) is not None


def tasks() -> list[str]:
    """Return this project's own tasks that the installed packages allow, without those of plug-ins."""
    from robot_rl_tasks.registry import REGISTRY

    return [name for name in REGISTRY.files() if is_available(f"kernels/{name}")]


def bundle_texts() -> Texts:
    """Return the texts of every shipped policy.

    They are each file, what the loader reads of contract.json and writes again, names, types and shapes of golden.npz,
    and operators, names and shapes of policy.onnx.
    """
    from robot_rl_deploy import contract
    from robot_rl_deploy.bundle import SUMS, read_bundle

    found: Texts = {}
    for folder in sorted(path.parent for path in TASKS.glob(f"*/policy/**/{SUMS}")):
        name = f"bundle/{folder.relative_to(TASKS).as_posix().replace('/policy', '')}"
        found |= {f"{name}/{path.name}": path.read_bytes() for path in sorted(folder.iterdir())}
        bundle = read_bundle(folder)
        found[f"{name}/contract"] = contract.dumps(bundle.contract)
        found[f"{name}/golden"] = _lines(_describe_golden(bundle.golden))
        found[f"{name}/network"] = _lines(_describe_network(bundle.model))
    return found


def _describe_golden(golden: Any) -> Iterator[str]:
    import dataclasses

    for field in dataclasses.fields(golden):
        value = getattr(golden, field.name)
        arrays = value if isinstance(value, dict) else {"": value}
        for name, array in sorted(arrays.items()):
            shape = f"{array.dtype} {list(array.shape)}" if hasattr(array, "dtype") else repr(array)
            yield f"{field.name} {name} {shape}"


def _describe_network(model: bytes) -> Iterator[str]:
    """Yield a line for each input, output, tensor and node of a network, without the values of its tensors."""
    import onnx

    loaded = onnx.load_from_string(model)
    for opset in loaded.opset_import:
        yield f"opset {opset.domain} {opset.version}"
    graph = loaded.graph
    for kind, values in (("input", graph.input), ("output", graph.output)):
        for value in values:
            sizes = [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
            yield f"{kind} {value.name} {value.type.tensor_type.elem_type} {sizes}"
    for tensor in graph.initializer:
        yield f"tensor {tensor.name} {tensor.data_type} {list(tensor.dims)}"
    for node in graph.node:
        yield f"node {node.op_type} {list(node.input)} {list(node.output)} {sorted(a.name for a in node.attribute)}"


def _lines(lines: Iterator[str]) -> str:
    return "\n".join(lines) + "\n"


def run_texts() -> Texts:
    """Return the configuration in run.yaml of a run of every task."""
    from robot_rl.runs.settings import default_tree, resolve

    return {f"run/{task}": json.dumps(resolve(default_tree(task, "cpu")).tree, indent=1) + "\n" for task in tasks()}


def settings_texts(names: Iterable[str] = ()) -> Texts:
    """Return all settings of tasks, of every task by default, as the command line prints them."""
    from hydra.core.config_store import ConfigStore

    from robot_rl.cli.main import main

    found: Texts = {}
    for task in names or tasks():
        ConfigStore.instance().repo.pop("task", None)  # Hydra copies the tasks of earlier calls, too.
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            code = main(["train", f"task={task}", "--cfg", "job", "device=cpu"])
        found[f"settings/{task}"] = printed.getvalue() if code == 0 else f"exit code {code}"
    return found


def kernel_texts() -> Texts:
    """Return the generated text of every task's kernels, of a team one of each role, and the source of its terms.

    The digest in the names of functions stands for the modules of the terms, which may move: it is replaced.
    """
    from robot_rl_envs.make import make_env
    from robot_rl_tasks.registry import get_task

    from robot_rl.performance.collect import collecting

    found: Texts = {}
    with collecting():
        for task in tasks():
            env: Any = make_env(get_task(task), num_envs=2, engine="mujoco", device="cpu", seed=1, num_threads=1)
            crews = env.crews
            texts = [f"# {role}\n" * bool(role) + crew.kernels.source for role, crew in crews.items()]
            found[f"kernels/{task}"] = re.sub(r"\bobserve_[0-9a-f]{12}_", "observe_DIGEST_", "\n".join(texts)) + "\n"
            sources: Texts = {}
            for crew in crews.values():
                for kernel in crew.kernels.stages():
                    _add_sources(sources, kernel.func)
            found[f"terms/{task}"] = "\n\n".join(str(sources[name]) for name in sorted(sources) if sources[name]) + "\n"
            env.close()
    return found


def _add_sources(sources: Texts, function: Any) -> None:
    """Add the source of the Warp functions that a Python function calls, and of those that they call, by name.

    The text that was generated is not added again.
    """
    import warp as wp

    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    known = function.__globals__ | inspect.getclosurevars(function).nonlocals
    for name in sorted(names & known.keys()):
        value = known[name]
        if isinstance(value, int | float):
            sources[f"{name} = {value}"] = f"{name} = {value}"
        elif isinstance(value, wp.Function) and value.func is not None:
            is_generated = value.func.__code__.co_filename.startswith("<")
            text = "" if is_generated else _bare_source(value.func)
            key = f"{value.key} {text}" if text else value.key
            if key not in sources:
                sources[key] = text
                _add_sources(sources, value.func)


def _bare_source(function: Any) -> str:
    """Return the source of a function without comments, docstring and decorators."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    found = tree.body[0]
    assert isinstance(found, ast.FunctionDef)
    found.decorator_list = []
    if ast.get_docstring(found) is not None:
        found.body = found.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


PARTS: dict[str, Callable[[], Texts]] = {
    "bundles": bundle_texts,
    "runs": run_texts,
    "settings": settings_texts,
    "kernels": kernel_texts,
}
"""Functions that make the texts, by part."""


def make_texts(part: str) -> Texts:
    """Return the texts of a part by name."""
    gc.disable()  # It would look at all objects of PyTorch and Warp again and again.
    try:
        return PARTS[part]()
    finally:
        gc.enable()


def fingerprint(text: str | bytes) -> str:
    """Return the fingerprint of a text: its SHA-256."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()
