"""Write the HTML page of a run: curves, throughput, evaluation, video, settings.

usage: robot-rl report [key=value ...]

{RunOptions}
"""

from collections.abc import Sequence

from robot_rl.cli.options import RunOptions, read_all


def run(arguments: Sequence[str]) -> int:
    """Write report.html."""
    from robot_rl.runs.agreement import check_settings
    from robot_rl.view.report.page import write_report

    run_dir = read_all(RunOptions, arguments).find_run()
    check_settings(run_dir, run_dir.read_config())
    print(write_report(run_dir.path))
    return 0
