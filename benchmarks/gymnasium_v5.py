"""Ours in Gymnasium's v5 environments, compared with the rivals that gymnasium_rivals.py ran once.

    python benchmarks/gymnasium_v5.py out=benchmarks/bench_gymnasium.json
    python benchmarks/gymnasium_v5.py envs=HalfCheetah-v5 seeds=1,2 rival=live     # its rivals in the same run, in turn

Ours trains in many worlds on our own engine, the rivals in one of Gymnasium's: PPO with CleanRL's settings, and
stable-baselines3's. Two measures are the same for all: the return while training (``rivals.episodes.EpisodeLog``), and
the final deterministic policy in Gymnasium's own environment (``rivals.episodes.evaluate``). Any setting of ``robot-rl
train`` changes ours. Without arguments it trains 5 environments with 3 seeds; ``--help`` lists the options.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium_chart import draw
from gymnasium_rivals import DEFAULT_PYTHON as RIVALS_PYTHON
from gymnasium_rivals import ENVS, RIVALS, ROOT, Job, find_python, read_runs, train_one
from harness import say
from rivals.episodes import EpisodeLog, evaluate
from words import run_script

from robot_rl.cli.options import MAX_ENVS, MAX_SEED, describe, option, read
from robot_rl.cli.table import print_table
from robot_rl.errors import UserError, suggest
from robot_rl.files import write_atomic
from robot_rl.machine import machine_facts, package_versions
from robot_rl.runs.outputs import BENCH, CURVES, check_output, check_outputs
from robot_rl.runs.run_dir import git_state
from robot_rl.runs.settings import change, default_tree, resolve
from robot_rl.settings.schema import from_text

if TYPE_CHECKING:
    from robot_rl_envs.env import Env

    from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg

TASKS = {
    "HalfCheetah-v5": "half_cheetah_v5",
    "Walker2d-v5": "walker2d_v5",
    "Hopper-v5": "hopper_v5",
    "Ant-v5": "ant_v5",
    "Humanoid-v5": "humanoid_v5",
}
COMMITTED = ROOT / "benchmarks" / "gymnasium_rivals.json"
SPEEDS = "gymnasium_rivals_speed.json"
"""Next to the rivals' file: shorter trainings of theirs, alone on the machine, for the wall-clock."""
LIVE_ENV = "HalfCheetah-v5"
TIME_SHARE = 0.35
"""Share of the better rival's wall-clock that ours may take."""


