"""robot-rl bench isaac: the learner's overhead in an environment of Isaac Lab, beside Isaac Lab's own runner."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from robot_rl.cli.options import MAX_COUNT, MAX_ENVS, option, read
from robot_rl.errors import UserError


@dataclass(kw_only=True, slots=True)
class IsaacOptions:
    """Options of robot-rl bench isaac."""

    task: str = option("isaac/Isaac-Cartpole-Direct", "the environment")
    assets: str = option("", "a folder of USD files, or own, where Isaac Lab's store is out of reach")
    num_envs: int = option(64, "worlds", least=1, most=MAX_ENVS)
    device: str = option("auto", "auto, cpu, cuda or cuda:<index>")
    iterations: int = option(5, "iterations of a timed block", least=1, most=MAX_COUNT)
    repeats: int = option(7, "timed blocks of each", least=2, most=MAX_COUNT)
    out: str = option("", "file for the figures as JSON")


def bench_isaac(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Measures both; returns the result and where to write it."""
    from robot_rl.bench import isaac
    from robot_rl.experiment.settings import change, default_tree, resolve
    from robot_rl.sources.isaaclab.source import PREFIX

    options, dotted = read(IsaacOptions, arguments)
    if not options.task.startswith(PREFIX):
        raise UserError(f"task={options.task}: must be isaac/<id>; robot-rl bench env measures tasks of ours")
    told = {"num_envs": options.num_envs, "assets": options.assets, **dotted}
    cfg: Any = resolve(change(default_tree(options.task, options.device), told))
    told = {"num_envs": cfg.num_envs, "device": cfg.device}
    return isaac.bench_isaac(
        cfg.task, cfg.learner, **told, iterations=options.iterations, repeats=options.repeats
    ), options.out
