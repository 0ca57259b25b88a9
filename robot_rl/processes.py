"""Child processes that do not outlive the one that started them."""

import os
import sys
from collections.abc import Sequence

_TIE = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def tied(words: Sequence[str]) -> list[str]:
    """Return a command line that gets SIGTERM when this process dies, however it dies."""
    return [sys.executable, "-ISc", _TIE, str(os.getpid()), *words]
