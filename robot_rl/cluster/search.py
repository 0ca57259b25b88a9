"""Search for settings with Optuna: each trial is a separate run, and the search itself can be ended and resumed.

Optuna proposes the values and decides which runs are not worth their time (pruning), from the metrics that each run
writes. Its storage is a file beside the runs: the same command resumes the search, and a trial that was running
when the search was ended continues as the same run.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from robot_rl.cluster.launchers import get_launcher
from robot_rl.cluster.launchers.launcher import COMMAND, read_job
from robot_rl.cluster.watch import has_job
from robot_rl.errors import ExitCode, Interrupted, UserError, suggest
from robot_rl.metrics.rows import lock, wait_for_lock
from robot_rl.metrics.writers import read_metrics
from robot_rl.processes import tied
from robot_rl.runs.run_dir import RunDir, check_run_id, task_folder
from robot_rl.runs.settings import TrainCfg
from robot_rl.settings.schema import check_fields, setting

FOLDER = ".searches"
"""The folder of a root with the storage and the logs of its searches."""
LONGEST_NAME = 90
"""Characters of a search's name, so that it and a trial's number are a run's id."""
POLL_S = 0.5
STEPS = 50
"""At so many points of a trial pruning is decided; Optuna stores each."""
LAST = 0.1
"""A trial's result is the mean of its metric over this share of its rows, the newest ones."""
LOCK_S = 60.0
"""How long a run may still be trained by a process of the search before [s]."""
REFUSED = 3
"""So many first trials that all failed, the last by its settings, end the search: its words are wrong."""
QUIET_S = 60.0
"""A job that its scheduler does not know, and that wrote nothing for so long, is over [s]."""


@dataclass(kw_only=True, slots=True)
class SearchCfg:
    """A search (`sweeper.<name>=`).

    Attributes:
        name: Its name: of its storage, and of its runs, <name>-<trial>.
        trials: Trials in all.
        jobs: Trials at the same time.
        metric: Metric to optimize, by its name in metrics.jsonl; empty: the task's `solved` metric, else the return.
        direction: maximize or minimize; empty: the one that is better.
        prune: End runs that are worse than the median of the others at the same iteration.
        startup: Trials with random values, none of which is pruned, before the sampler learns from them.
        seed: The sampler's seed.
    """

    name: str = "search"
    trials: int = setting(20, least=1, most=100_000)
    jobs: int = setting(1, least=1, most=1000)
    metric: str = ""
    direction: str = ""
    prune: bool = True
    startup: int = setting(5, least=1, most=10_000)
    seed: int = setting(1, least=0, most=2**31)

    def __post_init__(self) -> None:
        """Raise UserError if a setting is out of its range."""
        check_run_id(self.name, "sweeper.name")
        if len(self.name) > LONGEST_NAME:
            raise UserError("sweeper.name", self.name, f"must be of at most {LONGEST_NAME} characters")
        check_fields(self, "sweeper.")
        if self.direction not in ("", "maximize", "minimize"):
            raise UserError("sweeper.direction", self.direction, "must be maximize or minimize")


@dataclass(kw_only=True, slots=True)
class Space:
    """The values of one setting: a list of them, or an interval of numbers.

    Attributes:
        key: The setting's dotted name.
        choices: The values, as they are written on the command line; empty for an interval.
        low, high: The interval.
        step: Distance of its values; None: any.
        log: Whether its logarithm is searched evenly.
    """

    key: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    log: bool = False

    def distribution(self) -> Any:
        """Return Optuna's distribution; raise UserError for an interval that is none."""
        from optuna import distributions as of

        if self.choices:
            return of.CategoricalDistribution(self.choices)
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        try:
            if whole:
                return of.IntDistribution(int(self.low), int(self.high), log=self.log, step=int(self.step or 1))
            return of.FloatDistribution(self.low, self.high, log=self.log, step=self.step)
        except ValueError as error:
            raise UserError(f"{self.key}=interval({self.low},{self.high}): {error}") from None


@dataclass(kw_only=True, slots=True)
class Trial:
    """A trial whose run is being trained."""

    trial: Any
    run_dir: RunDir
    process: subprocess.Popen[bytes]
    log: TextIO
    reported: int = 0
    is_pruned: bool = False


