"""A run that is killed 200 times while it writes a checkpoint, and what it loses by that.

    python benchmarks/kill_loop.py [out=benchmarks/kill_loop.json] [kills=200] [seed=1]

A small training of cartpole saves every few iterations. Each of its lives is a process of its own that goes on with
`robot-rl resume`; it is forked from this one, which has imported what a training imports and started nothing, to be
there in a moment. As soon as the temporary directory of a checkpoint is seen, SIGKILL follows at a random moment of
the time that a save takes, after a random number of saves were let pass. After each kill every checkpoint in the run is
read and compared with its checksums. At last the run goes to its end, and is compared with one that nobody killed.
"""

import contextlib
import importlib
import os
import random
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from harness import facts, write
from words import read_words, run_script

from robot_rl.cli.main import main as command_line
from robot_rl.drill import differing_rows, differing_tensors, rows_of
from robot_rl.errors import UserError
from robot_rl.learn.checkpoints.checkpoint import (
    good_checkpoint,
    latest_checkpoint,
    list_checkpoints,
    verify_checkpoint,
)
from robot_rl.runs.run_dir import RunDir
from robot_rl.runs.run_index import last_row

SAVE_INTERVAL = 5
KNOWN = {"kills": "200", "seed": "1", "out": "benchmarks/kill_loop.json"}
SMALL = ("num_envs=16", "num_steps=8", "actor.hidden=[16]", "critic.hidden=[16]", "num_threads=1", "ppo.schedule=fixed")
STAGING = re.compile(r"\.(\d{6})-(?!replaced$|removed$)")
POLL_S = 0.0003
PATIENCE_S = 120.0
PASSED = 4
"""Maximum number of undisturbed saves before a kill."""


@dataclass(kw_only=True, slots=True)
class Tally:
    """Counts over all processes."""

    phases: Counter[str] = field(default_factory=Counter)
    unloadable: int = 0
    lost: list[int] = field(default_factory=list)
    beyond: int = 0
    save_s: list[float] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)


class Life:
    """A process that continues the run; its output goes to a file."""

    def __init__(self, words: list[str], log: Path) -> None:
        """Fork it."""
        self.start = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            self._live(words, log)

    def _live(self, words: list[str], log: Path) -> None:
        code = 1
        try:
            with log.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            sys.argv = ["robot-rl", *words]
            code = command_line(words)
            log.with_suffix(".modules").write_text("\n".join(sys.modules))
        finally:
            os._exit(code)

    def is_over(self) -> bool:
        """Whether it has ended by itself."""
        return os.waitpid(self.pid, os.WNOHANG)[0] != 0

    def kill(self) -> None:
        """Kill it and wait for its end."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def finish(self) -> int:
        """Wait for its end and return its exit code."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def staged(checkpoints: Path) -> tuple[int, Path] | None:
    """The iteration and the temporary directory of a checkpoint that is being written."""
    for name in os.listdir(checkpoints):
        if match := STAGING.match(name):
            return int(match[1]), checkpoints / name
    return None


def phase(directory: Path) -> str:
    """Return how far a save was, by the content of its temporary directory."""
    try:
        files = {path.name: path.stat().st_size for path in directory.iterdir()}
    except FileNotFoundError:
        return "renamed already"
    for name, words in (("meta.json", "meta.json"), ("env.safetensors", "worlds"), ("model.safetensors", "networks")):
        if name in files:
            return f"{words} begun" if files[name] else f"{words} still empty"
    return "nothing written yet"


def live_and_die(run: RunDir, words: list[str], log: Path, tally: Tally, draw: random.Random) -> bool:
    """Let a process resume the run and kill it in a save; return False where the save was done before."""
    old = staged(run.checkpoints)
    known = {old[1].name} if old else set()
    life = Life(words, log)
    left, seen, since = draw.randrange(PASSED), "", 0.0
    while True:
        found = staged(run.checkpoints)
        now = time.monotonic()
        if seen and (found is None or found[1].name != seen):
            tally.save_s.append(now - since)
            seen = ""
        if found is not None and found[1].name not in known:
            known.add(found[1].name)
            seen, since = found[1].name, now
            if left == 0:
                break
            left -= 1
        if life.is_over() or now - life.start > PATIENCE_S:
            raise SystemExit(f"a life ended by itself or hangs: {log.read_text()[-2000:]}")
        time.sleep(POLL_S)
    usual = statistics.median(tally.save_s[-50:]) if tally.save_s else 0.02
    time.sleep(draw.uniform(0.0, 0.95 * usual))
    life.kill()
    assert found is not None
    how = phase(found[1])
    tally.phases[how] += 1
    is_in_save = how != "renamed already"
    take_stock(run, found[0], tally, is_in_save=is_in_save)
    return is_in_save


