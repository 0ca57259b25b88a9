"""Files that a command is told to write, tried before the work whose results go into them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from robot_rl.errors import UserError


def check_outputs(arguments: Sequence[str], keys: Sequence[str] = ("out",)) -> None:
    """Make the folders of the files that ``key=file`` words name, and try to write there.

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
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent):
                pass
        except FileExistsError:
            raise UserError(f"{word}: {path.parent} is not a directory") from None
        except OSError as error:
            raise UserError(f"{word}: cannot be written there ({error.strerror})") from None
