"""Measure ours and what it is compared with in turn (A B A B), in one run.

usage: robot-rl bench env|learner|learners|precision|runtime|async|mamujoco [key=value ...]

env: control steps a second under random actions, against the bare steps of the engine
{EnvOptions}

learner: the PPO update, against rsl_rl's at equal arithmetic; a team's (agents=4), against skrl's MAPPO
{LearnerOptions}

learners: how soon each learner solves a task, in turn: environment steps, processor time and time of the training. A
setting with a dot changes all trainings, one after a + those of its learner (ppo+symmetry=none+num_envs=256)
{LearnersOptions}

precision: updates, acting in 4096 worlds and the binary's inference in bf16, fp8 and int8, against fp32
{PrecisionOptions}

runtime: the robot's binary at 500 Hz: inference, state to command over each transport, damping after kill -9
{RuntimeOptions}

async: trainings with overlap=true against those without: how much of the shorter side is hidden. First with worlds
that wait as long as learning takes, as a device would, then with the task's. Settings of robot-rl train change those
{AsyncOptions}

mamujoco: MAPPO on robots that are divided among agents, against the returns that HARL publishes; an hour or two. Any
setting of robot-rl train changes the trainings
{MamujocoOptions}

Values are medians, spreads quartile distances; figures are reliable only on an idle machine. Comparisons with mjlab,
Gymnasium's learners and Isaac Lab are scripts of the source checkout:
{scripts}.
{CHANGES_HELP}
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.cli.bench_learners import LearnersOptions, bench_learners, show_learners  # noqa: F401 - for the help
from robot_rl.cli.options import MAX_COUNT, MAX_ENVS, MAX_SEED, option, parse_value, read, read_all, split_bare
from robot_rl.cli.table import print_table
from robot_rl.errors import UserError, suggest
from robot_rl.experiment.outputs import BENCH, CURVES, check_output, check_outputs


@dataclass(kw_only=True, slots=True)
class EnvOptions:
    """Options of robot-rl bench env."""

    task: str = option("go2_flat", "the task")
    num_envs: int = option(1024, "worlds")
    device: str = option("auto", "auto, cpu, cuda or cuda:<index>")
    engine: str = option("auto", "the environment's engine")
    repeats: int = option(31, "timed blocks of each, at least 2 for a spread", least=2, most=MAX_COUNT)
    seed: int = option(0, "seed of worlds and actions", least=0, most=MAX_SEED)
    profile: bool = option(True, "time the stages of a step, too, after the figure's blocks")
    out: str = option("", "file for the figures as JSON")


@dataclass(kw_only=True, slots=True)
class LearnerOptions:
    """Options of robot-rl bench learner."""

    hidden: str = option("", "hidden layers of one network size, such as [128,128]; several sizes by default")
    agents: int = option(1, "robots of a world: of several it is MAPPO's update", least=1, most=16)
    rival: str = option("", "rsl_rl for one robot, skrl for several")
    num_envs: str = option("", "worlds of the rollouts; [1024,4096], or [256,1024] of several robots, by default")
    num_steps: int = option(24, "steps of the rollout", least=1, most=100_000)
    device: str = option("cpu", "cpu, cuda or cuda:<index>")
    repeats: int = option(7, "timed updates of each, at least 2 for a spread", least=2, most=MAX_COUNT)
    out: str = option("", "file for the figures as JSON")


@dataclass(kw_only=True, slots=True)
class PrecisionOptions:
    """Options of robot-rl bench precision."""

    modes: str = option("bf16,fp8,int8", "precisions")
    hidden: str = option("[512,256,128]", "hidden layers of actor and critic")
    num_envs: int = option(1024, "worlds of the rollout", least=1, most=MAX_ENVS)
    num_steps: int = option(24, "steps of the rollout", least=1, most=100_000)
    device: str = option("cpu", "cpu, cuda or cuda:<index>")
    repeats: int = option(7, "timed rounds of all, at least 2 for a spread", least=2, most=MAX_COUNT)
    runtime: bool = option(True, "measure the robot's binary, too")
    out: str = option("", "file for the figures as JSON")


@dataclass(kw_only=True, slots=True)
class RuntimeOptions:
    """Options of robot-rl bench runtime."""

    policy: str = option("", "a bundle; by default a synthetic one, 98 -> 3 x 512 -> 29, over dds with a G1's joints")
    transports: str = option("udp,shm,dds", "what to measure; dds where the runtime was built with it")
    seconds: float = option(20.0, "how long to measure each [s]")
    kills: int = option(5, "how often the binary is killed", least=0, most=MAX_COUNT)
    out: str = option("", "file for the figures as JSON")


@dataclass(kw_only=True, slots=True)
class AsyncOptions:
    """Options of robot-rl bench async."""

    task: str = option("go2_flat", "the task; none: only the worlds that wait")
    num_envs: int = option(1024, "worlds", most=MAX_ENVS)
    device: str = option("cpu", "cpu, cuda or cuda:<index>")
    iterations: int = option(12, "iterations of a training that count", least=2, most=MAX_COUNT)
    repeats: int = option(5, "trainings of each kind, in turn; at least 2 for a spread", least=2, most=MAX_COUNT)
    seed: int = option(0, "seed of worlds and actions", least=0, most=MAX_SEED)
    out: str = option("", "file for the figures as JSON")


@dataclass(kw_only=True, slots=True)
class MamujocoOptions:
    """Options of robot-rl bench mamujoco."""

    divisions: str = option("Ant-4x2,HalfCheetah-2x3", "robots and how they are divided, as in mamujoco:<division>")
    steps: int = option(0, "steps of the robot in each training; 0: as many as HARL's, 10 M", least=0)
    seed: int = option(1, "seed of training and evaluation", least=0, most=MAX_SEED)
    root: str = option("runs", "where runs are written; one that was ended goes on")
    out: str = option("", "file for the figures as JSON; the curves are next to it, as SVG")


G1 = "unitree_g1"
MOVED = {
    "gymnasium": "benchmarks/gymnasium_v5.py",
    "isaac": "benchmarks/isaac_overhead.py",
    "env rival=mjlab": "benchmarks/env_mjlab.py",
}
"""Comparisons that need other learners or simulators in environments of their own, and the scripts that run them."""
scripts = ", ".join(MOVED.values())


def run(arguments: Sequence[str]) -> int:
    """Measure, print the table and write the figures."""
    from robot_rl.files import write_json

    benches = {
        "env": (bench_env, show),
        "learner": (bench_learner, show_learner),
        "learners": (bench_learners, show_learners),
        "precision": (bench_precision, show_precision),
        "runtime": (bench_runtime, show_runtime),
        "async": (bench_async, show_async),
        "mamujoco": (bench_mamujoco, show),
    }
    bare, rest = split_bare(arguments)
    what = " ".join(bare)
    _refuse_moved(what, arguments)
    if what not in benches:
        raise UserError(f"bench {what}: must be one of {', '.join(benches)}; {suggest(what, benches)}")
    check_outputs(arguments, {"out": BENCH})
    measure, print_result = benches[what]
    result, out = measure(rest)
    print_result(result)
    if out:
        write_json(Path(out), result)
        print(out)
    return 0


def _refuse_moved(what: str, arguments: Sequence[str]) -> None:
    """Raise UserError, which names the script, for a benchmark that is a script now."""
    words = f"{what} rival=mjlab" if "rival=mjlab" in arguments else what
    if script := MOVED.get(words):
        raise UserError(f"bench {words}: is a script of the source checkout now; run python {script}")


def bench_precision(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Measure precisions; return the result and where to write it."""
    from robot_rl.experiment.settings import resolve_device
    from robot_rl.settings import NetworkCfg, from_dict
    from robot_rl.settings.checks import check_choice
    from robot_rl.settings.precision import PRECISIONS

    options = read_all(PrecisionOptions, arguments)
    modes = [mode.strip() for mode in options.modes.split(",")]
    for mode in modes:
        check_choice("modes", mode, PRECISIONS)
    if modes == ["fp32"]:
        raise UserError("modes=fp32: is what the others are compared with; give bf16, fp8 or int8")
    hidden = from_dict(NetworkCfg, {"hidden": parse_value(options.hidden, "hidden")}).hidden
    from robot_rl.bench.precision import bench_precision

    result = bench_precision(
        modes,
        hidden,
        num_envs=options.num_envs,
        num_steps=options.num_steps,
        device=resolve_device(options.device),
        repeats=options.repeats,
        runtime=options.runtime,
    )
    return result, options.out


