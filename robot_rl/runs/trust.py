"""Decide whether a run may import the code that its settings name: runs made here may, others need trust=true.

A run's settings can name modules: of tasks, learners, auxiliary objectives and converters (`<module>:<name>`), of
environments (`gym:<module>:<id>`) and, in Isaac Lab, of the functions of its terms. Importing a module runs it, so the
settings of somebody else's run would choose the code that runs here. A run trained here has a seal in run.yaml, made
with a key that only this user has on this machine. If no key can be stored, such as without a home directory, runs are
not sealed.
"""

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError
from robot_rl.files import read_plain
from robot_rl.learn.algorithms import learner_code
from robot_rl.sources.registry import source_of

KEY_BYTES = 32


def named_code(tree: Mapping[str, Any]) -> list[str]:
    """Return the code that the settings of a run would import or run."""
    return source_of(tree.get("task")).named_code(tree) + learner_code(tree.get("learner"), tree)


def seal(tree: Mapping[str, Any]) -> dict[str, str]:
    """Return {"seal": ...} for run.yaml; empty if the settings name no code, or no key can be stored."""
    sealed = seal_code(code) if (code := named_code(tree)) else ""
    return {"seal": sealed} if sealed else {}


def seal_code(code: list[str]) -> str:
    """Return this user's seal of code that a file names, on this machine; empty if no key can be stored."""
    key = _key(make=True)
    return "" if key is None else _seal(key, code)


def is_sealed(code: list[str], sealed: Any) -> bool:
    """Return whether a seal, of any type, is this user's of this code."""
    key = _key(make=False)
    return key is not None and hmac.compare_digest(_seal(key, code).encode(), str(sealed).encode())


def require_trust(tree: Mapping[str, Any], sealed: Any, who: str, *, trust: bool) -> None:
    """Refuse settings that name code, unless the run was made here or the user trusts it.

    Args:
        tree: The settings, of unchecked types.
        sealed: The seal that came with them, of any type.
        who: The owner of the settings, for the error: run <id>, or a bundle.
        trust: Whether the user trusts them.
    """
    code = named_code(tree)
    if trust or not code or is_sealed(code, sealed):
        return
    why = f"{who} was not made here, and would import {', '.join(code)}"
    raise UserError("task", tree.get("task"), why, "give trust=true if you know that code")


def _seal(key: bytes, code: list[str]) -> str:
    return hmac.new(key, json.dumps(code).encode(), hashlib.sha256).hexdigest()


def _key(*, make: bool) -> bytes | None:
    """Return this user's key on this machine; None if there is none, and none can be created."""
    try:
        state = os.environ.get("XDG_STATE_HOME", "")
        folder = (Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state") / "robot-rl"
        path = folder / "key"
        if make and not path.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=folder)  # Readable by this user only.
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(secrets.token_bytes(KEY_BYTES))
                with contextlib.suppress(FileExistsError):  # Another process was faster.
                    os.link(name, path)
            finally:
                os.unlink(name)
        key = read_plain(path, KEY_BYTES)
    except (OSError, RuntimeError, UserError):  # The second: this user's home directory is unknown.
        return None
    return key if len(key) == KEY_BYTES else None
