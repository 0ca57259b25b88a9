"""Suggestions for the next word of a command line, for completion by a shell; PyTorch is not imported for them.

The settings of a task take a second to compose, so they are kept in the user's cache directory, by every training that
is begun and by `learn`, which runs in the background when they are missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import subprocess
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from robot_rl.cli.commands import COMMANDS
from robot_rl.errors import UserError
from robot_rl.runs.run_dir import newest_runs, task_folder

RUN_COMMANDS = ("resume", "watch", "sync", "drill", "manifest", "cross")
"""Commands with a run as a word without =."""
RUN_KEYS = ("run", "init_from", "teacher.run", "reference.run")
MOST_RUNS = 200
Values = dict[str, Any]
"""By key its default, or as a tuple the words to choose from."""


def suggestions(line: str) -> list[str]:
    """Return the words that may stand at the end of a command line, in place of its last, unfinished word."""
    words = line.split()
    if not words or line[-1].isspace():
        words.append("")
    *given, current = words[1:] or [""]
    if not given:
        return _starting([*COMMANDS, *_other_commands(), "--help", "--version"], current)
    command, before = given[0], given[1:]
    if command not in COMMANDS:
        return []
    if before[-1:] in (["--cfg"], ["-c"]):
        return _starting(["job"], current)
    if before[-1:] == ["--config"]:
        return []
    if current.startswith("-"):
        flags = ["--config", "--cfg", "--multirun"] if command == "train" else []
        return _starting(["--help", *flags], current)
    key, equals, _ = current.partition("=")
    known = _keys(command, before)
    if equals:
        head = current[: max(current.rfind("="), current.rfind(",")) + 1]
        return _starting([f"{head}{value}" for value in _values(key, known.get(key), before)], current)
    taken = {word.partition("=")[0] for word in before}
    names = [name for name in known if name not in taken]
    return _starting(_first_words(command, before), current) + sorted(_next_parts(names, current))


def _starting(words: Iterable[str], current: str) -> list[str]:
    return [word for word in words if word.startswith(current)]


def _next_parts(names: Iterable[str], current: str) -> set[str]:
    """Return the dotted names that begin so, up to the next dot: `rewards.` before its settings; `~rewards.track`."""
    omits = current.startswith("~")
    found = set()
    for name in _starting(names, current.lstrip("~")):
        part, dot, _ = name[len(current.lstrip("~")) :].partition(".")
        if omits:
            found |= {f"{current}{part}", f"{current}{part}."} if dot else set()
        else:
            found.add(f"{current}{part}{dot or '='}")
    return found


def _other_commands() -> list[str]:
    from robot_rl import plugins

    return list(plugins.find_plugins(plugins.COMMANDS))


def _first_words(command: str, before: Sequence[str]) -> list[str]:
    """Return the words without = that a command takes at this place."""
    bare = [word for word in before if "=" not in word]
    if command in RUN_COMMANDS or (command == "runs" and bare):
        return _run_names(before)
    fixed = {"list": "KINDS", "new": "KINDS", "runs": "SUBCOMMANDS", "completion": "SHELLS"}
    return [] if bare or command not in fixed else list(getattr(_module(command), fixed[command]))


def _module(command: str) -> Any:
    return importlib.import_module(f"robot_rl.cli.{command.replace('-', '_')}")


def _keys(command: str, before: Sequence[str]) -> Values:
    """Return the values of each option of a command."""
    if command == "train":
        return _train_keys(before)
    module = _module(command)
    cls = getattr(module, "SUBCOMMANDS", {}).get(next(iter(before), "")) or getattr(module, "Options", None)
    return dict(_options(cls)) if dataclasses.is_dataclass(cls) else {}


def _options(cls: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield name and values of each setting of a dataclass, and of those in it."""
    from robot_rl.settings.schema import rules_of

    cfg, rules, hints = cls(), rules_of(cls), typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        value = getattr(cfg, field.name)
        name = field.metadata.get("called") or f"{prefix}{field.name.rstrip('_')}"
        if dataclasses.is_dataclass(value):
            yield from _options(type(value), f"{name}.")
            continue
        choices = rules[field.name].get("choices") or (("true", "false") if hints[field.name] is bool else ())
        yield name, choices or (list(value) if isinstance(value, tuple) else value)


def _train_keys(before: Sequence[str]) -> Values:
    from robot_rl.learn.algorithms import get_learner
    from robot_rl.settings.run import RunCfg

    given = {key: value for key, equals, value in (word.partition("=") for word in before) if equals}
    keys: Values = {"task": "", "config": "", "launcher": "", "metrics.wandb": ("off", "offline", "online")}
    keys |= dict(_options(RunCfg))
    task, learner = given.get("task", ""), given.get("learner", "")
    known = _recall(task, learner) if task else {}
    learner = learner or str(known.get("learner", "ppo"))
    with contextlib.suppress(UserError):
        own = {} if ":" in learner or _is_here(learner) else dict(_options(get_learner(learner)))
        own.pop("name", None)
        # The kept ones have the task's value, but no choices.
        known = own | {key: value for key, value in known.items() if not isinstance(own.get(key), tuple)}
    keys = known | keys
    if "launcher" in given:
        keys |= _launcher_keys(given["launcher"])
    if {"-m", "--multirun"} & set(before):
        keys["sweeper"] = ("basic", "optuna")
    return keys