def show_precision(result: Mapping[str, Any]) -> None:
    """Print a row for each part and precision."""
    rows = []
    for row in result["rows"]:
        bound = "" if row["required"] is None else f"at least {row['required']:g}"
        size = f"{row['bytes'] / 1024:.0f} kB" if "bytes" in row else ""
        value = f"{row['value']:.4g} ± {row['spread']:.2g} {row['unit']}"
        rows.append((row["what"], row["mode"], value, f"{row['ratio']:.2f}", bound, size, row["computed"]))
    heads = ("", "precision", "median ± spread", "fp32 / this", "required", "file", "computed by")
    print_table(heads, rows, right=(2, 3), least=120)


def bench_env(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Measure the environment; return the result and where to write it."""
    from robot_rl.experiment.settings import change, default_tree, resolve
    from robot_rl.sources.registry import refuse_unsupported

    options, dotted = read(EnvOptions, arguments)
    refuse_unsupported(options.task, "bench env")
    given = {key: getattr(options, key) for key in ("num_envs", "engine", "seed")}
    cfg = resolve(change(default_tree(options.task, options.device), {**given, **dotted}))
    from robot_rl.bench import env

    result = env.bench_env(cfg.make_env, repeats=options.repeats, seed=options.seed, profile=options.profile)
    return result, options.out


def bench_learner(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Measure the learner's update; return the result and where to write it."""
    from robot_rl.experiment.settings import resolve_device
    from robot_rl.settings import NetworkCfg, from_dict

    options = read_all(LearnerOptions, arguments)
    rival = "rsl_rl" if options.agents == 1 else "skrl"
    if options.rival not in ("", rival):
        raise UserError(f"rival={options.rival}: with agents={options.agents} it is {rival}")
    given: dict[str, Any] = {"num_steps": options.num_steps, "repeats": options.repeats}
    if options.num_envs:
        given["num_envs"] = numbers("num_envs", options.num_envs)
    if options.hidden:
        given["sizes"] = [from_dict(NetworkCfg, {"hidden": parse_value(options.hidden, "hidden")}).hidden]
    given |= {"device": resolve_device(options.device), "say": _say}
    if options.agents > 1:
        from robot_rl.bench.team import bench_team

        return bench_team(options.agents, **given), options.out
    from robot_rl.bench import learner

    return learner.bench_learner(**given), options.out


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def numbers(name: str, text: str) -> list[int]:
    """Return the numbers of worlds in an option's text; raise UserError for a value that is no such number."""
    value = parse_value(text, name)
    found = value if isinstance(value, list) else [value]
    if not found or not all(type(number) is int and 0 < number <= MAX_ENVS for number in found):
        raise UserError(f"{name}={text}: must be whole numbers from 1 to {MAX_ENVS}, such as [256,1024]")
    return found


def bench_runtime(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Measure the binary; return the result and where to write it."""
    from robot_rl.experiment.policies import find_bundle
    from robot_rl.sim2sim.binary import load_runtime

    options = read_all(RuntimeOptions, arguments)
    names = [name for name in options.transports.split(",") if name]
    for name in names:
        if name not in ("udp", "shm", "dds"):
            raise UserError(f"transports={options.transports}: '{name}' must be one of udp, shm, dds")
    if not 0 < options.seconds <= 3600:
        raise UserError(f"seconds={options.seconds:g}: must be in (0, 3600]")
    has_dds = "dds" in names and load_runtime().has_dds()
    from robot_rl.bench import runtime

    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = Path(scratch)
        bundle = find_bundle(options.policy) if options.policy else _synthetic(folder / "policy")
        result = runtime.bench_runtime(
            bundle,
            folder,
            transports=[name for name in names if name != "dds"],
            dds_bundle=_for_dds(bundle, folder) if has_dds else None,
            seconds=options.seconds,
            kills=options.kills,
            say=lambda line: _say(f"robot-rl: {line} ..."),
        )
    return result, options.out


def bench_async(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Measure overlapped trainings; return the result and where to write it."""
    from robot_rl.experiment.settings import change, default_tree, resolve
    from robot_rl.sources.registry import refuse_unsupported

    options, dotted = read(AsyncOptions, arguments)
    cfg = None
    if options.task != "none":
        refuse_unsupported(options.task, "bench async")
        given = {"num_envs": options.num_envs, "seed": options.seed}
        cfg = resolve(change(default_tree(options.task, options.device), {**given, **dotted}))
    from robot_rl.bench import overlap

    result = overlap.bench_overlap(
        cfg,
        num_envs=options.num_envs,
        iterations=options.iterations,
        repeats=options.repeats,
        seed=options.seed,
        say=lambda line: _say(f"robot-rl: {line} ..."),
    )
    return result, options.out


def bench_mamujoco(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Train on divided robots; return the result and where to write it, next to which the curves are."""
    options, changes = read(MamujocoOptions, arguments, every=True)
    names = [name for name in options.divisions.split(",") if name]
    if not names:
        raise UserError(f"divisions={options.divisions}: name at least one, such as Ant-4x2")
    if len(set(names)) < len(names):
        raise UserError(f"divisions={options.divisions}: one is named twice")
    from robot_rl.bench import mamujoco
    from robot_rl.files import write_atomic

    curves = check_output("out", str(Path(options.out).with_suffix(".svg")), CURVES) if options.out else None
    changes = {"root": options.root, **changes}
    result = mamujoco.bench_mamujoco(names, changes, seed=options.seed, steps=options.steps, say=_say)
    if curves is not None:
        write_atomic(curves, mamujoco.draw(result))
    return result, options.out


def _synthetic(folder: Path, **robot: Any) -> Path:
    from robot_rl_deploy.synthetic import write_synthetic_bundle

    write_synthetic_bundle(folder, **robot)
    return folder


def _for_dds(bundle: Path, folder: Path) -> Path:
    """Return the bundle where Unitree's messages know its robot, else a synthetic one with a G1's joints."""
    from robot_rl_deploy.bundle import read_bundle

    from robot_rl.sim2sim.binary import load_runtime

    runtime = load_runtime()
    try:
        runtime.unitree_family(read_bundle(bundle).contract.robot)
    except runtime.UserError:
        joints = [name for name in runtime.unitree_motors(G1) if name]
        return _synthetic(folder / "policy-g1", robot=G1, joints=joints)
    return bundle


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


def show_async(result: Mapping[str, Any]) -> None:
    """Print T_sim, T_learn, an iteration without and with overlap, their ratio and the efficiency, of both kinds."""
    print(f"{result['name']}: {result['machine']['cpu']}, {result['machine']['cores']} cores")
    head = ("worlds", "simulate [s]", "learn [s]", "in turn [s]", "overlapped [s]", "ratio", "efficiency", "spread")
    names = ("simulate_s", "learn_s", "sync_s", "async_s", "ratio", "efficiency", "spread")
    rows = [(one["worlds"], *(f"{one[name]:.3f}" for name in names)) for one in result["comparisons"]]
    print_table(head, rows, right=range(1, len(head)))
    head = ("simulators that wait", "versions behind", "measured [s]", "model [s]", "ratio")
    names = ("measured_s", "model_s", "ratio")
    cells = [(one["count"], one["staleness"], *(f"{one[name]:.3f}" for name in names)) for one in result["simulators"]]
    print_table(head, [tuple(map(str, row)) for row in cells], right=range(len(head)))
    for key, value in result["notes"].items():
        print(f"  {key}: {value}")


def show_runtime(result: Mapping[str, Any]) -> None:
    """Print each measured time with its goal."""
    from robot_rl.bench.runtime import judge

    print("\n".join(judge(dict(result))))


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _setting(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
