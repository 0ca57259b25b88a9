"""A video of a policy, made without a display: rendered by MuJoCo, encoded by PyAV while it is simulated.

A strip below the images shows the command, the time and, of a velocity command, the measured velocity.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.errors import UserError
from robot_rl.evaluation.policies import Loadable
from robot_rl.view.viewer.command import POSE, CommandInfo
from robot_rl.view.viewer.drive import (
    Driver,
    Segment,
    command_frame,
    goal,
    heading,
    is_team,
    make_script,
    num_worlds,
    rotation,
    scene_model,
    segment_at,
)
from robot_rl.view.viewer.eyes import with_inset
from robot_rl.view.viewer.ghost import Motions

if TYPE_CHECKING:
    from robot_rl_envs.render import Arrow, Renderer, Sphere

CODECS: tuple[tuple[str, dict[str, str]], ...] = (
    ("libx264", {"crf": "21", "preset": "veryfast"}),
    ("libvpx-vp9", {"crf": "32", "b": "0", "deadline": "realtime", "cpu-used": "6"}),
    ("mpeg4", {"qscale": "4"}),
)
"""In order of preference. Browsers play the first two in an mp4, most players the third."""
INK, FAINT, BACK = (20, 24, 28), (92, 102, 112), (250, 251, 252)
COMMAND, MEASURED = (26, 115, 230), (46, 160, 90)
AXES_M, AXES_RGB = 0.1, ((0.85, 0.2, 0.2), (0.2, 0.65, 0.3), (0.1, 0.45, 0.9))
"""Length [m] and colors of the axes of a pose: x, y, z."""
GOAL_M = 0.35
"""Height above the ground at which a team's goal is drawn [m]."""
NUMBERS_IN_A_ROW = 8


@dataclass(kw_only=True, slots=True)
class VideoCfg:
    """Settings of a video.

    Attributes:
        seconds: its length [s]; simulated time runs in real time.
        fps: frames per second; at most one per control step is rendered.
        num_robots: 1, or 4 for a grid of two by two worlds.
        width, height: of the frame [px], even.
        motion: the only reference motion to follow, from its beginning; empty for any.
    """

    seconds: float = 10.0
    fps: int = 25
    num_robots: int = 1
    width: int = 1280
    height: int = 720
    motion: str = ""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 < self.seconds <= 600:
            raise UserError("seconds", self.seconds, "must be in (0, 600]")
        if not 1 <= self.fps <= 120:
            raise UserError("fps", self.fps, "must be in [1, 120]")
        if self.num_robots not in (1, 4):
            raise UserError("robots", self.num_robots, "must be 1, or 4 for a grid")
        if self.width % 4 or self.height % 4 or not (160 <= self.width <= 4096 and 96 <= self.height <= 4096):
            raise UserError(
                f"width x height={self.width} x {self.height}: must be multiples of 4, 160 x 96 to 4096 x 4096"
            )

    def film(self, env: Any, policy: Loadable) -> Generator[np.ndarray]:
        """Return the frames of a policy at work, (H, W, 3) uint8 each.

        Raises:
            UserError: fewer worlds than robots to show.
        """
        if num_worlds(env) < self.num_robots:
            have = f"the environment has {num_worlds(env)} world(s)"
            raise UserError("num_robots", self.num_robots, have, "make it larger")
        return _frames(env, policy, self)


