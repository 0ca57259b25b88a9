"""A page in the browser to drive a policy by hand, in real time."""

from __future__ import annotations

import contextlib
import io
import math
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robot_rl.errors import UserError
from robot_rl.evaluation.policies import Loadable
from robot_rl.view.viewer.command import CommandInfo
from robot_rl.view.viewer.drive import (
    Driver,
    can_be_pushed,
    command_frame,
    free_objects,
    heading,
    num_worlds,
    scene_model,
)
from robot_rl.view.viewer.gauges import Gauges
from robot_rl.view.viewer.ghost import Motions
from robot_rl.view.viewer.recording import Recording

DRAW_HZ, READ_HZ, PLOT_HZ = 100.0, 5.0, 5.0
HISTORY_S = 10.0
IMAGE_PX = 240
"""Width of a camera's image, about [px]."""
RECORD_S = 10.0
"""Length of a film that the page records [s]."""


def play(
    env: Any,
    policy: Loadable,
    host: str = "127.0.0.1",
    port: int = 8080,
    *,
    ready: Callable[[str], None] | None = None,
    seconds: float | None = None,
    policies: Sequence[str] = (),
    load: Callable[[str], tuple[Any, Loadable]] | None = None,
) -> None:
    """Show an environment in the browser and let the user drive one of its worlds until Ctrl-C.

    Args:
        env: an environment of one world, or of several ones, which are shown side by side.
        policy: what `robot_rl.evaluation.policies.load_policy` takes.
        host: address to listen on; by default reachable from this machine only.
        port: TCP port; 0 takes a free one.
        ready: called with the page's address once it can be opened.
        seconds: return after this wall time [s]; None runs until Ctrl-C.
        policies: names to choose from in the page; the first is that of `policy`.
        load: returns the environment and the policy of one of these names.

    Raises:
        UserError: the address is not available.
    """
    player, end = Player(env, policy, host, port, policies=policies), time.perf_counter() + (seconds or math.inf)
    try:
        if ready is not None:
            ready(player.url)
        while (name := player.run(end - time.perf_counter())) is not None and load is not None:
            player.page.say(f"{name} is being loaded")
            try:
                made = load(name)
            except (UserError, ValueError) as error:  # The second: a contract that does not fit.
                player.page.say(str(error))
            else:
                player = Player(*made, page=player.page, policies=policies, chosen=name)
    except KeyboardInterrupt:
        pass
    finally:
        player.close()


class Page:
    """A viser server without its banner.

    Attributes:
        server: the `viser.ViserServer`.
        url: its address.
    """

    def __init__(self, host: str, port: int, label: str) -> None:
        """Start it; raise a UserError if the address is not available."""
        port = checked_port(host, port)
        import viser

        with contextlib.redirect_stdout(io.StringIO()):
            self.server = viser.ViserServer(host=host, port=port, label=label, verbose=False)
        self.url = f"http://{'localhost' if host in ('127.0.0.1', 'localhost') else host}:{self.server.get_port()}"

        self._look: Callable[[Any], None] | None = None
        self.server.on_client_connect(self._set_camera)

    def clear(self, title: str) -> None:
        """Remove all contents, and show a title."""
        self.server.flush()
        self.server.gui.reset()
        self.server.scene.reset()
        self.server.gui.set_panel_label(title)

    def begin(self, look: Callable[[Any], None]) -> None:
        """Set the camera of each browser, those that come later as well, by a function of a client."""
        self._look = look
        for client in self.server.get_clients().values():
            look(client)

    def _set_camera(self, client: Any) -> None:
        if self._look is not None:
            self._look(client)

    def say(self, text: str) -> None:
        """Show a line in each browser."""
        for client in self.server.get_clients().values():
            client.add_notification("robot-rl", text, auto_close_seconds=8.0)

    def close(self) -> None:
        """Stop it."""
        with contextlib.redirect_stdout(io.StringIO()):
            self.server.stop()


