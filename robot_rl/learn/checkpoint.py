"""Checkpoints: a directory with model.safetensors and meta.json that is either whole or not there. No pickle."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from robot_rl.errors import UserError

WEIGHTS = "model.safetensors"
META = "meta.json"


def save_checkpoint(directory: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Path:
    """Write a checkpoint so that a crash at any moment leaves a whole one or none, never a part.

    Both files go to a temporary directory beside the target and are synced to the disk before it is renamed.

    Args:
        directory: the checkpoint's own directory; one that is there already is replaced.
        tensors: what to keep, by name; copied to the CPU.
        meta: what describes it, JSON-able. The checksums are added under "sha256".

    Returns:
        The directory.

    Raises:
        OSError: the disk is full or not writable; nothing is left behind.
    """
    from safetensors.torch import save

    directory = Path(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    aside = directory.parent / f".{directory.name}-replaced"
    staging = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        weights = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
        body = {key: value for key, value in meta.items() if key != "sha256"}
        sums = {WEIGHTS: hashlib.sha256(weights).hexdigest(), META: _meta_sum(body)}
        _write(staging / WEIGHTS, weights)
        _write(staging / META, (json.dumps(body | {"sha256": sums}, indent=1) + "\n").encode())
        _sync_directory(staging)
        staging.chmod(0o755)
        if directory.exists():
            directory.rename(aside)
        staging.rename(directory)
        _sync_directory(directory.parent)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    shutil.rmtree(aside, ignore_errors=True)
    return directory


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a checkpoint and check it.

    Args:
        path: the checkpoint's directory.

    Returns:
        Its tensors by name, on the CPU, and its description.

    Raises:
        UserError: a file is missing or damaged; the message names the file and the check that failed.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    path = Path(path)
    if not path.is_dir():
        raise UserError(f"checkpoint {path}: no such directory, must hold {WEIGHTS} and {META}")
    meta = _read_meta(path / META)
    sums = meta.pop("sha256")
    weights = _read(path / WEIGHTS)
    found = hashlib.sha256(weights).hexdigest()
    if found != sums.get(WEIGHTS):
        raise UserError(
            f"{path / WEIGHTS}: damaged, sha256 is {found[:12]}..., must be {str(sums.get(WEIGHTS))[:12]}..."
        )
    try:
        return load(weights), meta
    except SafetensorError as error:
        raise UserError(f"{path / WEIGHTS}: damaged, no safetensors file ({error})") from None


def list_checkpoints(run_dir: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return sorted(path for path in (Path(run_dir) / "checkpoints").glob("[0-9]*") if path.is_dir())


def latest_checkpoint(run_dir: Path) -> Path:
    """Return the newest checkpoint of a run.

    Raises:
        UserError: the run has none.
    """
    found = list_checkpoints(run_dir)
    if not found:
        raise UserError(f"run {run_dir}: has no checkpoint, {Path(run_dir) / 'checkpoints'} is empty")
    return found[-1]


def check_shapes(path: Path, tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Raise UserError unless a checkpoint holds every wanted tensor in its shape; the message has both shapes.

    A part of actor or critic that is not wanted, such as a memory, is refused, too. Networks are looked at first: what
    else does not fit, such as the optimizer's moments, follows from them.
    """
    parts = ("actor.", "critic.")
    networks = [name for name in wanted if name.startswith(parts)]
    spare = [name for name in tensors if name.startswith(parts) and name not in wanted]
    for name in (*networks, *spare, *(name for name in wanted if not name.startswith(parts))):
        have, want = (tuple(held[name].shape) if name in held else None for held in (tensors, wanted))
        if have is None:
            raise UserError(f"checkpoint {path}: has no '{name}' {want}, it is of another architecture")
        if want is None:
            raise UserError(
                f"checkpoint {path}: has '{name}' {have}, which is none here; it is of another architecture"
            )
        if have != want:
            raise UserError(
                f"checkpoint {path}: '{name}' has shape {have}, must be {want} for this environment and learner"
            )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: missing, the checkpoint is not whole") from None


def _read_meta(path: Path) -> dict[str, Any]:
    try:
        meta = json.loads(_read(path))
    except ValueError as error:
        raise UserError(f"{path}: damaged, no JSON ({error})") from None
    if not isinstance(meta, dict) or not isinstance(meta.get("sha256"), dict):
        raise UserError(f"{path}: damaged, has no 'sha256'")
    found = _meta_sum({key: value for key, value in meta.items() if key != "sha256"})
    if found != meta["sha256"].get(META):
        raise UserError(
            f"{path}: damaged, sha256 of its content is {found[:12]}..., must be {meta['sha256'].get(META)}"
        )
    return meta


def _meta_sum(body: Mapping[str, Any]) -> str:
    """Return the checksum of a description without its checksums, in canonical JSON."""
    plain = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
