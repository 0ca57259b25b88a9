"""Source texts with named slots; `step_kernels.py.txt` says at its beginning how they are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any


class Template:
    """A file of sections with slots."""

    def __init__(self, path: Path):
        self.path = path

    @cached_property
    def sections(self) -> dict[str, list[str]]:
        """The lines of the sections by name, without comments."""
        sections: dict[str, list[str]] = {}
        lines: list[str] = []
        for line in self.path.read_text().splitlines():
            if line.startswith("## "):
                lines = sections[line[3:]] = []
            elif line and not line.lstrip().startswith("#"):
                lines.append(line)
        return sections

    def fill(self, section: str, values: Mapping[str, Any]) -> str:
        """Return the text of a section with its slots filled; KeyError if a value is missing."""
        lines, omitted = [], None
        for line in self.sections[section]:
            text, _, condition = line.partition("  # if ")
            body = text.lstrip()
            indent = text[: len(text) - len(body)]
            if omitted is not None and len(indent) > omitted:
                continue
            omitted = None if _is_true(condition, values) else len(indent)
            if omitted is None and (slot := re.fullmatch(r"\{(\w+)\}", body)):
                block = values[slot[1]] if slot[1] in values else self.fill(slot[1], values)
                lines += [indent + inner for inner in block.splitlines()]
            elif omitted is None:
                lines.append(re.sub(r"\{(\w+)\}", lambda match: str(values[match[1]]), text))
        return "\n".join(lines)

    def fill_each(self, section: str, rows: Iterable[Mapping[str, Any]]) -> str:
        """Return the texts of a section filled with each of these values, one below the other."""
        return "\n".join(self.fill(section, row) for row in rows)


def _is_true(condition: str, values: Mapping[str, Any]) -> bool:
    terms = condition.split(" and ") if condition else []
    return all(bool(values[term.removeprefix("not ")]) != term.startswith("not ") for term in terms)


STEP = Template(Path(__file__).with_name("step_kernels.py.txt"))
"""The kernels of a control step."""
