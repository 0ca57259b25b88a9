"""A session in the browser: the robots, and buttons for the operator."""

from __future__ import annotations

import html
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.sim2sim.commands import Commands
from robot_rl.view.viewer.command import command_info
from robot_rl.view.viewer.drive import command_frame, heading, scene_model, world_qpos
from robot_rl.view.viewer.panel import Sliders
from robot_rl.view.viewer.play import Page, by_hand

if TYPE_CHECKING:
    from robot_rl.sim2sim.session import Session

DRAW_HZ, READ_HZ = 25.0, 4.0
REQUESTS = {"Damp": "damp", "Stand": "stand", "Walk": "policy"}


class View(Commands):
    """Draws a session between its control steps, and takes the operator's requests from the page.

    One robot has buttons for the operator's requests, and sliders for its command; each robot of a team has a button
    that kills its binary.

    Attributes:
        url: The page's address.
        table: The table of figures as HTML.
    """

    def __init__(self, session: Session, host: str, port: int, *, drives: bool) -> None:
        """Start the page, with sliders for one robot's command if it `drives`; raise a UserError as `Page` does."""
        from robot_rl.view.viewer.scene import WORLD, RobotScene
        from robot_rl.view.viewer.target import Target

        self._session, self._env = session, session.plant.env
        self._page = Page(host, port, "sim2sim")
        server, self.url = self._page.server, self._page.url
        self._scene = RobotScene(server, scene_model(self._env))
        server.on_client_connect(self._scene.look_from)
        server.gui.configure_theme(control_layout="fixed", show_logo=False, show_share_button=False)
        server.gui.set_panel_label(str(self._env.cfg.name))
        self._figures: Any = None
        self.table, self._request = "", ""
        self._due = {"draw": 0.0, "read": 0.0}
        self._condemned: list[str] = []
        shows_command = self._env.is_alike if session.is_team else drives
        self._info = info = by_hand(command_info(self._env)) if shows_command else None
        self._sliders = self._add_controls(server.gui)
        self._target = Target(server, WORLD, info) if info is not None and info.is_target else None
        self._source = session.commands
        session.on_step, session.commands = self.update, self

    def _add_controls(self, gui: Any) -> Sliders | None:
        if self._session.is_team:
            for name in self._session.members:
                button = gui.add_button(f"Kill the binary of {name}", color="red")
                button.on_click(lambda _, name=name: self._condemned.append(name))
            return None
        buttons = gui.add_button_group("operator", list(REQUESTS))
        buttons.on_click(lambda event: self._press(str(event.target.value)))
        if (info := self._info) is None:
            return None
        drawn = self._env.state.command[0].cpu().numpy()
        return Sliders(gui, info, info.clip(np.zeros(len(drawn)) if info.is_velocity else drawn))

    def _press(self, button: str) -> None:
        self._request = REQUESTS[button]

    def command(self, time_s: float) -> np.ndarray | None:
        """Return the command of the sliders, else that of the session's source."""
        if self._sliders is None:
            return self._source.command(time_s)
        if self._target is not None and (dragged := self._target.take()) is not None:
            self._sliders.move(dragged)
        return self._sliders.command.astype(np.float32)

    def take_request(self) -> str:
        """Return the button that was pressed since the last call."""
        request, self._request = self._request, ""
        return request or self._source.take_request()

    def update(self) -> None:
        """Kill the binaries whose buttons were pressed; draw, if it is time."""
        while self._condemned:
            self._session.kill(self._condemned.pop())
        if self._is_due("draw", DRAW_HZ):
            with self._page.server.atomic():
                self._draw()
        if self._is_due("read", READ_HZ):
            self._show_figures()

    def _is_due(self, what: str, rate: float) -> bool:
        now = time.monotonic()
        if now < self._due[what]:
            return False
        self._due[what] = now + 1 / rate
        return True

    def _draw(self) -> None:
        self._scene.update(world_qpos(self._env)[0], follow=True)
        if self._info is None:
            return
        command = self._env.state.command[0].cpu().numpy()
        if self._target is not None:
            self._target.place(*command_frame(self._env, self._info))
            self._target.show(command.astype(np.float64))
        elif self._sliders is not None and self._info.is_velocity:
            state = self._env.state
            quat = state.base_quat_wxyz[0].cpu().numpy()
            measured = np.append(state.base_lin_vel_b[0, :2].cpu().numpy(), float(state.base_ang_vel_b[0, 2]))
            self._scene.show_velocity(command.copy(), measured, heading(quat))

    def _show_figures(self) -> None:
        session = self._session
        rows: list[tuple[str, ...]] = [("Robot", "Phase", "Fault", "Policy ran")]
        for m in session.members.values():
            phase = "killed" if m.is_killed else m.phase or "not connected"
            rows.append((m.name, phase, m.link.fault, f"{m.policy_s:.1f} s"))
        if not session.is_team:
            # One robot's figures are rows, with two that a team does not have.
            rows = list(zip(rows[0][1:], rows[1][1:], strict=True))
            rows += [("Falls", str(session.robot.falls)), ("Late ticks", str(session.exchange.late))]
        if self._figures is None:
            self._figures = self._page.server.gui.add_html("")
        lines = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        self.table = f'<table style="padding: 0 1em; width: 100%">{lines}</table>'
        self._figures.content = self.table

    def close(self) -> None:
        """Stop the page."""
        self._page.close()
