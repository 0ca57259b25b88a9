"""A step as lines of a shell script, the same for every cluster, and the folder of a cluster's files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError, suggest
from robot_rl.files import read_json, write_atomic, write_json
from robot_rl.flow.dag import Computer, Flow, Step

SAFE = re.compile(r"[A-Za-z0-9._/-]+")
ABOUT = "flow.json"
"""File of a folder of manifests by which it is recognized."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterCfg:
    """What the user said about a cluster.

    Attributes:
        platforms: Computer -> the partition (Slurm), resource (Ray) or platform (OSMO) that has it.
        image: Container image with robot-rl, where the cluster runs containers.
    """

    platforms: Mapping[str, str] = field(default_factory=dict)
    image: str = ""

    def __post_init__(self) -> None:
        """Raise UserError for a computer that there is not, or a name that would not be one word."""
        for name, platform in self.platforms.items():
            if name not in list(Computer):
                raise UserError(
                    f"platform.{name}={platform}: there is no such computer; {suggest(name, list(Computer))}"
                )
            if not SAFE.fullmatch(platform):
                raise UserError(f"platform.{name}={platform}: must be a name of letters, digits and ._/-")


def check_paths(flow: Flow, target: str, *, relative: bool = False) -> None:
    """Raise UserError for paths that a cluster's scripts cannot name, or that another computer cannot have."""
    for step in flow.steps:
        for output in step.outputs.values():
            if not SAFE.fullmatch(output.path):
                raise UserError(f"{output.path}: for target={target} paths have letters, digits and ._/- only")
            if relative and (Path(output.path).is_absolute() or ".." in Path(output.path).parts):
                raise UserError(
                    f"{output.path}: for target={target} paths are below the flow's directory; give root=runs"
                )


def body(flow: Flow, step: Step, *, prefix: str = "") -> list[str]:
    """Return the lines that run a step and check what it wrote; `prefix` comes before its command."""
    paths = [output.path for output in step.outputs.values()]
    lines = [f"mkdir -p {shlex.join(sorted({str(Path(path).parent) for path in paths}))}"] if paths else []
    command = prefix + shlex.join(flow.words(step))
    if any(step.codes):
        lines.append(f"rm -f {shlex.join(paths)}")
        pattern = "|".join(str(code) for code in step.codes if code)
        command += f' || {{ code=$?; case $code in {pattern}) ;; *) exit "$code" ;; esac; }}'
    lines.append(command)
    for path in paths:
        quoted = shlex.quote(path)
        lines.append(f"test -e {quoted} || {{ echo {shlex.quote(f'{step.name}: did not write {path}')} >&2; exit 1; }}")
    return lines


def numbered(flow: Flow) -> dict[str, str]:
    """Return step -> the name of its script, in the order of the graph."""
    return {step.name: f"{number:02d}_{step.name}.sh" for number, step in enumerate(flow.order(), 1)}


def check_folder(out: str) -> Path:
    """Return the folder for manifests; raise UserError where something else is in it."""
    from robot_rl.experiment.outputs import check_folder as writable

    path = writable("out", out)
    if path.is_dir() and any(path.iterdir()) and not _is_ours(path):
        raise UserError(f"out={out}: has other files in it; name a new folder")
    return path


def _is_ours(path: Path) -> bool:
    try:
        about = read_json(path / ABOUT)
    except (UserError, OSError):
        return False
    return isinstance(about, dict) and {"flow", "target", "files"} <= about.keys()


def write_folder(out: Path, files: Mapping[str, str], about: dict[str, Any]) -> list[Path]:
    """Write manifests; those of an earlier call that are not written again are removed.

    Args:
        out: The folder, from `check_folder`.
        files: Name -> content; scripts become executable.
        about: What flow.json says.
    """
    if (out / ABOUT).is_file():
        for name in read_json(out / ABOUT)["files"]:
            if name not in files and SAFE.fullmatch(str(name)) and "/" not in str(name):
                (out / str(name)).unlink(missing_ok=True)
    for name, content in files.items():
        write_atomic(out / name, content)
        if name.endswith(".sh"):
            (out / name).chmod(0o755)
    write_json(out / ABOUT, {**about, "files": sorted(files)})
    return [out / name for name in files]
