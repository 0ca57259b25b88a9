"""robot-rl video: films a policy without a display."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.cli.options import describe, option, read
from robot_rl.cli.source import OVERRIDES_HELP, SourceOptions, find_source
from robot_rl.errors import UserError


@dataclass(kw_only=True, slots=True)
class Options(SourceOptions):
    """Options of robot-rl video."""

    seconds: float = option(10.0, "length [s]")
    fps: int = option(25, "pictures a second")
    robots: int = option(1, "1, or 4 for a grid of worlds")
    width: int = option(640, "width [px]")
    height: int = option(480, "height [px]")
    seed: int = option(0, "seed of the worlds")
    out: str = option("", "the .mp4; video.mp4 of the run, or <policy>.mp4, by default")


HELP = f"""\
robot-rl video: film a policy; a robot that follows commands walks forward, sideways, turns, and stands

usage: robot-rl video [key=value ...]

{describe(Options)}

It is rendered without a display by EGL (Debian: libegl1 libegl-mesa0 libgl1-mesa-dri) or, with MUJOCO_GL=osmesa, by
OSMesa (libosmesa6).
{OVERRIDES_HELP}"""


def run(arguments: Sequence[str]) -> int:
    """Writes the video."""
    from robot_rl_envs.render import NoGLError

    from robot_rl.viewer.video import VideoCfg, record_video

    options, dotted = read(Options, arguments)
    cfg = VideoCfg(
        seconds=options.seconds,
        fps=options.fps,
        num_robots=options.robots,
        width=options.width,
        height=options.height,
    )
    source = find_source(options, {**dotted, "device": "cpu", "engine": "auto"})
    default = source.run_dir.video_file if source.run_dir is not None else Path(f"{source.cfg.task.name}.mp4")
    out = Path(options.out) if options.out else default
    with contextlib.closing(source.cfg.make_env(num_envs=options.robots, seed=options.seed)) as env:
        try:
            print(record_video(env, source.load(env), out, cfg))
        except NoGLError as error:
            raise UserError(f"video: {error}") from None
    return 0