def write_video(frames: Iterator[np.ndarray], path: Path | str, fps: int, *, total: int, progress: bool = True) -> Path:
    """Write frames (H, W, 3) uint8 with even sides as an .mp4, atomically, and return its path.

    `total` is the number of frames for the progress bar, if there is one on the terminal.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}.{os.getpid()}.mp4")
    try:
        # The first frame comes before the file: without OpenGL no file is left.
        first = next(frames)
        with _encoder(part, fps, first.shape[1], first.shape[0]) as add:
            add(first)
            for frame in _bar(frames, total=total - 1, shown=progress):
                add(frame)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _frames(env: Any, policy: Loadable, cfg: VideoCfg) -> Generator[np.ndarray]:
    from robot_rl_envs.render import Renderer

    motions = Motions.of(env)
    if motions is not None:
        motions.choose(cfg.motion)
    elif cfg.motion:
        raise UserError("motion", cfg.motion, f"task {env.cfg.name} follows no motion", "omit it")
    env.reset()
    driver, shown = Driver(env, policy), cfg.num_robots
    info = driver.info
    # A team follows its own command, as a rule to a common goal.
    script = make_script(info, cfg.seconds) if info is not None and driver.tracks and not is_team(env) else []
    if script:
        env.set_command(script[0].command)  # the first frame is drawn before the first step
    size = (cfg.width, strip_height(cfg.height))
    rows, model = (1 if shown == 1 else 2), scene_model(env)
    robots = getattr(getattr(env, "scene", None), "robot_bodies", ())
    with contextlib.ExitStack() as stack:
        renderers = [
            stack.enter_context(Renderer(model, cfg.width // rows, (cfg.height - size[1]) // rows, robots=robots))
            for _ in range(shown)
        ]
        for k in range(round(cfg.seconds * cfg.fps)):
            while driver.time_s < k / cfg.fps - 1e-9:
                if script:
                    env.set_command(segment_at(script, driver.time_s).command)
                driver.step()
            image = _draw(renderers, driver, motions)
            strip = draw_readings(size, driver, script, range(shown), motions)
            yield np.concatenate([image, strip])


def draw_readings(
    size: tuple[int, int], driver: Driver, script: list[Segment], worlds: range, motions: Motions | None
) -> np.ndarray:
    """Draw the strip of text below the images of some worlds, (height, width, 3) uint8."""
    info, name = driver.info, str(driver.env.cfg.name)
    if motions is not None:
        return draw_progress(
            size, name, driver.time_s, "   ".join(" ".join(fact) for fact in motions.facts(worlds[0]).items())
        )
    rows = slice(driver.rows(worlds[0]).start, driver.rows(worlds[-1]).stop)
    if info is None:
        value = float(driver.episode_return[rows].mean())
        return draw_progress(size, name, driver.time_s, f"return {value:.1f}")
    command = driver.command()[rows].mean(0)
    if not driver.tracks:
        command = driver.command()[rows][:: len(driver.rows(0))].mean(0)  # of each world's first robot: in one frame
        return draw_numbers(size, name, driver.time_s, dict(zip(info.labels, command.tolist(), strict=True)))
    label = segment_at(script, driver.time_s).label if script else name
    return draw_tracking(size, label, driver.time_s, info=info, command=command, measured=driver.measured[rows].mean(0))


def _draw(renderers: Sequence[Renderer], driver: Driver, motions: Motions | None) -> np.ndarray:
    """Draw one robot or four tiles, with their commands, measured velocities and reference motions."""
    qpos, tiles = driver.qpos, []
    for k, renderer in enumerate(renderers):
        arrows, spheres = find_markers(driver, k)
        ghost = motions.ghost(qpos[k], k) if motions is not None else None
        tile = renderer.frame(qpos[k], arrows=arrows, spheres=spheres, ghost=ghost)
        tiles.append(with_inset(tile, driver.camera_images(k, tile.shape[1] // 4)))
    if len(tiles) == 1:
        return tiles[0]
    for tile in tiles:
        tile[-1:], tile[:, -1:] = 255, 255
    return np.concatenate([np.concatenate(tiles[:2], axis=1), np.concatenate(tiles[2:], axis=1)])


def find_markers(driver: Driver, world: int) -> tuple[list[Arrow], list[Sphere]]:
    """Return the markers of a world's command: two arrows of velocities, a point's sphere, a pose's axes as well."""
    from robot_rl_envs.render import Arrow, Sphere

    info, env = driver.info, driver.env
    at = goal(env, world)
    spheres = [] if at is None else [Sphere(center=at + np.array([0.0, 0.0, GOAL_M]))]
    if info is None or not (driver.tracks or info.is_target):
        return [], spheres
    if driver.tracks:
        arrows: list[Arrow] = []
        for row in driver.rows(world):
            position, quat = (part[row].cpu().numpy() for part in (env.state.base_pos_w, env.state.base_quat_wxyz))
            above = position + np.array([0.0, 0.0, driver.above_m])
            arrows += _arrows(above, quat, driver.command()[row].astype(np.float64), driver.measured[row])
        return arrows, spheres
    row = driver.rows(world).start  # A team's target is one for all: that of its first robot.
    command = driver.command()[row].astype(np.float64)
    origin, quat = command_frame(env, info, row)
    frame = rotation(quat)
    center = origin + frame @ command[:3]
    axes = frame @ rotation(command[3:7]) if info.draws == POSE else np.zeros((3, 0))
    colors = zip(axes.T, AXES_RGB, strict=False)
    return [Arrow(start=center, vector=AXES_M * axis, rgba=(*rgb, 1.0)) for axis, rgb in colors], [
        Sphere(center=center)
    ]


