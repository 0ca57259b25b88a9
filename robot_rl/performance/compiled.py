"""Compile the kernels of a run for chips that are not here, and read the resources they need from the result.

Warp's own compiler (NVRTC) needs no driver. Registers and memory are read with NVIDIA's `cuobjdump`; a register that
had to be spilled is a load from the stack at a fixed place, which `nvdisasm` shows.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warp as wp

from robot_rl.errors import UserError
from robot_rl.performance.chips import Chip, occupancy
from robot_rl.performance.collect import Variant

TOOLS = {"cuobjdump": "nvidia-cuda-cuobjdump", "nvdisasm": "nvidia-cuda-nvdisasm"}
_USAGE = re.compile(r"Function (\S+?):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_RELOAD = re.compile(r"\bLDL\S* R\d+, \[R1(?:\+0x[0-9a-f]+)?\]")
_DEFINITION = re.compile(r"(?:static )?(?:WP_\w+ )*CUDA_CALLABLE \S+ (\w+_\d+)\($")
_SUFFIX = "_cuda_kernel_forward"


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that a kernel needs on a chip.

    Attributes:
        name: the kernel's name, as it was written.
        module: the Warp module that it is compiled with.
        arch: compute capability that it was compiled for.
        threads: threads of a block.
        registers: registers of a thread.
        spills: places in the code that load a spilled register again.
        stack: bytes of stack of a thread, spilled registers among them.
        shared: bytes of shared memory of a block.
        occupancy: share of a multiprocessor's warps that can be resident.
        seconds: seconds that its module took to compile.
        is_engine: whether it is a kernel of the engine, not of the environment.
    """

    name: str
    module: str
    arch: int
    threads: int
    registers: int
    spills: int
    stack: int
    shared: int
    occupancy: float
    seconds: float
    is_engine: bool


class CompileError(Exception):
    """A module that does not compile for a chip.

    Attributes:
        variant: the module.
        functions: the Warp function in which the compiler stopped, and after it those that call it; empty if unknown.
        reason: the compiler's first error.
    """

    def __init__(self, variant: Variant, arch: int, functions: Sequence[str], reason: str) -> None:
        super().__init__(f"{variant.module.name} for sm_{arch}: {reason}")
        self.variant, self.arch, self.functions, self.reason = variant, arch, functions, reason


def find_tool(name: str) -> str:
    """Return the path of one of NVIDIA's tools, from its package.

    Raises:
        UserError: the package is not installed.
    """
    try:
        files = importlib.metadata.files(TOOLS[name]) or []
    except importlib.metadata.PackageNotFoundError:
        raise UserError(f"{name} is missing; pip install 'robot-rl[compile]'") from None
    path = next((Path(str(file.locate())) for file in files if file.name == name), None)
    if path is None:
        raise UserError(f"{name} is not in the package {TOOLS[name]}; pip install --force-reinstall {TOOLS[name]}")
    return str(path)


def compile_all(
    variants: Sequence[Variant],
    chips: Sequence[Chip],
    folder: Path,
    *,
    jobs: int,
    on_done: Callable[[int, int, str], None] = lambda done, count, name: None,
) -> list[Resources]:
    """Compile modules for chips into a kernel cache, side by side, and return the resources of every launched kernel.

    Args:
        variants: the modules to compile.
        chips: the chips to compile for.
        folder: the cache; modules that it already has are not compiled again.
        jobs: modules that compile at a time.
        on_done: called with how many of how many are done, and the name of the last.

    Raises:
        CompileError: a module does not compile.
        UserError: a chip that Warp's compiler does not know, or NVIDIA's tools are missing.
    """
    tools = {name: find_tool(name) for name in TOOLS}
    known = wp.get_cuda_supported_archs()
    for chip in chips:
        if chip.arch not in known:
            raise UserError(f"arch=sm_{chip.arch}: Warp's compiler knows {', '.join(f'sm_{arch}' for arch in known)}")
    results: list[Resources] = []
    tasks = [(variant, chip) for chip in chips for variant in variants]
    with _stderr_kept() as log, ThreadPoolExecutor(jobs, "robot-rl-compile") as pool:
        futures = {pool.submit(_compile, variant, chip, folder): (variant, chip) for variant, chip in tasks}
        try:
            for done, future in enumerate(as_completed(futures), 1):
                variant, chip = futures[future]
                try:
                    path, seconds = future.result()
                except Exception as error:
                    raise _explain(variant, chip, error, log(), folder) from None
                results += _read(variant, chip, path, seconds, tools)
                on_done(done, len(tasks), variant.module.name)
        except BaseException:  # Also Ctrl-C: running compilations are waited for, the rest is not begun.
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    order = {id(variant): k for k, variant in enumerate(variants)}
    names = {variant.folder: order[id(variant)] for variant in variants}
    return sorted(results, key=lambda one: (one.arch, names[one.module]))


