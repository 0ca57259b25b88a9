"""The settings of a training run, as one tree of plain values, and the typed objects built from it.

The tree has the front keys (task, seed, num_envs, ...), the learner's settings (max_iterations, ppo.*, actor.*) and
those of the task (rewards.*, sim.*) on one level, so that everything is overridden by one short name. run.yaml contains
it. The task's part belongs to its source (`robot_rl.sources.protocol`).
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.errors import UnknownKeyError, UserError
from robot_rl.learn.algorithms import get_learner, owners_of, preset_learner, read_learner
from robot_rl.metrics.writers import WANDB_MODES
from robot_rl.runs.agreement import check_settings
from robot_rl.runs.robot_facts import check_unchanged
from robot_rl.runs.run_dir import RunDir, check_run_id
from robot_rl.runs.trust import require_trust
from robot_rl.settings import LearnerCfg, from_dict, to_dict
from robot_rl.settings import tree as trees
from robot_rl.settings.checks import check_choice
from robot_rl.settings.run import RunCfg
from robot_rl.settings.words import REMOVED
from robot_rl.sources.protocol import EnvOptions, TaskSource, require_keys
from robot_rl.sources.registry import source_of

if TYPE_CHECKING:
    from robot_rl.learn.ranks import ProcessGroup

OPTIONAL = {key: to_dict(RunCfg())[key] for key in ("run_id", "learner_threads", "kernels")}
"""Front keys that runs of earlier versions do not have, and their values there."""
FRONT = ("task", *(key for key in to_dict(RunCfg()) if key not in OPTIONAL))


@dataclass(kw_only=True, slots=True)
class TrainCfg:
    """A training run, resolved.

    Attributes:
        source: The source of the task.
        task: The task with the overrides applied, of the source's own type.
        num_envs: Number of worlds, of all processes together.
        device: "cpu" or "cuda:<index>"; of several processes on a machine each has its own GPU.
        engine: The simulator of the task, such as "mujoco" or "mujoco_warp".
        num_threads: Threads of the CPU engine; 0 takes all cores.
        learner_threads: Threads of the learner on a CPU; 0 takes OMP_NUM_THREADS, or half of the cores.
        kernels: The folder of compiled kernels that a GPU takes (`robot_rl.performance.cache`); None: Warp's own cache.
        init_from: The run with the initial weights; None for new ones.
        run_id: The run's id, given by hand: an existing run of that id is continued. None generates one.
        root: The directory of all runs.
        wandb: "off", "offline" or "online".
        tree: All of this as plain nested values.
    """

    source: TaskSource
    task: Any
    learner: LearnerCfg
    seed: int
    num_envs: int
    device: str
    engine: str
    num_threads: int
    learner_threads: int
    kernels: Path | None
    init_from: RunDir | None
    run_id: str | None
    root: Path
    wandb: str
    tree: dict[str, Any]

    @property
    def reference(self) -> str:
        """Return the name by which the task is found: its own, or `module:name`."""
        return str(self.tree["task"])

    def worlds(
        self, num_envs: int | None = None, seed: int | None = None, ranks: "ProcessGroup | None" = None
    ) -> EnvOptions:
        """Return the worlds of the environment.

        Args:
            num_envs: Another number of worlds than training's.
            seed: Another seed than training's.
            ranks: The processes that the worlds are divided among; None: all are this one's.
        """
        count, first, threads = num_envs or self.num_envs, 0, self.num_threads
        if ranks is not None and ranks.size > 1:
            count = ranks.share(count, "num_envs")
            first, threads = ranks.rank * count, threads or _own_cores()
        return EnvOptions(
            num_envs=count,
            seed=self.seed if seed is None else seed,
            device=self.device,
            engine=self.engine,
            num_threads=threads,
            first=first,
            kernels=self.kernels,
        )

    def make_env(
        self, num_envs: int | None = None, seed: int | None = None, ranks: "ProcessGroup | None" = None
    ) -> Any:
        """Build the environment of `worlds`; raise UserError where task, robot, engine or learner do not fit."""
        env = self.source.make_env(self.task, self.worlds(num_envs, seed, ranks))
        try:
            self.source.check_learner(env, self.task, self.learner)
        except UserError:
            env.close()
            raise
        return env


def default_tree(name: str, device: str = "auto", learner: str = "", gpus: int | None = None) -> dict[str, Any]:
    """Return the tree of a task before anything is overridden.

    Args:
        name: The task's name.
        device: As the user gives it; on a CPU the task's preset for CPUs applies.
        learner: The learner, the task's own where empty; its settings join the task's.
        gpus: GPUs of the machine that trains, if that is another one.
    """
    return _tree(name, device, resolve_device(device, gpus), learner)


def _tree(name: str, device: str, resolved: str, learner: str) -> dict[str, Any]:
    """Return the tree of a task with a device as the user gives it, and the presets of a resolved one."""
    found = source_of(name).defaults(name, resolved)
    learner = learner or found.learner
    own, parts = to_dict(preset_learner(learner, found.presets)), dict(found.settings)
    front: dict[str, Any] = {"task": name, "seed": 1, "num_envs": 1, "max_iterations": own.pop("max_iterations")}
    front |= to_dict(RunCfg(num_envs=found.num_envs, device=device, learner=own.pop("name")))
    metrics = {"wandb": "off", **parts.pop("metrics", {})}
    twice = (set(front) & set(parts)) | (set(front) & set(own)) | (set(parts) & set(own))
    if twice:
        names = ", ".join(sorted(twice))
        raise UserError("learner", learner, f"has settings that every run or task has ({names})", "rename them there")
    return {**front, "metrics": metrics, **own, **parts}


def change(tree: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a tree with settings changed, and removed if the task can be without them.

    Args:
        tree: From `default_tree`.
        changes: By dotted name, from `robot_rl.settings.words.read_changes`.

    Raises:
        UserError: A setting does not exist (the nearest is offered), or cannot be removed.
    """
    source, task = source_of(tree.get("task")), str(tree.get("task"))
    for key in changes:
        refuse_other_learners(tree, key)
    optional = source.optional_keys(task) if REMOVED in changes.values() else ()
    return trees.override(source.admit(tree, list(changes)), changes, optional)


