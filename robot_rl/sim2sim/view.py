"""A session in the browser: the robot, and buttons for the operator."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from robot_rl.sim2sim.commands import Commands
from robot_rl.viewer.command import command_info
from robot_rl.viewer.drive import command_frame, heading, scene_model
from robot_rl.viewer.panel import Sliders
from robot_rl.viewer.play import Page, by_hand

if TYPE_CHECKING:
    from robot_rl.sim2sim.session import Session

DRAW_HZ, READ_HZ = 25.0, 4.0
REQUESTS = {"Damp": "damp", "Stand": "stand", "Walk": "policy"}


class View(Commands):
    """Draws a session between its control steps, and takes the operator's requests from the page."""

    def __init__(self, session: Session, host: str, port: int, *, drives: bool) -> None:
        """Start the page, with sliders for the command if it `drives`; raise a UserError as `Page` does."""
        from robot_rl.viewer.scene import WORLD, RobotScene
        from robot_rl.viewer.target import Target

        self._session, self._env, self._request = session, session.plant.env, ""
        self._page = Page(host, port, "sim2sim")
        self.url = self._page.url
        self._scene = RobotScene(self._page.server, scene_model(self._env))
        self._page.server.on_client_connect(self._scene.look_from)
        self._info = info = by_hand(command_info(self._env)) if drives else None
        self._sliders = self._add_controls()
        self._target = Target(self._page.server, WORLD, info) if info is not None and info.is_target else None
        self._figures = self._page.server.gui.add_html("")
        self._due = {"draw": 0.0, "read": 0.0}
        self._without = session.commands
        session.on_step, session.commands = self.update, self

    def _add_controls(self) -> Sliders | None:
        gui, info = self._page.server.gui, self._info
        gui.configure_theme(control_layout="fixed", show_logo=False, show_share_button=False)
        gui.set_panel_label(str(self._env.cfg.name))
        buttons = gui.add_button_group("operator", list(REQUESTS))
        buttons.on_click(lambda event: self._press(str(event.target.value)))
        if info is None:
            return None
        drawn = self._env.state.command[0].cpu().numpy()
        return Sliders(gui, info, info.clip(np.zeros(len(drawn)) if info.is_velocity else drawn))

    def _press(self, button: str) -> None:
        self._request = REQUESTS[button]

    def command(self, time_s: float) -> np.ndarray | None:
        """Return the command of the sliders, else that of the session's own source."""
        if self._sliders is None:
            return self._without.command(time_s)
        if self._target is not None and (dragged := self._target.take()) is not None:
            self._sliders.move(dragged)
        return self._sliders.command.astype(np.float32)

    def take_request(self) -> str:
        """Return the button that was pressed since the last call."""
        request, self._request = self._request, ""
        return request or self._without.take_request()

    def update(self) -> None:
        """Draw, if it is time."""
        now = time.monotonic()
        state = self._env.state
        if now >= self._due["draw"]:
            self._due["draw"] = now + 1 / DRAW_HZ
            with self._page.server.atomic():
                self._scene.update(state.qpos[0].cpu().numpy().astype(np.float64), follow=True)
                if self._target is not None and self._info is not None:
                    self._target.place(*command_frame(self._env, self._info))
                    self._target.show(state.command[0].cpu().numpy().astype(np.float64))
                elif self._info is not None and self._info.is_velocity:
                    quat = state.base_quat_wxyz[0].cpu().numpy()
                    measured = np.append(state.base_lin_vel_b[0, :2].cpu().numpy(), float(state.base_ang_vel_b[0, 2]))
                    self._scene.show_velocity(state.command[0].cpu().numpy().copy(), measured, heading(quat))
        if now >= self._due["read"]:
            self._due["read"] = now + 1 / READ_HZ
            session = self._session
            rows = {
                "Phase": session.phase or "not connected",
                "Fault": session.link.fault,
                "Policy ran": f"{session.policy_s:.1f} s",
                "Falls": str(session.falls),
                "Late ticks": str(session.exchange.late),
            }
            cells = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in rows.items())
            self._figures.content = f'<table style="padding: 0 1em; width: 100%">{cells}</table>'

    def close(self) -> None:
        """Stop the page."""
        self._page.close()
