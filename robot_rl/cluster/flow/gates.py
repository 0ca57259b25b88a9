"""Gates: find a figure in a JSON file and compare it with its bound."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.cluster.flow.dag import ABOVE, Gate
from robot_rl.errors import UserError
from robot_rl.files import read_json

MAX_FILE = 256 * 2**20
WORD = re.compile(r"([A-Za-z_][\w.-]*):([^<>|]+)(<=|>=)([^|]+)(?:\|(.+))?")
FORM = "<name>:<path of the figure><=<bound>, or >=, and optionally |<path of a flag that makes it pass>"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A gate and its result.

    Attributes:
        gate: The gate.
        value: The figure; None if it is missing.
        holds: Whether the gate is passed.
        why: Why the figure is missing.
    """

    gate: Gate
    value: float | None
    holds: bool
    why: str = ""

    def line(self) -> str:
        """Return a line that names gate, figure, value and bound."""
        side = "at least" if self.gate.op == ABOVE else "at most"
        word = "passed" if self.holds else "FAILED"
        measured = f"is {self.value:.4g}" if self.value is not None else self.why
        return f"gate {self.gate.name} {word}: {self.gate.path} {measured}, must be {side} {self.gate.bound:.6g}"


def read_word(word: str) -> Gate:
    """Return the gate of a word of the command line; raise UserError if it is not one."""
    match = WORD.fullmatch(word)
    if match is None:
        raise UserError(f"gate '{word}': must be {FORM}, in quotes")
    bound = read_bound(f"gate '{word}'", match[4])
    return Gate(name=match[1], path=match[2], op=match[3], bound=bound, unless=match[5] or "")


def read_bound(what: str, text: str) -> float:
    """Return a bound; raise UserError, which begins with `what`, if it is not a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{what}: the bound must be a finite number, such as 0.2")
    return value


def find_figure(content: Any, path: str) -> Any:
    """Return the value at a path of keys joined by dots, which a key may also contain; None if there is none."""
    if not path:
        return content
    if not isinstance(content, Mapping):
        return None
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        key = ".".join(parts[:count])
        if key in content:
            figure = find_figure(content[key], ".".join(parts[count:]))
            if figure is not None:
                return figure
    return None


def judge(gate: Gate, content: Any) -> Verdict:
    """Compare a figure of a file's content with its bound."""
    value = find_figure(content, gate.path)
    if value is None:
        return Verdict(gate=gate, value=None, holds=False, why="is not in the file")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return Verdict(gate=gate, value=None, holds=False, why="is not a finite number")
    within = value >= gate.bound if gate.op == ABOVE else value <= gate.bound
    excused = bool(gate.unless) and find_figure(content, gate.unless) is True
    return Verdict(gate=gate, value=float(value), holds=within or excused)


def judge_file(path: Path, gates: Iterable[Gate]) -> list[Verdict]:
    """Compare figures of a JSON file with their bounds; raise UserError if it is missing or damaged."""
    content = read_json(path, MAX_FILE)
    return [judge(gate, content) for gate in gates]