def refuse_other_learners(tree: Mapping[str, Any], key: str) -> None:
    """Raise UserError for a setting that the tree lacks because it is another learner's."""
    if key.partition(".")[0] not in tree and (owners := owners_of(key)):
        names = " or ".join(owners)
        raise UserError(f"{key}: is for learner={names}, this is learner={tree['learner']}; leave one of them out")


def resolve(tree: Mapping[str, Any], gpus: int | None = None) -> TrainCfg:
    """Return the typed objects of a tree, checked; `gpus` are those of the machine that trains, if it is another."""
    require_keys(tree, (*FRONT, *OPTIONAL, "metrics"))
    if not isinstance(tree["metrics"], Mapping):
        raise UserError(f"metrics={tree['metrics']!r}: is a group; set metrics.wandb")
    source, device = source_of(tree["task"]), resolve_device(tree["device"], gpus)
    found = source.resolve(tree, device)
    wandb = tree["metrics"].get("wandb", "off")
    wandb = "off" if wandb is False else str(wandb)  # YAML and Hydra read a bare off as the flag false.
    check_choice("metrics.wandb", wandb, WANDB_MODES)
    known = (*FRONT, *OPTIONAL, *found.keys, "metrics")
    learner = {key: value for key, value in tree.items() if key not in known}
    root = _root(tree["root"])
    words = {key: str(tree[key]) for key in ("device", "engine", "learner", "root")}
    run = from_dict(RunCfg, {**{key: tree[key] for key in to_dict(RunCfg())}, **words})
    if run.num_envs is None:
        raise UserError("num_envs", None, "must be a whole number")
    return TrainCfg(
        source=source,
        task=found.task,
        learner=read_learner({"name": str(tree["learner"]), **learner}),
        seed=run.seed,
        num_envs=run.num_envs,
        device=device,
        engine=found.engine,
        num_threads=run.num_threads,
        learner_threads=run.learner_threads,
        kernels=_kernels(tree["kernels"], source),
        init_from=RunDir.find(str(tree["init_from"]), root, key="init_from") if tree["init_from"] is not None else None,
        run_id=None if tree["run_id"] is None else check_run_id(tree["run_id"]),
        root=root,
        wandb=wandb,
        tree={**tree, **found.recorded, "device": device, "engine": found.engine},
    )


def resolve_for_gpu(changes: Mapping[str, Any], why: str, **front: Any) -> TrainCfg:
    """Return a run of our own tasks with the presets and the engine of GPUs, but on the CPU, to look at their work.

    Args:
        changes: Changed settings, by dotted name, the task among them.
        why: What looks at it, for errors.
        front: Front keys that the run has in any case.

    Raises:
        UserError: The task is of another source, or a setting is given that does not have an effect here.
    """
    rest = dict(changes)
    task = str(rest.pop("task"))
    if (source := source_of(task)).name != "robot-rl":
        raise UserError("task", task, f"{why} is for robot-rl's own tasks, this one is of {source.name}")
    fixed = {"device": "cpu", "engine": "mujoco_warp", **front}
    for key in rest.keys() & fixed.keys():
        raise UserError(key, rest[key], f"does not affect {why}", "omit it")
    tree = _tree(task, "cpu", "cuda:0", str(rest.get("learner", "")))
    return resolve(change(tree, {**rest, **fixed}))


