"""A folder of compiled kernels: what `robot-rl compile` writes and `kernels=` takes."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import warp as wp
from robot_rl_envs.headers import start_warp
from robot_rl_envs.launch import BLOCK_THREADS

from robot_rl.errors import UserError
from robot_rl.files import write_json
from robot_rl.performance.chips import Chip
from robot_rl.performance.collect import Variant, collect_kernels
from robot_rl.performance.compiled import CompileError, Resources, as_rows, compile_all

DESCRIPTION = "kernels.json"
FORMAT = "robot-rl kernels 1"
PACKAGES = ("warp-lang", "mujoco-warp")
"""What the kernels are made with: with another version of these they are others."""


def compile_run(
    cfg: Any, chips: Sequence[Chip], folder: Path, *, jobs: int, keep: bool
) -> tuple[list[Resources], float]:
    """Compile the kernels of a run into a folder; return the resources of each, and the seconds that it took.

    Args:
        cfg: the run, with the engine of GPUs on the CPU.
        chips: the chips to compile for.
        folder: the kernel cache.
        jobs: modules that compile at a time.
        keep: describe the folder, for runs.

    Raises:
        UserError: a term that does not compile, by its name.
    """
    start = time.perf_counter()
    envs: list[Any] = []

    def make_env() -> Any:
        envs.append(cfg.make_env())
        return envs[0]

    variants = collect_kernels(make_env)
    progress = _Progress()
    try:
        results = compile_all(variants, chips, folder, jobs=jobs, on_done=progress)
    except CompileError as error:
        raise UserError(_blame(error, [rows.kernels for env in envs for rows in env.crews.values()])) from error
    except UserError:
        raise
    except Exception as error:  # Warp has its own class for each way in which a term cannot be parsed.
        lines = [str(line) for rows in envs[0].crews.values() if (line := rows.blame(error)) is not error]
        if not lines:
            raise
        raise UserError(lines[0]) from None
    finally:
        progress.end()
    if keep:
        write_json(folder / DESCRIPTION, _describe(cfg, folder, chips, results))
    return results, time.perf_counter() - start


def use_cache(folder: Path, device: str) -> None:
    """Take the kernels of a run from a folder, compiled there for this GPU with these packages.

    Raises:
        UserError: the folder holds no kernels, or does not fit.
    """
    word = f"kernels={folder}"
    description = _read(folder)
    for package, version in description["versions"].items():
        if (here := _version(package)) != version:
            raise UserError(f"{word}: was compiled with {package} {version}, here is {here}; compile it again")
    if not device.startswith("cuda"):
        raise UserError(f"{word}: is for a GPU, the run is on device={device}; leave it out")
    start_warp()
    arch = wp.get_device(device).arch
    if arch not in description["archs"]:
        archs = ", ".join(f"sm_{one}" for one in description["archs"])
        raise UserError(f"{word}: was compiled for {archs}, this GPU is sm_{arch}; compile it with arch=sm_{arch}")
    wp.config.kernel_cache_dir = str(folder.resolve())


def check_cache(folder: Path, env: Any) -> None:
    """Raise UserError if the stages of an environment are not in the folder: it was compiled for other settings.

    Several tasks and chips may share a folder.
    """
    device = wp.get_device(env.device)
    chip = f"sm{device.arch}" if device.is_cuda else "*"
    for kernel in env.kernels.stages():
        name = Variant(kernel.module, BLOCK_THREADS).folder
        if not list((folder / name).glob(f"{name}.{chip}.cubin")):
            raise UserError(
                "kernels",
                folder,
                f"was compiled for other settings of the task ({kernel.key} is not there)",
                "compile it again with those of this run",
            )


def _read(folder: Path) -> dict[str, Any]:
    word = f"kernels={folder}"
    try:
        description = json.loads((folder / DESCRIPTION).read_text())
    except (OSError, ValueError):
        raise UserError(f"{word}: has no {DESCRIPTION}; robot-rl compile out={folder} writes one") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise UserError(f"{word}: is of another version of robot-rl; compile it again")
    return description


def _describe(cfg: Any, folder: Path, chips: Sequence[Chip], results: Sequence[Resources]) -> dict[str, Any]:
    """Return the description of a folder; chips that it was compiled for before, with the same packages, stay in it."""
    versions, archs = {package: _version(package) for package in PACKAGES}, {chip.arch for chip in chips}
    with contextlib.suppress(UserError):
        before = _read(folder)
        archs |= set(before["archs"]) if before["versions"] == versions else set()
    return {
        "format": FORMAT,
        "task": cfg.task.name,
        "archs": sorted(archs),
        "versions": versions,
        "kernels": as_rows(results),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def _blame(error: CompileError, kernels: Sequence[Any]) -> str:
    """Return a line about the term that does not compile."""
    paths = (each.path_of(function) for each in kernels for function in error.functions)
    term = next(filter(None, paths), "")
    where = f" in {error.functions[0]}" if error.functions else f" in {error.variant.module.name}"
    return f"{term or 'a kernel'}: does not compile for sm_{error.arch}{where}: {error.reason}"


class _Progress:
    """A line in a terminal with how far the compiler is."""

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, done: int, count: int, name: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{done} of {count} modules compiled  {name[:60]:<60}")
            sys.stderr.flush()
            self._shown = True

    def end(self) -> None:
        if self._shown:
            sys.stderr.write("\r" + " " * 100 + "\r")
            sys.stderr.flush()
