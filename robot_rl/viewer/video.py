"""A video of a policy, made without a display: rendered by MuJoCo, encoded by PyAV while it is simulated."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.errors import UserError
from robot_rl.viewer.drive import Driver, Segment, heading, make_script, scene_model, segment_at, velocity_ranges
from robot_rl.viewer.overlay import COMMAND, MEASURED, draw_progress, draw_tracking, strip_height

if TYPE_CHECKING:
    from robot_rl_envs.render import Arrow, Renderer

CODECS: tuple[tuple[str, dict[str, str]], ...] = (
    ("libx264", {"crf": "21", "preset": "veryfast"}),
    ("libvpx-vp9", {"crf": "32", "b": "0", "deadline": "realtime", "cpu-used": "6"}),
    ("mpeg4", {"qscale": "4"}),
)
"""In order of preference. Browsers play the first two in an mp4, most players the third."""


@dataclass(kw_only=True, slots=True)
class VideoCfg:
    """What a video is like.

    Attributes:
        seconds: its length [s]; simulated time runs as fast as the clock.
        fps: pictures a second; at most one a control step is rendered.
        num_robots: 1, or 4 for a grid of two by two worlds.
        width, height: of the whole picture [px], even.
        script: what the robots are told; chosen from the task's command ranges when None.
    """

    seconds: float = 10.0
    fps: int = 25
    num_robots: int = 1
    width: int = 640
    height: int = 480
    script: list[Segment] | None = None

    def __post_init__(self) -> None:
        """Checks the ranges."""
        if not 0 < self.seconds <= 600:
            raise UserError(f"seconds={self.seconds}: must lie in (0, 600]")
        if not 1 <= self.fps <= 120:
            raise UserError(f"fps={self.fps}: must lie in [1, 120]")
        if self.num_robots not in (1, 4):
            raise UserError(f"num_robots={self.num_robots}: must be 1, or 4 for a grid")
        if self.width % 4 or self.height % 4 or not (160 <= self.width <= 4096 and 96 <= self.height <= 4096):
            raise UserError(
                f"width x height={self.width} x {self.height}: must be multiples of 4, 160 x 96 to 4096 x 4096"
            )


def record_video(
    env: Any, policy: Any | None, path: Path | str, cfg: VideoCfg | None = None, *, progress: bool = True
) -> Path:
    """Records a policy at work.

    Args:
        env: an environment of at least `cfg.num_robots` worlds; its first ones are shown.
        policy: a network's function, a bundle, or None; see `Driver`.
        path: the .mp4 to write; it is replaced in one step when the video is whole.
        cfg: what the video is like.
        progress: draw a progress bar on the terminal.

    Returns:
        The path.

    Raises:
        UserError: fewer worlds than robots to show.
        robot_rl_envs.render.NoGLError: there is no OpenGL here; the message says what to install.
    """
    cfg = cfg or VideoCfg()
    with contextlib.closing(film(env, policy, cfg)) as frames:
        return write_video(frames, path, cfg.fps, total=round(cfg.seconds * cfg.fps), progress=progress)


def film(env: Any, policy: Any | None, cfg: VideoCfg) -> Generator[np.ndarray]:
    """Return the frames of a policy at work, (H, W, 3) uint8 each.

    Raises:
        UserError: fewer worlds than robots to show.
    """
    if env.num_envs < cfg.num_robots:
        raise UserError(f"num_robots={cfg.num_robots}: the environment has {env.num_envs} world(s); make it larger")
    return _frames(env, policy, cfg)


def write_video(frames: Iterator[np.ndarray], path: Path | str, fps: int, *, total: int, progress: bool = True) -> Path:
    """Writes pictures as an .mp4, which is replaced in one step when the video is whole.

    Args:
        frames: the pictures, (H, W, 3) uint8 with even sides.
        path: the .mp4 to write.
        fps: pictures a second.
        total: how many there are, for the progress bar.
        progress: draw a progress bar on the terminal.

    Returns:
        The path.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}.{os.getpid()}.mp4")
    try:
        # The first picture comes before the file: without OpenGL nothing is left behind.
        first = next(frames)
        with _Encoder(part, fps, first.shape[1], first.shape[0]) as encoder:
            encoder.add(first)
            for frame in _bar(frames, total=total - 1, shown=progress):
                encoder.add(frame)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _frames(env: Any, policy: Any | None, cfg: VideoCfg) -> Generator[np.ndarray]:
    """The pictures, (H, W, 3) uint8, one after the other; simulates as it goes."""
    ranges = velocity_ranges(env)
    script = cfg.script or (make_script(ranges, cfg.seconds) if ranges else [])
    limits = np.array([max(abs(low), abs(high)) for low, high in ranges.values()]) if ranges else np.ones(3)
    size = (cfg.width, strip_height(cfg.height))
    env.reset()
    driver = Driver(env, policy)
    shown = cfg.num_robots
    smooth = np.zeros((shown, 3))
    # What the eye takes for the velocity is not one control step's.
    share = 1 - math.exp(-env.step_dt / 0.15)
    with _Stage(env, cfg) as stage:
        for k in range(round(cfg.seconds * cfg.fps)):
            while driver.time_s < k / cfg.fps - 1e-9:
                if script:
                    env.set_command(segment_at(script, driver.time_s).command)
                done = driver.step()[:shown]
                if ranges:
                    smooth += share * (driver.velocity()[:shown] - smooth)
                    smooth[done] = 0.0
            picture = stage.draw(driver, smooth if ranges else None)
            if ranges:
                command = driver.command()[:shown].mean(0)
                label = segment_at(script, driver.time_s).label if script else "command"
                strip = draw_tracking(
                    size, label, driver.time_s, command=command, measured=smooth.mean(0), limits=limits
                )
            else:
                value = float(driver.episode_return[:shown].mean())
                strip = draw_progress(size, str(env.cfg.name), driver.time_s, f"return {value:.1f}")
            yield np.concatenate([picture, strip])


