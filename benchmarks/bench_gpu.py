"""Everything there is to measure on a GPU, in one command and under 9 minutes, on a machine that may go away.

    python benchmarks/bench_gpu.py
    python benchmarks/bench_gpu.py toy=true
    python benchmarks/bench_gpu.py kernels=kernels mjlab_path=$HOME/mjlab out=figures

Each part runs in a process of its own (gpu_parts.py) with a time limit, the most valuable first, and leaves
``<out>/<part>.json`` after every figure; ``<out>/summary.json`` has a line for each. A part that fails or hangs is
written down, and the others go on: the exit code is 1 then. toy=true runs all of it on a CPU at toy size, whose figures
mean nothing. Nothing has to be installed for it but the packages that this project needs (docs/gpu.md).
``--help`` lists the options.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["dev-mode-dirs"]
FOLDERS = [str(ROOT / folder) for folder in PACKAGES]
if importlib.util.find_spec("robot_rl") is None:
    sys.path[:0] = FOLDERS

from words import run_script  # noqa: E402 - found above where it is not installed

from robot_rl.cli.options import describe, option, read_all  # noqa: E402
from robot_rl.cli.process import cache_variables  # noqa: E402
from robot_rl.cli.table import print_table  # noqa: E402
from robot_rl.errors import UserError, suggest  # noqa: E402
from robot_rl.files import read_json, write_json  # noqa: E402
from robot_rl.machine import git_state  # noqa: E402
from robot_rl.runs.outputs import check_folder  # noqa: E402

FAILED = ("failed", "timed out")
LAST_LINES = 15
"""Lines of a part's output that are kept where it did not end well."""


@dataclass(frozen=True)
class Part:
    """A part: its time limit, the least time in which it is worth starting [s], and its goal."""

    limit_s: float
    least_s: float
    goal: str


