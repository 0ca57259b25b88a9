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

MODES = ("startup", "reset", "interval")
"""When an event may happen."""
WRITES = ("state", "velocity", "model", "wrench", "nothing")
"""What an event may write of the engine's: qpos and qvel, qvel alone, per-world model fields, forces on bodies."""
Fields = dict[str, Any]
"""State fields by name: the trailing shape of float32 values, or a Warp type such as ``wp.float64``: one a world."""
Size = int | str | Callable[[Any], int]
Check = Callable[[dict[str, float], Any], None]

SIGNALS = (
    "joint_pos",
    "joint_vel",
    "imu_gyro",
    "imu_quat_wxyz",
    "imu_acc",
    "foot_contact",
    "foot_force",
    "height_scan",
    "command",
    "last_action",
    "clock",
)


MirrorRule = str | tuple[float, ...] | Callable[[Any], tuple[list[int], list[float]]]
"""How the left-right mirror acts on an observation, see :class:`TermInfo`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The sensor that an observation term reads.

    Attributes:
        uses: what has to be there: of "imu", "imu_acc", "encoders", "foot_forces", "height_scan".
        simulated: parameters that describe the sensor's faults and are no part of an exported policy.
        clean: a ``@wp.func (s, i, j, *params)`` that groups with ``noise=False`` read instead; None: the term itself.
    """

    uses: tuple[str, ...] = ()
    simulated: tuple[str, ...] = ()
    clean: Any = None


@dataclass(kw_only=True, slots=True)
class TermInfo:
    """What a term declares: its kind, its parameters and, for observations, what it measures.

    Attributes:
        kind: one of the keys of :data:`FIXED_ARGUMENTS`.
        name: the function's name.
        params: parameter names in order.
        summary: first line of the docstring.
        size: observation width: an int, one of ``Scene.sizes`` ("joints", "actions", "feet", "height_scan",
            "foot_forces"), or a function of the scene.
        unit: SI unit of an observation.
        frame: reference frame of an observation ("base", "imu", "heading", "world", "joint", "none").
        signal: the robot signal an observation comes from, one of :data:`SIGNALS`; None: privileged, no robot can
            measure it.
        transform: how the signal becomes the observation.
        mirror: how the left-right mirror acts: "joints", "actions", "feet", "foot_forces", "height_scan", "imu_polar"
            (a vector in the IMU's frame), "imu_axial" (an angular velocity there), a sign for each element, or a
            function of the scene that returns permutation and sign of the elements, as those of :mod:`.mirrors` do.
        source: the sensor an observation reads.
        fields: state fields the term adds to the struct, see :data:`Fields`.
        data: fields of MuJoCo's own that it reads as ``s.engine_<name>``, see ``Engine.watch``.
        before: a ``@wp.func (s, i, *params)`` of a reward that runs before the physics, on the same parameters.
        update: a ``@wp.func (s, i, *params)`` of a command, event or curriculum that runs in every step, on the same
            parameters.
        check: ``check(params, scene)``, called when an environment is built; raises a ValueError that begins with a
            parameter's name where the parameters make no sense for that robot.
        model_fields: per-world model fields an event randomizes.
        covers: what of the model an event draws, for the check that no two events draw the same.
        set_const: an event after which MuJoCo's derived constants must be recomputed.
        writes: what an event changes: one of :data:`WRITES`.
        modes: when an event may happen.
    """

    kind: str
    name: str
    params: tuple[str, ...]
    summary: str
    size: Size = 1
    unit: str = ""
    frame: str = "none"
    signal: str | None = None
    transform: str = "identity"
    mirror: MirrorRule = ()
    source: Source = field(default_factory=Source)
    fields: Fields = field(default_factory=dict)
    data: tuple[str, ...] = ()
    before: Any = None
    update: Any = None
    check: "Check | None" = None
    model_fields: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    set_const: bool = False
    writes: str = "state"
    modes: tuple[str, ...] = ()


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


def reward(fn: Any = None, *, fields: Fields | None = None, data: tuple[str, ...] = (), before: Any = None) -> Any:
    """Mark a ``@wp.func (s, i, *params) -> float`` as a reward term; with or without arguments.

    Args:
        fn: the function.
        fields: state fields of its own, such as what ``before`` notes.
        data: fields of MuJoCo's own that it reads; see :class:`TermInfo`.
        before: a ``@wp.func (s, i, *params)`` with the same parameters, called before the physics.

    Raises:
        ValueError: ``before`` has other parameters.
    """

    def wrap(marked: Any) -> Any:
        marked = _mark("reward", marked, fields=dict(fields or {}), data=data, before=before)
        _check_parameters("reward", marked, before, "before")
        return marked

    return wrap if fn is None else wrap(fn)


