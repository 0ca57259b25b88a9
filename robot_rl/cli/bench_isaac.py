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
    from robot_rl.cli import tree as trees
    from robot_rl.cli.isaac import is_isaac
    from robot_rl.cli.settings import default_tree, grown, resolve

    options, dotted = read(IsaacOptions, arguments)
    if not is_isaac(options.task):
        raise UserError(f"task={options.task}: must be isaac/<id>; robot-rl bench env measures tasks of ours")
    tree = grown(default_tree(options.task, options.device), dotted)
    cfg: Any = resolve(trees.override(tree, {"num_envs": options.num_envs, "assets": options.assets, **dotted}))
    told = {"num_envs": cfg.num_envs, "device": cfg.device}
    return isaac.bench_isaac(
        cfg.task, cfg.learner, **told, iterations=options.iterations, repeats=options.repeats
    ), options.out
