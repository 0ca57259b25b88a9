"""Starts daemons and outlives whoever asked for them: where its stdin ends, all their processes end, too.

    python supervisor.py <folder>

Each line on stdin is [command, log file] in JSON, answered by the process id. It is the reaper of all processes below
it, so that none that makes itself a daemon is lost. At the end of stdin, which comes with the death of the process at
the other end, it kills all of them and removes the folder.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import psutil

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 30


def reap(*_):
    """Wait for the children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def end_all():
    """Kill all processes below this one; return those that are still there."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        reap()
        left = psutil.Process().children(recursive=True)
        if not left:
            return []
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.02)
    return left


def main(folder):
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    signal.signal(signal.SIGCHLD, reap)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # SIG_IGN would be inherited by the daemons.
    for line in sys.stdin:
        command, log = json.loads(line)
        with open(log, "ab") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        sys.stdout.write(f"{process.pid}\n")
        sys.stdout.flush()
    left = end_all()
    shutil.rmtree(folder, ignore_errors=True)
    return f"still running: {left}" if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
