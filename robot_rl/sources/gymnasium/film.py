"""Render a policy at work in an environment of Gymnasium, by the environment's own renderer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.evaluate.controllers import TorchController

if TYPE_CHECKING:
    from robot_rl.sources.gymnasium.adapter import GymEnv


def frames(env: GymEnv, policy: Callable[[Any], Tensor], seconds: float, fps: int) -> Iterator[np.ndarray]:
    """Step one world, just reset, and yield its frames (H, W, 3) uint8, of even sides.

    Args:
        env: The world, made with render_mode="rgb_array".
        policy: From observation groups to actions.
        seconds: Length of the film [s].
        fps: Frames a second, by the length of a step that the environment declares.

    Raises:
        UserError: The environment does not render.
    """
    controller, obs = TorchController(policy), env.get_observations()
    steps = 0
    for k in range(round(seconds * fps)):
        while steps * env.step_dt < k / fps - 1e-9:
            obs, _, done, _ = env.step(controller.act(env, obs))
            controller.reset(done)
            steps += 1
        frame = _draw(env)
        yield np.ascontiguousarray(frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2], dtype=np.uint8)


def _draw(env: GymEnv) -> np.ndarray:
    """Return the image (H, W, 3) of the first world."""
    try:
        frames = env.env.render()
    except Exception as error:  # Each draws by a library of its own, which is missing or fails in its own way.
        line = next(iter(str(error).splitlines()), repr(error))
        raise UserError(f"video: {env.env} cannot draw itself here: {line}") from error
    frame = None if not frames else np.asarray(frames[0])
    if frame is None or frame.ndim != 3 or frame.shape[2] != 3:
        raise UserError(f"video: {env.env} draws no pictures in render_mode rgb_array")
    return frame
