"""robot-rl profile: where an iteration's time goes, and which setting would change it."""

from collections.abc import Mapping, Sequence
from typing import Any

from robot_rl.cli.outputs import PROFILE, TRACE, check_output
from robot_rl.errors import UserError

HELP = """\
robot-rl profile: where an iteration's time goes, and which setting would change it

usage: robot-rl profile task=<name> [key=value ...]

  task=                the task
  iterations=5         iterations that count; two more go before
  out=                 file for the figures as JSON
  trace=               file (.json or .json.gz) for a trace by torch's profiler of one more iteration; it is opened at
                       https://ui.perfetto.dev
  any setting of robot-rl train: num_envs=, device=, num_steps=, actor.hidden=, ppo.epochs=, sim.iterations=, ...

An iteration has four parts: simulate (the environment's steps), infer (the policy's actions), learn (the update) and
other (rollout recorded, metrics read, Python). The table shows each with its stages: milliseconds an iteration, and
the share of it. What a perfect overlap of simulation and learning would leave is max(simulate + infer, learn) over the
whole. Nothing is written but the files that are asked for.
"""


def run(arguments: Sequence[str]) -> int:
    """Trains for a few iterations, prints the table and the advice, and writes the figures."""
    from robot_rl.cli import options
    from robot_rl.cli import tree as trees
    from robot_rl.cli.guides import with_guides
    from robot_rl.cli.settings import asked, default_tree, resolve
    from robot_rl.run_dir import write_json

    values = options.split(arguments)
    iterations = options.convert(int, values.pop("iterations", "5"), "iterations")
    options.check_between("iterations", iterations, 1, 100_000)
    files = {
        key: check_output(key, text, kind, makes_folder=False)
        for key, kind in (("out", PROFILE), ("trace", TRACE))
        if (text := values.pop(key, ""))
    }
    out, trace = files.get("out"), files.get("trace")
    told = {key: options.parse_value(text, key) for key, text in values.items()}
    task = told.pop("task", None)
    if task is None:
        from robot_rl_tasks.registry import list_tasks

        raise UserError(f"task: which one? Write task=<name>; known: {', '.join(list_tasks())}")
    cfg = with_guides(
        resolve(
            trees.override(
                default_tree(str(task), str(told.get("device", "auto")), str(told.get("learner", "ppo"))), told
            )
        )
    )
    env = cfg.make_env()
    try:
        from robot_rl.bench.iteration import profile_iterations
        from robot_rl.learn.make import make_runner

        with asked():
            result = profile_iterations(
                lambda observer: make_runner(env, cfg.learner, seed=cfg.seed, observer=observer),
                iterations=iterations,
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


def show(result: Mapping[str, Any]) -> None:
    """Prints the parts of an iteration with their stages, what limits it, and what would change that."""
    from robot_rl.cli.bench import print_table

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
    """Returns a line about the setting that would change what limits an iteration.

    Args:
        result: What `robot_rl.bench.iteration.profile_iterations` returned.
        tree: The settings, by name.
    """
    from robot_rl.metrics.iteration import ADVICE

    part = result["limit"]
    stages = result["stages"].get(part, {})
    top = max(stages, key=lambda stage: stages[stage]["share"]) if stages else ""
    share = f", {stages[top]['share'] / result['parts'][part]['share']:.0%} of it {top}" if top else ""
    return f"to change that{share}: {_setting(part, top, tree) or ADVICE[part]}"


def _setting(part: str, stage: str, tree: Mapping[str, Any]) -> str:
    """The settings that a stage's time depends on, with their present values; empty where there are none."""
    now = {name: _value(tree, name) for name in ("sim.iterations", "sim.decimation", "num_threads", "num_envs")}
    nets = f"actor.hidden (now {_value(tree, 'actor.hidden')}), critic.hidden (now {_value(tree, 'critic.hidden')})"
    ppo = {name: _value(tree, f"ppo.{name}") for name in ("epochs", "minibatches")}
    if part == "simulate" and stage == "physics" and now["sim.iterations"] is not None:
        threads = "all" if now["num_threads"] == 0 else now["num_threads"]
        physics = f"sim.iterations (now {now['sim.iterations']}), sim.decimation (now {now['sim.decimation']})"
        if str(tree.get("device")) != "cpu":
            return f"{physics}; more worlds a step where the GPU is not full, num_envs (now {now['num_envs']})"
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
