"""Measure ours and the code that it is compared with in turn (A B A B), in one run.

usage: robot-rl bench env|learner [key=value ...]

env: control steps a second under random actions, against the bare steps of the engine
{EnvOptions}

learner: the PPO update, against rsl_rl's at equal arithmetic
{LearnerOptions}

Values are medians, spreads quartile distances; figures are reliable only on an idle machine. Other comparisons are
scripts of the source checkout, in benchmarks/:
  {scripts}
{CHANGES_HELP}
"""

import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.cli.options import MAX_COUNT, MAX_ENVS, MAX_SEED, option, parse_value, read, read_all, split_bare
from robot_rl.cli.table import print_table
from robot_rl.errors import UserError, one_of
from robot_rl.runs.outputs import BENCH, check_outputs


@dataclass(kw_only=True, slots=True)
class EnvOptions:
    """Options of robot-rl bench env."""

    task: str = option("go2_flat", "the task")
    num_envs: int = option(1024, "worlds")
    device: str = option("auto", "auto, cpu, cuda or cuda:<index>")
    engine: str = option("auto", "the environment's engine")
    repeats: int = option(31, "timed blocks of each, at least 2 for a spread", least=2, most=MAX_COUNT)
    seed: int = option(0, "seed of worlds and actions", least=0, most=MAX_SEED)
    profile: bool = option(True, "also time the stages of a step, after the figure's blocks")
    out: str = option("", "file for the figures as JSON")


@dataclass(kw_only=True, slots=True)
class LearnerOptions:
    """Options of robot-rl bench learner."""

    hidden: str = option("", "hidden layers of one network size, such as [128,128]; several sizes by default")
    num_envs: str = option("[1024,4096]", "worlds of the rollouts")
    num_steps: int = option(24, "steps of the rollout", least=1, most=100_000)
    device: str = option("cpu", "cpu, cuda or cuda:<index>")
    repeats: int = option(7, "timed updates of each, at least 2 for a spread", least=2, most=MAX_COUNT)
    out: str = option("", "file for the figures as JSON")


MOVED = {
    "async": "overlap.py",
    "env rival=mjlab": "env_mjlab.py",
    "gymnasium": "gymnasium_v5.py",
    "isaac": "isaac_overhead.py",
    "learner rival=skrl": "team_update.py",
    "learners": "learners.py",
    "mamujoco": "mamujoco.py",
    "precision": "precision_speed.py",
    "runtime": "runtime_speed.py",
}
"""The words of benchmarks that are scripts now, and their names in benchmarks/."""
scripts = textwrap.fill(", ".join(MOVED.values()), 110, subsequent_indent="  ")


def run(arguments: Sequence[str]) -> int:
    """Measure, print the table and write the figures."""
    from robot_rl.files import write_json

    benches = {"env": (bench_env, show), "learner": (bench_learner, show_learner)}
    bare, rest = split_bare(arguments)
    what = " ".join(bare)
    for words, script in MOVED.items():
        if set(words.split()) <= set(arguments):
            raise UserError(f"bench {words}: is a script of the source checkout now; run python benchmarks/{script}")
    if what not in benches:
        raise UserError(f"bench {what}: {one_of(what, benches)}")
    check_outputs(arguments, {"out": BENCH})
    measure, print_result = benches[what]
    result, out = measure(rest)
    print_result(result)
    if out:
        write_json(Path(out), result)
        print(out)
    return 0


def bench_env(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Measure the environment; return the result and where to write it."""
    from robot_rl.runs.settings import change, default_tree, resolve
    from robot_rl.sources.registry import refuse_unsupported

    options, dotted = read(EnvOptions, arguments)
    refuse_unsupported(options.task, "bench env")
    given = {key: getattr(options, key) for key in ("num_envs", "engine", "seed")}
    cfg = resolve(change(default_tree(options.task, options.device), {**given, **dotted}))
    from robot_rl.performance import env

    result = env.bench_env(cfg.make_env, repeats=options.repeats, seed=options.seed, profile=options.profile)
    return result, options.out


def bench_learner(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Measure the learner's update; return the result and where to write it."""
    from robot_rl.runs.settings import resolve_device
    from robot_rl.settings import NetworkCfg, from_dict

    options = read_all(LearnerOptions, arguments)
    given: dict[str, Any] = {"num_steps": options.num_steps, "repeats": options.repeats, "say": say}
    given |= {"num_envs": numbers("num_envs", options.num_envs), "device": resolve_device(options.device)}
    if options.hidden:
        given["sizes"] = [from_dict(NetworkCfg, {"hidden": parse_value(options.hidden, "hidden")}).hidden]
    from robot_rl.performance import learner

    return learner.bench_learner(**given), options.out


def say(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


def numbers(name: str, text: str) -> list[int]:
    """Return the numbers of worlds in an option's text; raise UserError for a value that is not such a number."""
    value = parse_value(text, name)
    found = value if isinstance(value, list) else [value]
    if not found or not all(type(number) is int and 0 < number <= MAX_ENVS for number in found):
        raise UserError(name, text, f"must be whole numbers from 1 to {MAX_ENVS}, such as [256,1024]")
    return found


def show(result: Mapping[str, Any]) -> None:
    """Print the rows, the ratio of ours to the rival's, the stages of a step and the settings of a result."""
    print(f"{result['name']}: {result['machine']['cpu']}, {result['machine']['cores']} cores")
    rows = [(row["who"], _figure(row["value"]), _figure(row["spread"]), row["unit"]) for row in result["rows"]]
    print_table(("who", "value", "spread", "unit"), rows, right=(1, 2))
    if result.get("ratio") is not None:
        print(f"ratio ours / rival: {result['ratio']:.3f}")
    if profile := result.get("profile"):
        stages = [(name, f"{one['share']:.1%}", f"{one['ms']:.3f}") for name, one in profile["stages"].items()]
        print_table((f"stage of a step of {profile['step_ms']:.2f} ms", "share", "ms"), stages, right=(1, 2))
    for key, value in result.get("notes", {}).items():
        if key != "settings":
            print(f"  {key}: {value}")
            continue
        names = dict.fromkeys(name for settings in value.values() for name in settings if name != "versions")
        cells = [(name, *(_setting(settings.get(name, "")) for settings in value.values())) for name in names]
        print_table(("setting", *value), cells)


def show_learner(result: Mapping[str, Any]) -> None:
    """Print each network and rollout: seconds of our update and of the rival's, their ratio, the required ratio."""
    print(f"{result['name']}: {result['machine']['cpu']}, {result['machine']['cores']} cores")
    rows = []
    for one in result["comparisons"]:
        required = "" if one["required"] is None else f">= {one['required']:g}"
        times = (f"{one['ours_s']:.3f}", f"{one['rival_s']:.3f}")
        rows.append((one["network"], one["rollout"], *times, f"{one['ratio']:.3f}", f"{one['spread']:.3f}", required))
    rival = result["rows"][1]["who"].split()[0]
    head = ("network", "worlds x steps", "ours [s]", f"{rival} [s]", f"{rival} / ours", "spread", "required")
    print_table(head, rows, right=(2, 3, 4, 5, 6))
    for key, value in result["notes"].items():
        print(f"  {key}: {value}")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _setting(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
