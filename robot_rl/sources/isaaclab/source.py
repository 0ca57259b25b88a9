"""The source of tasks that are environments of Isaac Lab."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from robot_rl.errors import UserError, as_user_error
from robot_rl.settings import LearnerCfg
from robot_rl.settings.tree import coerce, copy_tree, leaves
from robot_rl.sources.external import ExternalSource
from robot_rl.sources.protocol import NEEDS_OUR_TASK, Defaults, EnvOptions, Resolved, require_team_learner

if TYPE_CHECKING:
    from robot_rl.sources.isaaclab.task import IsaacTask

NUM_ENVS_CPU = 16
"""Worlds on a CPU, where Newton steps one after the other."""
ELSEWHERE = {"scene.num_envs": "num_envs=", "sim.device": "device=", "seed": "seed="}
"""Settings of the environment that have their own key here."""
POSITIVE = ("decimation", "sim.dt", "episode_length_s")
"""Settings of the environment that divide something."""
CALLABLE = re.compile(r"\s*(?:lambda\b|[\w.]+\s*:\s*\w)")
"""A function in Isaac Lab's settings: <module>:<name>, or its text."""


class IsaacLabSource(ExternalSource):
    """Tasks that are a `robot_rl.sources.isaaclab.task.IsaacTask`."""

    name = engine = "isaaclab"
    prefix = "isaac/"
    keys = ("physics", "presets", "assets", "action_clip", "env")
    instead = "choose it with physics="
    pattern = "isaac/<id>"
    summary = "any environment of Isaac Lab, where that is installed: make isaac (docs/isaac.md)"
    settings_help = """\
of an environment of Isaac Lab:
  physics=auto  presets=                             presets of its physics, and others it declares, by name
  assets=<folder>|own                                where USD files are that its store should have, but is out of reach
  action_clip=<bound>                                largest action
  env.<path>=                                        anything of its configuration: env.rewards.alive.weight=2
"""
    unsupported: ClassVar[Mapping[str, str]] = {key: why for key, why in NEEDS_OUR_TASK.items() if key != "export"} | {
        "video": "is filmed by Isaac Lab's own tools; robot-rl eval reports figures"
    }

    def defaults(self, name: str, device: str) -> Defaults:
        """Return the settings of an environment, and those of its rsl_rl agent in the learner's names."""
        from robot_rl.sources.isaaclab.agent import action_clip, learner_changes, team_changes
        from robot_rl.sources.isaaclab.task import IsaacTask, agents_of

        task = IsaacTask(name=name)
        cfg = task.load_cfg()
        agent, groups, is_team = task.load_agent(), task.observation_groups(cfg), bool(agents_of(cfg))
        learner, changes = ("mappo", team_changes) if is_team else ("ppo", learner_changes)
        num_envs = NUM_ENVS_CPU if device == "cpu" else int(cfg.scene.num_envs)
        front = {"physics": "auto", "presets": "", "assets": "", "action_clip": action_clip(agent), "env": {}}
        return Defaults(presets={learner: changes(agent, groups)}, settings=front, num_envs=num_envs, learner=learner)

    def resolve(self, tree: Mapping[str, Any], device: str) -> Resolved:
        """Return the environment with the tree's presets and settings."""
        from robot_rl.sources.isaaclab import settings

        given = self.check_tree(tree, "such as env.decimation")
        task = _task(tree)
        task.folder  # noqa: B018  # refuses a folder that is not there
        cfg = task.load_cfg()
        for path, value in leaves(given):
            old = settings.model(cfg, path)
            is_free = value is None or old is None or bool(settings.children(old))
            task.settings[path] = value if is_free else coerce(old, value, f"env.{path}")
            if path in ELSEWHERE:
                raise UserError(f"env.{path}: is set by {ELSEWHERE[path]}")
            if path in POSITIVE and not (task.settings[path] or 0) > 0:
                raise UserError(f"env.{path}", value, "must be above 0")
            settings.put(cfg, path, task.settings[path])
        return Resolved(task=task, engine=self.engine, keys=self.keys, recorded={"assets": task.assets})

    def check_learner(self, env: Any, task: "IsaacTask", learner: LearnerCfg) -> None:
        """Refuse a learner of one agent with several, and rsl_rl's runner with choices as actions."""
        if agents := getattr(env, "agents", ()):
            require_team_learner(learner, task.name, "agent", agents)
        else:
            super().check_learner(env, task, learner)

    def admit(self, tree: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
        """Return a tree that has the environment's settings of these names ("env.<path>") with their values.

        The tree has none of them at first: an environment of Isaac Lab has hundreds.
        """
        from robot_rl.sources.isaaclab import settings

        wanted = [key.removeprefix("env.") for key in keys if key.startswith("env.")]
        known = dict(leaves(tree.get("env", {})))
        fresh = [path for path in wanted if path not in known]
        if not fresh:
            return dict(tree)
        cfg = _task(tree).load_cfg()
        env: dict[str, Any] = copy_tree(tree["env"])
        for path in fresh:
            value = settings.plain(settings.find(cfg, path)[2])
            *parents, last = path.split(".")
            node = env
            for part in parents:
                node = node.setdefault(part, {})
                if not isinstance(node, dict):
                    raise UserError(f"env.{path}: another setting leaves '{part}' out")
            node[last] = value
        return {**tree, "env": env}

    def named_code(self, tree: Mapping[str, Any]) -> list[str]:
        """Return the module that registers the environment, and settings that are functions."""
        return super().named_code(tree) + [text for text in _texts(tree.get("env")) if CALLABLE.match(text)]

    def export(
        self,
        task: "IsaacTask",
        worlds: EnvOptions,
        actor: Any,
        *,
        groups: tuple[str, ...],
        out: Path,
        training: Any,
        opset: int | None = None,
    ) -> Any:
        """Write the bundle of a policy, after comparing its contract with the environment's observations."""
        from robot_rl_deploy.export import export_policy

        from robot_rl.sources.isaaclab.describe import check_observations
        from robot_rl.sources.isaaclab.task import agents_of

        if agents := agents_of(task.load_cfg()):
            line = f"{task.name} has {len(agents)} agents ({', '.join(agents)}) and does not describe the robot of each"
            raise UserError(f"export: {line}; eval needs no bundle")
        with as_user_error(), contextlib.closing(_make_export_env(task, worlds, groups)) as env:
            env.policy_groups = groups
            check_observations(env, training)
            return export_policy(env, actor, out, run=training, opset=opset)


def _task(tree: Mapping[str, Any]) -> Any:
    from robot_rl.sources.isaaclab.task import IsaacTask

    texts = {}
    for key in ("physics", "presets", "assets"):
        value = tree[key]
        if isinstance(value, list) and key == "presets":
            value = ",".join(str(item) for item in value)
        texts[key] = "" if value is None else str(value)
    if texts["assets"] not in ("", "own"):  # A run may be resumed from another folder.
        texts["assets"] = str(Path(texts["assets"]).expanduser().absolute())
    clip = tree["action_clip"]
    if clip is not None and (isinstance(clip, bool) or not isinstance(clip, int | float) or not clip > 0):
        raise UserError("action_clip", clip, "must be a number above 0, or null for no bound")
    return IsaacTask(name=str(tree["task"]), action_clip=None if clip is None else float(clip), **texts)


def _make_export_env(task: "IsaacTask", worlds: EnvOptions, groups: tuple[str, ...]) -> Any:
    """Make one world of a run's environment as a robot sees it: observations without noise and delay."""
    from robot_rl.sources.isaaclab import settings

    lab_cfg = task.load_cfg(1, worlds.device)
    if hasattr(lab_cfg, "task"):  # One of ours among Isaac Lab's, which has its own noise.
        from robot_rl.evaluation import evaluation_task

        lab_cfg.task = evaluation_task(lab_cfg.task)
    for name in groups:
        group = settings.children(getattr(lab_cfg, "observations", None)).get(name)
        if group is None:
            continue
        group.enable_corruption = False
        for term in settings.children(group).values():
            if hasattr(term, "delay_max_lag"):
                term.delay_min_lag = term.delay_max_lag = 0
    return task.make_env(1, seed=worlds.seed, device=worlds.device, cfg=lab_cfg)


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        for value in node.values():
            yield from _texts(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _texts(value)
    elif isinstance(node, str):
        yield node
