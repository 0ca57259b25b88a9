"""Look at a reference motion: its facts, in the browser, as an image, or written as npz.

usage: robot-rl motion file=<name or file> [key=value ...]

{Options}

  robot-rl motion file=squat                           a motion that comes with the robot
  robot-rl motion file=walk.csv out=walk.png           a film strip of a file
  robot-rl motion file=amass.npz out=walk.npz          retargeted to the robot, for other tools
"""

from collections.abc import Sequence
from dataclasses import dataclass

from robot_rl.cli.options import option, read_all
from robot_rl.errors import UserError, as_user_error
from robot_rl.runs.outputs import CLIP, IMAGE, check_output, save_image


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl motion."""

    file: str = option("", "a motion of the robot's library by its name, or a .csv or .npz")
    robot: str = option("unitree_g1", "the robot")
    out: str = option("", "a .png: a film strip; a .npz: the motion; empty shows it in the browser")
    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 lets other machines in")
    port: int = option(8080, "TCP port; 0 takes a free one", least=0, most=65535)
    seconds: float = option(0.0, "stop after this long [s]; 0 runs until Ctrl-C", least=0, most=1e6)


def run(arguments: Sequence[str]) -> int:
    """Print the motion's facts, and draw, write or show it."""
    options = read_all(Options, arguments, first="file")
    writes = options.out.endswith(".npz")
    out = check_output("out", options.out, CLIP if writes else IMAGE) if options.out else None
    from robot_rl_assets.registry import get_robot
    from robot_rl_envs.motions import read_motion
    from robot_rl_envs.motions.files import library

    from robot_rl.view.viewer.motion import Stage, draw_strip, show

    with as_user_error():
        robot = get_robot(options.robot)
        if not options.file:
            raise UserError(f"file: is missing; must be a .csv, a .npz, or one of {', '.join(library(robot)) or '-'}")
        motion = read_motion(options.file, robot, "file")
        stage = Stage(motion, robot)
    print(f"{motion.name}:", *stage.facts(robot), sep="\n  ")
    if out is not None and writes:
        motion.save(out)
    elif out is not None:
        from robot_rl_envs.render import NoGLError

        try:
            save_image(draw_strip(stage), out)
        except NoGLError as error:
            raise UserError(f"motion: {error}") from None
    else:

        def ready(url: str) -> None:
            print(f"{url}  (Ctrl-C ends it)", flush=True)

        show(stage, options.host, options.port, ready=ready, seconds=options.seconds or None)
        return 0
    print(options.out)
    return 0
