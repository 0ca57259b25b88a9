"""What trainings in less than float32 reach: return and tracking error of each flow from rollout to robot, by task.

    python benchmarks/precision.py out=benchmarks/precision.json
    python benchmarks/precision.py tasks=go2_flat flows=fp32,int8 seeds=1,2 jobs=2 root=runs out=precision.json

A flow "int8" is one precision throughout; "bf16:int8" updates in bf16 and lets the policy act in int8, which Jet-RL
warns of (arXiv 2601.14243); "fp32>int8" is a training in fp32 with quantization after it, and needs none of its own.
A run is trained by robot-rl train, one thread each, `jobs` at a time, and evaluated by robot-rl eval in 100 fresh
worlds. Runs are kept below `root`, and their figures in the file at once; started again the script goes on with what
the file does not have, and with a training that was ended from its newest checkpoint.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness import facts
from words import read_words, run_script

from robot_rl.errors import UserError
from robot_rl.files import write_atomic

KNOWN = {
    "tasks": "go2_flat,walker2d_v5,go2_rough",
    "flows": "fp32,bf16,int8,fp8,bf16:int8,bf16:fp8,fp32>int8,fp32>fp8",
    "seeds": "1,2",
    "jobs": "2",
    "episodes": "100",
    "train": "",
    "root": "runs-precision",
    "out": "",
}
CLI = (sys.executable, "-c", "from robot_rl.cli.main import script; script()")
TRACKED = ("lin_vel_error", "speed")
LAST = 50
"""The ratios of so many last iterations are averaged."""


def command(*words: str) -> None:
    """Run a command of robot-rl; raise UserError with its last line where it fails."""
    done = subprocess.run([*CLI, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"robot-rl {' '.join(words)}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")


def run_one(task: str, flow: str, seed: int, words: dict[str, str]) -> dict[str, Any]:
    """Train and evaluate a flow; return its figures."""
    root, train, worlds = Path(words["root"]), words["train"], f"episodes={words['episodes']}"
    trained, _, after = flow.partition(">")
    update, _, rollout = trained.partition(":")
    name = f"{trained.replace(':', '-')}_{seed}"
    path = root / task / name
    if not (path / "done").exists():
        if any(path.glob("checkpoints/*/meta.json")):
            command("resume", f"run={task}/{name}", f"root={root}")
        else:
            shutil.rmtree(path, ignore_errors=True)
            own = [f"task={task}", f"seed={seed}", f"precision={update}", f"run_id={name}", f"root={root}"]
            own += [f"precision.rollout={rollout}"] if rollout else []
            command("train", *own, *train.split(), "num_threads=1", "learner_threads=1")
        (path / "done").touch()
    out = path / (f"eval-{after}.json" if after else "eval.json")
    if not out.exists():
        if after:
            bundle = path / f"policy-{after}"
            command("export", f"run={task}/{name}", f"root={root}", f"precision={after}", f"out={bundle}")
            command("eval", f"policy={bundle}", worlds, f"out={out}")
        else:
            command("eval", f"run={task}/{name}", f"root={root}", worlds, f"out={out}")
    found = json.loads(out.read_text())
    block = found.get("onnx") or found["torch"]
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    ratios = [row.get("precision/log_ratio", 0.0) for row in rows[-LAST:]]
    result = {"task": task, "flow": flow, "seed": seed, "return": block["return"], "log_ratio": statistics.mean(ratios)}
    return result | {name: block[name] for name in (*TRACKED, "failure_rate") if name in block}


def summarize(done: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each task and flow: its mean over seeds, and how far that is from float32's on these [%]."""
    rows = []
    for task, flow in dict.fromkeys((row["task"], row["flow"]) for row in done):
        mine = [row for row in done if (row["task"], row["flow"]) == (task, flow)]
        seeds = {row["seed"] for row in mine}
        plain = [row for row in done if (row["task"], row["flow"]) == (task, "fp32") and row["seed"] in seeds]
        mean = statistics.mean(row["return"]["mean"] for row in mine)
        base = statistics.mean(row["return"]["mean"] for row in plain) if plain else mean
        each = [round(row["return"]["mean"], 2) for row in mine]
        rows.append({"task": task, "flow": flow, "return": round(mean, 2), "each": each})
        rows[-1]["from fp32 %"] = round(100.0 * (mean / base - 1.0), 2)
        rows[-1]["log_ratio"] = statistics.mean(row["log_ratio"] for row in mine)
        for name in TRACKED:
            values = [row[name]["mean"] for row in mine if row.get(name)]
            if values:
                rows[-1][name] = round(statistics.mean(values), 4)
    return rows


def main(arguments: list[str]) -> int:
    """Train and evaluate what is missing."""
    words = read_words(arguments, KNOWN)
    out = Path(words["out"]) if words["out"] else None
    several = [
        (task, flow, int(seed))
        for task in words["tasks"].split(",")
        for seed in words["seeds"].split(",")
        for flow in words["flows"].split(",")
    ]
    kept = json.loads(out.read_text())["runs"] if out is not None and out.exists() else []
    done: list[dict[str, Any]] = [row for row in kept if (row["task"], row["flow"], row["seed"]) in several]
    missing = [item for item in several if item not in {(row["task"], row["flow"], row["seed"]) for row in done}]

    def work(item: tuple[str, str, int]) -> None:
        done.append(run_one(*item, words))
        rows = summarize(sorted(done, key=lambda row: several.index((row["task"], row["flow"], row["seed"]))))
        print(f"{' '.join(map(str, item))}: return {done[-1]['return']['mean']:.4g}", flush=True)
        if out is not None:
            result = facts("precision of trainings") | {"rows": rows, "runs": done}
            write_atomic(out, json.dumps(result, indent=1) + "\n")

    with ThreadPoolExecutor(int(words["jobs"])) as pool:
        list(pool.map(work, [item for item in missing if ">" not in item[1]]))
        list(pool.map(work, [item for item in missing if ">" in item[1]]))
    for row in summarize(done):
        print(row)
    return 0


if __name__ == "__main__":
    run_script(main)