def _launcher_keys(name: str) -> Values:
    from robot_rl.cluster.launchers import REGISTRY, get_launcher

    if name not in REGISTRY.files():
        return {}
    cls = get_launcher(name)
    return {key: value for key, value in _options(cls, "launcher.") if key.rpartition(".")[2] not in cls.unused}


def _is_here(learner: str) -> bool:
    from robot_rl.plugins import ALGORITHMS, named_here

    return bool(named_here(ALGORITHMS, learner))


def _values(key: str, known: Any, before: Sequence[str]) -> list[str]:
    """Return the values of a key: names, choices, or its default."""
    if key in RUN_KEYS:
        return _run_names(before)
    makers = {
        "task": _tasks,
        "robot": _robots,
        "policy": _policies,
        "teacher.policy": _policies,
        "learner": _learners,
        "launcher": _launchers,
        "device": _devices,
        "engine": lambda: ["auto", "mujoco", "mujoco_warp", "isaac"],
    }
    if key in makers:
        return makers[key]()
    if isinstance(known, tuple):
        return list(known)
    if isinstance(known, bool):
        return ["true", "false"]
    if isinstance(known, list):
        return [json.dumps(known, separators=(",", ":"))] if all(isinstance(v, int | float) for v in known) else []
    return [] if known in (None, "") or isinstance(known, Mapping) else [str(known)]


def _tasks() -> list[str]:
    from robot_rl_tasks.registry import list_tasks

    return list_tasks()


def _robots() -> list[str]:
    from robot_rl_assets.registry import list_robots

    return list_robots()


def _policies() -> list[str]:
    from robot_rl.runs.policies import list_policies

    return list(list_policies())


def _learners() -> list[str]:
    from robot_rl.learn.algorithms import REGISTRY

    return REGISTRY.names()


def _launchers() -> list[str]:
    from robot_rl.cluster.launchers import REGISTRY

    return REGISTRY.names()


def _devices() -> list[str]:
    """Return the devices; GPUs by NVIDIA's files, since to ask PyTorch takes a second."""
    count = len(list(Path("/dev").glob("nvidia[0-9]*")))
    return ["auto", "cpu", *(["cuda"] if count else []), *(f"cuda:{index}" for index in range(count))]


def _run_names(before: Sequence[str]) -> list[str]:
    """Return names of the newest runs: latest, <task>/latest and ids."""
    root = next((word.partition("=")[2] for word in before if word.startswith("root=")), "runs")
    paths = newest_runs(Path(root))[:MOST_RUNS]
    tasks = dict.fromkeys(f"{path.parent.name}/latest" for path in paths)
    return ["latest", *tasks, *(path.name for path in paths)] if paths else []


def _file(task: str, learner: str) -> Path:
    """Return the file with the settings of a task; `learner` is empty for the task's own."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "robot-rl" / "settings" / f"{task_folder(task)}{'-' if learner else ''}{task_folder(learner)}.json"


def _stamp(task: str) -> list[int]:
    """Return numbers that change with the file of a task that comes with robot-rl; the same for all others."""
    from robot_rl_tasks.registry import REGISTRY

    path = REGISTRY.files().get(task)
    return [] if path is None else [path.stat().st_mtime_ns, path.stat().st_size]


def remember(tree: Mapping[str, Any], learner: str = "") -> None:
    """Keep the settings of a task for suggestions; nothing happens if the file cannot be written.

    Args:
        tree: The task's tree before any changes (`robot_rl.runs.settings.default_tree`).
        learner: The learner that was requested; empty for the task's own.
    """
    from robot_rl.files import finite, write_atomic
    from robot_rl.settings.tree import leaves

    task = str(tree["task"])
    content = {"stamp": _stamp(task), "settings": finite(dict(leaves(tree)))}
    text, path = json.dumps(content, default=str), _file(task, learner)
    with contextlib.suppress(OSError):
        if not path.is_file() or path.read_text() != text:
            write_atomic(path, text)


def _recall(task: str, learner: str) -> Values:
    """Return the settings of a task that are kept; those that are missing or old begin to be read."""
    found: Any = None
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(_file(task, learner).read_bytes())
    is_found = isinstance(found, dict) and isinstance(found.get("settings"), dict)
    if not is_found or found.get("stamp") != _stamp(task):
        _learn_in_background(task, learner)
    return found["settings"] if is_found else {}


def _learn_in_background(task: str, learner: str) -> None:
    """Start a process that keeps the settings of a task, unless code of the working folder would run."""
    from robot_rl.plugins import TASKS, named_here

    if task not in _tasks() or named_here(TASKS, task) or ":" in learner or _is_here(learner):
        return
    nowhere = subprocess.DEVNULL
    command = [sys.executable, "-m", "robot_rl.cli.main", "completion", "learn", task, *([learner] if learner else [])]
    subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)


def learn(task: str, learner: str = "") -> None:
    """Keep the settings of a task; raise UserError if it or the learner does not exist."""
    from robot_rl.runs.settings import default_tree

    remember(default_tree(task, "cpu", learner), learner)
