"""A flow for Slurm: a batch script for each step, and one script that submits them with their dependencies.

The steps share a directory that all nodes see: the one from which submit.sh is called.
"""

from __future__ import annotations

from robot_rl.flow.dag import Flow, Step
from robot_rl.flow.targets.shell import ClusterCfg, body, check_paths, numbered
from robot_rl.manifests.sbatch import NOTICE_S, requeue

SUBMIT = """\
#!/bin/bash
# Submit {name} {id}: call it in a directory that all nodes see. Prints each step and its job's id.
set -euo pipefail
here="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
mkdir -p {logs}
ids=()
trap 'if [ "$?" -ne 0 ] && [ "${{#ids[@]}}" -gt 0 ]; then scancel "${{ids[@]}}"; fi' EXIT
submit() {{  # <variable> <step> <script> [<option> ...]
    local id
    id="$(sbatch --parsable "${{@:4}}" "$here/$3")"
    id="${{id%%;*}}"
    ids+=("$id")
    printf -v "$1" '%s' "$id"
    echo "$2 $id"
}}
"""


def manifests(flow: Flow, cfg: ClusterCfg, folder: str) -> dict[str, str]:
    """Return file -> content of a flow for Slurm; `folder` is that of the flow's own files."""
    check_paths(flow, "slurm")
    names, logs = numbered(flow), f"{folder}/log"
    files = {names[step.name]: script(flow, step, cfg, logs) for step in flow.order()}
    lines = [SUBMIT.format(name=flow.name, id=flow.id, logs=logs)]
    for step in flow.order():
        words = [f"job_{step.name}", step.name, names[step.name]]
        if step.needs():
            ids = ":".join(f"$job_{name}" for name in step.needs())
            words += [f'"--dependency=afterok:{ids}"', "--kill-on-invalid-dep=yes"]
        lines.append(f"submit {' '.join(words)}\n")
    return {**files, "submit.sh": "".join(lines)}


def script(flow: Flow, step: Step, cfg: ClusterCfg, logs: str) -> str:
    """Return the batch script of a step."""
    needs = step.resources
    options = {
        "job-name": f"{flow.id}-{step.name}",
        "nodes": 1,
        "ntasks": 1,
        "cpus-per-task": needs.cpus,
        "mem": f"{needs.memory_gb}G",
        "time": needs.minutes,
        "output": f"{logs}/{step.name}-%j.txt",
        "open-mode": "append",
    }
    if needs.gpus:
        options["gpus-per-node"] = needs.gpus
    if platform := cfg.platforms.get(needs.computer):
        options["partition"] = platform
    lines = ["#!/bin/bash", *(f"#SBATCH --{key}={value}" for key, value in options.items())]
    run = body(flow, step, prefix="srun ")
    if step.resumable:
        lines += ["#SBATCH --requeue", f"#SBATCH --signal=USR1@{NOTICE_S}", "trap : TERM USR1"]
        place = next(place for place, line in enumerate(run) if line.startswith("srun "))
        again = requeue("$SLURM_JOB_ID", has_peers=False)
        ended = ["code=0", f"{run[place]} || code=$?", *again, 'if [ "$code" -ne 0 ]; then exit "$code"; fi']
        run[place : place + 1] = ended
    return "\n".join([*lines, "set -eu", *run]) + "\n"
