"""What is written under the pictures of a video: the command, what the robot makes of it, and the time."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

INK, FAINT, BACK = (20, 24, 28), (92, 102, 112), (250, 251, 252)
COMMAND, MEASURED = (26, 115, 230), (46, 160, 90)
NAMES = ("vx  m/s", "vy  m/s", "yaw  rad/s")


def strip_height(height: int) -> int:
    """How much of a frame `height` pixels high the strip takes: about an eighth, a multiple of 4."""
    return max(36, 4 * round(0.135 * height / 4))


def draw_tracking(
    size: tuple[int, int], label: str, time_s: float, *, command: np.ndarray, measured: np.ndarray, limits: np.ndarray
) -> np.ndarray:
    """Draws the strip of a robot that follows a velocity command: one gauge a component.

    Args:
        size: width and height of the strip [px].
        label: what the robot is told, in a word.
        time_s: simulated time [s].
        command: (3,) vx, vy [m/s], yaw rate [rad/s].
        measured: (3,) the same, measured.
        limits: (3,) full deflection of each gauge.

    Returns:
        (height, width, 3) uint8.
    """
    canvas = _Strip(size)
    left = canvas.head(label, time_s)
    width = (canvas.width - left) / 3
    for k in range(3):
        canvas.gauge(left + k * width, width * 0.88, k, float(command[k]), float(measured[k]), limit=float(limits[k]))
    return canvas.done()


def draw_progress(size: tuple[int, int], label: str, time_s: float, text: str) -> np.ndarray:
    """Draws the strip of any other task: its name, the time and one line of text.

    Args:
        size: width and height of the strip [px].
        label: the task's name.
        time_s: simulated time [s].
        text: what to say, for instance the return so far.

    Returns:
        (height, width, 3) uint8.
    """
    canvas = _Strip(size)
    left = canvas.head(label, time_s)
    canvas.text(left, 0.5, text, 0.26, FAINT)
    return canvas.done()


def _signed(value: float) -> str:
    # Adding zero turns -0.0 into 0.0.
    return f"{round(value, 2) + 0.0:+.2f}"


@cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size=size)


class _Strip:
    """A strip to write on; vertical lengths are shares of its height."""

    def __init__(self, size: tuple[int, int]) -> None:
        from PIL import Image, ImageDraw

        self.width, self._height = size
        self._image = Image.new("RGB", size, BACK)
        self._draw = ImageDraw.Draw(self._image)

    def _y(self, share: float) -> float:
        return share * self._height

    def text(
        self, x: float, y: float, text: str, size: float, colour: tuple[int, int, int], *, anchor: str = "lm"
    ) -> None:
        self._draw.text(
            (x, self._y(y)), text, fill=colour, font=_font(max(9, round(size * self._height))), anchor=anchor
        )

    def head(self, label: str, time_s: float) -> float:
        """The label with the time under it; returns where the rest may begin [px]."""
        margin = 0.25 * self._height
        self.text(margin, 0.36, label, 0.32, INK)
        self.text(margin, 0.72, f"{time_s:.1f} s", 0.23, FAINT)
        return margin + max(
            1.9 * self._height, self._draw.textlength(label, font=_font(round(0.32 * self._height))) + margin
        )

    def gauge(self, x: float, width: float, axis: int, command: float, measured: float, *, limit: float) -> None:
        """Measured and command as figures; under them a bar from the middle to the one, and a mark at the other."""
        self.text(x, 0.3, NAMES[axis], 0.19, FAINT)
        told = f" / {_signed(command)}"
        self.text(x + width, 0.3, told, 0.21, COMMAND, anchor="rm")
        told_width = self._draw.textlength(told, font=_font(max(9, round(0.21 * self._height))))
        self.text(x + width - told_width, 0.3, _signed(measured), 0.21, MEASURED, anchor="rm")
        middle, half = x + width / 2, width / 2
        limit = max(limit, 1e-6)
        end = middle + half * float(np.clip(measured / limit, -1, 1))
        mark = middle + half * float(np.clip(command / limit, -1, 1))
        draw = self._draw
        draw.rectangle((x, self._y(0.58), x + width, self._y(0.72)), fill=(226, 230, 234))
        draw.rectangle((min(middle, end), self._y(0.58), max(middle, end), self._y(0.72)), fill=MEASURED)
        draw.line((middle, self._y(0.56), middle, self._y(0.74)), fill=FAINT)
        draw.rectangle((mark - 1.5, self._y(0.5), mark + 1.5, self._y(0.8)), fill=COMMAND)

    def done(self) -> np.ndarray:
        return np.asarray(self._image)