def _compile(variant: Variant, chip: Chip, folder: Path) -> tuple[Path, float]:
    start = time.perf_counter()
    module = variant.module
    options = module.resolve_options(wp.config, block_dim=variant.threads)
    module.get_module_hash(variant.threads)
    target = folder / variant.folder
    module._compile(None, output_dir=target, output_arch=chip.arch, use_ptx=False, options=options)
    return target / f"{variant.folder}.sm{chip.arch}.cubin", time.perf_counter() - start


def _read(variant: Variant, chip: Chip, path: Path, seconds: float, tools: dict[str, str]) -> Iterator[Resources]:
    """Yield the resources of the launched kernels of a compiled module."""
    usage = _output(tools["cuobjdump"], "--dump-resource-usage", str(path))
    spills: dict[str, int] = {}
    found = {match[1].removesuffix(_SUFFIX): [int(match[k]) for k in range(2, 5)] for match in _USAGE.finditer(usage)}
    for kernel in variant.kernels:
        hashed = variant.module.hashers[variant.threads].kernel_hashes[kernel]
        name = kernel.get_mangled_name(kernel_hash=hashed)
        registers, stack, shared = found[name]
        if stack and not spills:
            spills = _count_reloads(_output(tools["nvdisasm"], "-c", str(path)))
        yield Resources(
            name=kernel.key.replace("__locals__kernel", "").replace("__locals_", ""),
            module=variant.folder,
            arch=chip.arch,
            threads=variant.threads,
            registers=registers,
            spills=spills.get(name, 0),
            stack=stack,
            shared=shared,
            occupancy=occupancy(chip, threads=variant.threads, registers=registers, shared=shared),
            seconds=round(seconds, 2),
            is_engine=str(kernel.func.__module__).startswith("mujoco_warp"),
        )


def _count_reloads(assembly: str) -> dict[str, int]:
    """Return by kernel how many instructions load a register that was spilled."""
    counts: dict[str, int] = {}
    name = ""
    for line in assembly.splitlines():
        if line.startswith(".text."):
            name = line.removeprefix(".text.").rstrip(": ").removesuffix(_SUFFIX)
        elif _RELOAD.search(line):
            counts[name] = counts.get(name, 0) + 1
    return counts


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextmanager
def _stderr_kept() -> Iterator[Callable[[], str]]:
    """Keep the compiler's output to stderr, past Python's own; yield a function that returns it."""
    sys.stderr.flush()
    own = os.dup(2)
    with tempfile.TemporaryFile() as kept, os.fdopen(os.dup(own), "w", buffering=1) as still, redirect_stderr(still):
        os.dup2(kept.fileno(), 2)

        def text() -> str:
            kept.seek(0)
            return kept.read().decode(errors="replace")

        try:
            yield text
        finally:
            os.dup2(own, 2)
            os.close(own)


def _explain(variant: Variant, chip: Chip, error: Exception, log: str, folder: Path) -> Exception:
    """Return the compiler's first error with the Warp function in which it is; Warp's own errors as they are."""
    if "CUDA kernel build failed" not in str(error):
        return error
    found = re.search(rf"{re.escape(variant.folder)}\.cu\((\d+)\): (?:catastrophic )?error: (.*)", log)
    if found is None:
        return CompileError(variant, chip.arch, (), str(error).splitlines()[0])
    sources = sorted(folder.glob(f"{variant.folder}*/{variant.folder}.cu"))
    functions = _callers(sources[-1].read_text().splitlines(), int(found[1])) if sources else ()
    return CompileError(variant, chip.arch, functions, found[2].strip())


def _callers(lines: Sequence[str], at: int) -> list[str]:
    """Return the Warp function that line `at` of CUDA code is in, then the first that calls it, and so on."""
    functions: list[str] = []
    name = _enclosing(lines, at)
    while name and name not in functions:
        functions.append(name)
        call = next((k for k, line in enumerate(lines, 1) if f" {name}(" in line and not _DEFINITION.match(line)), 0)
        name = _enclosing(lines, call)
    return [function.rpartition("_")[0] for function in functions]


def _enclosing(lines: Sequence[str], at: int) -> str:
    for line in reversed(lines[:at]):
        if found := _DEFINITION.match(line):
            return found[1]
    return ""


def as_rows(results: Sequence[Resources]) -> list[dict[str, Any]]:
    """Return the results as JSON-able rows."""
    return [{field: getattr(one, field) for field in Resources.__dataclass_fields__} for one in results]
