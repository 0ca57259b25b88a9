"""Evaluate a policy in fresh worlds; the torch policy and the exported one side by side.

usage: robot-rl eval [key=value ...]

{Options}

The exported policy is run by ONNX Runtime, its observations built from raw robot state by the contract's names; both
see the same recorded states, and their actions are compared. In an environment of Gymnasium or Isaac Lab the torch
policy plays whole episodes, and their return and length are reported.
{CHANGES_HELP}
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.options import MAX_COUNT, MAX_ENVS, MAX_SEED, PolicyOptions, option, read
from robot_rl.cli.table import print_table
from robot_rl.runs.outputs import EVALUATION, check_output

if TYPE_CHECKING:
    from robot_rl.runs.policies import PolicySource


@dataclass(kw_only=True, slots=True)
class Options(PolicyOptions):
    """Options of robot-rl eval."""

    episodes: int = option(100, "fresh worlds, one episode each", least=1, most=MAX_ENVS)
    seconds: float | None = option(None, "longest episode [s], at most the task's own; 10 by default")
    steps: int = option(0, "with Gymnasium, Isaac Lab: longest episode [steps]; 0: its limit", least=0, most=MAX_COUNT)
    engine: str = option("", "another engine than it was trained in: mujoco, mujoco_warp or, where installed, isaac")
    form: str = option("both", "torch, onnx (as the robot runs it) or both")
    seed: int | None = option(None, "seed of the worlds; by default one that no training uses", least=0, most=MAX_SEED)
    assets: str = option("", "of a run in Isaac Lab: the folder that has its USD files now")
    out: str = option("", "file for the figures; of a run eval.json, or eval_<engine>.json, by default")


TABLE_WIDTH = 120
"""Least width of the table, so that most meanings fit into one line."""


def run(arguments: Sequence[str]) -> int:
    """Evaluate and write the figures."""
    from robot_rl.api import Policy, check_evaluation

    options, changes = read(Options, arguments)
    check_evaluation(episodes=options.episodes, seconds=options.seconds, form=options.form)
    moved = {key: value for key in ("engine", "assets") if (value := getattr(options, key))}
    policy = options.find_policy(changes | moved)
    from robot_rl.evaluation import write_evaluation

    trained_on = None if policy.run_dir is None else str(policy.run_dir.read_config()["config"]["engine"])
    is_other, is_changed = policy.cfg.engine != trained_on, bool(changes or options.steps)
    out = _figures_file(policy, options, is_other=is_other, is_changed=is_changed)
    names = ("episodes", "seconds", "form", "seed", "steps")
    result = Policy(policy).evaluate(**{name: getattr(options, name) for name in names})
    if "engine" in result:
        result["trained_on"] = trained_on
    show(policy.title, result, options.episodes)
    if out is not None:
        write_evaluation(out, result)
        print(out)
    return 0


def _figures_file(policy: "PolicySource", options: Options, *, is_other: bool, is_changed: bool) -> Path | None:
    """Return the file for the figures, the user's or the run's, checked before the work; None if none is written."""
    if options.out:
        return check_output("out", options.out, EVALUATION)
    if policy.run_dir is None or is_changed:
        return None
    path = policy.run_dir.eval_file
    path = path.with_name(f"eval_{policy.cfg.engine}.json") if is_other else path
    return check_output("out", str(path), None)


def show(name: str, result: Mapping[str, Any], episodes: int = 0) -> None:
    """Print the figures of eval.json: of whole episodes two lines, else a table, and whether both policies agree.

    Args:
        name: The policy's name.
        result: The content of eval.json.
        episodes: How many were requested.
    """
    if "max_steps" not in result:
        _show_table(name, result)
        return
    print(f"{name}: {result['episodes']} episodes, mean ± deviation over episodes")
    for key, unit in (("return", ""), ("length", " steps")):
        print(f"  {key:<6}  {_cell(result['torch'][key])}{unit}")
    if result["episodes"] < episodes:
        print(f"  {episodes - result['episodes']} more did not end in {result['max_steps']} steps and are omitted")


def _show_table(name: str, result: Mapping[str, Any]) -> None:
    from robot_rl.metrics.description import explain

    kinds = [kind for kind in ("torch", "onnx") if kind in result]
    where = f" in {result['engine']}" if "engine" in result else ""
    print(f"{name}{where}: {result['episodes']} episodes of {result['seconds']:g} s, mean ± deviation over episodes")
    metrics = dict(result.get("metrics", {}))  # A source of another package may omit it.
    metrics |= {name: {"unit": "", "meaning": ""} for name in result[kinds[0]] if name not in metrics}
    rows = [
        (name, *(_cell(result[kind].get(name)) for kind in kinds), row["unit"], explain(row))
        for name, row in metrics.items()
    ]
    print_table(("metric", *kinds, "unit", "meaning"), rows, right=range(1, len(kinds) + 1), least=TABLE_WIDTH)
    if "team" in result:
        _show_team(result["team"], metrics)
    agreement = result.get("agreement")
    if agreement:
        verdict = "agree" if agreement["actions"] and agreement["metrics"] else "DO NOT AGREE"
        print(
            f"torch and ONNX {verdict}: actions differ by {agreement['action_error']:.1e} at most "
            f"(bound {agreement['action_bound']:.0e}), metrics within two standard errors: {agreement['metrics']}"
        )


def _show_team(team: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
    """Print the metrics of each robot of a team, and those when one drops out, or messages are late."""
    robots, without, late = team["robots"], team["without"], team.get("late")
    names = [name for name in metrics if any(row.get(name) is not None for row in robots.values())]
    columns = robots | {f"without {name}": row for name, row in without.items()}
    columns |= {} if late is None else {"messages late": late}
    heads, rows = ("metric", *columns), [(name, *(_cell(row.get(name)) for row in columns.values())) for name in names]
    also = "" if late is None else ", and all with late messages"
    print(f"each robot, the others if one drops out after a third of the time{also}:")
    print_table(heads, rows, right=range(1, len(heads)), least=TABLE_WIDTH)


def _cell(value: Mapping[str, float] | None) -> str:
    if value is None:
        return "-"
    with contextlib.suppress(KeyError, TypeError):
        return f"{value['mean']:.4g} ± {value['std']:.2g}"
    return str(value)
