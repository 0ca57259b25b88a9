"""The words of a command line that choose a launcher: `launcher=<name>` and `launcher.<setting>=<value>`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from robot_rl.errors import UserError

if TYPE_CHECKING:
    from robot_rl.experiment.launchers.launcher import Launcher

GROUP = "launcher"


def read_launcher_words(arguments: Sequence[str]) -> tuple[list[str], Launcher | None]:
    """Return the other words, and the launcher that some of them choose; None where none does.

    Raises:
        UserError: There is no such launcher or setting, one is given twice, or a value is invalid.
    """
    from robot_rl.experiment.grammar import read_changes
    from robot_rl.experiment.launchers import own_launchers, read_launcher

    mine = [word for word in arguments if word.lstrip("+~").partition("=")[0].partition(".")[0] == GROUP]
    rest = [word for word in arguments if word not in mine]
    if not mine:
        return rest, None
    for word in mine:
        if "=" not in word or word[0] in "+~":
            raise UserError(f"'{word}': write {GROUP}=<name> or {GROUP}.<setting>=<value>")
    settings = read_changes([word for word in mine if not word.startswith(f"{GROUP}=")])
    names = [word.partition("=")[2] for word in mine if word.startswith(f"{GROUP}=")]
    if len(names) > 1:
        raise UserError(f"{GROUP}={names[0]} and {GROUP}={names[1]}: a run has one launcher; leave one of them out")
    if not names or not names[0]:
        raise UserError(f"{mine[0]}: says not which launcher; add {GROUP}=<name>, known: {', '.join(own_launchers())}")
    return rest, read_launcher(names[0], {key.partition(".")[2]: value for key, value in settings.items()})
