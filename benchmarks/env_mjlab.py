"""Our environment compared with mjlab's flat quadruped on the same CPU, in turn, under random actions.

    make rival-mjlab
    python benchmarks/env_mjlab.py num_envs=1024 out=benchmarks/bench_env_mjlab.json

mjlab pins other versions of MuJoCo and Warp, so it lives in a virtual environment of its own and runs as a second
process (rivals/mjlab_worker.py), which waits on its input while ours steps. Any setting of the task with a dot in its
name, such as sim.timestep=0.004, changes ours. ``--help`` lists the options.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
import torch
from harness import in_turn, make_result, median_ratio, numbers, run_bench, say, seconds
from words import run_script

from robot_rl.cli.options import MAX_COUNT, MAX_ENVS, MAX_SEED, option
from robot_rl.errors import UserError
from robot_rl.performance.env import BLOCK_STEPS, random_actions
from robot_rl.runs.settings import change, default_tree, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from robot_rl_envs.env import Env

ROOT = Path(__file__).parents[1]
DEFAULT_PYTHON = ".venv-mjlab/bin/python"
WORKER = Path(__file__).parent / "rivals" / "mjlab_worker.py"
WORLDS = (64, 128, 256, 512, 1024)
"""Numbers of worlds tried for each of the rival's configurations; it is measured at its best."""
BLOCK_S = 2.0
"""Target length of one of the rival's timed blocks [s]; at least two steps."""
WARM_UP_STEPS = 25
"""Control steps of both before the first timed block, so that robots touch the ground."""

_QUICK = {"mujoco.jacobian": "sparse", "mujoco.cone": "pyramidal"}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "mjlab, default": {},
    "mjlab, sparse and pyramidal": _QUICK,
    "mjlab, fastest found": {**_QUICK, "mujoco.iterations": 5, "mujoco.ls_iterations": 8, "njmax": 64, "nconmax": 16},
}
"""The rival's simulation settings that are changed, by row. Buffers (njmax, nconmax) cost time on its CPU backend."""


