"""A batch script of Slurm, requeued where its processes stopped and saved."""

from __future__ import annotations

from pathlib import Path

from robot_rl.manifests.job import ClusterJob
from robot_rl.manifests.sbatch import SbatchJob
from robot_rl.manifests.sbatch import render as render_script

USED = frozenset({"partition", "mount"})


def render(job: ClusterJob) -> str:
    """Return the script."""
    return render_script(
        SbatchJob(
            runs=Path(job.directory),
            name=job.name,
            nodes=job.nodes,
            ranks=job.ranks,
            gpus=job.gpus,
            cpus=job.cpus,
            memory=job.memory,
            time=job.time,
            partition=job.partition,
            log=f"{job.directory}/slurm-%j.out",
            command=("robot-rl", "worker", *(["trust=true"] if job.trust else [])),
            made_by=job.made_by,
        )
    )
