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


AXES = """[...document.querySelectorAll('.plot svg')].map((svg) => {
  const texts = [...svg.querySelectorAll('text')].map((e) => [e.textContent, e.getBoundingClientRect()]);
  const low = Math.max(...texts.map(([, box]) => box.top));
  const part = (is) => texts.filter(([, box]) => box.top > low - 2 === is).map(([text]) => text);
  const meet = texts.some(([, a], i) => texts.slice(0, i).some(([, b]) =>
    a.left < b.right && b.left < a.right && a.top < b.bottom - 3 && b.top < a.bottom - 3));
  const sizes = [...svg.querySelectorAll("*")].flatMap((e) => ["width", "height", "r"].map((a) => e.getAttribute(a)));
  return [part(true), part(false), meet, sizes.some((size) => size < 0)];
})"""

WIDE = """[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth)
  .map((e) => `${e.tagName}.${e.className} ${e.textContent.slice(0, 40)}`)"""


@pytest.mark.parametrize("rows", [42, 300])
def test_axes_have_three_different_labels_or_more_at_every_width(run_dir, page, rows):
    lines = (run_dir / "metrics.jsonl").read_text().splitlines(keepends=True)[:rows]
    values = [json.loads(line) | {"loss/entropy": 1.39 + 0.0004 * i} for i, line in enumerate(lines)]
    (run_dir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in values))
    address = write_report(run_dir).as_uri()
    for width in (390, 768, 1280, 1920):
        page.resize(width)
        page.call("Page.navigate", url="about:blank")
        page.call("Page.navigate", url=address)
        page.wait("!!document.documentElement?.dataset.charts && document.querySelectorAll('.plot svg').length === 16")
        assert page.js("document.documentElement.scrollWidth") <= width, page.js(WIDE)
        for across, up, meet, negative in page.js(AXES):
            across = [text for text in across if text != "iteration"]
            assert min(len(set(across)), len(set(up))) >= 3, (width, across, up)
            assert (len(set(up)), meet, negative) == (len(up), False, False), (width, across, up)
        for scheme in ("light", "dark"):
            page.prefer(scheme)
            assert page.violations() == [], (width, scheme)
    assert page.failures() == []
