"""Read the words of `robot-rl train` by Hydra's grammar, and compose the settings of each run that they start.

Each task has its whole tree of settings (`robot_rl.runs.settings`); words change it, several values of a word
sweep, and a value may name another setting as ${key}. Everything is checked before the first run starts, also the
last run of a sweep. A word that would be read in another way than it was meant is refused: a setting given twice, a
name that is read as a number.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from robot_rl.cli.suggestions import remember
from robot_rl.errors import UserError, suggest
from robot_rl.runs.run_dir import check_run_id
from robot_rl.runs.settings import default_tree, refuse_other_learners, resolve
from robot_rl.settings import tree as trees
from robot_rl.settings.words import REMOVED, leaf_names, parse_word, refuse_addition, refuse_twice
from robot_rl.sources.registry import list_sources, source_of

if TYPE_CHECKING:
    from omegaconf import DictConfig

MAX_SWEEP = 10_000
FLAGS = {"--multirun": "-m", "--cfg": "-c", "--package": "-p", "--resolve": ""}
"""The flags, as Hydra has them, and their short forms."""
NAMES = ("root", "run_id", "init_from")
"""Settings with a name as their value, even if it looks like a number."""


def launch(arguments: Sequence[str], job: Callable[[dict[str, Any]], Any], gpus: int | None = None) -> None:
    """Compose the configuration and call `job` with the resolved tree, once or, with -m, for each job of a sweep.

    Args:
        arguments: key=value overrides and Hydra's flags.
        job: Called in this process.
        gpus: GPUs of the machine that trains, if that is another one.

    Raises:
        UserError: An argument is not an override, or names something that the task does not have.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    flags, overrides, nodes = check_words(arguments, gpus)
    for override in overrides:
        if override.is_sweep_override() and override.is_interval_sweep():
            raise UserError(f"'{override.input_line}': an interval is for sweeper=optuna; write key=a,b,c")
    for changes in _jobs(overrides):
        name = str(changes.pop("task"))
        optional = source_of(name).optional_keys(name) if REMOVED in changes.values() else ()
        try:
            cfg = _compose(nodes[name], changes, optional)
            if "--cfg" in flags:
                _print(cfg, flags)
                continue
            tree: Any = OmegaConf.to_container(cfg, resolve=True)
        except OmegaConfBaseException as error:
            line = str(error).partition("\n")[0] or type(error).__name__
            raise UserError(f"{key}: {line}" if (key := getattr(error, "full_key", "")) else line) from error
        job(tree)


def check_words(
    arguments: Sequence[str], gpus: int | None = None
) -> tuple[dict[str, str], tuple[Any, ...], dict[str, dict[str, Any]]]:
    """Return the flags, its parsed overrides, and each task's tree of settings, after all checks; see `launch`."""
    flags, overrides = read_words(arguments)
    device, learner = _device(overrides), _learner(overrides)
    if not (names := _all_values(overrides, "task")):
        raise missing_task()
    mine = [override for override in overrides if override.key_or_group != "task"]
    keys = [override.key_or_group for override in mine]
    nodes = {name: source_of(name).admit(default_tree(name, device, learner, gpus), keys) for name in names}
    for override in mine:
        refuse_addition(override)
    for name, tree in nodes.items():
        optional = source_of(name).optional_keys(name) if any(override.is_delete() for override in mine) else ()
        for override in mine:
            refuse_other_learners(tree, override.key_or_group)
            trees.require_key(tree, override.key_or_group)
            if override.is_delete():
                trees.require_removable(override.key_or_group, optional)
        _check_values(tree, mine, gpus)
        remember(tree, learner)
    return flags, overrides, nodes


def _all_values(overrides: Sequence[Any], key: str) -> list[str]:
    """Return all values that overrides give a setting, as text."""
    return [str(value) for override in overrides if override.key_or_group == key for value in _values(override)]


