"""Faults in copies of a run: the cost of each, and whether the recovered run is the undisturbed one, bit for bit."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal as signals
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from robot_rl.errors import ExitCode, UserError
from robot_rl.learn.checkpoints import checkpoint as saved
from robot_rl.learn.checkpoints.worlds import ENV
from robot_rl.metrics.rows import read_row, to_stderr
from robot_rl.processes import name_end, own_environment
from robot_rl.runs.run_dir import RunDir
from robot_rl.runs.run_index import last_row

POLL_S = 0.003
START_S = 180.0
"""Time limit for the start of a process [s]."""
SHOWN = 3
"""Number of lines and differences that are kept of a process."""
WANTED_S = 6.0
"""Default duration of a copy's training without the start of its processes [s]."""
LEAST, MOST = 15, 600
"""Least and most iterations of it."""
SAVES = KEPT = 5
"""Number of checkpoints that are written in it, and kept."""
SPARE_BYTES = 8 << 20
ROOM, LEFT = 8.0, 1.5
"""Room on the small disk in addition to the copy, and while it is filled up [checkpoints]."""
STATE = f"{ENV}engine"
"""The name of the physics engine's state (N, k) in a checkpoint's worlds."""
COORDINATE = 1
"""A column of it that is a coordinate of the robot's position or velocity in every engine."""
TIMES = ("perf/", "time_s")
"""Prefixes of metrics that differ between any two runs."""
FIRST = re.compile(r"iteration (\d+)/\d+ ")
"""Start of a progress line; the first iteration of a process always has one."""
SAME = "yes, bit for bit: weights, optimizer, random streams, worlds and rows of metrics"
Rows = Sequence[Mapping[str, Any]]


class DrillError(RuntimeError):
    """A training process did not behave as it should: one line."""


class First(NamedTuple):
    """The first iteration that a process finished, and when its first step began and this one ended [s]."""

    iteration: int
    stepping_s: float
    done_s: float


class Training:
    """`robot-rl resume` of a run in its own process, which is killed when the context ends.

    Attributes:
        lines: its output so far, without empty lines.
        notices: those before the line that announces the training.
    """

    def __init__(self, run: RunDir, settings: Mapping[str, Any], *, file_blocks: int = 0) -> None:
        """Start it with settings that change, and a largest file in the shell's blocks of 512 or 1024 bytes; 0: any."""
        words = [f"{key}={value}" for key, value in {"root": run.path.parent.parent, **settings}.items()]
        command = [sys.executable, "-m", "robot_rl.cli.main", "resume", run.run_id, *words]
        if file_blocks:
            command = ["sh", "-c", 'ulimit -f "$0" && exec "$@"', str(file_blocks), *command]
        self.run = run
        self.lines: list[str] = []
        self.notices: list[str] = []
        self._stepping_s: float | None = None
        self._first: First | None = None
        self._start = time.monotonic()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=own_environment(os.environ),
        )
        self.pid, self.send = self._process.pid, self._process.send_signal
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def wait(self, patience_s: float) -> int:
        """Wait for its end and return its exit code, negative for a signal; raise a DrillError if it does not end."""
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise DrillError(f"did not end within {patience_s:.0f} s; {self.last_words()}") from None
        self._reader.join()
        return code

    def wait_iteration(self, iteration: int, patience_s: float) -> dict[str, Any]:
        """Wait until metrics.jsonl has the row of an iteration, or of a later one, and return the last row."""

        def look() -> dict[str, Any] | None:
            with contextlib.suppress(FileNotFoundError):
                row = last_row(self.run.metrics_file)
                return row if row and row["iteration"] >= iteration else None

        return self.wait_for(look, f"iteration {iteration}", patience_s)

    def wait_first(self, patience_s: float) -> First:
        """Wait until the first iteration of this process is done."""
        return self.wait_for(lambda: self._first, "the first iteration", patience_s)

    def wait_for(self, look: Callable[[], Any], what: str, patience_s: float) -> Any:
        """Call a function every few milliseconds until it returns something, and return that.

        Raises:
            DrillError: the process ended before `what`, or it took longer than `patience_s` [s].
        """
        end = time.monotonic() + patience_s
        while True:
            code = self._process.poll()
            if code is not None:
                self._reader.join()
            if (found := look()) is not None:
                return found
            if code is not None:
                raise DrillError(f"ended with {name_end(code)} before {what}; {self.last_words()}")
            if time.monotonic() > end:
                raise DrillError(f"did not come to {what} within {patience_s:.0f} s; {self.last_words()}")
            time.sleep(POLL_S)

    def last_words(self) -> str:
        """Return its last line, for an error."""
        return f"last line: {self.lines[-1]}" if self.lines else "it printed nothing"

    def _read(self) -> None:
        for text in filter(None, map(str.strip, self._process.stdout or ())):
            at = time.monotonic() - self._start
            self.lines.append(text)
            if self._stepping_s is None:
                if " -> " in text and text.endswith(self.run.run_id):
                    self._stepping_s = at
                else:
                    self.notices.append(text)
            if self._first is None and (found := FIRST.match(text)):
                self._first = First(int(found[1]), self._stepping_s or 0.0, at)


