"""The controls and figures next to the scene."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.viewer.drive import AXES, UNITS

if TYPE_CHECKING:
    import viser

TITLES = {"vx": "forward", "vy": "left", "yaw": "turn left"}
STYLE = "font: 13px system-ui, sans-serif; font-variant-numeric: tabular-nums; padding: 0 1em; width: 100%;"


class Panel:
    """Sliders, buttons and figures of the page. Buttons leave a request that `take` collects."""

    def __init__(
        self, server: viser.ViserServer, title: str, ranges: dict[str, tuple[float, float]] | None, *, can_push: bool
    ) -> None:
        """Build the panel; it has sliders for a velocity command with ranges, and a button for pushes."""
        self._gui = server.gui
        self._requests: set[str] = set()
        self.paused = False
        self._gui.configure_theme(control_layout="fixed", show_logo=False, show_share_button=False)
        self._gui.set_panel_label(title)
        self._sliders = self._add_command(ranges) if ranges else {}
        self._add_simulation(can_push)
        with self._gui.add_folder("Measured"):
            self._figures = self._gui.add_html("")
            self._plot = self._add_plot() if ranges else None

    def _add_command(self, ranges: dict[str, tuple[float, float]]) -> dict[str, Any]:
        sliders = {}
        with self._gui.add_folder("Command"):
            for axis in AXES:
                low, high = ranges[axis]
                start = 0.5 * high if axis == "vx" else min(max(0.0, low), high)
                label = f"{TITLES[axis]} [{UNITS[axis]}]"
                sliders[axis] = self._gui.add_slider(label, low, high, 0.05, round(start / 0.05) * 0.05)
            stand = self._gui.add_button("Stand still")
        stand.on_click(lambda _: self._stand())
        return sliders

    def _add_simulation(self, can_push: bool) -> None:
        with self._gui.add_folder("Simulation"):
            names = ["Pause", "Reset", "Push"] if can_push else ["Pause", "Reset"]
            self._buttons = self._gui.add_button_group("control", names)
            self._buttons.on_click(lambda event: self._press(str(event.target.value)))
            self._push = self._gui.add_slider("push [m/s]", 0.1, 2.0, 0.1, 0.8) if can_push else None
            self._speed = self._gui.add_slider("speed [×]", 0.1, 4.0, 0.1, 1.0, hint="1 is real time")
            self._follow = self._gui.add_checkbox("Follow the robot", True)

    def _add_plot(self) -> Any:
        from viser import uplot

        self._axis = self._gui.add_dropdown("Shown", [TITLES[axis] for axis in AXES])
        empty = np.zeros(2)
        series = (
            uplot.Series(label="time [s]"),
            uplot.Series(label="command", stroke="#1a73e6", width=2),
            uplot.Series(label="measured", stroke="#2ea05a", width=2),
        )
        return self._gui.add_uplot((empty, empty, empty), series, scales={"x": uplot.Scale(time=False)}, aspect=1.6)

    def _stand(self) -> None:
        for slider in self._sliders.values():
            slider.value = min(max(0.0, slider.min), slider.max)

    def _press(self, name: str) -> None:
        if name == "Pause":
            self.paused = not self.paused
        else:
            self._requests.add(name.lower())

    def take(self, request: str) -> bool:
        """Return whether "reset" or "push" was requested since the last call."""
        if request in self._requests:
            self._requests.discard(request)
            return True
        return False

    @property
    def command(self) -> tuple[float, float, float]:
        """The command of the sliders: vx, vy [m/s], yaw rate [rad/s]."""
        vx, vy, yaw = (float(self._sliders[axis].value) for axis in AXES)
        return vx, vy, yaw

    @property
    def speed(self) -> float:
        """Simulated seconds per second."""
        return float(self._speed.value)

    @property
    def push_speed(self) -> float:
        """Size of a push [m/s]."""
        return float(self._push.value) if self._push is not None else 0.0

    @property
    def follow(self) -> bool:
        """Whether the view follows the robot."""
        return bool(self._follow.value)

    def write(self, rows: list[tuple[str, float, float]], facts: dict[str, str]) -> None:
        """Show rows of (name, command, measured), and other figures by name."""
        right = 'style="text-align: right"'
        html = ""
        if rows:
            cells = "".join(
                f"<tr><td>{escape(name)}</td><td {right}>{_two(command)}</td><td {right}>{_two(measured)}</td>"
                f"<td {right}>{_two(abs(command - measured))}</td></tr>"
                for name, command, measured in rows
            )
            error = float(np.hypot(rows[0][1] - rows[0][2], rows[1][1] - rows[1][2]))
            facts = {"Planar velocity error": f"{error:.2f} m/s", **facts}
            head = f"<tr><th></th><th {right}>command</th><th {right}>measured</th><th {right}>error</th></tr>"
            html += f'<table style="width: 100%">{head}{cells}</table>'
        lines = "".join(f"<tr><td>{escape(k)}</td><td {right}>{escape(v)}</td></tr>" for k, v in facts.items())
        self._figures.content = f'<div style="{STYLE}">{html}<table style="width: 100%">{lines}</table></div>'

    def plot(self, history: list[tuple[float, np.ndarray, np.ndarray]]) -> None:
        """Plot the selected component of a history of (time [s], command, measured)."""
        if self._plot is None or len(history) < 2:
            return
        k = [TITLES[axis] for axis in AXES].index(self._axis.value)
        times = np.array([time for time, _, _ in history])
        command = np.array([float(point[k]) for _, point, _ in history])
        measured = np.array([float(point[k]) for _, _, point in history])
        self._plot.data = (times, command, measured)


def _two(value: float) -> str:
    """Return two decimals, without a minus before a zero."""
    return f"{round(value, 2) + 0.0:.2f}"
