"""robot-rl eval: how good a policy is, as it was trained and as it will run on the robot."""

import contextlib
import dataclasses
import functools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from robot_rl.cli.foreign import whose
from robot_rl.cli.gym import is_gym
from robot_rl.cli.options import MAX_COUNT, MAX_ENVS, MAX_SEED, describe, option, read
from robot_rl.cli.outputs import EVALUATION, check_output
from robot_rl.cli.source import OVERRIDES_HELP, Source, SourceOptions, find_source
from robot_rl.errors import UserError

if TYPE_CHECKING:
    from robot_rl.gym.task import GymTask


@dataclass(kw_only=True, slots=True)
class Options(SourceOptions):
    """Options of robot-rl eval."""

    episodes: int = option(100, "fresh worlds, one episode each", least=1, most=MAX_ENVS)
    seconds: float = option(10.0, "length of an episode [s]")
    steps: int = option(
        0, "longest episode of an environment of others [steps]; its own time limit by default", least=0, most=MAX_COUNT
    )
    engine: str = option("", "another engine than it was trained in: mujoco, mujoco_warp or, where it is, isaac")
    form: str = option("both", "torch, onnx (what the robot runs) or both")
    seed: int | None = option(
        None, "seed of the worlds; one of its own that no training uses by default", least=0, most=MAX_SEED
    )
    assets: str = option("", "of a run in Isaac Lab: where its USD files are now")
    out: str = option("", "file for the figures; of a run eval.json, or eval_<engine>.json, by default")


PROGRESS_S = 10.0
"""How often an evaluation in an environment of others says how far it is [s]."""
FORMS = ("both", "torch", "onnx")
HELP = f"""\
robot-rl eval: fresh worlds, random commands; the torch policy and the exported one side by side

usage: robot-rl eval [key=value ...]

{describe(Options)}

The exported policy is run by ONNX Runtime, its observations put together from raw robot state by the contract's names;
both see the same recorded states, and their actions are compared. In an environment of Gymnasium or
Isaac Lab the torch policy plays whole episodes, and their return and length are told.
{OVERRIDES_HELP}"""


def run(arguments: Sequence[str]) -> int:
    """Evaluates and writes the figures."""
    from robot_rl.evaluate import EVALUATION_SEED, evaluate_run, evaluation_task

    options, dotted = read(Options, arguments)
    if not 1 < options.seconds <= 3600:
        raise UserError(f"seconds={options.seconds}: must lie in (1, 3600]; errors count from the first second on")
    if options.form not in FORMS:
        raise UserError(f"form={options.form}: must be one of {', '.join(FORMS)}")
    told = {key: value for key in ("engine", "assets") if (value := getattr(options, key))}
    source = find_source(options, dotted | told)
    seed = EVALUATION_SEED if options.seed is None else options.seed
    if whose(source.cfg.task.name) is not None:
        return _run_foreign(source, options, seed, bool(dotted))
    if options.steps:
        raise UserError(f"steps={options.steps}: is for environments of Gymnasium and Isaac Lab; give seconds=")
    trained_on = _trained_on(source)
    out = _figures_file(source, options, is_other=source.cfg.engine != trained_on, is_changed=bool(dotted))
    cfg = dataclasses.replace(source.cfg, task=evaluation_task(source.cfg.task))
    make_env = functools.partial(cfg.make_env, num_envs=options.episodes, seed=seed)
    policy = None if options.form == "onnx" else _torch_policy(source)
    bundle = _bundle(source) if cfg.task.deployable and (options.form != "torch" or source.run_dir is None) else None
    result = evaluate_run(make_env, policy=policy, bundle=bundle, seconds=options.seconds)
    result |= {"task": cfg.task.name, "policy": _run_id(source), "engine": cfg.engine, "trained_on": trained_on}
    show(source.name, result)
    _write(out, result)
    return 0


def _trained_on(source: Source) -> str | None:
    """The engine that a run learned in; a bundle does not tell."""
    return None if source.run_dir is None else str(source.run_dir.read_config()["config"]["engine"])


def _run_id(source: Source) -> str:
    """The id of the run that a policy comes from, for a bundle as its contract has it."""
    if source.run_dir is not None:
        return source.run_dir.run_id
    from robot_rl_deploy.bundle import read_bundle

    assert source.bundle is not None
    return read_bundle(source.bundle).contract.training.run_id or str(source.bundle)