def train_ours(
    make_env: Callable[[], Env],
    cfg: PPOLearnerCfg,
    env_id: str,
    *,
    seed: int,
    steps: int,
    say: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Train ours once and evaluate the policy in Gymnasium's environment.

    Args:
        make_env: builds our environment, with the same seed.
        cfg: the learner's configuration; its number of iterations is replaced by what ``steps`` allow.
        env_id: Gymnasium's name of the environment.
        seed: of everything.
        steps: control steps over all worlds, rounded down to whole rollouts.
        say: called with the points of the curve.

    Returns:
        The training in the form of the file of rivals.

    Raises:
        UserError: fewer steps than one rollout.
    """
    from robot_rl.learn.make_trainer import make_trainer

    env = make_env()
    rollout = env.num_envs * cfg.num_steps
    if steps < rollout:
        raise UserError(f"steps={steps}: must be at least one rollout, {rollout} steps ({env.num_envs} worlds)")
    log = EpisodeLog(steps, rollout, say)
    count_episodes(env, log)
    runner = make_trainer(env, cfg, seed=seed)
    log.begin()
    runner.train(log.steps // rollout)
    result = log.finish()
    returns = evaluate(env_id, make_act(runner.actor), seed=seed)
    curve = result.pop("curve")
    where = {"load": "alone", "machine": machine_facts(), "versions": package_versions(), "git": git_state()}
    found = {"num_envs": env.num_envs, "threads": torch.get_num_threads(), "evaluation": returns}
    env.close()
    return {"env": env_id, "rival": "ours", "seed": seed, "who": "robot-rl", **result, **found, **where, "curve": curve}


def count_episodes(env: Env, log: EpisodeLog) -> None:
    """Make an environment report every step and every finished episode to a log.

    An episode that the training cut short of the time limit at its start (so that worlds do not run out in step) is
    left out, and so is one where the world broke.
    """
    step = env.step
    totals, lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, dtype=np.int64)
    done_steps = 0

    def counted(actions: torch.Tensor) -> Any:
        nonlocal done_steps
        result = step(actions)
        _, reward, done, extras = result
        totals[:] += reward.numpy(force=True).reshape(-1)
        lengths[:] += 1
        done_steps += env.num_envs
        ended = done.numpy(force=True).reshape(-1).astype(bool)
        if ended.any():
            whole = np.ones_like(ended)
            if "time_outs" in extras:
                out_of_time = extras["time_outs"].numpy(force=True).reshape(-1).astype(bool)
                whole &= ~(out_of_time & (lengths < env.max_episode_length))
            if "valid" in extras:
                whole &= extras["valid"].numpy(force=True).reshape(-1).astype(bool)
            for i in np.flatnonzero(ended & whole):
                log.add(totals[i], lengths[i])
            totals[ended], lengths[ended] = 0.0, 0
        log.tick(done_steps)
        return result

    env.step = counted  # type: ignore[method-assign]


def make_act(actor: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return a trained actor's action without noise (A,) at an observation (D,) of Gymnasium's."""
    actor.eval()
    device = next(actor.parameters()).device

    @torch.no_grad()
    def act(obs: np.ndarray) -> np.ndarray:
        return actor.mean(torch.as_tensor(obs, dtype=torch.float32, device=device)[None])[0].numpy(force=True)

    return act


def read_whole_runs(path: Path) -> list[dict[str, Any]]:
    """Return the trainings in a file, each with the figures that the table and the curves are made of.

    Raises:
        UserError: the file is damaged.
    """
    runs = read_runs(path)
    for run in runs:
        job = f"{run['env']}:{run['rival']}:{run['seed']}"
        try:
            columns = [run["curve"][key] for key in ("steps", "seconds", "return")]
            returns = [value for value in (run["return"], *columns[2]) if value is not None]
            numbers = [run["steps"], run["train_s"], *run["evaluation"], *columns[0], *columns[1], *returns]
            whole = all(map(math.isfinite, numbers)) and len(set(map(len, columns))) == 1
            whole = whole and bool(columns[0] and run["evaluation"] and run["load"] and run["machine"]["cpu"])
            whole = whole and run["steps"] > 0 and run["train_s"] > 0
        except (KeyError, TypeError) as error:
            raise UserError(f"{path}: damaged ({job}: {error}); remove it, or take it from git") from None
        if not whole:
            raise UserError(f"{path}: damaged ({job}: figures are missing); remove it, or take it from git")
    return runs


def summary(runs: Sequence[dict[str, Any]], speeds: Sequence[dict[str, Any]] = ()) -> dict[str, Any] | None:
    """Return means and spreads (standard deviations) over the seeds of one contestant; None without a run.

    The wall-clock is the median of the runs that were alone on the machine; where none was, that of shorter ones that
    were (``speeds``), for as many steps; where there are none either, of all runs.
    """
    finished = [run for run in runs if run["return"] is not None]
    if not finished:
        return None
    alone = [run for run in finished if run["load"] == "alone"]
    steps = finished[0]["steps"]
    short = [] if alone else [run for run in speeds if run["load"] == "alone"]
    timed = alone or short or finished

    def mean_spread(values: list[float]) -> tuple[float, float]:
        return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0

    value, spread = mean_spread([run["return"] for run in finished])
    evaluated, evaluated_spread = mean_spread([statistics.fmean(run["evaluation"]) for run in finished])
    return {
        "return": round(value, 1),
        "spread": round(spread, 1),
        "evaluation": round(evaluated, 1),
        "evaluation_spread": round(evaluated_spread, 1),
        "seeds": sorted(run["seed"] for run in finished),
        "train_s": round(statistics.median(run["train_s"] * steps / run["steps"] for run in timed), 1),
        "timed_alone": bool(alone or short),
        "timed_steps": timed[0]["steps"],
        "cpu": sorted({run["machine"]["cpu"] for run in timed}),
    }


def compare(
    env_id: str,
    ours: Sequence[dict[str, Any]],
    rivals: Sequence[dict[str, Any]],
    speeds: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return one row of the table.

    Returns:
        "env", "ours" and the rivals' names with :func:`summary` of each, "better" (the rival with the higher return,
        None without one), "ratio" of the returns, "reached" (ours is at least the better's mean less its spread),
        "reached_evaluation" (the same by the evaluation), "time_ratio", "quick" (at most :data:`TIME_SHARE`),
        "same_cpu", "met" (reached and quick; None, and nothing before it, where ours or the rivals are missing).
    """
    row: dict[str, Any] = {"env": env_id, "ours": summary([run for run in ours if run["env"] == env_id])}
    for name in RIVALS:
        row[name] = summary(
            *([run for run in all_ if (run["env"], run["rival"]) == (env_id, name)] for all_ in (rivals, speeds))
        )
    there = [name for name in RIVALS if row[name]]
    mine = row["ours"]
    better = row["better"] = max(there, key=lambda name: row[name]["return"]) if there else None
    if better is None or not mine:
        return row | {"met": None}
    best = row[better]
    evaluated = max((row[name] for name in there), key=lambda one: one["evaluation"])
    time_ratio = mine["train_s"] / best["train_s"]
    reached = mine["return"] >= best["return"] - best["spread"]
    return row | {
        "ratio": round(mine["return"] / best["return"], 3) if best["return"] > 0.0 else None,
        "reached": reached,
        "reached_evaluation": mine["evaluation"] >= evaluated["evaluation"] - evaluated["evaluation_spread"],
        "time_ratio": round(time_ratio, 3),
        "quick": time_ratio <= TIME_SHARE,
        "same_cpu": mine["cpu"] == best["cpu"],
        "met": reached and time_ratio <= TIME_SHARE,
    }


def make_table_result(
    envs: Iterable[str],
    ours: Sequence[dict[str, Any]],
    committed: Sequence[dict[str, Any]],
    live: Sequence[dict[str, Any]],
    speeds: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return the benchmark's result.

    Args:
        envs: Gymnasium's names.
        ours: our trainings.
        committed: the rivals' of the file.
        live: the rivals' of the same run; where an environment has them, ours is compared with these.
        speeds: shorter trainings of the rivals' alone on the machine.

    Returns:
        "name", "machine", "versions", "rows" (who, value, unit, spread, repeats, as every benchmark), "ratio" (the
        smallest of the table), "notes", "table" (:func:`compare`), "runs" (ours), "live".
    """
    table, rows = [], []
    for env_id in envs:
        rivals = [run for run in live if run["env"] == env_id]
        row = compare(env_id, ours, rivals or committed, () if rivals else speeds)
        table.append(row | {"live": bool(rivals)})
        for name in ("ours", *RIVALS):
            if one := row[name]:
                who = f"{env_id} {'robot-rl' if name == 'ours' else RIVALS[name]}"
                figures = {"value": one["return"], "unit": "return", "spread": one["spread"]}
                rows.append({"who": who, **figures, "repeats": len(one["seeds"])})
    return {
        "name": "gymnasium v5",
        "machine": machine_facts(),
        "versions": package_versions(),
        "rows": rows,
        "ratio": min((row["ratio"] for row in table if row.get("ratio")), default=None),
        "notes": {
            "return": "mean of the last 100 finished training episodes, stochastic policy, Gymnasium's rewards",
            "evaluation": "20 episodes of the final deterministic policy in Gymnasium's own environment",
            "spread": "standard deviation over seeds",
            "reached": "ours is at least the better rival's mean less its spread",
            "time_share": TIME_SHARE,
        },
        "table": table,
        "runs": list(ours),
        "live": list(live),
    }


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of the script."""

    envs: str = option("", "such as HalfCheetah-v5,Hopper-v5; all five by default")
    seeds: str = option("1,2,3", "a training for each")
    steps: int = option(1_000_000, "control steps of a training, over all worlds", least=2048)
    num_envs: int = option(0, "worlds of ours; the task's own number by default", least=0, most=MAX_ENVS)
    rival: str = option("committed", f"committed: their file; live: {LIVE_ENV}'s in this run too, in turn with ours")
    rival_runs: str = option("", "the rivals' file; benchmarks/gymnasium_rivals.json by default")
    rival_python: str = option("", "the rivals' interpreter; .venv-gymrivals/bin/python by default")
    resume: bool = option(False, "keep trainings that out= holds already, where their settings are the same")
    out: str = option("", "file for the figures as JSON, written after every training")
    svg: str = option("", "file for the curves; next to out= by default")


class Board:
    """The trainings so far, in the file they are written to after each.

    Args:
        options: the command's.
        envs: Gymnasium's names.
    """

    def __init__(self, options: Options, envs: Sequence[str]):
        self.envs, self.out = envs, Path(options.out) if options.out else None
        self.svg = Path(options.svg) if options.svg else None
        if self.out and not options.svg:
            self.svg = check_output("svg", str(self.out.with_suffix(".svg")), CURVES)
        file = Path(options.rival_runs or COMMITTED)
        self.committed = read_whole_runs(file)
        self.speeds = read_whole_runs(file.with_name(SPEEDS))
        self.ours: list[dict[str, Any]] = []
        self.live: list[dict[str, Any]] = []
        if options.resume and self.out and self.out.is_file():
            try:
                before = json.loads(self.out.read_text())
                self._before = [*before["runs"], *before["live"]]
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise UserError(f"out={self.out}: damaged ({error}); remove it, or leave resume= out") from None
        else:
            self._before = []

    def known(self, env_id: str, rival: str, seed: int, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """A training that the file held before, with the same settings."""
        for run in self._before:
            same = (run["env"], run["rival"], run["seed"]) == (env_id, rival, seed)
            if same and all(run.get(key) == value for key, value in settings.items()):
                return run
        return None

    def add(self, run: dict[str, Any]) -> None:
        """Take in a training, and write the files."""
        (self.ours if run["rival"] == "ours" else self.live).append(run)
        if self.out:
            write_atomic(self.out, dump(self.result()))
        if self.svg:
            live = {one["env"] for one in self.live}
            rivals = [*self.live, *(one for one in self.committed if one["env"] not in live)]
            write_atomic(self.svg, draw(self.result()["table"], [*self.ours, *rivals]))

    def result(self) -> dict[str, Any]:
        """The benchmark's result as it stands."""
        return make_table_result(self.envs, self.ours, self.committed, self.live, self.speeds)


def bench_gymnasium(arguments: Sequence[str]) -> dict[str, Any]:
    """Train ours, and the rivals where they run live, and return the result, which is in the files already."""
    check_outputs(arguments, {"out": BENCH, "svg": CURVES})
    options, changes = read(Options, arguments, every=True)
    envs, seeds, python = _checked(options)
    settings = _settings(changes, envs[0])
    board = Board(options, envs)
    if options.rival == "live" and python is None:
        say("rival=live: no .venv-gymrivals here, so the rivals are those of the file; 'make rival-gymnasium' makes it")
    for seed in seeds:
        for env_id in envs:
            board.add(_ours(env_id, seed, options, settings, board))
            if env_id == LIVE_ENV and python:
                for run in _rivals(env_id, seed, options, python, board):
                    board.add(run)
    return board.result()


def _checked(options: Options) -> tuple[list[str], list[int], Path | None]:
    """The environments, the seeds and the rivals' interpreter (None where the rivals do not run).

    Raises:
        UserError: an option that cannot be used.
    """
    envs = list(filter(None, options.envs.split(","))) or list(ENVS)
    for name in envs:
        if name not in ENVS:
            raise UserError(f"envs={options.envs}: no '{name}'; {suggest(name, ENVS)}")
    if len(set(envs)) < len(envs):
        raise UserError(f"envs={options.envs}: one is named twice")
    seeds = [from_text(int, word, "seeds") for word in options.seeds.split(",")]
    if len(set(seeds)) < len(seeds) or not all(0 <= seed <= MAX_SEED for seed in seeds):
        raise UserError(f"seeds={options.seeds}: must be different whole numbers in [0, {MAX_SEED}], such as 1,2,3")
    if options.rival not in ("committed", "live"):
        raise UserError(f"rival={options.rival}: must be committed or live")
    if options.resume and not options.out:
        raise UserError("resume=true: needs out=, the file with the trainings to keep")
    python = None
    if options.rival == "live":
        default = ROOT / RIVALS_PYTHON
        if options.rival_python or default.is_file():
            python = find_python(options.rival_python)
    return envs, seeds, python


def _settings(changes: dict[str, Any], env_id: str) -> dict[str, Any]:
    """The settings of a training that the command changes.

    Raises:
        UserError: an unknown setting, or one that the command has an option of its own for.
    """
    if not changes:
        return {}
    own = [field.name for field in dataclasses.fields(Options)]
    free = set(default_tree(TASKS[env_id], "cpu")) - {"task", "seed", "device", "max_iterations", "init_from", "root"}
    for key in changes:
        if "." not in key and key not in free:
            raise UserError(f"unknown key '{key}': {suggest(key, [*own, *sorted(free)])}")
    return changes


def _ours(env_id: str, seed: int, options: Options, changed: Mapping[str, Any], board: Board) -> dict[str, Any]:
    overrides = {"device": "cpu", "seed": seed, **({"num_envs": options.num_envs} if options.num_envs else {})}
    cfg = resolve(change(default_tree(TASKS[env_id], "cpu"), {**overrides, **changed}))
    rollout = cfg.num_envs * cfg.learner.num_steps
    # As JSON gives it back: tuples are lists there.
    tree = json.loads(json.dumps({key: value for key, value in cfg.tree.items() if key not in ("root", "metrics")}))
    settings = {"steps": options.steps // rollout * rollout, "settings": tree}
    if found := board.known(env_id, "ours", seed, settings):
        say(f"{env_id}:ours:{seed}: kept")
        return found
    say(f"{env_id}:ours:{seed}: {cfg.num_envs} worlds")
    run = train_ours(cfg.make_env, cfg.learner, env_id, seed=seed, steps=options.steps, say=_tenth(env_id, seed))
    say(f"{env_id}:ours:{seed}: return {run['return']}, {run['train_s']:.0f} s")
    curve = run.pop("curve")
    return {**run, "settings": tree, "curve": curve}


def _rivals(env_id: str, seed: int, options: Options, python: Path, board: Board) -> list[dict[str, Any]]:
    runs = []
    for rival in RIVALS:
        found = board.known(env_id, rival, seed, {"steps": options.steps // 2048 * 2048})
        runs.append(found or train_one(python, Job(env_id, rival, seed), options.steps, say))
    return runs


def _tenth(env_id: str, seed: int):  # noqa: ANN202
    """Return a function that prints every tenth point of a curve."""
    count = 0

    def report(point: dict[str, Any]) -> None:
        nonlocal count
        count += 1
        if count % 10 == 0:
            value = "no episode yet" if point["return"] is None else f"return {point['return']:.0f}"
            say(f"{env_id}:ours:{seed}: {point['step']:,} steps, {value}, {point['seconds']:.0f} s")

    return report


def dump(result: Mapping[str, Any]) -> str:
    """The result as JSON, a training a line."""
    runs = {key: result[key] for key in ("runs", "live")}
    head = json.dumps({key: value for key, value in result.items() if key not in runs}, indent=2)
    lists = [f'  "{key}": [\n' + ",\n".join(json.dumps(run) for run in value) + "\n  ]" for key, value in runs.items()]
    return head[:-2] + ",\n" + ",\n".join(lists) + "\n}\n"


def show(result: Mapping[str, Any]) -> None:
    """Prints the table: ours, the better rival, both measures, the wall-clock, what is met."""
    print(f"{result['name']}: {result['machine']['cpu']}, {result['machine']['cores']} cores")
    head = (
        "environment",
        "who",
        "return",
        "evaluated",
        "s",
        "seeds",
        "of the better",
        f"time, <= {TIME_SHARE:g}",
        "met",
    )
    rows = []
    for row in result["table"]:
        for name in ("ours", *RIVALS):
            if not (one := row[name]):
                continue
            who = "robot-rl" if name == "ours" else name + (" (live)" if row["live"] else "")
            figures = [f"{one['return']:.0f} ± {one['spread']:.0f}"]
            figures += [f"{one['evaluation']:.0f} ± {one['evaluation_spread']:.0f}", f"{one['train_s']:.0f}"]
            verdict = ("", "", "better" if name == row["better"] else "")
            if name == "ours" and row["met"] is not None:
                verdict = (f"{row['ratio'] or 0:.2f}", f"{row['time_ratio']:.2f}", "yes" if row["met"] else "no")
            rows.append((row["env"], who, *figures, str(len(one["seeds"])), *verdict))
    print_table(head, rows, right=(2, 3, 4, 5, 6, 7), least=120)
    for row in result["table"]:
        if not row["better"]:
            print(f"{row['env']}: its rivals were not run yet; benchmarks/gymnasium_rivals.py does")
        elif row["met"] is not None and not row["same_cpu"]:
            print(f"{row['env']}: the rival's wall-clock is of another machine: {', '.join(row[row['better']]['cpu'])}")
    for name, about in RIVALS.items():
        print(f"  {name}: {about}")
    for key, value in result["notes"].items():
        print(f"  {key}: {value}")


def main(arguments: list[str]) -> None:
    """Train, print the table."""
    if {"--help", "-h"} & set(arguments):
        print(f"{__doc__}\n{describe(Options)}")
    else:
        show(bench_gymnasium(arguments))


if __name__ == "__main__":
    run_script(main)
