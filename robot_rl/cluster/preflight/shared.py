"""Files below a root by which the submitter and the nodes find out that all see the same directory."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

PREFIX = ".preflight-"
SUBMITTER = "submitter"
PATIENCE_S = 10.0
"""How long a network file system may take to show another machine's file [s]."""
POLL_S = 0.2


class SharedRoot:
    """The submitter's side, as a context: a folder below the root with its token, removed at the end.

    Args:
        root: The root, created if it is missing, and then removed again.

    Attributes:
        token: The name of the folder and the content of the submitter's file.
        error: Why files cannot be written to the root; "" if they can.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.token, self.error = root, secrets.token_hex(8), ""
        self._made: list[Path] = []

    def __enter__(self) -> SharedRoot:
        self._made = [path for path in (self.root, *self.root.parents) if not path.exists()]
        try:
            folder = _folder(self.root, self.token)
            folder.mkdir(parents=True)
            folder.chmod(0o777)  # The nodes' processes may be another user's.
            (folder / SUBMITTER).write_text(self.token)
        except OSError as error:
            self.error = (error.strerror or str(error)).lower()
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(_folder(self.root, self.token), ignore_errors=True)
        for path in self._made:
            with contextlib.suppress(OSError):  # Somebody else's files are there now.
                path.rmdir()

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the nodes that have written no file which is seen here, after waiting for them."""
        names = list(names)

        def unseen() -> list[str]:
            return [name for name in names if not _has(_folder(self.root, self.token) / _safe(name), self.token)]

        _wait(lambda: not unseen())
        return unseen()


def answer(root: Path, token: str, name: str) -> tuple[bool, str]:
    """Write a node's own file; return whether the submitter's is seen, and why nothing can be written."""
    folder = _folder(root, token)
    if not _wait(lambda: _has(folder / SUBMITTER, token)):
        return False, write_error(root)
    try:
        (folder / _safe(name)).write_text(token)
    except OSError as error:
        return True, (error.strerror or str(error)).lower()
    return True, ""


def write_error(root: Path) -> str:
    """Return why files cannot be written to a root; "" if they can. Nothing stays behind."""
    with SharedRoot(root) as shared:
        return shared.error


def _folder(root: Path, token: str) -> Path:
    return root / f"{PREFIX}{token}"


def _safe(name: str) -> str:
    return "node-" + "".join(sign if sign.isalnum() or sign in "-." else "_" for sign in name)


def _has(path: Path, token: str) -> bool:
    with contextlib.suppress(OSError):
        return path.read_text() == token
    return False


def _wait(look: Callable[[], bool]) -> bool:
    """Return whether a condition became true in time."""
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
