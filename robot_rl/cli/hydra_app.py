"""The front door for training: Hydra reads the command line, sweeps and launches; no DictConfig goes further in.

Hydra's configuration is made from the task: the primary config "train" chooses one from the group `task`, and each
task's node holds the whole tree of `robot_rl.experiment.settings`. What Hydra would complain about in many lines is
found before.
"""

import itertools
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from robot_rl.cli.overrides import is_hydra, read_words
from robot_rl.errors import UserError
from robot_rl.experiment import tree as trees
from robot_rl.experiment.grammar import refuse_addition
from robot_rl.experiment.settings import default_tree, refuse_other_learners, resolve
from robot_rl.sources.registry import list_sources, source_of

MAX_SWEEP = 10_000


def launch(arguments: Sequence[str], job: Callable[[dict[str, Any]], Any]) -> None:
    """Composes the configuration from the command line and calls `job` with it, once or, with -m, for each of a sweep.

    Args:
        arguments: key=value overrides and Hydra's flags.
        job: Takes the resolved tree. It must be importable where Hydra's launcher runs it in another process.

    Raises:
        UserError: An argument is no override, or names something that the task does not have.
    """
    words = read_words(arguments)
    overrides = words.overrides
    device, learner = _device(overrides), _learner(overrides)
    names = _tasks(overrides)
    mine = [override for override in overrides if override.key_or_group != "task" and not is_hydra(override)]
    keys = [override.key_or_group for override in mine]
    nodes = {name: source_of(name).admit(default_tree(name, device, learner), keys) for name in names}
    for override in mine:
        refuse_addition(override)
    for name, tree in nodes.items():
        optional = source_of(name).optional_keys(name) if any(override.is_delete() for override in mine) else ()
        for override in mine:
            refuse_other_learners(tree, override.key_or_group)
            trees.require_key(tree, override.key_or_group)
            if override.is_delete():
                trees.refuse_left_out(override.key_or_group, optional)
        _check_values(tree, mine)
    _store(nodes)
    _run([*words.flags, *_with_options(overrides)], job)


def _values(override: Any) -> list[str]:
    """The value of an override, or all those that a sweep goes through, as text."""
    if override.is_sweep_override():
        return [str(getattr(value, "text", value)) for value in _sweep(override)]
    return [str(override.value())]


def _sweep(override: Any) -> list[Any]:
    """What a sweep goes through."""
    from hydra.errors import HydraException

    try:
        values = list(itertools.islice(override.sweep_iterator(), MAX_SWEEP + 1))
    except HydraException as error:
        raise UserError(f"'{override.input_line}': no sweep that can be made here, {error}") from None
    if len(values) > MAX_SWEEP:
        raise UserError(f"'{override.input_line}': a sweep of more than {MAX_SWEEP} values")
    return values


def _tasks(overrides: Sequence[Any]) -> list[str]:
    found = [value for override in overrides if override.key_or_group == "task" for value in _values(override)]
    if not found:
        raise missing_task()
    return found


def missing_task() -> UserError:
    """The error of a command without a task."""
    last_source, *first = reversed(list_sources())
    *patterns, last = (f"task={source.pattern}" for source in (last_source, *reversed(first)) if source.pattern)
    from robot_rl_tasks.registry import list_tasks

    return UserError(f"task: which one? Write {', '.join(patterns)} or {last}; known: {', '.join(list_tasks())}")


def _option(name: str) -> str:
    """What a task's node is called in Hydra's store: an environment's id may hold what a path or Hydra reads."""
    return re.sub(r"[^\w.-]", "-", name)


def _with_options(overrides: Sequence[Any]) -> list[str]:
    """The overrides with the nodes' names in the place of the tasks'."""
    return [
        f"task={','.join(_option(value) for value in _values(override))}"
        if override.key_or_group == "task"
        else override.input_line
        for override in overrides
    ]


def _device(overrides: Sequence[Any]) -> str:
    found = [value for override in overrides if override.key_or_group == "device" for value in _values(override)]
    if len({value.partition(":")[0] for value in found}) > 1:
        raise UserError(f"device={','.join(found)}: a sweep stays on one kind of device, whose presets it starts from")
    return found[0] if found else "auto"


def _learner(overrides: Sequence[Any]) -> str:
    """The learner whose settings the tree holds; a sweep goes through learners with the same settings."""
    from robot_rl.config import to_dict
    from robot_rl.learn.algorithms import get_learner

    found = [value for override in overrides if override.key_or_group == "learner" for value in _values(override)]
    settings = {frozenset(to_dict(get_learner(name)())) for name in found}
    if len(settings) > 1:
        raise UserError(f"learner={','.join(found)}: a sweep goes through learners with the same settings; start two")
    return found[0] if found else "ppo"


def _check_values(tree: dict[str, Any], overrides: Sequence[Any]) -> None:
    """Puts every value into a tree, and resolves each of a sweep: a typo in its last job is found before the first."""
    mine = [override for override in overrides if not override.is_delete()]
    fixed = _plain({override.key_or_group: override.value() for override in mine if not override.is_sweep_override()})
    trees.override(tree, fixed)
    for override in mine:
        if override.is_sweep_override():
            for value in _sweep(override):
                resolve(trees.override(tree, fixed | _plain({override.key_or_group: value})))


def _plain(dotted: dict[str, Any]) -> dict[str, Any]:
    """The values that are known before Hydra has put the configuration together."""
    return {key: value for key, value in dotted.items() if "${" not in str(value)}


def _store(nodes: dict[str, dict[str, Any]]) -> None:
    """Puts the primary config and one node a task where Hydra looks for them."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    hydra = {
        "run": {"dir": "."},
        "sweep": {"dir": "${root}/.sweeps/${now:%Y%m%d-%H%M%S}", "subdir": "."},
        "output_subdir": None,
        "job": {"chdir": False, "name": "train"},
    }
    quiet = [{"override hydra/job_logging": "none"}, {"override hydra/hydra_logging": "none"}]
    # A sweep over tasks is composed without them first: the other settings have to find their place there, too.
    defaults = ["_self_", {"task": _option(next(iter(nodes)))}, *quiet]
    store.store(name="train", node={"defaults": defaults, "hydra": hydra})
    for name, tree in nodes.items():
        store.store(group="task", name=_option(name), package="_global_", node=tree)


def _run(arguments: Sequence[str], job: Callable[[dict[str, Any]], Any]) -> None:
    """Hands over to Hydra, which reads the command line from sys.argv."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    failures: list[Exception] = []
    process = os.getpid()

    def task_function(cfg: DictConfig) -> None:
        if failures:
            return
        try:
            tree = OmegaConf.to_container(cfg, resolve=True)
            assert isinstance(tree, dict)
            job({str(key): value for key, value in tree.items()})
        except Exception as error:
            # Hydra would print lines of its own; a launcher that works in other processes has to see it, though.
            if os.getpid() != process:
                raise
            failures.append(error)

    before, sys.argv = sys.argv, ["robot-rl train", *arguments]
    # Hydra then lets errors through as they are, for the one place that turns them into exit codes.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        hydra.main(version_base="1.3", config_path=None, config_name="train")(task_function)()
        if failures:
            raise failures[0]
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(str(error).partition("\n")[0] or type(error).__name__) from error
    finally:
        sys.argv = before
