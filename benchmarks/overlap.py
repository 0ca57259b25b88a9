"""Trainings that simulate while they learn (overlap=true), against the same ones that do not, in turn.

    python benchmarks/overlap.py task=go2_flat num_envs=1024 out=benchmarks/async.json

How much of the shorter side is hidden: first with worlds that wait as long as learning takes, as a device would, then
with the task's. Settings of robot-rl train with a dot change those. ``--help`` lists the options.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from harness import make_result, medians, run_bench, say, spread
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from words import run_script

from robot_rl.cli.options import MAX_COUNT, MAX_ENVS, MAX_SEED, option
from robot_rl.cli.table import print_table
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.metrics.iteration import overlap_efficiency
from robot_rl.performance.learner import DIMS, SIZES, networks
from robot_rl.runs.settings import change, default_tree, resolve
from robot_rl.settings import LearnerCfg

SIMULATORS = (1, 2, 4)
SIMULATED = 2.0
"""T_sim of one simulator with all worlds, in T_learn."""
WARM_UP = 4
"""Iterations before those that count; in two of them an overlapped training times its sides apart."""

Make = Callable[[], Any]
"""Makes an environment."""


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of the script."""

    task: str = option("go2_flat", "the task; none: only the worlds that wait")
    num_envs: int = option(1024, "worlds", most=MAX_ENVS)
    device: str = option("cpu", "cpu, cuda or cuda:<index>")
    iterations: int = option(12, "iterations of a training that count", least=2, most=MAX_COUNT)
    repeats: int = option(5, "trainings of each kind, in turn; at least 2 for a spread", least=2, most=MAX_COUNT)
    seed: int = option(0, "seed of worlds and actions", least=0, most=MAX_SEED)
    out: str = option("", "file for the figures as JSON")


