"""robot-rl bench: ours beside the rival, in turn, in one run."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.cli.options import describe, option, read
from robot_rl.errors import UserError, suggest


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl bench."""

    task: str = option("go2_flat", "the task")
    num_envs: int = option(1024, "worlds")
    device: str = option("auto", "auto, cpu, cuda or cuda:<index>")
    engine: str = option("auto", "the environment's engine")
    repeats: int = option(15, "repeats; medians and quartile distances are over these")
    seed: int = option(0, "seed of worlds and actions")
    out: str = option("", "file for the figures as JSON")


HELP = f"""\
robot-rl bench: measure ours and the rival in turn (A B A B), in one run

usage: robot-rl bench env [key=value ...]
       robot-rl bench learner [key=value ...]

  env       control steps a second under random actions, against bare mujoco.batch.Batch.step
  learner   the PPO update, against rsl_rl's at equal arithmetic

{describe(Options)}

Figures are worth what the machine was quiet.
"""


def run(arguments: Sequence[str]) -> int:
    """Measures, prints the table and writes the figures."""
    from robot_rl.run_dir import write_json

    benches: dict[str, Callable[[Options, Mapping[str, Any]], dict[str, Any]]] = {"env": _env, "learner": _learner}
    what = [word for word in arguments if "=" not in word]
    if len(what) != 1 or what[0] not in benches:
        wrong = what[-1] if what else ""
        raise UserError(f"bench {' '.join(what)}: must be one of {', '.join(benches)}; {suggest(wrong, benches)}")
    options, dotted = read(Options, [word for word in arguments if "=" in word])
    if options.repeats < 2:
        raise UserError(f"repeats={options.repeats}: must be at least 2, for a spread")
    result = benches[what[0]](options, dotted)
    show(result)
    if options.out:
        write_json(Path(options.out), result)
        print(options.out)
    return 0


def _settings(options: Options, dotted: Mapping[str, Any]) -> Any:
    from robot_rl.cli import tree as trees
    from robot_rl.cli.settings import default_tree, resolve

    told = {key: getattr(options, key) for key in ("num_envs", "engine", "seed")}
    return resolve(trees.override(default_tree(options.task, options.device), {**told, **dotted}))


def _env(options: Options, dotted: Mapping[str, Any]) -> dict[str, Any]:
    from robot_rl.bench.env import bench_env

    cfg = _settings(options, dotted)
    return bench_env(functools.partial(cfg.make_env), repeats=options.repeats, seed=options.seed)


def _learner(options: Options, dotted: Mapping[str, Any]) -> dict[str, Any]:
    from robot_rl.bench.learner import bench_learner

    cfg = _settings(options, dotted)
    return bench_learner(cfg.make_env, cfg.learner, repeats=options.repeats, seed=options.seed)


def show(result: Mapping[str, Any]) -> None:
    """Prints a result: who, value, spread; the ratio of ours to the rival's; the settings."""
    from rich.console import Console
    from rich.table import Table

    print(f"{result['name']}: {result['machine']['cpu']}, {result['machine']['cores']} cores")
    table = Table()
    for name in ("who", "value", "spread", "unit"):
        table.add_column(name, justify="right" if name in ("value", "spread") else "left")
    for row in result["rows"]:
        table.add_row(row["who"], _figure(row["value"]), _figure(row["spread"]), row["unit"])
    Console().print(table)
    if result.get("ratio") is not None:
        print(f"ratio ours / rival: {result['ratio']:.3f}")
    for key, value in result.get("notes", {}).items():
        print(f"  {key}: {value}")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
