"""The parts of bench_gpu.py, each measured in a process of its own: python gpu_parts.py <part> <options> <file>.

``options`` is the JSON of `bench_gpu.Options`. What is known is in ``file`` after every figure, so that a process that
is killed leaves what it has measured.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from harness import facts, in_turn, make_result, median_ratio, medians, seconds

from robot_rl.errors import UserError
from robot_rl.files import write_json
from robot_rl.runs.settings import TrainCfg, change, default_tree, resolve, resolve_device

ROOT = Path(__file__).resolve().parents[1]
ENV_GOAL, ROLLOUT_GOAL, WALK_GOAL_S, UPDATE_GOAL, MJLAB_GOAL, PARITY_GOAL = 1.10, 1.15, 30.0, 2.0, 3.0, 1e-3
OVERLAP_GOAL = 0.9
LARGE, SMALL = (512, 256, 128), (128, 128, 128)
ROLLOUT_WARM_UP = 3
"""A rollout without a graph, one that is recorded, one that is replayed."""


class NotPossible(Exception):
    """This machine lacks what a part needs; the text says what."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured, by the name of the part: tasks and worlds, networks, options of a training.

    Attributes:
        device: "cpu" or "cuda".
        repeats: timed blocks.
        seeds: of the trainings of "walk".
        walk: settings of the trainings of "walk".
        every: seconds of training between evaluations of "walk".
        overlap: iterations of a training of "overlap".
        changes: settings that are not the task's own.
    """

    device: str
    env: tuple[tuple[str, int], ...]
    repeats: int
    rollout: int
    walk: dict[str, Any]
    seeds: tuple[int, ...]
    every: float
    update: tuple[int, ...]
    networks: tuple[tuple[int, ...], ...]
    overlap: int
    mjlab: int
    memory: tuple[int, ...]
    parity: int
    changes: dict[str, Any]

    def configure(self, task: str, num_envs: int, **changes: object) -> TrainCfg:
        """Return the settings of a run with so many worlds."""
        tree = default_tree(task, self.device)
        return resolve(change(tree, {"device": self.device, "num_envs": num_envs, **self.changes, **changes}))


GPU = Sizes(
    device="cuda",
    env=(("go2_flat", 4096), ("go2_flat", 1024), ("go2_flat", 16384), ("go2_rough", 4096)),
    repeats=15,
    rollout=4096,
    walk={"num_envs": 4096},
    seeds=(1, 2, 3),
    every=2.0,
    update=(4096, 1024),
    networks=(LARGE, SMALL),
    overlap=20,
    mjlab=4096,
    memory=(64, 2048, 8192),
    parity=64,
    changes={},
)
TOY = Sizes(
    device="cpu",
    env=(("go2_flat", 16), ("go2_flat", 4), ("go2_rough", 4)),
    repeats=2,
    rollout=8,
    walk={"max_iterations": 2, "num_envs": 8},
    seeds=(1,),
    every=0.0,
    update=(8,),
    networks=((16, 16),),
    overlap=2,
    mjlab=4,
    memory=(4, 8, 16),
    parity=4,
    changes={"num_threads": 1, "num_steps": 4},
)


class Report:
    """What a part has found, in its file after every call of `save`."""

    def __init__(self, path: Path, part: str, options: Mapping[str, Any]) -> None:
        self.path, self.options = path, options
        self.content: dict[str, Any] = facts(f"bench gpu {part}") | {"part": part, "state": "running"}
        self.save(toy=options["toy"])

    def save(self, headline: str = "", *, met: bool | None = None, **figures: Any) -> None:
        """Add figures and write the file; the headline and whether it meets the part's goal are the last ones given."""
        if headline:
            toy = self.options["toy"]
            figures |= {"headline": headline, "met": None if toy else met}
            print(headline, flush=True)
        self.content |= figures
        write_json(self.path, self.content)


def measure_env(sizes: Sizes, report: Report) -> None:
    """Time control steps compared with the bare steps of the engine."""
    from robot_rl.performance.env import bench_env

    runs: dict[str, Any] = {}
    times: dict[str, float] = {}
    for task, num_envs in sizes.env:
        cfg = sizes.configure(task, num_envs)
        result = bench_env(cfg.make_env, repeats=sizes.repeats, profile=not runs)
        name = f"{task} {num_envs}"
        runs[name], times[name] = _figures(result), 1.0 / result["ratio"]
        headline = "; ".join(f"{key}: {run['rows'][0]['value']:,.0f}/s, {times[key]:.2f}x" for key, run in runs.items())
        is_met = all(time <= ENV_GOAL for key, time in times.items() if key.startswith("go2_flat"))
        report.save(headline, met=is_met, time_over_engine=times, runs=runs)


