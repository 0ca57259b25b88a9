"""What schedulers do by the exit codes of docs/recovery.md: start again, or give up."""

from __future__ import annotations

from typing import Any

from robot_rl.cluster.manifests.job import ClusterJob
from robot_rl.errors import ExitCode

AGAIN = (ExitCode.REQUEUE,)
"""Stopped and saved: start again at once, and do not count it."""
NEVER = (ExitCode.USER, ExitCode.DISK_FULL, ExitCode.GIVE_UP)
"""The same would end the same way, or somebody has to make room first."""
STOPPED = (137, 138, 140, 143)
"""Ended by SIGKILL, or at once by a second SIGUSR1, SIGUSR2 or SIGTERM: from the checkpoint before."""
RETRIES = 6
"""How often a job starts again after a fault, such as a lost process."""
GRACE_S = 120
"""How long a pod may take to end: the iteration in hand, and a checkpoint [s]."""


def pod_failure_policy(container: str) -> dict[str, Any]:
    """Return the podFailurePolicy of a Job: its first rule that fits applies; a failure that fits none is counted."""
    return {
        "rules": [
            {"action": "FailJob", "onExitCodes": _codes(container, NEVER)},
            {"action": "Ignore", "onExitCodes": _codes(container, AGAIN)},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        ]
    }


def _codes(container: str, codes: tuple[ExitCode, ...]) -> dict[str, Any]:
    return {"containerName": container, "operator": "In", "values": sorted(int(code) for code in codes)}


def exit_actions(job: ClusterJob) -> dict[str, str]:
    """Return the exitActions of a task of OSMO.

    A process that lost another ends with a fault, so that with several of them a fault starts all again.
    """
    fault = [ExitCode.FAULT] if job.size > 1 else []
    return {
        "COMPLETE": _text([ExitCode.DONE]),
        "RESCHEDULE": _text([*fault, *AGAIN, *STOPPED]),
        "FAIL": _text([*NEVER, ExitCode.INTERRUPTED, *([] if fault else [ExitCode.FAULT])]),
    }


def _text(codes: list[Any]) -> str:
    return ",".join(str(int(code)) for code in sorted(codes))