@dataclass(kw_only=True, slots=True)
class Outcome:
    """The result of a fault: its injection, and the exit codes and output of the training.

    Attributes:
        stepping_s, recovery_s: until the process that recovered made its first step, and its first iteration [s].
        lost_iterations, lost_s: iterations that were repeated, and the time of their training [s].
        same: whether the recovered run equals the undisturbed one, in words.
        wrong: a line for each failed check; the fault was survived if there is none.
    """

    fault: str
    injected: str = ""
    noticed: list[str] = field(default_factory=list)
    stepping_s: float | None = None
    recovery_s: float | None = None
    lost_iterations: int | None = None
    lost_s: float | None = None
    same: str = "not known"
    wrong: list[str] = field(default_factory=list)

    def expect(self, holds: bool, what: str) -> None:
        """Add a line to `wrong` if a check fails."""
        if not holds:
            self.wrong.append(what)

    def note_start(self, training: Training, first: First, before: Rows) -> None:
        """Add the time to a process's first iteration, its output before, and the lost part of the rows before it."""
        self.noticed += training.notices[:SHOWN]
        self.stepping_s, self.recovery_s = first.stepping_s, first.done_s
        if before:
            resumed, times = first.iteration - 1, {row["iteration"]: row["time_s"] for row in before}
            last = before[-1]["iteration"]
            self.lost_iterations = last - resumed
            self.lost_s = times[last] - times[resumed] if resumed in times else None


