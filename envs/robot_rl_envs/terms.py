"""Decorators that mark a Warp function as a task term, and what a term declares about itself.

A term is a ``@wp.func`` about one world. Its first arguments are fixed by its kind, the rest are float parameters with
names that a task (or ``robot-rl train rewards.track.std=0.4``) sets:

=============  =====================================  ==========================================
kind           arguments                              returns
=============  =====================================  ==========================================
reward         ``s, i, *params``                      float, multiplied by weight and the step time
metric         ``s, i, *params``                      float, averaged over time for the log
termination    ``s, i, *params``                      int, 1 where the episode ends
observation    ``s, i, j, *params``                   float, element ``j`` of the term
command        ``s, i, rng, *params``                 nothing; writes its fields of ``s``
event          ``s, i, rng, *params``                 nothing; writes state or model fields of ``s``
curriculum     ``s, i, rng, *params``                 nothing; called where an episode ends, before the reset
=============  =====================================  ==========================================

``s`` is the struct of arrays of :mod:`robot_rl_envs.state`, ``i`` the world, ``rng`` a fresh random stream
(``wp.uint32``) for this world, step and term.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

FIXED_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "reward": ("s", "i"),
    "metric": ("s", "i"),
    "termination": ("s", "i"),
    "observation": ("s", "i", "j"),
    "command": ("s", "i", "rng"),
    "event": ("s", "i", "rng"),
    "curriculum": ("s", "i", "rng"),
}

SIGNALS = ("joint_pos", "joint_vel", "imu_gyro", "imu_quat_wxyz", "command", "last_action", "clock")


@dataclass(kw_only=True, slots=True)
class TermInfo:
    """What a term declares: its kind, its parameters and, for observations, what it measures.

    Attributes:
        kind: one of the keys of :data:`FIXED_ARGUMENTS`.
        name: the function's name.
        params: parameter names in order.
        summary: first line of the docstring.
        size: observation width: an int, or "joints", "actions", "feet".
        unit: SI unit of an observation.
        frame: reference frame of an observation ("base", "world", "joint", "none").
        signal: the robot signal an observation comes from, one of :data:`SIGNALS`; None: privileged, no robot can
            measure it.
        transform: how the signal becomes the observation.
        mirror: how the left-right mirror acts: "joints", "actions", "feet", or a sign for each element.
        fields: state fields the term adds to the struct, name -> trailing shape.
        update: a command's ``@wp.func (s, i, *params)`` that runs in every step, on the same parameters.
        model_fields: per-world model fields an event randomizes.
        set_const: an event after which MuJoCo's derived constants must be recomputed.
        writes: what an event changes: "state", "velocity" or "model".
    """

    kind: str
    name: str
    params: tuple[str, ...]
    summary: str
    size: int | str = 1
    unit: str = ""
    frame: str = "none"
    signal: str | None = None
    transform: str = "identity"
    mirror: str | tuple[float, ...] = ()
    fields: dict[str, tuple[str | int, ...]] = field(default_factory=dict)
    update: Any = None
    model_fields: tuple[str, ...] = ()
    set_const: bool = False
    writes: str = "state"


def term_info(fn: Any) -> TermInfo:
    """Return what ``fn`` declared.

    Raises:
        ValueError: ``fn`` carries no term decorator.
    """
    info = getattr(fn, "term_info", None)
    if not isinstance(info, TermInfo):
        name = getattr(fn, "key", None) or getattr(fn, "__name__", repr(fn))
        raise ValueError(f"{name} is no term: decorate it with @reward, @observation, ... above @wp.func")
    return info


def _mark(kind: str, fn: Any, **declared: Any) -> Any:
    python_function = getattr(fn, "func", None)
    if python_function is None:
        name = getattr(fn, "__name__", repr(fn))
        raise ValueError(f"@{kind} {name}: put @wp.func directly below @{kind}")
    arguments = tuple(inspect.signature(python_function).parameters)
    fixed = FIXED_ARGUMENTS[kind]
    if arguments[: len(fixed)] != fixed:
        raise ValueError(f"@{kind} {fn.key}{arguments}: the first arguments must be {', '.join(fixed)}")
    summary = (inspect.getdoc(python_function) or "").split("\n")[0]
    fn.term_info = TermInfo(
        kind=kind, name=python_function.__name__, params=arguments[len(fixed) :], summary=summary, **declared
    )
    return fn


def reward(fn: Any) -> Any:
    """Mark a ``@wp.func (s, i, *params) -> float`` as a reward term."""
    return _mark("reward", fn)


def metric(fn: Any) -> Any:
    """Mark a ``@wp.func (s, i, *params) -> float`` as a logged metric."""
    return _mark("metric", fn)


def termination(fn: Any) -> Any:
    """Mark a ``@wp.func (s, i, *params) -> int`` as a termination term."""
    return _mark("termination", fn)


def observation(
    *,
    size: int | str = 1,
    unit: str = "",
    frame: str = "none",
    signal: str | None = None,
    transform: str = "identity",
    mirror: str | tuple[float, ...] = (),
) -> Callable[[Any], Any]:
    """Mark a ``@wp.func (s, i, j, *params) -> float`` as an observation term; see :class:`TermInfo`.

    Raises:
        ValueError: ``signal`` is no signal a robot has.
    """
    if signal is not None and signal not in SIGNALS:
        raise ValueError(f"signal {signal!r} is none of {', '.join(SIGNALS)} (None for a privileged term)")

    def wrap(fn: Any) -> Any:
        return _mark(
            "observation",
            fn,
            size=size,
            unit=unit,
            frame=frame,
            signal=signal,
            transform=transform,
            mirror=mirror,
        )

    return wrap


def command(*, fields: dict[str, tuple[str | int, ...]] | None = None, update: Any = None) -> Callable[[Any], Any]:
    """Mark a ``@wp.func (s, i, rng, *params)`` as a command term.

    Args:
        fields: its own state fields, name -> trailing shape.
        update: a ``@wp.func (s, i, *params)`` with the same parameters, called in every step in the worlds whose
            command is not held by hand, e.g. to turn a heading into a yaw rate.

    Raises:
        ValueError: ``update`` has other parameters.
    """

    def wrap(fn: Any) -> Any:
        marked = _mark("command", fn, fields=dict(fields or {}), update=update)
        if update is not None:
            arguments = tuple(inspect.signature(update.func).parameters)
            if arguments != ("s", "i", *marked.term_info.params):
                wanted = ", ".join(("s", "i", *marked.term_info.params))
                raise ValueError(f"@command {fn.key}: its update's arguments must be {wanted}")
        return marked

    return wrap


def curriculum(*, fields: dict[str, tuple[str | int, ...]] | None = None) -> Callable[[Any], Any]:
    """Mark a ``@wp.func (s, i, rng, *params)`` as a curriculum: it sees the state that an episode ended in.

    It is not called at the very first reset, nor in a world that was quarantined. ``fields`` are its own state fields.
    """

    def wrap(fn: Any) -> Any:
        return _mark("curriculum", fn, fields=dict(fields or {}))

    return wrap


def event(
    *,
    writes: str = "state",
    model_fields: tuple[str, ...] = (),
    set_const: bool = False,
    fields: dict[str, tuple[str | int, ...]] | None = None,
) -> Callable[[Any], Any]:
    """Mark a ``@wp.func (s, i, rng, *params)`` as an event term.

    Args:
        writes: "state" (qpos and qvel), "velocity" (qvel alone) or "model" (per-world model fields).
        model_fields: MuJoCo model fields that get per-world values, e.g. ``("geom_friction",)``; the nominal values
            are ``s.<field>_nominal``.
        set_const: recompute the model's derived constants afterwards (after masses or inertias changed).
        fields: state fields of its own, name -> trailing shape.

    Raises:
        ValueError: ``writes`` is none of the three.
    """
    if writes not in ("state", "velocity", "model"):
        raise ValueError(f"writes={writes!r}: must be state, velocity or model")

    def wrap(fn: Any) -> Any:
        return _mark(
            "event", fn, writes=writes, model_fields=model_fields, set_const=set_const, fields=dict(fields or {})
        )

    return wrap
