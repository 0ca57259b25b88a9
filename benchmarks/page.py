"""docs/benchmarks.md: every figure of it is read from the JSON files here, as page.yaml says.

    python benchmarks/page.py             # writes docs/benchmarks.md and its chart
    python benchmarks/page.py --check     # writes nothing; exit code 1 if they differ from what would be written

A figure is a placeholder in a text: `{walk.json: reached_s | median | .1f}` is a file, a path in it, and steps. A row
of page.yaml has its own file, which a placeholder need not name. In a path, joined by dots,

- a name is a key, which may itself have dots, and a number an index;
- `who=mjlab, default` is the first element of a list with that value, `a=1 & b=2` with both;
- `*` is every element or value, and what follows is read from each of them.

A step is a function (median, mean, min, max, sum, len, sort), `* number`, `/ number`, `+ number` (or a path in the same
file instead of the number), `round digits`, or at the end a format of Python's. tests/unit/docs/figures.toml has the
same placeholders for the other pages.
"""

from __future__ import annotations

import json
import math
import operator
import re
import statistics
import sys
import textwrap
from collections.abc import Callable
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
TABLE, PAGE, CHART = HERE / "page.yaml", HERE.parent / "docs" / "benchmarks.md", HERE / "learners_go2_flat.svg"
PLACEHOLDER = re.compile(r"\{(?:(?P<file>[\w/*-]+\.json): )?(?P<figure>[^{}]+)\}")
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "median": statistics.median,
    "mean": statistics.fmean,
    "min": min,
    "max": max,
    "sum": sum,
    "len": len,
    "sort": sorted,
}
OPERATORS = {"*": operator.mul, "/": operator.truediv, "+": operator.add}


@cache
def load(name: str) -> Any:
    """Return the content of a JSON file here; of a pattern with `*` a list, in the order of the names."""
    found = sorted(HERE.glob(name))
    if not found:
        raise FileNotFoundError(f"benchmarks/{name}: no such file")
    read = [json.loads(path.read_text()) for path in found]
    return read if "*" in name else read[0]


def look(data: Any, parts: list[str]) -> Any:
    """Return the value at a path, which was split at its dots.

    Raises:
        KeyError: nothing is there.
    """
    if not parts:
        return data
    if parts[0] == "*":
        found = [look(value, parts[1:]) for value in (data.values() if isinstance(data, dict) else data)]
        return [value for values in found for value in values] if "*" in parts[1:] else found
    for count in range(len(parts), 0, -1):
        name, rest = ".".join(parts[:count]), parts[count:]
        if isinstance(data, dict) and name in data:
            return look(data[name], rest)
        if isinstance(data, list) and name.lstrip("-").isdigit():
            return look(data[int(name)], rest)
        if isinstance(data, list) and "=" in name:
            wanted = [part.split("=", 1) for part in name.split(" & ")]
            for item in data:
                if all(str(item.get(key)) == value for key, value in wanted):
                    return look(item, rest)
    raise KeyError(f"nothing at '{'.'.join(parts)}'")


def figure(name: str, text: str) -> str:
    """Return a figure of the JSON file `name` as text: its path and steps are separated by `|`."""
    path, *steps = (part.strip() for part in text.split("|"))
    data = load(name)
    value = look(data, path.split("."))
    for step in steps:
        value = _step(value, step, data)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _step(value: Any, step: str, data: Any) -> Any:
    word, _, rest = step.partition(" ")
    if word in FUNCTIONS:
        items = value.values() if isinstance(value, dict) else value
        return FUNCTIONS[word]([item for item in items if item is not None])
    if isinstance(value, list):
        return [_step(item, step, data) for item in value]
    if word in OPERATORS and rest:
        number = re.fullmatch(r"-?[\d.]+(e-?\d+)?", rest)
        return OPERATORS[word](value, float(rest) if number else look(data, rest.split(".")))
    if word == "round":
        return round(value, int(rest))
    return format(value, step)


def fill(text: str, name: str = "") -> str:
    """Return a text with its figures; `name` is the file of placeholders that name none.

    Raises:
        ValueError: a placeholder leads to nothing.
    """

    def one(match: re.Match[str]) -> str:
        try:
            return figure(match["file"] or name, match["figure"])
        except (KeyError, IndexError, TypeError, ValueError, OSError) as error:
            raise ValueError(f"{match[0]} of '{name}': {error}") from error

    return PLACEHOLDER.sub(one, text)


