"""Whether a run may import code that its settings name: those of runs made here may, others need the user's word.

A run's settings can name modules: of tasks, learners, auxiliary objectives and converters (`<module>:<name>`), of
environments (`gym:<module>:<id>`) and, in Isaac Lab, of the functions of its terms. Python runs a module when it
imports it, so the settings of somebody else's run would choose what runs here. A run
trained here carries a seal in run.yaml, made with a key that only this user has on this machine; a copy from elsewhere
has none that fits. Where no key can be kept, such as without a home directory, there are no seals.
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
    """Return the code that settings would import or run, as the source of their task and their learner know it.

    Args:
        tree: The settings of a run, as run.yaml has them.
    """
    return source_of(tree.get("task")).named_code(tree) + learner_code(tree.get("learner"), tree)


def seal(tree: Mapping[str, Any]) -> dict[str, str]:
    """Return what run.yaml holds about a run that is made here, "seal" by name; nothing where no code is named.

    Nor is there anything where no key can be kept: such a run is trusted on the command line that names its task only.
    """
    key = _key(make=True) if (code := named_code(tree)) else None
    return {} if key is None else {"seal": _seal(key, code)}


def require(tree: Mapping[str, Any], sealed: Any, who: str, *, trust: bool) -> None:
    """Refuse settings that name code, unless the run was made here or the user trusts it.

    Args:
        tree: The settings, whose types nobody has checked.
        sealed: The seal that came with them, of any type.
        who: What they are of, for the line: run <id>, or a bundle.
        trust: The user's word.

    Raises:
        UserError: The line names the code.
    """
    code = named_code(tree)
    if trust or not code:
        return
    key = _key(make=False)
    if key is not None and hmac.compare_digest(_seal(key, code).encode(), str(sealed).encode()):
        return
    raise UserError(
        f"task={tree.get('task')}: {who} was not made here, and would import {', '.join(code)}; "
        "give trust=true if you know that code"
    )


def _seal(key: bytes, code: list[str]) -> str:
    return hmac.new(key, json.dumps(code).encode(), hashlib.sha256).hexdigest()


def _key(*, make: bool) -> bytes | None:
    """This user's key on this machine; None where there is none, and none can be made."""
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
    except (OSError, RuntimeError, UserError):  # The second: nobody knows where this user is at home.
        return None
    return key if len(key) == KEY_BYTES else None
