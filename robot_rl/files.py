"""Files: read so that no content can stop the program or lead it elsewhere, and written whole or not at all."""

import errno
import json
import math
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError

MAX_VALUES, MAX_DEPTH, MAX_DIGITS = 100_000, 60, 300


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a plain file and return its descriptor, without waiting for a pipe, following a link or inheriting it.

    Raises:
        FileNotFoundError: There is none.
        UserError: It is a link, a directory, a pipe or a device.
        OSError: It cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(f"{path}: is a link, must be a plain file") from None
        if error.errno in (errno.EISDIR, errno.ENXIO):  # The second: a socket, or a device that is not there.
            raise UserError(f"{path}: is a directory or device, must be a plain file") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UserError(f"{path}: is a directory or device, must be a plain file")
    return descriptor


def read_plain(path: Path, most: int | None = None) -> bytes:
    """Read a plain file of at most `most` bytes, as `open_plain` opens it.

    Raises:
        FileNotFoundError: There is none.
        UserError: It is a link, a directory or a device, too large, or cannot be read.
    """
    try:
        descriptor = open_plain(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({(error.strerror or str(error)).lower()})") from None
    try:
        status = os.fstat(descriptor)
        if most is not None and status.st_size > most:
            raise UserError(f"{path}: has {status.st_size} bytes, {most} are the most")
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({(error.strerror or str(error)).lower()})") from None
    finally:
        os.close(descriptor)


def read_json(path: Path, most: int | None = None) -> Any:
    """Read a plain file of JSON, or the target of a link; raise UserError if it cannot be read or is damaged."""
    try:
        return json.loads(read_plain(path.resolve(), most).decode())
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({(error.strerror or str(error)).lower()})") from None
    except RecursionError:
        raise UserError(f"{path}: damaged, its JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: damaged, line {error.lineno} is not JSON") from None
    except ValueError as error:  # no UTF-8, or a number of too many digits
        raise UserError(f"{path}: damaged, {error}") from None


def read_yaml(text: str, build: Callable[[Any], Any] | None = None) -> Any:
    """Parse one document of YAML: lists and dicts of numbers, words, flags, dates and None; None for an empty one.

    Refused are small texts that expand without end, by aliases of aliases and merged keys, and a key that a group has
    twice, since the second would silently replace the first.

    Args:
        text: The document.
        build: Makes the result of the checked node of PyYAML; by default as YAML's own rules say.

    Raises:
        ValueError: It is not YAML, has more than `MAX_VALUES` values, is nested deeper than `MAX_DEPTH`, or has a key
            twice; one line.
    """
    import yaml

    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _count(node, {}, MAX_DEPTH)
            return loader.construct_document(node) if build is None else build(node)
        finally:
            loader.dispose()
    except Exception as error:  # PyYAML passes on the errors of its constructors, such as for the 45th of May
        line = " ".join(str(error).replace(' in "<unicode string>",', " in").split()) or type(error).__name__
        raise ValueError(line) from None


def _count(node: Any, known: dict[int, int], depth: int) -> int:
    """Return the number of values of a YAML node; an alias counts each time."""
    if depth == 0:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if node.tag == "tag:yaml.org,2002:int" and len(node.value) > MAX_DIGITS:
        raise ValueError(f"a number of more than {MAX_DIGITS} digits")
    if id(node) not in known:
        parts = node.value if isinstance(node.value, list) else []
        total, keys = 1, set()
        for part in parts:
            if isinstance(part, tuple) and isinstance(part[0].value, str):
                if part[0].value in keys:
                    line = part[0].start_mark.line + 1
                    raise ValueError(f"the key '{part[0].value[:80]}' is there twice, again in line {line}")
                keys.add(part[0].value)
            for item in part if isinstance(part, tuple) else (part,):
                if item.tag == "tag:yaml.org,2002:merge":
                    raise ValueError("merged keys (<<) are not read")
                total += _count(item, known, depth - 1)
        known[id(node)] = total
    if known[id(node)] > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES} values")
    return known[id(node)]


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all: a temporary file, synced, then renamed. Devices are written directly.

    Raises:
        OSError: The file cannot be written; the previous content is unchanged.
    """
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
        with path.open("wb") as stream:
            stream.write(data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def finite(value: Any) -> Any:
    """Return a tree of plain values with None for numbers that are not finite, which JSON does not have."""
    if isinstance(value, Mapping):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, whole or not at all."""
    write_atomic(path, json.dumps(value, indent=2) + "\n")