def _figures_file(source: Source, options: Options, *, is_other: bool, is_changed: bool) -> Path | None:
    """Where the figures go: what the user said, or the run they are of; tried before the work.

    Args:
        source: the policy.
        options: the command's.
        is_other: whether the engine is not the one that the policy learned in.
        is_changed: whether settings were changed; a run does not keep such figures.

    Raises:
        UserError: nothing can be written there, or something else is there.
    """
    if options.out:
        return check_output("out", options.out, EVALUATION)
    if source.run_dir is None or is_changed:
        return None
    path = source.run_dir.eval_file
    path = path.with_name(f"eval_{source.cfg.engine}.json") if is_other else path
    return check_output("out", str(path), None)


def _write(path: Path | None, result: Mapping[str, Any]) -> None:
    """Writes the figures."""
    from robot_rl.evaluate import write_evaluation

    if path is not None:
        write_evaluation(path, result)
        print(path)


def _run_foreign(source: Source, options: Options, seed: int, is_changed: bool) -> int:
    """Evaluates in an environment of Gymnasium or of Isaac Lab."""
    from robot_rl.gym.evaluate import MAX_STEPS, evaluate_gym

    if options.form == "onnx":
        raise UserError(f"form=onnx: in {source.cfg.task.name} the torch policy plays; leave form= out")
    if source.run_dir is None:
        raise UserError(f"policy={options.policy}: in {source.cfg.task.name} a run's policy plays; give run=")
    if options.seconds != Options().seconds:
        raise UserError(f"seconds={options.seconds}: {source.cfg.task.name} counts steps; give steps=")
    cfg, task = source.cfg, cast("GymTask", source.cfg.task)
    if is_gym(task.name) and "max_episode_steps" in task.settings:
        task.settings["max_episode_steps"] = options.steps or task.settings["max_episode_steps"] or MAX_STEPS
    out = _figures_file(source, options, is_other=False, is_changed=is_changed or bool(options.steps))
    worlds = min(options.episodes, cfg.num_envs)
    with contextlib.closing(task.make_env(worlds, seed=seed, device=cfg.device)) as env:
        limit = options.steps or int(env.max_episode_length) or MAX_STEPS
        result = evaluate_gym(env, source.load(env), options.episodes, limit, say=_tell_progress())
    result |= {"task": task.name, "policy": source.name}
    print(f"{source.name}: {result['episodes']} episodes, mean ± deviation over episodes")
    for name, unit in (("return", ""), ("length", " steps")):
        print(f"  {name:<6}  {_cell(result['torch'][name])}{unit}")
    if result["episodes"] < options.episodes:
        print(f"  {options.episodes - result['episodes']} more did not end in {limit} steps and are left out")
    _write(out, result)
    return 0


def _tell_progress() -> Callable[[int, int], None]:
    """A function that is told how many episodes have ended after how many steps, and prints it now and then."""
    told = time.monotonic()

    def say(ended: int, steps: int) -> None:
        nonlocal told
        if time.monotonic() - told > PROGRESS_S:
            told = time.monotonic()
            print(f"  {ended} episodes after {steps} steps", file=sys.stderr, flush=True)

    return say


def _torch_policy(source: Source) -> Any:
    if source.run_dir is None:
        return None
    from robot_rl.learn.policy import make_policy

    return make_policy(source.run_dir.path, device=source.cfg.device)


def _bundle(source: Source) -> Path:
    from robot_rl.cli.export import exported

    if source.bundle is not None:
        return source.bundle
    assert source.run_dir is not None
    return exported(source.run_dir, trust=source.trust)


def show(name: str, result: Mapping[str, Any]) -> None:
    """Prints the figures as a table, a column a policy, and whether the two agree."""
    from rich.console import Console
    from rich.table import Table

    from robot_rl.evaluate.meter import METRICS

    kinds = [kind for kind in ("torch", "onnx") if kind in result]
    where = f" in {result['engine']}" if "engine" in result else ""
    print(f"{name}{where}: {result['episodes']} episodes of {result['seconds']:g} s, mean ± deviation over episodes")
    table = Table()
    table.add_column("")
    for kind in kinds:
        table.add_column(kind, justify="right")
    table.add_column("unit")
    for metric in result[kinds[0]]:
        cells = [_cell(result[kind].get(metric)) for kind in kinds]
        table.add_row(metric, *cells, METRICS[metric][0].replace("1", ""))
    console = Console()
    console.print(table)
    agreement = result.get("agreement")
    if agreement:
        verdict = "agree" if agreement["actions"] and agreement["metrics"] else "DO NOT AGREE"
        print(
            f"torch and ONNX {verdict}: actions differ by {agreement['action_error']:.1e} at most "
            f"(bound {agreement['action_bound']:.0e}), metrics within two standard errors: {agreement['metrics']}"
        )


def _cell(value: Mapping[str, float] | None) -> str:
    if value is None:
        return "-"
    with contextlib.suppress(KeyError, TypeError):
        return f"{value['mean']:.4g} ± {value['std']:.2g}"
    return str(value)
