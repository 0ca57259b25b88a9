"""Curves from metrics.jsonl: which rows count, thinning, and the interquartile mean over runs."""

import json

import numpy as np
import pytest

from robot_rl.metrics.intervals import bands, interquartile_mean, interval
from robot_rl.view.board.curves import MetricsReader, make_curve, read_columns

NAMES = ("iteration", "time_s", "a/b")


def line(iteration, value, time_s=None):
    return json.dumps({"iteration": iteration, "time_s": iteration if time_s is None else time_s, "a/b": value}) + "\n"


def columns(text):
    return {name: values.tolist() for name, values in read_columns(text.encode(), NAMES).items()}


def test_rows_as_they_are_written():
    found = columns(line(1, 0.5) + line(2, None) + line(3, float("nan")) + line(4, 1e-7) + '{"iteration": 5, "a/b": 1')
    assert found["iteration"] == [1, 2, 3, 4]
    assert np.array_equal(found["a/b"], [0.5, np.nan, np.nan, 1e-7], equal_nan=True)


@pytest.mark.parametrize(
    "damage",
    ["no row\n", "\n", "[1]\n", '{"iteration": "x"}\n', '{"iteration": 2, "a/b": {"iteration": 7}}\n', "\x00\x00\n"],
    ids=["words", "empty", "list", "text", "nested", "zeros"],
)
def test_other_lines_cost_only_themselves(damage):
    found = columns(line(1, 0.5) + damage + line(3, 2.0))
    whole = [i for i, value in zip(found["iteration"], found["a/b"], strict=True) if not np.isnan(value)]
    assert (whole, [value for value in found["a/b"] if not np.isnan(value)]) == ([1, 3], [0.5, 2.0])


def test_text_that_looks_like_a_row_is_none():
    row = {"iteration": 1, "time_s": 1, "note": '"a/b": 9, ', "a/b": 3}
    assert columns(json.dumps(row) + "\n")["a/b"] == [3]


def test_no_row_at_all():
    assert columns("") == {"iteration": [], "time_s": [], "a/b": []} == columns("x")


def test_of_iterations_that_were_done_twice_the_later_count_and_the_clock_goes_on():
    found = columns(line(1, 1.0) + line(2, 2.0) + line(3, 3.0) + line(2, 20.0, time_s=1.0) + line(3, 30.0, time_s=2.0))
    assert found["iteration"] == [1, 2, 3]
    assert found["a/b"] == [1.0, 20.0, 30.0]
    assert found["time_s"] == [1.0, 1.0, 2.0]
    assert columns(line(1, 1.0, time_s=5.0) + line(2, 2.0, time_s=1.0))["time_s"] == [5.0, 6.0]


def test_the_reader_follows_the_file(tmp_path):
    path, reader = tmp_path / "metrics.jsonl", MetricsReader()
    assert len(reader.read(path, ["a/b"])["a/b"]) == 0
    path.write_text(line(1, 1.0))
    assert reader.read(path, ["a/b"])["a/b"].tolist() == [1.0]
    path.write_text(line(1, 1.0) + line(2, 4.0))
    assert reader.read(path, ["a/b"])["a/b"].tolist() == [1.0, 4.0]
    assert reader.read(path, ["time_s"])["time_s"].tolist() == [1.0, 2.0]
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    assert len(reader.read(link, ["a/b"])["a/b"]) == 0


def test_what_is_kept_in_memory_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("robot_rl.view.board.curves.MOST_KEPT", 5)
    reader = MetricsReader()
    for name in "abc":
        (tmp_path / name).write_text(line(1, 1.0) + line(2, 2.0))
        assert reader.read(tmp_path / name, ["a/b"])["a/b"].tolist() == [1.0, 2.0]
    assert [path.name for path in reader._kept] == ["c"]
    assert reader._total == 4


def run(*points):
    x, y = zip(*points, strict=True)
    return np.array(x, float), np.array(y, float)


def test_a_run_is_its_own_curve():
    curve = make_curve([run((1, 5), (2, np.nan), (3, 7))])
    assert (curve.x.tolist(), curve.y.tolist(), curve.runs.tolist()) == ([1, 3], [5, 7], [1, 1])
    assert np.isnan(curve.low).all()
    assert np.isnan(curve.high).all()


def test_a_long_run_is_thinned_to_means_of_cells():
    x = np.arange(1.0, 9.0)
    curve = make_curve([(x, x * 10)], points=4)
    # Cells of width 7/4 from 1 to 8: {1, 2}, {3, 4}, {5, 6}, {7, 8}.
    assert curve.x.tolist() == [1.875, 3.625, 5.375, 7.125]
    assert curve.y.tolist() == [15, 35, 55, 75]


def test_a_group_is_the_interquartile_mean_where_runs_have_a_value():
    runs = [run((1, 1), (3, 1)), run((1, 2), (3, 4)), run((1, 3), (3, 9)), run((1, 100))]
    curve = make_curve(runs)
    assert curve.x.tolist() == [1, 3]
    assert curve.runs.tolist() == [4, 3]
    # Of 1 2 3 100 a quarter at either end is left out; of three values none is.
    assert curve.y.tolist() == [2.5, pytest.approx(14 / 3)]


def test_between_its_rows_a_run_is_a_line_and_nothing_outside_of_them():
    curve = make_curve([run((1, 0), (3, 4)), run((2, 0), (4, 0))])
    assert curve.x.tolist() == [1, 2, 3, 4]
    assert curve.runs.tolist() == [1, 2, 2, 1]
    assert curve.y.tolist() == [0, 1, 2, 0]


def test_the_interval_of_two_runs_goes_from_one_to_the_other():
    curve = make_curve([run((1, 1), (2, 5)), run((1, 3), (2, 5))])
    assert (curve.low.tolist(), curve.high.tolist()) == ([1, 5], [3, 5])


def test_bands_are_those_of_single_values():
    table = np.random.default_rng(1).normal(size=(8, 3))
    table[0, 2] = np.nan
    middle, low, high = bands(table)
    for point in range(3):
        values = table[np.isfinite(table[:, point]), point]
        assert middle[point] == pytest.approx(interquartile_mean(values))
        # 1000 samples here, 5000 there.
        assert (low[point], high[point]) == pytest.approx(interval(values), abs=0.15)
    assert all(np.isnan(part).all() for part in bands(np.full((3, 2), np.nan)))


def test_many_curves_take_fewer_samples_and_give_about_the_same():
    table = np.random.default_rng(2).normal(size=(40, 5))
    few, many = bands(table, most=1), bands(table)
    assert np.array_equal(few[0], many[0])
    assert few[1] == pytest.approx(many[1], abs=0.2)
    assert few[2] == pytest.approx(many[2], abs=0.2)


def test_no_value():
    curve = make_curve([run((1, np.nan))])
    assert [len(part) for part in (curve.x, curve.y, curve.low, curve.high, curve.runs)] == [0] * 5
