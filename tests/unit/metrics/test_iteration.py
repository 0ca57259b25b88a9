"""Where the time goes, by hand, and rows of several processes made one."""

import json

import pytest

from robot_rl.metrics.iteration import PARTS, describe_time, limit, merge_rows, overlap_share, time_parts
from robot_rl.view.report.data import read_run
from robot_rl.view.report.sections import make_sections


def parts(simulate, infer, learn, other):
    return dict(zip(PARTS, (simulate, infer, learn, other), strict=True))


@pytest.mark.parametrize(
    ("seconds", "left", "limits"),
    [
        ((3.0, 1.0, 4.0, 0.0), 0.5, "learn"),  # Two equal sides: half is left.
        ((6.0, 1.0, 2.0, 1.0), 0.7, "simulate"),  # The update and the rest vanish behind the rollout.
        ((1.0, 1.0, 6.0, 2.0), 0.6, "learn"),
        ((1.0, 5.0, 2.0, 2.0), 0.6, "infer"),
        ((1.0, 1.0, 1.0, 7.0), 0.2, "other"),
        ((2.0, 0.0, 0.0, 0.0), 1.0, "simulate"),  # Nothing overlaps.
        ((0.0, 0.0, 0.0, 0.0), 1.0, "simulate"),
    ],
)
def test_what_an_overlap_would_leave_and_what_limits(seconds, left, limits):
    assert overlap_share(parts(*seconds)) == pytest.approx(left)
    assert limit(parts(*seconds)) == limits


def test_a_row_contains_where_its_time_went():
    row = {"perf/simulate_s": 0.6, "perf/infer_s": 0.1, "perf/learn_s": 0.2, "perf/other_s": 0.1, "loss/value": 3.0}
    assert time_parts(row) == parts(0.6, 0.1, 0.2, 0.1)
    assert time_parts({"perf/learn_s": None}) == parts(0.0, 0.0, 0.0, 0.0)
    assert describe_time(time_parts(row)) == (
        "simulate 60%, infer 10%, learn 20%, other 10%; limited by simulate; "
        "a perfect overlap of simulation and learning would leave 70%"
    )
    assert describe_time(parts(0.0, 0.0, 0.0, 0.0)) == ""


def test_rows_of_two_processes():
    first = {
        "loss/value": 1.0,
        "episodes": 3.0,
        "episode/return": 10.0,
        "episode/length_s": 2.0,
        "termination/fall": 1.0,
        "reward/track": 0.5,
        "tracking/error": 0.2,
        "quarantined": 1.0,
        "quarantined/state": 1.0,
    }
    second = {
        "loss/value": 3.0,
        "episodes": 1.0,
        "episode/return": 30.0,
        "episode/length_s": 6.0,
        "termination/fall": 0.0,
        "reward/track": 1.5,
        "tracking/error": 0.4,
        "quarantined": 0.0,
    }
    none = {"loss/value": 5.0, "episodes": 0.0, "tracking/error": 0.6, "quarantined": 0.0}
    assert merge_rows([first]) == first
    merged = merge_rows([none, first, second])
    assert merged.pop("tracking/error") == pytest.approx(0.4)
    assert merged == {
        "loss/value": 3.0,
        "episodes": 4.0,
        "episode/return": 15.0,  # Three episodes of 10, one of 30.
        "episode/length_s": 3.0,
        "termination/fall": 0.75,
        "reward/track": 1.0,  # Six seconds of 0.5, six of 1.5.
        "quarantined": 1.0,
        "quarantined/state": 1.0,
    }


def test_the_report_names_the_bottleneck(tmp_path):
    rows = [
        {"iteration": i, "env_steps": i, "time_s": i, "perf/simulate_s": 1.0, "perf/infer_s": 0.5, "perf/learn_s": 2.5}
        for i in (1, 2)
    ]
    rows = [row | {"perf/other_s": 1.0, "perf/steps_per_s": 9.0, "perf/overlap_share": 0.5} for row in rows]
    (tmp_path / "metrics.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    _, sections, _ = make_sections(read_run(tmp_path))
    throughput = next(section for section in sections if section.key == "throughput")
    assert "On average: simulate 20%, infer 10%, learn 50%, other 20%; limited by learn;" in throughput.text
    assert "would leave 50%." in throughput.text
    assert [series.name for chart in throughput.charts for series in chart.series].count("perf/overlap_share") == 1
