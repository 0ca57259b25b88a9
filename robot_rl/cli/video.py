"""Film a policy; one with a velocity command walks forward, sideways, turns, and stands.

usage: robot-rl video [key=value ...]

{Options}

It is rendered without a display by EGL (Debian: libegl1 libegl-mesa0 libgl1-mesa-dri) or, with MUJOCO_GL=osmesa, by
OSMesa (libosmesa6). An environment of Gymnasium renders itself, in its render_mode rgb_array.
{CHANGES_HELP}
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.cli.options import MAX_SEED, PolicyOptions, option, read
from robot_rl.errors import UserError
from robot_rl.runs.outputs import FILM, check_output


@dataclass(kw_only=True, slots=True)
class Options(PolicyOptions):
    """Options of robot-rl video."""

    seconds: float = option(10.0, "length [s]", least=0.01, most=600.0)
    fps: int = option(25, "frames a second", least=1, most=120)
    robots: int = option(1, "1, or 4 for a grid of worlds")
    width: int = option(1280, "width [px]")
    height: int = option(720, "height [px]")
    motion: str = option("", "of a task that follows motions: the only one to follow, from its beginning")
    seed: int = option(0, "seed of the worlds", least=0, most=MAX_SEED)
    out: str = option("", "the .mp4; video.mp4 of the run, or <policy>.mp4, by default")


def run(arguments: Sequence[str]) -> int:
    """Write the video."""
    options, changes = read(Options, arguments)
    if options.out:
        check_output("out", options.out, FILM)
    if options.robots not in (1, 4):
        raise UserError("robots", options.robots, "must be 1, or 4 for a grid")
    options.refuse_unsupported("video")
    source = options.find_policy({**changes, "device": "cpu", "engine": "auto"})
    from robot_rl_envs.render import NoGLError, choose_backend

    from robot_rl.view.viewer.video import VideoCfg, write_video

    names = ("seconds", "fps", "width", "height", "motion")
    cfg = VideoCfg(num_robots=options.robots, **{name: getattr(options, name) for name in names})
    if options.out or source.run_dir is None:
        out = check_output("out", options.out or f"{source.cfg.task.name}.mp4", FILM)
    else:
        out = check_output("out", str(source.run_dir.video_file), None)

    def write(frames: Iterator[Any]) -> Path:
        return write_video(frames, out, cfg.fps, total=round(cfg.seconds * cfg.fps))

    # An environment that renders itself by MuJoCo also needs a backend; others do without.
    with contextlib.suppress(NoGLError):
        os.environ.setdefault("MUJOCO_GL", choose_backend())
    worlds = dataclasses.replace(source.cfg.worlds(seed=options.seed), num_envs=options.robots)
    print(f"{source.title}: filming {options.seconds:g} s", flush=True)
    try:
        path = source.cfg.source.film(source.cfg.task, worlds, source, cfg, write)
        print(path)
    except NoGLError as error:
        raise UserError(f"video: {error}") from None
    return 0
