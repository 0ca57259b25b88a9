"""How good a policy is in any environment: the return of whole episodes, without exploration."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.evaluate.controllers import TorchController
from robot_rl.evaluate.meter import summarize

PROGRESS_S = 10.0
"""How often it says how far it is [s]."""
MAX_STEPS = 10_000
"""Longest episode where the environment has no time limit."""


def evaluate_episodes(
    env: Any,
    policy: Callable[[Any], Tensor],
    episodes: int,
    max_steps: int,
) -> dict[str, Any]:
    """Let a policy play whole episodes.

    Every world plays its share of them from the first on, so that short episodes do not crowd out long ones.

    Args:
        env: the environment, an `rsl_rl.env.VecEnv`, just reset.
        policy: from observation groups to actions.
        episodes: how many to play.
        max_steps: how long one may last; beyond that times a world's share it is left.

    Returns:
        What eval.json holds: "torch" ("return", and "length" [steps], each {"mean", "std"} over episodes), "episodes",
        those that were played to their end, and "max_steps".

    Raises:
        UserError: no episode came to its end.
    """
    device = env.device
    share = torch.full((env.num_envs,), episodes // env.num_envs, device=device)
    share[: episodes % env.num_envs] += 1
    played = torch.zeros_like(share)
    total = torch.zeros(env.num_envs, dtype=torch.float64, device=device)
    length = torch.zeros_like(total)
    found: dict[str, list[Tensor]] = {"return": [], "length": []}
    controller, obs, shown = TorchController(policy), env.get_observations(), time.monotonic()
    controller.reset(torch.ones_like(share, dtype=torch.bool))
    for step in range((max_steps + 1) * int(share.max())):
        obs, reward, done, extras = env.step(controller.act(env, obs))
        counts = extras.get("valid", torch.ones_like(done))
        total += torch.where(counts, reward.double(), 0.0)
        length += counts
        ended = done & counts & (played < share)
        found["return"].append(total[ended])
        found["length"].append(length[ended])
        played += ended
        total.masked_fill_(done, 0.0)
        length.masked_fill_(done, 0.0)
        controller.reset(done)
        if time.monotonic() - shown > PROGRESS_S:
            shown = time.monotonic()
            sys.stderr.write(f"  {int(played.sum())} episodes after {step + 1} steps\n")
        if bool((played >= share).all()):
            break
    values = {name: torch.cat(parts).cpu() for name, parts in found.items()}
    if not len(values["return"]):
        raise UserError(f"steps={max_steps}: no episode ended in so many steps; give more")
    return {"torch": summarize(values), "episodes": len(values["return"]), "max_steps": max_steps}
