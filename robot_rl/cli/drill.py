"""Put faults into copies of a run, continue them, and report the cost of each fault.

usage: robot-rl drill <run id> [fault=<fault>] [key=value ...]

{Options}

faults:
  kill             SIGKILL between two checkpoints
  signal           SIGTERM, and after continuing SIGUSR1: as a cluster sends them before it takes the machine away
  torn_checkpoint  the newest checkpoint cut in half, a bit of the one before flipped
  full_disk        a small separate disk that fills up while a checkpoint is written to it
  nan_world        a coordinate of a world is NaN
  corrupt_metrics  metrics.jsonl with zeros in place of a row, and its end missing

The run itself is only read. Its copies continue from its newest checkpoint, each in its own process; one of them is
undisturbed, for comparison. For each fault: its kind, how it was noticed, the time until a new process began
to step and until its first iteration was done, the iterations that were repeated, and whether the run then became the
undisturbed one (bit for bit, on a CPU). Exits with 0 if every fault was survived, with 1 otherwise.
"""

import contextlib
import dataclasses
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.cli.options import TaskRunOptions, option, read_all
from robot_rl.errors import ExitCode, UserError, require_linux, suggest
from robot_rl.processes import SIGNALS, restore_signals, take_signals
from robot_rl.runs.outputs import DRILL, check_optional

if TYPE_CHECKING:
    from robot_rl.drill import Outcome, RunCopies
    from robot_rl.runs.run_dir import RunDir

MIN_ITERATIONS = 15
NAN = "nan_world"


@dataclass(kw_only=True, slots=True)
class Options(TaskRunOptions):
    """Options of robot-rl drill."""

    run: str = option("", "the run: its id, latest or <task>/latest; may be given as the first word")
    fault: str = option("all", "one of the faults, several with commas between, or all")
    iterations: int | None = option(
        None, "iterations of each copy; some seconds' worth by default", least=MIN_ITERATIONS
    )
    keep: bool = option(False, "keep the copies, in a folder next to the runs")
    out: str = option("", "file for the outcomes as JSON")


def run(arguments: Sequence[str]) -> int:
    """Inject the faults and print the cost of each."""
    options = read_all(Options, arguments, first="run")
    require_linux("drill")
    out = check_optional("out", options.out, DRILL)
    run_dir = options.find_run()
    from robot_rl.drill import DrillError, drill, has_worlds, make_copies
    from robot_rl.files import write_json
    from robot_rl.learn.checkpoints.checkpoint import good_checkpoint
    from robot_rl.machine import machine_facts, package_versions
    from robot_rl.runs.settings import load

    device, checkpoint = load(run_dir, trust=options.trust).device, good_checkpoint(run_dir.path)
    names = _names(options.fault, has_worlds=has_worlds(checkpoint))
    outcomes: list[Outcome] = []
    with _folder(run_dir, keep=options.keep) as work:
        copies = make_copies(run_dir, checkpoint, work, device=device, iterations=options.iterations)
        copies.settings |= {"trust": "true"} if options.trust else {}
        announce(copies)
        try:
            for outcome in drill(copies, names, keep=options.keep):
                outcomes.append(outcome)
                show(outcome)
        except DrillError as error:
            raise UserError(f"run {run_dir.run_id}: {error}") from None
    count = sum(not outcome.wrong for outcome in outcomes)
    survived = count == len(outcomes)
    hint = "" if survived or options.keep else "; keep=true keeps the copies to inspect"
    print(f"\nsurvived {count} of {len(outcomes)} faults{hint}")
    if out is not None:
        about = {"run": f"{copies.origin.task}/{copies.origin.run_id}", "from": copies.start, "to": copies.total}
        found = {"save_interval": copies.save_interval, "faults": [dataclasses.asdict(outcome) for outcome in outcomes]}
        write_json(out, about | found | {"machine": machine_facts(), "versions": package_versions()})
        print(out)
    return ExitCode.DONE if survived else ExitCode.FAULT


def _names(fault: str, *, has_worlds: bool) -> list[str]:
    """Return the requested faults; of all, without the one that needs an environment that exposes its worlds' state."""
    from robot_rl.drill import FAULTS

    names = list(FAULTS) if fault == "all" else list(dict.fromkeys(fault.split(",")))
    for name in names:
        if name not in FAULTS:
            raise UserError("fault", fault, f"no fault '{name}'", suggest(name, ("all", *FAULTS)))
    if NAN in names and not has_worlds:
        why = "the run's environment does not expose its worlds' state to write NaN into"
        if fault != "all":
            raise UserError("fault", fault, why, f"omit {NAN}")
        print(f"{NAN} is omitted: {why}")
        names.remove(NAN)
    return names


def announce(copies: "RunCopies") -> None:
    """Print which run it is, and how far its copies are trained."""
    seconds = copies.iteration_s * (copies.total - copies.start)
    text = f"copies of it continue from iteration {copies.start} to {copies.total} (about {seconds:.0f} s each)"
    print(f"{copies.origin.task}/{copies.origin.run_id}: {text}, saved every {copies.save_interval}", flush=True)


def show(outcome: "Outcome") -> None:
    """Print the outcome of a fault."""
    rows = [("injected", outcome.injected or "nothing"), *(("noticed", line) for line in outcome.noticed)]
    if outcome.recovery_s is not None:
        stepping = f"{outcome.stepping_s:.1f} s from a new process to its first step"
        rows.append(("recovered", f"{stepping}, {outcome.recovery_s:.1f} s to its first iteration"))
    if outcome.lost_iterations is not None:
        seconds = "" if outcome.lost_s is None else f", {outcome.lost_s:.2f} s of training"
        rows.append(("lost", f"{outcome.lost_iterations} iterations{seconds}"))
    rows += [("the same", outcome.same), *(("wrong", line) for line in outcome.wrong)]
    print(f"\n{outcome.fault}: {'NOT survived' if outcome.wrong else 'survived'}")
    for name, text in rows:
        print(f"  {name:<11}{text}", flush=True)


@contextlib.contextmanager
def _folder(run_dir: "RunDir", *, keep: bool) -> Iterator[Path]:
    """Create a folder for the copies, on the disk of the runs; a signal ends the command without it."""

    def end(number: int, _: object) -> None:
        take_signals(signal.SIG_IGN, SIGNALS[1:])  # A second one must not disturb the removal.
        raise SystemExit(128 + number)

    before = take_signals(end, SIGNALS[1:])  # Ctrl-C raises an exception as it is.
    work = Path(tempfile.mkdtemp(prefix=".drill-", dir=run_dir.path.parent.parent))
    try:
        yield work
    finally:
        if keep:
            print(f"the copies are in {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
        restore_signals(before)