def measure_rollout(sizes: Sizes, report: Report) -> None:
    """Time the collection of a rollout in one graph, compared with physics and with launches."""
    from robot_rl.learn.graphs import why_not_recorded
    from robot_rl.learn.trainer import Trainer
    from robot_rl.performance.env import make_bare

    cfg = sizes.configure("go2_flat", sizes.rollout)
    has_graph = cfg.device != "cpu"
    learners = [dataclasses.replace(cfg.learner, graph=graph) for graph in ("on" if has_graph else "off", "off")]
    first, second = runners = [Trainer(cfg.make_env(), learner, seed=1) for learner in learners]
    bare = make_bare(first.env)
    assert bare is not None
    names = ("rollout in one graph" if has_graph else "rollout", bare.who, "rollout by launches")

    def measure() -> tuple[float, ...]:
        state = first.env.engine.get_state()
        ours, plain = (seconds(runner.collect, cfg.device) for runner in runners)
        with torch.no_grad():
            actions = torch.stack([first.actor.distribution.to_env(raw) for raw in first.collector.rollout.action])
        physics = seconds(bare.make_block(state, actions), cfg.device)
        return tuple(cfg.learner.num_steps * cfg.num_envs / time for time in (ours, physics, plain))

    rows = in_turn(names, measure, sizes.repeats, warm_up=ROLLOUT_WARM_UP)
    recorded = first.collector.recorded
    problem = why_not_recorded(first.env, (), is_tracked=False) if recorded is None else recorded.problem
    result = make_result("rollout go2_flat", rows, unit="control steps/s")
    over_physics = 1.0 / result["ratio"]
    quicker = median_ratio(rows[names[0]], rows[names[2]])
    graph = f"no graph: {problem}" if problem else f"{quicker:.2f}x as fast as by launches"
    headline = f"{result['rows'][0]['value']:,.0f} steps/s, {over_physics:.2f}x physics' time, {graph}"
    figures = {"time_over_physics": over_physics, "graph_over_launches": quicker, "problem": problem}
    report.save(headline, met=over_physics <= ROLLOUT_GOAL and not problem, **figures, **_figures(result))
    calls = {who: count_calls(one.collect, cfg.device) for who, one in (("graph", first), ("launches", second))}
    report.save(calls=calls)


