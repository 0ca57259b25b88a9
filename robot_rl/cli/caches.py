"""Where libraries keep what they compile and look up: in the user's home, or where that cannot be written, elsewhere.

A container's user often has no home, or one that is mounted read-only. Warp would then end with a traceback at its
start; others warn, or make folders in the current directory.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

VARIABLES = ("XDG_CACHE_HOME", "MPLCONFIGDIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")
"""Variables that move the caches of Warp, PyTorch, Mesa and fontconfig, of Matplotlib, and of W&B."""


def cache_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to set so that every cache can be written; none where the usual place can be.

    Args:
        environ: the environment; variables that it has already are the user's, but for a cache that cannot be written.
    """
    usual = Path(environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~")) / ".cache")
    if _is_writable(usual):
        return {}
    folder = str(_own_folder())
    return {name: folder for name in VARIABLES if name == "XDG_CACHE_HOME" or name not in environ}


def _is_writable(folder: Path) -> bool:
    """Whether files can be made in a folder, which is made where it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return folder.is_absolute() and os.access(folder, os.W_OK | os.X_OK)


def _own_folder() -> Path:
    """A folder for temporary files that is this user's, the same one in every process: what was compiled is kept."""
    folder = Path(tempfile.gettempdir()) / f"robot-rl-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return Path(tempfile.mkdtemp(prefix="robot-rl-"))
    mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    return folder if mine else Path(tempfile.mkdtemp(prefix="robot-rl-"))