@dataclass(kw_only=True, slots=True)
class RunCopies:
    """The copies of one run, which all continue from the same checkpoint for the same number of iterations.

    Attributes:
        origin, checkpoint: the run, which is only read, and the checkpoint of it with which every copy begins.
        work: the directory of the copies.
        start, total: iterations done in that checkpoint, and at which a copy is done.
        save_interval: iterations between checkpoints.
        iteration_s: approximate time of an iteration [s].
        incomparable: why two copies cannot be compared; empty if they can.
        settings: further settings that change, by name.
    """

    origin: RunDir
    checkpoint: Path
    work: Path
    start: int
    total: int
    save_interval: int
    iteration_s: float
    incomparable: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def patience_s(self) -> float:
        """Time limit of a process, after which it counts as hung [s]."""
        return START_S + 20.0 * self.iteration_s * (self.total - self.start)

    def train(self, run: RunDir, **options: Any) -> Training:
        """Start the process that continues a copy."""
        changed = {"max_iterations": self.total, "save_interval": self.save_interval, "save_interval_s": 0}
        return Training(run, {**changed, **self.settings}, **options)

    def place(self, name: str, parent: Path | None = None) -> RunDir:
        """Return the run directory of a copy."""
        return RunDir((parent or self.work) / name / self.origin.task / self.origin.run_id)

    def copy(self, name: str, parent: Path | None = None) -> RunDir:
        """Return a new copy of the run, with the checkpoint."""
        run = self.place(name, parent)
        run.checkpoints.mkdir(parents=True)
        for file in (self.origin.config_file, self.origin.metrics_file):
            if file.is_file():
                shutil.copy2(file, run.path / file.name)
        shutil.copytree(self.checkpoint, run.checkpoints / self.checkpoint.name)
        return run

    def reference(self) -> RunDir:
        """Return the copy without a fault, trained to its end once; raise a DrillError if the run cannot continue."""
        run = self.place("undisturbed")
        if not run.path.is_dir():
            with self.train(self.copy("undisturbed")) as training:
                code = training.wait(self.patience_s)
            if code != 0:
                why = f"{name_end(code)}; {training.last_words()}"
                raise DrillError(f"the undisturbed copy of the run ended with {why}")
        return run

    def killed(self, name: str) -> tuple[RunDir, Rows]:
        """Return a new copy of the run that was killed between two checkpoints, after it wrote three, and its rows."""
        first, run = self.place("killed"), self.place(name)
        if not first.path.is_dir():
            with self.train(self.copy("killed")) as training:
                training.wait_iteration(self.start + 3 * self.save_interval + self.save_interval // 2, self.patience_s)
                training.wait_for(
                    lambda: len(saved.list_checkpoints(first.path)) >= 3 or None, "three checkpoints", START_S
                )
                training.send(signals.SIGKILL)
                if training.wait(START_S) != -signals.SIGKILL:
                    raise DrillError("the run was done before it could be killed; give more iterations=")
        shutil.copytree(first.path, run.path)
        return run, rows_of(run.path)

    def recover(
        self,
        run: RunDir,
        outcome: Outcome,
        before: Rows,
        *,
        most_lost: int,
        is_same: bool = True,
        missing: Collection[int] = (),
    ) -> None:
        """Continue a copy with a fault to its end, and add times, losses and failed checks to the outcome.

        `before` are its rows of metrics when the fault occurred, `missing` iterations of which it destroyed the rows.
        At most `most_lost` iterations may be lost; if `is_same`, it has to become identical to the undisturbed run.
        """
        with self.train(run) as training:
            outcome.note_start(training, training.wait_first(self.patience_s), before)
            code = training.wait(self.patience_s)
            outcome.expect(code == 0, f"the recovered run ended with {name_end(code)}; {training.last_words()}")
        lost = outcome.lost_iterations
        outcome.expect(lost is None or lost <= most_lost, f"{lost} iterations lost, must be at most {most_lost}")
        self.check_end(run, outcome, missing)
        if is_same:
            outcome.same = self.compare(run, outcome, missing)

    def check_end(self, run: RunDir, outcome: Outcome, missing: Collection[int]) -> None:
        """Check a run that should be done: its newest checkpoint, the iterations in its metrics."""
        newest = saved.latest_checkpoint(run.path)
        outcome.expect(int(newest.name) == self.total, f"the newest checkpoint is {newest.name}, must be {self.total}")
        try:
            saved.verify_checkpoint(newest)
        except UserError as error:
            outcome.wrong.append(f"the newest checkpoint is not whole: {error}")
        lines = read_lines(run.path)
        outcome.expect(None not in lines, "metrics.jsonl has invalid lines")
        found = [row["iteration"] for row in lines if row is not None and row["iteration"] > self.start]
        wanted = [step for step in range(self.start + 1, self.total + 1) if step not in missing]
        lacking = sorted({*wanted} - {*found})
        outcome.expect(not lacking, f"metrics.jsonl lacks iterations {lacking[:SHOWN]}")
        outcome.expect(bool(lacking) or found == wanted, "metrics.jsonl has iterations twice, or in another order")

    def compare(self, run: RunDir, outcome: Outcome, missing: Collection[int] = ()) -> str:
        """Compare a finished copy with the undisturbed one and return the result in words; a difference is wrong."""
        reference = self.reference()
        found = differing_tensors(saved.latest_checkpoint(run.path), saved.latest_checkpoint(reference.path))
        rows = [row for row in rows_of(reference.path) if row["iteration"] not in missing]
        found += differing_rows(rows_of(run.path), rows, self.start)
        if not found:
            return SAME + (f" except for the {len(missing)} that were lost" if missing else "")
        what = f"{len(found)} differences, the first in {found[0]}"
        if self.incomparable:
            return f"cannot be compared ({self.incomparable}); {what}"
        outcome.wrong.append(f"it is another run than the undisturbed one: {'; '.join(found[:SHOWN])}")
        return f"no, {what}"


def make_copies(run: RunDir, checkpoint: Path, work: Path, *, device: str, iterations: int | None = None) -> RunCopies:
    """Return the copies of a run in an empty directory, which begin with a valid checkpoint.

    Each copy trains for a number of iterations; None for about WANTED_S seconds.
    """
    _, meta = saved.load_checkpoint(checkpoint)
    start = int(meta["iteration"])
    times = [row["time_s"] for row in rows_of(run.path)][-20:]
    steps = [after - before for before, after in itertools.pairwise(times) if after > before]
    iteration_s = statistics.median(steps) if steps else meta["time_s"] / max(start, 1)
    if iterations is None:
        iterations = min(MOST, max(LEAST, round(WANTED_S / max(iteration_s, 1e-4))))
    settings = {"metrics.wandb": "off", "keep_checkpoints": KEPT}
    if int(meta.get("processes", 1)) > 1:
        settings["allow_resize"] = "true"
    incomparable = "" if has_worlds(checkpoint) else "the environment does not save its worlds' state"
    return RunCopies(
        origin=run,
        checkpoint=checkpoint,
        work=work,
        start=start,
        total=start + iterations,
        save_interval=max(2, iterations // SAVES),
        iteration_s=iteration_s,
        incomparable=incomparable if device == "cpu" else "sums on a GPU are not reproducible",
        settings=settings,
    )


def has_worlds(checkpoint: Path) -> bool:
    """Return whether a checkpoint contains the state of the worlds."""
    return any(name.startswith(ENV) for name in saved.load_worlds(checkpoint) or {})


def kill(copies: RunCopies, outcome: Outcome) -> None:
    """SIGKILL between two checkpoints."""
    run, before = copies.killed("kill")
    outcome.injected = f"SIGKILL after iteration {before[-1]['iteration']}, checkpoints every {copies.save_interval}"
    outcome.noticed.append(name_end(-signals.SIGKILL))
    copies.recover(run, outcome, before, most_lost=2 * copies.save_interval)


def signal(copies: RunCopies, outcome: Outcome) -> None:
    """SIGTERM, then SIGUSR1: the signals of a cluster before it takes the machine away."""
    run = copies.copy("signal")
    sent: list[str] = []
    for number, share in ((signals.SIGTERM, 0.3), (signals.SIGUSR1, 0.6)):
        before = rows_of(run.path)
        with copies.train(run) as training:
            first = training.wait_first(copies.patience_s)
            if sent:
                outcome.note_start(training, first, before)
                outcome.expect(outcome.lost_iterations == 0, f"{outcome.lost_iterations} iterations lost after a save")
            after = copies.start + max(1, round(share * (copies.total - copies.start)))
            training.wait_iteration(after, copies.patience_s)
            training.send(number)
            at, wall = time.monotonic(), time.time()
            code = training.wait(copies.patience_s)
            took = time.monotonic() - at
        sent.append(f"{number.name} after iteration {rows_of(run.path)[-1]['iteration']}")
        saved = f"the checkpoint after {run.checkpoints.stat().st_mtime - wall:.2f} s"
        outcome.noticed.append(f"{name_end(code)} after {took:.2f} s, {saved}: {training.lines[-1]}")
        must = f"must be exit code {ExitCode.REQUEUE:d}"
        outcome.expect(code == ExitCode.REQUEUE, f"{number.name} ended it with {name_end(code)}, {must}")
    outcome.injected = ", then ".join(sent)
    copies.recover(run, outcome, rows_of(run.path), most_lost=0)


def torn_checkpoint(copies: RunCopies, outcome: Outcome) -> None:
    """The newest checkpoint cut in half, one bit of the one before flipped; with a replay memory only the newest cut.

    That memory is in the newest two checkpoints: from the third the run would continue, but not as the same run.
    """
    run, before = copies.killed("torn_checkpoint")
    *_, third, second, newest = saved.list_checkpoints(run.path)
    torn, spared = ([newest], second) if saved.replay_files(newest) else ([newest, second], third)
    cut, *flipped = [max(path.glob("*.safetensors"), key=lambda file: file.stat().st_size) for path in torn]
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    outcome.injected = f"{newest.name}/{cut.name} cut in half"
    for file in flipped:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        outcome.injected += f", one bit of {file.parent.name}/{file.name} flipped"
    copies.recover(run, outcome, before, most_lost=before[-1]["iteration"] - int(spared.name))
    output = " ".join(outcome.noticed)
    for path in torn:
        outcome.expect(path.name in output, f"checkpoint {path.name} was not reported as damaged")


def full_disk(copies: RunCopies, outcome: Outcome) -> None:
    """The disk is full while a checkpoint is written, and has room again when the run continues.

    Where no disk can be mounted, the size of the files that the training may write is limited.
    """
    done = copies.reference().path
    newest, blocks = saved.latest_checkpoint(done), 0
    size = _bytes_under(newest)
    whole = _bytes_under(done) + SPARE_BYTES + int(ROOM * size)
    with small_disk(copies.work / "disk", whole) as disk:
        run = copies.copy("full_disk", disk)
        if disk is not None:
            space = os.statvfs(disk)
            with (disk / "ballast").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(1, space.f_bavail * space.f_frsize - int(LEFT * size)))
            outcome.injected = f"a disk of {whole >> 20} MB with room for {LEFT:g} checkpoints; room is made later"
        else:
            blocks = (max(file.stat().st_size for file in newest.iterdir()) - 1) // 1024
            outcome.injected = f"files end at {blocks} blocks, since no disk can be mounted here; later they do not"
        with copies.train(run, file_blocks=blocks) as training:
            code = training.wait(copies.patience_s)
        outcome.noticed.append(f"{name_end(code)}: {training.lines[-1]}")
        outcome.expect(code == ExitCode.DISK_FULL, f"ended with {name_end(code)}, must be {ExitCode.DISK_FULL:d}")
        parts = [path.name for path in run.checkpoints.iterdir() if path.name.startswith(".")]
        outcome.expect(not parts, f"parts of a checkpoint are left: {', '.join(parts)}")
        if disk is not None:
            (disk / "ballast").unlink()
        copies.recover(run, outcome, rows_of(run.path), most_lost=2 * copies.save_interval)


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path | None]:
    """Mount a file system in memory of so many bytes on a new folder and give its path; None if that is not permitted.

    It is in the user and mount namespaces of a process that waits, and is reached, and ends, through that.
    """
    folder.mkdir()
    mount = 'mount -t tmpfs -o "size=$0" none "$1" && echo && exec cat'
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(size), str(folder)]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    try:
        holder = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=nothing)
    except OSError:
        yield None
        return
    with holder:
        disk = Path(f"/proc/{holder.pid}/root{folder.resolve()}")
        assert holder.stdout is not None
        yield disk if holder.stdout.readline() and os.access(disk, os.W_OK) else None


