"""Compile every kernel of a task for a GPU that is not here, and list the resources of each.

usage: robot-rl compile task=<name> [arch=sm_90,sm_110] [out=folder] [key=value ...]

{Options}
  any setting of robot-rl train that changes kernels: rewards.*, sensors.*, sim.*, actions.actuator=, ...

No GPU is needed. Compiled are the kernels of the environment (its stages, scans and cameras) and those of the engine
for this robot; the table lists registers, spilled registers, shared memory and the share of a multiprocessor's threads
that can be resident. With out= they stay there as a kernel cache; a run on such a GPU takes it with kernels=<folder>.
"""

import os
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.cli.options import option, read
from robot_rl.cli.table import print_table
from robot_rl.runs.outputs import check_folder

if TYPE_CHECKING:
    from robot_rl.performance.compiled import Resources

WORLDS = 16
"""Worlds that are built to find the kernels; a kernel does not depend on how many there are."""


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl compile."""

    arch: str = option("sm_90", "the chips, such as sm_90 (H100, H200), sm_110 (Jetson Thor) or sm_120 (RTX 5090)")
    out: str = option("", "folder of the kernel cache; without it nothing is kept")
    jobs: int = option(0, "modules that compile at a time; 0 takes all cores", least=0, most=1024)
    all: bool = option(False, "list the engine's kernels one by one")


def run(arguments: Sequence[str]) -> int:
    """Compile, print the table, and write the cache's description."""
    from robot_rl.cli.compose import missing_task
    from robot_rl.performance.chips import read_archs
    from robot_rl.runs.inputs import resolve_inputs
    from robot_rl.runs.settings import resolve_for_gpu

    options, changes = read(Options, arguments, every=True)
    chips = read_archs(options.arch)
    folder = check_folder("out", options.out) if options.out else None
    if "task" not in changes:
        raise missing_task()
    cfg = resolve_inputs(resolve_for_gpu(changes, "compile", num_envs=WORLDS))
    from robot_rl.performance.cache import compile_run

    with nullcontext(str(folder)) if folder else tempfile.TemporaryDirectory() as name:
        results, seconds = compile_run(
            cfg, chips, Path(name), jobs=options.jobs or os.cpu_count() or 1, keep=folder is not None
        )
    for chip in chips:
        of_chip = [one for one in results if one.arch == chip.arch]
        show(of_chip, f"{cfg.task.name} for sm_{chip.arch} ({chip.example})", all_kernels=options.all)
    print(f"compiled in {seconds:.0f} s")
    if folder is not None:
        print(f"{folder}: a run on such a GPU takes it with kernels={folder}")
    return 0


def show(results: "Sequence[Resources]", title: str, *, all_kernels: bool) -> None:
    """Print the kernels of the environment, and those of the engine in one line, or one by one."""
    own = [one for one in results if not one.is_engine]
    engine = [one for one in results if one.is_engine]
    rows = [_row(one) for one in (results if all_kernels else own)]
    if engine and not all_kernels:
        modules = {one.module: one.seconds for one in engine}
        rows.append(
            (
                f"{len(engine)} of the engine (all=true)",
                "",
                f"{max(one.registers for one in engine)} at most",
                f"{sum(one.spills > 0 for one in engine)} with some",
                f"{max(one.shared for one in engine):,} at most",
                f"{min(one.occupancy for one in engine):.0%} at least",
                f"{sum(modules.values()):.1f}",
            )
        )
    head = (title, "threads", "registers", "spills", "shared B", "occupancy", "s")
    print_table(head, rows, right=(1, 2, 3, 4, 5, 6), least=100)


def _row(one: "Resources") -> tuple[str, ...]:
    figures = (one.threads, one.registers, one.spills, f"{one.shared:,}", f"{one.occupancy:.0%}", f"{one.seconds:.1f}")
    return (one.name, *map(str, figures))
