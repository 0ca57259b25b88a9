"""Measure how much a policy bears: each property by itself, pairs, the worst corner of the task's own ranges, peaks."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.certify.axes import Axis
from robot_rl.certify.margins import Margin, Point, find_margin, next_shares
from robot_rl.certify.models import with_model
from robot_rl.certify.peaks import peak_lines
from robot_rl.certify.worlds import Goal, Plant, Worlds
from robot_rl.errors import UserError
from robot_rl.metrics.intervals import wilson

LEVELS = (0.1, 0.25, 0.45, 0.7, 1.0)
"""Shares of the way from the nominal value to the end of the search that are tried first."""
REFINED, ROUNDS = 3, 2
"""Values between the last that holds and the first that does not, and how often."""
PAIRS, GRID = 3, (0.25, 0.5, 0.75, 1.0)
"""Pairs of properties, and shares of the margin of each that are combined."""
CANDIDATES, TRIES, FINALISTS, CONFIRMED = 16, 4, 4, 64
"""Corners that are tried at once, how often, the worst of them that are tried again, and the episodes of the worst."""
PARTS = {"nominal": 0.03, "levels": 0.45, "refined": 0.28, "pairs": 0.12, "corner": 0.12}
"""Shares of the episodes."""
MOST_WORLDS = 128
"""Worlds that step at once on a CPU: more would only wait for the last ones of a batch."""
SLACK = 1e-6
"""Rounding of a value that a range may be beyond."""
LEAST = 4
"""Episodes of a value at least."""

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class CertifyCfg:
    """Settings of a certificate.

    Attributes:
        budget: Episodes, about.
        limit_s: Time instead, in which as many episodes are run as the first ones suggest [s]; 0: by the budget.
        worlds: Worlds that step at once; 0: by the budget.
        seconds: Length of an episode at most [s].
        success: Least share of episodes without failure.
        seed: Of all random streams.
    """

    budget: int = 4000
    limit_s: float = 0.0
    worlds: int = 0
    seconds: float = 5.0
    success: float = 0.9
    seed: int = 20_261_103


class Certifying:
    """A certificate that is being made.

    Attributes:
        figures: Its parts so far, JSON-able.
    """

    def __init__(self, worlds: Worlds, cfg: CertifyCfg, say: Say) -> None:
        """Take worlds of the policy, settings, and a function for lines of progress."""
        self._worlds, self._cfg, self._say, self._began = worlds, cfg, say, time.monotonic()
        self._goal: Goal | None = worlds.goal
        self._budget = cfg.budget
        self._margins: dict[tuple[str, str], Margin] = {}
        self._curves: dict[tuple[str, str], list[Point]] = {}
        self._nominal = Point(0.0, 0.0, 0, 1, np.empty(0))
        self.figures: dict[str, Any] = {}

    @property
    def budget(self) -> int:
        """The episodes that it was to run, about."""
        return self._budget

    def run(self) -> dict[str, Any]:
        """Run all episodes and return the figures."""
        peaks = self._run_nominal()
        self._run_axes()
        self._run_pairs()
        self._run_corner(peaks)
        return self.figures

    def _count(self, part: str, cells: int) -> int:
        return max(LEAST, round(PARTS[part] * self._budget / max(cells, 1)))

    def _tell(self, text: str) -> None:
        self._say(f"{time.monotonic() - self._began:5.0f} s, {self._worlds.episodes} episodes: {text}")

    def _run_nominal(self) -> list[dict[str, Any]]:
        found = self._worlds.run([{}] * max(self._count("nominal", 1), 32))
        self._nominal = Point.of(0.0, 0.0, found)
        peaks = peak_lines(found, self._worlds.env)
        holds = self._nominal.slack(self._cfg.success, self._goal) >= 0
        self.figures["nominal"] = self._row(self._nominal) | {"holds": holds}
        self._tell(f"nominal: success {self._nominal.success:.3f}")
        if self._cfg.limit_s:
            spent = time.monotonic() - self._began
            left = max(self._cfg.limit_s - spent, 0.0)
            self._budget = round(left / spent * self._worlds.slots)
            self._tell(f"{self._cfg.limit_s:g} s are budget={self._budget}")
        return peaks

    def _run_axes(self) -> None:
        """Try values outwards from the nominal ones, then between the last that holds and the first that does not."""
        curves = {(axis.name, side): [self._nominal] for axis in self._worlds.axes.values() for side in axis.sides}
        shares = {key: list(LEVELS) for key in curves}
        self._curves = curves
        self._extend(shares, "levels")
        for _ in range(ROUNDS):
            shares = {
                key: next_shares(points, self._cfg.success, self._goal, REFINED) for key, points in curves.items()
            }
            self._extend(shares, "refined", 1 / ROUNDS)
        self.figures["parameters"] = {}
        for axis in self._worlds.axes.values():
            self.figures["parameters"][axis.name] = self._describe(axis)

    def _extend(self, shares: Mapping[tuple[str, str], Sequence[float]], part: str, of: float = 1.0) -> None:
        """Run episodes at further shares of the ways and add them to the curves."""
        cells: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for (name, side), places in shares.items():
            axis, known = self._worlds.axes[name], {point.value for point in self._curves[name, side]}
            known.add(axis.nominal)
            for share in places:
                value = axis.at(side, share)
                if value in known:
                    continue
                known.add(value)
                if axis.quantum:
                    share = (value - axis.nominal) / (getattr(axis, side) - axis.nominal)  # noqa: PLW2901
                cells.setdefault((name, side), []).append((share, value))
        flat = [(key, place) for key, places in cells.items() for place in places]
        if not flat:
            return
        count = round(self._count(part, len(flat)) * of) or LEAST
        found = self._worlds.run([{key[0]: value} for key, (_, value) in flat for _ in range(count)])
        for n, (key, (share, value)) in enumerate(flat):
            rows = slice(n * count, (n + 1) * count)
            self._curves[key].append(Point.of(share, value, found[rows]))
            self._curves[key].sort(key=lambda point: point.share)
        self._tell(f"{len(flat)} values of {len(cells)} directions, {count} episodes each")

    def _describe(self, axis: Axis) -> dict[str, Any]:
        """Return a property's part of the certificate."""
        row: dict[str, Any] = {"unit": axis.unit, "meaning": axis.meaning, "nominal": axis.nominal}
        row |= {"searched": [axis.low, axis.high], "trained": None if axis.box is None else list(axis.box)}
        for side in axis.sides:
            points = self._curves[axis.name, side]
            margin = find_margin(points, self._cfg.success, self._goal, self._cfg.seed % 2**32)
            self._margins[axis.name, side] = margin
            values = [_between(axis, side, share) for share in (margin.share, margin.lo, margin.hi)]
            near, far = (values[1], values[2]) if side == "high" else (values[2], values[1])
            row[side] = {"value": values[0], "lo": near, "hi": far}
            row[side] |= {"holds_to_end": margin.holds_to_end, "limit": margin.limit}
            self._tell(f"{axis.name} {_words(axis, side, row[side])}")
        points = {point.value: point for side in axis.sides for point in self._curves[axis.name, side][1:]}
        rows = [(value, *self._row(points[value]).values()) for value in sorted(points)]
        row["points"] = [[cell for k, cell in enumerate(each) if k not in (3, 4)] for each in rows]
        ends = [row[side]["value"] if side in row else axis.nominal for side in ("low", "high")]
        row["holds"] = None if axis.box is None else ends[0] <= axis.box[0] + SLACK and axis.box[1] <= ends[1] + SLACK
        return row

    def _row(self, point: Point) -> dict[str, Any]:
        """Return a point's figures."""
        lo, hi = wilson(point.successes, point.episodes)
        row = {"episodes": point.episodes, "success": _digits(point.success), "lo": _digits(lo), "hi": _digits(hi)}
        if self._goal is not None:
            row["metric"] = _digits(point.mean)
        return row

    def _run_pairs(self) -> None:
        """Combine the properties with the least margins, each up to its own one."""
        weakest: dict[str, tuple[float, str]] = {}
        for (name, side), margin in self._margins.items():
            if margin.share > 0.0 and not margin.holds_to_end:
                weakest[name] = min(weakest.get(name, (2.0, "")), (margin.share, side))
        names = sorted(weakest, key=lambda name: (weakest[name], name))[:PAIRS]
        pairs = [(one, other) for k, one in enumerate(names) for other in names[k + 1 :]]
        count = self._count("pairs", len(pairs) * len(GRID) ** 2)
        axes, plants, cells = self._worlds.axes, [], []
        for one, other in pairs:
            values = {
                name: [axes[name].at(weakest[name][1], share * weakest[name][0]) for share in GRID]
                for name in (one, other)
            }
            cells.append(values)
            plants += [{one: a, other: b} for a in values[one] for b in values[other] for _ in range(count)]
        found = self._worlds.run(plants) if plants else None
        self.figures["pairs"] = []
        for n, (pair, values) in enumerate(zip(pairs, cells, strict=True)):
            assert found is not None
            size = len(GRID) ** 2 * count
            rows = found.success[n * size : (n + 1) * size].reshape(len(GRID), len(GRID), count).mean(2)
            table = [[_digits(share) for share in row] for row in rows.tolist()]
            self.figures["pairs"].append(
                {"names": list(pair), "values": [values[name] for name in pair], "success": table, "episodes": count}
            )
        if pairs:
            self._tell(f"{len(pairs)} pairs, {count} episodes each of {len(GRID) ** 2} combinations")

    def _run_corner(self, peaks: list[dict[str, Any]]) -> None:
        """Search the worst corner of the task's own ranges, and measure it again in other episodes."""
        from robot_rl.certify.corner import search_corner

        boxed = [axis for axis in self._worlds.axes.values() if axis.box is not None]
        self.figures["corner"] = None
        if boxed:
            count = self._count("corner", CANDIDATES * (TRIES + 2))

            def judge(plants: Sequence[Plant], count: int = count) -> list[float]:
                found = self._worlds.run([plant for plant in plants for _ in range(count)])
                parts = [found[n * count : (n + 1) * count] for n in range(len(plants))]
                return [Point.of(0.0, 0.0, part).worth(self._goal) for part in parts]

            seed = self._cfg.seed % 2**31
            worst = search_corner(boxed, judge, tries=TRIES, candidates=CANDIDATES, seed=seed)[:FINALISTS]
            worths = judge(worst, count * CANDIDATES // FINALISTS)
            plant = worst[worths.index(min(worths))]
            found = self._worlds.run([plant] * CONFIRMED)
            point = Point.of(0.0, 0.0, found)
            holds = point.slack(self._cfg.success, self._goal) >= 0
            self.figures["corner"] = {"values": plant, **self._row(point), "holds": holds}
            peaks += [row | {"name": f"corner_{row['name']}"} for row in peak_lines(found, self._worlds.env)]
            self._tell(f"worst corner: success {point.success:.3f}")
        self.figures["peaks"] = {row.pop("name"): row for row in peaks}


def check_task(policy: Any, task: str, models: Sequence[Path]) -> None:
    """Raise UserError if a policy cannot be certified: another task's, a team's, or models of another robot."""
    own = policy.cfg.task
    if task and task not in (own.name, policy.cfg.reference):
        raise UserError("task", task, f"the policy is for {own.name}", "omit task=")
    if own.robots:
        raise UserError("task", own.name, "is for several robots", "certify is for one")
    if own.robot.complete:
        raise UserError("task", own.name, "has a model with its own actuators", "certify is for a robot's policy")
    if not own.deployable:
        raise UserError(
            "task", own.name, "its actor sees values that a robot cannot measure", "name a task with a bundle"
        )
    if find_spec("optuna") is None:
        raise UserError("certify: its search needs Optuna, which is not installed; pip install 'robot-rl[optuna]'")
    with tempfile.TemporaryDirectory(prefix="robot-rl-") as folder:
        for path in models:
            with_model(own, path, Path(folder))


def certify(train: Any, acting: Any, cfg: CertifyCfg, say: Say) -> dict[str, Any]:
    """Return the figures of a policy's certificate: "nominal", "parameters", "pairs", "corner", "peaks", "goal".

    Args:
        train: The `robot_rl.runs.settings.TrainCfg` with the task and its engine.
        acting: The policy as `robot_rl.evaluation.policies.load_policy` takes it; the bundle acts as on the robot.
        cfg: The settings.
        say: Gets lines of progress.

    Raises:
        ContractError: The bundle is damaged or does not fit the task.
    """
    count = cfg.worlds or min(MOST_WORLDS, max(32, cfg.budget // 10))
    worlds = Worlds(train, acting, count, cfg.seconds, cfg.seed)
    try:
        say(f"{len(worlds.axes)} properties, {count} worlds, episodes of {worlds.seconds:g} s")
        made = Certifying(worlds, cfg, say)
        figures = made.run()
        goal = worlds.goal
        about = None if goal is None else {key: getattr(goal, key) for key in ("name", "unit", "better", "bound")}
        run = {"budget": made.budget, "episodes": worlds.episodes, "seconds": worlds.seconds, "worlds": count}
        return {"goal": about, **run, **figures}
    finally:
        worlds.close()


def _between(axis: Axis, side: str, share: float) -> float:
    """Return the value at a share without rounding it to whole steps, which an interpolated margin need not be."""
    end = getattr(axis, side)
    if axis.by_factor:
        return float(f"{axis.nominal * (end / axis.nominal) ** share:.4g}")
    return float(f"{axis.nominal + share * (end - axis.nominal):.4g}")


def _words(axis: Axis, side: str, row: Mapping[str, Any]) -> str:
    unit = "" if axis.unit == "1" else f" {axis.unit}"
    sign = "<=" if side == "high" else ">="
    end = ", nothing failed" if row["holds_to_end"] else f" ({row['lo']:.3g} to {row['hi']:.3g}), then {row['limit']}"
    return f"{sign} {row['value']:.3g}{unit}{end}"


def _digits(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