def count_calls(run: Callable[[], object], device: str) -> dict[str, int]:
    """Return how often CUDA was called to launch or to copy, by name, and the kernels that ran."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device != "cpu" else [])]
    with profile(activities=activities) as profiler:
        seconds(run, device)
    events = profiler.events() or ()
    calls = Counter(event.name for event in events if re.match(r"cu\w*(Launch|Memcpy|Memset)", event.name))
    on_device = sum(event.device_type == torch.autograd.DeviceType.CUDA for event in events)
    return {**calls, "on the device": on_device}


def measure_walk(sizes: Sizes, report: Report) -> None:
    """Train go2_flat until it counts as solved, as learners.py does."""
    import learners

    curves, reached = {}, {}
    for seed in sizes.seeds:
        cfg = sizes.configure("go2_flat", **{**sizes.walk, "seed": seed, "save_interval": 10**6})
        goal = learners.find_goal(cfg.task, every_s=sizes.every, episodes=min(cfg.num_envs, 100))
        points = learners.train(cfg, goal, print)
        curves[seed], reached[seed] = points, next((p["time_s"] for p in points if goal.is_met(p)), None)
        times = [time for time in reached.values() if time is not None]
        found = ", ".join("not reached" if time is None else f"{time:.1f} s" for time in reached.values())
        is_met = len(times) == len(reached) and statistics.median(times) <= WALK_GOAL_S
        report.save(f"to {goal.bound} m/s: {found}", met=is_met, reached_s=reached, curves=curves)


def measure_update(sizes: Sizes, report: Report) -> None:
    """Time the PPO update compared with rsl_rl's."""
    from robot_rl.performance.learner import bench_learner

    device = resolve_device(sizes.device)
    steps, comparisons = sizes.changes.get("num_steps", 24), []
    for num_envs in sizes.update:
        given = {"num_envs": (num_envs,), "num_steps": steps, "repeats": max(2, sizes.repeats // 2)}
        result = bench_learner(sizes=sizes.networks, device=device, **given)
        comparisons += result["comparisons"]
        found = "; ".join(f"{one['network']}, {one['rollout']}: {one['ratio']:.2f}x" for one in comparisons)
        is_met = comparisons[0]["ratio"] >= UPDATE_GOAL
        report.save(f"as fast as rsl_rl's: {found}", met=is_met, comparisons=comparisons, notes=result["notes"])


def measure_overlap(sizes: Sizes, report: Report) -> None:
    """Time iterations that simulate while they learn, compared with one after the other."""
    from overlap import compare

    found: list[dict[str, float]] = []
    cfg = sizes.configure("go2_flat", sizes.rollout)
    for _ in range(1 if sizes.device == "cpu" else 3):
        found.append(compare(cfg.make_env, cfg.learner, sizes.overlap, seed=1))
        middle = medians(found)
        times = ", ".join(f"{1e3 * middle[f'{name}_s']:.1f} ms" for name in ("async", "sync", "simulate", "learn"))
        headline = f"an iteration overlapped, in turn; of it simulation, update: {times}; {middle['ratio']:.2f}x"
        report.save(headline, met=middle["ratio"] <= OVERLAP_GOAL, medians=middle, trainings=found)


def measure_mjlab(sizes: Sizes, report: Report) -> None:
    """Time control steps compared with mjlab's flat quadruped, each while the other waits."""
    from env_mjlab import DEFAULT_PYTHON, Rival, bench_mjlab, find_python

    path, named = report.options["mjlab_path"], report.options["mjlab_python"]
    is_here = path or not (ROOT / DEFAULT_PYTHON).is_file()
    if not named and not path:
        if report.options["toy"]:
            raise NotPossible("not looked for at toy size; mjlab_python= or mjlab_path= name it")
        if is_here and importlib.util.find_spec("mjlab") is None:
            raise NotPossible("mjlab is not installed: not in .venv-mjlab, nor in this Python; mjlab_path= names it")
    python = Path(sys.executable) if is_here and not named else find_python(named)
    # A bare machine has its packages in PYTHONPATH, which an isolated process does not read.
    path = path or ("" if named or not is_here else os.environ.get("PYTHONPATH", ""))
    cfg = sizes.configure("go2_flat", sizes.mjlab)
    with Rival(python, path=path, device=cfg.device) as rival:
        options: dict[str, Any] = {"worlds": (sizes.mjlab,), "configurations": ("mjlab, default",), "say": print}
        result = bench_mjlab(cfg.make_env, rival, repeats=max(2, sizes.repeats // 3), **options)
    ours, theirs = (row["value"] for row in result["rows"])
    headline = f"{ours:,.0f} control steps/s, mjlab {theirs:,.0f}, {sizes.mjlab} worlds: {result['ratio']:.2f}x"
    report.save(headline, met=result["ratio"] >= MJLAB_GOAL, **_figures(result))


def measure_memory(sizes: Sizes, report: Report) -> None:
    """Measure the memory of an environment and of a training a world, by the difference of two sizes."""
    from robot_rl.learn.trainer import Trainer

    device, rows, kept = resolve_device(sizes.device), {}, []
    for num_envs in sizes.memory:  # The first one loads the kernels, which the others share; all stay alive.
        cfg = sizes.configure("go2_flat", num_envs)
        before, tensors = used_bytes(device), _tensor_bytes(device)
        env = cfg.make_env()
        env.step(torch.zeros(num_envs, env.num_actions, device=device))
        with_env = used_bytes(device)
        kept.append(Trainer(env, cfg.learner, seed=1))
        kept[-1].train(ROLLOUT_WARM_UP)
        found = {"env": with_env - before, "training": used_bytes(device) - before}
        rows[num_envs] = found | {"torch": _tensor_bytes(device) - tensors}
        report.save(mib={worlds: {key: v / 2**20 for key, v in row.items()} for worlds, row in rows.items()})
    *_, small, large = sizes.memory
    kib = {key: (rows[large][key] - rows[small][key]) / (large - small) / 2**10 for key in rows[large]}
    headline = f"KiB a world: environment {kib['env']:.1f}, with training {kib['training']:.1f}"
    report.save(f"{headline} ({small} and {large} worlds)", kib_a_world=kib)


def used_bytes(device: str) -> int:
    """Return the memory in use: the whole device's, or that of this process on a CPU."""
    if device == "cpu":
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return total - free


def _tensor_bytes(device: str) -> int:
    return 0 if device == "cpu" else torch.cuda.memory_allocated()


def measure_parity(sizes: Sizes, report: Report) -> None:
    """Step the same worlds by the device's engine and by MuJoCo on the CPU, and compare what comes out."""
    # With the few iterations of the task the solvers stop before they agree: 3e-3 apart on a CPU, converged 7e-7.
    converged = {"sim.iterations": 50, "sim.ls_iterations": 50}
    here = sizes.configure("go2_flat", sizes.parity, seed=4, **converged)
    reference = resolve(change(here.tree, {"device": "cpu", "engine": "mujoco"}))
    one, two = envs = [cfg.make_env() for cfg in (here, reference)]
    generator, rows, after = torch.Generator().manual_seed(0), {}, ""
    for step in range(1, 11):
        actions = 0.5 * torch.randn(sizes.parity, one.num_actions, generator=generator)
        found = [_outcome(env, actions) for env in envs]
        apart = {key: (found[0][key] - found[1][key]).abs().flatten(1).amax(1) for key in found[0]}
        rows[step] = {key: float(value.max()) for key, value in apart.items()}
        rows[step]["worlds_within_5e-3"] = float((apart["obs"] < 5e-3).float().mean())
        after = f", {rows[step]['worlds_within_5e-3']:.0%} of worlds within 5e-3 after {step}"
        far = max(rows[1][key] for key in ("obs", "qpos"))
        headline = f"{one.engine.name} and {two.engine.name}: {far:.1e} apart after a control step{after}"
        report.save(headline, met=far <= PARITY_GOAL, engines=[env.engine.name for env in envs], steps=rows)


def _outcome(env: Any, actions: torch.Tensor) -> dict[str, torch.Tensor]:
    obs, reward, _, _ = env.step(actions.to(env.device))
    values = {"obs": obs["actor"], "reward": reward[:, None], "qpos": env.state.qpos, "qvel": env.state.qvel}
    return {key: value.detach().cpu().clone() for key, value in values.items()}


def measure_tests(sizes: Sizes, report: Report) -> None:
    """Run tests/gpu, and count."""
    import pytest

    counts: Counter[str] = Counter()
    failed: list[str] = []

    class Count:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call" or report.outcome != "passed":
                counts[report.outcome] += 1
                failed.extend([report.nodeid] if report.failed else [])
                save()

    def save() -> None:
        found = ", ".join(f"{count} {name}" for name, count in counts.items()) or "no tests"
        report.save(found, met=not failed and bool(counts["passed"]), counts=dict(counts), failed=failed)

    # A bare machine may have an older pytest than the project asks for.
    words = ["tests/gpu", "-q", "-o", "minversion=7", "-p", "no:cacheprovider"]
    os.chdir(ROOT)
    code = pytest.main(words, plugins=[Count()])
    save()
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"pytest ended with {code}: {', '.join(failed) or 'see above'}")


def _figures(result: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key not in ("name", "machine", "versions")}


def take_kernels(folder: str, device: str) -> str:
    """Take a folder of compiled kernels; return what was found of it, in words."""
    if not folder:
        return "compiled here"
    from robot_rl.performance.cache import use_cache

    try:
        use_cache(Path(folder), device)
    except UserError as error:  # It costs time, not figures.
        return f"compiled here, since {error}"
    return f"from {folder}"


def main(part: str, options: str, file: str) -> None:
    """Measure one part."""
    given = json.loads(options)
    report, sizes = Report(Path(file), part, given), TOY if given["toy"] else GPU
    report.save(kernels=take_kernels(given["kernels"], resolve_device(sizes.device)))
    try:
        globals()[f"measure_{part}"](sizes, report)
    except NotPossible as error:
        report.save(state="not possible", reason=str(error))
    else:
        report.save(state="done")


if __name__ == "__main__":
    main(*sys.argv[1:])