def find_python(named: str) -> Path:
    """The rival's interpreter: the one named, else the one that ``make rival-mjlab`` makes.

    Raises:
        UserError: it is not there.
    """
    path = Path(named) if named else ROOT / DEFAULT_PYTHON
    if not path.is_file():
        raise UserError(
            f"rival_python={named or DEFAULT_PYTHON}: no such interpreter; 'make rival-mjlab' makes it, that is: "
            "python3.11 -m venv .venv-mjlab && "
            ".venv-mjlab/bin/pip install -c benchmarks/mjlab-constraints.txt torch mjlab"
        )
    return path


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of the script."""

    task: str = option("go2_flat", "our task")
    num_envs: int = option(1024, "our worlds", least=1, most=MAX_ENVS)
    engine: str = option("auto", "our engine")
    repeats: int = option(31, "timed blocks of each, at least 2 for a spread", least=2, most=MAX_COUNT)
    seed: int = option(0, "seed of worlds and actions", least=0, most=MAX_SEED)
    rival_python: str = option("", "the interpreter mjlab is installed for; .venv-mjlab/bin/python by default")
    rival_worlds: str = option("[64,128,256,512,1024]", "numbers of worlds to try mjlab at; its best counts")
    out: str = option("", "file for the figures as JSON")


class Rival:
    """The rival's process; a context manager that ends it.

    Args:
        python: the interpreter that it is installed for.
        path: a folder that it is installed in with what it pins, put before the interpreter's own packages.
        device: where it simulates.
    """

    def __init__(self, python: Path, path: str = "", device: str = "cpu"):
        self.device = device
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # closed by __exit__
        # Isolated, so that nothing of this project's environment is found there.
        words, environ = [str(python), "-I"], dict(os.environ)
        if path:
            theirs = [path, *filter(None, [os.environ.get("PYTHONPATH")])]
            words, environ["PYTHONPATH"] = [str(python), "-P"], os.pathsep.join(theirs)
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._log}
        self._process = subprocess.Popen([*words, str(WORKER)], env=environ, text=True, **pipes)

    def __enter__(self) -> Rival:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def ask(self, do: str, name: str, **words: Any) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises:
            UserError: the rival failed; the line ends with its own last words.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, "name": name, **words}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            raise UserError(f"mjlab: {name}: {answer['error']}")
        return answer

    def _last_words(self) -> str:
        self._process.wait()
        self._log.seek(0)
        lines = [line.strip() for line in self._log if line.strip()]
        return f"ended with code {self._process.returncode}: {lines[-1] if lines else 'without output'}"


class Contestant:
    """One configuration of the rival, at the number of worlds where it is quickest.

    Attributes:
        who: the configuration's name.
        settings: what its physics runs under.
        tried: control steps a second by number of worlds.
    """

    def __init__(self, rival: Rival, who: str, worlds: Sequence[int], seed: int, say: Callable[[str], None]):
        self.who, self._rival = who, rival
        sim = CONFIGURATIONS[who]
        self.tried: dict[int, float] = {}
        for num_envs in worlds:
            self.settings = self._make(num_envs, sim, seed)
            self._step(2)
            self.tried[num_envs] = 3 * num_envs / self._step(3)
            say(f"{who}: {num_envs} worlds, {self.tried[num_envs]:.0f} control steps/s (not warm yet)")
        best = max(self.tried, key=self.tried.__getitem__)
        if best != self.settings["num_envs"]:
            self.settings = self._make(best, sim, seed)
        self._step(WARM_UP_STEPS - 3)
        pace = self._step(3) / 3
        self.block_steps = max(2, round(BLOCK_S / pace))
        say(f"{who}: measured at {best} worlds, {self.block_steps} steps a block")

    def block(self) -> float:
        """Control steps a second over one block."""
        return self.block_steps * self.settings["num_envs"] / self._step(self.block_steps)

    def contacts(self) -> dict[str, float]:
        """Contacts and constraint rows of a world."""
        return self._rival.ask("contacts", self.who)

    def _make(self, num_envs: int, sim: dict[str, Any], seed: int) -> dict[str, Any]:
        device = self._rival.device
        return self._rival.ask("make", self.who, num_envs=num_envs, sim=sim, seed=seed, device=device)

    def _step(self, steps: int) -> float:
        return self._rival.ask("block", self.who, steps=steps)["seconds"]


def ours_settings(env: Env, sample: int = 64) -> dict[str, Any]:
    """The settings that the environment's physics runs under, with contacts and constraint rows a world as it is now.

    Args:
        env: the environment.
        sample: worlds over which contacts and rows are averaged.
    """
    model, data = env.scene.model, mujoco.MjData(env.scene.model)
    opt, contacts, rows = model.opt, [], []
    for qpos, qvel in zip(env.state.qpos[:sample].cpu(), env.state.qvel[:sample].cpu(), strict=True):
        data.qpos[:], data.qvel[:] = qpos.numpy(), qvel.numpy()
        mujoco.mj_forward(model, data)
        contacts.append(data.ncon)
        rows.append(data.nefc)
    colliding = model.geom_condim[(model.geom_contype | model.geom_conaffinity) != 0]
    threads = getattr(env.engine, "num_threads", 1)
    return {
        "num_envs": env.num_envs,
        "robot": env.cfg.robot.name,
        "timestep_s": opt.timestep,
        "decimation": env.cfg.sim.decimation,
        "integrator": mujoco.mjtIntegrator(opt.integrator).name.removeprefix("mjINT_").lower(),
        "solver": mujoco.mjtSolver(opt.solver).name.removeprefix("mjSOL_").lower(),
        "iterations": opt.iterations,
        "ls_iterations": opt.ls_iterations,
        "tolerance": opt.tolerance,
        "cone": mujoco.mjtCone(opt.cone).name.removeprefix("mjCONE_").lower(),
        "impratio": opt.impratio,
        "jacobian": "sparse" if mujoco.mj_isSparse(model) else "dense",
        "dofs": model.nv,
        "colliding_geoms": len(colliding),
        "condim": f"{colliding.min()} to {colliding.max()}",
        "threads": f"torch {torch.get_num_threads()}, physics {threads}",
        "contacts_per_world": round(float(np.mean(contacts)), 2),
        "constraints_per_world": round(float(np.mean(rows)), 2),
    }


def bench_mjlab(
    make_env: Callable[[], Env],
    rival: Rival,
    *,
    repeats: int = 7,
    worlds: Sequence[int] = WORLDS,
    configurations: Sequence[str] = tuple(CONFIGURATIONS),
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Time our environment and mjlab's in turn, each under random actions, each on its own while the others wait.

    Args:
        make_env: builds our environment.
        rival: the rival's process.
        repeats: timed blocks of each.
        worlds: numbers of worlds to try the rival at.
        configurations: those of :data:`CONFIGURATIONS` to measure.
        seed: seed of worlds and actions.
        say: called with a line of progress.

    Returns:
        The result in the form of `robot_rl.performance.result.make_result`; ``ratio`` is that to the rival's default;
        ``notes["ratios"]`` holds all, ``notes["settings"]`` the solver's settings side by side.

    Raises:
        UserError: the rival failed.
    """
    say("the rival starts; with cold caches its kernels compile for some minutes")
    rivals = [Contestant(rival, who, worlds, seed, say) for who in configurations]
    env = make_env()
    generator = torch.Generator().manual_seed(seed)

    def ours() -> float:
        actions = random_actions(env, generator)
        return len(actions) * env.num_envs / seconds(lambda: [env.step(action) for action in actions], env.device)

    for _ in range(-(-WARM_UP_STEPS // BLOCK_STEPS)):
        ours()
    turns = itertools.count(1)

    def measure() -> list[float]:
        values = [ours(), *(one.block() for one in rivals)]
        say(f"turn {next(turns)} of {repeats}: " + ", ".join(f"{value:,.0f}" for value in values))
        return values

    names = (f"{env.cfg.name} on {env.engine.name}", *(one.who for one in rivals))
    rows = in_turn(names, measure, repeats, warm_up=0)
    mine, *others = rows
    settings = {mine: ours_settings(env), **{one.who: one.settings | one.contacts() for one in rivals}}
    env.close()
    notes = {
        "ratios": {who: round(median_ratio(rows[mine], rows[who]), 1) for who in others},
        "worlds_tried": {one.who: {n: round(value) for n, value in one.tried.items()} for one in rivals},
        "settings": settings,
    }
    return make_result(f"env {env.cfg.name} and mjlab", rows, unit="control steps/s", notes=notes)


def measure(options: Options, dotted: dict[str, Any]) -> dict[str, Any]:
    """Start the rival and measure."""
    ours = {"device": "cpu", **{key: getattr(options, key) for key in ("num_envs", "engine", "seed")}}
    cfg = resolve(change(default_tree(options.task, "cpu"), {**ours, **dotted}))
    python, worlds = find_python(options.rival_python), numbers("rival_worlds", options.rival_worlds)
    with Rival(python) as rival:
        return bench_mjlab(cfg.make_env, rival, repeats=options.repeats, worlds=worlds, seed=options.seed, say=say)


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table, write the figures."""
    run_bench(arguments, Options, measure)


if __name__ == "__main__":
    run_script(main)
