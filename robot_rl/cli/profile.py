"""Show where an iteration's time goes, stage by stage, and which setting would change it.

usage: robot-rl profile task=<name> [key=value ...]

{Options}
  any setting of robot-rl train: num_envs=, device=, num_steps=, actor.hidden=, ppo.epochs=, sim.iterations=, ...

An iteration has four parts: simulate (the environment's steps), infer (the policy's actions), learn (the update) and
other (rollout recorded, metrics read, Python). The table shows each with its stages: milliseconds an iteration, and
the share of it. What a perfect overlap of simulation and learning would leave is max(simulate + infer, learn) over the
whole. Only the requested files are written.

check=capture needs no GPU: it lists the operations of an iteration that would wait for a GPU, or that a CUDA graph
could not hold, each with its line; the exit code is 1 if there are any.

check=gradients compares the gradient of every term with finite differences, in states that random actions lead to, and
shows its inputs and the substitutes for values that only an engine knows; the exit code is 1 if a gradient is wrong.
An algorithm that learns through a model of the dynamics needs them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.cli.options import option, read
from robot_rl.cli.table import print_table
from robot_rl.errors import as_user_error
from robot_rl.runs.outputs import PROFILE, TRACE, check_optional

CHECKED_WORLDS = 64
"""Worlds of check=capture."""
SHOWN_INPUTS = 4
"""Inputs of a term's gradient that check=gradients shows."""


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl profile."""

    iterations: int = option(5, "iterations that count; two more go before", least=1, most=100_000)
    out: str = option("", "file for the figures as JSON")
    trace: str = option("", "file (.json, .json.gz) for torch's trace of one more iteration (https://ui.perfetto.dev)")
    check: str = option(
        "", "instead of the time, capture: operations that a CUDA graph could not hold, or gradients: of the terms"
    )


def run(arguments: Sequence[str]) -> int:
    """Train for a few iterations, print the table and the advice, and write the figures."""
    from robot_rl.cli.compose import missing_task
    from robot_rl.errors import UserError
    from robot_rl.files import write_json
    from robot_rl.runs.inputs import resolve_inputs
    from robot_rl.runs.settings import change, default_tree, resolve

    options, changes = read(Options, arguments, every=True)
    out = check_optional("out", options.out, PROFILE, makes_folder=False)
    trace = check_optional("trace", options.trace, TRACE, makes_folder=False)
    task = changes.pop("task", None)
    if task is None:
        raise missing_task()
    if options.check:
        if trace is not None:
            raise UserError("trace", options.trace, "does not affect check=", "omit it")
        return _check(options.check, {"task": task, **changes}, out)
    tree = default_tree(str(task), str(changes.get("device", "auto")), str(changes.get("learner", "")))
    cfg = resolve_inputs(resolve(change(tree, changes)))
    env = cfg.make_env()
    try:
        from robot_rl.learn.make_trainer import make_trainer
        from robot_rl.performance.iteration import profile_iterations

        with as_user_error():
            result = profile_iterations(
                lambda observer: make_trainer(env, cfg.learner, seed=cfg.seed, observer=observer),
                iterations=options.iterations,
                trace=trace,
            )
    finally:
        env.close()
    result = {**result, "name": f"profile {cfg.task.name}", "advice": advise(result, cfg.tree)}
    show(result)
    if out is not None:
        write_json(out, result)
    for path in filter(None, (out, trace)):
        print(path)
    return 0


def _check(what: str, changes: Mapping[str, Any], out: Path | None) -> int:
    """Print the operations of an iteration that a CUDA graph could not hold; return 1 if there are any, else 0."""
    if what == "gradients":
        return _check_gradients(changes, out)
    from robot_rl.errors import UserError
    from robot_rl.performance.capture import check_run
    from robot_rl.runs.inputs import resolve_inputs
    from robot_rl.runs.settings import resolve_for_gpu

    if what != "capture":
        raise UserError("check", what, "must be capture or gradients")
    cfg = resolve_inputs(resolve_for_gpu(changes, "check=capture", num_envs=CHECKED_WORLDS))
    findings = check_run(cfg)
    for finding in findings:
        print(finding)
    count = len(findings) or "nothing"
    print(f"{count} found: {cfg.reference}, learner={cfg.learner.name}, rollout and update as on a GPU")
    return 1 if findings else 0


def _check_gradients(changes: Mapping[str, Any], out: Path | None) -> int:
    """Print a table of the terms and their gradients, and write it; return 1 if one is wrong, else 0."""
    from dataclasses import asdict

    from robot_rl_envs.imagination.check import check_gradients

    from robot_rl.errors import UserError
    from robot_rl.files import write_json
    from robot_rl.runs.inputs import resolve_inputs
    from robot_rl.runs.settings import change, default_tree, resolve

    tree = default_tree(str(changes["task"]), str(changes.get("device", "cpu")), str(changes.get("learner", "")))
    cfg = resolve_inputs(resolve(change(tree, {"num_envs": CHECKED_WORLDS, **changes})))
    env = cfg.make_env()
    try:
        if not hasattr(env, "operands") or env.agents:
            raise UserError(f"check=gradients: {cfg.reference} is without terms of one robot; take another task")
        with as_user_error():
            found = check_gradients(env, seed=cfg.seed)
    finally:
        env.close()
    rows = [
        (one.path, one.verdict, f"{one.largest:.3g}", ", ".join(one.reads[:SHOWN_INPUTS]), one.stands_in)
        for one in found
    ]
    print_table((str(cfg.reference), "gradient", "largest", "by", "stands in"), rows, right=(2,), least=110)
    wrong = [one for one in found if one.verdict == "wrong"]
    for one in wrong:
        print(f"{one.path}: is {one.error:.2g} off finite differences by {one.where}")
    print(f"{cfg.reference}: {len(found)} terms, {len(wrong) or 'none'} with a wrong gradient")
    if out is not None:
        terms = [asdict(one) | {"stands_in": one.stands_in} for one in found]
        write_json(out, {"name": f"gradients {cfg.reference}", "terms": terms})
        print(out)
    return 1 if wrong else 0


def show(result: Mapping[str, Any]) -> None:
    """Print the parts of an iteration with their stages, its limit, and the setting that would change it."""
    machine, notes = result["machine"], result["notes"]
    print(f"{result['name']}: {machine.get('gpu') or machine['cpu']}, {machine['cores']} cores")
    rows = []
    for part, cell in result["parts"].items():
        rows.append((part, *_figures(cell)))
        rows += [(f"  {stage}", *_figures(one)) for stage, one in result["stages"].get(part, {}).items()]
    title = f"an iteration of {result['iteration_ms']:,.1f} ms, {result['steps_per_s']:,.0f} control steps/s"
    print_table((title, "ms", "share"), rows, right=(1, 2))
    print("  " + ", ".join(f"{key}: {value}" for key, value in notes.items()))
    if notes["device"] != "cpu":
        print("  stages on a GPU are timed outside the CUDA graphs, each waited for: read their shares of the part")
    print(
        f"limited by {result['limit']}; a perfect overlap of simulation and learning would leave "
        f"{result['overlap_share']:.0%} of an iteration"
    )
    print(result["advice"])


def advise(result: Mapping[str, Any], tree: Mapping[str, Any]) -> str:
    """Return a line about the setting that would change the limit of an iteration.

    Args:
        result: The return value of `robot_rl.performance.iteration.profile_iterations`.
        tree: The settings, by name.
    """
    from robot_rl.metrics.iteration import ADVICE

    part = result["limit"]
    stages = result["stages"].get(part, {})
    top = max(stages, key=lambda stage: stages[stage]["share"]) if stages else ""
    share = f", {stages[top]['share'] / result['parts'][part]['share']:.0%} of it {top}" if top else ""
    return f"to change that{share}: {_setting(part, top, tree) or ADVICE[part]}"


def _setting(part: str, stage: str, tree: Mapping[str, Any]) -> str:
    """Return the settings that a stage's time depends on, with their values; empty if there are none."""
    now = {name: _value(tree, name) for name in ("sim.iterations", "sim.decimation", "num_threads", "num_envs")}
    nets = f"actor.hidden (now {_value(tree, 'actor.hidden')}), critic.hidden (now {_value(tree, 'critic.hidden')})"
    ppo = {name: _value(tree, f"ppo.{name}") for name in ("epochs", "minibatches")}
    if part == "simulate" and stage == "physics" and now["sim.iterations"] is not None:
        threads = "all" if now["num_threads"] == 0 else now["num_threads"]
        physics = f"sim.iterations (now {now['sim.iterations']}), sim.decimation (now {now['sim.decimation']})"
        if str(tree.get("device")) != "cpu":
            return f"{physics}; more worlds a step if the GPU is not full, num_envs (now {now['num_envs']})"
        return f"{physics}; more cores (num_threads, now {threads}), or a GPU (device=cuda)"
    if part == "learn" and stage in ("forward and loss", "backward"):
        return f"{nets}, or ppo.epochs (now {ppo['epochs']})"
    if part == "learn" and stage == "clip and Adam":
        return f"fewer, larger minibatches, ppo.minibatches (now {ppo['minibatches']}), or {nets}"
    if part == "learn" and stage == "minibatches gathered":
        return f"ppo.epochs (now {ppo['epochs']}), or smaller observations"
    if part == "learn" and stage == "values and advantages":
        return f"critic.hidden (now {_value(tree, 'critic.hidden')})"
    if part == "infer":
        worlds = f"more worlds a call, num_envs (now {now['num_envs']})"
        return f"actor.hidden (now {_value(tree, 'actor.hidden')}), or {worlds}"
    return ""


def _value(tree: Mapping[str, Any], name: str) -> Any:
    node: Any = tree
    for part in name.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node


def _figures(cell: Mapping[str, float]) -> tuple[str, str]:
    return f"{cell['ms']:,.2f}", f"{cell['share']:.1%}"
