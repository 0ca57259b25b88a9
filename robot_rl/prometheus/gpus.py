"""The GPUs of this machine: use and memory, by NVML or nvidia-smi; none where neither is there."""

from __future__ import annotations

import contextlib
import csv
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

QUERY = ("index", "uuid", "name", "utilization.gpu", "memory.used", "memory.total")
COMMAND_S = 5
"""How long nvidia-smi may take [s]; a scrape waits for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """A GPU now. A value that the driver does not give is None.

    Attributes:
        index: Its number on this machine.
        uuid: Its id, which is the same after a restart.
        name: Its model.
        utilization: Share of the last sampling period in which a kernel ran, 0 to 1.
        memory_used: Memory in use [bytes].
        memory_total: Memory in all [bytes].
    """

    index: int
    uuid: str
    name: str
    utilization: float | None
    memory_used: float | None
    memory_total: float | None


def read_gpus() -> list[Gpu]:
    """Return the GPUs of this machine; none where there is no driver."""
    try:
        import pynvml  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        return _by_command()
    return _by_nvml(pynvml)


def _by_nvml(nvml: Any) -> list[Gpu]:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        return [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:  # A GPU was lost meanwhile.
        return []
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    busy, memory = None, None
    with contextlib.suppress(nvml.NVMLError):
        busy = nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100
    with contextlib.suppress(nvml.NVMLError):
        memory = nvml.nvmlDeviceGetMemoryInfo(device)
    return Gpu(
        index=index,
        uuid=_text(nvml.nvmlDeviceGetUUID(device)),
        name=_text(nvml.nvmlDeviceGetName(device)),
        utilization=busy,
        memory_used=None if memory is None else float(memory.used),
        memory_total=None if memory is None else float(memory.total),
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _by_command() -> list[Gpu]:
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    words = [command, f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_gpus(done.stdout)


def parse_gpus(text: str) -> list[Gpu]:
    """Return the GPUs in nvidia-smi's answer to `QUERY`, CSV without units; other lines are left out."""
    found = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) == len(QUERY) and row[0].isdecimal():
            busy, used, total = (_number(value) for value in row[3:])
            gpu = Gpu(
                index=int(row[0]),
                uuid=row[1],
                name=row[2],
                utilization=None if busy is None else busy / 100,
                memory_used=None if used is None else used * 2**20,
                memory_total=None if total is None else total * 2**20,
            )
            found.append(gpu)
    return found


def _number(text: str) -> float | None:
    """Return a number; None for what nvidia-smi writes where there is none, such as [N/A]."""
    try:
        return float(text)
    except ValueError:
        return None