def machine(data: Any) -> str:
    """Return a result's machine in few words: its card, or its processor, and its date if it has one."""
    found = data.get("machine") or (data.get("machines") or [{}])[0]
    if isinstance(found, str):
        words = found
    else:
        cpu = found.get("cpu") or found.get("processor") or "no machine named"
        words = found.get("gpu", "").removeprefix("NVIDIA ") or (
            f"{cpu.removesuffix(' Processor').replace('(R)', '')}, {found['cores']} cores" if "cores" in found else cpu
        )
    return ", ".join(str(part) for part in (words, data.get("date")) if part)


def taken(name: str, scripts: dict[str, str]) -> str:
    """Return the last cell of a row: the machine, and the script or command that made the file `name`.

    Without a line in page.yaml it is the script of the same name; an empty line means that it was removed.

    Raises:
        ValueError: benchmarks/ does not contain the script.
    """
    by = next((script for pattern, script in scripts.items() if fnmatch(name, pattern)), name.replace(".json", ".py"))
    if by.endswith(".py") and not (HERE / by).is_file():
        raise ValueError(f"page.yaml: scripts does not name the script of {name}")
    command = f"[{by}](../benchmarks/{by})" if by.endswith(".py") else f"`{by}`"
    return f"{machine(load(name))}; {command}" if by else machine(load(name))


def section(spec: dict[str, Any], scripts: dict[str, str]) -> str:
    """Return a section of the page: title, words, chart, table, notes."""
    parts = [f"## {spec['title']}", *([wrap(fill(spec["words"]))] if "words" in spec else [])]
    parts += [f"![{title}](../benchmarks/{file})" for file, title in spec.get("charts", {}).items()]
    head = [*spec["head"], "machine; taken with"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name, first, *cells in spec["rows"]:
        row = [f"[{fill(first, name)}](../benchmarks/{name})", *(fill(cell, name) for cell in cells)]
        row += [""] * (len(spec["head"]) - len(row))
        lines.append(f"| {' | '.join([*row, taken(name, scripts)])} |")
    parts += ["\n".join(lines), *([wrap(fill(spec["notes"]))] if "notes" in spec else [])]
    return "\n\n".join(parts)


def wrap(text: str) -> str:
    """Return a paragraph in lines of this project's length."""
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


def page() -> str:
    """Return docs/benchmarks.md."""
    table = yaml.safe_load(TABLE.read_text())
    sections = [section(spec, table["scripts"]) for spec in table["sections"]]
    return "\n\n".join(["# Benchmarks", wrap(table["words"]), *sections]) + "\n"


def chart() -> str:
    """Return the velocity error of a Go2 over the time of training as an SVG, a line for each learner and seed."""
    from plot import Plot, svg, ticks

    from robot_rl.view.chart import BLUE, GREEN, ORANGE

    data = load("learners_go2_flat.json")
    end = data["notes"]["limit_s"]
    colors = dict(zip(("world_model", "ppo", "flashsac"), (BLUE, ORANGE, GREEN), strict=True))
    plot = Plot((640, 300), x=(0.0, end), y=(0.0, 1.0))
    plot.axes(ticks(0.0, end)[:-1], ticks(0.0, 1.0, 4), "seconds of training", "velocity error, m/s")
    plot.line([0.0, end], [data["notes"]["bound"]] * 2, "#777777", width=1.0, dash="4 3")
    for k, (learner, color) in enumerate(colors.items()):
        plot.text(plot.x.end - 8 - 90 * k, plot.y.end + 14, learner, "end", fill=color, font_size=12)
    for training in data["trainings"]:
        points = training["points"]
        color = colors[training["learner"]]
        plot.line([p["time_s"] for p in points], [p["lin_vel_error"] or math.nan for p in points], color, width=1.5)
        if training["reached"]:
            plot.dots([training["reached"]["time_s"]], [training["reached"]["lin_vel_error"]], 4, color)
    return svg([plot])


def main(arguments: list[str]) -> int:
    """Write the page and the chart, or compare them."""
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    texts = {PAGE: page(), CHART: chart()}
    if arguments:
        differ = [path for path, text in texts.items() if not path.is_file() or path.read_text() != text]
        for path in differ:
            print(f"{path.relative_to(HERE.parent)}: differs from its figures; run python benchmarks/page.py")
        return 1 if differ else 0
    for path, text in texts.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
