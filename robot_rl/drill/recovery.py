"""Going on after a fault: how long it takes, what is lost, and whether the run is the undisturbed one again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from robot_rl.drill.compare import differing_rows, differing_tensors, read_lines, rows_of
from robot_rl.drill.process import First, Training, name_code
from robot_rl.drill.scene import Outcome, Scene
from robot_rl.errors import UserError
from robot_rl.experiment.run_dir import RunDir
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint, verify_checkpoint

SHOWN = 3
"""How many lines of a kind are kept of a process, and how many differences are named."""
SAME = "yes, bit for bit: weights, optimizer, random streams, worlds and rows of metrics"
Rows = Sequence[Mapping[str, Any]]


def recover(
    scene: Scene,
    run: RunDir,
    outcome: Outcome,
    before: Rows,
    *,
    most_lost: int,
    is_same: bool = True,
    missing: Collection[int] = (),
) -> None:
    """Go on with a copy to its end, and note time, loss and what is wrong.

    Args:
        scene: where the drill takes place.
        run: the copy, with its fault.
        outcome: takes what is found.
        before: its rows of metrics as they were when the fault came.
        most_lost: iterations that may be lost at most.
        is_same: whether it has to become what the undisturbed run is.
        missing: iterations whose rows of metrics the fault took.

    Raises:
        DrillError: it did not begin, or did not end.
    """
    with scene.train(run) as training:
        first = training.wait_first(scene.patience_s)
        note_start(outcome, training, first, before)
        code = training.wait(scene.patience_s)
        outcome.expect(code == 0, f"the recovered run ended with {name_code(code)}; last line: {training.lines[-1]}")
    lost = outcome.lost_iterations
    outcome.expect(lost is None or lost <= most_lost, f"{lost} iterations lost, {most_lost} at most may be")
    check_end(scene, run, outcome, missing)
    if is_same:
        outcome.same = compare(scene, run, outcome, missing)


def note_start(outcome: Outcome, training: Training, first: First, before: Rows) -> None:
    """Note when a process came to its first iteration, what it said before, and what was lost.

    Args:
        outcome: takes it.
        training: the process.
        first: its first iteration.
        before: the rows of metrics before it was started.
    """
    outcome.noticed += training.said_before_stepping()[:SHOWN]
    outcome.stepping_s, outcome.recovery_s = first.stepping_s, first.done_s
    if before:
        resumed, times = first.iteration - 1, {row["iteration"]: row["time_s"] for row in before}
        last = before[-1]["iteration"]
        outcome.lost_iterations = last - resumed
        outcome.lost_s = times[last] - times[resumed] if resumed in times else None


def check_end(scene: Scene, run: RunDir, outcome: Outcome, missing: Collection[int]) -> None:
    """Note what is wrong with a run that should be done: its newest checkpoint, the iterations in its metrics."""
    newest = latest_checkpoint(run.path)
    outcome.expect(int(newest.name) == scene.total, f"the newest checkpoint is {newest.name}, must be {scene.total}")
    try:
        verify_checkpoint(newest)
    except UserError as error:
        outcome.wrong.append(f"the newest checkpoint is not whole: {error}")
    lines = read_lines(run.path)
    outcome.expect(None not in lines, "metrics.jsonl has lines that are no rows")
    found = [row["iteration"] for row in lines if row is not None and row["iteration"] > scene.start]
    wanted = [step for step in range(scene.start + 1, scene.total + 1) if step not in missing]
    lacking = sorted({*wanted} - {*found})
    outcome.expect(not lacking, f"metrics.jsonl lacks iterations {lacking[:SHOWN]}")
    outcome.expect(bool(lacking) or found == wanted, "metrics.jsonl has iterations twice, or in another order")


def compare(scene: Scene, run: RunDir, outcome: Outcome, missing: Collection[int] = ()) -> str:
    """Compare a finished copy with the undisturbed one; a difference is wrong, unless nobody can tell.

    Returns:
        What was found, in words.
    """
    reference = scene.reference()
    found = differing_tensors(latest_checkpoint(run.path), latest_checkpoint(reference.path))
    rows = [row for row in rows_of(reference.path) if row["iteration"] not in missing]
    found += differing_rows(rows_of(run.path), rows, scene.start)
    if not found:
        return SAME + (f" but the {len(missing)} that are gone" if missing else "")
    what = f"{len(found)} differences, the first in {found[0]}"
    if scene.untold:
        return f"cannot be told ({scene.untold}); {what}"
    outcome.wrong.append(f"it is another run than the undisturbed one: {'; '.join(found[:SHOWN])}")
    return f"no, {what}"
