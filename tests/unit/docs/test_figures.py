"""docs/benchmarks.md is what its JSON files say, and so are the figures of README and of the other pages."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FIGURES = tomllib.loads(Path(__file__).with_name("figures.toml").read_text())
SPEC = importlib.util.spec_from_file_location("benchmarks_page", ROOT / "benchmarks" / "page.py")
page = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(page)


def folded(text):
    """A text in one line."""
    return " ".join(text.split())


def whole(text):
    """A pattern of a text that is not the beginning of a longer number or word."""
    return re.escape(text) + (r"(?![\w]|[.,]\d)" if text[-1].isalnum() else "")


def test_the_page_of_benchmarks_is_its_figures(monkeypatch):
    monkeypatch.syspath_prepend(str(page.HERE))
    assert page.main(["--check"]) == 0, "run python benchmarks/page.py"


def test_its_cells_are_short():
    rows = [line for line in page.page().splitlines() if line.startswith("|")]
    cells = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell) for row in rows for cell in row.strip("|").split(" | ")]
    assert [cell for cell in cells if len(cell.strip()) > 60] == []
    assert {row.count(" | ") for row in rows if not row.startswith("|---")} <= {3, 4}


@pytest.mark.parametrize("name", FIGURES)
def test_a_pages_figures_are_those_of_the_files(name):
    text = folded((ROOT / name).read_text())
    wanted = [(file, folded(page.fill(each, file))) for file, texts in FIGURES[name].items() for each in texts]
    missing = [f"{file}: {each}" for file, each in wanted if not re.search(rf"(?<![\w.,]){whole(each)}", text)]
    assert not missing, "\n".join(["not in the page:", *missing])


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{a.b.c | .1f}", "2.5"),
        ("{list.name=two, both & kind=x.value | * 100 | .0f} %", "50 %"),
        ("{list.*.value | .1f}", "0.2, 0.5"),
        ("{list.-1.value | / list.0.value | .1f}", "2.5"),
        ("{deep.*.*.v | max}", "3"),
        ("{a.n | round -2}", "1200"),
        ("{deep | len} and {a.n | + -34 | ,.0f}", "2 and 1,200"),
    ],
)
def test_a_placeholder(monkeypatch, text, filled):
    items = [{"name": "one", "value": 0.2}, {"name": "two, both", "kind": "x", "value": 0.5}]
    data = {"a": {"b.c": 2.5, "n": 1234}, "list": items, "deep": {"p": {"q": {"v": 1}}, "r": [{"v": 3}, {"v": None}]}}
    monkeypatch.setattr(page, "load", lambda name: data)
    assert page.fill(text, "x.json") == filled


def test_a_placeholder_without_a_figure_is_named(monkeypatch):
    monkeypatch.setattr(page, "load", lambda name: {"a": 1})
    with pytest.raises(ValueError, match=r"\{b \| \.1f\} of 'x\.json': .*nothing at 'b'"):
        page.fill("{b | .1f}", "x.json")
