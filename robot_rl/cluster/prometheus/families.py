"""The metrics that are exported: names, types, meanings and labels, in one table."""

from __future__ import annotations

from dataclasses import dataclass

RUN = ("task", "run", "seed")
GPU = ("gpu", "uuid", "name")
STATES = ("running", "done", "stopped", "empty", "damaged")


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A metric. Counters are named without their ending _total here.

    Attributes:
        kind: "gauge", "counter" or "stateset".
        help: What it is, with its unit.
        labels: The names of its labels.
    """

    kind: str = "gauge"
    help: str
    labels: tuple[str, ...] = RUN


FAMILIES = {
    "robot_rl_up": Family(help="1 if the directory of runs could be read in this scrape.", labels=()),
    "robot_rl_runs": Family(help="Runs below the root by state.", labels=("state",)),
    "robot_rl_state": Family(kind="stateset", help="The run's state: the one with 1."),
    "robot_rl_iteration": Family(help="Iterations done."),
    "robot_rl_max_iterations": Family(help="Iterations in all."),
    "robot_rl_env_steps": Family(kind="counter", help="Control steps of all worlds."),
    "robot_rl_steps_per_second": Family(help="Control steps of all worlds a second, in the last iteration."),
    "robot_rl_episode_return": Family(help="Mean return of the episodes that ended in the last iteration."),
    "robot_rl_episode_length_seconds": Family(help="Mean length of the episodes that ended in the last iteration."),
    "robot_rl_goal": Family(help="The metric that the task is solved by.", labels=(*RUN, "metric")),
    "robot_rl_goal_target": Family(help="The value at which the task is solved.", labels=(*RUN, "metric")),
    "robot_rl_quarantined": Family(kind="counter", help="Samples of worlds that were quarantined."),
    "robot_rl_quarantined_share": Family(help="Share of the last iteration's samples that were quarantined, 0 to 1."),
    "robot_rl_checkpoint_iteration": Family(help="Iteration of the newest checkpoint."),
    "robot_rl_checkpoint_age_seconds": Family(help="Time since the newest checkpoint was written."),
    "robot_rl_last_row_age_seconds": Family(help="Time since metrics.jsonl was written."),
    "robot_rl_ranks": Family(help="Processes that train the run."),
    "robot_rl_gpu_utilization_ratio": Family(
        help="Share of the last sampling period in which a kernel ran on a GPU of this machine, 0 to 1.", labels=GPU
    ),
    "robot_rl_gpu_memory_used_bytes": Family(help="Memory in use of a GPU of this machine.", labels=GPU),
    "robot_rl_gpu_memory_total_bytes": Family(help="Memory of a GPU of this machine.", labels=GPU),
}


def exported_names() -> list[str]:
    """Return the names of all metrics as Prometheus stores them."""
    return [f"{name}_total" if family.kind == "counter" else name for name, family in FAMILIES.items()]
