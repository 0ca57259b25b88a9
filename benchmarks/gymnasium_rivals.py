"""Train the rivals of gymnasium_v5.py once: 5 environments, 2 rivals, 3 seeds, 1 M steps each.

    make rival-gymnasium
    python benchmarks/gymnasium_rivals.py [jobs=HalfCheetah-v5:sb3:1,Ant-v5] [parallel=1|2] [out=...] [steps=1000000]
    python benchmarks/gymnasium_rivals.py timed=false parallel=2        # only returns, with other work
    python benchmarks/gymnasium_rivals.py jobs=::1 steps=102400 out=benchmarks/gymnasium_rivals_speed.json   # then this

Every finished training is kept in benchmarks/gymnasium_rivals.json at once; started again, the script goes on with
what is missing. ``jobs=`` takes <environment>:<rival>:<seed>, a part left out means all. Seed 1 of each runs alone,
with one thread or the default, whichever is quicker, and is what wall-clock is compared with; with ``parallel=2`` the
other seeds run two at a time, one thread each; with ``timed=false`` so may seed 1. The wall-clock is then that of a
shorter training alone on the machine, for as many steps: the last line above, a quarter of an hour.

What was under way when the script ended starts again.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rivals.episodes import EVALUATED
from words import read_words

from robot_rl.errors import UserError, suggest
from robot_rl.files import write_atomic
from robot_rl.machine import machine_facts

ROOT = Path(__file__).parents[1]
DEFAULT_PYTHON = ".venv-gymrivals/bin/python"
WORKER = Path(__file__).parent / "rivals" / "gymnasium_worker.py"
ENVS = ("HalfCheetah-v5", "Walker2d-v5", "Hopper-v5", "Ant-v5", "Humanoid-v5")
RIVALS = {
    "cleanrl": "CleanRL's settings, our program",
    "sb3": "stable-baselines3, default settings",
}
SEEDS = (1, 2, 3)
TIMED = (1,)
"""Seeds that run alone by default: their wall-clock is the rival's."""
STEPS = 1_000_000
KNOWN = {"jobs": "", "parallel": "1", "timed": "true", "out": "", "steps": str(STEPS), "rival_python": ""}
TRIAL = 6144
"""Control steps of a trial of threads: three rollouts."""
ABOUT = (
    "One line a training. 'cleanrl' is a PPO of this project's own with the settings that CleanRL publishes for "
    "ppo_continuous_action, not CleanRL's program; 'sb3' is stable-baselines3's PPO with default settings. 'return': "
    "mean over the last 100 finished episodes of the training policy; 'evaluation': 20 episodes of the final "
    "deterministic policy. 'train_s' is wall-clock of the training itself; compare it only where 'load' is 'alone'."
)


@dataclass(frozen=True, slots=True, order=True)
class Job:
    """One training of one rival."""

    env: str
    rival: str
    seed: int

    def __str__(self) -> str:
        return f"{self.env}:{self.rival}:{self.seed}"


def find_python(named: str = "") -> Path:
    """The rivals' interpreter: the one named, else the one that ``make rival-gymnasium`` makes.

    Raises:
        UserError: it is not there.
    """
    path = Path(named) if named else ROOT / DEFAULT_PYTHON
    if not path.is_file():
        raise UserError(f"rival_python={named or DEFAULT_PYTHON}: no such interpreter; 'make rival-gymnasium' makes it")
    return path


def all_jobs() -> list[Job]:
    """Every environment, rival and seed; those that are timed first, then seed by seed."""
    return [Job(env, rival, seed) for seed in SEEDS for env in ENVS for rival in RIVALS]


def parse_jobs(text: str) -> list[Job]:
    """Read ``HalfCheetah-v5:sb3:1,Ant-v5::2``; a part left out means all of its kind.

    Raises:
        UserError: an unknown environment or rival, or a seed that is not a number.
    """
    jobs = []
    for word in filter(None, text.split(",")):
        env, rival, seed, *more = (*word.split(":"), "", "")
        for name, known in ((env, ENVS), (rival, RIVALS)):
            if name and name not in known:
                raise UserError(f"jobs={word}: no '{name}'; {suggest(name, known)}")
        if any(more) or (seed and not seed.isdigit()):
            raise UserError(f"jobs={word}: must be <environment>:<rival>:<seed>, such as HalfCheetah-v5:sb3:1")
        seeds = [int(seed)] if seed else SEEDS
        envs, rivals = [env] if env else ENVS, [rival] if rival else RIVALS
        jobs += [Job(e, r, s) for s in seeds for e in envs for r in rivals]
    return list(dict.fromkeys(jobs)) or all_jobs()


