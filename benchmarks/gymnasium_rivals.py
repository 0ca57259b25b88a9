"""Trains the rivals of ``robot-rl bench gymnasium`` once: 5 environments, 2 rivals, 3 seeds, 1 M steps each.

    make rival-gymnasium
    python benchmarks/gymnasium_rivals.py [jobs=HalfCheetah-v5:sb3:1,Ant-v5] [parallel=1|2] [out=...] [steps=1000000]
    python benchmarks/gymnasium_rivals.py timed=false parallel=2        # returns alone, beside other work
    python benchmarks/gymnasium_rivals.py jobs=::1 steps=102400 out=benchmarks/gymnasium_rivals_speed.json   # then this

Every finished training is kept in benchmarks/gymnasium_rivals.json at once; started again, the script goes on with
what is missing. ``jobs=`` takes <environment>:<rival>:<seed>, a part left out means all. Seed 1 of each runs alone,
with one thread or the default, whichever is quicker, and is what wall-clock is compared with; with ``parallel=2`` the
other seeds run two at a time, one thread each; with ``timed=false`` so may seed 1. The wall-clock is then that of a
shorter training alone on the machine, for as many steps: the last line above, a quarter of an hour.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from robot_rl.bench.gymnasium_rivals import STEPS, TIMED, Queue, find_python, parse_jobs
from robot_rl.errors import UserError

KNOWN = ("jobs", "parallel", "timed", "out", "steps", "rival_python")


def main(arguments: list[str]) -> int:
    """Work through the jobs."""
    options = dict(argument.partition("=")[::2] for argument in arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for name in options:
            if name not in KNOWN:
                raise UserError(f"unknown key '{name}': known: {', '.join(KNOWN)}")
        parallel, steps = options.get("parallel", "1"), options.get("steps", str(STEPS))
        if parallel not in ("1", "2"):
            raise UserError(f"parallel={parallel}: must be 1 or 2")
        if not steps.isdigit() or int(steps) < 2048:
            raise UserError(f"steps={steps}: must be a whole number of at least 2048")
        if (timed := options.get("timed", "true")) not in ("true", "false"):
            raise UserError(f"timed={timed}: must be true or false")
        seeds = TIMED if timed == "true" else ()
        out = Path(options.get("out", str(Path(__file__).with_name("gymnasium_rivals.json"))))
        python = find_python(options.get("rival_python", ""))
        jobs = parse_jobs(options.get("jobs", ""))

        def say(line: str) -> None:
            print(time.strftime("%H:%M:%S"), line, flush=True)

        Queue(python, out, steps=int(steps), parallel=int(parallel), timed=seeds, say=say).run(jobs)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; started again, it goes on with what is missing", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
