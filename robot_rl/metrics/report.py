"""The HTML report of a run: one self-contained page, made again at any time from the files of the run directory."""

from __future__ import annotations

from pathlib import Path

from robot_rl.errors import UserError


def write_report(run_dir: Path | str) -> Path:
    """Writes report.html of a run from its metrics.jsonl, run.yaml, eval.json and video.mp4.

    Any of these files may be missing, cut off or hold values that are not finite; the page says what it left out. The
    file is replaced in one step, so a reader never sees half a page.

    Args:
        run_dir: runs/<task>/<run id>.

    Returns:
        The path of report.html.

    Raises:
        UserError: `run_dir` is not a directory.
        OSError: the page cannot be written, for instance on a full disk.
    """
    from robot_rl.files import write_atomic
    from robot_rl.metrics.report_data import read_run
    from robot_rl.metrics.report_page import render_page

    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise UserError(f"run directory '{run_dir}' does not exist: give the directory of a run, runs/<task>/<run id>")
    page = render_page(read_run(run_dir.resolve()))
    path = run_dir / "report.html"
    write_atomic(path, page)
    return path