class WaitingEnv(VecEnv):
    """Worlds that wait instead of computing, as a process does for a device; what they show is random and the same.

    Attributes:
        step_s: How long a step takes [s].
        uses_cores: Whether a step needs this machine's cores.
    """

    uses_cores = False

    def __init__(self, num_envs: int, step_s: float = 0.0, *, seed: int = 0) -> None:
        """Take a number of worlds, the time of a step and the seed of the observations."""
        self.num_envs, self.num_actions, self.max_episode_length = num_envs, DIMS.action, 1000
        self.device, self.cfg, self.step_s = torch.device("cpu"), {}, step_s
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.int64)
        generator = torch.Generator().manual_seed(seed)
        sizes = {"actor": DIMS.actor, "critic": DIMS.critic}
        shown = {name: torch.randn(num_envs, size, generator=generator) for name, size in sizes.items()}
        self._obs = TensorDict(shown, batch_size=[num_envs])
        self._reward = torch.randn(num_envs, generator=generator)

    def get_observations(self) -> TensorDict:
        """Return the observations (N, D) by group."""
        return self._obs

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Wait, and end the episodes that last long enough."""
        time.sleep(self.step_s)
        self.episode_length_buf += 1
        ended = self.episode_length_buf >= self.max_episode_length
        self.episode_length_buf.masked_fill_(ended, 0)
        return self._obs, self._reward, ended, {"time_outs": ended}


def bench_overlap(options: Options, dotted: dict[str, Any]) -> dict[str, Any]:
    """Time trainings with and without overlap.

    Returns:
        The result in the form of :func:`robot_rl.performance.result.make_result`, in iterations a second, and
        ``comparisons``: for each kind of worlds T_sim, T_learn, an iteration without and with overlap (medians [s]),
        "ratio" (with / without), "efficiency" (`robot_rl.metrics.iteration.overlap_efficiency`) and its quartile
        distance over the repeats.
    """
    cfg, num_envs, iterations, seed = None, options.num_envs, options.iterations, options.seed
    if options.task != "none":
        given = {"num_envs": num_envs, "seed": seed}
        cfg = resolve(change(default_tree(options.task, options.device), {**given, **dotted}))
    waiting = PPOLearnerCfg(**networks(SIZES[0]))
    say(f"robot-rl: {num_envs} worlds that wait ...")
    learn_s = _rows(lambda: WaitingEnv(num_envs), waiting, iterations, seed)[1]
    step_s = learn_s / waiting.num_steps
    kinds: dict[str, tuple[Make, LearnerCfg]] = {
        "that wait": (lambda: WaitingEnv(num_envs, step_s, seed=seed), waiting)
    }
    if cfg is not None:
        kinds[f"of {cfg.task.name}"] = (cfg.make_env, cfg.learner)
    rates: dict[str, list[float]] = {}
    comparisons = []
    for name, (make, learner) in kinds.items():
        found = []
        for repeat in range(options.repeats):
            say(f"robot-rl: worlds {name}, {repeat + 1} of {options.repeats} ...")
            found.append(compare(make, learner, iterations, seed))
        middle = {key: round(value, 4) for key, value in medians(found).items()}
        middle["spread"] = round(spread([one["efficiency"] for one in found]), 4)
        comparisons.append({"worlds": name} | middle)
        rates[f"overlap=true, worlds {name}"] = [1.0 / one["async_s"] for one in found]
        rates[f"overlap=false, worlds {name}"] = [1.0 / one["sync_s"] for one in found]
    say(f"robot-rl: {', '.join(map(str, SIMULATORS))} simulators that wait ...")
    cluster = bench_simulators(num_envs, iterations, seed)
    notes = {"num_envs": num_envs, "iterations": iterations, "seed": seed}
    parts = {"comparisons": comparisons, "simulators": cluster}
    return make_result("async", rates, unit="iterations/s", notes=notes) | parts


def bench_simulators(num_envs: int, iterations: int, seed: int) -> list[dict[str, float]]:
    """Time a learner with 1, 2 and 4 simulators that wait, against a model.

    A step of n worlds takes n c; a simulator with all of them needs T_sim = SIMULATED T_learn for a rollout. With K
    simulators, each a server with a queue of one, and a bound of one version, an iteration takes max(T_sim / K,
    T_learn) + T_move, where T_move is the time in which a rollout is put together from segments; without staleness
    T_sim / K + T_learn + T_move.

    Returns:
        For each K and bound: "count", "staleness", "measured_s", "model_s" and "ratio".
    """
    cfg = PPOLearnerCfg(**networks(SIZES[1]))
    learn_s = _rows(lambda: WaitingEnv(num_envs), cfg, iterations, seed)[1]
    simulate_s, found = SIMULATED * learn_s, []
    for count in SIMULATORS:
        step_s = simulate_s / count / cfg.num_steps
        for bound in (0, 1):
            elapsed, move = _simulate_apart(cfg, num_envs, count, bound, (step_s, iterations, seed))
            sides = (simulate_s / count, learn_s)
            model = (sum(sides) if bound == 0 else max(sides)) + move
            values = {"measured_s": elapsed, "model_s": model, "ratio": elapsed / model}
            found.append({"count": count, "staleness": bound} | {name: round(v, 4) for name, v in values.items()})
    return found


def _simulate_apart(
    cfg: PPOLearnerCfg, num_envs: int, count: int, bound: int, run: tuple[float, int, int]
) -> tuple[float, float]:
    """Train with simulators in threads, and return medians [s]: an iteration, and what is neither waiting nor learning.

    `run` is the time of a step [s], iterations and seed.
    """
    from thread_pool import ThreadPool

    from robot_rl.learn.simulators.remote import RemoteWorlds
    from robot_rl.learn.simulators.simulator import Simulator

    step_s, iterations, seed = run
    share, cfg = num_envs // count, replace(cfg, staleness=replace(cfg.staleness, max=bound))

    def make(index: int) -> Simulator:
        env = WaitingEnv(share, step_s, seed=index)
        return Simulator(env, cfg, seed=seed, index=index, count=count, staleness=bound)

    rows: list[dict[str, float]] = []
    pool = ThreadPool([lambda index=index: make(index) for index in range(count)])
    with contextlib.closing(RemoteWorlds(WaitingEnv(2), share * count, pool)) as env:
        make_trainer(env, cfg, seed=seed, observer=rows.append).train(WARM_UP + iterations)
    ends = [row["time_s"] for row in rows]
    elapsed = [after - before for before, after in zip(ends[WARM_UP - 1 : -1], ends[WARM_UP:], strict=True)]
    rest = [took - row["perf/wait_s"] - row["perf/learn_s"] for took, row in zip(elapsed, rows[WARM_UP:], strict=True)]
    return statistics.median(elapsed), max(0.0, statistics.median(rest))


def compare(make: Make, learner: LearnerCfg, iterations: int, seed: int) -> dict[str, float]:
    """Train without overlap and with it, and return the times [s] and the efficiency."""
    simulate, learn, sync = _rows(make, replace(learner, overlap=False), iterations, seed)
    elapsed = _rows(make, replace(learner, overlap=True), iterations, seed)[2]
    efficiency = overlap_efficiency(simulate, learn, sync - simulate - learn, elapsed)
    times = {"simulate_s": simulate, "learn_s": learn, "sync_s": sync, "async_s": elapsed}
    return times | {"ratio": elapsed / sync, "efficiency": efficiency}


def _rows(make: Make, learner: LearnerCfg, iterations: int, seed: int) -> tuple[float, float, float]:
    """Train, and return medians [s] over the iterations: collecting, learning, all."""
    rows: list[dict[str, float]] = []
    with contextlib.ExitStack() as stack:
        env = make()
        if callable(close := getattr(env, "close", None)):
            stack.callback(close)
        make_trainer(env, learner, seed=seed, observer=rows.append).train(WARM_UP + iterations)
    ends = [row["time_s"] for row in rows]
    elapsed = [after - before for before, after in zip(ends[WARM_UP - 1 : -1], ends[WARM_UP:], strict=True)]
    if learner.overlap:  # The last one begins no rollout.
        elapsed.pop()
    collect = [row["perf/simulate_s"] + row["perf/infer_s"] for row in rows[WARM_UP:]]
    return (
        statistics.median(collect),
        statistics.median(row["perf/learn_s"] for row in rows[WARM_UP:]),
        statistics.median(elapsed),
    )


def show_overlap(result: Mapping[str, Any]) -> None:
    """Print T_sim, T_learn, an iteration without and with overlap, their ratio and the efficiency, of both kinds."""
    print(f"{result['name']}: {result['machine']['cpu']}, {result['machine']['cores']} cores")
    head = ("worlds", "simulate [s]", "learn [s]", "in turn [s]", "overlapped [s]", "ratio", "efficiency", "spread")
    names = ("simulate_s", "learn_s", "sync_s", "async_s", "ratio", "efficiency", "spread")
    rows = [(one["worlds"], *(f"{one[name]:.3f}" for name in names)) for one in result["comparisons"]]
    print_table(head, rows, right=range(1, len(head)))
    head = ("simulators that wait", "versions behind", "measured [s]", "model [s]", "ratio")
    names = ("measured_s", "model_s", "ratio")
    cells = [(one["count"], one["staleness"], *(f"{one[name]:.3f}" for name in names)) for one in result["simulators"]]
    print_table(head, [tuple(map(str, row)) for row in cells], right=range(len(head)))
    for key, value in result["notes"].items():
        print(f"  {key}: {value}")


def main(arguments: list[str]) -> None:
    """Measure, print the table, write the figures."""
    run_bench(arguments, Options, bench_overlap, show_overlap)


if __name__ == "__main__":
    run_script(main)