@dataclass(kw_only=True, slots=True)
class Search:
    """A search that resumes from its storage.

    Attributes:
        cfg: The search.
        base: The settings that all runs share.
        words: The words of the command line that every trial has.
        spaces: The settings that are searched.
        say: Gets a line for everything that happens.
    """

    cfg: SearchCfg
    base: TrainCfg
    words: Sequence[str]
    spaces: Sequence[Space]
    say: Callable[[str], None]
    study: Any = None
    running: list[Trial] = field(default_factory=list)
    failures: int = 0

    def run(self) -> int:
        """Train the remaining trials; return the exit code.

        Raises:
            UserError: The storage is of another search, or the metric is not one of the runs'.
            Interrupted: A signal; the runs have saved, and the same command resumes the search.
        """
        self.goal()  # Refused before anything is written, as the spaces are.
        self._distributions()
        held = self._lock()
        self.study = self._open()
        waiting = [self._adopt(trial) for trial in self.study.trials if trial.state.name == "RUNNING"]
        try:
            while True:
                while len(self.running) < self.cfg.jobs and (waiting or len(self.study.trials) < self.cfg.trials):
                    self._start(waiting.pop(0) if waiting else self.study.ask(self._distributions()))
                if not self.running:
                    break
                time.sleep(POLL_S)
                for trial in list(self.running):
                    self._follow(trial)
        except BaseException as error:
            self._stop_all()
            if isinstance(error, Interrupted):
                self.say("stopped; the same command resumes the search")
            raise
        finally:
            held.close()
        self._show_best()
        return int(ExitCode.FAULT) if self.failures else 0

    def _lock(self) -> Any:
        """Return the locked file of the search, which another command would take trials from."""
        self._folder().mkdir(parents=True, exist_ok=True)
        try:
            return lock(self._folder() / "lock")
        except UserError:
            line = f"sweeper.name={self.cfg.name}: another command runs this search"
            raise UserError(f"{line}; wait for its end, or choose another name") from None

    def _distributions(self) -> dict[str, Any]:
        return {space.key: space.distribution() for space in self.spaces}

    def _open(self) -> Any:
        """Return the study, from its storage if it has one."""
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        metric, direction = self.goal()
        spaces = self._distributions()
        folder = self._folder()
        folder.mkdir(parents=True, exist_ok=True)
        storage = JournalStorage(JournalFileBackend(str(folder / "optuna.log")))
        startup = self.cfg.startup
        pruner = optuna.pruners.MedianPruner(n_startup_trials=startup) if self.cfg.prune else optuna.pruners.NopPruner()
        study = optuna.create_study(
            storage=storage,
            study_name=self.cfg.name,
            direction=direction,  # type: ignore[arg-type]
            load_if_exists=True,
            pruner=pruner,
        )
        words = sorted(word for word in self.words if not word.startswith("launcher"))
        now = {"metric": metric, "direction": direction, "settings": words, "space": sorted(map(str, spaces.items()))}
        for key, value in now.items():
            before = study.user_attrs.get(key, value)
            if before != value:
                why = f"was begun with the {key} {before}, now {value}"
                raise UserError("sweeper.name", self.cfg.name, why, "choose another name")
            if key not in study.user_attrs:
                study.set_user_attr(key, value)
        # Another seed for each time that it resumes: the sampler would propose its first values once more.
        seed = self.cfg.seed + len(study.trials)
        study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup)
        return study

    def goal(self) -> tuple[str, str]:
        """Return the metric and the direction of the search."""
        solved = getattr(self.base.task, "solved", None)
        metric, better = "episode/return", "larger"
        if solved:
            metric = str(solved[0])
            better = self.base.task.metrics[metric.removeprefix("tracking/")].info.better
        if self.cfg.metric and self.cfg.metric != metric:
            metric, better = self.cfg.metric, self.cfg.direction and "larger"
        if not self.cfg.direction and not better:
            raise UserError("sweeper.metric", metric, "says not which is better", "add sweeper.direction=")
        return metric, self.cfg.direction or ("maximize" if better == "larger" else "minimize")

    def _folder(self) -> Path:
        return self.base.root / FOLDER / self.cfg.name

    def _adopt(self, frozen: Any) -> Any:
        """Return a trial of the storage that was running when the search was ended."""
        import optuna

        return optuna.Trial(self.study, frozen._trial_id)

    def _start(self, trial: Any) -> None:
        """Start the run of a trial, or resume it."""
        run_id = f"{self.cfg.name}-{trial.number:04d}"
        run_dir = RunDir(self.base.root / task_folder(self.base.task.name) / run_id)
        values = [f"{key}={value}" for key, value in trial.params.items()]
        command = [sys.executable, "-m", COMMAND, "train", *self.words, *values, f"run_id={run_id}"]
        log = open(self._folder() / f"{run_id}.log", "a")  # noqa: SIM115 - closed when the run is over.
        wait_for_lock(run_dir.metrics_file, LOCK_S)  # Of a search that was killed, whose runs are still saving.
        process = subprocess.Popen(tied(command), stdout=log, stderr=log, start_new_session=True)
        steps = self.study.trials[trial.number].intermediate_values
        self.running.append(
            Trial(trial=trial, run_dir=run_dir, process=process, log=log, reported=max(steps, default=0))
        )
        self.say(f"{run_id}: {' '.join(values)}")

    def _follow(self, trial: Trial) -> None:
        """Report a trial's newest rows, end it if it is not worth more, and close it if its run is over."""
        is_over = trial.process.poll() is not None and not has_job(trial.run_dir) and not self._is_fresh(trial)
        values = self._values(trial)
        every = max(1, self.base.learner.max_iterations // STEPS)
        for iteration, value in values:
            if iteration >= trial.reported + every:
                trial.reported = iteration
                trial.trial.report(value, iteration)
        if not is_over and not trial.is_pruned and values and trial.trial.should_prune():
            trial.is_pruned = True
            self._stop(trial)
        if is_over:
            self._close(trial, values)

    def _is_fresh(self, trial: Trial) -> bool:
        """Return whether a run that a scheduler trains may still begin or write: a job was there a moment ago."""
        if read_job(trial.run_dir) is None or self._is_complete(self._values(trial)):
            return False
        with contextlib.suppress(OSError):
            path = trial.run_dir.metrics_file
            newest = max(item.stat().st_mtime for item in (path, trial.run_dir.path) if item.exists())
            return time.time() - newest < QUIET_S and not trial.is_pruned
        return False

    def _is_complete(self, values: Sequence[tuple[int, float]]) -> bool:
        return bool(values) and values[-1][0] >= self.base.learner.max_iterations

    def _values(self, trial: Trial) -> list[tuple[int, float]]:
        """Return the iterations of a run in which the metric is known, and its values."""
        metric = self.study.user_attrs["metric"]
        rows: Sequence[Mapping[str, Any]] = []
        with contextlib.suppress(OSError, UserError):
            rows = read_metrics(trial.run_dir.path)
        return [(row["iteration"], float(row[metric])) for row in rows if _is_number(row.get(metric))]

    def _close(self, trial: Trial, values: Sequence[tuple[int, float]]) -> None:
        """Tell Optuna how a trial ended."""
        from optuna.trial import TrialState

        self.running.remove(trial)
        trial.log.close()
        name, code = trial.run_dir.run_id, trial.process.returncode
        if code == ExitCode.USER:
            self._close_refused(trial, f"{name}: {_last_line(Path(trial.log.name))}")
            return
        tail = [value for _, value in values][-max(1, int(len(values) * LAST)) :]
        if trial.is_pruned:
            self.study.tell(trial.trial, state=TrialState.PRUNED)
            self.say(f"{name}: pruned after {values[-1][0]} iterations at {values[-1][1]:.4g}")
        elif not values and code == 0 and (known := _metrics_of(trial.run_dir)):
            metric = self.study.user_attrs["metric"]
            self.study.tell(trial.trial, state=TrialState.FAIL)
            raise UserError("sweeper.metric", metric, f"is not a metric of {name}", suggest(metric, known))
        elif tail and (code == 0 or self._is_complete(values)):
            result = math.fsum(tail) / len(tail)
            self.study.tell(trial.trial, result)
            best = self.study.best_trial
            self.say(f"{name}: {result:.4g}; best {best.value:.4g} of {self.cfg.name}-{best.number:04d}")
        else:
            self.failures += 1
            self.study.tell(trial.trial, state=TrialState.FAIL)
            self.say(f"{name}: failed with exit code {code}; see {trial.log.name}")

    def _close_refused(self, trial: Trial, line: str) -> None:
        """Tell Optuna that settings were refused; raise UserError if those of the first trials all were."""
        from optuna.trial import TrialState

        self.failures += 1
        self.study.tell(trial.trial, state=TrialState.FAIL)
        over = [each for each in self.study.trials if each.state.is_finished()]
        if len(over) >= REFUSED and all(each.state == TrialState.FAIL for each in over):
            raise UserError(line)
        self.say(line)

    def _stop(self, trial: Trial) -> None:
        """Let a run save and end."""
        if trial.process.poll() is None:
            os.kill(trial.process.pid, signal.SIGINT)
        elif (job := read_job(trial.run_dir)) is not None:
            with contextlib.suppress(UserError):
                get_launcher(job[0]).cancel(job[1])

    def _stop_all(self) -> None:
        """End the runs that this process waits for; jobs of a scheduler continue, and the search finds them again."""
        for trial in self.running:
            if trial.process.poll() is None:
                os.kill(trial.process.pid, signal.SIGTERM)
        for trial in self.running:
            trial.process.wait()
            trial.log.close()

    def _show_best(self) -> None:
        from optuna.trial import TrialState

        done = [trial for trial in self.study.trials if trial.state is TrialState.COMPLETE]
        if done:
            best = self.study.best_trial
            values = " ".join(f"{key}={value}" for key, value in best.params.items())
            metric = self.study.user_attrs["metric"]
            self.say(f"best of {len(self.study.trials)}: {metric} {best.value:.4g} with {values}")
            self.say(f"  robot-rl runs sort={metric} columns={','.join(best.params)} root={self.base.root}")


def check_installed() -> None:
    """Raise UserError if Optuna is not installed."""
    from importlib.util import find_spec

    if find_spec("optuna") is None:
        raise UserError("sweeper=optuna: Optuna is not installed; pip install 'robot-rl[optuna]'")


def _metrics_of(run_dir: RunDir) -> list[str]:
    """Return the names in a run's newest row of metrics; none without rows."""
    with contextlib.suppress(OSError, UserError):
        rows = read_metrics(run_dir.path)
        return list(rows[-1]) if rows else []
    return []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _last_line(path: Path) -> str:
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("robot-rl: ") if lines else "failed without a line"
