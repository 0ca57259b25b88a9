"""``robot-rl bench env``: our environment's control steps compared with bare physics, in turn, in one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import warp as wp
from robot_rl_envs.engines import make_engine

from robot_rl.performance.profile import profile_env
from robot_rl.performance.result import in_turn, make_result, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from robot_rl_envs.env import Env

BLOCK_STEPS = 20
"""Control steps of one timed block."""
PROFILE_BLOCKS = 10
"""Blocks over which the stages of a step are timed."""


class BareBatch:
    """``mujoco.batch.Batch`` of the environment's own model with nothing bound but its state rows."""

    who = "bare mujoco.batch.Batch.step"

    def __init__(self, env: Env):
        from mujoco.batch import Batch

        self.batch = Batch(env.scene.model, env.num_envs)
        self.ctrl = self.batch.bind("ctrl")
        self.offset, self.scale = _action_map(env)
        self.substeps = env.cfg.sim.decimation

    def make_block(self, state: np.ndarray, actions: torch.Tensor) -> Callable[[], None]:
        """Begin from the environment's state, and return the function that takes a control step an action."""
        self.batch.state[...] = state
        rows = actions.numpy().astype(np.float64)

        def run() -> None:
            for row in rows:
                self.ctrl[...] = self.offset + self.scale * row
                self.batch.step(nstep=self.substeps)

        return run


class BareWarp:
    """``mujoco_warp.step`` on the environment's own model; on a GPU the substeps of a control step are one graph."""

    who = "bare mujoco_warp.step"

    def __init__(self, env: Env):
        self.engine: Any = make_engine("mujoco_warp", env.scene, num_envs=env.num_envs, device=env.device)
        self.ctrl = wp.to_torch(self.engine.data.ctrl)
        to_device = {"dtype": torch.float32, "device": env.device}
        self.offset, self.scale = (torch.as_tensor(row, **to_device) for row in _action_map(env))
        self.substeps, self._graph = env.cfg.sim.decimation, None
        self._step()  # Loads the kernels, which a graph cannot.
        if self.engine.capturable:
            with wp.ScopedDevice(env.device), wp.ScopedCapture(force_module_load=False) as capture:
                self._step()
            self._graph = capture.graph

    def make_block(self, state: np.ndarray, actions: torch.Tensor) -> Callable[[], None]:
        """Begin from the environment's state, and return the function that takes a control step an action."""
        self.engine.set_state(state)
        rows = self.offset + self.scale * actions

        def run() -> None:
            for row in rows:
                self.ctrl.copy_(row)
                if self._graph is None:
                    self._step()
                else:
                    wp.capture_launch(self._graph)

        return run

    def _step(self) -> None:
        import mujoco_warp

        with wp.ScopedDevice(self.engine.device):
            for _ in range(self.substeps):
                mujoco_warp.step(self.engine.warp_model, self.engine.warp_data)


def make_bare(env: Env) -> BareBatch | BareWarp | None:
    """Return the bare physics of an environment's engine: its model for all worlds alike; None for another engine."""
    bare = {"mujoco": BareBatch, "mujoco_warp": BareWarp}.get(env.engine.name)
    return None if bare is None else bare(env)


def _action_map(env: Env) -> tuple[np.ndarray, np.ndarray]:
    """Return the offset and the scale from actions to controls, (num_actions,) each."""
    rows = env.describe_policy()["actions"]
    return np.array([row["offset"] for row in rows]), np.array([row["scale"] for row in rows])


def random_actions(env: Env, generator: torch.Generator) -> torch.Tensor:
    """Return the actions of one block, (:data:`BLOCK_STEPS`, N, num_actions), normal with a deviation of 0.5."""
    shape = (BLOCK_STEPS, env.num_envs, env.num_actions)
    return (0.5 * torch.randn(shape, generator=generator)).to(env.device)


def _block(env: Env, bare: BareBatch | BareWarp | None, actions: torch.Tensor) -> Iterator[float]:
    """Yield the control steps a second of a block of ours, then of the bare steps, from the same states."""
    state = env.engine.get_state() if bare else None
    work = env.num_envs * len(actions)
    yield work / seconds(lambda: [env.step(action) for action in actions], env.device)
    if bare is not None and state is not None:
        yield work / seconds(bare.make_block(state, actions), env.device)


def bench_env(make_env: Callable[[], Env], *, repeats: int = 31, seed: int = 0, profile: bool = True) -> dict[str, Any]:
    """Time the environment under random actions, in turn with the bare steps of its engine.

    Both start each block from the same states and take the same actions, so the contacts they solve are the same. The
    bare engine computes no forward stage after its steps, has nothing bound and shares one model among all worlds.

    Args:
        make_env: Builds the environment.
        repeats: Timed blocks of :data:`BLOCK_STEPS` control steps; one more warms up.
        seed: Seed of the random actions.
        profile: Whether to also time the stages of a step, in blocks after the figure's.

    Returns:
        The result in the form of `robot_rl.performance.result.make_result`; ``ratio`` is ours / bare, and ``profile``
        is that of :func:`robot_rl.performance.profile.profile_env`.
    """
    env = make_env()
    bare = make_bare(env)
    generator = torch.Generator().manual_seed(seed)
    names = [f"{env.cfg.name} on {env.engine.name}", *([bare.who] if bare else [])]
    rows = in_turn(names, lambda: _block(env, bare, random_actions(env, generator)), repeats)
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