def _values(override: Any) -> list[Any]:
    """Return the value of an override in a list, or all values of its sweep, or of an interval the ends."""
    from hydra.errors import HydraException

    if override.is_delete():
        return [REMOVED]
    if not override.is_sweep_override():
        return [override.value()]
    if override.is_interval_sweep():  # Only a search goes through it.
        return [override.value().start, override.value().end]
    try:
        texts = list(itertools.islice(override.sweep_string_iterator(), MAX_SWEEP + 1))
    except HydraException as error:
        raise UserError(f"'{override.input_line}': is not a valid sweep ({error}); write key=a,b,c") from None
    if len(texts) > MAX_SWEEP:
        raise UserError(f"'{override.input_line}': is a sweep of more than {MAX_SWEEP} values; split it")
    if twice := next((text for text, count in Counter(texts).items() if count > 1), None):
        raise UserError(f"'{override.input_line}': {twice} is given twice; the two runs would be the same")
    return [parse_word(f"{override.key_or_group}={text}").value() for text in texts]


def missing_task() -> UserError:
    """Return the error of a command without a task."""
    last_source, *first = reversed(list_sources())
    *patterns, last = (f"task={source.pattern}" for source in (last_source, *reversed(first)) if source.pattern)
    from robot_rl_tasks.registry import list_tasks

    return UserError(f"task: is missing; write {', '.join(patterns)} or {last}; known: {', '.join(list_tasks())}")


def _device(overrides: Sequence[Any]) -> str:
    found = _all_values(overrides, "device")
    if len({value.partition(":")[0] for value in found}) > 1:
        raise UserError("device", ",".join(found), "a sweep uses the presets of one kind of device", "start two")
    return found[0] if found else "auto"


def _learner(overrides: Sequence[Any]) -> str:
    """Return the learner that gives the tree its settings, "" for the task's own; those of a sweep have the same."""
    from robot_rl.learn.algorithms import get_learner
    from robot_rl.settings import to_dict

    found = _all_values(overrides, "learner")
    settings = {frozenset(to_dict(get_learner(name)())) for name in found}
    if len(settings) > 1:
        raise UserError("learner", ",".join(found), "a sweep goes through learners with the same settings", "start two")
    return found[0] if found else ""


def _check_values(tree: dict[str, Any], overrides: Sequence[Any], gpus: int | None) -> None:
    """Set every value in a tree, and resolve each of a sweep: a typo in its last job is found before the first."""
    mine = [override for override in overrides if not override.is_delete()]
    fixed = _plain({override.key_or_group: override.value() for override in mine if not override.is_sweep_override()})
    trees.override(tree, fixed)
    for override in mine:
        if override.is_sweep_override():
            for value in _values(override):
                resolve(trees.override(tree, fixed | _plain({override.key_or_group: value})), gpus)


def _plain(dotted: dict[str, Any]) -> dict[str, Any]:
    """Return the values that are known before Hydra has composed the configuration."""
    return {key: value for key, value in dotted.items() if "${" not in str(value)}


