"""What a sensor does to a quantity before a policy reads it: bias, drift, noise, delay and lost values.

Plain figures and their checks; :mod:`robot_rl_envs.codegen.observing` writes the kernel's text from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robot_rl_envs.terms.checks import are_numbers, is_number, is_whole, require

NOISE_KINDS = ("uniform", "gaussian")
MAX_DELAY_STEPS = 100
"""Control steps that a delayed value may be old at most."""

OPTIONS: dict[str, Any] = {
    "noise_kind": "uniform",
    "bias": 0.0,
    "drift": 0.0,
    "delay_s": (0.0, 0.0),
    "delay_steps": 0,
    "dropout": 0.0,
    "measured": "",
}
"""The options of an observation beyond noise, clip, scale and history, and their defaults."""


def check_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return all of :data:`OPTIONS`, updated by ``options``, checked and as plain numbers."""
    made = OPTIONS | options
    kinds = f"must be one of {', '.join(NOISE_KINDS)}"
    require(made["noise_kind"] in NOISE_KINDS, "noise_kind", made["noise_kind"], kinds)
    for name in ("bias", "drift", "dropout"):
        require(is_number(made[name]), name, made[name], "must be a finite number")
        made[name] = float(made[name])
        require(made[name] >= 0, name, made[name], "must be >= 0")
    require(made["dropout"] < 1, "dropout", made["dropout"], "must be less than 1, or no value ever arrives")
    name, right = made["measured"], "must be a name of letters, digits and _"
    require(isinstance(name, str) and (not name or (name.isascii() and name.isidentifier())), "measured", name, right)
    pair, right = made["delay_s"], "must be (lo, hi) with 0 <= lo <= hi [s]"
    require(are_numbers(pair, 2) and 0 <= pair[0] <= pair[1], "delay_s", pair, right)
    made["delay_s"] = (float(pair[0]), float(pair[1]))
    steps, right = made["delay_steps"], f"must be an int in [0, {MAX_DELAY_STEPS}]; 0 keeps as many as delay_s needs"
    require(is_whole(steps, 0, MAX_DELAY_STEPS), "delay_steps", steps, right)
    return made


@dataclass(slots=True)
class Pipe:
    """The columns of its group's array in which a term's sensor remembers; -1 if the sensor lacks such a part.

    Attributes:
        bias: ``size`` columns, the bias of each element.
        lag: one column, the world's own delay in control steps.
        ring: ``depth * size`` columns, the last values in a ring, place after place.
        depth: places of the ring.
        held: ``size`` columns, the last values that arrived.
        width: columns of all parts.
    """

    bias: int = -1
    lag: int = -1
    ring: int = -1
    depth: int = 0
    held: int = -1
    width: int = 0

    def _take(self, count: int, start: int) -> int:
        at = start + self.width
        self.width += count
        return at


def make_pipe(path: str, term: Any, size: int, start: int, step_dt: float) -> Pipe | None:
    """Reserve the columns that a term needs from column ``start`` on; None if it remembers nothing.

    Raises:
        ValueError: the longest delay is longer than the values kept; the line begins with ``path``.
    """
    reach = int(term.delay_s[1] / step_dt + 0.5)
    kept = term.delay_steps or reach
    if reach > min(kept, MAX_DELAY_STEPS):
        most = min(kept, MAX_DELAY_STEPS)
        right = f"set delay_steps to {reach} or more" if reach <= MAX_DELAY_STEPS else "take a shorter delay"
        raise ValueError(
            f"{path}.delay_s={tuple(term.delay_s)!r}: {term.delay_s[1]:g} s are {reach} control steps of "
            f"{step_dt:g} s, but only {most} are kept ({most * step_dt:g} s, delay_steps={term.delay_steps}); {right}"
        )
    pipe = Pipe()
    if term.bias > 0 or term.drift > 0:
        pipe.bias = pipe._take(size, start)
    if kept > 0:
        pipe.depth = kept + 1
        pipe.lag = pipe._take(1, start)
        pipe.ring = pipe._take(pipe.depth * size, start)
    if term.dropout > 0:
        pipe.held = pipe._take(size, start)
    return pipe if pipe.width else None
