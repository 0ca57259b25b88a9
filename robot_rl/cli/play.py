"""Drive a policy in the browser: by sliders, keys or a gamepad, with targets and objects to drag.

usage: robot-rl play [key=value ...]

{Options}

  robot-rl play policy=go2_flat        a trained Go2 that comes with the project
  robot-rl play run=latest             the newest run

W A S D, Q and E or the arrows drive a robot that walks, as do a gamepad's sticks; R resets, space pauses. The page
shows the task's metrics, each reward term, the efforts of the joints and the forces of the contacts, changes to another
policy of the robot, and records an .mp4 in the current folder. The episode does not end by the clock; Ctrl-C ends it
all.
{CHANGES_HELP}
"""

from collections.abc import Sequence
from dataclasses import dataclass

from robot_rl.cli.options import MAX_SEED, PolicyOptions, option, read


@dataclass(kw_only=True, slots=True)
class Options(PolicyOptions):
    """Options of robot-rl play."""

    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 lets other machines in")
    port: int = option(8080, "TCP port; 0 takes a free one", least=0, most=65535)
    seconds: float = option(0.0, "stop after this long [s]; 0 runs until Ctrl-C", least=0, most=1e6)
    worlds: int = option(1, "so many side by side, one of them driven", least=1, most=16)
    seed: int = option(0, "seed of the worlds", least=0, most=MAX_SEED)


def run(arguments: Sequence[str]) -> int:
    """Serve the page until Ctrl-C."""
    options, changes = read(Options, arguments)
    options.refuse_unsupported("play")
    source = options.find_policy({**changes, "device": "cpu", "engine": "auto"})

    def ready(url: str) -> None:
        print(f"{source.name}: {url}  (Ctrl-C ends it)", flush=True)

    print(f"{source.name}: building {source.cfg.reference}; the page's address follows in some seconds", flush=True)
    from robot_rl.api import Policy, play

    where = {
        "host": options.host,
        "port": options.port,
        "seed": options.seed,
        "worlds": options.worlds,
        "root": options.root,
    }
    play(Policy(source), **where, seconds=options.seconds or None, ready=ready)
    return 0
