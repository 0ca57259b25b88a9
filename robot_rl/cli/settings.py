"""What a training run is told, as one tree of plain values, and the typed objects it stands for.

The tree holds the front keys (task, seed, num_envs, ...), the learner's settings (max_iterations, ppo.*, actor.*) and
the task's numbers (rewards.*, sim.*) side by side, so that everything is overridden by one short name. run.yaml keeps
it.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli import foreign, isaac
from robot_rl.cli import tree as trees
from robot_rl.cli.agreement import check_settings
from robot_rl.cli.options import MAX_ENVS, MAX_SEED
from robot_rl.config import LearnerCfg, to_dict
from robot_rl.consent import require
from robot_rl.errors import UserError, suggest
from robot_rl.run_dir import RunDir, check_run_id

if TYPE_CHECKING:
    from robot_rl_envs.env import Env
    from robot_rl_envs.task import Task

    from robot_rl.learn.ranks import Ranks

FRONT = ("task", "seed", "num_envs", "device", "engine", "learner", "init_from", "root", "num_threads")
OPTIONAL = {"run_id": None}
"""Further keys in front, which runs of earlier versions do not have, and what they are there."""
MAX_THREADS = 4096
WANDB = ("off", "offline", "online")


@dataclass(kw_only=True, slots=True)
class TrainCfg:
    """A training run, resolved.

    Attributes:
        task: The task with the overrides applied; a `robot_rl.gym.task.GymTask` where its name begins with "gym:",
            a `robot_rl.isaac.task.IsaacTask` where it begins with "isaac/".
        learner: The learner's configuration.
        seed: Seed of every random stream.
        num_envs: Number of worlds, of all processes together.
        device: "cpu" or "cuda:<index>"; of several processes on a machine each has a GPU of its own.
        engine: "mujoco", "mujoco_warp", "isaac" or, for such a task, "gymnasium" or "isaaclab".
        num_threads: Threads of the CPU engine; 0 takes all cores.
        init_from: The run whose weights training starts from; None for fresh ones.
        run_id: The run's id, given by hand: where there is such a run, it goes on. None for an id of its own.
        root: The directory of all runs.
        wandb: "off", "offline" or "online".
        tree: All of this as plain nested values.
    """

    task: "Task"
    learner: LearnerCfg
    seed: int
    num_envs: int
    device: str
    engine: str
    num_threads: int
    init_from: RunDir | None
    run_id: str | None
    root: Path
    wandb: str
    tree: dict[str, Any]

    def make_env(self, num_envs: int | None = None, seed: int | None = None, ranks: "Ranks | None" = None) -> "Env":
        """Builds the environment.

        Args:
            num_envs: Another number of worlds than training's.
            seed: Another seed than training's.
            ranks: The processes that the worlds are divided among; None: all are this one's.

        Raises:
            UserError: The task does not fit the robot or the engine.
        """
        worlds, first, threads = num_envs or self.num_envs, 0, self.num_threads
        if ranks is not None and ranks.size > 1:
            worlds = ranks.share(worlds, "num_envs")
            first, threads = ranks.rank * worlds, threads or _own_cores()
        seed = self.seed if seed is None else seed
        if foreign.whose(self.task.name) is not None:
            return self._make_foreign_env(worlds, seed + first)
        from robot_rl_envs.make import make_env

        start_warp()
        with asked():
            return make_env(
                self.task,
                num_envs=worlds,
                device=self.device,
                engine=self.engine,
                seed=seed,
                num_threads=threads,
                world_offset=first,
            )

    def _make_foreign_env(self, num_envs: int, seed: int) -> Any:
        env = self.task.make_env(num_envs, seed=seed, device=self.device)  # type: ignore[attr-defined]
        try:
            foreign.whose(self.task.name).check_learner(env, self)  # type: ignore[union-attr]
        except UserError:
            env.close()
            raise
        return env


@contextlib.contextmanager
def asked() -> Iterator[None]:
    """What is built inside is what the user asked for: its ValueError or missing file is a `UserError`."""
    try:
        yield
    except UserError:
        raise
    except (ValueError, FileNotFoundError) as error:
        raise UserError(str(error)) from error


def start_warp() -> None:
    """Starts Warp, and where there is no GPU keeps the line off stderr in which its native part says so."""
    import torch
    import warp

    warp.config.log_level = warp.LOG_WARNING
    if torch.cuda.is_available():
        return
    sys.stderr.flush()
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
            warp.init()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def find_task(name: str) -> "Task":
    """The registered task called `name`.

    Raises:
        UserError: There is none; the nearest is offered.
    """
    from robot_rl_tasks.registry import get_task

    try:
        return get_task(name)
    except ValueError as error:
        # What ends so is an id of Gymnasium more often than a slip.
        hint = f"; an environment of Gymnasium is task=gym:{name}" if re.search(r"-v\d+$", name) else ""
        hint = f"; an environment of Isaac Lab is task=isaac/{name}" if name.startswith("Isaac") else hint
        raise UserError(f"{error}{hint}") from error


def default_tree(name: str, device: str = "auto", learner: str = "ppo") -> dict[str, Any]:
    """The tree of a task before anything is overridden.

    Args:
        name: The task's name.
        device: As the user gives it; on a CPU the task's preset for CPUs applies.
        learner: The learner, whose settings join the task's.

    Raises:
        UserError: There is no such task, device or learner.
    """
    from robot_rl.learn.algorithms import preset_learner

    on_cpu = (found := resolve_device(device)) == "cpu"
    if foreign.whose(name) is not None:
        presets, parts, num_envs = foreign.default_parts(name, found)
        presets = {"ppo": presets}
    else:
        task = find_task(name)
        presets = {"ppo": {**task.learner, **(task.learner_cpu if on_cpu else {})}, **task.presets}
        num_envs, parts = task.num_envs[0 if on_cpu else 1], trees.task_tree(task)
    cfg = to_dict(preset_learner(learner, presets))
    front = {
        "task": name,
        "seed": 1,
        "num_envs": num_envs,
        "max_iterations": cfg.pop("max_iterations"),
        "device": device,
        "engine": "auto",
        "learner": cfg.pop("name"),
        "init_from": None,
        "root": "runs",
        "num_threads": 0,
        **OPTIONAL,
    }
    metrics = {"wandb": "off", **parts.pop("metrics", {})}
    twice = (set(front) & set(parts)) | (set(front) & set(cfg)) | (set(parts) & set(cfg))
    if twice:
        raise UserError(
            f"learner={learner}: has settings that every run or task has ({', '.join(sorted(twice))}); rename them"
        )
    return {**front, "metrics": metrics, **cfg, **parts}


def resolve(tree: Mapping[str, Any]) -> TrainCfg:
    """The typed objects that a tree stands for, checked.

    Args:
        tree: As made by `default_tree`, with some values changed.

    Raises:
        UserError: A value of the wrong type or out of range, or something that is not to be had here.
    """
    from robot_rl.learn.algorithms import read_learner

    theirs = foreign.whose(tree.get("task"))
    own = theirs.OWN if theirs is not None else ()
    for key in (*FRONT, *OPTIONAL, "metrics", *own):
        if key not in tree:
            raise UserError(f"{key}: is missing, it can be changed but not left out")
    task = theirs.resolve_task(tree) if theirs is not None else find_task(str(tree["task"]))
    known = dict.fromkeys(own) if theirs is not None else trees.task_tree(task)
    if not isinstance(tree["metrics"], Mapping):
        raise UserError(f"metrics={tree['metrics']!r}: is a group; set metrics.wandb")
    metrics = dict(tree["metrics"])
    wandb = _choice("metrics.wandb", metrics.pop("wandb", "off"), WANDB)
    parts = {key: tree[key] for key in known if key in tree and key != "metrics"}
    if "metrics" in known:
        parts["metrics"] = metrics
    learner = {key: value for key, value in tree.items() if key not in (*FRONT, *OPTIONAL, *known, "metrics")}
    device = resolve_device(tree["device"])
    engine = theirs.ENGINE if theirs is not None else _engine(str(tree["engine"]), device)
    root = _root(tree["root"])
    task = task if theirs is not None else trees.apply_tree(task, parts)
    if theirs is None and not task.rewards:
        raise UserError("rewards={}: needs at least one term; without a reward nothing is learned")
    # What was read from files stands in run.yaml as figures: a run goes on without them.
    read = (
        {key: getattr(task, key) for key in ("assets",) if key in own}
        if theirs is not None
        else {key: trees.task_tree(task)[key] for key in ("actions", "randomize") if key in tree}
    )
    return TrainCfg(
        task=task,
        learner=read_learner({"name": tree["learner"], **learner}),
        seed=_whole("seed", tree["seed"], 0, MAX_SEED),
        num_envs=_whole("num_envs", tree["num_envs"], 1, MAX_ENVS),
        device=device,
        engine=engine,
        num_threads=_whole("num_threads", tree["num_threads"], 0, MAX_THREADS),
        init_from=RunDir.find(str(tree["init_from"]), root, key="init_from") if tree["init_from"] is not None else None,
        run_id=None if tree["run_id"] is None else check_run_id(tree["run_id"]),
        root=root,
        wandb=wandb,
        tree={**tree, **read, "device": device, "engine": engine},
    )


def check_left_out(name: str, key: str) -> None:
    """Refuse to leave out (`~key`) what a task cannot be without: a group as a whole, or a single value.

    Args:
        name: The task's name.
        key: A dotted name of its tree.

    Raises:
        UserError: The line says what can be left out there.
    """
    known = [] if foreign.whose(name) is not None else sorted(trees.named_parts(find_task(name)))
    if key in known:
        return
    inside = [part for part in known if part.rpartition(".")[0] == key]
    right = f"leave out its parts, such as ~{' ~'.join(inside[:3])}" if inside else "leave out the ~ and give a value"
    raise UserError(f"~{key}: can be changed but not left out; {right}")


def load(run_dir: RunDir, overrides: Mapping[str, Any] | None = None, *, trust: bool = False) -> TrainCfg:
    """The settings of a run that is there, from its run.yaml.

    Args:
        run_dir: The run.
        overrides: Values by dotted name that replace the run's.
        trust: Import the code that the run's settings name, although it was not made here.

    Raises:
        UserError: run.yaml is missing, damaged or not that of the run's checkpoints, a value does not fit, or the
            run's settings name code of a run that was not made here.
    """
    from robot_rl.learn.algorithms import get_learner

    record = run_dir.read_config()
    tree = record["config"]
    check_settings(run_dir, record)
    require(tree, record.get("seal"), f"run {run_dir.run_id}", trust=trust)
    missing = [key for key in (*FRONT, "metrics") if key not in tree]
    if missing:
        raise UserError(f"{run_dir.config_file}: damaged, 'config' lacks {', '.join(missing)}")
    root = str(run_dir.path.parent.parent)
    learner = to_dict(get_learner(str(tree["learner"]))())
    since = {**OPTIONAL, **{key: value for key, value in learner.items() if key != "name"}}
    whole = {**since, **tree, "root": root, "init_from": None}
    return resolve(trees.override(grown(whole, overrides or {}), overrides or {}))


def grown(tree: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """A tree that has the settings of these dotted names, where the environment has them and the tree not all of them.

    Args:
        tree: As made by `default_tree`.
        keys: Dotted names.

    Raises:
        UserError: The environment is Isaac Lab's, and has no such setting.
    """
    return isaac.admit(tree, list(keys)) if isaac.is_isaac(tree.get("task")) else dict(tree)


def resolve_device(device: Any) -> str:
    """The device that "auto", "cpu", "cuda" or "cuda:<index>" means on this machine.

    Raises:
        UserError: The word is unknown, or there is no such GPU.
    """
    import torch

    name = str(device)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return _own_gpu(name, 0, count) if count else "cpu"
    if name == "cpu":
        return name
    kind, colon, index = name.partition(":")
    if kind != "cuda" or (colon and not (index.isascii() and index.isdecimal())):
        near = suggest(name, ("auto", "cpu", "cuda"))
        raise UserError(f"device={name}: must be auto, cpu, cuda or cuda:<index>; {near}")
    if int(index or 0) >= count:
        found = f"{count} GPU{'s' * (count != 1)} found" if count else "torch finds no GPU here"
        raise UserError(f"device={name}: {found}; use device=cpu, or auto")
    return _own_gpu(name, int(index or 0), count)


def _own_gpu(name: str, index: int, count: int) -> str:
    """The GPU of that index; where torchrun started several processes here, the one of this process."""
    from robot_rl.learn.ranks import find_local_rank

    local, processes = find_local_rank()
    if processes == 1:
        return f"cuda:{index}"
    if processes > count:
        raise UserError(f"device={name}: {processes} processes on this machine, {count} GPUs; start as many as GPUs")
    return f"cuda:{local}"


def _own_cores() -> int:
    """The cores of this process where torchrun started several on this machine."""
    from robot_rl.learn.ranks import find_local_rank

    return max(1, (os.cpu_count() or 1) // find_local_rank()[1])


def _engine(name: str, device: str) -> str:
    from robot_rl_envs.engines import resolve_engine

    with asked():
        return resolve_engine(name, device)


def _root(value: Any) -> Path:
    right = "must name the directory of all runs, such as root=runs"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UserError(f"root={value}: {right}")
    if not str(value).strip():
        raise UserError(f"root= is empty, {right}")
    return Path(str(value))


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UserError(f"{name}={value}: must be a whole number of at least {least} and at most {most}")
    return value


def _choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    # YAML and Hydra read a bare off as the flag false.
    word = "off" if value is False else str(value)
    if word not in choices:
        raise UserError(f"{name}={value}: must be one of {', '.join(choices)}")
    return word
