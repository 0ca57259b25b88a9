"""On a system that is not Linux a task is trained, evaluated and exported, and the rest refuses by a line.

The process has none of the calls that Linux alone has, no /proc and /sys, no OpenGL, and believes to be on macOS.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CALLS = (
    "copy_file_range eventfd eventfd_read eventfd_write fdatasync fork forkpty getrandom memfd_create pidfd_open "
    "posix_fadvise posix_fallocate sched_getaffinity sched_setaffinity sched_setscheduler sched_getscheduler "
    "sched_param sendfile setns unshare SCHED_FIFO SCHED_OTHER SCHED_RESET_ON_FORK O_DIRECT O_PATH O_TMPFILE "
    "EFD_NONBLOCK"
)
"""Names of os that macOS lacks, and fork, after which its libraries do not work."""
USERS = (
    "robot_rl/machine.py",  # guarded
    "robot_rl/drill.py",  # the others need Linux, and say so before
    "robot_rl/cluster/launchers/torchrun.py",
    "robot_rl/sim2sim/binary.py",
    "robot_rl/sim2sim/proxy.py",
    "deploy_jetson/robot_rl_deploy/jetson/doctor.py",
)
PRELUDE = """
import builtins, io, os, select, signal, sys
import av, mujoco, mujoco_warp, onnxruntime, tensordict, torch, torch.utils.tensorboard, warp  # Before the change.
for name in "CALLS".split():
    if hasattr(os, name):
        delattr(os, name)
for module, names in ((select, ("epoll",)), (signal, ("SIGPWR", "SIGRTMIN", "sigtimedwait", "sigwaitinfo"))):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
real = io.open
def guarded(file, *words, **options):
    if isinstance(file, (str, os.PathLike)) and os.fspath(file).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", str(file))
    return real(file, *words, **options)
builtins.open = io.open = guarded
warp.config.log_level = warp.LOG_ERROR
warp.init()
sys.platform = "darwin"
from robot_rl.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def elsewhere(tmp_path):
    def call(*words):
        command = [sys.executable, "-c", PRELUDE.replace("CALLS", CALLS), *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        return done.returncode, done.stdout + done.stderr

    return call


def test_the_calls_of_linux_are_known():
    """A further file that has one guards it, or refuses other systems by a line, and is then listed here."""
    pattern = re.compile(rf"\bos\.({'|'.join(CALLS.split())})\b")
    trees = (ROOT / name for name in ("robot_rl", "envs", "tasks", "sim_assets", "deploy_jetson/robot_rl_deploy"))
    files = [path for tree in trees for path in tree.rglob("*.py") if pattern.search(path.read_text())]
    assert sorted(str(path.relative_to(ROOT)) for path in files) == sorted(USERS)


@pytest.mark.long
def test_a_task_is_trained_evaluated_and_exported(elsewhere, tmp_path):
    small = ("max_iterations=2", "num_envs=16", "num_steps=8", "run_id=one")
    for words in (
        ("train", "task=cartpole", *small),
        ("export", "run=one"),
        ("eval", "run=one", "episodes=2", "seconds=0.5"),
        ("report", "run=one"),
        ("list", "tasks"),
        ("runs",),
    ):
        code, output = elsewhere(*words)
        assert code == 0, output
    assert (tmp_path / "runs/cartpole/one/report.html").is_file()


@pytest.mark.parametrize(
    "words",
    [("train", "task=cartpole", "launcher=torchrun"), ("drill", "run=one"), ("sim2sim", "policy=go2_flat")],
    ids=lambda words: words[0],
)
def test_what_needs_linux_says_so(elsewhere, words):
    code, output = elsewhere(*words)
    assert code == 2, output
    assert "needs Linux" in output
