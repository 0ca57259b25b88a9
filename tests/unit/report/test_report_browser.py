"""The report as a browser sees it: the curves are drawn, and no script fails."""

import json
import re

import pytest

from robot_rl.view.report.page import write_report

pytestmark = pytest.mark.long


def attribute(dom: str, name: str) -> str:
    """An attribute of the <html> element."""
    found = re.search(rf'<html[^>]* {name}="([^"]*)"', dom)
    assert found, dom[:500]
    return found.group(1)


def figures(dom: str) -> list[str]:
    """The HTML of every diagram."""
    return re.findall(r"<figure.*?</figure>", dom, re.DOTALL)


def test_charts_are_drawn(run_dir, dump_dom):
    dom = dump_dom(write_report(run_dir))
    assert attribute(dom, "data-errors") == "0"
    drawn = figures(dom)
    assert int(attribute(dom, "data-charts")) == len(drawn) == 16
    for figure in drawn:
        assert re.search(r'<path class="(line|area)" d="M[\d.]+ [\d.]+L', figure), figure[:300]
        assert len(re.findall(r"<text ", figure)) >= 4
        assert "NaN" not in figure
    areas = [len(re.findall(r'class="area"', figure)) for figure in drawn]
    assert sorted(areas)[-2:] == [2, 4]
    assert re.search(r'<output class="read">[\d.]+</output>', drawn[0])
    assert "iteration 300" in dom


@pytest.mark.parametrize("rows", [1, 2])
def test_hardly_any_rows(run_dir, dump_dom, rows):
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    (run_dir / "metrics.jsonl").write_text("\n".join(lines[:rows]) + "\n" + lines[rows][:30])
    dom = dump_dom(write_report(run_dir))
    assert attribute(dom, "data-errors") == "0"
    assert attribute(dom, "data-charts") == "16"
    marks = r'class="dot"|class="area"' if rows == 1 else r'class="line" d="M[^"]+L|class="area"'
    assert all(re.search(marks, figure) for figure in figures(dom))
    assert "NaN" not in "".join(figures(dom))


def test_gaps_and_nothing_finite(run_dir, dump_dom):
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()[:30]]
    for i, row in enumerate(rows):
        if 10 <= i < 20:
            row |= {key: None for key in row if key not in ("iteration", "time_s")}
        if i == 25:
            row["loss/kl"] = float("nan")
        row["policy/learning_rate"] = 0.0
    (run_dir / "metrics.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    dom = dump_dom(write_report(run_dir))
    assert attribute(dom, "data-errors") == "0"
    line = re.search(r'class="line" d="([^"]*)"', figures(dom)[0])
    assert line
    assert line.group(1).count("M") == 2
    assert "no finite value" in dom
    assert "NaN" not in "".join(figures(dom))
