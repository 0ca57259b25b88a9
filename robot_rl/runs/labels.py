"""What users add to a run, in its labels.json, and the trash below a root; no training reads either."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError
from robot_rl.files import read_json, write_json
from robot_rl.metrics.rows import refuse_locked

FILE, TRASH = "labels.json", ".trash"
MAX_NAME, MAX_TAGS, MAX_NOTE, MAX_BYTES = 80, 20, 4000, 2**16
TAG = re.compile(r"[\w.+-]{1,40}")
RUN, BATCH = re.compile(r"(?!\.)[^/\0]+/(?!\.)[^/\0]+"), re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Labels:
    """A run's name, tags and note; all may be empty."""

    name: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""

    @classmethod
    def of(cls, values: Any) -> Labels:
        """Return them of plain values; raise UserError if one is of the wrong kind or too long."""
        values = values if isinstance(values, Mapping) else {}
        name, tags, note = values.get("name", ""), values.get("tags", []), values.get("note", "")
        if not isinstance(name, str) or len(name) > MAX_NAME or not name.isprintable():
            raise UserError("name", str(name)[:100], f"must be one line of at most {MAX_NAME} characters")
        right = f"must be at most {MAX_TAGS} words of letters, digits and . _ + -"
        if not isinstance(tags, Sequence) or len(tags) > MAX_TAGS or not all(TAG.fullmatch(str(tag)) for tag in tags):
            raise UserError("tags", " ".join(map(str, tags))[:100], right)
        if not isinstance(note, str) or len(note) > MAX_NOTE:
            raise UserError("note", str(note)[:100], f"must have at most {MAX_NOTE} characters")
        return cls(name=name.strip(), tags=tuple(dict.fromkeys(map(str, tags))), note=note)


def read_labels(run: Path) -> Labels:
    """Return the labels of a run's directory; empty ones if the file is missing or damaged."""
    file = run / FILE
    with contextlib.suppress(UserError):
        if os.path.lexists(file):
            return Labels.of(read_json(file, MAX_BYTES))
    return Labels()


def write_labels(run: Path, labels: Labels) -> None:
    """Write the labels of a run; without any the file is removed."""
    if labels == Labels():
        (run / FILE).unlink(missing_ok=True)
    else:
        write_json(run / FILE, asdict(labels))


def move_to_trash(root: Path, names: Sequence[str]) -> str:
    """Move runs "<folder of the task>/<run id>" into the trash, and return the name by which `restore` finds them.

    Raises:
        UserError: One does not exist, is behind a link, or a process is writing it; then none is moved.
    """
    for name in names:
        if not RUN.fullmatch(name) or os.path.realpath(root / name) != f"{os.path.realpath(root)}/{name}":
            raise UserError("run", name[:200], f"must be a directory in {root}, behind no link")
        if not (root / name / "run.yaml").is_file():
            raise UserError("run", name[:200], f"no such run in {root}")
        refuse_locked(root / name / "metrics.jsonl")
    batch = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
    for name in names:
        target = root / TRASH / batch / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (root / name).rename(target)
    return batch


def restore(root: Path, batch: str) -> list[str]:
    """Move runs back from the trash, and return their names.

    Raises:
        UserError: There are none of that name, or another run has taken their place.
    """
    folder = root / TRASH / batch
    runs = sorted(folder.glob("*/*/run.yaml")) if BATCH.fullmatch(batch) else []
    names = ["/".join(file.parts[-3:-1]) for file in runs]
    if not names:
        raise UserError("trash", batch[:100], f"nothing of that name is in {root / TRASH}")
    for name in names:
        if os.path.lexists(root / name):
            raise UserError("run", name, "is there again, so the deleted one cannot return", f"it is in {folder}")
    for name in names:
        (root / name).parent.mkdir(exist_ok=True)
        (folder / name).rename(root / name)
    for path in (*folder.glob("*"), folder):
        with contextlib.suppress(OSError):
            path.rmdir()
    return names
