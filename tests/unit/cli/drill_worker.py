"""robot-rl drill, with trainings forked from a process that has imported everything: real ones that start sooner.

python drill_worker.py <words behind robot-rl drill>
"""

import importlib
import os
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
real = subprocess.Popen


class Forked:
    """What a drill uses of subprocess.Popen."""

    def __init__(self, command, **_):
        read, write = os.pipe()
        self.returncode = None
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.dup2(write, 1)
                os.dup2(write, 2)
                code = become_training(command[3:])
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


def start(command, **options):
    is_training = isinstance(command, list) and command[1:3] == BEHIND
    return (Forked if is_training else real)(command, **options)


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    setattr(subprocess, "Popen", start)  # noqa: B010
    sys.exit(main(["drill", *sys.argv[1:]]))
