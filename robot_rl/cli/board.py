"""Show the runs below a root on a page in the browser: filter, sort, group, compare, name, delete.

usage: robot-rl board [key=value ...]

{Options}

  robot-rl board                          http://127.0.0.1:8765/
  robot-rl board root=/data/runs port=0

It reads run.yaml and metrics.jsonl, also while runs are trained. The name, tags and note that you give a run are in its
labels.json; a run that you delete moves to .trash below the root. It listens on this machine only; from another one:
ssh -L 8765:127.0.0.1:8765 <machine>. Ctrl-C ends it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from robot_rl.cli.options import option, read_all


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl board."""

    root: str = option("runs", "the directory of all runs")
    port: int = option(8765, "TCP port; 0 takes a free one", least=0, most=65535)


def run(arguments: Sequence[str]) -> int:
    """Serve the page until Ctrl-C."""
    from robot_rl.view.board.server import serve

    options = read_all(Options, arguments)
    serve(options.root, options.port, ready=lambda url: print(f"{options.root}: {url}  (Ctrl-C ends it)", flush=True))
    return 0
