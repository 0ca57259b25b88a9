"""A page in the browser where a policy is driven by hand, in real time."""

from __future__ import annotations

import contextlib
import io
import math
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from robot_rl.errors import UserError
from robot_rl.viewer.drive import AXES, Driver, heading, scene_model, velocity_ranges

UNITS = ("m/s", "m/s", "rad/s")
DRAW_HZ, READ_HZ, PLOT_HZ = 100.0, 5.0, 5.0
HISTORY_S = 10.0


def play(
    env: Any,
    policy: Any | None,
    host: str = "127.0.0.1",
    port: int = 8080,
    *,
    ready: Callable[[str], None] | None = None,
    seconds: float | None = None,
) -> None:
    """Shows world 0 of an environment in the browser and lets the user drive it; returns on Ctrl-C.

    Args:
        env: an environment, best of one world.
        policy: a network's function, a bundle, or None; see `Driver`.
        host: address to listen on; only this machine's own by default.
        port: TCP port; 0 takes a free one.
        ready: called with the page's address once it can be opened.
        seconds: return after this much wall time [s]; None runs until Ctrl-C.

    Raises:
        UserError: the address cannot be listened on.
    """
    player = Player(env, policy, host, port)
    try:
        if ready is not None:
            ready(player.url)
        player.run(seconds)
    except KeyboardInterrupt:
        pass
    finally:
        player.close()


class Player:
    """The page and the loop behind it. The page's threads only leave wishes; the loop alone touches the environment."""

    def __init__(self, env: Any, policy: Any | None, host: str = "127.0.0.1", port: int = 8080) -> None:
        """Starts the server; see `play`."""
        port = checked_port(host, port)
        import viser

        from robot_rl.viewer.panel import Panel
        from robot_rl.viewer.scene import RobotScene

        self.env, self.driver = env, Driver(env, policy)
        self._ranges = velocity_ranges(env)
        with contextlib.redirect_stdout(io.StringIO()):  # viser's own banner
            self._server = viser.ViserServer(host=host, port=port, label=str(env.cfg.name), verbose=False)
        self.url = f"http://{'localhost' if host in ('127.0.0.1', 'localhost') else host}:{self._server.get_port()}"
        self._scene = RobotScene(self._server, scene_model(env))
        can_push = hasattr(env, "push") and self._ranges is not None
        self.panel = Panel(self._server, str(env.cfg.name), self._ranges, can_push=can_push)
        self._scene.update(self.driver.qpos[0])
        self._server.on_client_connect(self._scene.look_from)
        self._history: deque[tuple[float, np.ndarray, np.ndarray]] = deque(maxlen=round(HISTORY_S * PLOT_HZ * 2))
        self._measured = np.zeros(3)
        self._rng = np.random.default_rng(0)
        self._due = {"draw": 0.0, "read": 0.0, "plot": 0.0}
        self.steps = 0

    def run(self, seconds: float | None = None) -> None:
        """Simulates in step with the clock until `seconds` of wall time have passed, or for ever."""
        begin = anchor = time.perf_counter()
        ahead, meter = 0.0, _Meter()
        while seconds is None or time.perf_counter() - begin < seconds:
            now = time.perf_counter()
            self._grant_wishes()
            if self.panel.paused:
                anchor, ahead = now, 0.0
                time.sleep(0.02)
            else:
                speed = self.panel.speed
                ahead -= (now - anchor) * speed
                anchor = now
                # A machine that is too slow falls behind; what it missed is not made up for.
                ahead = max(ahead, -0.1)
                if ahead > 0:
                    time.sleep(min(ahead / speed, 0.02))
                    continue
                self._step()
                ahead += self.env.step_dt
                meter.tick(now, self.env.step_dt)
            self._show(now, meter)

    def close(self) -> None:
        """Stops the server."""
        with contextlib.redirect_stdout(io.StringIO()):
            self._server.stop()

    def _grant_wishes(self) -> None:
        panel = self.panel
        if panel.take("reset"):
            self.driver.reset()
            self._measured[:] = 0.0
        if panel.take("push"):
            angle = self._rng.uniform(0, 2 * math.pi)
            size = panel.push_speed
            self.env.push((size * math.cos(angle), size * math.sin(angle), 0.0))

    def _step(self) -> None:
        if self._ranges is not None:
            self.env.set_command(self.panel.command)
        # An episode does not end because its time is up while somebody plays.
        self.env.episode_length_buf.zero_()
        done = self.driver.step()
        self.steps += 1
        if self._ranges is not None:
            share = 1 - math.exp(-self.env.step_dt / 0.15)
            self._measured += share * (self.driver.velocity()[0] - self._measured)
            if done[0]:
                self._measured[:] = 0.0

    def _is_due(self, what: str, now: float, rate: float) -> bool:
        if now < self._due[what]:
            return False
        self._due[what] = now + 1 / rate
        return True

    def _show(self, now: float, meter: _Meter) -> None:
        command = self.driver.command()[0] if self._ranges is not None else np.zeros(3)
        if self._is_due("draw", now, DRAW_HZ):
            with self._server.atomic():
                self._scene.update(self.driver.qpos[0], follow=self.panel.follow)
                if self._ranges is not None:
                    quat = self.env.state.base_quat_wxyz[0].cpu().numpy()
                    self._scene.show_velocity(command, self._measured, heading(quat))
        if self._is_due("read", now, READ_HZ):
            rows = []
            if self._ranges is not None:
                rows = [
                    (f"{axis} [{unit}]", float(command[k]), float(self._measured[k]))
                    for k, (axis, unit) in enumerate(zip(AXES, UNITS, strict=True))
                ]
            facts = {
                "Simulated": f"{self.driver.time_s:.1f} s",
                "Speed": "paused" if self.panel.paused else f"{meter.real_time:.2f} ×, {meter.rate:.0f} steps/s",
                "Falls": str(self.driver.resets),
            }
            if self._ranges is None:
                facts["Return"] = f"{float(self.driver.episode_return[0]):.1f}"
            self.panel.write(rows, facts)
        if self._ranges is not None and self._is_due("plot", now, PLOT_HZ):
            self._history.append((self.driver.time_s, command.copy(), self._measured.copy()))
            self.panel.plot([point for point in self._history if point[0] > self.driver.time_s - HISTORY_S])


class _Meter:
    """How fast the loop runs, over the last second."""

    def __init__(self) -> None:
        self._ticks: deque[tuple[float, float]] = deque()

    def tick(self, now: float, step_dt: float) -> None:
        self._ticks.append((now, step_dt))
        while now - self._ticks[0][0] > 1.0:
            self._ticks.popleft()

    @property
    def _span(self) -> float:
        return self._ticks[-1][0] - self._ticks[0][0] if len(self._ticks) > 1 else math.inf

    @property
    def rate(self) -> float:
        """Control steps a second."""
        return (len(self._ticks) - 1) / self._span if self._ticks else 0.0

    @property
    def real_time(self) -> float:
        """Simulated seconds a second."""
        return self.rate * self._ticks[-1][1] if self._ticks else 0.0


def checked_port(host: str, port: int) -> int:
    """A port that can be listened on at `host`; a free one for port 0.

    Raises:
        UserError: no such port or address, or it is taken.
    """
    if not isinstance(port, int) or not 0 <= port <= 65535:
        raise UserError(f"port={port}: must be a TCP port from 0 (any free one) to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UserError(f"cannot listen on {host}:{port} ({error.strerror}); choose another with port=") from None
        return int(probe.getsockname()[1])
