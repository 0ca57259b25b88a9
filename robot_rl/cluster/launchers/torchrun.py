"""Processes on one machine or several, by torchrun: a lost one is replaced, and the run continues."""

from __future__ import annotations

import contextlib
import importlib
import logging
import multiprocessing
import os
import select
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from robot_rl.cluster.launchers import exit_codes
from robot_rl.cluster.launchers.launcher import COMMAND, FrozenRun, Launcher
from robot_rl.errors import ExitCode, UserError, require_linux
from robot_rl.learn.stores import LOOPBACK, address_toward, is_here, open_store
from robot_rl.machine import count_cores
from robot_rl.metrics.rows import to_stderr
from robot_rl.processes import SIGNALS, is_taken
from robot_rl.settings.schema import setting

SHUTDOWN_S = 120
"""How long processes may take to save after a signal [s]."""
RENDEZVOUS = "robot_rl"
STORE_WAIT = timedelta(minutes=1)
"""How long a machine of several waits for that of the rendezvous, and for an answer of it."""
LINGER_S = 0.3
"""How long a process stays after it has returned [s]."""
PRELOADED = (
    *("torch", "tensordict", "warp", "mujoco.batch", "torch.utils.tensorboard.writer", "robot_rl.cli.worker"),
    *("robot_rl.runs.training", "robot_rl.learn.trainer", "robot_rl_envs.env"),
)
"""What every process of a run imports. None of it starts a thread or looks for a GPU, so that it can be done once, in a
server from which the processes are forked; those that replace lost ones begin at once."""


@dataclass(kw_only=True, slots=True)
class Torchrun(Launcher):
    """Processes that torchrun starts, watches and replaces.

    Attributes:
        rendezvous: host:port of one of several machines; the same command is given on each of them.
        max_restarts: How often the processes are started again after one was lost.
    """

    rendezvous: str = ""
    max_restarts: int = setting(3, least=0, most=1000)

    name: ClassVar[str] = "torchrun"
    unused: ClassVar[tuple[str, ...]] = ("time", "partition")

    def __post_init__(self) -> None:
        """Raise UserError if settings are out of range or do not fit together."""
        Launcher.__post_init__(self)
        if self.nodes > 1 and not self.rendezvous:
            raise UserError(
                "launcher.nodes",
                self.nodes,
                "needs launcher.rendezvous=<host>:<port>, and run_id=, of the same command on each machine",
            )
        if self.rendezvous and self.nodes == 1:
            raise UserError("launcher.rendezvous", self.rendezvous, "is for several machines", "give launcher.nodes=")
        host, _, port = self.rendezvous.rpartition(":")
        if self.rendezvous and (not host or not port.isdecimal() or not 0 < int(port) < 65536):
            raise UserError("launcher.rendezvous", self.rendezvous, "must be <host>:<port>, such as node1:29400")

    def check(self) -> None:
        """Raise UserError if the port of the rendezvous is taken, or there are too few GPUs or cores."""
        import torch

        require_linux("launcher=torchrun")
        if "RANK" in os.environ:
            raise UserError("launcher=torchrun: this is a process of torchrun already; leave launcher= out")
        devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if self.gpus > devices:
            raise UserError("launcher.gpus", self.gpus, f"this machine has {devices}", "give at most that")
        cores = count_cores()
        if self.cpus > cores:
            raise UserError("launcher.cpus", self.cpus, f"this machine has {cores}", "give at most that")
        if self.rendezvous:
            _check_port(self.rendezvous)

    def prepare(self) -> None:
        """Start the server from which the processes are forked, while the settings are composed."""
        from multiprocessing import forkserver, resource_tracker

        multiprocessing.set_forkserver_preload(list(PRELOADED))
        # The server must outlive a signal to the whole group: its end would be a second signal to the processes.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            resource_tracker.ensure_running()
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # Its start has unblocked two of them.
            with _environment(self._variables()):
                forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def submit(self, runs: Sequence[FrozenRun], folder: Path) -> int:
        """Train the runs one after another and return the exit code; that of the first which fails ends them."""
        for run in runs:
            if code := self._train(run):
                return code
        return 0

    def _train(self, run: FrozenRun) -> int:
        from torch.distributed.elastic.multiprocessing import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import elastic_launch

        with tempfile.TemporaryDirectory(prefix="robot-rl-") as codes, _environment(self._variables()), _quiet():
            try:
                elastic_launch(self._config(run, codes), work)(run.words(here=True), codes, os.getpid())
            except SignalException as stop:
                silent = ExitCode.INTERRUPTED if stop.sigval == signal.SIGINT else ExitCode.REQUEUE
                return exit_codes.combine(exit_codes.read(Path(codes))) or int(silent)
            except ChildFailedError as error:
                self._report(error)
                return int(ExitCode.FAULT)
            return exit_codes.combine(exit_codes.read(Path(codes)))

    def _config(self, run: FrozenRun, folder: str) -> Any:
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
        from torch.distributed.launcher.api import LaunchConfig

        is_alone = self.nodes == 1
        return LaunchConfig(
            min_nodes=self.nodes,
            max_nodes=self.nodes,
            nproc_per_node=self.ranks_a_node,
            run_id=run.run_dir.run_id,
            logs_specs=DefaultLogsSpecs(log_dir=f"{folder}/logs"),
            rdzv_backend="c10d" if is_alone else _register(),
            rdzv_endpoint=f"{folder}/rendezvous" if is_alone else self.rendezvous,
            rdzv_configs={"store_type": "file"} if is_alone else {},
            local_addr=LOOPBACK if is_alone else address_toward(self.rendezvous.rpartition(":")[0], STORE_WAIT),
            max_restarts=self.max_restarts,
            monitor_interval=0.1,
            start_method="forkserver",
            signals_to_handle=",".join(number.name for number in filter(is_taken, SIGNALS)),
            shutdown_timeout=SHUTDOWN_S,
        )

    def _variables(self) -> dict[str, str]:
        """Return the environment variables of the processes, those that the user has set excepted."""
        threads = str(self.cpus) if self.cpus else "1"
        # A later agent of torchrun's would otherwise wait for a store that is gone.
        variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        if self.ranks_a_node > 1 or self.cpus:
            variables["OMP_NUM_THREADS"] = threads
        return {key: value for key, value in variables.items() if key not in os.environ}

    def _report(self, error: Any) -> None:
        _, failure = error.get_first_failure()
        how = f"exit code {failure.exitcode}" if failure.exitcode >= 0 else signal.Signals(-failure.exitcode).name
        again = f", after {self.max_restarts} restarts" if self.max_restarts else ""
        to_stderr(f"a process ended by {how}{again}; the run resumes with the same command and its run_id=")


