"""The words of `robot-rl train`: Hydra's flags, and the overrides that its grammar reads, checked before it sees them.

What Hydra would take silently, and not as it was meant, is refused here: a setting that is given twice, a name that is
read as a number, settings of Hydra's own that have no effect or write files where nobody looks for them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from robot_rl.errors import UserError, suggest
from robot_rl.experiment.grammar import leaf_names, parse_word, refuse_twice
from robot_rl.experiment.run_dir import check_run_id

FLAGS = {"--multirun": "-m", "--cfg": "-c", "--package": "-p", "--resolve": ""}
"""Flags of Hydra that make sense here, and their short forms."""
PRINTED = ("job", "hydra", "all")
NAMES = ("root", "run_id", "init_from")
"""Settings whose value is a name, however much it looks like a number."""
OF_HYDRA = (
    *("hydra/launcher", "hydra.launcher", "hydra/sweeper", "hydra.sweeper"),
    *("hydra.sweep.dir", "hydra.job.env_set", "hydra.job.env_copy"),
)
"""Settings of Hydra's own, and groups of them, that a sweep takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """A command line that was read.

    Attributes:
        flags: Hydra's flags, as Hydra takes them.
        overrides: Hydra's parsed overrides, in order.
        is_sweep: Whether one of the flags is -m.
    """

    flags: tuple[str, ...]
    overrides: tuple[Any, ...]
    is_sweep: bool


def is_hydra(override: Any) -> bool:
    """Whether an override is of one of Hydra's own settings."""
    return override.key_or_group.startswith(("hydra.", "hydra/"))


def read_words(arguments: Sequence[str]) -> Words:
    """Read the arguments of `robot-rl train`, flags at any place.

    Raises:
        UserError: An argument is no override or no flag, a setting is given twice, or is one that has no effect.
    """
    flags, words = _flags(arguments)
    overrides = tuple(map(_parse, words))
    is_sweep = "--multirun" in flags
    for override in overrides:
        if is_hydra(override):
            _check_hydra(override, is_sweep)
        if override.is_sweep_override():
            if not is_sweep:
                raise UserError(f"'{override.input_line}': several values are a sweep, which needs -m")
        elif override.key_or_group in NAMES and not override.is_delete():
            _check_name(override)
    _check_sweep_of_one_run(overrides)
    refuse_twice((name, override.input_line) for override in overrides for name in _names(override))
    printed = tuple(part for flag, value in flags.items() for part in ((flag, value) if value else (flag,)))
    return Words(flags=printed, overrides=overrides, is_sweep=is_sweep)


def _flags(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The flags among the arguments, by their long form with the value that some take, and the other words."""
    long = {short: name for name, short in FLAGS.items() if short}
    flags: dict[str, str] = {}
    words = []
    rest = iter(arguments)
    for argument in rest:
        if argument.startswith("-"):
            flag, equals, value = argument.partition("=")
            name = long.get(flag, flag)
            if name not in FLAGS or (equals and name not in ("--cfg", "--package")):
                raise UserError(
                    f"unknown option '{argument}': {suggest(flag, [*FLAGS, *long])}; settings are key=value"
                )
            if name in ("--cfg", "--package"):
                value = value if equals else next(rest, "")
                if name == "--cfg" and value not in PRINTED:
                    raise UserError(f"{flag} '{value}': must be one of {', '.join(PRINTED)}")
                if not value:
                    raise UserError(f"{flag} '': must name a group of settings, such as ppo")
            flags[name] = value
        elif "=" not in argument and not argument.startswith("~"):
            raise UserError(f"'{argument}': write settings as key=value, such as task={argument}")
        else:
            words.append(argument)
    for flag in ("--package", "--resolve"):
        if flag in flags and "--cfg" not in flags:
            raise UserError(f"{flag}: is for what --cfg prints; add --cfg job")
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
    said, read, key = override.input_line.partition("=")[2], override.value(), override.key_or_group
    if isinstance(read, str) or (read is None and key != "root"):
        return
    if str(read) != said or isinstance(read, bool | list | dict | None):
        right = "must be one name that begins with a letter" + (", or ./ and any name" if key == "root" else "")
        raise UserError(f"{key}={said}: would be read as {read}; {right}")


def _check_hydra(override: Any, is_sweep: bool) -> None:
    """Refuse settings of Hydra's that would redirect what a run writes, or that nothing here reads."""
    key, line = override.key_or_group, override.input_line
    if not any(key == name or key.startswith(f"{name}.") for name in OF_HYDRA):
        known = ", ".join(name if "/" in name or name.count(".") > 1 else f"{name}.*" for name in OF_HYDRA)
        raise UserError(f"'{line}': of Hydra's own settings a sweep takes {known}; runs are written to root=")
    if not is_sweep:
        raise UserError(f"'{line}': is for a sweep, which needs -m")
    if key == "hydra.sweep.dir" and (override.is_delete() or not str(override.value() or "").strip()):
        raise UserError(f"'{line}': must name the folder in which a sweep's launcher keeps its files, or be left out")


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
    """The settings that an override changes; of a group given as a whole all that it names."""
    value = None if override.is_delete() or override.is_sweep_override() else override.value()
    return leaf_names(override.key_or_group, value)