def metric(fn: Any) -> Any:
    """Mark a ``@wp.func (s, i, *params) -> float`` as a logged metric."""
    return _mark("metric", fn)


def termination(fn: Any = None, *, data: tuple[str, ...] = ()) -> Any:
    """Mark a ``@wp.func (s, i, *params) -> int`` as a termination term; ``data`` as in :class:`TermInfo`."""

    def wrap(marked: Any) -> Any:
        return _mark("termination", marked, data=data)

    return wrap if fn is None else wrap(fn)


def observation(
    *,
    size: Size = 1,
    unit: str = "",
    frame: str = "none",
    signal: str | None = None,
    transform: str = "identity",
    mirror: MirrorRule = (),
    source: Source | None = None,
    data: tuple[str, ...] = (),
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
            source=source or Source(),
            data=data,
        )

    return wrap


def _check_parameters(kind: str, marked: Any, other: Any, name: str) -> None:
    """Check that a function which belongs to a term takes the term's parameters."""
    wanted = ("s", "i", *marked.term_info.params)
    if other is not None and tuple(inspect.signature(other.func).parameters) != wanted:
        raise ValueError(f"@{kind} {marked.key}: its {name}'s arguments must be {', '.join(wanted)}")


def _mark_updated(kind: str, fn: Any, *, update: Any, **declared: Any) -> Any:
    """Mark a term that may have a function for every step, which takes the same parameters."""
    marked = _mark(kind, fn, update=update, **declared)
    _check_parameters(kind, marked, update, "update")
    return marked


def command(*, fields: Fields | None = None, update: Any = None, check: Check | None = None) -> Callable[[Any], Any]:
    """Mark a ``@wp.func (s, i, rng, *params)`` as a command term.

    Args:
        fields: its own state fields, name -> trailing shape.
        update: a ``@wp.func (s, i, *params)`` with the same parameters, called in every step in the worlds whose
            command is not held by hand, e.g. to turn a heading into a yaw rate.
        check: see :class:`TermInfo`.

    Raises:
        ValueError: ``update`` has other parameters.
    """

    def wrap(fn: Any) -> Any:
        return _mark_updated("command", fn, update=update, fields=dict(fields or {}), check=check)

    return wrap


def curriculum(*, fields: Fields | None = None, update: Any = None, check: Check | None = None) -> Callable[[Any], Any]:
    """Mark a ``@wp.func (s, i, rng, *params)`` as a curriculum: it sees the state that an episode ended in.

    It is not called at the very first reset, nor in a world that was quarantined.

    Args:
        fields: its own state fields, name -> trailing shape.
        update: a ``@wp.func (s, i, *params)`` with the same parameters, called in every step, e.g. to keep a sum over
            the episode; ``s.step_count[i]`` is 1 in an episode's first.
        check: see :class:`TermInfo`.

    Raises:
        ValueError: ``update`` has other parameters.
    """

    def wrap(fn: Any) -> Any:
        return _mark_updated("curriculum", fn, update=update, fields=dict(fields or {}), check=check)

    return wrap


def event(
    *,
    writes: str = "state",
    model_fields: tuple[str, ...] = (),
    covers: tuple[str, ...] = (),
    set_const: bool = False,
    fields: Fields | None = None,
    update: Any = None,
    check: Check | None = None,
    modes: tuple[str, ...] = MODES,
) -> Callable[[Any], Any]:
    """Mark a ``@wp.func (s, i, rng, *params)`` as an event term.

    Args:
        writes: "state" (qpos and qvel), "velocity" (qvel alone), "model" (per-world model fields), "wrench"
            (``s.xfrc_applied``) or "nothing" of the engine's.
        model_fields: MuJoCo model fields that get per-world values, e.g. ``("geom_friction",)``; the nominal values
            are ``s.<field>_nominal``.
        covers: what exactly it draws, where that is less than whole model fields.
        set_const: recompute the model's derived constants afterwards (after masses or inertias changed).
        fields: state fields of its own, name -> trailing shape.
        update: a ``@wp.func (s, i, *params)`` with the same parameters, called in every step before interval events.
        check: see :class:`TermInfo`.
        modes: when it may happen.

    Raises:
        ValueError: ``writes`` is none of these, or ``update`` has other parameters.
    """
    if writes not in WRITES:
        raise ValueError(f"writes={writes!r}: must be one of {', '.join(WRITES)}")
    declared = {"writes": writes, "model_fields": model_fields, "set_const": set_const, "check": check, "modes": modes}
    declared |= {"fields": dict(fields or {}), "covers": covers or model_fields}

    def wrap(fn: Any) -> Any:
        return _mark_updated("event", fn, update=update, **declared)

    return wrap