PARTS = {
    "env": Part(150, 20, "<= 1.10x the time of the engine's own steps (go2_flat)"),
    "rollout": Part(70, 20, "<= 1.15x the time of physics"),
    "walk": Part(120, 30, "<= 30 s of training"),
    "update": Part(50, 15, ">= 2x rsl_rl's (512-256-128, 4096 worlds)"),
    "overlap": Part(60, 20, "<= 0.9x the time of one after the other"),
    "mjlab": Part(120, 30, ">= 3x mjlab's"),
    "memory": Part(50, 20, ""),
    "parity": Part(50, 20, "<= 1e-3 after a control step"),
    "tests": Part(300, 20, "all pass"),
}
"""By name, the most valuable first."""


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of the script."""

    toy: bool = option(False, "all parts at toy size on the CPU")
    out: str = option("", "folder for the JSON; benchmarks/gpu/<card>, at toy size a temporary one by default")
    parts: str = option(",".join(PARTS), "what to measure, always in this order")
    limit_s: float = option(520.0, "time for all parts; what no longer fits is left out [s]", least=1.0, most=86400.0)
    kernels: str = option("", "folder of compiled kernels, from robot-rl compile out=")
    mjlab_path: str = option("", "folder that mjlab and what it pins are installed in (pip install --target)")
    mjlab_python: str = option("", "interpreter that mjlab is installed for; .venv-mjlab/bin/python by default")


def read_options(arguments: Sequence[str]) -> tuple[Options, list[str]]:
    """Return the options, and the parts in order.

    Raises:
        UserError: an unknown option or part, or a value that cannot be used.
    """
    options = read_all(Options, arguments)
    names = [name for name in options.parts.split(",") if name]
    for name in names:
        if name not in PARTS:
            raise UserError(f"parts={name}: must be of {', '.join(PARTS)}; {suggest(name, PARTS)}")
    if not names:
        raise UserError(f"parts={options.parts}: names none; must be of {', '.join(PARTS)}")
    if options.kernels and options.toy:
        raise UserError("kernels= and toy=true: kernels are for a GPU; leave one of them out")
    for key, holds in (("kernels", "kernels.json"), ("mjlab_path", "mjlab"), ("mjlab_python", "")):
        value = getattr(options, key)
        if value and not (Path(value) / holds).exists():
            raise UserError(f"{key}={value}: has no {holds}" if holds else f"{key}={value}: no such file")
    if options.out:
        check_folder("out", options.out)
    for key in ("out", "kernels", "mjlab_path", "mjlab_python"):  # Absolute, but a virtual environment's links stay.
        if value := getattr(options, key):
            setattr(options, key, os.path.abspath(value))
    return options, [name for name in PARTS if name in names]


def find_card() -> str:
    """Return the name of the GPU.

    Raises:
        UserError: there is none, or torch is not installed.
    """
    code = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=False)
    if done.returncode:
        raise UserError(
            f"torch cannot be used by {sys.executable}: {(done.stderr.strip() or 'killed').splitlines()[-1]}"
        )
    if not done.stdout.strip():
        raise UserError("toy=false: torch finds no GPU here; use toy=true for a run at toy size on the CPU")
    return done.stdout.strip()


def environment(toy: bool = False) -> dict[str, str]:
    """Return the variables of a part's process: this checkout first, installed or not; at toy size without a GPU."""
    path = os.pathsep.join([*FOLDERS, *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {**os.environ, **cache_variables(os.environ), "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    return own | ({"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"} if toy else {})


def command(name: str, options: Options, file: Path) -> list[str]:
    """Return the command line of a part."""
    script = str(Path(__file__).with_name("gpu_parts.py"))
    return [sys.executable, script, name, json.dumps(dataclasses.asdict(options)), str(file)]


def run_part(name: str, options: Options, file: Path, limit_s: float) -> dict[str, Any]:
    """Run a part for at most so long, end all of its processes, and return what is in its file then."""
    file.unlink(missing_ok=True)
    start = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(
            command(name, options, file),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment(options.toy),
            start_new_session=True,
        )
        state = ""
        try:
            code = process.wait(limit_s)
            state = "failed" if code else ""
        except subprocess.TimeoutExpired:
            state = "timed out"
        finally:  # A part's own processes, too: mjlab's is one.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for half_written in file.parent.glob(f".{file.name}.*"):
            half_written.unlink()
        log.seek(0)
        last = [line.rstrip() for line in log if line.strip()][-LAST_LINES:]
    found: dict[str, Any] = read_json(file) if file.exists() else {}
    found |= {"part": name, "goal": PARTS[name].goal, "seconds": round(time.monotonic() - start, 1)}
    if not state and found.get("state") not in ("done", "not possible"):
        state = "failed"
    if state:
        found |= {"state": state, "limit_s": round(limit_s, 1), "last_lines": last}
    write_json(file, found)
    return found


def figure(found: dict[str, Any]) -> str:
    """Return a part's result in a line."""
    lines = [found.get("reason", ""), found.get("headline", "")]
    if found["state"] in FAILED:
        lines.append(f"last line: {found['last_lines'][-1] if found['last_lines'] else 'none'}")
    return "; ".join(filter(None, lines))


def show(results: dict[str, dict[str, Any]]) -> None:
    """Print the table of all parts."""
    words = {None: "", True: ": holds", False: ": MISSED"}
    rows = [
        (name, found["state"], f"{found['seconds']:.0f}", figure(found), found["goal"] + words[found.get("met")])
        for name, found in results.items()
    ]
    print_table(("part", "state", "s", "figure", "goal"), rows, right=(2,), least=110)


def measure(name: str, options: Options, out: Path, left_s: float) -> dict[str, Any]:
    """Run a part where the time that is left is enough for it; return the content of its file."""
    file, part = out / f"{name}.json", PARTS[name]
    if left_s >= part.least_s:
        limit_s = min(part.limit_s, left_s)
        print(f"{name:<8} starts, at most {limit_s:.0f} s", flush=True)
        found = run_part(name, options, file, limit_s)
    else:
        reason = f"{max(left_s, 0):.0f} s are left of limit_s={options.limit_s:g}, {part.least_s:g} s are needed"
        found = {"part": name, "state": "left out", "reason": reason, "goal": part.goal, "seconds": 0.0}
        write_json(file, found)
    print(f"{name:<8} {found['state']} after {found['seconds']:.0f} s: {figure(found)}", flush=True)
    return found


def main(arguments: Sequence[str]) -> int:
    """Measure the parts in order; return 1 where one failed, else 0.

    Raises:
        UserError: an option that cannot be used, or no GPU.
    """
    if {"--help", "-h"} & set(arguments):
        print(f"{__doc__}\n{describe(Options)}")
        return 0
    options, names = read_options(arguments)
    start = time.monotonic()
    card = "toy size on a CPU" if options.toy else find_card()
    if not options.out:
        slug = re.sub(r"[^a-z0-9]+", "-", card.lower()).strip("-")
        options.out = tempfile.mkdtemp(prefix="bench-gpu-") if options.toy else str(ROOT / "benchmarks" / "gpu" / slug)
    out, results = Path(options.out), {}
    out.mkdir(parents=True, exist_ok=True)
    print(f"{card}: {', '.join(names)} in at most {options.limit_s:g} s -> {out}", flush=True)
    summary: dict[str, Any] = {"name": "bench gpu", "card": card, "toy": options.toy, "code": git_state(), "parts": {}}
    for name in names:
        found = measure(name, options, out, options.limit_s - (time.monotonic() - start))
        results[name] = found
        summary |= {key: found[key] for key in ("machine", "versions") if key in found}
        kept = ("state", "seconds", "headline", "goal", "met", "reason")
        summary["parts"][name] = {key: found[key] for key in kept if key in found}
        write_json(out / "summary.json", summary | {"seconds": round(time.monotonic() - start, 1)})
    show(results)
    print(out / "summary.json")
    return int(any(found["state"] in FAILED for found in results.values()))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ends the part that runs, as Ctrl-C does.
    try:
        run_script(main)
    except KeyboardInterrupt:
        sys.exit(130)
