"""Start Warp, with one precompiled header for every thread and process that compiles kernels for this CPU.

Warp 1.19 parses its native headers again in each thread: `Runtime._get_or_create_pch_dir` makes a directory per thread.
That is nine tenths of the time of a kernel of one line, and `Kernels.load` compiles each stage in its own thread.
No header depends on the thread; the directories only keep a thread from a header that another one has half written. A
header that is written elsewhere and renamed cannot be read half. So a change to Warp itself would be the same as here:
one directory in the kernel cache, and a build that first makes sure that the header for its options is there.

Both functions that are replaced are private. If a version of Warp lacks them, or the directory cannot be written,
kernels compile as Warp does it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import warp as wp

EMPTY = b'#include "builtin.h"\n'
"""A source that compiles to nothing, after its header has been parsed."""
VARIES = ("obj_path", "cpp_path", "verbose", "pch_dir")
"""Arguments of a build of which the header does not depend."""


class SharedHeaders:
    """Replacement of Warp's per-thread directories by one directory of complete headers.

    Attributes:
        folder: folder of the headers, in a kernel cache for one version of Warp and one kind of CPU.
    """

    def __init__(self, build: Callable[..., None], folder: Path) -> None:
        """Keep ``build``, Warp's own function that compiles a CPU module, and create the folder.

        Raises:
            OSError: the folder cannot be written.
        """
        self.folder = folder
        self._build = build
        self._locks: dict[str, threading.Lock] = {}
        self._made: set[str] = set()
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(f"{folder} cannot be written")

    def build(self, obj_path: str, cpp_path: str, **options: Any) -> None:
        """Compile a module for the CPU as Warp does, with the header for its options."""
        if options.get("use_precompiled_headers") and options.get("pch_dir") == str(self.folder):
            key = repr(sorted((name, value) for name, value in options.items() if name not in VARIES))
            key = hashlib.sha256(key.encode()).hexdigest()[:16]
            with self._lock:
                lock = self._locks.setdefault(key, threading.Lock())
            with lock:  # The other threads that need the same header wait for it; none parses it itself.
                if key not in self._made:
                    with contextlib.suppress(OSError):  # A full disk or a removed cache: Warp does without.
                        self._make(key, options)
                    self._made.add(key)
        self._build(obj_path, cpp_path, **options)

    def _make(self, key: str, options: dict[str, Any]) -> None:
        """Write the header for some options, complete at once, unless it is there."""
        listing = self.folder / f"{key}.txt"  # Warp names its headers itself.
        if listing.exists() and all((self.folder / name).exists() for name in listing.read_text().split()):
            return
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            source = Path(name) / "empty.cpp"
            source.write_bytes(EMPTY)
            self._build(str(source.with_suffix(".o")), str(source), **{**options, "pch_dir": name})
            headers = [header.replace(self.folder / header.name) for header in Path(name).glob("*.pch")]
        listing.write_text("\n".join(header.name for header in headers))


def start_warp() -> None:
    """Initialize Warp without its banner and without its line on stderr about a missing GPU; share its header."""
    wp.config.log_level = max(wp.config.log_level, wp.LOG_WARNING)
    if torch.cuda.is_available():
        wp.init()
    else:
        sys.stderr.flush()
        stderr = os.dup(2)
        try:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 2)
                wp.init()
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
    share_headers()


def headers_folder() -> Path:
    """Return where headers lie: in the kernel cache, for this Warp as it is installed here and this kind of CPU."""
    native = Path(wp.__file__).parent / "native" / "builtin.h"
    stat = native.stat()
    text = f"{native} {stat.st_mtime_ns} {stat.st_size} {wp.get_cpu_kernel_cache_key()}"
    return Path(str(wp.config.kernel_cache_dir)) / f"headers_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@functools.cache
def share_headers() -> SharedHeaders | None:
    """Let all threads and processes compile with one header; return None where Warp's own way has to do.

    Warp is initialized before. A second call does nothing.
    """
    from warp._src import build, context

    runtime: Any = context.runtime
    has_names = hasattr(runtime, "get_clang_pch_dir") and hasattr(wp, "get_cpu_kernel_cache_key")  # Not Warp 1.17.
    if not has_names or getattr(runtime, "llvm", None) is None:
        return None
    try:
        shared = SharedHeaders(build.build_cpu, headers_folder())
    except (OSError, RuntimeError):
        return None
    build.build_cpu = shared.build
    runtime.get_clang_pch_dir = lambda: str(shared.folder)
    return shared
