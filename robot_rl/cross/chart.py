"""Draw the cross-engine table: a block a policy, a bar an engine; tracking error left, falls right."""

from __future__ import annotations

from typing import Any

from robot_rl.cross.table import TRACKING_LOSS, Cell, Table, in_percent
from robot_rl.report.plot import BLUE, FAINT, GRID, INK, LIGHT_BLUE, ORANGE, Canvas

WIDTH, HEAD, ROW, GAP, FOOT = 1100, 76, 34, 42, 26
ERROR = "velocity error [m/s], mean and two standard errors; smaller is better"
RETURN = "return of an episode; larger is better"
NAMES, LEFT, MIDDLE, FIGURES, RIGHT = 20, 190, 560, 572, 720
"""Where names, the panel of errors, its figures and the panel of falls begin; the first panel ends at MIDDLE."""


def draw_table(table: Table) -> Any:
    """Return the table as a `PIL.Image.Image`."""
    rows = {policy: [cell for cell in table.cells.values() if cell.policy == policy] for policy in table.policies}
    height = HEAD + sum(GAP + ROW * len(cells) for cells in rows.values()) + FOOT
    canvas = Canvas(WIDTH, height)
    task = next(iter(table.cells.values())).task
    canvas.text((NAMES, 14), f"{task}: one policy in several engines", 20, INK)
    canvas.text((RIGHT, 48), "episodes that fell", 13, FAINT)
    tracked = any(cell.lin_vel_error is not None for cell in table.cells.values())
    canvas.text((LEFT, 48), ERROR if tracked else RETURN, 13, FAINT)
    most = max([abs(_value(cell) or 0.0) for cell in table.cells.values()] + [1e-9])
    top = HEAD
    for policy, cells in rows.items():
        home = table.home(policy)
        trained = f", trained in {home.trained_on}" if home else ""
        canvas.text((NAMES, top + 12), f"{policy}{trained}", 14, INK)
        top += GAP
        bottom = top + ROW * len(cells)
        if home is not None and home.lin_vel_error:
            x = LEFT + (1 + TRACKING_LOSS) * home.lin_vel_error / (1.25 * most) * (MIDDLE - LEFT)
            canvas.line((x, top - 4, x, bottom - 4), FAINT)
            canvas.text((x, top - 18), f"+{TRACKING_LOSS:.0%}", 11, FAINT, "ma")
        for cell in sorted(cells, key=lambda cell: table.engines.index(cell.engine)):
            _draw_row(canvas, top, table, cell, most)
            top += ROW
    return canvas.image()


def _value(cell: Cell) -> float | None:
    return cell.episode_return if cell.lin_vel_error is None else cell.lin_vel_error


def _draw_row(canvas: Canvas, top: float, table: Table, cell: Cell, most: float) -> None:
    losses = table.losses(cell)
    colour = BLUE if losses is None else LIGHT_BLUE if losses["within"] else ORANGE
    canvas.text((NAMES + 20, top + 5), cell.engine, 14, INK)
    value = _value(cell)
    if value is not None:
        scale = (MIDDLE - LEFT) / (1.25 * most)
        end, spread = LEFT + max(0.0, value) * scale, 2 * cell.standard_error * scale
        canvas.box((LEFT, top + 3, end, top + ROW - 9), colour)
        canvas.line((end - spread, top + ROW / 2 - 3, end + spread, top + ROW / 2 - 3), INK)
        change = "" if losses is None or losses["tracking"] is None else f"  {in_percent(losses['tracking'])}"
        figure = f"{value:.3f}" if abs(value) < 1.0 else f"{value:.3g}"
        canvas.text((FIGURES, top + 5), f"{figure}{change}", 13, INK)
    room = WIDTH - RIGHT - 150
    canvas.box((RIGHT, top + 3, RIGHT + room, top + ROW - 9), GRID)
    canvas.box((RIGHT, top + 3, RIGHT + max(1.0, room * cell.fall_rate), top + ROW - 9), colour)
    canvas.text((RIGHT + room + 8, top + 5), f"{cell.fall_rate:.1%} of {cell.episodes}", 13, INK)
