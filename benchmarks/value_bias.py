"""The bias of a value function by what is added at a time-out: the table of docs/learner.md.

Run it as `python benchmarks/value_bias.py`.
"""

from __future__ import annotations

from robot_rl.bench.value_bias import BOOTSTRAPS, value_bias

LIMITS, GAMMAS = (20, 100, 500), (0.97, 0.99, 0.995)


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
