"""The exit codes of a run's processes, for launchers that only tell 0 from everything else.

torchrun and Ray start processes again that end with any code other than 0. A process of ours that another attempt would
not help therefore writes its code into a file and ends with 0.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path

from robot_rl.errors import ExitCode, Interrupted, NotRetryableError, PeerError, UserError

VARIABLE = "ROBOT_RL_EXIT_CODES"
"""The environment variable with the directory of the files, one a process, called by its rank."""
ORDER = (
    *(ExitCode.USER, ExitCode.GIVE_UP, ExitCode.DISK_FULL, ExitCode.INTERRUPTED, ExitCode.REQUEUE, ExitCode.FAULT),
    ExitCode.DONE,
)
"""Of several processes' codes the first of these counts, before any other."""


def begin(environ: Mapping[str, str] = os.environ) -> None:
    """Remove the code of an earlier attempt of this process."""
    if folder := environ.get(VARIABLE):
        _file(folder, environ).unlink(missing_ok=True)


def end(code: int, environ: Mapping[str, str] = os.environ) -> int:
    """Write the code of this process where requested, and return the one to end with.

    It is 0 for a code that another attempt would repeat, in this process or in another one that has ended: a process
    that lost the others ends with a fault, for which only the others know the reason.
    """
    folder = environ.get(VARIABLE)
    if not folder:
        return code
    with contextlib.suppress(OSError):
        _file(folder, environ).write_text(str(int(code)))
    is_final = any(written not in (ExitCode.DONE, ExitCode.FAULT) for written in read(Path(folder)))
    return 0 if code != ExitCode.FAULT or is_final else code


def read(folder: Path) -> list[int]:
    """Return the codes in a directory, by rank."""
    codes = {}
    for path in folder.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            codes[int(path.name)] = int(path.read_text())
    return [codes[rank] for rank in sorted(codes)]


def combine(codes: list[int]) -> int:
    """Return the exit code of a run of its processes' codes; 0 if there are none."""
    known = [code for code in ORDER if code in codes]
    others = [code for code in codes if code not in ORDER]
    return int(known[0]) if known and known[0] not in (ExitCode.FAULT, ExitCode.DONE) else max([*others, *known, 0])


def find_code(error: BaseException) -> int | None:
    """Return the exit code that an error of a training ends with; None for a fault of the program."""
    if isinstance(error, Interrupted):
        return error.exit_code
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return int(ExitCode.DISK_FULL)
    if isinstance(error, NotRetryableError | FloatingPointError):
        return int(ExitCode.GIVE_UP)
    if isinstance(error, UserError):
        return int(ExitCode.USER)
    return int(ExitCode.FAULT) if isinstance(error, PeerError) else None


def _file(folder: str, environ: Mapping[str, str]) -> Path:
    return Path(folder) / environ.get("RANK", "0")
