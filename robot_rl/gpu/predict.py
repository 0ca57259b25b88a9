"""What an iteration of a run must take on a card at least, before there is one, and what it took where there is one."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import warp as wp

from robot_rl.errors import UserError
from robot_rl.gpu.cards import Card
from robot_rl.gpu.footprint import Footprint, measure_footprint
from robot_rl.gpu.traffic import Traffic, Use, measure_traffic
from robot_rl.learn.runner import make_runner
from robot_rl.settings import apply_overrides

KERNEL_S = 2e-6
"""Least time of a kernel in a graph, beginning and end included [s]; assumed, not measured."""
RESERVED = 1.5e9
"""Memory that CUDA, its libraries and the kernels take [bytes]; assumed, not measured."""
USABLE = 0.95
"""Share of a card's memory that can be filled."""
REPEATS = 50


@dataclass(frozen=True, slots=True)
class Prediction:
    """The least that an iteration needs.

    Attributes:
        card: where it would run.
        worlds: number of worlds.
        num_steps: control steps of a rollout.
        traffic: what each kernel of a control step moves.
        use: the contacts, rows and iterations of the solver that it rests on.
        footprint: memory, and the learner's kernels.
        measured: seconds of a control step, and by kernel, on the GPU that is here; None without one.
    """

    card: Card
    worlds: int
    num_steps: int
    traffic: list[Traffic]
    use: Use
    footprint: Footprint
    measured: dict[str, Any] | None = None

    def seconds(self, traffic: Traffic) -> float:
        """Return the least time in which the card's memory moves what a kernel moves in a control step."""
        return traffic.bytes_of(self.worlds) / self.card.bandwidth

    @property
    def launches(self) -> float:
        """Kernels of a control step."""
        return sum(one.launches for one in self.traffic)

    @property
    def step_s(self) -> float:
        """Least time of a control step: each kernel takes as long as its bytes, and at least KERNEL_S a launch."""
        return sum(max(self.seconds(one), one.launches * KERNEL_S) for one in self.traffic)

    @property
    def moving_s(self) -> float:
        """Least time of a control step by its bytes alone."""
        return sum(self.seconds(one) for one in self.traffic)

    @property
    def memory(self) -> float:
        """Memory of a run [bytes]."""
        return RESERVED + self.footprint.memory(self.worlds)

    @property
    def largest(self) -> int:
        """The largest number of worlds that the card's memory has room for."""
        each = self.footprint.memory(1) - self.footprint.fixed_bytes
        return max(0, int((USABLE * self.card.memory - RESERVED - self.footprint.fixed_bytes) / each))

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, with the sums."""
        kernels = [{**asdict(one), "least_s": self.seconds(one)} for one in self.traffic]
        measured = (self.measured or {}).get("kernels", {})
        for one in kernels:
            if one["name"] in measured:
                one["measured_s"] = measured[one["name"]]
        return {
            "card": asdict(self.card),
            "worlds": self.worlds,
            "num_steps": self.num_steps,
            "bytes_per_world_step": sum(one.read + one.written for one in self.traffic),
            "kernels_per_step": self.launches,
            "moving_s": self.moving_s,
            "step_s": self.step_s,
            "steps_per_s": self.worlds / self.step_s,
            "measured_step_s": None if self.measured is None else self.measured["step_s"],
            "use": asdict(self.use),
            "footprint": asdict(self.footprint),
            "memory_bytes": self.memory,
            "largest_num_envs": self.largest,
            "assumed": {"kernel_s": KERNEL_S, "reserved_bytes": RESERVED, "usable": USABLE},
            "kernels": kernels,
        }


def predict(cfg: Any, card: Card) -> Prediction:
    """Predict what a run needs on a card, and measure it where torch sees a GPU.

    Args:
        cfg: the run, on the CPU with the engine of GPUs (`robot_rl.experiment.settings.resolve_for_gpu`).
        card: the card.

    Raises:
        UserError: the learner has a loop of its own.
    """
    learner = cfg.learner
    if hasattr(learner, "make_session"):
        raise UserError(f"learner={learner.name}: has a loop of its own; card= looks at robot-rl's")
    warm = {name: value for name, value in learner.brief.items() if name.endswith(".warm_up")}
    learner = apply_overrides(learner, {**warm, "graph": "off"})

    def make_env(worlds: int, engine: str, device: str = "cpu") -> Any:
        return cfg.source.make_env(cfg.task, replace(cfg.worlds(worlds), engine=engine, device=device))

    traffic, use = measure_traffic(make_env)
    footprint = measure_footprint(
        lambda worlds: make_env(worlds, "mujoco_warp"), lambda env: make_runner(env, learner, seed=cfg.seed)
    )
    measured = None
    if torch.cuda.is_available():
        measured = measure_step(make_env(cfg.num_envs, "mujoco_warp", "cuda:0"))
    return Prediction(
        card=card,
        worlds=cfg.num_envs,
        num_steps=cfg.learner.num_steps,
        traffic=traffic,
        use=use,
        footprint=footprint,
        measured=measured,
    )


def measure_step(env: Any) -> dict[str, Any]:
    """Return the seconds of a control step in its graph, and those of each kernel outside of it, on a GPU."""
    try:
        action = torch.zeros(env.num_envs, env.num_actions, device=env.device)
        for _ in range(5):
            env.step(action)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(REPEATS):
            env.step(action)
        end.record()
        end.synchronize()
        wp.timing_begin(cuda_filter=wp.TIMING_KERNEL)
        env._advance()
        seconds: dict[str, float] = {}
        for one in wp.timing_end():
            name = one.name.split()[-1].replace("__locals__kernel", "").replace("__locals_", "")
            seconds[name] = seconds.get(name, 0.0) + one.elapsed / 1000.0
        return {"step_s": start.elapsed_time(end) / 1000.0 / REPEATS, "kernels": seconds}
    finally:
        env.close()
