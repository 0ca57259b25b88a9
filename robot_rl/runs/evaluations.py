"""Evaluations of a policy while it is trained, by a process that is not waited for."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from robot_rl.files import write_atomic
from robot_rl.learn.dims import mirrors_to_meta
from robot_rl.metrics.rows import to_stderr
from robot_rl.runs.run_dir import EVALUATIONS
from robot_rl.settings import to_dict

MOST_FAILURES = 3
"""How often the evaluator may be lost, or fail, without a result in between."""
FINISH_S = 120.0
"""How long the last evaluations are waited for at the end of a training [s]."""
POLL_S = 0.1
"""Time between two looks for a result, at the end [s]."""


class EvaluatorLostError(RuntimeError):
    """The evaluator is gone, with the evaluation that it had begun."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A policy that is to be evaluated.

    Attributes:
        iteration: Iterations that it has learned for.
        env_steps: Control steps that these took, over all worlds.
        weights: Its network's tensors by name, copies on the CPU.
        meta: "dims" and "mirror", as in a checkpoint's description.
    """

    iteration: int
    env_steps: int
    weights: Mapping[str, Tensor] = field(repr=False)
    meta: Mapping[str, Any] = field(repr=False)


class Evaluator(ABC):
    """Evaluates one policy at a time, somewhere else."""

    @abstractmethod
    def begin(self, request: Request) -> None:
        """Begin an evaluation; nothing is waited for."""

    @abstractmethod
    def poll(self) -> dict[str, float] | None:
        """Return the mean of each metric of the evaluation that was begun; None while it runs.

        Raises:
            EvaluatorLostError: The evaluator is gone.
            Exception: The evaluation failed.
        """

    @abstractmethod
    def replace(self) -> None:
        """Start an evaluator in the place of a lost one."""

    @abstractmethod
    def close(self) -> None:
        """End the evaluator."""


class Evaluations:
    """Has the policy of each so many iterations evaluated, and never waits for that while it is trained.

    While an evaluation runs, only the newest policy waits for the next; the others are skipped. The training's own
    random numbers, worlds and networks are not touched.
    """

    def __init__(self, evaluator: Evaluator, every: int, run_dir: Path) -> None:
        """Take an evaluator.

        Args:
            evaluator: Evaluates.
            every: Iterations between two evaluations.
            run_dir: The run's directory.
        """
        self._evaluator, self._every, self._file = evaluator, every, Path(run_dir) / EVALUATIONS
        self._running: Request | None = None
        self._waiting: Request | None = None
        self._skipped, self._failures, self._has_begun = 0, 0, False

    def on_iteration_end(self, session: Any) -> dict[str, float]:
        """Look for a result and begin an evaluation if due; return the entries for the iteration's row.

        That is nothing, or of a result "eval/<metric>", "eval/iteration", that of the policy, and "eval/skipped", the
        evaluations that were skipped since the result before.

        Args:
            session: The `robot_rl.learn.base_trainer.BaseTrainer`, with the iteration counted.
        """
        if not self._has_begun:
            self._has_begun = True
            self._forget(session.iteration)
        row = self._look()
        if session.iteration % self._every == 0 and self._failures <= MOST_FAILURES:
            self._skipped += self._waiting is not None
            self._waiting = _request(session)
        self._begin_next()
        return row

    def finish(self, limit_s: float = FINISH_S) -> None:
        """Wait for the remaining evaluations, but not for long."""
        end = time.monotonic() + limit_s
        while self._running is not None:
            self._look()
            self._begin_next()
            if self._running is not None and time.monotonic() > end:
                to_stderr(
                    f"the evaluation of iteration {self._running.iteration} is not ready after {limit_s:g} s, and is "
                    "given up; robot-rl eval does it"
                )
                return
            time.sleep(POLL_S if self._running is not None else 0.0)

    def close(self) -> None:
        """End the evaluator."""
        self._evaluator.close()

    def _look(self) -> dict[str, float]:
        """Return the row of the evaluation that runs; empty while it does, or if it failed."""
        if self._running is None:
            return {}
        try:
            found = self._evaluator.poll()
        except EvaluatorLostError as error:
            self._fail(f"the evaluator was lost ({error})")
            if self._failures <= MOST_FAILURES:
                self._evaluator.replace()
                self._evaluator.begin(self._running)
            else:
                self._running = None
            return {}
        except Exception as error:
            self._fail(f"the evaluation of iteration {self._running.iteration} failed ({' '.join(str(error).split())})")
            self._running = None
            return {}
        if found is None:
            return {}
        request, self._running, self._failures = self._running, None, 0
        self._write(request, found)
        row = {f"eval/{name}": value for name, value in found.items()}
        row |= {"eval/iteration": float(request.iteration), "eval/skipped": float(self._skipped)}
        self._skipped = 0
        return row

    def _fail(self, line: str) -> None:
        self._failures += 1
        is_over = self._failures > MOST_FAILURES
        to_stderr(f"{line}; {'nothing is evaluated any more' if is_over else 'the training continues'}")
        if is_over:
            self._waiting = None

    def _begin_next(self) -> None:
        if self._running is None and self._waiting is not None:
            self._running, self._waiting = self._waiting, None
            self._evaluator.begin(self._running)

    def _write(self, request: Request, found: Mapping[str, float]) -> None:
        line = {"iteration": request.iteration, "env_steps": request.env_steps, "metrics": dict(found)}
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _forget(self, iteration: int) -> None:
        """Remove the results of iterations that are done again, as a run does that continues from a checkpoint."""
        if not self._file.is_file():
            return
        lines = self._file.read_text().splitlines()
        kept = [line for line in lines if (number := _iteration_of(line)) and number < iteration]
        write_atomic(self._file, "".join(f"{line}\n" for line in kept))


def _iteration_of(line: str) -> int:
    """Return the iteration of a line; 0 of one that was cut off."""
    try:
        return int(json.loads(line)["iteration"])
    except (ValueError, LookupError, TypeError):
        return 0


def _request(session: Any) -> Request:
    weights = {name: tensor.detach().cpu().clone() for name, tensor in session.actor.state_dict().items()}
    meta = {"dims": to_dict(session.dims), "mirror": mirrors_to_meta(session.mirrors)}
    return Request(iteration=session.iteration, env_steps=session.env_steps, weights=weights, meta=meta)
