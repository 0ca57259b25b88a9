"""Parse the arguments of a command: options of its dataclass, and changes of settings."""

import dataclasses
import textwrap
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from robot_rl.errors import UnknownKeyError, UserError, suggest
from robot_rl.settings.schema import check_rule, from_text, help_of, rules_of
from robot_rl.settings.schema import setting as option
from robot_rl.settings.words import MAX_COUNT, MAX_ENVS, MAX_SEED, parse_value, read_changes, refuse_twice

if TYPE_CHECKING:
    from robot_rl.runs.policies import PolicySource
    from robot_rl.runs.run_dir import RunDir

__all__ = ["MAX_COUNT", "MAX_ENVS", "MAX_SEED", "option", "parse_value"]

T = TypeVar("T")
CHANGES_HELP = """\
Numbers of the task can be set by name as in training, such as commands.velocity.vx_hi=2 or sim.floor_friction=0.5, and
its terms removed: ~events.push.
"""


@dataclass(kw_only=True, slots=True)
class RunOptions:
    """Options that say which run."""

    run: str = option("latest", "the run: its id, latest or <task>/latest")
    root: str = option("runs", "the directory of all runs")

    def find_run(self) -> "RunDir":
        """Return the run's directory; raise UserError if the run does not exist."""
        from robot_rl.runs.run_dir import RunDir

        return RunDir.find(self.run, self.root)


@dataclass(kw_only=True, slots=True)
class TaskRunOptions(RunOptions):
    """Options that say which run, of a command that builds its task."""

    trust: bool = option(False, "import the module that the run's task names, if the run was not made here")


@dataclass(kw_only=True, slots=True)
class PolicyOptions:
    """Options that say which policy."""

    run: str = option("", "the run: its id, latest or <task>/latest; the newest one by default")
    policy: str = option("", "instead of a run: a policy that comes with the project, or the folder of a bundle")
    root: str = option("runs", "the directory of all runs")
    trust: bool = option(False, "import the module that the policy's task names, if it was not made here")

    def find_policy(self, changes: dict[str, Any]) -> "PolicySource":
        """Return the policy, with changes of its task's settings; see `robot_rl.runs.policies.find_policy`."""
        from robot_rl.runs.policies import find_policy

        return find_policy(self.run, self.policy, self.root, changes, trust=self.trust)

    def find_bundle(self) -> Any:
        """Return the directory of one bundle, exported now if a run has none."""
        from robot_rl.runs.policies import find_one_bundle

        return find_one_bundle(self.run, self.policy, self.root, trust=self.trust)

    def refuse_unsupported(self, command: str) -> None:
        """Raise UserError with the reason if the policy's task does not support a command."""
        from robot_rl.runs.policies import find_task_name
        from robot_rl.sources.registry import refuse_unsupported

        refuse_unsupported(find_task_name(self.run, self.policy, self.root), command)


def _key(field: dataclasses.Field[Any]) -> str:
    """Return the key of an option: its field's name, without the _ by which it differs from a word of Python's."""
    return field.name.rstrip("_")


def describe(cls: type, prefix: str = "") -> str:
    """Return the settings of a dataclass, and of those in it, as lines of help: name=default and its description."""
    rows = list(_rows(cls(), prefix))
    width = min(30, max(len(name) for name, _ in rows))
    return "\n".join(
        textwrap.fill(
            text,
            120,
            initial_indent=f"  {name:<{width}}  ",
            subsequent_indent=" " * (width + 4),
            break_on_hyphens=False,
        ).rstrip()
        for name, text in rows
    )


def _rows(cfg: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield name=default and the description of each setting of `cfg` and of the groups in it."""
    texts, rules = help_of(type(cfg)), rules_of(type(cfg))
    for field in dataclasses.fields(cfg):
        name, value = field.metadata.get("called") or f"{prefix}{_key(field)}", getattr(cfg, field.name)
        if dataclasses.is_dataclass(value):
            yield from _rows(value, f"{name}.")
        elif field.name not in ("name", *getattr(cfg, "unused", ())):  # A learner's name is how it was found.
            text, choices = texts.get(field.name, "").rstrip("."), rules[field.name].get("choices", ())
            unnamed = [choice for choice in choices if choice not in text]
            yield f"{name}={_shown(value)}", f"{text} ({', '.join(choices)})" if unnamed else text


def split_bare(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words without "=", such as names and files, and the words that set something."""
    bare = [word for word in arguments if "=" not in word and not word.startswith("~")]
    return bare, [word for word in arguments if word not in bare]


def read(cls: type[T], arguments: Sequence[str], *, first: str = "", every: bool = False) -> tuple[T, dict[str, Any]]:
    """Parse arguments into `cls`, and return the other changes by dotted name: any key with a dot, and `~key`.

    Args:
        cls: A dataclass with fields of str, int, float or bool, with defaults.
        arguments: The words.
        first: The option that a word without "=" sets.
        every: Whether every key that is not an option of `cls` is a setting to change.

    Raises:
        UserError: An unknown key, a value of the wrong type or out of range, or a key that is given twice.
    """
    hints = typing.get_type_hints(cls)
    fields = {_key(field): field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    own: list[tuple[str, str, str]] = []
    rest: list[str] = []
    for word in arguments:
        key, equals, text = word.partition("=")
        if first and not equals and not word.startswith(("-", "~", "+")):
            key, equals, text, word = first, "=", word, f"{first}={word}"  # noqa: PLW2901
        if key in fields and equals:
            own.append((key, text, word))
        elif word.startswith("~") or (equals and (every or "." in key) and not key.startswith("-")):
            rest.append(word)
        elif not equals or not key or key.startswith("-"):
            raise UserError(f"'{word}': write options as key=value; --help lists them")
        else:
            raise UnknownKeyError(key, suggest(key, fields))
    refuse_twice((key, word) for key, _, word in own)
    known = {fields[key].name: _convert(hints[fields[key].name], text, fields[key]) for key, text, _ in own}
    return cls(**known), read_changes(rest)


def read_all(cls: type[T], arguments: Sequence[str], *, first: str = "") -> T:
    """Parse arguments into `cls`; raise UserError for any other key or a value of the wrong type."""
    options, changes = read(cls, arguments, first=first)
    for key in changes:
        known = [_key(field) for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        raise UnknownKeyError(key, suggest(key, known))
    return options


def _convert(hint: Any, text: str, field: dataclasses.Field[Any]) -> Any:
    name = _key(field)
    if not text:
        raise UserError(f"{name}= is empty; give a value, or leave {name}= out for the default")
    value = from_text(hint, text, name)
    check_rule(name, value, field.metadata)
    return value


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return f"[{','.join(map(_shown, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
