"""Recording of a policy's motion: the frames of an observation group, world after world."""

from typing import Any

import torch
from torch import Tensor

from robot_rl.evaluate.controllers import Controller


def record_motion(env: Any, controller: Controller, seconds: float, group: str) -> tuple[Tensor, Tensor]:
    """Let a policy act in every world and keep what it looks like.

    Args:
        env: The environment; it is reset first.
        controller: Who acts.
        seconds: How long [s].
        group: The observation group to keep.

    Returns:
        (F, D) frames, a control step apart, and (F,) bool, true where one does not follow the one before it. Frames of
        worlds that were quarantined are left out.
    """
    obs = env.reset()
    starts = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    controller.reset(starts)
    frames, begins, kept = [], [], []
    for _ in range(max(2, round(seconds / env.step_dt))):
        frames.append(obs[group].clone())
        begins.append(starts)
        obs, _, done, extras = env.step(controller.act(env, obs))
        kept.append(extras["valid"].clone())
        starts = done.bool() | ~kept[-1]
        controller.reset(starts)
    keep = torch.stack(kept, dim=1).flatten()  # (N, T): a world's frames side by side
    return torch.stack(frames, dim=1).flatten(0, 1)[keep], torch.stack(begins, dim=1).flatten()[keep]
