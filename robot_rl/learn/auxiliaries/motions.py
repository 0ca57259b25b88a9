"""Files of recorded motion: frames of an observation group, one control step apart, from which pairs are learned.

The file is safetensors: either "pairs" (P, 2, D), or "frames" (F, D) and "episode_starts" (F,), 1 if a frame is without
predecessor. Its metadata contain "components", the names of the D components as a JSON list, and "step_dt" [s].
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.files import write_atomic


@dataclass(frozen=True, slots=True, kw_only=True)
class Motion:
    """Recorded motion.

    Attributes:
        path: the file.
        pairs: (P, 2, D) successive frames.
        components: names of the D components.
        step_dt: time between the frames of a pair [s].
    """

    path: Path
    pairs: Tensor
    components: tuple[str, ...]
    step_dt: float

    @property
    def digest(self) -> str:
        """SHA-256 of the pairs."""
        return hashlib.sha256(self.pairs.contiguous().numpy().tobytes()).hexdigest()

    def check(self, group: str, components: Sequence[str] | None, size: int, step_dt: float | None) -> None:
        """Raise UserError unless an environment's group has these components and its control step this length.

        Of the environment, `components` are the names of the group's components, `size` their number, and `step_dt` the
        control step [s]; None is unknown.
        """
        mine = self.components
        if len(mine) != size:
            theirs = "" if components is None else f" ({_shown(components)})"
            raise UserError(
                f"amp.motions: {self.path} has {len(mine)} components ({_shown(mine)}), "
                f"group '{group}' of the environment has {size}{theirs}"
            )
        for k, (have, want) in enumerate(zip(mine, components or mine, strict=True)):
            if have != want:
                raise UserError(
                    f"amp.motions: component {k} of {self.path} is '{have}', "
                    f"of the environment's group '{group}' it is '{want}'"
                )
        if step_dt is not None and not math.isclose(step_dt, self.step_dt, rel_tol=1e-6):
            raise UserError(
                f"amp.motions: {self.path} has a frame every {self.step_dt:g} s, "
                f"the environment steps every {step_dt:g} s"
            )


def write_motion(path: Path, frames: Tensor, starts: Tensor, components: Sequence[str], step_dt: float) -> Path:
    """Write frames (F, D), `step_dt` [s] apart, as recorded motion; if that fails, an older file stays.

    `starts` (F,) is true if a frame does not follow the one before it.
    """
    from safetensors.torch import save

    path = Path(path)
    tensors = {"frames": frames.float().cpu().contiguous(), "episode_starts": starts.to(torch.uint8).cpu().contiguous()}
    body = save(tensors, {"components": json.dumps(list(components)), "step_dt": repr(float(step_dt))})
    write_atomic(path, body)
    return path


def read_motion(path: Path) -> Motion:
    """Read a file of recorded motion; raise UserError if it is missing, damaged or without a pair of finite frames."""
    path = Path(path)
    tensors, meta = _read(path)
    pairs = tensors.get("pairs")
    if pairs is None:
        pairs = _pairs(path, tensors)
    pairs = pairs.float()
    if pairs.ndim != 3 or pairs.shape[1] != 2 or not pairs.numel():
        raise UserError(f"amp.motions: {path} has pairs of shape {tuple(pairs.shape)}, must be (P, 2, D), P at least 1")
    if not pairs.isfinite().all():
        raise UserError(f"amp.motions: {path} has frames that are not finite")
    try:
        components, step_dt = json.loads(meta["components"]), float(meta["step_dt"])
    except (KeyError, ValueError, RecursionError):
        components, step_dt = None, math.nan
    if not isinstance(components, list) or not all(isinstance(name, str) for name in components):
        components = None
    if components is None or not 0 < step_dt < math.inf:
        raise UserError(
            f"amp.motions: {path} lacks 'components' (a JSON list of names) and 'step_dt' (above 0) [s] as metadata"
        )
    if len(components) != pairs.shape[2]:
        raise UserError(f"amp.motions: {path} names {len(components)} components, its frames have {pairs.shape[2]}")
    return Motion(path=path, pairs=pairs, components=tuple(components), step_dt=step_dt)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise UserError(f"amp.motions: {path}: no such file, robot-rl record writes one")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except SafetensorError as error:
        raise UserError(f"amp.motions: {path}: damaged, no safetensors file ({error})") from None


def _pairs(path: Path, tensors: dict[str, Tensor]) -> Tensor:
    """Return the pairs (P, 2, D) of frames that follow one another."""
    frames, starts = tensors.get("frames"), tensors.get("episode_starts")
    if frames is None or starts is None or frames.ndim != 2 or starts.shape != frames.shape[:1]:
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        raise UserError(
            f"amp.motions: {path} has {shapes}, must have 'pairs' (P, 2, D), or 'frames' (F, D) and "
            "'episode_starts' (F,)"
        )
    follows = ~starts[1:].bool()
    return torch.stack((frames[:-1][follows], frames[1:][follows]), dim=1)


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{names[0]}, {names[1]} ... {names[-1]}"
