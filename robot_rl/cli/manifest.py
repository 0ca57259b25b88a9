"""Write the file that starts a run on a cluster, for Kubernetes, OSMO or Slurm (a batch script).

usage: robot-rl manifest [RUN] target=<target> [key=value ...]
       robot-rl manifest check=FILE

{Options}

targets:
{describe_targets}

Nodes, processes, GPUs and time are those of the run's launcher, unless given. Each process is `robot-rl worker <mount>/
<task>/<run id>`, so that the runs have to be there, on a volume that all nodes see (docs/kubernetes.md). A run of which
the settings name code that is not ours is placed in a sandbox.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.options import option, read_all
from robot_rl.cluster.manifests.job import CLAIM, DCGM_PORT, IMAGE, MOUNT
from robot_rl.errors import ExitCode, UserError

if TYPE_CHECKING:
    from robot_rl.cluster.launchers.launcher import Target
    from robot_rl.cluster.manifests.job import ClusterJob
    from robot_rl.runs.run_dir import RunDir

MAX_FILE = 2**20


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl manifest."""

    run: str = option("latest", "the run: its id, latest or <task>/latest; may be given as the first word")
    root: str = option("runs", "the directory of all runs, here")
    target: str = option("", "one of the targets")
    out: str = option("", "file to write; printed by default")
    check: str = option("", "instead of all that: a manifest to validate, such as one that you changed")
    nodes: int | None = option(None, "nodes")
    ranks: int | None = option(None, "processes on each node; one for each GPU by default")
    gpus: int | None = option(None, "GPUs on each node")
    cpus: int | None = option(None, "cores of each process")
    memory: str = option("", "memory of each process, such as 16G")
    time: str = option("", "time limit, such as 04:00:00")
    partition: str = option("", "Slurm's partition, OSMO's platform")
    image: str = option(IMAGE, "the container's image, with a tag")
    namespace: str = option("", "namespace of Kubernetes")
    queue: str = option("", "local queue of Kueue")
    queues: bool = option(False, "add an example of that queue, with its flavours")
    claim: str = option(CLAIM, "persistent volume claim with the runs")
    mount: str = option("", "the directory of all runs, there; /runs, or root= for sbatch")
    bucket: str = option("", "OSMO, a single node: URL of the runs in an object store, instead of mount=")
    spot: bool = option(False, "on machines that may be taken away")
    topology: str = option("", "label of nodes that the processes should share, such as a rack's")
    sandbox: bool | None = option(None, "in gVisor; by default if the run's settings name code that is not ours")
    metrics_port: int | None = option(None, "port at which Prometheus looks; 9400, DCGM's, with GPUs; 0: none")


def describe_targets() -> str:
    """Return a line of help for each target."""
    from robot_rl.cluster.launchers import list_targets

    return "\n".join(f"  {name:<8} {launcher.targets[name].info}" for name, launcher in list_targets().items())


def run(arguments: Sequence[str]) -> int:
    """Write or validate a manifest."""
    from robot_rl.cluster.launchers import find_target, list_targets
    from robot_rl.files import write_atomic
    from robot_rl.runs.outputs import MANIFEST, check_optional
    from robot_rl.runs.run_dir import RunDir

    options = read_all(Options, arguments, first="run")
    if options.check:
        if len(arguments) > 1:
            raise UserError("check", options.check, "goes without other options")
        return _check(Path(options.check))
    if not options.target:
        raise UserError(f"target: is missing; known: {', '.join(list_targets())}")
    launcher, name = find_target(options.target)
    target = launcher.targets[name]
    out = check_optional("out", options.out, MANIFEST)
    run_dir = RunDir.find(options.run, options.root)
    made_by = shlex.join(["robot-rl", "manifest", *arguments])
    job, notes = _read_job(options, run_dir, made_by, target)
    text = launcher.render(job, name)
    if not target.is_script:
        notes += _validated(text)
    for note in notes:
        print(f"robot-rl: {note}", file=sys.stderr)
    if out is not None:
        write_atomic(out, text)
        print(out)
    else:
        print(text, end="")
    return 0


def _check(path: Path) -> int:
    """Validate a user's file: one line an error."""
    from robot_rl.cluster.manifests.validate import can_validate, validate
    from robot_rl.files import read_plain

    if not can_validate():
        raise UserError("check", path, "needs the extra kubernetes", "pip install 'robot-rl[kubernetes]'")
    try:
        text = read_plain(path, MAX_FILE).decode()
    except FileNotFoundError:
        raise UserError("check", path, "does not exist") from None
    except UnicodeDecodeError:
        raise UserError("check", path, "is not UTF-8 text") from None
    lines = validate(text)
    for line in lines:
        print(f"robot-rl: {path}: {line}", file=sys.stderr)
    if lines:
        return ExitCode.USER
    print(f"{path}: valid")
    return 0


