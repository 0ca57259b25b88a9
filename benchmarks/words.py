"""The key=value words of the scripts here, checked before anything is measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from robot_rl.errors import UserError, suggest
from robot_rl.runs.outputs import Kind, check_output, has_keys

IMAGE = Kind(what="a PNG image", is_ours=lambda path: path.read_bytes().startswith(b"\x89PNG"), endings=(".png",))


def read_words(
    arguments: Sequence[str],
    known: Mapping[str, str],
    *,
    whole: Iterable[str] = (),
    free: bool = False,
    marks: Sequence[str] = ("versions",),
    kind: Kind | None = None,
) -> dict[str, str]:
    """Return the values by key, with the defaults of `known`.

    Args:
        arguments: words of the command line.
        known: every key with its default; "out", if it is one and not empty, names the file that will be written.
        whole: keys of whole numbers of at least 1.
        free: other keys are accepted.
        marks: keys of the JSON in "out" that identify an earlier output of the script.
        kind: the kind of file of "out" if it is not such JSON.

    Raises:
        UserError: an unknown key, a word without a value, not a whole number, or a file that cannot be written or is
            not the script's.
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
        kind = kind or Kind(what="an output of this script", is_ours=has_keys(*marks))
        check_output("out", values["out"], kind)
    return values


def read_folder(arguments: Sequence[str], *names: str) -> Path:
    """Return the folder of ``folder=`` (docs/img by default), in which the images `names` can be written."""
    folder = Path(read_words(arguments, {"folder": "docs/img"})["folder"])
    if not folder.is_dir():
        raise UserError(f"folder={folder}: no such folder; name one that exists")
    for name in names:
        check_output("folder", str(folder / name), IMAGE)
    return folder


def run_script(main: Callable[[list[str]], int | None]) -> None:
    """Call `main` with the words of the command line and end the process; a UserError is one line, exit code 2."""
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