def nan_world(copies: RunCopies, outcome: Outcome) -> None:
    """A coordinate of world 0 is NaN in a checkpoint that is otherwise valid."""
    run, before = copies.killed("nan_world")
    newest = saved.list_checkpoints(run.path)[-1]
    poison(newest)
    outcome.injected = f"a coordinate of world 0 is NaN in {newest.name}"
    copies.recover(run, outcome, before, most_lost=2 * copies.save_interval, is_same=False)
    rows = [row for row in rows_of(run.path) if row["iteration"] > int(newest.name)]
    quarantined = sum(row.get("quarantined") or 0 for row in rows[:SHOWN])
    outcome.noticed.append(f"worlds quarantined in the first {SHOWN} iterations: {quarantined:.0f}")
    outcome.expect(quarantined >= 1, "the world was not quarantined")
    broken = [row["iteration"] for row in rows if any(name.startswith("loss/") and row[name] is None for name in row)]
    outcome.expect(not broken, f"a loss was not finite in iterations {broken[:SHOWN]}")
    outcome.same = "no, as expected: world 0 began a new episode"


def poison(checkpoint: Path) -> None:
    """Write NaN into a coordinate of the first world of a checkpoint, which stays valid.

    Raises:
        DrillError: the checkpoint does not contain the worlds.
    """
    worlds = saved.load_worlds(checkpoint)
    if worlds is None or STATE not in worlds:
        raise DrillError(f"{checkpoint.name} contains no physics to write NaN into")
    worlds[STATE][0, COORDINATE] = float("nan")
    tensors, meta = saved.load_checkpoint(checkpoint)
    saved.save_checkpoint(checkpoint, tensors, meta, worlds=worlds)