class _Stage:
    """One renderer a robot, tiled."""

    def __init__(self, env: Any, cfg: VideoCfg) -> None:
        from robot_rl_envs.render import Renderer

        self._env = env
        rows = 1 if cfg.num_robots == 1 else 2
        model = scene_model(env)
        width, height = cfg.width // rows, (cfg.height - strip_height(cfg.height)) // rows
        self._renderers: list[Renderer] = []
        for _ in range(cfg.num_robots):
            self._renderers.append(Renderer(model, width, height))

    def draw(self, driver: Driver, velocity: np.ndarray | None) -> np.ndarray:
        """All robots; with arrows of command and measured velocity where there is a `velocity` (n, 3)."""
        qpos, tiles = driver.qpos, []
        commands = driver.command() if velocity is not None else None
        for k, renderer in enumerate(self._renderers):
            arrows = None
            if velocity is not None and commands is not None:
                quat = self._env.state.base_quat_wxyz[k].cpu().numpy()
                arrows = _arrows(self._env.state.base_pos_w[k].cpu().numpy(), quat, commands[k], velocity[k])
            tiles.append(renderer.frame(qpos[k], arrows=arrows))
        if len(tiles) == 1:
            return tiles[0]
        for tile in tiles:
            tile[-1:], tile[:, -1:] = 255, 255
        return np.concatenate([np.concatenate(tiles[:2], axis=1), np.concatenate(tiles[2:], axis=1)])

    def __enter__(self) -> _Stage:
        return self

    def __exit__(self, *_: object) -> None:
        for renderer in self._renderers:
            renderer.close()


def _arrows(position: np.ndarray, quat: np.ndarray, command: np.ndarray, velocity: np.ndarray) -> list[Arrow]:
    """Command and measured planar velocity, above the robot; a metre a second is 30 cm."""
    from robot_rl_envs.render import Arrow

    rotation, arrows = heading(quat), []
    for height, vector, colour in ((0.22, command, COMMAND), (0.19, velocity, MEASURED)):
        planar = 0.3 * rotation @ vector[:2]
        rgba = (colour[0] / 255, colour[1] / 255, colour[2] / 255, 1.0)
        start = position + np.array([0.0, 0.0, height])
        arrows.append(Arrow(start=start, vector=np.array([*planar, 0.0]), rgba=rgba))
    return arrows


def _bar(frames: Iterator[np.ndarray], *, total: int, shown: bool) -> Iterator[np.ndarray]:
    if not shown:
        return frames
    from rich.progress import track

    return iter(track(frames, description="video", total=total, transient=True))


class _Encoder:
    """An mp4 that grows frame by frame."""

    def __init__(self, path: Path, fps: int, width: int, height: int) -> None:
        import av

        self._av = av
        # The index goes to the front, so that a browser plays the file while it loads.
        self._container = av.open(str(path), "w", options={"movflags": "+faststart"})
        self._container.metadata["comment"] = "robot-rl video"  # by which robot-rl video knows its own films
        self._stream = self._add_stream(fps)
        self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
        self._time_base = self._stream.codec_context.time_base = Fraction(1, fps)
        self._count = 0

    def _add_stream(self, fps: int) -> Any:
        from av.codec.codec import UnknownCodecError

        for name, options in CODECS:
            with contextlib.suppress(UnknownCodecError, ValueError):
                return self._container.add_stream(name, rate=fps, options=options)
        raise RuntimeError(f"PyAV {self._av.__version__} has none of the encoders {', '.join(n for n, _ in CODECS)}")

    def add(self, picture: np.ndarray) -> None:
        """Appends a picture (H, W, 3) uint8."""
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
        frame.pts, frame.time_base = self._count, self._time_base
        self._count += 1
        self._container.mux(self._stream.encode(frame))

    def __enter__(self) -> _Encoder:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None:
            self._container.mux(self._stream.encode(None))
        self._container.close()
