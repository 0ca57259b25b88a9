"""The function that fills one observation group: every term's value on its way from the state to the policy."""

from __future__ import annotations

from robot_rl_envs.fuse.writer import Writer
from robot_rl_envs.task import Observation, ObservationGroup, TorchTerm

GROUP = "observe$"
"""Stands for the name of a group's function until the text's digest is known; no term can be called so."""


def write_group(w: Writer, name: str, group: ObservationGroup) -> None:
    """Write the function of one group; it returns 0 where a value was not finite, else 1."""
    w.add(0, f"def {GROUP}{name}(")
    w.add(1, "s: SceneState, i: int, p: wp.array(dtype=wp.float32), fresh: int,")
    w.add(1, "src: wp.array2d(dtype=wp.float32), dst: wp.array2d(dtype=wp.float32),")
    w.add(0, ") -> int:")
    w.add(1, "v = float(0.0)")
    w.add(1, "good = int(1)")
    for slot in w.layout.groups[name]:
        if isinstance(slot.term, TorchTerm):
            continue
        path = f"observations.{name}.{slot.name}"
        term: Observation = slot.term
        noisy = group.noise and term.noise > 0
        scale = w.layout.param(f"{path}.scale", term.scale)
        clip = w.layout.param(f"{path}.clip", term.clip)
        noise = w.layout.param(f"{path}.noise", term.noise)
        if noisy:
            w.rng(1, path)
        w.add(1, f"for j in range({slot.size}):")
        w.add(2, f"v = {w.call(path, term, 's, i, j')}")
        if noisy:
            w.add(2, f"v = v + {noise} * (2.0 * wp.randf(rng) - 1.0)")
        w.add(2, "if not wp.isfinite(v):")
        w.add(3, "good = 0")
        w.add(2, f"v = wp.clamp(v, -{clip}, {clip}) * {scale}")
        last = slot.offset + (slot.history - 1) * slot.size
        for h in range(slot.history - 1):
            at = slot.offset + h * slot.size
            w.add(2, f"dst[i, {at} + j] = wp.where(fresh == 1, v, src[i, {at + slot.size} + j])")
        w.add(2, f"dst[i, {last} + j] = v")
    w.add(1, "return good")
