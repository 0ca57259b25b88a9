"""The words of a command line that choose a launcher or a sweeper, such as `launcher=<name>`, and its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from robot_rl.errors import UserError, suggest

if TYPE_CHECKING:
    from robot_rl.cluster.launchers.launcher import Launcher
    from robot_rl.cluster.search import SearchCfg

LAUNCHER, SWEEPER, ROLES = "launcher", "sweeper", "roles"
ROLE_LAUNCHER = "ray"
"""The launcher that a refusal names to somebody who places roles."""


def read_launcher_words(arguments: Sequence[str]) -> tuple[list[str], Launcher | None]:
    """Return the other words, and the launcher that some of them choose; None if none does.

    Raises:
        UserError: The launcher or a setting does not exist, one is given twice, or a value is invalid.
    """
    from robot_rl.cluster.launchers import REGISTRY, read_launcher

    role_words, words = _split(arguments, ROLES)
    words, name, settings = _take(words, LAUNCHER, list(REGISTRY.files()))
    placed = _read_roles(role_words, name) if role_words else {}
    for word, (key, value) in placed.items():
        if key in settings:
            raise UserError(f"{word} and launcher.{key}: are the same setting; leave one of them out")
        settings[key] = value
    try:
        return words, read_launcher(name, settings) if name else None
    except UserError as error:  # It names the launcher's own setting.
        line = str(error)
        for word, (key, _) in placed.items():
            line = line.replace(f"launcher.{key}=", f"{word.partition('=')[0]}=")
        raise UserError(line) from None


def _split(arguments: Sequence[str], group: str) -> tuple[list[str], list[str]]:
    """Return the words of a group, `<group>=` and `<group>.<setting>=`, and the others."""
    of_group = [word for word in arguments if word.lstrip("+~").partition("=")[0].partition(".")[0] == group]
    return of_group, [word for word in arguments if word not in of_group]


def _read_roles(words: Sequence[str], name: str) -> dict[str, tuple[str, Any]]:
    """Return the launcher's setting and its value for each word that places a role."""
    from robot_rl.cluster.launchers import get_launcher
    from robot_rl.settings.words import read_changes

    settings = _role_settings(get_launcher(name)) if name else {}
    for word in words:
        if not settings:
            raise UserError(f"{word}: is for launcher={ROLE_LAUNCHER}; add it, or omit this")
        if word.partition("=")[0] not in settings:
            raise UserError(f"'{word}': is not a setting of a role; {suggest(word.partition('=')[0], settings)}")
    values = read_changes(words)
    return {word: (settings[word.partition("=")[0]], values[word.partition("=")[0]]) for word in words}


def _role_settings(launcher: type[Launcher]) -> dict[str, str]:
    """Return the settings of roles, and those of the launcher that they are; empty if it does not place roles."""
    settings = {each.metadata["called"]: each.name for each in fields(launcher) if each.metadata.get("called")}
    return settings and {**settings, "roles.learner.gpus": "gpus", "roles.learner.cpus": "cpus"}


def read_sweeper_words(arguments: Sequence[str]) -> tuple[list[str], SearchCfg | None]:
    """Return the other words, and the search that some of them choose; None if none does, or for Hydra's own sweeper.

    Raises:
        UserError: The sweeper or a setting does not exist, or a value is invalid.
    """
    from robot_rl.settings.checks import check_choice

    words, name, settings = _take(arguments, SWEEPER, ["basic", "optuna"])
    if not name:
        return words, None
    check_choice(SWEEPER, name, ("basic", "optuna"))
    if name == "basic":
        for key, value in settings.items():
            raise UserError(f"{SWEEPER}.{key}={value}: is for {SWEEPER}=optuna; omit it")
        return words, None
    if "-m" not in words and "--multirun" not in words:
        raise UserError(SWEEPER, name, "is for a sweep, which needs -m")
    from robot_rl.cluster.search import SearchCfg, check_installed
    from robot_rl.settings import from_dict

    check_installed()
    return words, from_dict(SearchCfg, settings, prefix=f"{SWEEPER}.")


def _take(arguments: Sequence[str], group: str, known: Sequence[str]) -> tuple[list[str], str, dict[str, Any]]:
    """Return the other words, and the name and the settings that the words of a group give."""
    from robot_rl.settings.words import parse_word, read_changes

    of_group, others = _split(arguments, group)
    for word in of_group:
        if "=" not in word or word[0] in "+~":
            raise UserError(f"'{word}': write {group}=<name> or {group}.<setting>=<value>")
        if parse_word(word).is_sweep_override():
            raise UserError(f"'{word}': one {group} starts all runs of a sweep; give one value")
    settings = read_changes([word for word in of_group if not word.startswith(f"{group}=")])
    names = [word.partition("=")[2] for word in of_group if word.startswith(f"{group}=")]
    if len(names) > 1:
        raise UserError(f"{group}={names[0]} and {group}={names[1]}: a run has one {group}; leave one of them out")
    if of_group and (not names or not names[0]):
        raise UserError(f"{of_group[0]}: says not which {group}; add {group}=<name>, known: {', '.join(known)}")
    return others, names[0] if names else "", {key.partition(".")[2]: value for key, value in settings.items()}
