"""The function that fills one observation group: every term's value on its way from the state to the policy.

A value gets its sensor's bias and noise, waits in a ring until the world's own delay is over, may get lost, and is
clipped, scaled and put at the end of its history. A term that uses none of it has no text for it. What a sensor
remembers is in ``s.pipe_<group>``. With ``fresh`` an episode starts: everything is drawn and the ring filled with the
first value. A world that is done is observed twice: in the state it ended in, and after the reset.
"""

from __future__ import annotations

from robot_rl_envs.fuse.layout import ObservationSlot, Writer
from robot_rl_envs.sensing.pipeline import Pipe
from robot_rl_envs.task import Observation, ObservationGroup, TorchTerm

GROUP = "observe$"
"""Stands for the name of a group's function until the text's digest is known; no term can be called so."""


def write_group(w: Writer, name: str, group: ObservationGroup) -> None:
    """Write the function of one group; it returns 1, or for a value that is not finite -k, k its term's index."""
    w.add(0, f"def {GROUP}{name}(")
    w.add(1, "s: SceneState, i: int, p: wp.array(dtype=wp.float32), fresh: int,")
    w.add(1, "src: wp.array2d(dtype=wp.float32), dst: wp.array2d(dtype=wp.float32),")
    w.add(0, ") -> int:")
    w.add(1, "v = float(0.0)", "odd = float(0.0)", "good = int(1)")
    for slot in w.layout.groups[name]:
        if not isinstance(slot.term, TorchTerm):
            _write_term(w, name, slot, group, Memory(name))
            w.add(1, "if good == 1 and not wp.isfinite(odd):")
            w.add(2, f"good = -{w.layout.observations.index(f'{name}.{slot.name}')}")
    w.add(1, "return good")


def write_onward(w: Writer, name: str, group: ObservationGroup) -> None:
    """Write the function of one group for a state s that follows on one with the struct ``a``, in the same episode.

    Each number is written once, since Warp's adjoint of a number that is overwritten counts it twice.
    """
    w.add(0, f"def {GROUP}{name}(a: SceneState, s: SceneState, i: int, p: wp.array(dtype=wp.float32),")
    w.add(1, "src: wp.array2d(dtype=wp.float32), dst: wp.array2d(dtype=wp.float32)):")
    w.add(1, "fresh = int(0)", "v = float(0.0)")
    for slot in w.layout.groups[name]:
        if not isinstance(slot.term, TorchTerm):
            _write_term(w, name, slot, group, Memory(name, is_onward=True))


class Memory:
    """The arrays that a group's terms read and write.

    Attributes:
        now: what sensors remember.
        before: what they remembered before; empty where it is the same array.
        is_checked: whether values that are not finite are looked for.
    """

    def __init__(self, name: str, *, is_onward: bool = False) -> None:
        self.now, self.before = f"s.pipe_{name}", f"a.pipe_{name}" if is_onward else ""
        self.is_checked = not is_onward


def _write_term(w: Writer, name: str, slot: ObservationSlot, group: ObservationGroup, memory: Memory) -> None:
    path = f"observations.{name}.{slot.name}"
    term: Observation = slot.term
    noisy = group.noise and term.noise > 0
    scale = w.layout.param(f"{path}.scale", term.scale)
    clip = w.layout.param(f"{path}.clip", term.clip)
    noise = w.layout.param(f"{path}.noise", 0.0 if slot.muted else term.noise)
    pipe = slot.pipe or Pipe()
    _write_draws(w, path, slot, pipe, memory)
    if noisy:
        w.rng(1, path)
    if memory.is_checked:
        w.add(1, "odd = float(0.0)")
    w.add(1, f"for j in range({slot.size}):")
    clean = term.info.source.clean
    value = w.call(path, term, "s, i, j", None if group.noise else clean)
    w.add(2, f"v = {value}")
    if group.noise and clean is not None:
        muted = w.layout.param(f"observations.{name}.muted", float(slot.muted))
        w.add(2, f"if {muted} == 1.0:", f"    v = {w.call(path, term, 's, i, j', clean, 'clean')}")
    if name == "actor" and term.measured:
        w.add(2, f"s.measured[i, {w.layout.measured[term.measured][0]} + j] = v")
    if pipe.bias >= 0:
        w.add(2, f"v = v + {memory.now}[i, {pipe.bias} + j]")
    if noisy:
        draw = "wp.randn(rng)" if term.noise_kind == "gaussian" else "(2.0 * wp.randf(rng) - 1.0)"
        w.add(2, f"v = v + {noise} * {draw}")
    if memory.is_checked:
        # Zero for a number, NaN for what is none: one test a term, a third of the cost of one an element.
        w.add(2, "odd = odd + (v - v)")
    _write_passage(w, slot, pipe, memory)
    w.add(2, f"v = wp.clamp(v, -{clip}, {clip}) * {scale}")
    last = slot.offset + (slot.history - 1) * slot.size
    for h in range(slot.history - 1):
        at = slot.offset + h * slot.size
        w.add(2, f"dst[i, {at} + j] = wp.where(fresh == 1, v, src[i, {at + slot.size} + j])")
    w.add(2, f"dst[i, {last} + j] = v")


