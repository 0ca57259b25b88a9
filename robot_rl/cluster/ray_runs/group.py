"""The processes of a run as a group of Ray Train's workers, started again smaller, or larger, as machines go and come.

Ray Train replaces a lost process in place, which is quickest. Where a machine is lost, taken away or joins, the group
ends, and a new one is as large as there is room for. Ray Train's own elastic sizes are not used: they count machines
that are gone for up to 20 s, and those that are being taken away as long as they are there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from robot_rl.cluster.launchers.launcher import FrozenRun
from robot_rl.cluster.ray_runs.cluster import last_line, list_nodes
from robot_rl.cluster.ray_runs.rank import STOP, EndedError, RankCfg, find_place, output_to, set_place, train_rank
from robot_rl.cluster.ray_runs.roles import GroupCfg
from robot_rl.cluster.ray_runs.simulators import end_waiting, kill_simulators
from robot_rl.errors import ExitCode
from robot_rl.metrics.rows import to_stderr

SETTLE_S = 3.0
"""How long a group waits for all its machines before it starts with fewer [s]: a lost one still holds resources."""
UNUSED = ("DatasetsCallback", "PlacementGroupCleanerCallback")
"""Parts of Ray Train that a run does not need: no data sets are used, and placement groups end with the command."""
SHOW_S = 0.2
"""Time between two looks at the output of the processes [s]."""
LOOK_S = 0.25
"""Time between two looks for room [s]."""


def train_run(run: FrozenRun, cfg: GroupCfg, is_stopping: Callable[[], bool]) -> int:
    """Train a run to its end on the cluster that is connected, and return the exit code.

    Args:
        run: The run.
        cfg: Its group.
        is_stopping: Whether the user wants it to end; the file STOP in its directory asks its processes.
    """
    cfg.folder.mkdir(parents=True, exist_ok=True)
    log = cfg.folder.absolute() / f"{run.run_dir.run_id}.log"
    with showing(log):
        try:
            return _train(run, cfg, is_stopping, log)
        finally:
            kill_simulators(str(run.run_dir.path.absolute()), cfg.sims.count)


def _train(run: FrozenRun, cfg: GroupCfg, is_stopping: Callable[[], bool], log: Path) -> int:
    name, lost = run.run_dir.words, 0
    while True:
        size = _wait_for_room(cfg, is_stopping, name)
        if not size:
            return int(ExitCode.REQUEUE)
        try:
            _fit(run, cfg, size, log)
            return int(ExitCode.DONE)
        except EndedError as end:
            if end.code != ExitCode.REQUEUE or is_stopping() or (run.run_dir.path / STOP).exists():
                if end.code not in (ExitCode.REQUEUE, ExitCode.INTERRUPTED):
                    to_stderr(end.line)
                return end.code
            to_stderr(f"{name}: saved, for {end.line or 'a notice'}; a new group continues")
        except _losses() as error:
            lost += 1
            if lost > cfg.max_failures or is_stopping():
                to_stderr(f"{name}: {last_line(error)}; the same command with its run_id= resumes")
                return int(ExitCode.FAULT)
            to_stderr(f"{name}: a machine was lost; a new group continues from the newest checkpoint")


def _fit(run: FrozenRun, cfg: GroupCfg, size: int, log: Path) -> None:
    """Train with one group of processes until all iterations are done.

    Raises:
        EndedError: A process ended in a way that another attempt of the same group would not change.
    """
    from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.exceptions import ControllerError

    rank = RankCfg(
        run=str(run.run_dir.path.absolute()),
        log=str(log),
        options=tuple(word.partition("=")[0] for word in run.options),
        need=cfg.need,
        step=cfg.ranks,
        missing=cfg.size - size,
        is_elastic=cfg.is_elastic,
        sims=dataclasses.asdict(cfg.sims) if cfg.sims.count else {},
        evaluations=dataclasses.asdict(cfg.evaluator) if cfg.evaluator.every else {},
        services=cfg.services,
    )
    name = f"{run.run_dir.run_id}-{time.time_ns()}"
    trainer = _make_trainer_class()(
        train_rank,
        train_loop_config=dataclasses.asdict(rank),
        torch_config=_make_meeting(),
        scaling_config=ScalingConfig(
            num_workers=size,
            use_gpu=cfg.gpus > 0,
            resources_per_worker=cfg.need,
            placement_strategy="SPREAD" if cfg.ranks == 1 else "PACK",
        ),
        run_config=RunConfig(
            name=name,
            storage_path=str(cfg.folder.absolute()),
            callbacks=[_make_judge(log, lambda: end_waiting(rank.run, cfg.sims.count))],
            failure_config=FailureConfig(max_failures=cfg.max_failures, controller_failure_limit=0),
            logging_config=LoggingConfig(log_level="CRITICAL"),
        ),
    )
    try:
        trainer.fit()
    except ControllerError as error:
        if isinstance(error.controller_failure, EndedError):
            raise error.controller_failure from None
        raise
    finally:
        shutil.rmtree(cfg.folder / name, ignore_errors=True)


def _make_meeting() -> Any:
    """Return Ray Train's settings for torch, which only tell processes their meeting point.

    Ray's own would join them there and then, at a store that listens on every address of the machine.
    """
    from ray.train.backend import Backend
    from ray.train.torch import TorchConfig

    class Meeting(Backend):
        share_cuda_visible_devices = True

        def on_start(self, worker_group: Any, backend_config: Any) -> None:
            worker_group.execute(set_place, *worker_group.execute_single(0, find_place))

    class MeetingConfig(TorchConfig):
        backend_cls = property(lambda _: Meeting)

    return MeetingConfig()


def _make_trainer_class() -> Any:
    """Return TorchTrainer without the parts that would start two processes for nothing."""
    from ray.train.torch import TorchTrainer

    class Trainer(TorchTrainer):
        def _create_default_callbacks(self) -> Any:
            return [part for part in super()._create_default_callbacks() if type(part).__name__ not in UNUSED]

    return Trainer


def _make_judge(log: Path, make_room: Callable[[], None]) -> Any:
    """Return the callback that ends a group of which a process says that another attempt would not help.

    Args:
        log: Where the processes' output goes.
        make_room: Called before the group starts again.
    """
    from ray.train import UserCallback

    class Judge(UserCallback):
        def after_exception(self, run_context: Any, worker_exceptions: Mapping[int, Exception]) -> None:
            ended = [error for error in worker_exceptions.values() if isinstance(error, EndedError)]
            if ended:
                raise max(ended, key=lambda error: (error.code != ExitCode.REQUEUE, bool(error.line)))
            with output_to(log):
                to_stderr("a process was lost; all start again from the newest checkpoint")
            make_room()

    return Judge()


@contextlib.contextmanager
def showing(log: Path) -> Iterator[None]:
    """Print the text appended to a file, which is removed at the end, as is its directory if nothing else is in it."""
    end = threading.Event()
    log.touch()

    def show() -> None:
        with log.open() as file:
            while True:
                is_over = end.wait(SHOW_S)
                if text := file.read():
                    sys.stdout.write(text)
                    sys.stdout.flush()
                if is_over:
                    return

    thread = threading.Thread(target=show, name="robot-rl-show", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        log.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            log.parent.rmdir()


def _losses() -> tuple[type[Exception], ...]:
    """Return the errors of Ray that another group may not meet."""
    from ray.exceptions import RayError
    from ray.train.v2.api.exceptions import TrainingFailedError

    return (TrainingFailedError, RayError)


def _wait_for_room(cfg: GroupCfg, is_stopping: Callable[[], bool], name: str) -> int:
    """Return for how many processes there is room, waiting for the least number; 0 if the user wants to stop."""
    begin, told = time.monotonic(), False
    while not is_stopping():
        size = cfg.fitting(list_nodes())
        waited = time.monotonic() - begin
        if size == cfg.size or (size and waited > SETTLE_S):
            return size
        if waited > SETTLE_S and not told:
            told = True
            to_stderr(f"{name}: waits for room for {cfg.min_nodes * cfg.ranks} processes with {_words(cfg.need)} each")
        time.sleep(LOOK_S)
    return 0


def _words(need: Mapping[str, float]) -> str:
    return " and ".join(f"{amount:g} {name}" for name, amount in need.items())
