"""What the tests of the robot binary share: the built runtime, bundles, and the binary as a process.

Without a built runtime nothing here is collected, unless ROBOT_RL_REQUIRE_ALL is set: `make runtime` builds it.
"""

import importlib.util
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import lacking

ROOT = Path(__file__).parents[2]
BUILT = importlib.util.find_spec("robot_rl_runtime") is not None
if not BUILT and os.environ.get("ROBOT_RL_REQUIRE_ALL") != "1":
    collect_ignore_glob = ["*"]

REALTIME = (
    *("adapt", "backends/test_bench.py", "learning", "logs/test_run.py"),
    *("loop/test_deadlines.py", "loop/test_run.py", "loop/test_watchdog.py"),
    *(f"sim2sim/test_{name}.py" for name in ("bench", "faults", "measured", "messages", "session", "team")),
    *("transports/test_dds.py", "transports/test_ends.py", "transports/test_operator.py"),
)
"""The tests that keep time with the binary: they need the machine for themselves."""
SANITIZERS = ("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
WITHOUT_TYPES = ("golden",)
"""Sources that use a class which is not part of a sanitized program."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests in real time, before any are chosen by their marks."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder) and item.path.relative_to(folder).as_posix().startswith(REALTIME):
            item.add_marker(pytest.mark.realtime)


def load(path):
    """A module by its path under tests/, such as another folder's conftest.py."""
    name = "shared_" + "_".join(Path(path).with_suffix("").parts)
    spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_unit = load("unit/deploy/conftest.py")
description, training = _unit.description, _unit.training
toy_actor, toy_bundle, make_toy_env = _unit.toy_actor, _unit.toy_bundle, _unit.make_toy_env


def pytest_report_header():
    return None if BUILT else "tests/deploy: no robot_rl_runtime here, make runtime builds it"


@pytest.fixture(scope="session")
def shared():
    """A function that loads another folder's module by its path under tests/."""
    return load


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory):
    """sanitized(mains, parts): a program of files and sources of the runtime, with the address and UB sanitizers.

    `flags` are more options of the compiler, `objects` more of the linker. Sources are compiled once, a core each;
    nothing is optimized, since the compiler takes longer than the program.
    """
    if shutil.which("g++") is None:
        lacking("no g++")
    folder, sources = tmp_path_factory.mktemp("sanitized"), ROOT / "deploy_jetson/runtime/src"
    always = ["-std=c++20", "-O0", "-g1", *SANITIZERS, f"-I{sources}"]

    def compile_one(source, flags):
        target = folder / f"{source.parent.name}_{source.stem}.o"
        if not target.exists():
            more = ["-fno-sanitize=vptr"] if source.stem in WITHOUT_TYPES else []
            subprocess.run(["g++", *always, *flags, *more, "-c", source, "-o", target], check=True)
        return target

    def build(mains, parts, flags=(), objects=()):
        every = [*mains, *(sources / f"{part}.cpp" for part in parts)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            made = list(pool.map(lambda source: compile_one(source, flags), every))
        program = folder / mains[0].parent.name
        subprocess.run(["g++", *SANITIZERS, *made, "-o", program, *objects, "-lpthread"], check=True)
        return program

    return build


@pytest.fixture(scope="session")
def damped(shared):
    """damped(log, sooner_ns): how a binary's log says that its first fault under the policy was answered.

    With `sooner_ns` as if it had passed its threshold that much earlier; see fault_times.py.
    """
    messages, make = shared("deploy/log_messages.py").messages, shared("deploy/fault_times.py").Log

    def read(path, sooner_ns=0):
        """A fault is answered within two of the writer's ticks, counted: how long they take is the machine's affair."""
        log = make(path, messages)
        found = log.damped(log.threshold())
        assert found.after_ms >= 0
        assert found.ticks <= 2
        assert found.active <= 1
        return log.damped(log.threshold() - sooner_ns) if sooner_ns else found

    return read


@pytest.fixture(scope="session")
def rt():
    """The C++ core, with the ONNX Runtime of this Python."""
    import robot_rl_runtime

    return robot_rl_runtime


@pytest.fixture(scope="session")
def go2_bundle():
    """The trained Go2 policy that comes with the project."""
    return ROOT / "tasks" / "robot_rl_tasks" / "go2_flat" / "policy"


@pytest.fixture(scope="session")
def cartpole_bundle(tmp_path_factory):
    """The bundle of an untrained policy for the cart and pole: effort actions, a joint that nothing drives."""
    return export_untrained("cartpole", tmp_path_factory.mktemp("cartpole") / "policy")


def export_untrained(task, out):
    """Write the bundle of a policy as it is before the first update."""
    import torch
    from robot_rl_deploy.contract import TrainingSpec
    from robot_rl_deploy.export import export_policy
    from robot_rl_envs.make import make_env
    from robot_rl_tasks.registry import get_task

    from robot_rl.learn.networks.actor_critic import Actor
    from robot_rl.settings import NetworkCfg

    env = make_env(get_task(task), num_envs=1, engine="mujoco", seed=7, num_threads=1)
    cfg, generator = NetworkCfg(hidden=(32, 32), output_gain=0.3), torch.Generator().manual_seed(0)
    actor = Actor(env.reset()["actor"].shape[1], env.num_actions, cfg, generator=generator)
    training = TrainingSpec(run_id="untrained", task=task, git_commit="unknown", iteration=0)
    export_policy(env, actor, out, run=training, steps=220)
    env.close()
    return out


@pytest.fixture(scope="session")
def binary_env():
    """Environment of the binary: it finds the ONNX Runtime of this Python."""
    import onnxruntime

    library = sorted((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))[-1]
    return {**os.environ, "ROBOT_RL_ONNXRUNTIME": str(library)}


@pytest.fixture(scope="session")
def infer(rt, binary_env):
    """A function that runs robot-rl-infer with options until it ends."""

    def run(*words, timeout=60, **env):
        command = [rt.binary(), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=binary_env | env)

    return run
