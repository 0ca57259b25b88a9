"""The functions that fill observation groups: the values in the slots of each term.

Nothing is written for a noise, a delay, a dropout or a history that a term does not use. The memory of the sensors is
``s.pipe_<group>``.
"""

from __future__ import annotations

from typing import Any

from robot_rl_envs.codegen.layout import ObservationSlot
from robot_rl_envs.codegen.template import STEP
from robot_rl_envs.codegen.writer import KernelWriter
from robot_rl_envs.sensing.pipeline import Pipe
from robot_rl_envs.task import Observation, ObservationGroup, TorchTerm

GROUP = "observe$"
"""Stands for the name of a group's function until the text's digest is known; no term can be called so."""


def fill_group(w: KernelWriter, name: str, group: ObservationGroup, *, onward: bool = False) -> str:
    """Return the function of a group; ``onward`` that for a state that follows on another in the same episode."""
    observations = (
        observation_values(w, name, slot, group, onward=onward)
        for slot in w.layout.groups[name]
        if not isinstance(slot.term, TorchTerm)
    )
    values = {"group": name, "observations": STEP.fill_each("observation", observations)}
    return STEP.fill("observe_onward" if onward else "observe_group", values)


def observation_values(
    w: KernelWriter, name: str, slot: ObservationSlot, group: ObservationGroup, *, onward: bool
) -> dict[str, Any]:
    """Return the slots of a term."""
    path, memory = f"observations.{name}.{slot.name}", f"s.pipe_{name}"
    term: Observation = slot.term
    pipe = slot.pipe or Pipe()
    clean, is_measured = term.info.source.clean, name == "actor" and bool(term.measured)
    values = {
        "onward": onward,
        "memory": memory,
        "before": f"a.pipe_{name}" if onward else memory,
        "size": slot.size,
        "index": w.layout.observations.index(f"{name}.{slot.name}"),
        "scale": w.layout.param(f"{path}.scale", term.scale),
        "clip": w.layout.param(f"{path}.clip", term.clip),
        "noise": w.layout.param(f"{path}.noise", 0.0 if slot.muted else term.noise),
        "noise_rng": w.rng(path),
        "has_noise": group.noise and term.noise > 0,
        "gaussian": term.noise_kind == "gaussian",
        "is_measured": is_measured,
        "measured_at": w.layout.measured[term.measured][0] if is_measured else None,
    }
    values |= _pipe_values(w, path, slot, pipe)
    values["call"] = w.call(path, term, "s, i, j", None if group.noise else clean)
    values["has_exact"] = group.noise and clean is not None
    if values["has_exact"]:
        values["muted"] = w.layout.param(f"observations.{name}.muted", float(slot.muted))
        values["exact"] = w.call(path, term, "s, i, j", clean, "clean")
    places = [slot.offset + h * slot.size for h in range(slot.history)]
    history = STEP.fill_each("past_value", ({"at": at, "next": at + slot.size} for at in places[:-1]))
    return values | {"history": history, "at": places[-1]}


def _pipe_values(w: KernelWriter, path: str, slot: ObservationSlot, pipe: Pipe) -> dict[str, Any]:
    """Return the slots of a term's bias and its random walk, its delay and its dropout."""
    term: Observation = slot.term
    factor = 0.0 if slot.muted else 1.0
    values: dict[str, Any] = {
        "has_bias": pipe.bias >= 0,
        "drifts": term.drift > 0,
        "has_delay": pipe.ring >= 0,
        "has_dropout": pipe.held >= 0,
    }
    if values["has_bias"]:
        values |= {"bias_at": pipe.bias, "bias": w.layout.param(f"{path}.bias", factor * term.bias)}
        values |= {"bias_rng": w.rng(f"{path}.bias"), "drift_rng": w.rng(f"{path}.drift")}
        if term.drift > 0:
            values["drift"] = w.layout.param(f"{path}.drift", factor * term.drift)
    if values["has_delay"]:
        values["lo"], values["hi"] = w.params(f"{path}.delay_s", (factor * value for value in term.delay_s))
        values |= {"lag_at": pipe.lag, "ring_at": pipe.ring, "depth": pipe.depth, "longest": float(pipe.depth - 1)}
        values["delay_rng"] = w.rng(f"{path}.delay_s")
    if values["has_dropout"]:
        values |= {"held_at": pipe.held, "dropout": w.layout.param(f"{path}.dropout", factor * term.dropout)}
        values["dropout_rng"] = w.rng(f"{path}.dropout")
    return values
