"""The faults, and a drill that injects them: processes killed, signals sent, files damaged, NaN in a world's state."""

from __future__ import annotations

import itertools
import shutil
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from robot_rl.drill.compare import rows_of
from robot_rl.drill.copies import SHOWN, Outcome, RunCopies, note_start, recover
from robot_rl.drill.full_disk import full_disk
from robot_rl.drill.process import DrillError, name_code
from robot_rl.errors import ExitCode
from robot_rl.learn.checkpoints.checkpoint import list_checkpoints, load_checkpoint, load_worlds, save_checkpoint
from robot_rl.learn.checkpoints.worlds import ENV
from robot_rl.runs.run_dir import RunDir

WANTED_S = 6.0
"""Default duration of a copy's training without the start of its processes [s]."""
LEAST, MOST = 15, 600
"""Least and most iterations of it."""
SAVES = 5
"""Number of checkpoints that are written in it."""
KEPT = 5
STATE = f"{ENV}engine"
"""The name of the physics engine's state (N, k) in a checkpoint's worlds."""
COORDINATE = 1
"""A column of it that is a coordinate of the robot's position or velocity in every engine."""


def make_copies(run: RunDir, checkpoint: Path, work: Path, *, device: str, iterations: int | None = None) -> RunCopies:
    """Return the copies of a run in an empty directory, which begin with a valid checkpoint.

    Each copy trains for a number of iterations; None for about WANTED_S seconds.
    """
    _, meta = load_checkpoint(checkpoint)
    start = int(meta["iteration"])
    times = [row["time_s"] for row in rows_of(run.path)][-20:]
    steps = [after - before for before, after in itertools.pairwise(times) if after > before]
    iteration_s = statistics.median(steps) if steps else meta["time_s"] / max(start, 1)
    if iterations is None:
        iterations = min(MOST, max(LEAST, round(WANTED_S / max(iteration_s, 1e-4))))
    settings = {"metrics.wandb": "off", "keep_checkpoints": KEPT}
    if int(meta.get("processes", 1)) > 1:
        settings["allow_resize"] = "true"
    incomparable = ""
    if device != "cpu":
        incomparable = "sums on a GPU are not reproducible"
    elif not has_worlds(checkpoint):
        incomparable = "the environment does not save its worlds' state"
    return RunCopies(
        origin=run,
        checkpoint=checkpoint,
        work=work,
        start=start,
        total=start + iterations,
        save_interval=max(2, iterations // SAVES),
        iteration_s=iteration_s,
        incomparable=incomparable,
        settings=settings,
    )


def has_worlds(checkpoint: Path) -> bool:
    """Return whether a checkpoint contains the state of the worlds."""
    return any(name.startswith(ENV) for name in load_worlds(checkpoint) or {})


def kill(copies: RunCopies, outcome: Outcome) -> None:
    """SIGKILL between two checkpoints."""
    run = copies.killed("kill")
    before = rows_of(run.path)
    outcome.injected = f"SIGKILL after iteration {before[-1]['iteration']}, checkpoints every {copies.save_interval}"
    outcome.noticed.append(name_code(-signal.SIGKILL))
    recover(copies, run, outcome, before, most_lost=2 * copies.save_interval)


def signals(copies: RunCopies, outcome: Outcome) -> None:
    """SIGTERM, then SIGUSR1: the signals of a cluster before it takes the machine away."""
    run = copies.copy("signal")
    sent: list[str] = []
    for number, share in ((signal.SIGTERM, 0.3), (signal.SIGUSR1, 0.6)):
        before = rows_of(run.path)
        with copies.train(run) as training:
            first = training.wait_first(copies.patience_s)
            if sent:
                note_start(outcome, training, first, before)
                outcome.expect(outcome.lost_iterations == 0, f"{outcome.lost_iterations} iterations lost after a save")
            training.wait_iteration(copies.after(share), copies.patience_s)
            training.send(number)
            at, wall = time.monotonic(), time.time()
            code = training.wait(copies.patience_s)
            took = time.monotonic() - at
        sent.append(f"{number.name} after iteration {rows_of(run.path)[-1]['iteration']}")
        durable = run.checkpoints.stat().st_mtime - wall
        outcome.noticed.append(
            f"{name_code(code)} after {took:.2f} s, the checkpoint after {durable:.2f} s: {training.lines[-1]}"
        )
        outcome.expect(
            code == ExitCode.REQUEUE,
            f"{number.name} ended it with {name_code(code)}, must be exit code {ExitCode.REQUEUE:d}",
        )
    outcome.injected = ", then ".join(sent)
    recover(copies, run, outcome, rows_of(run.path), most_lost=0)


def torn_checkpoint(copies: RunCopies, outcome: Outcome) -> None:
    """The newest checkpoint cut in half, one bit of the one before flipped."""
    run = copies.killed("torn_checkpoint")
    before = rows_of(run.path)
    *_, spared, second, newest = list_checkpoints(run.path)
    files = [max(path.glob("*.safetensors"), key=lambda file: file.stat().st_size) for path in (newest, second)]
    files[0].write_bytes(files[0].read_bytes()[: files[0].stat().st_size // 2])
    content = bytearray(files[1].read_bytes())
    content[len(content) // 2] ^= 1
    files[1].write_bytes(content)
    outcome.injected = f"{_tail(files[0])} cut in half, one bit of {_tail(files[1])} flipped"
    recover(copies, run, outcome, before, most_lost=before[-1]["iteration"] - int(spared.name))
    output = " ".join(outcome.noticed)
    for path in (newest, second):
        outcome.expect(path.name in output, f"checkpoint {path.name} was not reported as damaged")


def nan_world(copies: RunCopies, outcome: Outcome) -> None:
    """A coordinate of world 0 is NaN in a checkpoint that is otherwise valid."""
    run = copies.killed("nan_world")
    before = rows_of(run.path)
    newest = list_checkpoints(run.path)[-1]
    poison(newest)
    outcome.injected = f"a coordinate of world 0 is NaN in {newest.name}"
    recover(copies, run, outcome, before, most_lost=2 * copies.save_interval, is_same=False)
    rows = [row for row in rows_of(run.path) if row["iteration"] > int(newest.name)]
    quarantined = sum(row.get("quarantined") or 0 for row in rows[:SHOWN])
    outcome.noticed.append(f"worlds quarantined in the first {SHOWN} iterations: {quarantined:.0f}")
    outcome.expect(quarantined >= 1, "the world was not quarantined")
    broken = [row["iteration"] for row in rows if any(name.startswith("loss/") and row[name] is None for name in row)]
    outcome.expect(not broken, f"a loss was not finite in iterations {broken[:SHOWN]}")
    outcome.same = "no, as expected: world 0 began a new episode"


def corrupt_metrics(copies: RunCopies, outcome: Outcome) -> None:
    """metrics.jsonl with zeros instead of a row, and cut in the middle of another, as after a power failure."""
    run = copies.killed("corrupt_metrics")
    before = rows_of(run.path)
    steps = [row["iteration"] for row in before]
    zeroed, cut = copies.start + 1, int(list_checkpoints(run.path)[-1].name) - 1
    lines = run.metrics_file.read_bytes().splitlines(keepends=True)[: steps.index(cut) + 1]
    lines[steps.index(zeroed)] = bytes(len(lines[steps.index(zeroed)]) - 1) + b"\n"
    lines[-1] = lines[-1][: len(lines[-1]) // 2]
    run.metrics_file.write_bytes(b"".join(lines))
    outcome.injected = f"metrics.jsonl ends in the middle of the row of iteration {cut}, that of {zeroed} is zeros"
    recover(copies, run, outcome, before, most_lost=2 * copies.save_interval, missing=(zeroed, cut, cut + 1))


def poison(checkpoint: Path) -> None:
    """Write NaN into a coordinate of the first world of a checkpoint, which stays valid.

    Raises:
        DrillError: the checkpoint does not contain the worlds.
    """
    worlds = load_worlds(checkpoint)
    if worlds is None or STATE not in worlds:
        raise DrillError(f"{checkpoint.name} contains no physics to write NaN into")
    worlds[STATE][0, COORDINATE] = float("nan")
    tensors, meta = load_checkpoint(checkpoint)
    save_checkpoint(checkpoint, tensors, meta, worlds=worlds)


def _tail(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


FAULTS: dict[str, Callable[[RunCopies, Outcome], None]] = {
    "kill": kill,
    "signal": signals,
    "torn_checkpoint": torn_checkpoint,
    "full_disk": full_disk,
    "nan_world": nan_world,
    "corrupt_metrics": corrupt_metrics,
}
"""The faults by name."""


def drill(
    copies: RunCopies,
    names: Sequence[str],
    say: Callable[[str], None],
    done: Callable[[Outcome], None],
    *,
    keep: bool = False,
) -> bool:
    """Inject faults, keys of FAULTS, each in a copy of its own, and return whether all were survived.

    `say` is called with progress lines, `done` with each outcome; `keep` keeps the copies.

    Raises:
        DrillError: the run cannot continue without a fault either.
    """
    say("the undisturbed run, for comparison")
    copies.reference()
    survived = True
    for name in names:
        say(name)
        outcome = Outcome(fault=name)
        try:
            FAULTS[name](copies, outcome)
        except DrillError as error:
            outcome.wrong.append(str(error))
        outcome.noticed = [line.replace(f"{copies.work}/", "") for line in outcome.noticed]
        if not keep:
            shutil.rmtree(copies.work / name, ignore_errors=True)
        survived &= not outcome.wrong
        done(outcome)
    return survived
