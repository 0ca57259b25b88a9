"""The GPUs of this machine: use and memory, by nvidia-smi; none if it is missing."""

from __future__ import annotations

import csv
import subprocess
from dataclasses import dataclass

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
    """Return the GPUs of this machine; none without a driver."""
    words = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_gpus(done.stdout)


def parse_gpus(text: str) -> list[Gpu]:
    """Return the GPUs in nvidia-smi's answer to `QUERY`, CSV without units; other lines are omitted."""
    return [
        Gpu(
            index=int(row[0]),
            uuid=row[1],
            name=row[2],
            utilization=_number(row[3], 100),
            memory_used=_number(row[4], 2**-20),
            memory_total=_number(row[5], 2**-20),
        )
        for row in csv.reader(text.splitlines(), skipinitialspace=True)
        if len(row) == len(QUERY) and row[0].isdecimal()
    ]


def _number(text: str, divisor: float) -> float | None:
    """Return a number divided by another; None for nvidia-smi's text for a missing value, such as [N/A]."""
    try:
        return float(text) / divisor
    except ValueError:
        return None
