"""Find the other runs and files that a run's settings name: a teacher, a reference policy, recorded motion.

A policy sees the observation groups of the task that it was trained on. If the new run's task lacks a group, or has
a different one of that name, the group is copied from the policy's own task: a blind task lacks a height scan for a
teacher. A motion prior compares poses, an observation group that no task has either.
"""

import dataclasses
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError
from robot_rl.runs.run_dir import RunDir
from robot_rl.runs.settings import TrainCfg, default_tree, load, resolve
from robot_rl.runs.trust import require_trust
from robot_rl.settings import apply_overrides
from robot_rl.settings import tree as trees
from robot_rl.sources.registry import source_of

MOTION = "motion"
"""The observation group that a motion prior compares, as `robot_rl_envs.motion` calls it."""


def resolve_inputs(cfg: TrainCfg) -> TrainCfg:
    """Return a run with its teacher, reference and recorded motion found, and its task with the groups that they see.

    The checkpoint found is stored in the run's settings, so that a resumed run uses the same one.
    """
    if cfg.learner.needs_world_obs:
        cfg = dataclasses.replace(cfg, task=cfg.source.with_world(cfg.task))
    if _has_run(cfg.learner, "teacher"):
        cfg = _with_policy(cfg, "teacher")
    elif name := getattr(getattr(cfg.learner, "teacher", None), "policy", ""):
        cfg = _with_bundle(cfg, name)
    amp = getattr(cfg.learner, "amp", None)
    if amp is not None and amp.weight > 0:
        cfg = _with_motion(cfg, amp)
    return _with_policy(cfg, "reference") if _has_run(cfg.learner, "reference") else cfg


def _has_run(learner: Any, field: str) -> bool:
    return bool(getattr(getattr(learner, field, None), "run", ""))


def _with_motion(cfg: TrainCfg, amp: Any) -> TrainCfg:
    """Return a run with an absolute path of its recorded motion, and its task with the poses to compare."""
    found = {"amp.motions": str(Path(amp.motions).resolve())}
    return dataclasses.replace(
        cfg,
        task=cfg.source.with_motion(cfg.task) if amp.group == MOTION else cfg.task,
        learner=apply_overrides(cfg.learner, found),
        tree=trees.override(cfg.tree, found),
    )


def _with_policy(cfg: TrainCfg, field: str) -> TrainCfg:
    policy = getattr(cfg.learner, field)
    checkpoint = _find(policy.run, cfg.root, f"{field}.run")
    task, groups = cfg.task, policy.groups
    if not groups and cfg.source.adds_groups:
        task, groups = _with_groups(cfg, checkpoint, field)
    found = {f"{field}.run": str(checkpoint)}
    return dataclasses.replace(
        cfg,
        task=task,
        learner=apply_overrides(cfg.learner, {**found, f"{field}.groups": groups}),
        tree=trees.override(cfg.tree, found),
    )


def _with_bundle(cfg: TrainCfg, name: str) -> TrainCfg:
    """Return a run whose teacher is the policy of a bundle, and its task with the group that the policy sees."""
    from robot_rl.runs.bundle_teacher import find_teacher

    checkpoint, bundle = find_teacher(name, cfg.root)
    task, groups = cfg.task, cfg.learner.teacher.groups  # type: ignore[attr-defined]
    if not groups and cfg.source.adds_groups:
        try:
            task, groups = cfg.source.with_groups(task, _task_of(bundle.contract, cfg), ("actor",), "teacher")
        except UserError as error:
            raise UserError("teacher.policy", name, error) from error
    found = {"teacher.run": str(checkpoint), "teacher.groups": groups}
    return dataclasses.replace(cfg, task=task, learner=apply_overrides(cfg.learner, found))


def _task_of(contract: Any, cfg: TrainCfg) -> Any:
    """Return the task of a bundle; raise UserError if its observations or joints are not the contract's any more."""
    reference = contract.training.task
    require_trust({"task": reference}, None, f"task {reference}", trust=False)
    if source_of(reference) is not cfg.source:
        raise UserError(f"its task {reference} is not a task of {cfg.source.name}; give teacher.groups")
    task = resolve(default_tree(reference, "cpu")).task
    terms = {name: (term.scale, term.history) for name, term in task.observations["actor"].terms.items()}
    seen = {term.name: (term.scale, term.history) for term in contract.observations}
    if list(terms.items()) != list(seen.items()):
        raise UserError(f"sees {', '.join(seen)}, must be as in the task {task.name}: {', '.join(terms)}")
    wanted = {joint.name: joint.default_pos for joint in task.robot.joints}
    if (found := {joint.name: joint.default_pos for joint in contract.joints}) != wanted:
        raise UserError(f"has the default pose {found}, must be {wanted} as in the task {task.name}")
    return task


def _find(run: str, root: Path, key: str) -> Path:
    """Return the checkpoint that a run's id, its directory or a checkpoint's directory names."""
    from robot_rl.learn.auxiliaries.frozen import find_checkpoint

    path = Path(run) if Path(run).is_dir() else RunDir.find(run, root, key=key).path
    return find_checkpoint(str(path.resolve()), key.removesuffix(".run"))


def _with_groups(cfg: TrainCfg, checkpoint: Path, field: str) -> tuple[Any, tuple[str, ...]]:
    """Return the task with every group that a checkpoint's policy sees, and their names; none where unknown."""
    run_dir = RunDir(checkpoint.parent.parent)
    if not run_dir.config_file.is_file() or source_of(run_dir.read_config()["config"].get("task")) is not cfg.source:
        return cfg.task, ()
    other = load(run_dir, {"device": "cpu", "engine": "auto"})
    try:
        return cfg.source.with_groups(cfg.task, other.task, other.learner.actor_groups, field)
    except UserError as error:
        raise UserError(f"{field}.run", checkpoint, error) from error
