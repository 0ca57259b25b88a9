"""The result of an explanation: lines for a terminal and the content of a file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from robot_rl.explain.explain import Explanation
from robot_rl.explain.rank import MARGIN
from robot_rl.files import write_json
from robot_rl.runs.outputs import EXPLAINED_FORMAT

VERSION = 1
NOTHING = "nothing found: the log is as the simulation, within the usual differences of motors"
AS_IT_IS = "the log as it is"
MOST_LINES = 8


def headline(found: Explanation) -> str:
    """Return the first named cause with its size, in one line."""
    if not found.named:
        return NOTHING
    first = found.named[0]
    return f"{first.cause}: {first.size}"


def lines(found: Explanation) -> list[str]:
    """Return lines for a terminal: scores, motors, then the named causes and advice."""
    rows = [f"note: {note}" for note in found.notes]
    rows += [f"check: {row.cause} ({row.size}); {row.advice}" for row in found.findings if not row.breaks]
    if found.ranked:
        rows.append(f"{'score':>6}  cause, removed from the log (less is better; {MARGIN:g} apart is told apart)")
        rows += [f"{row.score:>6.2f}  {row.cause.name if row.cause else AS_IT_IS}" for row in found.ranked[:MOST_LINES]]
    if found.motors is not None:
        motors = found.motors
        rows.append(f"motors, delay and mass together: score {motors.before:.2f} -> {motors.after:.2f}")
        rows.append(f"{'':2}{'parameter':<10} {'model':>8} {'log':>8} {'difference':>11} {'explains':>9}")
        for part in motors.parts:
            values = f"{part.nominal:>8.3g} {part.value:>8.3g} {part.size:>+8.2f} sd {part.explains:>9.2f}"
            rows.append(f"{'':2}{part.name:<10} {values}  {part.unit}{'' if part.unusual else '  usual'}".rstrip())
            rows += [f"{'':4}{joint}: {value:.3g}" for joint, value in part.joints.items()]
    rows += _verdict(found)
    return rows


def _verdict(found: Explanation) -> list[str]:
    if not found.named:
        return [NOTHING]
    rows = []
    for n, row in enumerate(found.named):
        rows += [f"{'cause' if n == 0 else 'also'}: {row.cause}: {row.size}", f"  {row.advice}"]
    if found.alike:
        rows.append(f"not told apart from it: {'; '.join(found.alike)}")
    if found.parting is not None and found.parting.first_s is not None:
        rows.append(f"log and simulation part at {found.parting.first_s:.2f} s")
    return rows


def to_json(found: Explanation) -> dict[str, Any]:
    """Return the content of the file."""
    motors = found.motors
    return {
        "format": EXPLAINED_FORMAT,
        "version": VERSION,
        "robot": found.robot.name,
        "log": {"name": found.log.name, "sha256": found.log.sha256, "seconds": found.log.seconds},
        "base": found.base,
        "found": [asdict(row) for row in found.named],
        "not_told_apart": list(found.alike),
        "first_s": None if found.parting is None else found.parting.first_s,
        "checks": [asdict(row) for row in found.findings],
        "scores": [{"cause": row.cause.name if row.cause else None, "score": row.score} for row in found.ranked],
        "margin": MARGIN,
        "motors": None
        if motors is None
        else {"before": motors.before, "after": motors.after, "parts": [asdict(part) for part in motors.parts]},
        "notes": list(found.notes),
    }


def write(found: Explanation, path: Path) -> None:
    """Write the file, whole or not at all."""
    write_json(path, to_json(found))