def read_runs(path: Path) -> list[dict[str, Any]]:
    """The trainings in a file; none where there is no file.

    Raises:
        UserError: the file is damaged.
    """
    try:
        runs = json.loads(path.read_text())["runs"]
        return [run for run in runs if Job(run["env"], run["rival"], run["seed"])]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: damaged ({error}); remove it, or take it from git") from None


def keep(path: Path, run: dict[str, Any]) -> None:
    """Add a finished training to a file, whole or not at all; it replaces one of the same job."""
    me = (run["env"], run["rival"], run["seed"])
    runs = [old for old in read_runs(path) if (old["env"], old["rival"], old["seed"]) != me] + [run]
    runs.sort(key=lambda one: (ENVS.index(one["env"]), one["rival"], one["seed"]))
    lines = ",\n".join(json.dumps(one) for one in runs)
    write_atomic(path, f'{{"about": {json.dumps(ABOUT)},\n"runs": [\n{lines}\n]}}\n')


def _busy_s() -> float | None:
    """CPU time [s] that the whole machine has spent working since it started; None if it is unknown."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    except (OSError, IndexError):
        return None
    user, nice, system, _, _, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Training:
    """A worker process that trains one job.

    Attributes:
        job: what it trains.
        load: "alone", or "pair" if another may run at the same time.
        point: the last point of the curve it reported.
        tried: seconds of a short training by number of threads.
    """

    job: Job
    load: str
    process: subprocess.Popen[str]
    log: Any
    tried: dict[str, float] = field(default_factory=dict)
    begun: float = field(default_factory=time.perf_counter)
    busy: float | None = field(default_factory=_busy_s)
    point: dict[str, Any] = field(default_factory=lambda: {"step": 0, "seconds": 0.0, "return": None})

    @classmethod
    def start(cls, python: Path, job: Job, steps: int, *, load: str, threads: int, worker: Path = WORKER) -> Training:
        """Start the worker with so many threads of torch, 0 for its default; a "trial" is not evaluated."""
        episodes = 0 if load == "trial" else EVALUATED
        request = {"env": job.env, "rival": job.rival, "seed": job.seed, "steps": steps}
        log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # closed by close()
        words = [str(python), "-I", str(worker), json.dumps(request | {"threads": threads, "episodes": episodes})]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        return cls(job, load, process, log)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the worker's messages until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def record(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the line of the file for a finished training."""
        seconds, run = time.perf_counter() - self.begun, answer["run"]
        me = {"env": self.job.env, "rival": self.job.rival, "seed": self.job.seed, "who": RIVALS[self.job.rival]}
        where = {"load": self.load, "machine": machine_facts(), "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        if self.busy is not None and self.load == "alone":
            others = (_busy_s() or 0.0) - self.busy - answer["cpu_s"]
            where["share_of_cpu_elsewhere"] = round(max(0.0, others) / seconds / (os.cpu_count() or 1), 3)
            where["threads_tried_s"] = self.tried
        return {**me, **{key: value for key, value in run.items() if key != "curve"}, **where, "curve": run["curve"]}

    def fail(self, why: str = "") -> UserError:
        """Return the error of a worker that ended without a result."""
        self.process.wait()
        self.log.seek(0)
        lines = [line.strip() for line in self.log if line.strip()]
        why = why or f"ended with code {self.process.returncode}: {lines[-1] if lines else 'without output'}"
        return UserError(f"jobs={self.job}: {why}")

    def close(self) -> None:
        """End the worker."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        self.log.close()


def train_one(python: Path, job: Job, steps: int, say: Callable[[str], None], worker: Path = WORKER) -> dict[str, Any]:
    """Train one job alone and wait for it.

    Args:
        python: the rivals' interpreter.
        job: what to train.
        steps: control steps.
        say: called with a line of progress, about ten in all.
        worker: the program.

    Returns:
        The training in the form of the file of rivals.

    Raises:
        UserError: the worker failed.
    """
    threads, tried = quicker_threads(python, job, worker)
    training = Training.start(python, job, steps, load="alone", threads=threads, worker=worker)

    def report(point: dict[str, Any]) -> None:
        if point["step"] * 10 // steps != (point["step"] - steps // 100) * 10 // steps:
            say(f"{job}: {_words(point)}")

    training.tried = tried
    return training.record(_wait(training, report))


def quicker_threads(python: Path, job: Job, worker: Path = WORKER) -> tuple[int, dict[str, float]]:
    """Try one thread and the default in a short training each, alone.

    Returns:
        The threads of the quicker one, and the seconds of both by number of threads.

    Raises:
        UserError: the worker failed.
    """
    tried: dict[str, float] = {}
    for threads in (1, 0):
        training = Training.start(python, job, TRIAL, load="trial", threads=threads, worker=worker)
        run = _wait(training, lambda _: None)["run"]
        tried[str(run["threads"])] = run["train_s"]
    return int(min(tried, key=tried.__getitem__)), tried


def _wait(training: Training, report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return the worker's result; its points go to ``report``."""
    try:
        for answer in training.lines():
            if "run" in answer:
                return answer
            if "error" in answer:
                raise training.fail(answer["error"])
            report(answer)
        raise training.fail()
    finally:
        training.close()


class Queue:
    """Works through jobs, alone or in pairs.

    Args:
        python: the rivals' interpreter.
        out: the file that trainings are kept in.
        steps: control steps of a training.
        parallel: how many of those that are not timed run at a time, 1 or 2.
        timed: seeds that run alone even with parallel=2.
        say: called with a line of progress.
        worker: the program that trains.
    """

    def __init__(
        self,
        python: Path,
        out: Path,
        *,
        steps: int = STEPS,
        parallel: int = 1,
        timed: Sequence[int] = TIMED,
        say: Callable[[str], None] = print,
        worker: Path = WORKER,
    ):
        self.python, self.out, self.worker, self.say = python, out, worker, say
        self.steps, self.parallel, self.timed = steps, parallel, tuple(timed)
        self._running: list[Training] = []
        self._answers: queue.Queue[tuple[Training, dict[str, Any] | None]] = queue.Queue()
        self._reported_at = time.perf_counter()

    def run(self, jobs: Sequence[Job]) -> int:
        """Train what the file does not hold yet; return how many were trained.

        Raises:
            UserError: a worker failed, the file is damaged, or another such run writes into it.
        """
        with _locked(self.out):
            had = {Job(run["env"], run["rival"], run["seed"]) for run in read_runs(self.out) if self._same(run)}
            left = [job for job in jobs if job not in had]
            self.say(f"{len(jobs) - len(left)} of {len(jobs)} trainings are there, {len(left)} to do -> {self.out}")
            alone = [job for job in left if self._is_alone(job)]
            pairs = [job for job in left if job not in alone]
            try:
                for waiting, load, many in ((alone, "alone", 1), (pairs, "pair", self.parallel)):
                    later = pairs if waiting is alone else []
                    self._work(list(waiting), load, many, later)
            finally:
                for training in self._running:
                    training.close()
        return len(left)

    def _same(self, run: dict[str, Any]) -> bool:
        return self.steps - run["steps"] in range(2048)

    def _is_alone(self, job: Job) -> bool:
        return job.seed in self.timed or self.parallel == 1

    def _work(self, waiting: list[Job], load: str, many: int, later: Sequence[Job]) -> None:
        while waiting or self._running:
            while waiting and len(self._running) < many:
                self._start(waiting.pop(0), load)
            training, answer = self._answers.get()
            if answer is None:
                raise training.fail()
            if "error" in answer:
                raise training.fail(answer["error"])
            if "run" in answer:
                self._finish(training, answer)
            else:
                training.point = answer
            if "run" in answer or time.perf_counter() - self._reported_at > 30.0:
                self._report([*waiting, *later])

    def _start(self, job: Job, load: str) -> None:
        threads, tried = (1, {}) if load == "pair" else quicker_threads(self.python, job, self.worker)
        training = Training.start(self.python, job, self.steps, load=load, threads=threads, worker=self.worker)
        training.tried = tried
        self._running.append(training)

        def listen() -> None:
            with contextlib.suppress(ValueError):  # closed while it was read, or no JSON: no result either way
                for answer in training.lines():
                    self._answers.put((training, answer))
                    if "run" in answer:
                        return
            self._answers.put((training, None))

        threading.Thread(target=listen, daemon=True).start()
        self.say(f"{job}: starts, {load}, {threads} thread{'s' * (threads > 1)}")

    def _finish(self, training: Training, answer: dict[str, Any]) -> None:
        run = training.record(answer)
        keep(self.out, run)
        self._running.remove(training)
        training.close()
        mean = sum(run["evaluation"]) / max(1, len(run["evaluation"]))
        self.say(f"{training.job}: done, return {run['return']}, evaluated {mean:.0f}, {run['train_s']:.0f} s")

    def _report(self, waiting: Sequence[Job]) -> None:
        self._reported_at = time.perf_counter()
        for training in self._running:
            self.say(f"{training.job}: {_words(training.point)}")
        if (seconds := self._left(waiting)) is not None:
            minutes = round(seconds / 60)
            self.say(f"{len(waiting) + len(self._running)} to go, about {minutes // 60} h {minutes % 60:02d} min")

    def _left(self, waiting: Sequence[Job]) -> float | None:
        """Seconds until all is done, by what like jobs took; None where nothing is known yet."""
        known = [(run["env"], run["rival"], run["train_s"]) for run in read_runs(self.out) if self._same(run)]
        for training in self._running:
            if (step := training.point["step"]) > 0:
                whole = training.point["seconds"] * self.steps / step
                known.append((training.job.env, training.job.rival, whole))
        if not known:
            return None

        def expected(job: Job) -> float:
            like = [s for env, rival, s in known if env == job.env and rival == job.rival]
            like = like or [s for env, _, s in known if env == job.env] or [s for _, _, s in known]
            return sum(like) / len(like)

        alone = sum(expected(job) for job in waiting if self._is_alone(job))
        pairs = sum(expected(job) for job in waiting) - alone
        now = [expected(one.job) * (1.0 - one.point["step"] / self.steps) for one in self._running]
        return max(now, default=0.0) + alone + pairs / self.parallel


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Keep a second such run away from a file."""
    import fcntl
    import hashlib

    name = hashlib.sha256(str(out.resolve()).encode()).hexdigest()[:16]
    with (Path(tempfile.gettempdir()) / f"robot-rl-rivals-{name}.lock").open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"out={out}: another run is writing into it; wait for it, or name another file") from None
        yield


def _words(point: dict[str, Any]) -> str:
    value = point["return"]
    result = "no episode yet" if value is None else f"return {value:.0f}"
    return f"{point['step']:,} steps, {result}, {point['seconds']:.0f} s"


def main(arguments: list[str]) -> int:
    """Work through the jobs."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        options = read_words(arguments, KNOWN, marks=("about", "runs"))
        parallel, steps, timed = options["parallel"], options["steps"], options["timed"]
        if parallel not in ("1", "2"):
            raise UserError(f"parallel={parallel}: must be 1 or 2")
        if not steps.isdigit() or int(steps) < 2048:
            raise UserError(f"steps={steps}: must be a whole number of at least 2048")
        if timed not in ("true", "false"):
            raise UserError(f"timed={timed}: must be true or false")
        seeds = TIMED if timed == "true" else ()
        out = Path(options["out"] or Path(__file__).with_name("gymnasium_rivals.json"))
        python = find_python(options["rival_python"])
        jobs = parse_jobs(options["jobs"])

        def say(line: str) -> None:
            print(time.strftime("%H:%M:%S"), line, flush=True)

        Queue(python, out, steps=int(steps), parallel=int(parallel), timed=seeds, say=say).run(jobs)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; started again, it goes on with what is missing", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
