"""Whether a task learns for every seed, on every processor: one training for each seed and way of rounding.

    python benchmarks/learns_everywhere.py task=cartpole seeds=20 out=benchmarks/learns_everywhere_cartpole.json
    python benchmarks/learns_everywhere.py task=go2_flat seeds=3 out=benchmarks/learns_everywhere_go2_flat.json

The same task and seed give other bits with another number of threads or another library for matrix products, and on a
long training that is another training. The variants force what machines differ in:

    mkl-1, mkl-2         one and two threads, matrix products by Intel's library (what an Intel machine takes)
    avx2-1               Intel's library and PyTorch limited to AVX2; left out where the processor has no AVX-512
    compatible-1         Intel's library and PyTorch limited to SSE, which sum in yet another order
    moved-1              every first weight moved by 1e-7 times a normal random number

A task has learned where the metric that it declares as ``solved`` reaches its bound in 100 fresh worlds. go2_flat may
besides have at most 2 % failures, and a cart-pole has learned where 64 fresh poles that hang down return more than 6 of
8 in the mean with a deviation of less than 1 (by the task's rewards without the one for energy, which is there to learn
by). Every finished training is kept in the file at once; started again, the script goes on with what is missing.
``jobs`` trainings run at a time.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from words import read_words, run_script

from robot_rl.errors import UserError
from robot_rl.files import write_atomic
from robot_rl.machine import machine_facts, package_versions
from robot_rl.settings.words import parse_value
from robot_rl.sources.native import find_task

VARIANTS: dict[str, dict[str, Any]] = {
    "mkl-1": {"threads": 1, "products": "mkl"},
    "mkl-2": {"threads": 2, "products": "mkl"},
    "avx2-1": {"threads": 1, "products": "mkl", "isa": "avx2"},
    "compatible-1": {"threads": 1, "products": "mkl", "isa": "sse"},
    "moved-1": {"threads": 1, "products": "auto", "moved": 1e-7},
}
ISA = {
    "avx2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    "sse": {"MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41", "ATEN_CPU_CAPABILITY": "default"},
}
KNOWN = {"task": "cartpole", "seeds": "20", "variants": ",".join(VARIANTS), "jobs": "1", "set": "", "out": ""}
RETURN, DEVIATION = 6.0, 1.0
FAILURES = 0.02


def has_learned(task: Any, found: dict[str, Any]) -> bool:
    """Return whether a training's figures are within the bounds of its task; none has a metric that is None."""
    if task.name == "cartpole":
        return found["return"] > RETURN and found["std"] < DEVIATION
    name, bound = goal(task)
    if found[name] is None or (task.name == "go2_flat" and failures(found) > FAILURES):
        return False
    return found[name] <= bound if task.metrics[name].info.better == "smaller" else found[name] >= bound


def goal(task: Any) -> tuple[str, float]:
    """Return the metric by which a task is solved, and its bound."""
    name, bound = task.solved
    return name.removeprefix("tracking/"), bound


def failures(found: dict[str, float]) -> float:
    """Return the share of episodes that failed; files of before 0.2.0 name it fall_rate."""
    return found["failure_rate"] if "failure_rate" in found else found["fall_rate"]


