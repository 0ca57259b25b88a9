"""The controls and figures next to the scene."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.view.shell import STATIC
from robot_rl.view.viewer.command import CommandInfo
from robot_rl.view.viewer.gauges import Gauges, draw_bars

if TYPE_CHECKING:
    import viser

ALL = "any, drawn at each reset"
"""Chosen where every motion may come; one that loops is followed until then."""
VELOCITY_STEP = 0.05
"""Step of the sliders of a velocity command [m/s, rad/s]."""
LEGEND = {
    "command": ("#1a73e6", "commanded velocity"),
    "measured": ("#2ea05a", "measured velocity"),
    "force": ("#e05a00", "size of a foot's contact force"),
    "reference": ("#8cb9f2", "reference motion"),
}
"""Color and meaning of the marks that are shown besides the robot."""
STYLE = "font: 13px system-ui, sans-serif; font-variant-numeric: tabular-nums; padding: 0 1em; width: 100%;"


class Sliders:
    """A slider for each component of a command.

    Attributes:
        handles: the sliders by the component's name.
    """

    def __init__(self, gui: viser.GuiApi, info: CommandInfo, start: np.ndarray) -> None:
        """Add them to a page, at a command (width,)."""
        self._info, self.handles = info, {}
        rows = zip(info.names, info.labels, info.lower.tolist(), info.upper.tolist(), start.tolist(), strict=True)
        for name, label, low, high, value in rows:
            step = VELOCITY_STEP if info.is_velocity else _step_of(high - low)
            rounded = round(round(value / step) * step, 4)
            self.handles[name] = gui.add_slider(label, low, high, step, min(max(rounded, low), high))

    @property
    def command(self) -> np.ndarray:
        """The command (width,) that they show."""
        return self._info.clip([float(handle.value) for handle in self.handles.values()])

    def move(self, values: np.ndarray) -> None:
        """Move the first sliders to values, as far as their ranges reach."""
        for handle, value in zip(self.handles.values(), values.tolist(), strict=False):
            handle.value = min(max(round(value, 4), handle.min), handle.max)


def _step_of(width: float) -> float:
    """Return a power of ten of which a range has a hundred or more."""
    return 10.0 ** math.floor(math.log10(width / 100)) if width > 0 else 0.01


@dataclass(kw_only=True, slots=True)
class PanelCfg:
    """The parts of a panel.

    Attributes:
        travels: a switch for the view of a robot that travels.
        can_push: a button for pushes.
        motions: names of the reference motions to choose from.
        gauges: bars of a world.
        worlds: their number, to choose from.
        policies: names of the policies to choose from.
        chosen: the present one of these.
    """

    travels: bool
    can_push: bool
    motions: Sequence[str] = ()
    gauges: Gauges | None = None
    worlds: int = 1
    policies: Sequence[str] = ()
    chosen: str = ""


class Panel:
    """Sliders, buttons and figures of the page. Buttons leave a request that `take` collects."""

    def __init__(
        self,
        server: viser.ViserServer,
        title: str,
        info: CommandInfo | None,
        start: np.ndarray,
        cfg: PanelCfg,
    ) -> None:
        """Build the panel; the sliders of a command begin at `start` (width,)."""
        self._gui, self._info = server.gui, info
        self._requests: set[str] = set()
        self._images: dict[str, Any] = {}
        self._steered: np.ndarray | None = None
        self.paused = False
        self._gui.configure_theme(control_layout="fixed", show_logo=False, show_share_button=False)
        self._gui.set_panel_label(title)
        self._sliders = self._add_command(info, start) if info is not None else None
        self._motions = self._add_motions(cfg.motions) if cfg.motions else None
        self._chosen, self._policies = cfg.chosen, None
        if len(cfg.policies) > 1:
            hint = "of this robot: shipped ones, and runs of their tasks"
            self._policies = self._gui.add_dropdown("Policy", cfg.policies, initial_value=cfg.chosen, hint=hint)
        self._add_simulation(cfg.can_push, cfg.worlds)
        tracks = info is not None and info.is_velocity
        forces = cfg.gauges is not None and cfg.gauges.has_feet
        shown = ["command", "measured"] * tracks + ["force"] * forces + ["reference"] * bool(cfg.motions)
        self._add_view(cfg.travels, shown, drives=tracks)
        with self._gui.add_folder("Measured" if info is None or tracks else "Figures"):
            self._figures = self._gui.add_html("")
            self._plot = self._add_plot(info) if info is not None and tracks else None
        self._bars = self._add_bars(cfg.gauges) if cfg.gauges is not None else {}

    def _add_command(self, info: CommandInfo, start: np.ndarray) -> Sliders:
        with self._gui.add_folder("Command"):
            sliders = Sliders(self._gui, info, start)
            if info.is_velocity:
                self._gui.add_button("Stand still").on_click(lambda _: self.move(np.zeros(len(info.names))))
                self._gui.add_text("Keys", "").on_update(self._steer)
        return sliders

    async def _steer(self, event: viser.GuiEvent) -> None:
        """Take shares in [-1, 1] of the ranges of the first components, which drive.js has written."""
        try:
            shares = np.array([float(word) for word in str(event.target.value).split()])
        except ValueError:
            return
        if self._info is not None and shares.shape == (3,) and np.isfinite(shares).all():
            low, high = np.minimum(self._info.lower[:3], 0.0), np.maximum(self._info.upper[:3], 0.0)
            self._steered = np.where(shares > 0, shares * high, -shares * low)

    def take_steered(self) -> np.ndarray | None:
        """Return the velocities (3,) that keys or a gamepad commanded since the last call; None if they did not."""
        steered, self._steered = self._steered, None
        return steered

    def _add_motions(self, names: Sequence[str]) -> Any:
        with self._gui.add_folder("Reference"):
            chooser = self._gui.add_dropdown("Motion", (ALL, *names))
        chooser.on_update(lambda _: self._requests.add("motion"))
        return chooser

    @property
    def motion(self) -> str:
        """Name of the chosen motion; empty for all."""
        return "" if self._motions is None or self._motions.value == ALL else str(self._motions.value)

    def _add_simulation(self, can_push: bool, worlds: int) -> None:
        with self._gui.add_folder("Simulation"):
            names = [str(k + 1) for k in range(worlds)]
            hint = "the one that is driven and followed; the others have the commands of the task"
            self._world = self._gui.add_dropdown("World", names, hint=hint) if worlds > 1 else None
            names = ["Pause", "Reset", "Push"] if can_push else ["Pause", "Reset"]
            self._buttons = self._gui.add_button_group("Control", names)
            self._buttons.on_click(lambda event: self._press(str(event.target.value)))
            self._push = self._gui.add_slider("Push [m/s]", 0.1, 2.0, 0.1, 0.8) if can_push else None
            self._speed = self._gui.add_slider("Speed [×]", 0.1, 4.0, 0.1, 1.0, hint="1 is real time")
            self._gui.add_button("Record 10 s", hint="an .mp4 in the current folder").on_click(
                lambda _: self._requests.add("record")
            )

    def _add_view(self, travels: bool, shown: Sequence[str], *, drives: bool) -> None:
        """Add switches of the view, the legend of the marks besides the robot, and the keys."""
        self._follow = self._forces = None
        with self._gui.add_folder("View"):
            if travels:
                self._follow = self._gui.add_checkbox("Follow", True, hint="keep the robot in the middle")
            if "force" in shown:
                self._forces = self._gui.add_checkbox("Forces", True, hint=LEGEND["force"][1])
            rows = (LEGEND[name] for name in shown)
            marks = "".join(f'<div><b style="color: {color}">➔</b> {text}</div>' for color, text in rows)
            keys = "W A S D, the arrows, Q and E drive, or a gamepad's sticks; " if drives else ""
            # HTML that is inserted runs no script, but the handler of an image that fails.
            script = f'<img src="data:," alt="" hidden onerror="{escape((STATIC / "drive.js").read_text())}">'
            lines = f"{marks}<div>{keys}R resets, space pauses.</div>{script}"
            self._gui.add_html(f'<div style="{STYLE} padding-bottom: 0.5em">{lines}</div>')

    def _add_bars(self, gauges: Gauges) -> dict[str, Any]:
        """Add a folder for each kind of bars that an environment has, and return their texts by kind."""
        kinds = {
            "Rewards [1/s]": gauges.reward_bars,
            "Contacts [N]": gauges.contact_bars,
            "Joint efforts [N m, N]": gauges.effort_bars,
        }
        texts = {}
        for title, bars in kinds.items():
            if bars(0):
                with self._gui.add_folder(title, expand_by_default=bars == gauges.reward_bars):
                    texts[title] = (self._gui.add_html(""), bars)
        return texts

    def show_bars(self, world: int) -> None:
        """Show rewards, contacts and efforts of a world."""
        for text, bars in self._bars.values():
            text.content = f'<div style="{STYLE} padding-bottom: 0.5em">{draw_bars(bars(world))}</div>'

    def _add_plot(self, info: CommandInfo) -> Any:
        from viser import uplot

        self._axis = self._gui.add_dropdown("Shown", info.labels[:3])
        empty = np.zeros(2)
        series = (
            uplot.Series(label="time [s]"),
            uplot.Series(label="command", stroke="#1a73e6", width=2),
            uplot.Series(label="measured", stroke="#2ea05a", width=2),
        )
        return self._gui.add_uplot((empty, empty, empty), series, scales={"x": uplot.Scale(time=False)}, aspect=1.6)

    def move(self, values: np.ndarray) -> None:
        """Move the first sliders of the command to values, as far as their ranges reach."""
        if self._sliders is not None:
            self._sliders.move(values)

    def _press(self, name: str) -> None:
        if name == "Pause":
            self.paused = not self.paused
        else:
            self._requests.add(name.lower())

    def take(self, request: str) -> bool:
        """Return whether "reset", "push", "motion" or "record" was requested since the last call."""
        if request in self._requests:
            self._requests.discard(request)
            return True
        return False

    @property
    def command(self) -> tuple[float, ...]:
        """The command of the sliders; empty without one."""
        return tuple(self._sliders.command.tolist()) if self._sliders is not None else ()

    def take_policy(self) -> str | None:
        """Return the name of the policy that was chosen instead of the present one; None if there is none."""
        if self._policies is None or self._policies.value == self._chosen:
            return None
        name, self._policies.value = str(self._policies.value), self._chosen
        return name

    @property
    def world(self) -> int:
        """Index of the world that is followed."""
        return int(self._world.value) - 1 if self._world is not None else 0

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
        return self._follow is not None and bool(self._follow.value)

    @property
    def forces(self) -> bool:
        """Whether forces are drawn."""
        return self._forces is not None and bool(self._forces.value)

    def show_images(self, images: Mapping[str, np.ndarray]) -> None:
        """Show the images of cameras, (H, W, 3) uint8 by the camera's name."""
        for name, image in images.items():
            if name in self._images:
                self._images[name].image = image
            else:
                self._images[name] = self._gui.add_image(image, label=f"camera {name}", format="png")

    def write(self, rows: list[tuple[str, float, float | None]], facts: dict[str, str]) -> None:
        """Show rows of (name, command, measured), measured None without a measurement, and other figures by name."""
        right = 'style="text-align: right"'
        html, errors = "", [command - measured for _, command, measured in rows if measured is not None]
        if rows:
            heads, cells = ["", "command", "measured", "error"] if errors else ["", "command"], ""
            for name, command, measured in rows:
                figures = [command] if measured is None else [command, measured, abs(command - measured)]
                cells += f"<tr><td>{escape(name)}</td>{''.join(f'<td {right}>{_two(x)}</td>' for x in figures)}</tr>"
            html += (
                f'<table style="width: 100%"><tr>{"".join(f"<th {right}>{x}</th>" for x in heads)}</tr>{cells}</table>'
            )
        if errors:
            facts = {"Planar velocity error": f"{math.hypot(*errors[:2]):.2f} m/s", **facts}
        lines = "".join(f"<tr><td>{escape(k)}</td><td {right}>{escape(v)}</td></tr>" for k, v in facts.items())
        self._figures.content = f'<div style="{STYLE}">{html}<table style="width: 100%">{lines}</table></div>'

    def plot(self, history: list[tuple[float, np.ndarray, np.ndarray]]) -> None:
        """Plot the selected component of a history of (time [s], command, measured)."""
        if self._plot is None or self._info is None or len(history) < 2:
            return
        k = self._info.labels.index(self._axis.value)
        times = np.array([time for time, _, _ in history])
        command = np.array([float(point[k]) for _, point, _ in history])
        measured = np.array([float(point[k]) for _, _, point in history])
        self._plot.data = (times, command, measured)


def _two(value: float) -> str:
    """Return two decimals, without a minus before a zero."""
    return f"{round(value, 2) + 0.0:.2f}"
