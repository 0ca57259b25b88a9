"""Error of a value function by what is added at a time-out, on a task where the values are known.

The task goes on for ever and is cut every `limit` steps: x' = a x + b from x = 0, reward x. Its value is linear in x,
V(x) = x / (1 - gamma a) + gamma b / ((1 - gamma) (1 - gamma a)), so a linear critic can hold it exactly and what is
left is the bias of the targets. The critic is fitted to lambda-returns until it stays where it is.

    python benchmarks/value_bias.py     # the table of docs/learner.md
"""

from __future__ import annotations

import torch
from torch import Tensor

from robot_rl.learn.algorithms.ppo.gae import advantages, timeout_bonus

BOOTSTRAPS = ("final", "state", "none")
"""V(final observation); V(s_t), the state before it; nothing, as if the episode had ended."""
A, B = 0.98, 0.02
LIMITS, GAMMAS = (20, 100, 500), (0.97, 0.99, 0.995)


def true_value(x: Tensor, gamma: float) -> Tensor:
    """Return the value of states."""
    return x / (1.0 - gamma * A) + gamma * B / ((1.0 - gamma) * (1.0 - gamma * A))


def value_bias(bootstrap: str, *, gamma: float, limit: int, lam: float = 0.95, fits: int = 4000) -> float:
    """Return the bias of the fitted critic relative to the true value, the mean over the states of an episode.

    Args:
        bootstrap: one of BOOTSTRAPS.
        gamma: discount a step.
        limit: steps of an episode.
        lam: decay of the advantage estimate.
        fits: fits of the critic to its own targets, at most.
    """
    x = torch.zeros(2 * limit + 1, dtype=torch.float64)
    for t in range(2 * limit):
        x[t + 1] = 0.0 if (t + 1) % limit == 0 else A * x[t] + B
    final = A * x[:-1] + B
    done = (torch.arange(1, 2 * limit + 1) % limit == 0)[:, None]
    basis = torch.stack((x, torch.ones_like(x)), dim=1)
    weights = torch.zeros(2, dtype=torch.float64)
    for _ in range(fits):
        values = basis @ weights
        there = {"final": final * weights[0] + weights[1], "state": values[:-1], "none": torch.zeros_like(final)}
        reward = x[:-1, None] + timeout_bonus(there[bootstrap][:, None], done, gamma)
        targets = advantages(reward, values[:, None], done, gamma, lam)[:, 0] + values[:-1]
        new = torch.linalg.lstsq(basis[:-1], targets[:, None]).solution[:, 0]
        if torch.equal(new, weights) or (new - weights).abs().max() < 1e-12 * new.abs().max():
            break
        weights = new
    true = true_value(x[:limit], gamma)
    return float(((basis[:limit] @ weights - true) / true).mean())


def main() -> None:
    """Print the table."""
    print("| gamma | steps of an episode | V(final observation) | V(s_t) | as an end |\n|---|---|---|---|---|")
    for gamma in GAMMAS:
        for limit in LIMITS:
            row = [value_bias(bootstrap, gamma=gamma, limit=limit) for bootstrap in BOOTSTRAPS]
            shown = [f"{round(100 * value, 2) + 0.0:.2f} %" for value in row]
            print(f"| {gamma} | {limit} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