def corrupt_metrics(copies: RunCopies, outcome: Outcome) -> None:
    """metrics.jsonl with zeros instead of a row, and cut in the middle of another, as after a power failure."""
    run, before = copies.killed("corrupt_metrics")
    steps = [row["iteration"] for row in before]
    zeroed, cut = copies.start + 1, int(saved.list_checkpoints(run.path)[-1].name) - 1
    lines = run.metrics_file.read_bytes().splitlines(keepends=True)[: steps.index(cut) + 1]
    lines[steps.index(zeroed)] = bytes(len(lines[steps.index(zeroed)]) - 1) + b"\n"
    lines[-1] = lines[-1][: len(lines[-1]) // 2]
    run.metrics_file.write_bytes(b"".join(lines))
    outcome.injected = f"metrics.jsonl ends in the middle of the row of iteration {cut}, that of {zeroed} is zeros"
    copies.recover(run, outcome, before, most_lost=2 * copies.save_interval, missing=(zeroed, cut, cut + 1))


_ALL = (kill, signal, torn_checkpoint, full_disk, nan_world, corrupt_metrics)
FAULTS: dict[str, Callable[[RunCopies, Outcome], None]] = {fault.__name__: fault for fault in _ALL}
"""The faults by name."""


def drill(copies: RunCopies, names: Sequence[str], *, keep: bool = False) -> Iterator[Outcome]:
    """Inject faults, keys of FAULTS, each in its own copy, which `keep` keeps, and yield each outcome.

    Raises:
        DrillError: the run cannot continue without a fault either.
    """
    to_stderr("the undisturbed run, for comparison ...")
    copies.reference()
    for name in names:
        to_stderr(f"{name} ...")
        outcome = Outcome(fault=name)
        try:
            FAULTS[name](copies, outcome)
        except DrillError as error:
            outcome.wrong.append(str(error))
        outcome.noticed = [re.sub(rf"[^\s'=]*{copies.work.name}/", "", line) for line in outcome.noticed]
        if not keep:
            shutil.rmtree(copies.work / name, ignore_errors=True)
        yield outcome


def differing_tensors(one: Path, other: Path) -> list[str]:
    """Return the tensors in which two checkpoint directories differ, as "file: name"."""
    names = sorted({path.name for checkpoint in (one, other) for path in checkpoint.glob("*.safetensors")})
    found = []
    for name in names:
        mine, theirs = (_tensors(checkpoint / name) for checkpoint in (one, other))
        found += [f"{name}: {key}" for key in sorted({*mine, *theirs}) if mine.get(key) != theirs.get(key)]
    return found


def _tensors(path: Path) -> dict[str, tuple[Any, ...]]:
    """Return the tensors of a file as (type, shape, bytes); unlike values, NaNs of the same bits are equal."""
    from safetensors import deserialize

    parts = deserialize(path.read_bytes()) if path.is_file() else ()
    return {name: (part["dtype"], tuple(part["shape"]), bytes(part["data"])) for name, part in parts}


def differing_rows(one: Rows, other: Rows, after: int) -> list[str]:
    """Return in which metrics two runs differ after an iteration, times omitted, as "iteration i: names"."""
    mine, theirs = (
        {
            row["iteration"]: {name: value for name, value in row.items() if not name.startswith(TIMES)}
            for row in rows
            if row["iteration"] > after
        }
        for rows in (one, other)
    )
    found = []
    for iteration in sorted({*mine, *theirs}):
        a, b = mine.get(iteration), theirs.get(iteration)
        if a is None or b is None:
            found.append(f"iteration {iteration}: not in both")
        elif a != b:
            names = sorted(name for name in {**a, **b} if a.get(name) != b.get(name))
            found.append(f"iteration {iteration}: {', '.join(names)}")
    return found


def rows_of(run_dir: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's metrics as they are in the file, without invalid lines."""
    return [row for row in read_lines(run_dir) if row is not None]


def read_lines(run_dir: Path) -> list[dict[str, Any] | None]:
    """Return the row of each line of a run's metrics, None for an invalid one; empty if the file does not exist."""
    path = run_dir / "metrics.jsonl"
    return [read_row(line) for line in path.read_bytes().splitlines()] if path.is_file() else []


def _bytes_under(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
