"""The key=value words that the scripts here take, checked before anything is measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from robot_rl.errors import UserError, suggest
from robot_rl.experiment.outputs import Kind, check_output, has_keys


def read_words(
    arguments: Sequence[str],
    known: Mapping[str, str],
    *,
    whole: Iterable[str] = (),
    free: bool = False,
    marks: Sequence[str] = ("versions",),
) -> dict[str, str]:
    """Return the values by key, as they were written or as `known` has them.

    Args:
        arguments: words of the command line.
        known: every key with its default; "out", where it is one and not empty, names the file that will be written.
        whole: keys of whole numbers of at least 1.
        free: other keys are taken, too.
        marks: keys of the JSON in "out", by which an earlier output of the script is known.

    Raises:
        UserError: an unknown key, a word without a value, no whole number, or a file that cannot be written or is not
            the script's.
    """
    values = dict(known)
    for word in arguments:
        key, equals, text = word.partition("=")
        if not equals or (key not in known and not free):
            raise UserError(f"unknown key '{key}': {suggest(key, known)}" if equals else f"'{word}': write key=value")
        values[key] = text
    for key in whole:
        if not (values[key].isascii() and values[key].isdigit()) or int(values[key]) < 1:
            raise UserError(f"{key}={values[key]}: must be a whole number of at least 1")
    if values.get("out"):
        check_output("out", values["out"], Kind(what="an output of this script", is_ours=has_keys(*marks)))
    return values


def run_script(main: Callable[[list[str]], int | None]) -> None:
    """Call `main` with the words of the command line and end the process; what it refuses is one line, exit code 2."""
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
