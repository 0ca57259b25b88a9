"""robot-rl video: films a policy without a display."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.gym import is_gym
from robot_rl.cli.isaac import is_isaac
from robot_rl.cli.options import MAX_SEED, describe, option, read
from robot_rl.cli.outputs import FILM, check_output
from robot_rl.cli.source import OVERRIDES_HELP, Source, SourceOptions, find_source, task_of
from robot_rl.errors import UserError

if TYPE_CHECKING:
    from robot_rl.viewer.video import VideoCfg


@dataclass(kw_only=True, slots=True)
class Options(SourceOptions):
    """Options of robot-rl video."""

    seconds: float = option(10.0, "length [s]")
    fps: int = option(25, "pictures a second")
    robots: int = option(1, "1, or 4 for a grid of worlds")
    width: int = option(640, "width [px]")
    height: int = option(480, "height [px]")
    seed: int = option(0, "seed of the worlds", least=0, most=MAX_SEED)
    out: str = option("", "the .mp4; video.mp4 of the run, or <policy>.mp4, by default")


HELP = f"""\
robot-rl video: film a policy; a robot that follows commands walks forward, sideways, turns, and stands

usage: robot-rl video [key=value ...]

{describe(Options)}

It is rendered without a display by EGL (Debian: libegl1 libegl-mesa0 libgl1-mesa-dri) or, with MUJOCO_GL=osmesa, by
OSMesa (libosmesa6). An environment of Gymnasium draws itself, in its render_mode rgb_array.
{OVERRIDES_HELP}"""


def run(arguments: Sequence[str]) -> int:
    """Writes the video."""
    from robot_rl_envs.render import NoGLError

    from robot_rl.viewer.video import VideoCfg, record_video

    options, dotted = read(Options, arguments)
    if options.out:
        check_output("out", options.out, FILM)
    cfg = VideoCfg(
        seconds=options.seconds,
        fps=options.fps,
        num_robots=options.robots,
        width=options.width,
        height=options.height,
    )
    if is_isaac(name := task_of(options)):
        raise UserError(f"video: {name} is filmed by Isaac Lab's own tools; robot-rl eval tells figures")
    source = find_source(options, {**dotted, "device": "cpu", "engine": "auto"})
    if options.out or source.run_dir is None:
        out = check_output("out", options.out or f"{source.cfg.task.name}.mp4", FILM)
    else:
        out = check_output("out", str(source.run_dir.video_file), None)
    if is_gym(source.cfg.task.name):
        print(_film_gym(source, options, out, cfg))
        return 0
    with contextlib.closing(source.cfg.make_env(num_envs=options.robots, seed=options.seed)) as env:
        try:
            print(record_video(env, source.load(env), out, cfg))
        except NoGLError as error:
            raise UserError(f"video: {error}") from None
    return 0


def _film_gym(source: Source, options: Options, out: Path, cfg: "VideoCfg") -> Path:
    """Films an environment of Gymnasium, which draws itself."""
    from robot_rl_envs.render import NoGLError, choose_backend

    from robot_rl.gym.film import pictures
    from robot_rl.gym.task import asked
    from robot_rl.viewer.video import write_video

    for key in ("robots", "width", "height"):
        if getattr(options, key) != getattr(Options(), key):
            raise UserError(f"{key}={getattr(options, key)}: {source.cfg.task.name} draws itself; leave {key}= out")
    task: Any = source.cfg.task
    if task.vectorization == "async":
        task.vectorization = "sync"
    # Those that MuJoCo draws need it; others draw without.
    with contextlib.suppress(NoGLError):
        os.environ.setdefault("MUJOCO_GL", choose_backend())
    with asked(task.name), contextlib.closing(task.make_env(1, seed=options.seed, render_mode="rgb_array")) as env:
        frames = pictures(env, source.load(env), cfg.seconds, cfg.fps)
        return write_video(frames, out, cfg.fps, total=round(cfg.seconds * cfg.fps))