def _arrows(position: np.ndarray, quat: np.ndarray, command: np.ndarray, velocity: np.ndarray) -> list[Arrow]:
    """Return arrows of command and measured planar velocity at a position (3,) above the robot, 30 cm for 1 m/s."""
    from robot_rl_envs.render import Arrow

    rotation, arrows = heading(quat), []
    for height, vector, color in ((0.03, command, COMMAND), (0.0, velocity, MEASURED)):
        planar = 0.3 * rotation @ vector[:2]
        rgba = (color[0] / 255, color[1] / 255, color[2] / 255, 1.0)
        start = position + np.array([0.0, 0.0, height])
        arrows.append(Arrow(start=start, vector=np.array([*planar, 0.0]), rgba=rgba))
    return arrows


def _bar(frames: Iterator[np.ndarray], *, total: int, shown: bool) -> Iterator[np.ndarray]:
    if not shown:
        return frames
    from rich.progress import track

    return iter(track(frames, description="video", total=total, transient=True))


@contextlib.contextmanager
def _encoder(path: Path, fps: int, width: int, height: int) -> Iterator[Callable[[np.ndarray], None]]:
    """Open an mp4 and give the function that appends a frame (H, W, 3) uint8."""
    import av

    # With the index at the front a browser plays the file while it loads.
    with av.open(str(path), "w", options={"movflags": "+faststart"}) as container:
        container.metadata["comment"] = "robot-rl video"  # identifies the files that robot-rl video may replace
        stream = _add_stream(container, fps)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        time_base = stream.codec_context.time_base = Fraction(1, fps)
        numbers = itertools.count()

        def add(image: np.ndarray) -> None:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            frame.pts, frame.time_base = next(numbers), time_base
            container.mux(stream.encode(frame))

        yield add
        container.mux(stream.encode(None))


def _add_stream(container: Any, fps: int) -> Any:
    from av.codec.codec import UnknownCodecError

    for name, options in CODECS:
        with contextlib.suppress(UnknownCodecError, ValueError):
            return container.add_stream(name, rate=fps, options=options)
    raise RuntimeError(f"PyAV has none of the encoders {', '.join(name for name, _ in CODECS)}")


def strip_height(height: int) -> int:
    """Return the height of the strip of a frame [px]: about an eighth of it, a multiple of 4."""
    return max(36, 4 * round(0.135 * height / 4))


def draw_tracking(
    size: tuple[int, int], label: str, time_s: float, *, info: CommandInfo, command: np.ndarray, measured: np.ndarray
) -> np.ndarray:
    """Draw the strip of a robot with a velocity command, (height, width, 3) uint8: a label, the time and three gauges.

    `command` (width,) and `measured` (3,) begin with vx, vy [m/s] and yaw rate [rad/s]; the larger end of a range is
    the full deflection of its gauge.
    """
    canvas = _Strip(size)
    left = canvas.head(label, time_s)
    width = (canvas.width - left) / 3
    for k in range(3):
        name, limit = f"{info.names[k]}  {info.units[k]}", float(max(abs(info.lower[k]), abs(info.upper[k])))
        figures = (float(command[k]), float(measured[k]))
        canvas.gauge(left + k * width, width * 0.88, name, *figures, limit=limit)
    return canvas.done()


