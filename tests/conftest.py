"""What every test shares: the order (fast first), and what a machine may lack."""

import contextlib
import functools
import gc
import itertools
import multiprocessing
import multiprocessing.forkserver
import os
import runpy
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

# Before MuJoCo is imported by anything: without a display it renders through EGL or not at all.
if sys.platform == "linux" and not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")

# Where several workers run the tests each has its core: threads that wait for each other would take it from another.
if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# What a script starts in its background ignores SIGINT, and so does everything that it starts: a test's Ctrl-C too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# The same of nohup and SIGHUP.
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Set in CI: what a laptop may lack must be there.
REQUIRE_ALL = os.environ.get("ROBOT_RL_REQUIRE_ALL") == "1"

RENDER_ONE_PIXEL = (
    "import mujoco; m = mujoco.MjModel.from_xml_string('<mujoco/>'); r = mujoco.Renderer(m, 8, 8); "
    "d = mujoco.MjData(m); mujoco.mj_forward(m, d); r.update_scene(d); r.render()"
)

# What every command imports from outside of this repository; none of it starts a thread.
PRELOADED = (
    "torch",
    "tensordict",
    "warp",
    "mujoco.batch",
    "mujoco_warp",
    "rsl_rl.runners",
    "hydra.core.override_parser.overrides_parser",
    "omegaconf",
    "torch.utils.tensorboard.writer",
    "pytest",
)


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory):
    """Where programs keep what is theirs for the user: of the tests' own."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session", autouse=True)
def quick_kernels():
    """Compile kernels without optimizing them, in half the time: most tests step a few worlds a few times.

    Trainings, and what else computes for longer than the compiler takes, use `optimized`.
    """
    import torch
    import warp

    if not torch.cuda.is_available():
        warp.config.optimization_level = 0


@contextlib.contextmanager
def optimizing():
    """Compile kernels as users do."""
    import warp

    before, warp.config.optimization_level = warp.config.optimization_level, None
    yield
    warp.config.optimization_level = before


@pytest.fixture
def optimized():
    """Compile kernels as users do, in one test."""
    with optimizing():
        yield


def lacking(what: str) -> None:
    """Skips the requesting test with one line; fails it where everything has to be installed."""
    if REQUIRE_ALL:
        pytest.fail(f"{what}, and ROBOT_RL_REQUIRE_ALL=1")
    pytest.skip(what)


def pytest_collection_modifyitems(items):
    """Short tests first: units, then contracts, the robot binary, parity and whatever is long."""
    order = {"unit": 0, "contracts": 1, "deploy": 2, "parity": 3, "gpu": 4}

    def rank(item):
        folder = next((part for part in item.path.parts if part in order), "unit")
        return item.get_closest_marker("long") is not None, order[folder]

    items.sort(key=rank)
    items[:] = deal(items, rank, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def deal(items, rank, workers):
    """The tests in as many parts as there are workers: each begins with fast ones, and no file is torn apart.

    pytest-xdist gives each worker as many tests, and who is done with his takes from the end of another's. Parts have
    about as many; the shortest is first, which takes what it lacks from the fast ones of the next.
    """
    parts = [[] for _ in range(workers)]
    for _, tests in itertools.groupby(items, key=lambda item: (rank(item), item.path)):
        min(parts, key=len).extend(tests)
    return [item for part in sorted(parts, key=len) for item in part]


def pytest_collection_finish(session):
    """Importing all tests leaves millions of objects, which stay: no collection of garbage looks at them again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session):
    """Pytest collects garbage ten times at the end: seconds each, in a process that ends."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """Show why a test ran once more, whether it passed then or not."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"first attempt of {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)


def pytest_runtest_setup(item):
    """Tests of a CUDA device or of Isaac Lab run where these are."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
    if item.get_closest_marker("isaac"):
        pytest.importorskip("isaaclab", reason="Isaac Lab is not in this environment")
    share_onnx_functions()


def share_onnx_functions():
    """Once torch's ONNX exporter is imported: its table of 500 functions, parsed from source, serves every export."""
    module = sys.modules.get("torch.onnx._internal.exporter._registration")
    make = getattr(getattr(module, "ONNXRegistry", None), "from_torchlib", None)
    if make is not None and not hasattr(make, "cache_info"):
        module.ONNXRegistry.from_torchlib = staticmethod(functools.cache(make))


@pytest.fixture(scope="session")
def gl() -> str:
    """The name of an OpenGL backend with which MuJoCo renders without a display; in MUJOCO_GL as well."""
    for backend in dict.fromkeys([os.environ.get("MUJOCO_GL", "egl"), "egl", "osmesa"]):
        env = {**os.environ, "MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend}
        done = subprocess.run([sys.executable, "-c", RENDER_ONE_PIXEL], env=env, capture_output=True, timeout=120)
        if done.returncode == 0:
            os.environ["MUJOCO_GL"] = backend
            return backend
    lacking("no OpenGL without a display (Debian: libegl1 libegl-mesa0 libgl1-mesa-dri, or libosmesa6)")
    raise AssertionError


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The path of a Chromium or Chrome that can be run headless."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return Path(found)
    lacking("no Chromium (Debian: chromium)")
    raise AssertionError


@pytest.fixture
def run(capsys, monkeypatch):
    """Calls the command line in this process; returns its exit code, stdout and stderr."""
    from robot_rl.cli.main import main

    monkeypatch.setenv("COLUMNS", "200")
    # A launcher's server of processes would serve the later tests of this process (`start_python`) too.
    monkeypatch.setattr(multiprocessing, "set_forkserver_preload", lambda names: None)
    monkeypatch.setattr(multiprocessing.forkserver, "ensure_running", lambda: None)

    def call(*words) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


class Forked:
    """A running `python <words>`, used like a subprocess.Popen where stdout and stderr are one pipe of text."""

    def __init__(self, words, cwd=None, env=None, start_new_session=False, stdout=None):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        reader, writer = context.Pipe(duplex=False)
        if stdout is not None:
            writer.close()
            writer = multiprocessing.connection.Connection(os.dup(stdout.fileno()), readable=False)
        environ = dict(os.environ if env is None else env)
        request = ([str(word) for word in words], writer, str(cwd or Path.cwd()), environ, start_new_session)
        script = str(Path(__file__).with_name("forked.py"))
        self.process = context.Process(target=runpy.run_path, args=(script, {"REQUEST": request}, "forked"))
        self.process.start()
        writer.close()
        with reader:
            self.stdout = os.fdopen(os.dup(reader.fileno()), errors="replace")
        self.pid = self.process.pid

    @property
    def returncode(self):
        return self.process.exitcode

    def poll(self):
        return self.process.exitcode

    def communicate(self, timeout=None):
        """Waits for the end, kills it after so long; returns the output, and None as there is no other pipe."""
        timer = threading.Timer(threading.TIMEOUT_MAX if timeout is None else timeout, self.kill)
        timer.daemon = True
        timer.start()
        with self.stdout:
            output = self.stdout.read()
        self.wait()
        timer.cancel()
        return output, None

    def wait(self, timeout=None):
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("python", timeout)
        return self.process.exitcode

    def send_signal(self, number):
        if self.process.exitcode is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


@pytest.fixture(scope="session")
def start_python():
    """Starts `python <words>` seconds sooner: forked from a process that has imported torch, MuJoCo and Warp."""
    return Forked
