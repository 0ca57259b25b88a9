"""A drill from its run to its verdicts: makes the scene, goes through the faults, tells what became of them."""

from __future__ import annotations

import itertools
import shutil
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from robot_rl.drill import faults, full_disk
from robot_rl.drill.compare import rows_of
from robot_rl.drill.process import DrillError
from robot_rl.drill.scene import Outcome, Scene
from robot_rl.experiment.run_dir import RunDir
from robot_rl.learn.checkpoints.checkpoint import load_checkpoint, load_worlds
from robot_rl.learn.checkpoints.worlds import ENV

WANTED_S = 6.0
"""How long the training of a drill takes without the start of its processes, where the user does not say [s]."""
LEAST, MOST = 15, 600
"""Fewest and most iterations of that."""
SAVES = 5
"""Checkpoints that are written in it."""
KEPT = 5
FAULTS: dict[str, Callable[[Scene, Outcome], None]] = {
    "kill": faults.kill,
    "signal": faults.signals,
    "torn_checkpoint": faults.torn_checkpoint,
    "full_disk": full_disk.full_disk,
    "nan_world": faults.nan_world,
    "corrupt_metrics": faults.corrupt_metrics,
}
"""What can be injected, by name."""


def make_scene(run: RunDir, checkpoint: Path, work: Path, *, device: str, iterations: int | None = None) -> Scene:
    """Return the scene of a run's drills.

    Args:
        run: the run.
        checkpoint: the checkpoint of it that the drills begin with, a whole one.
        work: an empty directory for the copies.
        device: what it trains on.
        iterations: for how many iterations each copy goes on; about WANTED_S seconds where None.
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
    untold = ""
    if device != "cpu":
        untold = "the sums of a GPU are not the same every time"
    elif not has_worlds(checkpoint):
        untold = "the environment does not tell its worlds' state"
    return Scene(
        origin=run,
        checkpoint=checkpoint,
        work=work,
        start=start,
        total=start + iterations,
        save_interval=max(2, iterations // SAVES),
        iteration_s=iteration_s,
        untold=untold,
        settings=settings,
    )


def has_worlds(checkpoint: Path) -> bool:
    """Return whether a checkpoint holds the state of an environment's worlds."""
    return any(name.startswith(ENV) for name in load_worlds(checkpoint) or {})


def drill(
    scene: Scene,
    names: Sequence[str],
    say: Callable[[str], None],
    done: Callable[[Outcome], None],
    *,
    keep: bool = False,
) -> bool:
    """Go through faults, each in a copy of its own.

    Args:
        scene: where it takes place.
        names: the faults, of FAULTS.
        say: takes lines about what goes on.
        done: takes each outcome as soon as it is there.
        keep: leave the copies in the scene's directory.

    Returns:
        Whether every fault was survived.

    Raises:
        DrillError: the run cannot even go on undisturbed.
    """
    say("the undisturbed run, for comparison")
    scene.reference()
    survived = True
    for name in names:
        say(name)
        outcome = Outcome(fault=name)
        try:
            FAULTS[name](scene, outcome)
        except DrillError as error:
            outcome.wrong.append(str(error))
        outcome.noticed = [line.replace(f"{scene.work}/", "") for line in outcome.noticed]
        if not keep:
            shutil.rmtree(scene.work / name, ignore_errors=True)
        survived &= not outcome.wrong
        done(outcome)
    return survived