def _validated(text: str) -> list[str]:
    """Return a note if the extra is missing; raise RuntimeError if the rendered text is not valid."""
    from robot_rl.cluster.manifests.validate import can_validate, validate

    if not can_validate():
        return ["not validated: that needs the extra kubernetes (pip install 'robot-rl[kubernetes]')"]
    if lines := validate(text):
        raise RuntimeError(f"the rendered manifest is not valid: {lines[0]}")
    return []


def _read_job(options: Options, run_dir: "RunDir", made_by: str, target: "Target") -> tuple["ClusterJob", list[str]]:
    """Return the job of a run and these options, and notes on it."""
    from robot_rl.cluster.manifests.job import ClusterJob
    from robot_rl.runs.agreement import check_settings
    from robot_rl.runs.trust import named_code

    record = run_dir.read_config()
    check_settings(run_dir, record)
    settings = record["config"]
    code = named_code(settings)
    shape = _shape(options, record.get("launcher"))
    local_root = str(run_dir.path.absolute().parent.parent)
    default_mount = local_root if target.is_script else "/tmp/runs" if options.bucket else MOUNT
    port = options.metrics_port if options.metrics_port is not None else DCGM_PORT if shape["gpus"] else 0
    given = {each.name: getattr(options, each.name) for each in fields(ClusterJob) if hasattr(options, each.name)}
    given |= {**shape, "mount": options.mount or default_mount, "metrics_port": port}
    given |= {"sandbox": bool(code) if options.sandbox is None else options.sandbox, "trust": bool(code)}
    job = ClusterJob(**given, run_id=run_dir.run_id, task=run_dir.task, made_by=made_by)
    _refuse_unused(options, target.options)
    _check_divides(settings, job)
    return job, _notes(settings, job, code, target.options)


def _shape(options: Options, launcher: Any) -> dict[str, Any]:
    """Return the nodes, processes, GPUs, cores, time and partition: as given, else the launcher's of the run."""
    known = launcher if isinstance(launcher, Mapping) else {}

    def value(name: str, default: Any) -> Any:
        given = getattr(options, name)
        if given not in (None, ""):
            return given
        recorded = known.get(name)
        return recorded if isinstance(recorded, type(default)) and not isinstance(recorded, bool) else default

    gpus = value("gpus", 0)
    ranks = options.ranks
    if ranks is None:
        ranks = max(1, gpus) if options.gpus is not None else value("ranks", max(1, gpus))
    shape = {"nodes": value("nodes", 1), "ranks": ranks, "gpus": gpus, "cpus": value("cpus", 0)}
    return shape | {"time": value("time", ""), "partition": value("partition", "")}


def _refuse_unused(options: Options, used: frozenset[str]) -> None:
    """Raise UserError for an option that is given and does not affect the target."""
    some = ("namespace", "queue", "queues", "claim", "mount", "bucket", "spot", "topology", "metrics_port", "image")
    default = Options()
    for name in (*some, "partition", "sandbox"):
        value = getattr(options, name)
        if name not in used and value != getattr(default, name):
            shown = str(value).lower() if isinstance(value, bool) else value
            raise UserError(name, shown, f"does not affect target={options.target}", "omit it")
    if options.queues and not options.queue:
        raise UserError("queues=true: needs the name of the queue; give queue=")


def _check_divides(settings: Mapping[str, Any], job: "ClusterJob") -> None:
    num_envs = settings.get("num_envs")
    if isinstance(num_envs, int) and num_envs % job.size:
        raise UserError(
            "num_envs", num_envs, f"must be a multiple of the {job.size} processes", "change nodes= or ranks="
        )


def _notes(settings: Mapping[str, Any], job: "ClusterJob", code: Sequence[str], used: frozenset[str]) -> list[str]:
    notes = []
    if job.gpus and settings.get("device") == "cpu":
        notes.append(f"gpus={job.gpus}: the run's device is cpu, so that it will not use them")
    if code and not job.sandbox:
        notes.append(
            f"the run's settings name code that is not ours ({', '.join(code)[:200]}), and it is without a sandbox"
        )
    elif code and "sandbox" not in used:
        notes.append(f"the run's settings name code that is not ours ({', '.join(code)[:200]}); no sandbox here")
    return notes
