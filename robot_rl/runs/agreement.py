"""Check that the settings in a run's run.yaml are those that its newest checkpoint was trained with.

run.yaml can be edited, or damaged so that it is still YAML. Each checkpoint has the settings too, under a checksum.
What `robot-rl resume` changed since the checkpoint is recorded in run.yaml (`RunDir.note_resumed`).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError
from robot_rl.runs.run_dir import RECORD_HASH, RunDir, config_hash, record_hash
from robot_rl.settings.tree import leaves

ELSEWHERE = ("root", "run_id", "init_from")
"""Settings that do not affect the result: the run's place, its id, and its initial weights."""
FIXED = ("task", "seed", "precision.mode")
"""Settings that `robot-rl resume` does not change."""


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the differences from earlier settings: "changed", by dotted name, and, where any, the names "gone"."""
    old, new = dict(leaves(before)), dict(leaves(now))
    changed = {key: value for key, value in new.items() if key not in old or not is_same(old[key], value)}
    gone = [key for key in old if key not in new]
    return {"changed": changed} | ({"gone": gone} if gone else {})


def is_same(one: Any, other: Any) -> bool:
    """Return whether two settings are the same once written: a list equals a tuple, 1 is not 1.0."""
    return json.dumps(one, default=str) == json.dumps(other, default=str)


def check_settings(run_dir: RunDir, record: Mapping[str, Any]) -> None:
    """Refuse a run.yaml with other settings than those of the run's newest checkpoint.

    Without a checkpoint that has settings, only run.yaml's own hash of them is compared: earlier versions
    saved none, and did not record the changes when a run was resumed.

    Args:
        run_dir: The run.
        record: Its run.yaml, from `RunDir.read_config`.
    """
    _check_config(run_dir, record)
    if record.get(RECORD_HASH, "") not in ("", record_hash(record)):
        raise UserError(f"{run_dir.config_file}: was changed after it was written; put it back, or begin another run")


def _check_config(run_dir: RunDir, record: Mapping[str, Any]) -> None:
    from robot_rl.learn.checkpoints.checkpoint import list_checkpoints

    path, expected = _expected(run_dir, record.get("resumed", []))
    if path is None:
        known = record.get("config_sha256")
        if known is None and not list_checkpoints(run_dir.path):  # Runs of earlier versions that began have none.
            raise UserError(f"{run_dir.config_file}: lacks config_sha256, its end is missing; begin another run")
        if known is not None and known != config_hash(record["config"]):
            raise UserError(
                f"{run_dir.config_file}: config: was changed after it was written; put it back, or begin another run"
            )
        return
    now, file = dict(leaves(record["config"])), run_dir.config_file
    for key in dict.fromkeys((*expected, *now)):
        if key in ELSEWHERE or (key in now and key in expected and is_same(expected[key], now[key])):
            continue
        trained = f"checkpoint {path.name} was trained with {expected.get(key)}"
        if key not in now:
            raise UserError(f"{file}: lacks {key}, {trained}; put the line back")
        if key not in expected:
            raise UserError(f"{file}: {key}={now[key]}: checkpoint {path.name} was trained without it; take it out")
        how = "" if key in FIXED else f", and change it by robot-rl resume {run_dir.run_id} {key}={now[key]}"
        raise UserError(f"{file}: {key}={now[key]}: {trained}; put that back{how}")


def _expected(run_dir: RunDir, events: list[Mapping[str, Any]]) -> tuple[Path | None, dict[str, Any]]:
    """Return the newest checkpoint with an intact description, and its settings with the changes since."""
    from robot_rl.learn.checkpoints.checkpoint import list_checkpoints, read_description

    for path in reversed(list_checkpoints(run_dir.path)):
        try:
            meta = read_description(path)
        except UserError:
            continue
        settings, iteration = meta.get("settings"), meta.get("iteration")
        if not isinstance(settings, Mapping) or not settings or not isinstance(iteration, int):
            return None, {}
        # A run continues from its newest checkpoint: before the last time that it did so from an earlier one than this,
        # this one was not there.
        last = max((k for k, event in enumerate(events) if event["iteration"] < iteration), default=-1)
        since = events[last + 1 :]
        if not all("changed" in event for event in since):
            return None, {}
        expected = dict(leaves(settings))
        for event in since:
            for key in event.get("gone", []):
                expected.pop(key, None)
            expected |= event["changed"]
        return path, expected
    return None, {}
