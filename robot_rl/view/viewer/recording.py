"""A film of a played robot: states are noted while the robot moves, and drawn and encoded in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.view.viewer.drive import Driver, scene_model
from robot_rl.view.viewer.ghost import Motions
from robot_rl.view.viewer.video import VideoCfg, draw_readings, find_markers, strip_height, write_video


class Recording:
    """Some seconds of one world, at simulated real time.

    Attributes:
        is_done: whether all frames were noted.
    """

    def __init__(self, driver: Driver, motions: Motions | None, world: int, seconds: float) -> None:
        """Note the frames from now on."""
        self._driver, self._motions, self._world = driver, motions, world
        self._cfg, self._begin_s = VideoCfg(seconds=seconds), driver.time_s
        self._size = (self._cfg.width, strip_height(self._cfg.height))
        self._total = round(seconds * self._cfg.fps)
        self._frames: list[tuple[dict[str, Any], np.ndarray]] = []
        env = driver.env
        self._model, self._robots = scene_model(env), getattr(getattr(env, "scene", None), "robot_bodies", ())

    @property
    def is_done(self) -> bool:
        """Whether all frames were noted."""
        return len(self._frames) >= self._total

    def note(self) -> None:
        """Note the present state for the frames that are due."""
        driver, world = self._driver, self._world
        if self.is_done or driver.time_s - self._begin_s < len(self._frames) / self._cfg.fps - 1e-9:
            return
        qpos, (arrows, spheres) = driver.qpos[world].copy(), find_markers(driver, world)
        ghost = self._motions.ghost(qpos, world) if self._motions is not None else None
        strip = draw_readings(self._size, driver, [], range(world, world + 1), self._motions)
        self._frames.append(({"qpos": qpos, "arrows": arrows, "spheres": spheres, "ghost": ghost}, strip))

    def write(self, folder: Path, say: Callable[[str], None]) -> threading.Thread:
        """Write the film to a new .mp4 in a folder, in a thread, and report its path or the error."""
        path = folder.resolve() / f"play-{self._driver.env.cfg.name}-{time.strftime('%Y%m%d-%H%M%S')}.mp4"

        def work() -> None:
            try:
                write_video(self._draw(), path, self._cfg.fps, total=len(self._frames), progress=False)
            except (OSError, RuntimeError, ValueError) as error:  # Of the disk, OpenGL or the encoder.
                say(f"recording: {error}")
            else:
                say(f"recorded: {path}")

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def _draw(self) -> Iterator[np.ndarray]:
        from robot_rl_envs.render import Renderer

        height = self._cfg.height - self._size[1]
        with Renderer(self._model, self._cfg.width, height, robots=self._robots) as renderer:
            for state, strip in self._frames:
                yield np.concatenate([renderer.frame(**state), strip])
