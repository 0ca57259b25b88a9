"""Cost of training beyond the simulation in an environment of Isaac Lab, against Isaac Lab's own rsl_rl runner.

    make isaac
    .venv-isaac/bin/python benchmarks/isaac_overhead.py task=isaac/Isaac-Cartpole num_envs=512 assets=own

Both train in the same environment object, in turn, with the settings of the environment's own agent. What is measured
is an iteration less the time inside of Isaac Lab's step. ``--help`` lists the options.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

import torch
from harness import in_turn, make_result, run_bench
from words import run_script

from robot_rl.cli.options import MAX_COUNT, MAX_ENVS, option
from robot_rl.errors import UserError
from robot_rl.runs.settings import change, default_tree, resolve
from robot_rl.sources.isaaclab.lab import hushed
from robot_rl.sources.registry import source_of

if TYPE_CHECKING:
    from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
    from robot_rl.sources.isaaclab.task import IsaacTask

OURS, RIVAL = "robot-rl", "Isaac Lab's rsl_rl runner"


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of the script."""

    task: str = option("isaac/Isaac-Cartpole-Direct", "the environment")
    assets: str = option("", "a folder of USD files, or own, where Isaac Lab's store cannot be reached")
    num_envs: int = option(64, "worlds", least=1, most=MAX_ENVS)
    device: str = option("auto", "auto, cpu, cuda or cuda:<index>")
    iterations: int = option(5, "iterations of a timed block", least=1, most=MAX_COUNT)
    repeats: int = option(7, "timed blocks of each", least=2, most=MAX_COUNT)
    out: str = option("", "file for the figures as JSON")


class StepClock:
    """Counts the time spent inside of an environment's step.

    Attributes:
        spent: time inside so far [s].
        now: the clock: of this process's work on a CPU, so that what else runs is left out; of the wall on a GPU.
    """

    def __init__(self, env: Any, device: str) -> None:
        """Replace the environment's step.

        Args:
            env: the environment.
            device: where it runs.
        """
        self._step, self._env, self.spent = env.step, env, 0.0
        self._on_gpu = device.startswith("cuda")
        env.step = self

    def now(self) -> float:
        """Read the clock [s]."""
        if self._on_gpu:
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()

    def __call__(self, action: torch.Tensor) -> Any:
        """Step the environment."""
        start = self.now()
        result = self._step(action)
        self.spent += self.now() - start
        return result

    def overhead(self, run: Callable[[], object]) -> tuple[float, float]:
        """Return the time that a run takes outside of the environment's steps, and inside [s]."""
        start, before = self.now(), self.spent
        run()
        whole, inside = self.now() - start, self.spent - before
        return whole - inside, inside


def bench_isaac(
    task: IsaacTask, learner: PPOLearnerCfg, *, num_envs: int, device: str, iterations: int, repeats: int
) -> dict[str, Any]:
    """Measure both in turn.

    Args:
        task: the environment.
        learner: our learner's settings, from the environment's agent.
        num_envs: number of worlds.
        device: "cpu" or "cuda:<index>".
        iterations: of one timed block.
        repeats: blocks of each.

    Returns:
        The result, in seconds an iteration; "ratio" below 1 is less than the rival.

    Raises:
        UserError: the environment has no agent for rsl_rl, or cannot be made.
    """
    from robot_rl.learn.trainer import Trainer

    agent = task.load_agent()
    if agent is None:
        raise UserError(f"task={task.name}: Isaac Lab has no rsl_rl agent for it, so there is nothing to compare with")
    env = task.make_env(num_envs, seed=1, device=device)
    try:
        clock = StepClock(env.env, device)
        rival = _make_rival(env.env, agent, device)
        ours = Trainer(env, learner, run_dir=None, seed=1)
        inside: list[float] = []

        def measure() -> tuple[float, float]:
            env.cfg.compute_final_obs = True
            mine = clock.overhead(lambda: ours.train(ours.iteration + iterations))
            env.cfg.compute_final_obs = False  # Of no use to the rival, and at its cost.
            with hushed():
                theirs = clock.overhead(lambda: rival.train(iterations))
            inside.append(mine[1] / iterations)
            inside.append(theirs[1] / iterations)
            return mine[0] / iterations, theirs[0] / iterations

        rows = in_turn((OURS, RIVAL), measure, repeats)
    finally:
        env.close()
    notes = {
        "rollout": f"{num_envs} worlds x {learner.num_steps} steps, {task.name} on {device}",
        "networks": f"actor {list(learner.actor.hidden)}, critic {list(learner.critic.hidden)}",
        "measured": "an iteration less the time in Isaac Lab's step; on a CPU this process's own time, one thread",
        "step of Isaac Lab [s an iteration]": round(statistics.fmean(inside[2:]), 4),
    }
    return make_result(f"learner overhead in {task.name}", rows, unit="s/iteration", notes=notes)


def _make_rival(env: Any, agent: Any, device: str) -> Any:
    """Isaac Lab's own wrapper and runner around the environment."""
    rsl_rl = importlib.import_module("isaaclab_rl.rsl_rl")

    agent.device = device
    with hushed():
        agent = rsl_rl.handle_deprecated_rsl_rl_cfg(agent, metadata.version("rsl-rl-lib"))
        wrapped = rsl_rl.RslRlVecEnvWrapper(env, clip_actions=agent.clip_actions)
        return rsl_rl.create_rsl_rl_runner(wrapped, agent, log_dir=None)


def measure(options: Options, dotted: dict[str, Any]) -> dict[str, Any]:
    """Resolve the settings and measure; raise UserError for a task of another source."""
    if source_of(options.task).name != "isaaclab":
        raise UserError(f"task={options.task}: must be isaac/<id>; robot-rl bench env measures tasks of ours")
    settings = {"num_envs": options.num_envs, "assets": options.assets, **dotted}
    cfg: Any = resolve(change(default_tree(options.task, options.device), settings))
    words = {"num_envs": cfg.num_envs, "device": cfg.device}
    return bench_isaac(cfg.task, cfg.learner, **words, iterations=options.iterations, repeats=options.repeats)


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table, write the figures."""
    run_bench(arguments, Options, measure)


if __name__ == "__main__":
    run_script(main)