def load(run_dir: RunDir, changes: Mapping[str, Any] | None = None, *, trust: bool = False) -> TrainCfg:
    """Return the settings of an existing run, from its run.yaml.

    Args:
        run_dir: The run.
        changes: Changed settings, by dotted name.
        trust: Import the code that the run's settings name, although it was not made here.

    Raises:
        UserError: run.yaml is missing, damaged or not that of the run's checkpoints, a value does not fit, the run's
            settings name code of a run that was not made here, or its task or robot has changed since it began.
    """
    record = run_dir.read_config()
    tree = record["config"]
    check_settings(run_dir, record)
    require_trust(tree, record.get("seal"), f"run {run_dir.run_id}", trust=trust)
    missing = [key for key in (*FRONT, "metrics") if key not in tree]
    if missing:
        raise UserError(f"{run_dir.config_file}: damaged, 'config' lacks {', '.join(missing)}")
    root = str(run_dir.path.parent.parent)
    learner = to_dict(get_learner(str(tree["learner"]))())
    since = {**OPTIONAL, **{key: value for key, value in learner.items() if key != "name"}}
    here = {"root": root, "init_from": None, "kernels": ""}
    began = {**since, **tree, **here}
    try:
        cfg = resolve(change(began, changes or {}))
    except UnknownKeyError as error:
        raise _explain(error, run_dir.run_id, began) from None
    check_unchanged(run_dir.run_id, record, cfg.task)
    return cfg


def _explain(error: UnknownKeyError, run_id: str, began: Mapping[str, Any]) -> UserError:
    """Return the error of a run's settings; if one that it began with is now unknown, say so."""
    if error.key not in trees.dotted_keys(began):
        return error
    part = "learner" if error.key.partition(".")[0] in to_dict(get_learner(str(began["learner"]))()) else "task"
    changed = f"{part}={began[part]} has changed since it began: {error.key} is now unknown"
    return UserError("run", run_id, changed, f"restore the {part}'s file, or train again")


def resolve_device(device: Any, gpus: int | None = None) -> str:
    """Return the device of "auto", "cpu", "cuda" or "cuda:<index>"; raise UserError otherwise.

    Args:
        device: As the user gives it.
        gpus: GPUs of the machine that trains; None: those of this one.
    """
    name = str(device)
    count = _count_gpus() if gpus is None else gpus
    if name == "auto":
        return _own_gpu(name, 0, count) if count else "cpu"
    if name == "cpu":
        return name
    kind, colon, index = name.partition(":")
    if kind != "cuda" or (colon and not (index.isascii() and index.isdecimal())):
        raise UserError("device", name, "must be auto, cpu, cuda or cuda:<index>")
    if int(index or 0) >= count:
        found = f"{count} GPU{'s' * (count != 1)} found" if count else "torch finds no GPU here"
        if gpus is not None:
            found = f"launcher.gpus={gpus}"
        raise UserError("device", name, found, "use device=cpu, or auto")
    return _own_gpu(name, int(index or 0), count)


GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/dev/nvgpu", "/dev/nvhost-gpu")
"""Without any of these files Linux lacks a GPU that PyTorch drives: NVIDIA's, AMD's, those of WSL and of a Jetson."""


def _count_gpus() -> int:
    if sys.platform == "linux" and "torch" not in sys.modules and not any(map(os.path.exists, GPU_DEVICES)):
        return 0  # A second of import is spared whoever mistypes a setting.
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _own_gpu(name: str, index: int, count: int) -> str:
    """Return the GPU of that index; where torchrun started several processes here, the one of this process."""
    from robot_rl.learn.ranks import find_local_rank

    local, processes = find_local_rank()
    if processes == 1:
        return f"cuda:{index}"
    if processes > count:
        raise UserError("device", name, f"{processes} processes on this machine, {count} GPUs", "start as many as GPUs")
    return f"cuda:{local}"


def _own_cores() -> int:
    """Return the cores of this process where torchrun started several on this machine."""
    from robot_rl.learn.ranks import find_local_rank

    return max(1, (os.cpu_count() or 1) // find_local_rank()[1])


def _root(value: Any) -> Path:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
        raise UserError("root", value, "must name the directory of all runs, such as root=runs")
    return Path(str(value))


def _kernels(value: Any, source: TaskSource) -> Path | None:
    if value in ("", None):
        return None
    if source.name != "robot-rl":
        raise UserError("kernels", value, "is for robot-rl's own tasks", "omit it")
    return Path(str(value))