class Player:
    """The page and its loop. The page's threads only leave requests; only the loop uses the environment."""

    def __init__(
        self,
        env: Any,
        policy: Loadable,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        page: Page | None = None,
        policies: Sequence[str] = (),
        chosen: str = "",
    ) -> None:
        """Fill a page, by default that of a new server; see `play`. `chosen` is one of `policies`, else the first."""
        self.page = page or Page(host, port, str(env.cfg.name))
        server, self.url = self.page.server, self.page.url
        self.page.clear(str(env.cfg.name))

        from robot_rl.view.viewer.handles import Handles
        from robot_rl.view.viewer.neighbors import Neighbors
        from robot_rl.view.viewer.panel import Panel, PanelCfg
        from robot_rl.view.viewer.scene import WORLD, RobotScene
        from robot_rl.view.viewer.target import Target

        self.env, self.driver, self._gauges = env, Driver(env, policy), Gauges.of(env)
        self._info = info = by_hand(self.driver.info)
        self._motions = Motions.of(env)
        self.world, worlds, model = 0, num_worlds(env), scene_model(env)
        self._scene = RobotScene(server, model, wide=1.0 if worlds == 1 else 2.0)
        ground = self._scene.has_terrain
        self._others = Neighbors(server, model, worlds - 1, shares_ground=ground) if worlds > 1 else None
        start = np.zeros(0) if info is None else first_command(info, self.driver.command()[0])
        names = self._motions.names if self._motions is not None else ()
        offered = PanelCfg(
            travels=self._scene.travels,
            can_push=can_be_pushed(env),
            motions=names,
            gauges=self._gauges,
            worlds=worlds,
            policies=policies,
            chosen=chosen or next(iter(policies), ""),
        )
        self.panel = Panel(server, str(env.cfg.name), info, start, offered)
        self._target = Target(server, WORLD, info) if info is not None and info.is_target else None
        self._handles = Handles(server, WORLD, list(free_objects(env)))
        self._scene.update(self.driver.qpos[0])
        self.page.begin(self._scene.look_from)
        self._history: deque[tuple[float, np.ndarray, np.ndarray]] = deque(maxlen=round(HISTORY_S * PLOT_HZ * 2))
        self._recording: Recording | None = None
        self._rng = np.random.default_rng(0)
        self._due = {"draw": 0.0, "read": 0.0, "plot": 0.0}
        self._ticks: deque[float] = deque()  # times of the steps in the last second
        self.steps = 0

    def run(self, seconds: float | None = None) -> str | None:
        """Simulate in real time for some wall time [s], or without an end, or until the page names another policy.

        Returns:
            The name of that policy; None when the time is over.
        """
        begin = anchor = time.perf_counter()
        ahead = 0.0
        while seconds is None or time.perf_counter() - begin < seconds:
            now = time.perf_counter()
            self._apply_requests()
            if (name := self.panel.take_policy()) is not None:
                return name
            if self.panel.paused:
                anchor, ahead = now, 0.0
                time.sleep(0.02)
            else:
                speed = self.panel.speed
                ahead -= (now - anchor) * speed
                anchor = now
                # A machine that is too slow falls behind and does not catch up.
                ahead = max(ahead, -0.1)
                if ahead > 0:
                    time.sleep(min(ahead / speed, 0.02))
                    continue
                self._step()
                ahead += self.env.step_dt
                self._ticks.append(now)
                while now - self._ticks[0] > 1.0:
                    self._ticks.popleft()
            self._show(now)
        return None

    def close(self) -> None:
        """Stop the server."""
        self.page.close()

    def _apply_requests(self) -> None:
        panel = self.panel
        if panel.world != self.world:
            if self._info is not None:
                self.env.set_command(None, self._where)
            self.world = panel.world
            self._history.clear()
        if self._motions is not None and panel.take("motion"):
            self._motions.choose(panel.motion)
            self.driver.reset()
        if panel.take("record") and self._recording is None:
            self._recording = Recording(self.driver, self._motions, self.world, RECORD_S)
            self.page.say(f"recording the next {RECORD_S:.0f} s")
        if (steered := panel.take_steered()) is not None:
            panel.move(steered)
        if panel.take("reset"):
            self.driver.reset()
        if panel.take("push"):
            angle = self._rng.uniform(0, 2 * math.pi)
            size = panel.push_speed
            rows = None if self._others is None else torch.tensor(self.driver.rows(self.world))
            self.env.push((size * math.cos(angle), size * math.sin(angle), 0.0), rows)
        if self._target is not None and (dragged := self._target.take()) is not None:
            panel.move(dragged)
        for name, pose in self._handles.take().items():
            self.env.place_object(name, pose[:3], pose[3:], self._where)

    @property
    def _where(self) -> torch.Tensor | None:
        """The world that is followed, as environments take it; None if it is the only one."""
        return None if self._others is None else torch.tensor([self.world])

    def _step(self) -> None:
        if self._info is not None:
            self.env.set_command(self.panel.command, self._where)
        # An episode does not end by its time limit while somebody plays.
        self.env.episode_length_buf = 0 * self.env.episode_length_buf
        self.driver.step()
        if self._gauges is not None:
            self._gauges.step()
        if self._recording is not None:
            self._recording.note()
            if self._recording.is_done:
                self._recording.write(Path(), self.page.say)
                self._recording = None
        self.steps += 1

    def _is_due(self, what: str, now: float, rate: float) -> bool:
        if now < self._due[what]:
            return False
        self._due[what] = now + 1 / rate
        return True

    def _show(self, now: float) -> None:
        world, row, qpos = self.world, self.driver.rows(self.world)[0], self.driver.qpos
        tracks, measured = self.driver.tracks, self.driver.measured[row]
        command = self.driver.command()[row] if self._info is not None else np.zeros(0)
        if self._is_due("draw", now, DRAW_HZ):
            with self.page.server.atomic():
                self._scene.update(qpos[world], follow=self.panel.follow)
                if self._others is not None:
                    self._others.update(qpos, world, follow=self.panel.follow)
                self._handles.show(free_objects(self.env, world))
                if self._motions is not None:
                    self._scene.show_ghost(self._motions.ghost(qpos[world], world))
                if tracks:
                    quat = self.env.state.base_quat_wxyz[row].cpu().numpy()
                    self._scene.show_velocity(command, measured, heading(quat))
                if self._gauges is not None and self._gauges.has_feet:
                    self._scene.show_forces(*self._gauges.foot_forces(world), shown=self.panel.forces)
                if self._target is not None and self._info is not None:
                    self._target.place(*command_frame(self.env, self._info, row))
                    self._target.show(np.array(self.panel.command))
        if self._is_due("read", now, READ_HZ):
            self.panel.show_bars(world)
            self.panel.show_images(self.driver.camera_images(world, IMAGE_PX))
            span = self._ticks[-1] - self._ticks[0] if len(self._ticks) > 1 else math.inf
            rate = (len(self._ticks) - 1) / span
            facts = {
                "Simulated": f"{self.driver.time_s:.1f} s",
                "Speed": "paused" if self.panel.paused else f"{rate * self.env.step_dt:.2f} ×, {rate:.0f} steps/s",
                "Failures": str(self.driver.failures),
            }
            if not tracks:
                facts["Return"] = f"{float(self.driver.episode_return[row]):.1f}"
                facts |= self._gauges.metrics(world) if self._gauges is not None else {}
            if self._motions is not None:
                facts |= self._motions.facts(world)
            self.panel.write(self._rows(command, measured), facts)
        if tracks and self._is_due("plot", now, PLOT_HZ):
            self._history.append((self.driver.time_s, command.copy(), measured.copy()))
            self.panel.plot([point for point in self._history if point[0] > self.driver.time_s - HISTORY_S])

    def _rows(self, command: np.ndarray, measured: np.ndarray) -> list[tuple[str, float, float | None]]:
        """Return name, value and measured value of each component of the command."""
        if self._info is None:
            return []
        got = [*measured.tolist()] if self.driver.tracks else []
        got += [None] * (len(command) - len(got))
        return list(zip(self._info.labels, command.tolist(), got, strict=True))


def by_hand(info: CommandInfo | None) -> CommandInfo | None:
    """Return the description of a command that the user gives; None for none, and for a motion's frames."""
    return None if info is not None and info.is_motion else info


def first_command(info: CommandInfo, drawn: np.ndarray) -> np.ndarray:
    """Return the first command (width,) of the page: half of the forward speed, or the command that the task drew."""
    if not info.is_velocity:
        return info.clip(drawn)
    start = np.zeros(len(info.names))
    start[0] = 0.5 * info.upper[0]
    return info.clip(start)


def checked_port(host: str, port: int) -> int:
    """Return a port that is available at a host; a free one for port 0.

    Raises:
        UserError: the port or address does not exist, or another program listens there.
    """
    if not isinstance(port, int) or not 0 <= port <= 65535:
        raise UserError("port", port, "must be a TCP port from 0 (any free one) to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UserError(f"cannot listen on {host}:{port} ({error.strerror}); choose another with port=") from None
        return int(probe.getsockname()[1])
