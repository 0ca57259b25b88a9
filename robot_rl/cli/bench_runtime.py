"""robot-rl bench runtime: how fast the robot's binary is."""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.cli.options import MAX_COUNT, option, read_all
from robot_rl.errors import UserError

G1 = "unitree_g1"


@dataclass(kw_only=True, slots=True)
class RuntimeOptions:
    """Options of robot-rl bench runtime."""

    policy: str = option("", "a bundle; by default a made-up one, 98 -> 3 x 512 -> 29, over dds with a G1's joints")
    transports: str = option("udp,shm,dds", "what to measure; dds where the runtime was built with it")
    seconds: float = option(20.0, "how long to measure each [s]")
    kills: int = option(5, "how often the binary is killed", least=0, most=MAX_COUNT)
    out: str = option("", "file for the figures as JSON")


def bench_runtime(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Measures the binary; returns the result and where to write it."""
    from robot_rl.bench import runtime
    from robot_rl.experiment.policies import find_bundle
    from robot_rl.sim2sim.binary import load_runtime

    options = read_all(RuntimeOptions, arguments)
    names = [name for name in options.transports.split(",") if name]
    for name in names:
        if name not in ("udp", "shm", "dds"):
            raise UserError(f"transports={options.transports}: '{name}' must be one of udp, shm, dds")
    if not 0 < options.seconds <= 3600:
        raise UserError(f"seconds={options.seconds:g}: must lie in (0, 3600]")
    has_dds = "dds" in names and load_runtime().has_dds()
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = Path(scratch)
        bundle = find_bundle(options.policy) if options.policy else _made_up(folder / "policy")
        result = runtime.bench_runtime(
            bundle,
            folder,
            transports=[name for name in names if name != "dds"],
            dds_bundle=_for_dds(bundle, folder) if has_dds else None,
            seconds=options.seconds,
            kills=options.kills,
            say=lambda line: print(f"robot-rl: {line} ...", file=sys.stderr, flush=True),
        )
    return result, options.out


def _made_up(folder: Path, **robot: Any) -> Path:
    from robot_rl_deploy.synthetic import write_synthetic_bundle

    write_synthetic_bundle(folder, **robot)
    return folder


def _for_dds(bundle: Path, folder: Path) -> Path:
    """The bundle where it is of a robot that Unitree's messages know, else a made-up one with a G1's joints."""
    from robot_rl_deploy.bundle import read_bundle

    from robot_rl.sim2sim.binary import load_runtime

    runtime = load_runtime()
    try:
        runtime.unitree_family(read_bundle(bundle).contract.robot)
    except runtime.UserError:
        joints = [name for name in runtime.unitree_motors(G1) if name]
        return _made_up(folder / "policy-g1", robot=G1, joints=joints)
    return bundle


def show(result: Mapping[str, Any]) -> None:
    """Prints each figure against its goal."""
    from robot_rl.bench.runtime import judge

    for line in judge(dict(result)):
        print(line)
