"""robot-rl report: writes the page of a run."""

from collections.abc import Sequence

from robot_rl.cli.options import RunOptions, describe, read_all

HELP = f"""\
robot-rl report: write the run's page: every curve, throughput, evaluation, video, settings, in one HTML file

usage: robot-rl report [key=value ...]

{describe(RunOptions)}
"""


def run(arguments: Sequence[str]) -> int:
    """Writes report.html."""
    from robot_rl.experiment.agreement import check_settings
    from robot_rl.report.page import write_report

    run_dir = read_all(RunOptions, arguments).find_run()
    check_settings(run_dir, run_dir.read_config())
    print(write_report(run_dir.path))
    return 0