def _jobs(overrides: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the changes of each run of a sweep, by dotted name; the last sweep given goes through its values first."""
    each = [[(override.key_or_group, value) for value in _values(override)] for override in overrides]
    yield from map(dict, itertools.product(*each))


def _compose(tree: Mapping[str, Any], changes: Mapping[str, Any], optional: Collection[str]) -> DictConfig:
    """Return a tree with its changes, in which `${}` may name other settings."""
    from omegaconf import OmegaConf

    return OmegaConf.create(trees.override(tree, changes, optional))


def _print(cfg: DictConfig, flags: Mapping[str, str]) -> None:
    """Print the settings of a run, or a group of them, as --cfg, --package and --resolve say."""
    from omegaconf import OmegaConf

    if package := flags.get("--package", ""):
        trees.require_key(cfg, package)
        cfg = OmegaConf.select(cfg, package)
    if not OmegaConf.is_config(cfg):
        print(cfg)
        return
    head = f"# @package {package}\n" if package else ""
    print(head + OmegaConf.to_yaml(cfg, resolve="--resolve" in flags), end="")


def read_words(arguments: Sequence[str]) -> tuple[dict[str, str], tuple[Any, ...]]:
    """Return the flags, by their long form with the value that some have, and the parsed overrides, in order.

    Raises:
        UserError: An argument is neither an override nor a flag, a setting is given twice, or does not have an effect.
    """
    flags, words = _flags(arguments)
    overrides = tuple(map(_parse, words))
    is_sweep = "--multirun" in flags
    for override in overrides:
        if override.key_or_group.startswith(("hydra.", "hydra/")):
            raise UserError(
                f"'{override.input_line}': is one of Hydra's own settings; use launcher=, sweeper= and root="
            )
        if override.is_sweep_override():
            if not is_sweep:
                raise UserError(f"'{override.input_line}': several values are a sweep, which needs -m")
        elif override.key_or_group in NAMES and not override.is_delete():
            _check_name(override)
    _check_sweep_of_one_run(overrides)
    refuse_twice((name, override.input_line) for override in overrides for name in _names(override))
    return flags, overrides


def _flags(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the flags among the arguments, by their long form with the value that some have, and the other words."""
    long = {short: name for name, short in FLAGS.items() if short}
    flags: dict[str, str] = {}
    words = []
    rest = iter(arguments)
    for argument in rest:
        if argument.startswith("-"):
            flag, equals, value = argument.partition("=")
            name = long.get(flag, flag)
            if name not in FLAGS or (equals and name not in ("--cfg", "--package")):
                hint = suggest(flag, [*FLAGS, *long])
                raise UserError(f"unknown option '{argument}': {hint}; settings are key=value")
            if name in ("--cfg", "--package"):
                value = value if equals else next(rest, "")
                if name == "--cfg" and value != "job":
                    raise UserError(f"{flag} '{value}': must be job, the settings of a run")
                if not value:
                    raise UserError(f"{flag} '': must name a group of settings, such as ppo")
            flags[name] = value
        elif "=" not in argument and not argument.startswith("~"):
            raise UserError(f"'{argument}': write settings as key=value, such as task={argument}")
        else:
            words.append(argument)
    if "--cfg" in flags and "--multirun" in flags:
        raise UserError("--cfg: prints the settings of one run; leave -m out")
    for flag in ("--package", "--resolve"):
        if flag in flags and "--cfg" not in flags:
            raise UserError(f"{flag}: only changes what --cfg prints; add --cfg job")
    return flags, words


def _parse(word: str) -> Any:
    try:
        return parse_word(word)
    except UserError:
        if word.startswith("run_id="):
            check_run_id(word.partition("=")[2])
        raise


def _check_name(override: Any) -> None:
    """Refuse a name that is read as anything else: two of them could be the same run."""
    text, value, key = override.input_line.partition("=")[2], override.value(), override.key_or_group
    if isinstance(value, str) or (value is None and key != "root"):
        return
    if str(value) != text or isinstance(value, bool | list | dict | None):
        right = "must be one name that begins with a letter" + (", or ./ and any name" if key == "root" else "")
        raise UserError(key, text, f"would be read as {value}", right)


def _check_sweep_of_one_run(overrides: Sequence[Any]) -> None:
    """Refuse one run's id for a sweep of other settings: the second job would find the run of the first."""
    swept = [override for override in overrides if override.is_sweep_override() and override.key_or_group != "task"]
    for override in overrides:
        value = None
        if override.key_or_group == "run_id" and not override.is_sweep_override():
            value = override.value()
        if swept and value is not None and "${" not in str(value):
            each = f"run_id={value}-${{{swept[0].key_or_group}}}"
            raise UserError(f"{override.input_line}: a sweep makes several runs; give each an id, such as '{each}'")


def _names(override: Any) -> Iterator[str]:
    """Return the settings that an override changes; of a group given as a whole all that it names."""
    value = None if override.is_delete() or override.is_sweep_override() else override.value()
    return leaf_names(override.key_or_group, value)
