"""The report page: what it reads, what it contains, what it survives."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from robot_rl.errors import UserError
from robot_rl.view.report.data import find_value, last_mean, read_run, thin, trailing_mean
from robot_rl.view.report.page import write_report
from robot_rl.view.report.sections import make_sections
from robot_rl.view.report.verdict import duration, evaluation_table, make_verdict, mean_and_std, number


class Links(HTMLParser):
    """Collects every address in a page, and checks that the tags nest."""

    VOID = ("meta", "img", "br", "link")

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "poster", "action")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def page_data(page: Path) -> dict:
    """The JSON block of a page."""
    block = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert block
    return json.loads(block.group(1))


def test_page_is_self_contained_and_well_formed(run_dir):
    page = write_report(run_dir)
    links = Links()
    links.feed(page.read_text())
    assert links.open == []
    assert links.addresses == []
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page.read_text())
    assert [p.name for p in run_dir.iterdir() if p.name.startswith(".")] == []


def test_every_metric_is_drawn_once(run_dir):
    drawn = [s["name"] for chart in page_data(write_report(run_dir))["charts"] for s in chart["series"]]
    columns = read_run(run_dir).columns
    rewards = [name for name in columns if name.startswith("reward/")]
    assert sorted(n for n in drawn if n.startswith("reward/")) == sorted(rewards)
    assert {"simulate", "infer", "learn", "other", "time out", "base contact", "episodes"} <= set(drawn)
    assert len(drawn) == len(set(drawn)) == len(columns) - 3


def test_verdict_by_hand(run_dir):
    figures = {figure.label: figure for figure in make_verdict(read_run(run_dir))}
    assert (figures["Lin vel error"].value, figures["Lin vel error"].unit) == ("0.094", "m/s")
    assert figures["Failures"].value == "1.00"
    # 0.1 + 0.8 exp(-i/60) <= 0.25 from i = 60 ln(0.8/0.15) = 100.4; the mean of 5 iterations lags by 2: i = 103.
    assert figures["Time to 0.25 m/s"].source.startswith("iteration 103;")
    assert (figures["Time to 0.25 m/s"].value, figures["Time to 0.25 m/s"].unit) == ("2:09", "min")
    assert figures["Throughput"].value == "19\u202f661"


def test_what_counts_as_solved_is_the_task_s(run_dir):
    config = (run_dir / "run.yaml").read_text()
    config = (
        config.replace("lin_vel_error", "upright").replace("0.25]", "0.6]").replace("better: smaller", "better: larger")
    )
    (run_dir / "run.yaml").write_text(config.replace("unit: m/s", "unit: '1'"))
    rows = [{"iteration": i, "time_s": float(i), "tracking/upright": 0.1 * i} for i in range(1, 11)]
    (run_dir / "metrics.jsonl").write_text("\n".join(json.dumps(r) for r in rows) + "\n")
    (run_dir / "eval.json").unlink()
    figures = {figure.label: figure for figure in make_verdict(read_run(run_dir))}
    assert figures["Time to 0.6"].source.startswith("iteration 8;")  # the mean of 0.4 to 0.8
    assert (figures["Upright"].value, figures["Upright"].unit) == ("0.550", "")
    (chart,) = [chart for chart in page_data(write_report(run_dir))["charts"] if chart["title"] == "Upright"]
    assert (chart["target"], chart["unit"], chart["note"]) == ([0.6, "solved"], "", "how far off")


@pytest.mark.parametrize(
    "lines", ["metrics: 3", "metrics: {a: 1, lin_vel_error: {}}", "solved: [x]", "solved: 3", "solved: [x, .nan]"]
)
def test_damaged_declarations_of_metrics_are_left_out(run_dir, lines):
    config = (run_dir / "run.yaml").read_text()
    (run_dir / "run.yaml").write_text(config[: config.index("metrics:")] + lines)
    (run_dir / "eval.json").unlink()
    labels = [figure.label for figure in make_verdict(read_run(run_dir))]
    assert "Episode length" in labels
    assert "Time to 90 % of best" in labels


def test_verdict_of_a_task_without_metrics(run_dir):
    rows = [
        {"iteration": i, "env_steps": i * 10, "time_s": float(i), "episode/return": r}
        for i, r in [(1, 0.0), (2, 50.0), (3, 95.0), (4, 100.0)]
    ]
    (run_dir / "metrics.jsonl").write_text("\n".join(json.dumps(r) for r in rows) + "\n")
    config = (run_dir / "run.yaml").read_text()
    (run_dir / "run.yaml").write_text(config[: config.index("metrics:")])
    (run_dir / "eval.json").unlink()
    figures = {figure.label: figure for figure in make_verdict(read_run(run_dir))}
    assert figures["Time to 90 % of best"].value == "3.0"
    assert figures["Episode length"].value == "–"


def test_time_outs_are_what_the_failures_leave_over(run_dir):
    """A hundred falls in a run whose episodes are longer than it are seldom, and not all that happened."""
    shared = {"termination/tilted": 0.25, "time_s": 1.0}
    rows = [
        {"iteration": 1, "env_steps": 60_000, "episodes": 40, "termination/low": 0.5, **shared},
        {"iteration": 2, "env_steps": 120_000, "episodes": 20, "termination/low": 0.0, **shared},
        {"iteration": 3, "env_steps": 180_000, "episodes": 0},
    ]
    (run_dir / "metrics.jsonl").write_text("\n".join(json.dumps(r) for r in rows) + "\n")
    (run_dir / "eval.json").unlink()
    (chart,) = [chart for chart in page_data(write_report(run_dir))["charts"] if chart["title"] == "Endings"]
    assert (chart["kind"], chart["unit"]) == ("stack", "per world and minute")
    minutes = 60_000 * 0.02 / 60
    assert [(s["name"], s["values"]) for s in chart["series"]] == [
        ("time limit", [10 / minutes, 15 / minutes, 0.0]),
        ("low", [20 / minutes, 0.0, 0.0]),
        ("tilted", [10 / minutes, 5 / minutes, 0.0]),
    ]
    assert chart["note"] == "in all 25 time limit, 20 low, 15 tilted"
    figure = {figure.label: figure for figure in make_verdict(read_run(run_dir))}["Early endings"]
    assert (figure.value, figure.unit) == (f"{35 / (3 * minutes):.3f}", "per world and minute")
    (run_dir / "run.yaml").unlink()
    (chart,) = [chart for chart in page_data(write_report(run_dir))["charts"] if chart["title"] == "Endings"]
    assert chart["unit"] == "per world and 1000 steps"


def test_evaluation_table_units_and_distance(run_dir):
    policies, rows, rest = evaluation_table(json.loads((run_dir / "eval.json").read_text()))
    assert policies == ["torch", "onnx"]
    assert rest == {"episodes": 100}
    velocity, failures = rows
    assert (velocity.label, velocity.unit, velocity.meaning) == (
        "Lin vel error",
        "m/s",
        "how far off; time mean from 1 s on",
    )
    assert (failures.unit, failures.meaning) == ("", "share of episodes")
    # |0.094 - 0.104| / sqrt((0.02^2 + 0.02^2) / 100) = 3.54 standard errors
    assert velocity.distance == pytest.approx(0.01 / np.sqrt(2 * 0.02**2 / 100))
    assert failures.cells == [(0.01, 0.1), (0.01, 0.1)]
    assert failures.distance == 0.0
    assert 'class="far">3.54' in write_report(run_dir).read_text()
    # The robots of a world are no tries of their own.
    pairs = json.loads((run_dir / "eval.json").read_text()) | {"team": {"worlds": 50, "robots": {}, "without": {}}}
    assert evaluation_table(pairs)[1][0].distance == pytest.approx(0.01 / np.sqrt(2 * 0.02**2 / 50))


def test_one_row(run_dir):
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    (run_dir / "metrics.jsonl").write_text(lines[0] + "\n")
    data = page_data(write_report(run_dir))
    assert data["axes"]["iteration"] == [1.0]
    assert all(len(s["values"]) == 1 for chart in data["charts"] for s in chart["series"])


def test_nan_rows_become_gaps_and_are_reported(run_dir):
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines[:5]]
    rows[1]["loss/value"] = float("nan")
    rows[2]["loss/value"] = None
    rows[3] |= {"episode/return": float("inf"), "reward/track": "broken", "env_steps": True}
    (run_dir / "metrics.jsonl").write_text("\n".join(json.dumps(r) for r in rows) + "\n")
    page = write_report(run_dir)
    series = {s["name"]: s["values"] for chart in page_data(page)["charts"] for s in chart["series"]}
    assert [v is None for v in series["loss/value"]] == [False, True, True, False, False]
    assert series["episode/return"][3] is None
    assert series["reward/track"][3] is None
    assert "Not finite in some iterations: loss/value." in page.read_text()


def test_all_values_missing(run_dir):
    (run_dir / "metrics.jsonl").write_text('{"iteration": 1, "episode/return": NaN, "time_s": null}\n')
    assert "Return" in write_report(run_dir).read_text()


def test_truncated_last_line(run_dir):
    text = (run_dir / "metrics.jsonl").read_text()
    (run_dir / "metrics.jsonl").write_text(text[:-40])
    data = read_run(run_dir)
    assert data.rows == 299
    assert data.notes == ["The last line of metrics.jsonl is cut off and was omitted."]


def test_damaged_lines_and_other_bytes(run_dir):
    text = (run_dir / "metrics.jsonl").read_bytes()
    (run_dir / "metrics.jsonl").write_bytes(b"\xff\xfe{]\n[1, 2]\n" + text + b"\n\n")
    data = read_run(run_dir)
    assert data.rows == 300
    assert data.notes == ["2 lines of metrics.jsonl could not be read and were omitted."]


def test_resumed_run_counts_the_last_version(run_dir):
    rows = [{"iteration": i, "time_s": float(i), "loss/value": 1.0} for i in (1, 2, 3, 4)]
    rows += [{"iteration": i, "time_s": float(i - 2), "loss/value": 2.0} for i in (3, 4, 5)]
    (run_dir / "metrics.jsonl").write_text("\n".join(json.dumps(r) for r in rows) + "\n")
    data = read_run(run_dir)
    assert data.columns["iteration"].tolist() == [1, 2, 3, 4, 5]
    assert data.columns["loss/value"].tolist() == [1, 1, 2, 2, 2]
    assert data.columns["time_s"].tolist() == [1, 2, 3, 4, 5]
    assert "2 iterations done twice" in data.notes[0]


def test_missing_parts_are_reported_with_the_command_that_makes_them(run_dir):
    for name in ("eval.json", "run.yaml", "metrics.jsonl"):
        (run_dir / name).unlink()
    text = write_report(run_dir).read_text()
    assert "robot-rl eval run=20261120-221000-1-ab12" in text
    assert "robot-rl video run=20261120-221000-1-ab12" in text
    assert "has not finished its first iteration" in text
    assert "<h1>go2_flat</h1>" in text


def test_damaged_evaluation_and_settings(run_dir):
    (run_dir / "eval.json").write_text('{"torch": {"lin_vel')
    (run_dir / "run.yaml").write_text("a: [1,\n<b>")
    text = write_report(run_dir).read_text()
    assert "eval.json is damaged" in text
    assert "run.yaml cannot be read" in text
    assert "&lt;b&gt;" in text


def test_everything_is_escaped(run_dir):
    evil = "</script><script>alert(1)</script>"
    row = {"iteration": 1, f"reward/{evil}": 1.0, f"{evil}": 2.0, f"termination/{evil}": 0.5}
    (run_dir / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (run_dir / "run.yaml").write_text(json.dumps({"config": {"task": evil, "seed": evil}, "versions": {"torch": evil}}))
    block = {evil: {"mean": 1.0, "std": 0.0}}
    (run_dir / "eval.json").write_text(json.dumps({"torch": block, evil: block, "note": evil}))
    assert "<script>alert" not in write_report(run_dir).read_text()


def test_small_video_is_embedded_and_large_one_becomes_frames(run_dir, monkeypatch):
    av = pytest.importorskip("av")
    with av.open(str(run_dir / "video.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for i in range(12):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 20 * i, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    assert write_report(run_dir).read_text().count("data:video/mp4;base64,") == 1
    monkeypatch.setattr("robot_rl.view.report.page.VIDEO_LIMIT", 10)
    text = write_report(run_dir).read_text()
    assert text.count("data:image/jpeg;base64,") == 6
    assert 'href="video.mp4"' in text
    (run_dir / "video.mp4").write_bytes(b"not a video at all")
    assert "video.mp4 cannot be read" in write_report(run_dir).read_text()


def test_no_such_directory(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        write_report(tmp_path / "nothing")


def test_thin_averages_groups_and_keeps_the_last_time():
    columns = {
        "iteration": np.arange(1.0, 8.0),
        "time_s": np.arange(1.0, 8.0) * 10,
        "a": np.array([1, 3, np.nan, np.nan, np.nan, 5, 7]),
    }
    short, k = thin(columns, 4)
    assert k == 2
    assert short["iteration"].tolist() == [2, 4, 6, 7]
    assert short["time_s"].tolist() == [20, 40, 60, 70]
    np.testing.assert_array_equal(short["a"], [2, np.nan, 5, 7])


def test_long_run_stays_small(run_dir):
    row = '{{"iteration": {}, "env_steps": {}, "time_s": {}, "loss/value": 0.123456789012345}}\n'
    (run_dir / "metrics.jsonl").write_text("".join(row.format(i, i * 24576, i * 1.25) for i in range(1, 5001)))
    data = read_run(run_dir)
    axes, sections, k = make_sections(data)
    assert (k, len(axes["iteration"]), len(sections[0].charts[0].series[0].values)) == (10, 500, 500)
    assert "mean of 10 iterations" in write_report(run_dir).read_text()


def test_small_helpers():
    assert find_value({"a": {"x": 1}, "b": {"c": {"seed": 7}}}, "seed") == 7
    assert find_value({"seed": {"a": 1}}, "seed") is None
    assert last_mean(np.array([np.nan, 1.0, 3.0]), 3) == 2.0
    assert np.isnan(last_mean(np.array([np.nan])))
    np.testing.assert_array_equal(trailing_mean(np.array([1.0, 2, 3, np.nan]), 2), [np.nan, 1.5, 2.5, np.nan])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0940, "0.094"),
        (-1.234, "−1.23"),
        (0, "0"),
        (20380.4, "20\u202f380"),
        (float("nan"), "–"),
        (3.1e-6, "3.1e−06"),
    ],
)
def test_number(value, text):
    assert number(value) == text


def test_mean_and_std_share_their_decimals():
    assert mean_and_std(0.09401, 0.02812) == ("0.094", "0.028")
    assert mean_and_std(88.2, 26.4) == ("88", "26")
    assert mean_and_std(5.0, 0.0) == ("5.00", "0")


@pytest.mark.parametrize(("seconds", "text"), [(3.04, "3.0 s"), (42, "42 s"), (185, "3:05 min"), (4800, "1:20:00 h")])
def test_duration(seconds, text):
    assert duration(seconds) == text
