"""The files that a command writes: each is checked before the work, and only the same command's files are replaced.

An existing file is recognized by its content: keys of its JSON, or a mark in the format. Files at a run's own places,
such as eval.json, are the run's. Devices and pipes are written to as they are.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.errors import UserError
from robot_rl.files import read_plain

if TYPE_CHECKING:
    from PIL import Image

MAX_JSON, MAX_HEAD, MAX_INDEX = 256 * 2**20, 2**12, 64 * 2**20
"""Bytes read of a JSON file, of the head of a file with a mark, and of a film's index."""
MARK = "robot-rl"
EARLIER_PAGE = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\''
)
"""How earlier pages, without a mark, begin."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A kind of file that a command writes.

    Attributes:
        what: Its name, with the command that writes it.
        is_ours: Whether a file is of this kind; OSError or ValueError mean that it is not.
        endings: The name must have one of these; any where empty.
        streams: Whether it can be written to a device or a pipe.
    """

    what: str
    is_ours: Callable[[Path], bool]
    endings: tuple[str, ...] = ()
    streams: bool = True


def has_keys(*keys: str) -> Callable[[Path], bool]:
    """Return a check for a JSON object with all of these keys."""
    return lambda path: set(keys) <= _object(read_plain(path, MAX_JSON)).keys()


def has_mark(*marks: str) -> Callable[[Path], bool]:
    """Return a check for a file with one of these marks within its first bytes."""
    return lambda path: any(mark.encode() in _head(path) for mark in marks)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_HEAD)


def _object(text: bytes) -> dict[str, object]:
    try:
        value = json.loads(text)
    except RecursionError:
        value = None
    return value if isinstance(value, dict) else {}


def _is_evaluation(path: Path) -> bool:
    value = _object(read_plain(path, MAX_JSON))
    return "episodes" in value and ("torch" in value or "onnx" in value)


def _is_latency(path: Path) -> bool:
    from robot_rl_envs.actuation.latency import FORMAT

    return _object(read_plain(path, MAX_JSON)).get("format") == FORMAT


def _is_excitation(path: Path) -> bool:
    """Return whether it is an .npz with targets and without measurements."""
    import zipfile

    try:
        with zipfile.ZipFile(path) as file:
            names = set(file.namelist())
    except zipfile.BadZipFile:
        return False
    return {"time.npy", "target.npy", "joints.npy"} <= names and "q.npy" not in names


def has_metadata(*keys: str) -> Callable[[Path], bool]:
    """Return a check for safetensors with metadata that have all of these keys."""

    def check(path: Path) -> bool:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            about = _object(file.read(min(size, MAX_HEAD * 256))).get("__metadata__")
        return isinstance(about, dict) and set(keys) <= about.keys()

    return check


def _is_film(path: Path) -> bool:
    """Return whether it is an .mp4 with our mark in its index, the box "moov"."""
    with path.open("rb") as file:
        while len(box := file.read(8)) == 8:
            size = int.from_bytes(box[:4], "big")
            if box[4:] == b"moov":
                return f"{MARK} video".encode() in file.read(min(size, MAX_INDEX))
            if size < 8:  # none, or a length of eight bytes, as of films beyond 4 GB
                return False
            file.seek(size - 8, os.SEEK_CUR)
    return False


def _is_trace(path: Path) -> bool:
    """Return whether it is a trace of torch's profiler, compressed or not."""
    import gzip

    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return b'"schemaVersion"' in file.read(MAX_HEAD)


def _is_usd(path: Path) -> bool:
    from robot_rl_assets.usd import is_ours

    return is_ours(path)


def _is_clip(path: Path) -> bool:
    """Return whether it is an npz of a reference motion."""
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            return {"fps.npy", "joint_pos.npy", "robot.npy"} <= {*archive.namelist()}
    except zipfile.BadZipFile:
        return False


EVALUATION = Kind(what="an evaluation of robot-rl eval", is_ours=_is_evaluation)
DRILL = Kind(what="a file of robot-rl drill", is_ours=has_keys("run", "from", "to", "faults", "machine"))
BENCH = Kind(what="a file of robot-rl bench", is_ours=has_keys("name", "machine", "versions"))
CURVES = Kind(what="a plot of robot-rl bench", is_ours=has_mark(f">{MARK}</text>"))
SESSION = Kind(what="a file of robot-rl sim2sim", is_ours=has_keys("policy", "bundle"))
MOTION = Kind(what="a motion of robot-rl record", is_ours=has_metadata("components", "step_dt"))
CLIP = Kind(what="a motion of robot-rl motion", is_ours=_is_clip, endings=(".npz",))
FILM = Kind(what="a film of robot-rl video", is_ours=_is_film, endings=(".mp4",), streams=False)
PAGE = Kind(
    what="a page of robot-rl",
    is_ours=has_mark(f'<meta name="generator" content="{MARK}">', EARLIER_PAGE),
    endings=(".html",),
)
IMAGE = Kind(what="an image of robot-rl", is_ours=has_mark(f"tEXtSoftware\0{MARK}"), endings=(".png",))
CROSS = Kind(
    what="a table of robot-rl cross", is_ours=has_keys("policies", "engines", "bounds", "cells"), endings=(".json",)
)
IDENTIFIED_FORMAT = "robot_rl.identified"
"""The format of a file of robot-rl identify."""
IDENTIFIED = Kind(
    what="a file of robot-rl identify",
    is_ours=lambda path: _object(read_plain(path, MAX_JSON)).get("format") == IDENTIFIED_FORMAT,
    endings=(".json",),
)
NETWORK = Kind(
    what="a network of robot-rl identify",
    is_ours=has_metadata("actuator_net"),
    endings=(".safetensors",),
    streams=False,
)
EXPLAINED_FORMAT = "robot_rl.explained"
"""The format of a file of robot-rl explain."""
EXPLAINED = Kind(
    what="a file of robot-rl explain",
    is_ours=lambda path: _object(read_plain(path, MAX_JSON)).get("format") == EXPLAINED_FORMAT,
    endings=(".json",),
)
CERTIFICATE_FORMAT = "robot_rl.certificate"
"""The format of a file of robot-rl certify."""
CERTIFICATE = Kind(
    what="a file of robot-rl certify",
    is_ours=lambda path: _object(read_plain(path, MAX_JSON)).get("format") == CERTIFICATE_FORMAT,
    endings=(".json",),
)
EXCITATION = Kind(what="an excitation of robot-rl identify", is_ours=_is_excitation, endings=(".npz",), streams=False)
LATENCY = Kind(what="a file of robot-rl latency", is_ours=_is_latency, endings=(".json",))
PROFILE = Kind(
    what="a file of robot-rl profile",
    is_ours=has_keys("name", "machine", "versions", "parts", "stages"),
    endings=(".json",),
)
TRACE = Kind(what="a trace of robot-rl profile", is_ours=_is_trace, endings=(".json", ".json.gz"), streams=False)
MANIFEST = Kind(what="a file of robot-rl manifest", is_ours=has_mark(f"# Made by:\n# {MARK} manifest"))
WORKFLOW = Kind(what="a workflow of robot-rl flow", is_ours=has_mark(f"# Made by:\n# {MARK} flow"))
USD = Kind(what="a file of robot-rl usd", is_ours=_is_usd, streams=False)


