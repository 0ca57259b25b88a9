"""``robot-rl bench env``: our environment's control steps compared with bare physics, in turn, in one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from robot_rl.bench.profile import profile_env
from robot_rl.bench.result import make_result, seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from robot_rl_envs.env import Env

BLOCK_STEPS = 20
"""Control steps of one timed block."""
PROFILE_BLOCKS = 10
"""Blocks over which the stages of a step are timed."""


class BareBatch:
    """``mujoco.batch.Batch`` of the environment's own model with nothing bound but its state rows."""

    def __init__(self, env: Env):
        from mujoco.batch import Batch

        self.batch = Batch(env.scene.model, env.num_envs)
        self.ctrl = self.batch.bind("ctrl")
        rows = env.describe_policy()["actions"]
        self.offset = np.array([row["offset"] for row in rows])
        self.scale = np.array([row["scale"] for row in rows])
        self.substeps = env.cfg.sim.decimation

    def start(self, state: np.ndarray) -> None:
        """Begin a block from the environment's state."""
        self.batch.state[...] = state

    def step(self, actions: np.ndarray) -> None:
        """Advance by one control period."""
        self.ctrl[...] = self.offset + self.scale * actions
        self.batch.step(nstep=self.substeps)


def random_actions(env: Env, generator: torch.Generator) -> torch.Tensor:
    """Return the actions of one block, (:data:`BLOCK_STEPS`, N, num_actions), normal with a deviation of 0.5."""
    shape = (BLOCK_STEPS, env.num_envs, env.num_actions)
    return (0.5 * torch.randn(shape, generator=generator)).to(env.device)


def _block(env: Env, bare: BareBatch | None, actions: torch.Tensor) -> tuple[float, float]:
    """Time one block of ours and one of the rival's, from the same states with the same actions [s]."""
    state = env.engine.get_state() if bare else None

    def ours() -> None:
        for action in actions:
            env.step(action)

    def rival() -> None:
        assert bare is not None
        for action in numpy_actions:
            bare.step(action)

    mine = seconds(ours, env.device)
    if bare is None or state is None:
        return mine, float("nan")
    numpy_actions = actions.numpy().astype(np.float64)
    bare.start(state)
    return mine, seconds(rival, env.device)


def bench_env(make_env: Callable[[], Env], *, repeats: int = 31, seed: int = 0, profile: bool = True) -> dict[str, Any]:
    """Time the environment under random actions; on the CPU engine in turn with bare ``Batch.step``.

    Both start each block from the same states and take the same actions, so the contacts they solve are the same. The
    bare batch computes no forward stage after its steps, has nothing bound and shares one model among all worlds.

    Args:
        make_env: Builds the environment.
        repeats: Timed blocks of :data:`BLOCK_STEPS` control steps; one more warms up.
        seed: Seed of the random actions.
        profile: Whether to time the stages of a step, too, in blocks after the figure's.

    Returns:
        The result in the form of :func:`robot_rl.bench.result.make_result`; ``ratio`` is ours / bare, and ``profile``
        is that of :func:`robot_rl.bench.profile.profile_env`.
    """
    env = make_env()
    bare = BareBatch(env) if env.engine.name == "mujoco" else None
    generator = torch.Generator().manual_seed(seed)
    times = [_block(env, bare, random_actions(env, generator)) for _ in range(repeats + 1)][1:]
    work = env.num_envs * BLOCK_STEPS
    rows = {f"{env.cfg.name} on {env.engine.name}": [work / mine for mine, _ in times]}
    if bare is not None:
        rows["bare mujoco.batch.Batch.step"] = [work / other for _, other in times]
    stages = profile_env(env, [random_actions(env, generator) for _ in range(PROFILE_BLOCKS)]) if profile else None
    env.close()
    notes = {
        "num_envs": env.num_envs,
        "decimation": env.cfg.sim.decimation,
        "timestep_s": env.cfg.sim.timestep,
        "solver": f"{env.cfg.sim.solver} {env.cfg.sim.iterations}/{env.cfg.sim.ls_iterations}, {env.cfg.sim.cone} cone",
        "device": env.device,
    }
    result = make_result(f"env {env.cfg.name}", rows, unit="control steps/s", notes=notes)
    return result | ({"profile": stages} if stages else {})
