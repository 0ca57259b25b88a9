"""What a figure depends on besides the code: versions of packages, the commit, the machine."""

import contextlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    *("robot-rl", "torch", "tensordict", "mujoco", "mujoco-warp", "warp-lang", "rsl-rl-lib", "numpy", "hydra-core"),
    *("gymnasium", "onnx", "onnxruntime", "safetensors"),
)


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a run's numbers depend on."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def git_state() -> dict[str, Any]:
    """Return the commit of the source tree of this package, and whether it was changed since; empty without one."""
    source = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=source, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != source.parent:
            return {}
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return {}


def memory_bytes(device: str = "cpu") -> int | None:
    """Return the memory [bytes] of the machine or of a GPU ("cuda" or "cuda:<index>"); None if it is not known."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_properties(device).total_memory
    if device == "cpu" and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def machine_facts() -> dict[str, Any]:
    """Return the facts that a run's speed depends on: system, processor, cores, memory [GiB] and torch's GPU."""
    import torch

    facts: dict[str, Any] = {"system": platform.platform(), "cpu": cpu_name(), "cores": os.cpu_count()}
    if (memory := memory_bytes()) is not None:
        facts["memory_gib"] = round(memory / 2**30, 1)
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def count_cores() -> int:
    """Return the number of cores that this process may use; without Linux that of the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name() -> str:
    """Return the processor's model, or its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
