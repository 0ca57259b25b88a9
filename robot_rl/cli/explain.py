"""Explain why a robot's log differs from its simulation: wiring, frames, motors, delay, mass.

usage: robot-rl explain LOG [key=value ...]

{Options}

LOG is an *.mcap of robot-rl-infer --log, or an *.npz as for robot-rl identify, of a robot that walks (with quat, gyro
and if possible accel) or hangs; a policy that fell after 0.6 s is enough. Stretches of the log are predicted from their
first states by a simulation, for each hypothesis of a wrong wiring; then motors, delay and mass are fitted together.
Scores, the named cause and advice are printed. LOG.explained.json has the same, and a page of the same name shows
where log and simulation part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.cli.options import option, read_all, split_bare
from robot_rl.errors import UserError, as_user_error
from robot_rl.runs.outputs import EXPLAINED, PAGE, check_output


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl explain."""

    robot: str = option("", "the robot; of an *.mcap by default the log's")
    against: str = option("", "a *.identified.json of the robot: the simulation has these parameters, not the model's")
    base: str = option("auto", "free: the robot is on its feet; fixed: it hangs or is bolted; auto: by the log")
    threads: int = option(1, "of the simulation; the result has the same bits with any number", least=1, most=256)
    out: str = option("", "the result, <log>.explained.json by default")


def run(arguments: Sequence[str]) -> int:
    """Explain a log, print the table, write the file and the page."""
    names, settings = split_bare(arguments)
    options = read_all(Options, settings)
    if len(names) != 1:
        raise UserError("log: is missing; write robot-rl explain <log> robot=<name>" if not names else "log: name one")
    out = options.out or str(Path(names[0]).with_suffix(".explained.json"))
    path = check_output("out", out, EXPLAINED)
    page = check_output("out", str(path.with_suffix(".html")), PAGE)
    from robot_rl_assets.registry import get_robot
    from robot_rl_envs.engines.mujoco_warnings import ignore, take_warnings

    from robot_rl.explain.explain import ExplainCfg, explain
    from robot_rl.explain.page import render_page
    from robot_rl.explain.result import lines, write
    from robot_rl.files import write_atomic
    from robot_rl.identify.result import Identified
    from robot_rl.identify.robot_log import read_arrays, robot_of

    with as_user_error():
        robot = get_robot(options.robot or robot_of(names[0]))
    against = Identified.read(options.against) if options.against else None
    cfg = ExplainCfg(against=against, base=options.base, threads=options.threads)
    digest, arrays = read_arrays(names[0], robot)
    with take_warnings(ignore):  # Of a wrong hypothesis rollouts may diverge.
        found = explain((names[0], digest, arrays), robot, cfg, lambda line: print(line, flush=True))
    print("\n".join(lines(found)))
    write(found, path)
    write_atomic(page, render_page(found))
    print(f"{path}\n{page}")
    return 0