def train(task_name: str, seed: int, variant: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Train in this process and return the figures of the last policy."""
    import torch

    torch.set_num_threads(variant["threads"])
    from robot_rl_envs.make import make_env
    from robot_rl_tasks.registry import get_task

    from robot_rl.learn.algorithms import preset_learner
    from robot_rl.learn.cpu import mlp as fused
    from robot_rl.learn.make_trainer import make_trainer
    from robot_rl.learn.policy import make_policy
    from robot_rl.settings import apply_overrides

    if variant["products"] != "auto":
        fused.has_quick_onednn = lambda: variant["products"] == "onednn"  # type: ignore[assignment]
    task = get_task(task_name)
    presets = {"ppo": {**task.learner, **task.learner_cpu}, **task.presets}
    cfg = apply_overrides(preset_learner(task.learner_name, presets), {"save_interval": 10**6, **settings})
    env = make_env(task, num_envs=task.num_envs[0], seed=seed, num_threads=variant["threads"])
    with tempfile.TemporaryDirectory() as scratch:
        runner = make_trainer(env, cfg, run_dir=Path(scratch), seed=seed)
        move(runner, variant.get("moved", 0.0))
        begun = time.perf_counter()
        runner.train()
        spent = time.perf_counter() - begun
        return {**evaluate(get_task(task_name), seed, make_policy(Path(scratch))), "train_s": round(spent, 1)}


def has_avx512() -> bool:
    """Return whether PyTorch uses AVX-512 here where nothing limits it."""
    import torch

    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def move(runner: Any, size: float) -> None:
    """Add a normal random number times `size` to every weight."""
    import torch

    source = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in (*runner.actor.parameters(), *runner.critic.parameters()):
            weight.add_(size * torch.randn(weight.shape, generator=source))


def evaluate(task: Any, seed: int, policy: Any) -> dict[str, Any]:
    """Return the figures that `has_learned` judges, in fresh worlds; the task is changed."""
    from robot_rl_envs.make import make_env
    from robot_rl_envs.mdp import events
    from robot_rl_envs.task import Event

    from robot_rl.evaluation import evaluate_run

    is_pole = task.name == "cartpole"
    if is_pole:
        task.events["pole"] = Event(events.reset_joint_to, joint=1, centre=math.pi, spread=0.3, velocity=0.2)
        task.episode_length_s = 8.0
        del task.rewards["energy"]
    worlds, seconds = (64, 8.0) if is_pole else (100, 10.0)
    result = evaluate_run(
        lambda: make_env(task, num_envs=worlds, seed=10_000 + seed), policy=policy, bundle=None, seconds=seconds
    )["torch"]
    if is_pole:
        return {"return": round(result["return"]["mean"], 3), "std": round(result["return"]["std"], 3)}
    return {name: result[name] and round(result[name]["mean"], 4) for name in (goal(task)[0], "failure_rate")}


def in_process(task: str, seed: int, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Train in a process of its own, since libraries read what they are held to when they start."""
    variant = VARIANTS[name]
    threads = {"OMP_NUM_THREADS": str(variant["threads"])}
    words = [sys.executable, __file__, "--worker", task, str(seed), name, json.dumps(settings)]
    env = {**os.environ, **threads, **ISA.get(variant.get("isa", ""), {})}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{task} seed {seed} {name}: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def read_options(arguments: list[str]) -> dict[str, str]:
    """Return the options by name.

    Raises:
        UserError: an unknown one, or a value that cannot be.
    """
    options = read_words(arguments, KNOWN, whole=("seeds", "jobs"), marks=("task", "found"))
    if find_task(options["task"]).solved is None:
        raise UserError(f"task={options['task']}: does not declare when it is solved; give it Task.solved")
    if unknown := sorted(set(options["variants"].split(",")) - set(VARIANTS)):
        raise UserError(f"variants={unknown[0]}: must be of {', '.join(VARIANTS)}")
    return options


def table(task: Any, found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return a line for each variant: how many seeds learned, and the figures of those that did not."""
    lines = [f"{'variant':<12} learned"]
    for name, seeds in found.items():
        good = [seed for seed, figures in seeds.items() if has_learned(task, figures)]
        missed = "".join(f"  seed {seed}: {seeds[seed]}" for seed in seeds if seed not in good)
        lines.append(f"{name:<12} {len(good)} of {len(seeds)}{missed}")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Train what is missing, and print the table."""
    options = read_options(arguments)
    task, out = options["task"], Path(options["out"]) if options["out"] else None
    words = (word.partition("=") for word in options["set"].split(",") if word)
    settings = {key: parse_value(text, key) for key, _, text in words}
    names = options["variants"].split(",")
    if "avx2-1" in names and not has_avx512():
        names.remove("avx2-1")
        print("avx2-1: left out, this processor has no AVX-512 and mkl-1 the same bits")
    found: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in names}
    machines: list[Any] = []
    if out is not None and out.is_file():
        before = json.loads(out.read_text())
        if before["task"] != task or before["settings"] != settings:
            raise UserError(f"out={out}: is of {before['task']} with {before['settings']}; name another file")
        found, machines = before["found"] | {k: before["found"].get(k, {}) for k in found}, before["machines"]
    machines += [facts for facts in (machine_facts(),) if facts not in machines]

    def one(job: tuple[int, str]) -> None:
        seed, name = job
        found[name][str(seed)] = figures = in_process(task, seed, name, settings)
        print(f"{task} {name} seed {seed}: {figures}", flush=True)
        if out is not None:
            result = {"task": task, "settings": settings, "machines": machines, "versions": package_versions()}
            write_atomic(out, json.dumps(result | {"found": found}, indent=1) + "\n")

    missing = [
        (seed, name) for seed in range(1, int(options["seeds"]) + 1) for name in names if str(seed) not in found[name]
    ]
    with ThreadPoolExecutor(int(options["jobs"])) as pool:
        list(pool.map(one, missing))
    print(table(find_task(task), found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        print(json.dumps(train(sys.argv[2], int(sys.argv[3]), VARIANTS[sys.argv[4]], json.loads(sys.argv[5]))))
    else:
        run_script(main)
