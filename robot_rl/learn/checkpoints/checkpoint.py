"""Checkpoints: a directory that is either whole or absent. No pickle.

model.safetensors holds networks and learner, env.safetensors the worlds (env.rank<r>.safetensors those of process r),
replay.safetensors the replay memory of a learner that has one, and meta.json describes them, with the sha256 of every
file. The replay memory is by far the largest part, and only a run that continues needs it: `drop_replay` removes it.
Every tensor of a checkpoint is in the CPU's memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.errors import UserError
from robot_rl.files import read_plain, write_atomic
from robot_rl.learn.checkpoints.description import SCHEMA, check_description, migrate
from robot_rl.metrics.rows import to_stderr

if TYPE_CHECKING:  # Whoever lists or removes checkpoints does not wait for PyTorch.
    from torch import Tensor

WEIGHTS = "model.safetensors"
META = "meta.json"
FILES = re.compile(r"model\.safetensors|(env|replay)(\.rank[1-9][0-9]*)?\.safetensors")
"""Names of the files, other than meta.json, with checksums in meta.json."""
SHAPING = (
    "memory.kind",
    "memory.hidden",
    "memory.layers",
    "hidden",
    "conv.groups",
    "conv.channels",
    "conv.features",
    "state_std",
)
"""Settings of a network that decide the shapes of its tensors."""
MAX_META = 2**24
"""Bytes that meta.json may have."""
REPLACED = "-replaced"
REMOVED = "-removed"


def worlds_file(rank: int = 0) -> str:
    """Return the name of the file that holds the worlds of a process."""
    return "env.safetensors" if rank == 0 else f"env.rank{rank}.safetensors"


def replay_file(rank: int = 0) -> str:
    """Return the name of the file that holds the replay memory of a process."""
    return "replay.safetensors" if rank == 0 else f"replay.rank{rank}.safetensors"


def save_checkpoint(
    directory: Path,
    tensors: Mapping[str, Tensor],
    meta: Mapping[str, Any],
    *,
    worlds: Mapping[str, Tensor] | None = None,
    replay: Mapping[str, Tensor] | None = None,
    staging: Path | None = None,
    others: Callable[[], Mapping[str, str]] | None = None,
) -> Path:
    """Write a checkpoint so that a crash at any moment leaves a whole one or none, never a part; return its directory.

    All files are written to a temporary directory next to the target and synced to the disk before it is renamed.

    Args:
        directory: the checkpoint's own directory; an existing one is replaced.
        tensors: networks and learner, by name.
        meta: its description, JSON-able. "schema" and the checksums, under "sha256", are added.
        worlds: this process's worlds, by name; None: no file for them.
        replay: this process's replay memory, by name; None: no file for it.
        staging: the temporary directory, from `stage`; None makes one.
        others: waits for the files of other processes in it, and returns their checksums by name.

    Raises:
        OSError: the disk is full or not writable; nothing is left behind.
    """
    directory = Path(directory)
    aside = directory.parent / f".{directory.name}{REPLACED}"
    staging = stage(directory) if staging is None else staging
    try:
        sums = {WEIGHTS: write_tensors(staging / WEIGHTS, tensors)}
        if worlds is not None:
            sums[worlds_file()] = write_tensors(staging / worlds_file(), worlds)
        if replay is not None:
            sums[replay_file()] = write_tensors(staging / replay_file(), replay)
        if others is not None:
            sums |= others()
        body = {"schema": SCHEMA, **{key: value for key, value in meta.items() if key != "sha256"}}
        sums[META] = _meta_sum(body)
        _write(staging / META, (json.dumps(body | {"sha256": sums}, indent=1) + "\n").encode())
        sync_directory(staging)
        staging.chmod(0o755)
        if directory.exists():
            directory.rename(aside)
        staging.rename(directory)
        sync_directory(directory.parent)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    shutil.rmtree(aside, ignore_errors=True)
    return directory


def stage(directory: Path) -> Path:
    """Create the temporary directory of a checkpoint's files, and return it."""
    directory = Path(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors to a safetensors file, sync it to the disk, and return its sha256."""
    from safetensors.torch import save

    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    _write(path, content)
    return hashlib.sha256(content).hexdigest()


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return a checkpoint's tensors of networks and learner, on the CPU, and its description, in the current schema.

    Raises UserError if a file is missing or damaged (with its name and the check), or made by a newer version.
    """
    meta = _read_meta(Path(path))
    sums = meta.pop("sha256")
    tensors = _read_tensors(Path(path) / WEIGHTS, sums)
    tensors, meta = migrate(tensors, meta, path)
    check_description(Path(path), meta)
    return tensors, meta


def read_description(path: Path) -> dict[str, Any]:
    """Return a checkpoint's description as written, without the checksums; raise UserError if it is damaged."""
    return {key: value for key, value in _read_meta(Path(path)).items() if key != "sha256"}


def load_worlds(path: Path, rank: int = 0) -> dict[str, Tensor] | None:
    """Return the worlds of a process, tensors on the CPU by name; None if there are none. Damage raises UserError."""
    return _read_part(Path(path), worlds_file(rank))


def load_replay(path: Path, rank: int = 0) -> dict[str, Tensor] | None:
    """Return the replay memory of a process, tensors on the CPU by name; None without one. Damage raises UserError."""
    return _read_part(Path(path), replay_file(rank))


def replay_files(path: Path) -> list[Path]:
    """Return the files of a checkpoint's replay memory, one of each process; none without such a memory."""
    return sorted(Path(path).glob("replay*.safetensors"))


def drop_replay(path: Path) -> None:
    """Remove the replay memory of a checkpoint, which remains whole: its description no longer names those files.

    After a crash at any moment the checkpoint is whole, and a second call removes the rest.

    Raises:
        UserError: the description is damaged; nothing is changed.
        OSError: the disk is full or not writable.
    """
    files = replay_files(path)
    if not files:
        return
    meta = _read_meta(Path(path))
    names = [file.name for file in files]
    kept = {name: value for name, value in meta["sha256"].items() if name not in names}
    if kept != meta["sha256"]:
        write_atomic(Path(path) / META, json.dumps(meta | {"sha256": kept}, indent=1) + "\n")
        sync_directory(Path(path))
    for file in files:
        file.unlink()


def verify_checkpoint(path: Path) -> None:
    """Compare every file of a checkpoint with its checksum; raise UserError if one is missing or damaged."""
    path = Path(path)
    sums = _read_meta(path)["sha256"]
    for name in {WEIGHTS, *sums} - {META}:
        _check_sum(path / name, hashlib.sha256(_read(path / name)).hexdigest(), sums)


def list_checkpoints(run_dir: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    found = [path for path in (Path(run_dir) / "checkpoints").glob("[0-9]*") if path.name.isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: (int(path.name), path.name))


def latest_checkpoint(run_dir: Path) -> Path:
    """Return the newest checkpoint of a run, damaged or not; raise UserError if there is none."""
    found = list_checkpoints(run_dir)
    if not found:
        raise UserError(f"run {run_dir}: has no checkpoint, {Path(run_dir) / 'checkpoints'} is empty")
    return found[-1]


def good_checkpoint(run_dir: Path, tell: Callable[[str], None] = to_stderr) -> Path:
    """Return the newest checkpoint of a run that is whole. Damaged ones stay in their place.

    `tell` gets a line for each newer one that is damaged. Raises UserError with the newest one's damage if none is
    whole.
    """
    _put_back(run_dir)
    latest_checkpoint(run_dir)
    wrong: list[str] = []
    for path in reversed(list_checkpoints(run_dir)):
        try:
            verify_checkpoint(path)
        except UserError as error:
            wrong.append(str(error))
            continue
        for line in wrong:
            tell(f"{line}; going back to checkpoint {path.name}")
        return path
    raise UserError(f"{wrong[0]}; the run has no checkpoint that is whole")


def tidy(run_dir: Path) -> None:
    """Remove the remains of a killed process among the checkpoints of a run; no process may be saving."""
    _put_back(run_dir)
    for path in (Path(run_dir) / "checkpoints").glob(".[0-9]*-*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def _put_back(run_dir: Path) -> None:
    """Restore the name of a whole checkpoint that was being replaced if its successor was not completed."""
    for path in (Path(run_dir) / "checkpoints").glob(f".[0-9]*{REPLACED}"):
        target = path.with_name(path.name.removeprefix(".").removesuffix(REPLACED))
        if target.name.isdecimal() and not target.exists():
            path.rename(target)


def prune(directory: Path, keep: int) -> None:
    """Remove the oldest checkpoints of a run; `directory`, just written, is among the `keep` that remain (0: all).

    Those newer than it stay.
    """
    if keep < 1:
        return
    older = [path for path in list_checkpoints(directory.parent.parent) if int(path.name) < int(directory.name)]
    for path in older[: max(0, len(older) - keep + 1)]:
        remove_checkpoint(path)


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint, at once: it is never seen in part."""
    hidden = path.with_name(f".{path.name}{REMOVED}")
    path.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def check_shapes(
    path: Path,
    tensors: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    settings: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {}),
) -> None:
    """Raise UserError unless a checkpoint holds every wanted tensor in its shape; the message has both shapes.

    Parts of actor or critic that are not wanted, such as a memory, are also refused. Networks are checked first: other
    differences, such as those of the optimizer's moments, follow from them. `settings` are the learner's settings of
    the checkpoint and of this run; the message names the first that differs.
    """
    parts = ("actor.", "critic.")
    networks = [name for name in wanted if name.startswith(parts)]
    spare = [name for name in tensors if name.startswith(parts) and name not in wanted]
    for name in (*networks, *spare, *(name for name in wanted if not name.startswith(parts))):
        why = _misfit(name, tensors, wanted)
        if why:
            raise UserError(f"{_other_setting(name.partition('.')[0], *settings)}checkpoint {path}: {why}")


def _misfit(name: str, tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """Return why a tensor cannot be loaded; empty if it can."""
    have, want = (tuple(held[name].shape) if name in held else None for held in (tensors, wanted))
    if have is None:
        first, part, *_ = name.split(".")
        without = first == "auxiliary" and not any(held.startswith(f"auxiliary.{part}.") for held in tensors)
        return (
            f"has no '{name}' {want}, {f'its run was without {part}' if without else 'it is of another architecture'}"
        )
    if want is None:
        return f"has '{name}' {have}, which is none here; it is of another architecture"
    if have != want:
        return f"'{name}' has shape {have}, must be {want} for this environment and learner"
    if tensors[name].dtype != wanted[name].dtype:
        return f"'{name}' is of {tensors[name].dtype}, must be {wanted[name].dtype}"
    return ""


def _other_setting(network: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the first of a network's settings that decide its shapes and differ, for the message; or ""."""
    for key in (*(f"{network}.{name}" for name in SHAPING), f"{network}_groups", "symmetry", "several_critics"):
        old, new = before, now
        for part in key.split("."):
            old = old.get(part) if isinstance(old, Mapping) else None
            new = new.get(part) if isinstance(new, Mapping) else None
        if None not in (old, new) and old != new:
            return f"{key}={new}: the checkpoint's network has {old}, give the same; "
    return ""


def sync_directory(path: Path) -> None:
    """Write the names in a directory, or the content of a file, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_part(path: Path, name: str) -> dict[str, Tensor] | None:
    """Return the tensors of a checkpoint's file; None if it is without that file."""
    sums = _read_meta(path)["sha256"]
    return _read_tensors(path / name, sums) if name in sums else None


def _read_tensors(path: Path, sums: Mapping[str, str]) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = _read(path)
    _check_sum(path, hashlib.sha256(content).hexdigest(), sums)
    try:
        return load(content)
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:  # torch knows not every kind
        raise UserError(f"{path}: damaged, no safetensors file ({error})") from None


def _check_sum(path: Path, found: str, sums: Mapping[str, str]) -> None:
    wanted = str(sums.get(path.name))
    if found != wanted:
        raise UserError(f"{path}: damaged, sha256 is {found[:12]}..., must be {wanted[:12]}...")


def _read(path: Path) -> bytes:
    try:
        return read_plain(path, MAX_META if path.name == META else None)
    except FileNotFoundError:
        raise UserError(f"{path}: missing, the checkpoint is not whole") from None


def _read_meta(directory: Path) -> dict[str, Any]:
    """Return a checkpoint's description as stored, "sha256" included."""
    if directory.is_symlink():
        raise UserError(f"checkpoint {directory}: is a link, must be a directory")
    if not directory.is_dir():
        raise UserError(f"checkpoint {directory}: no such directory, must hold {WEIGHTS} and {META}")
    path = directory / META
    try:
        meta = json.loads(_read(path))
        found = _meta_sum({key: value for key, value in dict(meta).items() if key != "sha256"})
    except UserError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: damaged, no JSON ({error})") from None
    if not isinstance(meta, dict) or not isinstance(meta.get("sha256"), dict):
        raise UserError(f"{path}: damaged, has no 'sha256'")
    sums = meta["sha256"]
    if found != sums.get(META):
        raise UserError(f"{path}: damaged, sha256 of its content is {found[:12]}..., must be {sums.get(META)}")
    if strange := [name for name in sums if name != META and not FILES.fullmatch(name)]:
        raise UserError(f"{path}: damaged, '{strange[0][:40]}' is not a file of a checkpoint")
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
