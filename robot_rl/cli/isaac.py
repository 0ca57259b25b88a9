"""Tasks of the command line that are environments of Isaac Lab: their settings, and what cannot be done with them."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.tree import coerce, copy_tree, leaves, refuse_engine
from robot_rl.errors import UserError

if TYPE_CHECKING:
    from robot_rl.cli.settings import TrainCfg

PREFIX = "isaac/"
ENGINE = "isaaclab"
NUM_ENVS_CPU = 16
"""Worlds on a CPU, where Newton steps one after the other."""
OWN = ("physics", "presets", "assets", "action_clip", "env")
"""Settings that take the place of a task's numbers; env holds those of the environment that are set by name."""
ELSEWHERE = {"scene.num_envs": "num_envs=", "sim.device": "device=", "seed": "seed="}
"""Settings of the environment that have a key of their own here."""
POSITIVE = ("decimation", "sim.dt", "episode_length_s")
"""Settings of the environment that divide something."""


def is_isaac(name: Any) -> bool:
    """Whether a task's name is that of an environment of Isaac Lab."""
    return str(name).startswith(PREFIX)


def default_parts(name: str, device: str) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The settings of such a task before anything is overridden.

    Args:
        name: "isaac/" and the environment's id.
        device: "cpu" or "cuda:<index>".

    Returns:
        The learner's settings, those in OWN, and how many worlds.

    Raises:
        UserError: Isaac Lab is missing or of another version, there is no such environment, or it has several agents.
    """
    from robot_rl.isaac.agent import action_clip, learner_changes
    from robot_rl.isaac.task import IsaacTask

    task = IsaacTask(name=name)
    cfg = task.load_cfg()
    task.check_single(cfg)
    agent = task.load_agent()
    learner = learner_changes(agent, task.observation_groups(cfg))
    num_envs = NUM_ENVS_CPU if device == "cpu" else int(cfg.scene.num_envs)
    own = {"physics": "auto", "presets": "", "assets": "", "action_clip": action_clip(agent), "env": {}}
    return learner, own, num_envs


def admit(tree: Mapping[str, Any], keys: Iterator[str] | list[str]) -> dict[str, Any]:
    """A tree in which the environment's own settings of these names stand with the values that they have there.

    The tree holds none of them at first: an environment of Isaac Lab has hundreds.

    Args:
        tree: The tree of such a task.
        keys: Dotted names; those that do not begin with "env." are left alone.

    Raises:
        UserError: The environment has no such setting; the line offers the nearest.
    """
    from robot_rl.isaac import settings

    wanted = [key.removeprefix("env.") for key in keys if key.startswith("env.")]
    known = dict(leaves(tree["env"]))
    fresh = [path for path in wanted if path not in known]
    if not fresh:
        return dict(tree)
    cfg = _task(tree).load_cfg()
    grown: dict[str, Any] = copy_tree(tree["env"])
    for path in fresh:
        value = settings.plain(settings.find(cfg, path)[2])
        *parents, last = path.split(".")
        node = grown
        for part in parents:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise UserError(f"env.{path}: another setting leaves '{part}' out")
        node[last] = value
    return {**tree, "env": grown}


def resolve_task(tree: Mapping[str, Any]) -> Any:
    """The `robot_rl.isaac.task.IsaacTask` that a tree stands for.

    Raises:
        UserError: A value of the wrong type, or a setting that only tasks of ours have.
    """
    from robot_rl.isaac import settings

    refuse_engine(tree, ENGINE, "choose it with physics=")
    if not isinstance(tree["env"], Mapping):
        raise UserError(f"env={tree['env']!r}: is a group; set one of its values, such as env.decimation")
    task = _task(tree)
    task.folder  # noqa: B018  # refuses a folder that is not there
    cfg = task.load_cfg()
    task.check_single(cfg)
    for path, value in leaves(tree["env"]):
        old = settings.model(cfg, path)
        is_free = value is None or old is None or bool(settings.children(old))
        task.settings[path] = value if is_free else coerce(old, value, f"env.{path}")
        if path in ELSEWHERE:
            raise UserError(f"env.{path}: is set by {ELSEWHERE[path]}")
        if path in POSITIVE and not (task.settings[path] or 0) > 0:
            raise UserError(f"env.{path}={value}: must be above 0")
        settings.put(cfg, path, task.settings[path])
    return task


def _task(tree: Mapping[str, Any]) -> Any:
    from robot_rl.isaac.task import IsaacTask

    words = {}
    for key in ("physics", "presets", "assets"):
        value = tree[key]
        if isinstance(value, list) and key == "presets":
            value = ",".join(str(item) for item in value)
        words[key] = "" if value is None else str(value)
    if words["assets"] not in ("", "own"):  # A run goes on from another folder, too.
        words["assets"] = str(Path(words["assets"]).expanduser().absolute())
    clip = tree["action_clip"]
    if clip is not None and (isinstance(clip, bool) or not isinstance(clip, int | float) or not clip > 0):
        raise UserError(f"action_clip={clip}: must be a number above 0, or null for no bound")
    return IsaacTask(name=str(tree["task"]), action_clip=None if clip is None else float(clip), **words)


def check_learner(env: Any, cfg: "TrainCfg") -> None:
    """Refuse a learner that would learn the wrong thing in an environment.

    Raises:
        UserError: rsl_rl's runner with choices as actions.
    """
    if cfg.learner.name == "rsl_rl" and env.action_choices is not None:
        raise UserError(f"learner=rsl_rl: the actions of {cfg.task.name} are choices; use learner=ppo")


def export_policy_there(cfg: "TrainCfg", actor: Any, out: Path, training: Any) -> Any:
    """Write the bundle of a policy that was trained in an environment of Isaac Lab.

    What the contract says of the observations is first held against the environment's own.

    Args:
        cfg: The run's settings.
        actor: The trained actor.
        out: Directory of the bundle.
        training: Where the policy comes from, a `robot_rl_deploy.contract.TrainingSpec`.

    Returns:
        The report of the bundle's check.

    Raises:
        UserError: The environment cannot be described, or observes something else than its description says.
        ContractError: The policy reads what no robot can measure.
    """
    from robot_rl_deploy.export import export_policy

    from robot_rl.isaac.agreement import check_observations

    with contextlib.closing(_make_export_env(cfg)) as env:
        env.policy_groups = tuple(cfg.learner.actor_groups)
        check_observations(env, training)
        return export_policy(env, actor, out, run=training)


def _make_export_env(cfg: "TrainCfg") -> Any:
    """One world of a run's environment as a robot sees it: no noise and no delay in what the policy observes.

    Args:
        cfg: The run's settings.
    """
    from robot_rl.isaac import settings

    task: Any = cfg.task
    lab_cfg = task.load_cfg(1, cfg.device)
    if hasattr(lab_cfg, "task"):  # One of ours among Isaac Lab's, which has noise of its own.
        from robot_rl.evaluate import evaluation_task

        lab_cfg.task = evaluation_task(lab_cfg.task)
    for name in cfg.learner.actor_groups:
        group = settings.children(getattr(lab_cfg, "observations", None)).get(name)
        if group is None:
            continue
        group.enable_corruption = False
        for term in settings.children(group).values():
            if hasattr(term, "delay_max_lag"):
                term.delay_min_lag = term.delay_max_lag = 0
    return task.make_env(1, seed=cfg.seed, device=cfg.device, cfg=lab_cfg)
