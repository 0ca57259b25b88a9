"""robot-rl drill, with trainings forked from a process that has imported everything: real ones that start sooner.

The process with a disk of its own is one of them, with the namespaces that `unshare` would have given it.

python drill_worker.py <words behind robot-rl drill>
"""

import ctypes
import importlib
import os
import runpy
import signal
import subprocess
import sys
import time

from robot_rl.cli.main import main

BEHIND = ["-m", "robot_rl.cli.main"]
IMPORTED = (
    "robot_rl.cli.resume",
    "robot_rl.cli.train",
    "robot_rl.cli.drill",
    "robot_rl.learn.trainer",
    "robot_rl_envs.make",
    "robot_rl_tasks.registry",
    "torch.utils.tensorboard.writer",
    "mujoco",
)
NEW_NAMESPACES = 0x10000000 | 0x00020000
"""CLONE_NEWUSER and CLONE_NEWNS of Linux."""
real = subprocess.Popen
real_run = subprocess.run


class Forked:
    """What a drill uses of subprocess.Popen."""

    def __init__(self, command, **_):
        self._start(lambda: become_training(command[3:]))

    def _start(self, become):
        read, write = os.pipe()
        self.returncode = None
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.dup2(write, 1)
                os.dup2(write, 2)
                code = become()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        os.close(write)
        self.stdout = os.fdopen(read, errors="replace")

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout=None):
        end = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("training", timeout or 0.0)
            time.sleep(0.001)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def become_training(words):
    sys.argv = ["robot-rl", *words]
    return main(words)


def become_one_apart(module, words):
    """Does what `unshare --user --map-root-user --mount python -m MODULE WORDS` does."""
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_NAMESPACES) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__")
    return 0


def run(command, **options):
    """What the drill runs with namespaces of its own is forked, all else is run."""
    full_disk = importlib.import_module("robot_rl.drill.full_disk")
    apart = [*full_disk.APART, sys.executable, "-m", full_disk.__name__]
    if list(command[: len(apart)]) != apart:
        return real_run(command, **options)
    process = Forked.__new__(Forked)
    process._start(lambda: become_one_apart(full_disk.__name__, command[len(apart) :]))
    sys.stdout.write(process.stdout.read())
    return subprocess.CompletedProcess(command, process.wait())


def start(command, **options):
    is_training = isinstance(command, list) and command[1:3] == BEHIND
    return (Forked if is_training else real)(command, **options)


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    setattr(importlib.import_module("robot_rl.drill.process"), "start_process", start)  # noqa: B010
    subprocess.run = run
    sys.exit(main(["drill", *sys.argv[1:]]))
