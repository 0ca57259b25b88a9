"""robot-rl report: writes the page of a run."""

from collections.abc import Sequence
from dataclasses import dataclass

from robot_rl.cli.options import describe, option, read_all


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl report."""

    run: str = option("latest", "the run: its id, latest or <task>/latest")
    root: str = option("runs", "where runs are")


HELP = f"""\
robot-rl report: write the run's page: every curve, throughput, evaluation, video, settings, in one HTML file

usage: robot-rl report [key=value ...]

{describe(Options)}
"""


def run(arguments: Sequence[str]) -> int:
    """Writes report.html."""
    from robot_rl.cli.agreement import check_settings
    from robot_rl.report.page import write_report
    from robot_rl.run_dir import RunDir

    options = read_all(Options, arguments)
    run_dir = RunDir.find(options.run, options.root)
    check_settings(run_dir, run_dir.read_config())
    print(write_report(run_dir.path))
    return 0
