"""Runs as jobs of a cluster that is elsewhere: submitted to its dashboard, and trained without this machine."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import Any

from robot_rl.cluster.launchers.launcher import FrozenRun
from robot_rl.cluster.ray_runs.cluster import import_ray
from robot_rl.errors import UserError

READY_S = 20.0
"""How long a cluster that has just started may take to accept a job [s]."""


def is_job_address(address: str) -> bool:
    """Return whether an address is that of a dashboard, which accepts jobs."""
    return address.startswith(("http://", "https://"))


def client(address: str) -> Any:
    """Return a client of a dashboard; raise UserError if none answers."""
    import_ray()
    from ray.job_submission import JobSubmissionClient

    try:
        return JobSubmissionClient(address)
    except (ConnectionError, RuntimeError, ValueError) as error:
        line = " ".join(str(error).split())
        right = "give the address of a Ray dashboard, such as http://127.0.0.1:8265"
        raise UserError("launcher.address", address, f"no dashboard answers there ({line})", right) from None


def submit(address: str, run: FrozenRun, settings: Mapping[str, Any]) -> str:
    """Submit the job that trains a run, and return its id.

    Args:
        address: The dashboard's.
        run: The run, in a directory that the cluster sees under the same path.
        settings: The launcher's, as the command that the job runs is given them.

    Raises:
        UserError: The cluster does not accept it.
    """
    path = run.run_dir.path.absolute()
    words = ["robot-rl", "resume", f"{path.parent.name}/{path.name}", f"root={path.parent.parent}", "launcher=ray"]
    words += [f"launcher.{key}={value}" for key, value in settings.items()]
    words += [word for word in run.options if word not in words]
    dashboard, end = client(address), time.monotonic() + READY_S
    while True:
        try:
            return str(dashboard.submit_job(entrypoint=shlex.join(words), metadata={"run": str(path)}))
        except (RuntimeError, ConnectionError) as error:
            # A head that has just started does not have an agent yet that takes jobs.
            if time.monotonic() > end:
                line = " ".join(str(error).split())
                raise UserError("launcher.address", address, f"the cluster accepts no job ({line})") from None
        time.sleep(1.0)


def is_alive(address: str, job: str) -> bool:
    """Return whether a job waits or runs; False if its cluster does not answer."""
    try:
        return not client(address).get_job_status(job).is_terminal()
    except (UserError, RuntimeError, ConnectionError):
        return False


def stop(address: str, job: str) -> None:
    """End a job: its command gets SIGTERM, after which the run's processes save."""
    client(address).stop_job(job)
