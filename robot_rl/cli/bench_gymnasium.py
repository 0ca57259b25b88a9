"""robot-rl bench gymnasium: ours in Gymnasium's environments, beside the rivals of a file or of the same run."""

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.cli.options import MAX_ENVS, MAX_SEED, convert, option, read
from robot_rl.errors import UserError, suggest
from robot_rl.experiment.outputs import CURVES, check_output

LIVE_ENV = "HalfCheetah-v5"


@dataclass(kw_only=True, slots=True)
class GymnasiumOptions:
    """Options of robot-rl bench gymnasium."""

    envs: str = option("", "such as HalfCheetah-v5,Hopper-v5; all five by default")
    seeds: str = option("1,2,3", "a training for each")
    steps: int = option(1_000_000, "control steps of a training, over all worlds", least=2048)
    num_envs: int = option(0, "worlds of ours; the task says how many by default", least=0, most=MAX_ENVS)
    rival: str = option("committed", f"committed: their file; live: {LIVE_ENV}'s in this run too, in turn with ours")
    rival_runs: str = option("", "the rivals' file; benchmarks/gymnasium_rivals.json by default")
    rival_python: str = option("", "the rivals' interpreter; .venv-gymrivals/bin/python by default")
    resume: bool = option(False, "keep trainings that out= holds already, where their settings are the same")
    out: str = option("", "file for the figures as JSON, written after every training")
    svg: str = option("", "file for the curves; beside out= by default")


class Board:
    """The trainings so far, in the file they are written to after each.

    Args:
        options: the command's.
        envs: Gymnasium's names.
    """

    def __init__(self, options: GymnasiumOptions, envs: Sequence[str]):
        from robot_rl.bench import gymnasium_v5

        self.envs, self.out = envs, Path(options.out) if options.out else None
        self.svg = Path(options.svg) if options.svg else None
        if self.out and not options.svg:
            self.svg = check_output("svg", str(self.out.with_suffix(".svg")), CURVES)
        file = Path(options.rival_runs or gymnasium_v5.COMMITTED)
        self.committed = gymnasium_v5.read_whole_runs(file)
        self.speeds = gymnasium_v5.read_whole_runs(file.with_name(gymnasium_v5.SPEEDS))
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
            from robot_rl.files import write_atomic

            write_atomic(self.out, dump(self.result()))
        if self.svg:
            from robot_rl.bench.gymnasium_chart import draw
            from robot_rl.files import write_atomic

            live = {one["env"] for one in self.live}
            beside = [*self.live, *(one for one in self.committed if one["env"] not in live)]
            write_atomic(self.svg, draw(self.result()["table"], [*self.ours, *beside]))

    def result(self) -> dict[str, Any]:
        """The benchmark's result as it stands."""
        from robot_rl.bench.gymnasium_v5 import make_table_result

        return make_table_result(self.envs, self.ours, self.committed, self.live, self.speeds)


def bench_gymnasium(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Trains ours, and the rivals where they run live; returns the result, and no file: it is written already."""
    options, changes = read(GymnasiumOptions, arguments, every=True)
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
    return board.result(), ""


def _checked(options: GymnasiumOptions) -> tuple[list[str], list[int], Path | None]:
    """The environments, the seeds and the rivals' interpreter (None where the rivals do not run).

    Raises:
        UserError: an option that cannot be used.
    """
    from robot_rl.bench import gymnasium_rivals

    envs = list(filter(None, options.envs.split(","))) or list(gymnasium_rivals.ENVS)
    for name in envs:
        if name not in gymnasium_rivals.ENVS:
            raise UserError(f"envs={options.envs}: no '{name}'; {suggest(name, gymnasium_rivals.ENVS)}")
    if len(set(envs)) < len(envs):
        raise UserError(f"envs={options.envs}: one is named twice")
    seeds = [convert(int, word, "seeds") for word in options.seeds.split(",")]
    if len(set(seeds)) < len(seeds) or not all(0 <= seed <= MAX_SEED for seed in seeds):
        raise UserError(f"seeds={options.seeds}: must be different whole numbers in [0, {MAX_SEED}], such as 1,2,3")
    if options.rival not in ("committed", "live"):
        raise UserError(f"rival={options.rival}: must be committed or live")
    if options.resume and not options.out:
        raise UserError("resume=true: needs out=, the file whose trainings are kept")
    python = None
    if options.rival == "live":
        default = gymnasium_rivals.ROOT / gymnasium_rivals.DEFAULT_PYTHON
        if options.rival_python or default.is_file():
            python = gymnasium_rivals.find_python(options.rival_python)
    return envs, seeds, python


def _settings(changes: dict[str, Any], env_id: str) -> dict[str, Any]:
    """The settings of a training that the command changes.

    Raises:
        UserError: one that there is not, or that the command has a word of its own for.
    """
    from robot_rl.bench.gymnasium_v5 import TASKS
    from robot_rl.experiment.settings import default_tree

    if not changes:
        return {}
    own = [field.name for field in dataclasses.fields(GymnasiumOptions)]
    free = set(default_tree(TASKS[env_id], "cpu")) - {"task", "seed", "device", "max_iterations", "init_from", "root"}
    for key in changes:
        if "." not in key and key not in free:
            raise UserError(f"unknown key '{key}': {suggest(key, [*own, *sorted(free)])}")
    return changes


def _ours(
    env_id: str, seed: int, options: GymnasiumOptions, changed: Mapping[str, Any], board: Board
) -> dict[str, Any]:
    from robot_rl.bench.gymnasium_v5 import TASKS, train_ours
    from robot_rl.experiment.settings import change, default_tree, resolve

    told = {"device": "cpu", "seed": seed, **({"num_envs": options.num_envs} if options.num_envs else {})}
    cfg = resolve(change(default_tree(TASKS[env_id], "cpu"), {**told, **changed}))
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


def _rivals(env_id: str, seed: int, options: GymnasiumOptions, python: Path, board: Board) -> list[dict[str, Any]]:
    from robot_rl.bench.gymnasium_rivals import RIVALS, Job, train_one

    runs = []
    for rival in RIVALS:
        found = board.known(env_id, rival, seed, {"steps": options.steps // 2048 * 2048})
        runs.append(found or train_one(python, Job(env_id, rival, seed), options.steps, say))
    return runs


def _tenth(env_id: str, seed: int):  # noqa: ANN202
    """What says every tenth point of a curve."""
    count = 0

    def tell(point: dict[str, Any]) -> None:
        nonlocal count
        count += 1
        if count % 10 == 0:
            value = "no episode yet" if point["return"] is None else f"return {point['return']:.0f}"
            say(f"{env_id}:ours:{seed}: {point['step']:,} steps, {value}, {point['seconds']:.0f} s")

    return tell


def say(line: str) -> None:
    """Prints a line of progress."""
    print(line, file=sys.stderr, flush=True)


def dump(result: Mapping[str, Any]) -> str:
    """The result as JSON, a training a line."""
    runs = {key: result[key] for key in ("runs", "live")}
    head = json.dumps({key: value for key, value in result.items() if key not in runs}, indent=2)
    lists = [f'  "{key}": [\n' + ",\n".join(json.dumps(run) for run in value) + "\n  ]" for key, value in runs.items()]
    return head[:-2] + ",\n" + ",\n".join(lists) + "\n}\n"


def show(result: Mapping[str, Any]) -> None:
    """Prints the table: ours, the better rival, both measures, the wall-clock, what is met."""
    from robot_rl.bench.gymnasium_rivals import RIVALS
    from robot_rl.bench.gymnasium_v5 import TIME_SHARE
    from robot_rl.cli.bench import print_table

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
