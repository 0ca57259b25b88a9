"""A session in the browser: the robots, and buttons for the operator."""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.sim2sim.commands import Commands
from robot_rl.view.viewer.command import command_info
from robot_rl.view.viewer.drive import command_frame, heading, scene_model, world_qpos
from robot_rl.view.viewer.panel import Sliders
from robot_rl.view.viewer.play import Page, by_hand

if TYPE_CHECKING:
    from robot_rl.sim2sim.session import Session
    from robot_rl.sim2sim.team import TeamSession

DRAW_HZ, READ_HZ = 25.0, 4.0
REQUESTS = {"Damp": "damp", "Stand": "stand", "Walk": "policy"}


class Canvas:
    """A page with a world of an environment and a table.

    Attributes:
        server: the `viser.ViserServer`.
        url: the page's address.
        table: the table as HTML.
    """

    def __init__(self, env: Any, host: str, port: int) -> None:
        """Start the page; raise a UserError as `Page` does."""
        from robot_rl.view.viewer.scene import RobotScene

        self._env, self._page = env, Page(host, port, "sim2sim")
        self.server, self.url = self._page.server, self._page.url
        self.scene = RobotScene(self.server, scene_model(env))
        self.server.on_client_connect(self.scene.look_from)
        gui = self.server.gui
        gui.configure_theme(control_layout="fixed", show_logo=False, show_share_button=False)
        gui.set_panel_label(str(env.cfg.name))
        self._figures: Any = None
        self.table = ""
        self._due = {"draw": 0.0, "read": 0.0}

    def is_due(self, what: str) -> bool:
        """Whether it is time to draw ("draw"), or to read figures ("read")."""
        now = time.monotonic()
        if now < self._due[what]:
            return False
        self._due[what] = now + {"draw": 1 / DRAW_HZ, "read": 1 / READ_HZ}[what]
        return True

    def draw(self) -> None:
        """Draw the world."""
        self.scene.update(world_qpos(self._env)[0], follow=True)

    def write(self, rows: Sequence[Sequence[str]]) -> None:
        """Show a table."""
        if self._figures is None:
            self._figures = self.server.gui.add_html("")
        lines = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        self.table = f'<table style="padding: 0 1em; width: 100%">{lines}</table>'
        self._figures.content = self.table

    def close(self) -> None:
        """Stop the page."""
        self._page.close()


class TeamView:
    """Draws a session of a team between its control steps; a button kills a robot's binary."""

    def __init__(self, session: TeamSession, host: str, port: int) -> None:
        """Start the page; raise a UserError as `Page` does."""
        from robot_rl.view.viewer.scene import WORLD
        from robot_rl.view.viewer.target import Target

        self._session, self._env = session, session.plant.env
        self._canvas = Canvas(self._env, host, port)
        self.url = self._canvas.url
        self._condemned: list[str] = []
        for name in session.members:
            button = self._canvas.server.gui.add_button(f"Kill the binary of {name}", color="red")
            button.on_click(lambda _, name=name: self._condemned.append(name))
        self._info = info = by_hand(command_info(self._env))
        self._target = Target(self._canvas.server, WORLD, info) if info is not None and info.is_target else None
        session.on_step = self.update

    def update(self) -> None:
        """Kill whom it is to, and draw, if it is time."""
        session, canvas = self._session, self._canvas
        while self._condemned:
            session.kill(self._condemned.pop())
        if canvas.is_due("draw"):
            with canvas.server.atomic():
                canvas.draw()
                if self._target is not None and self._info is not None:
                    self._target.place(*command_frame(self._env, self._info))
                    self._target.show(self._env.state.command[0].cpu().numpy().astype(np.float64))
        if canvas.is_due("read"):
            rows = [
                (m.name, "killed" if m.is_killed else m.phase or "not connected", m.link.fault, f"{m.policy_s:.1f} s")
                for m in session.members.values()
            ]
            canvas.write([("Robot", "Phase", "Fault", "Policy ran"), *rows])

    def close(self) -> None:
        """Stop the page."""
        self._canvas.close()


class View(Commands):
    """Draws a session between its control steps, and takes the operator's requests from the page."""

    def __init__(self, session: Session, host: str, port: int, *, drives: bool) -> None:
        """Start the page, with sliders for the command if it `drives`; raise a UserError as `Page` does."""
        from robot_rl.view.viewer.scene import WORLD
        from robot_rl.view.viewer.target import Target

        self._session, self._env, self._request = session, session.plant.env, ""
        self._canvas = Canvas(self._env, host, port)
        self.url = self._canvas.url
        self._info = info = by_hand(command_info(self._env)) if drives else None
        self._sliders = self._add_controls()
        self._target = Target(self._canvas.server, WORLD, info) if info is not None and info.is_target else None
        self._without = session.commands
        session.on_step, session.commands = self.update, self

    def _add_controls(self) -> Sliders | None:
        gui, info = self._canvas.server.gui, self._info
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
        state, canvas = self._env.state, self._canvas
        if canvas.is_due("draw"):
            with canvas.server.atomic():
                canvas.draw()
                if self._target is not None and self._info is not None:
                    self._target.place(*command_frame(self._env, self._info))
                    self._target.show(state.command[0].cpu().numpy().astype(np.float64))
                elif self._info is not None and self._info.is_velocity:
                    quat = state.base_quat_wxyz[0].cpu().numpy()
                    measured = np.append(state.base_lin_vel_b[0, :2].cpu().numpy(), float(state.base_ang_vel_b[0, 2]))
                    canvas.scene.show_velocity(state.command[0].cpu().numpy().copy(), measured, heading(quat))
        if canvas.is_due("read"):
            session = self._session
            canvas.write(
                [
                    ("Phase", session.phase or "not connected"),
                    ("Fault", session.link.fault),
                    ("Policy ran", f"{session.policy_s:.1f} s"),
                    ("Falls", str(session.falls)),
                    ("Late ticks", str(session.exchange.late)),
                ]
            )

    def close(self) -> None:
        """Stop the page."""
        self._canvas.close()
