"""Files that a command is told to write, tried before the work whose results go into them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from robot_rl.errors import UserError


def check_outputs(arguments: Sequence[str], keys: Sequence[str] = ("out",)) -> None:
    """Try to write where ``key=file`` words name files; nothing stays behind.

    Args:
        arguments: words of the command line.
        keys: those that name files to write.

    Raises:
        UserError: a file that could not be written after the work.
    """
    for word in arguments:
        key, _, text = word.partition("=")
        if key not in keys or not text:
            continue
        path = Path(text)
        if path.is_dir():
            raise UserError(f"{word}: is a folder; name a file in it")
        if path.exists() and not path.is_file():
            continue  # a device or a pipe
        folder = next(above for above in path.parents if above.exists())  # what lies between is made with the file
        if not folder.is_dir():
            raise UserError(f"{word}: {folder} is not a directory")
        try:
            with tempfile.NamedTemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise UserError(f"{word}: cannot be written there ({error.strerror})") from None