def check_output(key: str, text: str, kind: Kind | None, *, makes_folder: bool = True) -> Path:
    """Check that a file can be written, and that it replaces only a file of the same kind; nothing stays behind.

    Args:
        key: The option that names it.
        text: The file, not empty.
        kind: What will be written; None for a file at a run's own place.
        makes_folder: Whether a missing folder is created with the file.

    Raises:
        UserError: The file could not be written after the work, or something else wrote it.
        OSError: The disk is full.
    """
    word, path = f"{key}={text}", Path(text)
    if kind is not None and kind.endings and not path.name[1:].lower().endswith(kind.endings):
        raise UserError(f"{word}: must end in {' or '.join(kind.endings)}")
    if text.endswith(("/", "/.")) or path.name in ("", "..") or path.is_dir():
        raise UserError(f"{word}: is a folder; name a file in it")
    if path.exists() and not path.is_file():
        mode = path.stat().st_mode
        if (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)) and (kind is None or kind.streams):
            return path
        raise UserError(f"{word}: is not a plain file; name another file")
    if path.is_symlink():
        raise UserError(f"{word}: is a link to {os.readlink(path)}; name that file itself, or remove the link")
    _check_folder(word, path.parent, makes_folder=makes_folder)
    if kind is not None and path.exists() and path.stat().st_size and not _is(kind, path):
        raise UserError(f"{word}: is there already and is not {kind.what}; name another file, or remove it")
    return path


def check_optional(key: str, text: str, kind: Kind, *, makes_folder: bool = True) -> Path | None:
    """Check a file as `check_output` does; return None if none is named."""
    return check_output(key, text, kind, makes_folder=makes_folder) if text else None


def check_outputs(arguments: Sequence[str], kinds: Mapping[str, Kind]) -> None:
    """Check the files that ``key=file`` words name, as `check_output` does, by the key of the file."""
    for word in arguments:
        key, _, text = word.partition("=")
        if text and key in kinds:
            check_output(key, text, kinds[key])


def check_bundle(key: str, text: str) -> Path:
    """Check that a bundle can be written to a directory, and that it replaces only a bundle.

    Raises:
        UserError: No bundle could be written there after the work, or something else is there.
        OSError: The disk is full.
    """
    from robot_rl_deploy.bundle import foreign_content

    word, path = f"{key}={text}", Path(text)
    if found := foreign_content(path):
        raise UserError(f"{word}: {found}; name a new folder, such as {key}=policy, or remove the content")
    _check_folder(word, path.parent)
    return path


def check_folder(key: str, text: str) -> Path:
    """Check that files can be written to a directory, which is created with them; nothing stays behind.

    Raises:
        UserError: They could not be written there after the work.
        OSError: The disk is full.
    """
    _check_folder(f"{key}={text}", Path(text))
    return Path(text)


def save_image(image: Image.Image, path: Path) -> None:
    """Write an image as PNG with our mark, whole or not at all."""
    import io

    from PIL.PngImagePlugin import PngInfo

    from robot_rl.files import write_atomic

    about, stream = PngInfo(), io.BytesIO()
    about.add_text("Software", MARK)
    image.save(stream, format="PNG", optimize=True, pnginfo=about)
    write_atomic(path, stream.getvalue())


def _is(kind: Kind, path: Path) -> bool:
    try:
        return kind.is_ours(path)
    except (OSError, ValueError):
        return False


def _check_folder(word: str, folder: Path, *, makes_folder: bool = True) -> None:
    there = next(above for above in (folder, *folder.parents) if above.exists() or above.is_symlink())
    if not there.is_dir():
        raise UserError(f"{word}: {there} is not a directory")
    if there != folder and not makes_folder:
        raise UserError(f"{word}: there is no folder {folder}")
    try:
        with tempfile.NamedTemporaryFile(dir=there):
            pass
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(f"{word}: cannot be written there ({error.strerror})") from None
