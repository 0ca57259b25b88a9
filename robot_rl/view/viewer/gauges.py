"""Gauges of a world: its reward terms, the efforts of its joints and the forces of its contacts, as bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from robot_rl.metrics.description import shown_unit

SMOOTHING_S = 0.25
"""Time constant of the rewards that are shown [s]."""
PLUS, MINUS, FULL = "#2ea05a", "#d6453d", "#e08a00"
"""Colors of bars: above zero, below it, and at 95 % of a limit or more."""
Bars = list[tuple[str, float, float, str]]
"""Name, value, the value of a full bar, and the value as text."""


class Gauges:
    """Reads the first robot of each world.

    Attributes:
        rewards: (N, terms) smoothed reward terms [1/s].
    """

    def __init__(self, env: Any) -> None:
        """Read an environment, `robot_rl_envs.env.Env`; see `of`."""
        rows = next(iter(env.crews.values()))
        self._state, self._dt, self._team = rows.state, env.step_dt, rows.num_envs // env.num_worlds
        self._terms: Sequence[str] = rows.operands().layout.rewards
        self._metrics = rows.describe_metrics()
        self._joints, self._contacts = rows.scene.robot.joints, tuple(rows.cfg.contacts)
        self.rewards, self._scale = np.zeros((env.num_worlds, len(self._terms))), 1e-6

    @classmethod
    def of(cls, env: Any) -> Gauges | None:
        """Return the gauges of an environment; None if it does not have our state."""
        return cls(env) if hasattr(env, "crews") else None

    @property
    def has_feet(self) -> bool:
        """Whether the robot has feet, whose forces can be drawn."""
        return bool(self._state.foot_force.shape[1])

    def step(self) -> None:
        """Take the rewards of a control step. The sums become zero, so that they stay precise over hours."""
        sums = self._state.reward_sums
        self.rewards += (1 - math.exp(-self._dt / SMOOTHING_S)) * (self._rows(sums) / self._dt - self.rewards)
        sums.zero_()

    def _rows(self, values: Any) -> np.ndarray:
        """Return the values of the first robot of each world."""
        return values[:: self._team].detach().cpu().numpy().astype(np.float64)

    def reward_bars(self, world: int) -> Bars:
        """Return the reward terms of a world [1/s]; the largest one of late is a full bar."""
        values = self.rewards[world]
        self._scale = max(0.99 * self._scale, float(np.abs(values).max(initial=1e-6)))
        rows = [(name, v, self._scale, f"{v:+.3f}") for name, v in zip(self._terms, values.tolist(), strict=True)]
        return [*rows, ("sum", 0.0, 1.0, f"{values.sum():+.3f}")]

    def effort_bars(self, world: int) -> Bars:
        """Return the efforts of a world's joints [N m, N]; the effort limit is a full bar."""
        efforts = self._rows(self._state.joint_torque)[world].tolist()
        pairs = [(j.name, e, float(j.effort_limit)) for j, e in zip(self._joints, efforts, strict=True)]
        return [(name, e, limit, f"{e:.1f} of {limit:.1f}") for name, e, limit in pairs]

    def contact_bars(self, world: int) -> Bars:
        """Return the forces of the task's named contacts [N]; the largest one is a full bar."""
        if not self._contacts:
            return []
        forces = self._rows(self._state.contact_force)[world].tolist()
        return [(name, f, max(10.0, *forces), f"{f:.1f}") for name, f in zip(self._contacts, forces, strict=True)]

    def metrics(self, world: int) -> dict[str, str]:
        """Return the present values of a world's metrics, which the task declares, as texts by name."""
        values = self._rows(self._state.metric_values)[world].tolist()
        names = [name.replace("_", " ").capitalize() for name in self._metrics]
        units = [shown_unit(row["unit"]) for row in self._metrics.values()]
        return {name: f"{v:.3g} {unit}".rstrip() for name, v, unit in zip(names, values, units, strict=True)}

    def foot_forces(self, world: int) -> tuple[np.ndarray, np.ndarray]:
        """Return positions (feet, 3) [m] of a world's feet, and their contact forces (feet,) [N]."""
        state, rows = self._state, slice(world * self._team, (world + 1) * self._team)
        parts = (state.foot_pos_w[rows].reshape(-1, 3), (state.foot_force * state.foot_contact)[rows].flatten())
        position, force = (part.detach().cpu().numpy().astype(np.float64) for part in parts)
        return position, force


def draw_bars(bars: Bars) -> str:
    """Return bars as HTML, from the left end; if one is below zero, from the middle to either side."""
    signed = any(value < 0 for _, value, _, _ in bars)
    lines = ""
    for name, value, full, text in bars:
        share = min(abs(value) / full, 1.0) if full > 0 and math.isfinite(value) else 0.0
        color = MINUS if value < 0 else PLUS
        color = FULL if share >= 0.95 and " of " in text else color
        width = 50 * share if signed else 100 * share
        left = (50 - width if value < 0 else 50) if signed else 0
        bar = f'<i style="position:absolute;left:{left:.1f}%;width:{width:.1f}%;height:100%;background:{color}"></i>'
        track = f'<div style="position:relative;height:0.7em;background:#8883;overflow:hidden">{bar}</div>'
        cells = (f'<td style="width:30%;overflow-wrap:anywhere">{escape(name)}', f'<td style="width:40%">{track}')
        lines += f'<tr>{"</td>".join(cells)}</td><td style="text-align:right;white-space:nowrap">{text}</td></tr>'
    return f'<table style="width:100%;line-height:1.2">{lines}</table>'
