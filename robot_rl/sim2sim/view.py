"""A session in the browser: the robot as it moves, and buttons for the operator."""

from __future__ import annotations

import contextlib
import io
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.viewer.drive import AXES, heading, scene_model, velocity_ranges
from robot_rl.viewer.play import UNITS, checked_port

if TYPE_CHECKING:
    from robot_rl.sim2sim.realtime import RealTimeRun

DRAW_HZ, READ_HZ = 25.0, 4.0
TITLES = {"Damp": "damp", "Stand": "stand", "Walk": "policy"}


class View:
    """Draws a session between its control steps, and takes the operator's wishes from the page."""

    def __init__(self, run: RealTimeRun, host: str, port: int, *, drives: bool) -> None:
        """Starts the page.

        Args:
            run: The session.
            host: Address to listen on.
            port: TCP port; 0 takes a free one.
            drives: Whether the page's sliders give the command.

        Raises:
            UserError: The address cannot be listened on.
        """
        port = checked_port(host, port)
        import viser

        from robot_rl.viewer.scene import RobotScene

        self._run, self._env, self._request = run, run.plant.env, ""
        with contextlib.redirect_stdout(io.StringIO()):  # viser's own banner
            self._server = viser.ViserServer(host=host, port=port, label="sim2sim", verbose=False)
        self.url = f"http://{'localhost' if host in ('127.0.0.1', 'localhost') else host}:{self._server.get_port()}"
        self._scene = RobotScene(self._server, scene_model(self._env))
        self._server.on_client_connect(self._scene.look_from)
        self._ranges = velocity_ranges(self._env) if drives else None
        self._sliders = self._add_controls()
        self._figures = self._server.gui.add_html("")
        self._due = {"draw": 0.0, "read": 0.0}
        run.session.on_step = self.update
        run.session.commands = self

    def _add_controls(self) -> dict[str, Any]:
        gui, sliders = self._server.gui, {}
        gui.configure_theme(control_layout="fixed", show_logo=False, show_share_button=False)
        gui.set_panel_label(str(self._env.cfg.name))
        buttons = gui.add_button_group("operator", list(TITLES))
        buttons.on_click(lambda event: self._press(str(event.target.value)))
        for axis, unit in zip(AXES, UNITS, strict=True):
            if self._ranges is None:
                break
            low, high = self._ranges[axis]
            start = min(max(0.0, low), high)
            sliders[axis] = gui.add_slider(f"{axis} [{unit}]", low, high, 0.05, round(start / 0.05) * 0.05)
        return sliders

    def _press(self, title: str) -> None:
        self._request = TITLES[title]

    def command(self, time_s: float) -> np.ndarray | None:
        """What the sliders say; else what the session was told before."""
        if not self._sliders:
            return self._run.commands.command(time_s)
        return np.array([float(self._sliders[axis].value) for axis in AXES], np.float32)

    def take_request(self) -> str:
        """The button that was pressed since the last call."""
        request, self._request = self._request, ""
        return request or self._run.commands.take_request()

    def update(self) -> None:
        """Draws, where it is time to."""
        now = time.monotonic()
        state = self._env.state
        if now >= self._due["draw"]:
            self._due["draw"] = now + 1 / DRAW_HZ
            with self._server.atomic():
                self._scene.update(state.qpos[0].cpu().numpy().astype(np.float64), follow=True)
                if self._ranges is not None:
                    quat = state.base_quat_wxyz[0].cpu().numpy()
                    measured = np.append(state.base_lin_vel_b[0, :2].cpu().numpy(), float(state.base_ang_vel_b[0, 2]))
                    self._scene.show_velocity(state.command[0].cpu().numpy().copy(), measured, heading(quat))
        if now >= self._due["read"]:
            self._due["read"] = now + 1 / READ_HZ
            session = self._run.session
            rows = {
                "Phase": session.phase or "not connected",
                "Fault": session.link.fault,
                "Walked": f"{session.policy_s:.1f} s",
                "Falls": str(session.falls),
                "Late ticks": str(session.exchange.late),
            }
            cells = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in rows.items())
            self._figures.content = f'<table style="padding: 0 1em; width: 100%">{cells}</table>'

    def close(self) -> None:
        """Stops the page."""
        with contextlib.redirect_stdout(io.StringIO()):
            self._server.stop()