def draw_numbers(size: tuple[int, int], label: str, time_s: float, values: dict[str, float]) -> np.ndarray:
    """Draw the strip of a command that is not a velocity, (height, width, 3) uint8: label, time [s] and numbers."""
    canvas = _Strip(size)
    left = canvas.head(label, time_s)
    rows = -(-len(values) // NUMBERS_IN_A_ROW)
    columns = -(-len(values) // rows)
    for k, (name, value) in enumerate(values.items()):
        x, y = left + (k % columns) * (canvas.width - left) / columns, (k // columns) / rows
        canvas.text(x, y + 0.3 / rows, name, 0.19, FAINT)
        canvas.text(x, y + 0.68 / rows, _signed(value), 0.26 / rows**0.5, COMMAND)
    return canvas.done()


def draw_progress(size: tuple[int, int], label: str, time_s: float, text: str) -> np.ndarray:
    """Draw the strip of any other task, (height, width, 3) uint8: a label, the time [s] and one line of text."""
    canvas = _Strip(size)
    left = canvas.head(label, time_s)
    canvas.text(left, 0.5, text, 0.26, FAINT)
    return canvas.done()


def _signed(value: float) -> str:
    # Adding zero turns -0.0 into 0.0.
    return f"{round(value, 2) + 0.0:+.2f}"


@cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size=size)


class _Strip:
    """A strip to draw on; vertical lengths are shares of its height."""

    def __init__(self, size: tuple[int, int]) -> None:
        from PIL import Image, ImageDraw

        self.width, self._height = size
        self._image = Image.new("RGB", size, BACK)
        self._draw = ImageDraw.Draw(self._image)

    def _y(self, share: float) -> float:
        return share * self._height

    def text(
        self, x: float, y: float, text: str, size: float, color: tuple[int, int, int], *, anchor: str = "lm"
    ) -> None:
        self._draw.text(
            (x, self._y(y)), text, fill=color, font=_font(max(9, round(size * self._height))), anchor=anchor
        )

    def head(self, label: str, time_s: float) -> float:
        """Draw the label with the time under it and return the position at which the rest may begin [px]."""
        margin = 0.25 * self._height
        self.text(margin, 0.36, label, 0.32, INK)
        self.text(margin, 0.72, f"{time_s:.1f} s", 0.23, FAINT)
        return margin + max(
            1.9 * self._height, self._draw.textlength(label, font=_font(round(0.32 * self._height))) + margin
        )

    def gauge(self, x: float, width: float, name: str, command: float, measured: float, *, limit: float) -> None:
        """Draw measured and command as numbers; below them a bar for the one and a mark for the other."""
        self.text(x, 0.3, name, 0.19, FAINT)
        shown = f" / {_signed(command)}"
        self.text(x + width, 0.3, shown, 0.21, COMMAND, anchor="rm")
        shown_width = self._draw.textlength(shown, font=_font(max(9, round(0.21 * self._height))))
        self.text(x + width - shown_width, 0.3, _signed(measured), 0.21, MEASURED, anchor="rm")
        middle, half = x + width / 2, width / 2
        limit = max(limit, 1e-6)
        end = middle + half * float(np.clip(measured / limit, -1, 1))
        mark = middle + half * float(np.clip(command / limit, -1, 1))
        draw = self._draw
        draw.rectangle((x, self._y(0.58), x + width, self._y(0.72)), fill=(226, 230, 234))
        draw.rectangle((min(middle, end), self._y(0.58), max(middle, end), self._y(0.72)), fill=MEASURED)
        draw.line((middle, self._y(0.56), middle, self._y(0.74)), fill=FAINT)
        draw.rectangle((mark - 1.5, self._y(0.5), mark + 1.5, self._y(0.8)), fill=COMMAND)

    def done(self) -> np.ndarray:
        return np.asarray(self._image)
