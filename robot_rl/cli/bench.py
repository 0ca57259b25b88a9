"""robot-rl bench: ours beside the rival, in turn, in one run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.cli.options import describe, option, parse_value, read, read_all
from robot_rl.cli.source import OVERRIDES_HELP
from robot_rl.errors import UserError, suggest


@dataclass(kw_only=True, slots=True)
class EnvOptions:
    """Options of robot-rl bench env."""

    task: str = option("go2_flat", "the task")
    num_envs: int = option(1024, "worlds")
    device: str = option("auto", "auto, cpu, cuda or cuda:<index>")
    engine: str = option("auto", "the environment's engine")
    repeats: int = option(31, "timed blocks of each")
    seed: int = option(0, "seed of worlds and actions")
    out: str = option("", "file for the figures as JSON")


@dataclass(kw_only=True, slots=True)
class LearnerOptions:
    """Options of robot-rl bench learner."""

    hidden: str = option("", "hidden layers of one network size, such as [128,128]; several sizes by default")
    num_envs: int = option(1024, "worlds of the rollout")
    num_steps: int = option(24, "steps of the rollout")
    device: str = option("cpu", "cpu, cuda or cuda:<index>")
    repeats: int = option(7, "timed updates of each")
    out: str = option("", "file for the figures as JSON")


HELP = f"""\
robot-rl bench: measure ours and the rival in turn (A B A B), in one run

usage: robot-rl bench env|learner [key=value ...]

env: control steps a second under random actions, against bare mujoco.batch.Batch.step
{describe(EnvOptions)}

learner: the PPO update, against rsl_rl's at equal arithmetic
{describe(LearnerOptions)}

Values are medians, spreads quartile distances; figures are worth what the machine was quiet.
{OVERRIDES_HELP}"""


def run(arguments: Sequence[str]) -> int:
    """Measures, prints the table and writes the figures."""
    from robot_rl.run_dir import write_json

    benches = {"env": bench_env, "learner": bench_learner}
    what = [word for word in arguments if "=" not in word]
    if len(what) != 1 or what[0] not in benches:
        raise UserError(
            f"bench {' '.join(what)}: must be one of {', '.join(benches)}; {suggest(''.join(what), benches)}"
        )
    result, out = benches[what[0]]([word for word in arguments if "=" in word])
    show(result)
    if out:
        write_json(Path(out), result)
        print(out)
    return 0


def bench_env(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Measures the environment; returns the result and where to write it."""
    from robot_rl.cli import tree as trees
    from robot_rl.cli.settings import default_tree, resolve

    options, dotted = read(EnvOptions, arguments)
    _check_repeats(options.repeats)
    told = {key: getattr(options, key) for key in ("num_envs", "engine", "seed")}
    cfg = resolve(trees.override(default_tree(options.task, options.device), {**told, **dotted}))
    from robot_rl.bench import env

    return env.bench_env(cfg.make_env, repeats=options.repeats, seed=options.seed), options.out


def bench_learner(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Measures the learner's update; returns the result and where to write it."""
    from robot_rl.cli.settings import resolve_device
    from robot_rl.config import NetworkCfg, from_dict

    options = read_all(LearnerOptions, arguments)
    _check_repeats(options.repeats)
    for name in ("num_envs", "num_steps"):
        if getattr(options, name) < 1:
            raise UserError(f"{name}={getattr(options, name)}: must be at least 1")
    told: dict[str, Any] = {"num_envs": options.num_envs, "num_steps": options.num_steps, "repeats": options.repeats}
    if options.hidden:
        told["sizes"] = [from_dict(NetworkCfg, {"hidden": parse_value(options.hidden, "hidden")}).hidden]
    from robot_rl.bench import learner

    return learner.bench_learner(**told, device=resolve_device(options.device)), options.out


def _check_repeats(repeats: int) -> None:
    if repeats < 2:
        raise UserError(f"repeats={repeats}: must be at least 2, for a spread")


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
