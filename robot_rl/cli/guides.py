"""What a run is given to go by, a teacher, a reference, recorded motion: where it is, and what it needs of the task.

A policy sees the observation groups of the task that it was trained on. Where the new run's task has no such group, or
another one of that name, it gets one, taken from the policy's own task: a blind task has no height scan for a teacher.
A motion prior compares poses, whose observation group is in no task either.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.errors import UserError

if TYPE_CHECKING:
    from robot_rl_envs.task import Task

    from robot_rl.cli.settings import TrainCfg


def with_guides(cfg: "TrainCfg") -> "TrainCfg":
    """A run with its teacher, its reference and its recorded motion found, and its task with the groups that they see.

    The checkpoint found goes into the run's settings, so that a resumed run asks the same one, whatever came after it.

    Args:
        cfg: The run, resolved.

    Raises:
        UserError: There is no such policy, or it is for another robot or other actions.
    """
    if _has_run(cfg.learner, "teacher"):
        cfg = _with_guide(cfg, "teacher")
    amp = getattr(cfg.learner, "amp", None)
    if amp is not None and amp.weight > 0:
        cfg = _with_motion(cfg)
    return _with_guide(cfg, "reference") if _has_run(cfg.learner, "reference") else cfg


def _has_run(learner: Any, field: str) -> bool:
    """Whether a learner has settings of that name, and they name a run."""
    return bool(getattr(getattr(learner, field, None), "run", ""))


def _with_motion(cfg: "TrainCfg") -> "TrainCfg":
    """A run whose recorded motion is found from wherever it is resumed, and whose task has the poses to compare."""
    from robot_rl_envs.motion import MOTION, with_motion

    from robot_rl.cli import foreign
    from robot_rl.cli import tree as trees
    from robot_rl.config import apply_overrides

    found = {"amp.motions": str(Path(cfg.learner.amp.motions).resolve())}
    is_added = cfg.learner.amp.group == MOTION and foreign.whose(cfg.task.name) is None
    return dataclasses.replace(
        cfg,
        task=with_motion(cfg.task) if is_added else cfg.task,
        learner=apply_overrides(cfg.learner, found),
        tree=trees.override(cfg.tree, found),
    )


def _with_guide(cfg: "TrainCfg", field: str) -> "TrainCfg":
    from robot_rl.cli import foreign
    from robot_rl.cli import tree as trees
    from robot_rl.config import apply_overrides

    guide = getattr(cfg.learner, field)
    checkpoint = _find(guide.run, cfg.root, f"{field}.run")
    task, groups = cfg.task, guide.groups
    if not groups and foreign.whose(task.name) is None:
        task, groups = _with_groups(task, checkpoint, field)
    found = {f"{field}.run": str(checkpoint)}
    return dataclasses.replace(
        cfg,
        task=task,
        learner=apply_overrides(cfg.learner, {**found, f"{field}.groups": groups}),
        tree=trees.override(cfg.tree, found),
    )


def _find(run: str, root: Path, key: str) -> Path:
    """The checkpoint that a run's id, its directory or a checkpoint's directory names."""
    from robot_rl.learn.auxiliaries.frozen import find_checkpoint
    from robot_rl.run_dir import RunDir

    path = Path(run) if Path(run).is_dir() else RunDir.find(run, root, key=key).path
    return find_checkpoint(str(path.resolve()), key.removesuffix(".run"))


def _with_groups(task: "Task", checkpoint: Path, field: str) -> tuple["Task", tuple[str, ...]]:
    """The task with every group that the policy of a checkpoint sees, and their names; none where nothing tells."""
    from robot_rl.cli import foreign
    from robot_rl.cli.settings import load
    from robot_rl.cli.tree import task_tree
    from robot_rl.run_dir import RunDir

    run_dir = RunDir(checkpoint.parent.parent)
    if not run_dir.config_file.is_file():
        return task, ()
    if foreign.whose(run_dir.read_config()["config"].get("task")) is not None:
        return task, ()
    theirs = load(run_dir, {"device": "cpu", "engine": "auto"})
    mine, other = task_tree(task), task_tree(theirs.task)
    _check_actions(task, theirs.task, {**mine["actions"]}, {**other["actions"]}, f"{field}.run={checkpoint}")
    observations, names = dict(task.observations), []
    for name in theirs.learner.actor_groups:
        is_there = name in observations and mine["observations"].get(name) == other["observations"][name]
        if is_there and _functions(observations[name]) == _functions(theirs.task.observations[name]):
            names.append(name)
            continue
        names.append(f"{field}_{name}")
        observations[names[-1]] = theirs.task.observations[name]
    return dataclasses.replace(task, observations=observations), tuple(names)


def _functions(group: Any) -> list[Any]:
    return [getattr(term, "fn", None) for term in getattr(group, "terms", {}).values()]


def _check_actions(task: "Task", other: "Task", mine: Mapping[str, Any], theirs: Mapping[str, Any], what: str) -> None:
    """Refuses a policy whose actions mean something else."""
    if task.robot.name != other.robot.name:
        raise UserError(f"{what}: is for the robot {other.robot.name}, must be for {task.robot.name}")
    for key, value in theirs.items():
        if mine.get(key) != value:
            raise UserError(f"{what}: has actions.{key}={value}, must be {mine.get(key)} as in {task.name}")