def _write_draws(w: Writer, path: str, slot: ObservationSlot, pipe: Pipe, memory: Memory) -> None:
    """Write what is drawn before the elements: bias and its walk, the delay, whether this step's value is lost."""
    term: Observation = slot.term
    factor, q, before = 0.0 if slot.muted else 1.0, memory.now, memory.before
    if pipe.bias >= 0:
        _write_bias(w, path, slot, pipe, memory)
    if pipe.ring >= 0:
        if before:
            w.add(1, f"{q}[i, {pipe.lag}] = {before}[i, {pipe.lag}]")
        else:
            lo, hi = (w.layout.param(f"{path}.delay_s.{n}", factor * value) for n, value in enumerate(term.delay_s))
            w.add(1, "if fresh == 1:")
            w.rng(2, f"{path}.delay_s")
            steps = f"wp.floor(({lo} + ({hi} - {lo}) * wp.randf(rng)) / s.step_dt + 0.5)"
            w.add(2, f"{q}[i, {pipe.lag}] = wp.clamp({steps}, 0.0, {float(pipe.depth - 1)})")
        # The ring advances by one place a step; the place to read is as many behind as the delay has steps.
        w.add(1, f"newest = s.step_count[i] % {pipe.depth}")
        w.add(1, f"arriving = (newest + {pipe.depth} - int({q}[i, {pipe.lag}])) % {pipe.depth}")
    if pipe.held >= 0:
        dropout = w.layout.param(f"{path}.dropout", factor * term.dropout)
        w.rng(1, f"{path}.dropout")
        w.add(1, f"arrived = wp.where(wp.randf(rng) < {dropout}, fresh, 1)")


def _write_bias(w: Writer, path: str, slot: ObservationSlot, pipe: Pipe, memory: Memory) -> None:
    """Write a bias and its random walk."""
    term: Observation = slot.term
    factor, q, before = 0.0 if slot.muted else 1.0, memory.now, memory.before
    value = f"{before or q}[i, {pipe.bias} + j]"
    if not before:
        bias = w.layout.param(f"{path}.bias", factor * term.bias)
        w.add(1, "if fresh == 1:")
        w.rng(2, f"{path}.bias")
        w.add(2, f"for j in range({slot.size}):")
        w.add(3, f"{q}[i, {pipe.bias} + j] = {bias} * (2.0 * wp.randf(rng) - 1.0)")
    if term.drift > 0:
        drift = w.layout.param(f"{path}.drift", factor * term.drift)
        w.add(1, "if fresh == 0:")
        w.rng(2, f"{path}.drift")
        w.add(2, f"for j in range({slot.size}):")
        walked = f"{drift} * wp.sqrt(s.step_dt) * wp.randn(rng)"
        w.add(3, f"{q}[i, {pipe.bias} + j] = {value} + {walked}")
    elif before:
        w.add(1, f"for j in range({slot.size}):", f"    {q}[i, {pipe.bias} + j] = {value}")


def _write_passage(w: Writer, slot: ObservationSlot, pipe: Pipe, memory: Memory) -> None:
    """Write the way of one element through the ring and the dropout."""
    q, before = memory.now, memory.before
    if pipe.ring >= 0:
        place = f"[i, {pipe.ring} + k * {slot.size} + j]"
        if before:
            w.add(2, f"for k in range({pipe.depth}):", f"    {q}{place} = wp.where(k == newest, v, {before}{place})")
        else:
            w.add(2, "if fresh == 1:")
            w.add(3, f"for k in range({pipe.depth}):")
            w.add(4, f"{q}{place} = v")
            w.add(2, f"{q}[i, {pipe.ring} + newest * {slot.size} + j] = v")
        w.add(2, f"v = {q}[i, {pipe.ring} + arriving * {slot.size} + j]")
    if pipe.held >= 0:
        kept = f"[i, {pipe.held} + j]"
        if before:
            w.add(2, f"{q}{kept} = wp.where(arrived == 1, v, {before}{kept})")
        else:
            w.add(2, "if arrived == 1:")
            w.add(3, f"{q}{kept} = v")
        w.add(2, f"v = {q}{kept}")