def take_stock(run: RunDir, writing: int, tally: Tally, *, is_in_save: bool) -> None:
    """Read every checkpoint, and count what a kill lost."""
    for path in list_checkpoints(run.path):
        try:
            verify_checkpoint(path)
        except UserError as error:
            tally.unloadable += 1
            print(f"unloadable: {error}", flush=True)
    row, good = last_row(run.metrics_file), int(good_checkpoint(run.path).name)
    tally.lost.append(row["iteration"] - good)
    # The checkpoint before the one that was being written has to be there, and nothing older is gone back to.
    tally.beyond += good < (writing - SAVE_INTERVAL if is_in_save else writing)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the disk of the working directory."""
    folder = Path(tempfile.mkdtemp(prefix=".kill-loop-", dir="."))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def begin(root: Path, seed: int) -> RunDir:
    """Train the first run, and import what that needs."""
    words = ["train", "task=cartpole", *SMALL, f"seed={seed}", f"root={root}", "max_iterations=5", "save_interval=5"]
    if Life(words, root.with_suffix(".log")).finish() != 0:
        raise SystemExit(root.with_suffix(".log").read_text())
    for name in root.with_suffix(".modules").read_text().split():
        if not name.startswith("__"):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    return RunDir.find("latest", root)


def resume_words(run: RunDir, last: int) -> list[str]:
    """The command line that resumes a run."""
    settings = (f"max_iterations={last}", f"save_interval={SAVE_INTERVAL}")
    return ["resume", run.run_id, f"root={run.path.parent.parent}", *settings]


def compare(run: RunDir, root: Path, folder: Path) -> dict[str, Any]:
    """Finish the run, and also one that is never killed."""
    last = last_row(run.metrics_file)["iteration"] + 2 * SAVE_INTERVAL
    straight = RunDir(root / run.task / run.run_id)
    for one in (run, straight):
        if Life(resume_words(one, last), folder / "end.log").finish() != 0:
            raise SystemExit((folder / "end.log").read_text()[-2000:])
    steps = [row["iteration"] for row in rows_of(run.path)]
    found = differing_tensors(latest_checkpoint(run.path), latest_checkpoint(straight.path))
    return {
        "iterations": last,
        "rows_once_and_in_order": steps == list(range(1, last + 1)),
        "differing_tensors": found,
        "differing_rows": differing_rows(rows_of(run.path), rows_of(straight.path), 0),
    }


def main(arguments: list[str]) -> int:
    """Kill, count, compare, and write the result."""
    options = read_words(arguments, KNOWN, whole=("kills", "seed"))
    kills, seed = int(options["kills"]), int(options["seed"])
    draw, tally, begun = random.Random(seed), Tally(), time.monotonic()
    with scratch() as folder:
        run = begin(folder / "runs", seed)
        shutil.copytree(folder / "runs", folder / "straight")
        done = 0
        while done < kills:
            done += live_and_die(run, resume_words(run, 10**6), folder / "life.log", tally, draw)
            if done % 20 == 0:
                print(f"{done} kills in a save, {dict(tally.phases)}, unloadable {tally.unloadable}", flush=True)
        killed_s = time.monotonic() - begun
        end = compare(run, folder / "straight", folder)
    result = facts("SIGKILL while a checkpoint is written") | {
        "seed": seed,
        "save_interval": SAVE_INTERVAL,
        "kills_in_a_save": done,
        "kills_after_it": tally.phases["renamed already"],
        "phases": dict(tally.phases.most_common()),
        "unloadable": tally.unloadable,
        "lost_beyond_the_save_interval": tally.beyond,
        "lost_iterations": {
            "median": statistics.median(tally.lost),
            "p95": float(np.percentile(tally.lost, 95)),
            "max": max(tally.lost),
        },
        "save_s": {"median": statistics.median(tally.save_s), "max": max(tally.save_s)},
        "killing_took_s": killed_s,
        "beside_the_run_that_nobody_killed": end,
    }
    write(options["out"], result)
    sound = tally.unloadable == tally.beyond == 0 and end["rows_once_and_in_order"]
    return int(not (sound and not end["differing_tensors"] and not end["differing_rows"]))


if __name__ == "__main__":
    run_script(main)