def _register() -> str:
    """Register torchrun's rendezvous of several machines with a store that listens on one address; return its name."""
    from torch.distributed.elastic import rendezvous
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

    class Backend(C10dRendezvousBackend):
        name = property(lambda _: RENDEZVOUS)  # pyright: ignore[reportAssignmentType]

    def make(parameters: Any) -> Any:
        host, _, port = parameters.endpoint.rpartition(":")
        store = None
        if is_here(host, STORE_WAIT):
            with contextlib.suppress(OSError):  # Another launcher of this machine keeps it.
                store = open_store(host, int(port), is_first=True, wait=STORE_WAIT)
        if store is None:
            try:
                store = open_store(host, int(port), is_first=False, wait=STORE_WAIT)
            except RuntimeError:
                raise UserError("launcher.rendezvous", parameters.endpoint, "nobody answers there") from None
        return create_handler(store, Backend(store, parameters.run_id), parameters)

    with contextlib.suppress(ValueError):  # It is registered already.
        rendezvous.rendezvous_handler_registry.register(RENDEZVOUS, make)
    return RENDEZVOUS


def work(words: list[str], codes: str, launcher: int) -> None:
    """Train as one of the processes; exit with another code than 0 only if all are to start again.

    Args:
        words: What follows `robot-rl` on its command line.
        codes: The directory for the exit codes.
        launcher: The process of the launcher: when it ends, this one also saves and ends.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    os.setsid()  # Ctrl-C reaches the launcher, which passes it on, once.
    import torch.distributed as dist

    threading.Thread(target=_end_with, args=(launcher,), daemon=True).start()
    os.environ[exit_codes.VARIABLE] = codes
    sys.argv = ["robot-rl", *words]
    code = importlib.import_module(COMMAND).main(words)
    if dist.is_initialized():
        dist.destroy_process_group()  # This process waits for the others, which must not wait for it.
    if code:
        sys.exit(code)
    # torchrun lets a process that returned wait until it has noticed; while it ends all of them it does not look.
    leave = threading.Timer(LINGER_S, os._exit, (0,))
    leave.daemon = True
    leave.start()


def _end_with(launcher: int) -> None:
    """Give this process notice when the launcher has ended."""
    try:
        descriptor = os.pidfd_open(launcher)
    except ProcessLookupError:
        os.kill(os.getpid(), signal.SIGTERM)
        return
    select.select([descriptor], [], [])
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables, which the processes inherit, and remove them again."""
    before = {key: os.environ.get(key) for key in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence torchrun's log: processes of ours report in one line themselves."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def _check_port(rendezvous: str) -> None:
    """Raise UserError if this machine is the one of the rendezvous, and its port is taken by something else."""
    host, _, port = rendezvous.rpartition(":")
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        raise UserError("launcher.rendezvous", rendezvous, f"{host} is not known here ({error.strerror})") from None
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, int(port)))
        except OSError as error:
            if error.errno == 98:
                right = "choose another, or wait for the training that uses it"
                raise UserError("launcher.rendezvous", rendezvous, f"port {port} is in use", right) from None
