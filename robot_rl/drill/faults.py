"""The faults, by real means: a process killed, a signal sent, files cut and changed, NaN in a world's state."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from robot_rl.drill.compare import rows_of
from robot_rl.drill.process import DrillError, name_code
from robot_rl.drill.recovery import SHOWN, note_start, recover
from robot_rl.drill.scene import Outcome, Scene
from robot_rl.errors import ExitCode
from robot_rl.learn.checkpoints.checkpoint import list_checkpoints, load_checkpoint, load_worlds, save_checkpoint
from robot_rl.learn.checkpoints.worlds import ENV

STATE = f"{ENV}engine"
"""The name of the physics engine's state (N, k) in a checkpoint's worlds."""
COORDINATE = 1
"""A column of it that is a coordinate of the robot's position or velocity in every engine."""


def kill(scene: Scene, outcome: Outcome) -> None:
    """SIGKILL between two checkpoints."""
    run = scene.killed("kill")
    before = rows_of(run.path)
    outcome.injected = f"SIGKILL after iteration {before[-1]['iteration']}, checkpoints every {scene.save_interval}"
    outcome.noticed.append(name_code(-signal.SIGKILL))
    recover(scene, run, outcome, before, most_lost=2 * scene.save_interval)


def signals(scene: Scene, outcome: Outcome) -> None:
    """SIGTERM, and once more SIGUSR1: what a cluster sends before it takes the machine away."""
    run = scene.copy("signal")
    sent: list[str] = []
    for number, share in ((signal.SIGTERM, 0.3), (signal.SIGUSR1, 0.6)):
        before = rows_of(run.path)
        with scene.train(run) as training:
            first = training.wait_first(scene.patience_s)
            if sent:
                note_start(outcome, training, first, before)
                outcome.expect(outcome.lost_iterations == 0, f"{outcome.lost_iterations} iterations lost after a save")
            training.wait_iteration(scene.after(share), scene.patience_s)
            training.send(number)
            at, wall = time.monotonic(), time.time()
            code = training.wait(scene.patience_s)
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
    recover(scene, run, outcome, rows_of(run.path), most_lost=0)


def torn_checkpoint(scene: Scene, outcome: Outcome) -> None:
    """The newest checkpoint cut in half, one bit of the one before turned over."""
    run = scene.killed("torn_checkpoint")
    before = rows_of(run.path)
    *_, spared, second, newest = list_checkpoints(run.path)
    files = [max(path.glob("*.safetensors"), key=lambda file: file.stat().st_size) for path in (newest, second)]
    files[0].write_bytes(files[0].read_bytes()[: files[0].stat().st_size // 2])
    content = bytearray(files[1].read_bytes())
    content[len(content) // 2] ^= 1
    files[1].write_bytes(content)
    outcome.injected = f"{_tail(files[0])} cut in half, one bit of {_tail(files[1])} turned over"
    recover(scene, run, outcome, before, most_lost=before[-1]["iteration"] - int(spared.name))
    said = " ".join(outcome.noticed)
    for path in (newest, second):
        outcome.expect(path.name in said, f"nobody said that checkpoint {path.name} is damaged")


def nan_world(scene: Scene, outcome: Outcome) -> None:
    """A coordinate of world 0 is no number, in a checkpoint that is whole otherwise."""
    run = scene.killed("nan_world")
    before = rows_of(run.path)
    newest = list_checkpoints(run.path)[-1]
    poison(newest)
    outcome.injected = f"a coordinate of world 0 is NaN in {newest.name}"
    recover(scene, run, outcome, before, most_lost=2 * scene.save_interval, is_same=False)
    rows = [row for row in rows_of(run.path) if row["iteration"] > int(newest.name)]
    quarantined = sum(row.get("quarantined") or 0 for row in rows[:SHOWN])
    outcome.noticed.append(f"worlds quarantined in the first {SHOWN} iterations: {quarantined:.0f}")
    outcome.expect(quarantined >= 1, "the world was not quarantined")
    broken = [row["iteration"] for row in rows if any(name.startswith("loss/") and row[name] is None for name in row)]
    outcome.expect(not broken, f"a loss was not finite in iterations {broken[:SHOWN]}")
    outcome.same = "no, and it cannot be: world 0 began a new episode"


def corrupt_metrics(scene: Scene, outcome: Outcome) -> None:
    """metrics.jsonl with zeros in the place of a row, and cut in the middle of another, as after a loss of power."""
    run = scene.killed("corrupt_metrics")
    before = rows_of(run.path)
    steps = [row["iteration"] for row in before]
    zeroed, cut = scene.start + 1, int(list_checkpoints(run.path)[-1].name) - 1
    lines = run.metrics_file.read_bytes().splitlines(keepends=True)[: steps.index(cut) + 1]
    lines[steps.index(zeroed)] = bytes(len(lines[steps.index(zeroed)]) - 1) + b"\n"
    lines[-1] = lines[-1][: len(lines[-1]) // 2]
    run.metrics_file.write_bytes(b"".join(lines))
    outcome.injected = f"metrics.jsonl ends in the middle of the row of iteration {cut}, that of {zeroed} is zeros"
    recover(scene, run, outcome, before, most_lost=2 * scene.save_interval, missing=(zeroed, cut, cut + 1))


def poison(checkpoint: Path) -> None:
    """Write NaN into a coordinate of the first world of a checkpoint, which stays whole.

    Raises:
        DrillError: it does not hold the worlds.
    """
    worlds = load_worlds(checkpoint)
    if worlds is None or STATE not in worlds:
        raise DrillError(f"{checkpoint.name} holds no physics to write NaN into")
    worlds[STATE][0, COORDINATE] = float("nan")
    tensors, meta = load_checkpoint(checkpoint)
    save_checkpoint(checkpoint, tensors, meta, worlds=worlds)


def _tail(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
