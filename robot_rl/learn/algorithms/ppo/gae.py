"""Generalized advantage estimation over a whole rollout at once."""

from __future__ import annotations

import torch
from torch import Tensor


def advantages(
    rewards: Tensor, values: Tensor, dones: Tensor, gamma: float, lam: float, *, trace: Tensor | None = None
) -> Tensor:
    """Return the generalized advantage estimates of a rollout (Schulman et al. 2016, equation 16).

    A_t = delta_t + gamma lam (1 - done_t) A_{t+1} with delta_t = r_t + gamma (1 - done_t) V_{t+1} - V_t. The recurrence
    is linear, so it is solved by doubling the window: ceil(log2 T) passes over all worlds and steps instead of T short
    ones.

    Args:
        rewards: (T, N) rewards, (T, N, K) with several critics; they include the bonus of time-outs.
        values: (T + 1, N) or (T + 1, N, K) values of the states, the last row of the state after the rollout.
        dones: (T, N) or (T, N, 1) true if the episode ended with the step.
        gamma: discount a step.
        lam: decay of the estimate.
        trace: (T, N) or (T, N, 1) the probability of each action under the policy whose values are sought, over that
            under the one that acted, truncated at 1: the result is then V-trace's (Espeholt et al. 2018, equation 1
            with rho = c), A_t = trace_t (delta_t + gamma lam (1 - done_t) A_{t+1}).

    Returns:
        (T, N) or (T, N, K) advantages; the returns are advantages + values[:-1].
    """
    alive = 1.0 - dones.to(rewards.dtype)
    result = torch.addcmul(rewards - values[:-1], alive, values[1:], value=gamma)
    decay = alive * (gamma * lam)
    if trace is not None:
        result, decay = result * trace, decay * trace
    window = 1
    while window < rewards.shape[0]:
        # The row t holds the sum over [t, t + window) and the product of its decays: append the next window to it.
        head = torch.addcmul(result[:-window], decay[:-window], result[window:])
        result = torch.cat((head, result[-window:]))
        decay = torch.cat((decay[:-window] * decay[window:], torch.zeros_like(decay[-window:])))
        window *= 2
    return result


def policy_advantages(
    rewards: Tensor, values: Tensor, dones: Tensor, gamma: float, lam: float, *, traced: Tensor
) -> Tensor:
    """Return delta_t + gamma lam (1 - done_t) A_{t+1}, the policy's advantages with V-trace's targets.

    `traced` is the result A of `advantages` with a trace, and the other arguments are those of `advantages`. Without
    staleness it is A itself.
    """
    alive = 1.0 - dones.to(rewards.dtype)
    after = torch.cat((traced[1:], torch.zeros_like(traced[:1])))
    return rewards - values[:-1] + alive * gamma * (values[1:] + lam * after)


def timeout_bonus(final_values: Tensor, time_outs: Tensor, gamma: float) -> Tensor:
    """Return the discounted value of the final observations (T, N) when an episode was cut short (Pardo et al. 2018).

    Such an episode has not ended, so its last state keeps its value. Rows without a time-out are ignored, even NaN.
    """
    return torch.where(time_outs, gamma * final_values, torch.zeros_like(final_values))
