"""Decorators that mark a function as a task term, and the declarations of a term.

A term is a Warp function about one world; the decorator makes it from a plain function. Its first arguments are fixed
by its kind, the rest are float parameters with names that a task (or ``robot-rl train rewards.track.std=0.4``) sets:

=============  =====================================  ==========================================
kind           arguments                              returns
=============  =====================================  ==========================================
reward         ``s, i, *params``                      float, multiplied by weight and the step time
metric         ``s, i, *params``                      float, logged and evaluated
termination    ``s, i, *params``                      int, 1 if the episode ends
observation    ``s, i, j, *params``                   float, element ``j`` of the term
command        ``s, i, rng, *params``                 nothing; writes its fields of ``s``
event          ``s, i, rng, *params``                 nothing; writes state or model fields of ``s``
curriculum     ``s, i, rng, *params``                 nothing; called when an episode ends, before the reset
=============  =====================================  ==========================================

``s`` is the struct of arrays of :mod:`robot_rl_envs.entity.state`, ``i`` the world, ``rng`` a new random stream
(``wp.uint32``) for this world, step and term.
"""

import dis
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import warp as wp

FIXED_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "reward": ("s", "i"),
    "metric": ("s", "i"),
    "termination": ("s", "i"),
    "observation": ("s", "i", "j"),
    "command": ("s", "i", "rng"),
    "event": ("s", "i", "rng"),
    "curriculum": ("s", "i", "rng"),
}

RETURNING = ("reward", "metric", "termination", "observation")
"""Kinds with functions that return a number."""
MAX_COMMAND = 96
"""Components of a command at most, those that a robot's messages carry."""
BETTER = ("", "smaller", "larger")
"""Which values of a metric are better; "" for neither."""
MODES = ("startup", "reset", "interval")
"""When an event may happen."""
COMMAND_FRAMES = ("base", "world", "none")
"""Frames of a command's vector quantities; the base frame of a robot that is bolted down is the world's."""
DRAWS: dict[str, tuple[str, ...]] = {
    "": (),
    "velocity": ("m/s", "m/s", "rad/s"),
    "position": ("m", "m", "m"),
    "pose": ("m", "m", "m", "1", "1", "1", "1"),
    "phase": ("1",),
    "motion": (),
}
"""How a viewer draws a command -> units of its first components; "pose" and "phase" consist of these only."""
OWN_RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "pose": {"1": (-1.0, 1.0)},
    "phase": {"1": (0.0, 1.0)},
    "motion": {"rad": (-3.2, 3.2), "rad/s": (-40.0, 40.0), "1": (-1.0, 1.0), "m": (-1.0, 3.0), "m/s": (-10.0, 10.0)},
}
"""Ranges of the components without parameters, by how the command is drawn and by their unit."""
WRITES = ("state", "velocity", "model", "wrench", "nothing")
"""What an event may write of the engine's: qpos and qvel, only qvel, per-world model fields, forces on bodies."""
Fields = dict[str, Any]
"""State fields by name: the trailing shape of float32 values, or a Warp type such as ``wp.float64``: one a world."""
Size = int | str | Callable[[Any], int]
Check = Callable[[dict[str, float], Any], None]
Components = dict[str, str] | Callable[[Any], dict[str, str]]
"""Name of each component of a command -> its unit, "1" for none; or a function of the robot that returns that."""

SIGNALS = (
    "joint_pos",
    "joint_vel",
    "imu_gyro",
    "imu_quat_wxyz",
    "imu_acc",
    "foot_contact",
    "foot_force",
    "command",
    "last_action",
    "clock",
)
"""The robot's own signals."""
MEASURED = "measured/"
"""What the names of all others begin with."""

MirrorRule = str | tuple[float, ...] | Callable[[Any], tuple[list[int], list[float]]]
"""How the left-right mirror acts on an observation, see :class:`TermInfo`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The sensor that an observation term reads.

    Attributes:
        uses: sensors that must be computed, by their names in ``Task.sensors``, or parts of them: "imu_acc" of "imu",
            "foot_forces" of "foot_force"; or "encoders".
        simulated: parameters that describe the sensor's faults and are not part of an exported policy.
        clean: a Warp function ``(s, i, j, *params)`` for groups with ``noise=False``; None: the term itself.
    """

    uses: tuple[str, ...] = ()
    simulated: tuple[str, ...] = ()
    clean: Any = None


@dataclass(kw_only=True, slots=True)
class TermInfo:
    """The declaration of a term: its kind, its parameters and, for observations, the measured quantity.

    Attributes:
        kind: one of the keys of :data:`FIXED_ARGUMENTS`.
        params: parameter names in order.
        summary: first line of the docstring.
        size: observation width: an int, one of ``Scene.sizes`` ("joints", "actions", "feet", "limited_joints",
            "command", and those of sensors), or a function of the scene; of no meaning for a command.
        components: of a command: see :data:`Components`.
        draws: how a viewer draws a command, one of :data:`DRAWS`.
        unit: SI unit of an observation or a metric; of an observation "command": as the task's command declares.
        better: which values of a metric are better: one of :data:`BETTER`.
        frame: reference frame of an observation ("base", "imu", "heading", "world", "joint", "none"; "command": as the
            task's command declares), or of a command, one of :data:`COMMAND_FRAMES`.
        signal: the robot signal an observation comes from: one of :data:`SIGNALS`, or ``measured/<name>`` of a sensor;
            None: privileged.
        transform: how the signal becomes the observation.
        reads_command: how many components of the command it reads by index; 0 for none, or for any number.
        mirror: how the left-right mirror acts: "joints", "actions", "feet", "limited_joints", "foot_forces", "command"
            (as the task's command declares), a rule of a sensor, such as "imu_polar" (a vector in the IMU's frame), a
            sign for each element, or a function of the scene that returns permutation and sign of the elements, as
            those of :mod:`robot_rl_envs.entity.mirrors` do.
        fields: state fields the term adds to the struct, see :data:`Fields`.
        data: MuJoCo's own fields that it reads as ``s.engine_<name>``, see ``Engine.watch``.
        before: a Warp function ``(s, i, *params)`` of a reward or curriculum that runs before the physics.
        update: a Warp function ``(s, i, *params)`` of a command, event or curriculum that runs in every step.
        check: ``check(params, scene)``, called when an environment is built; raises a ValueError that begins with a
            parameter's name if the parameters are invalid for that robot.
        model_fields: per-world model fields an event randomizes.
        covers: the parts of the model that an event draws; no two events of a task may draw the same.
        set_const: an event after which MuJoCo's derived constants must be recomputed.
        writes: the kind of change by an event: one of :data:`WRITES`.
        modes: when an event may happen.
    """

    kind: str
    name: str
    params: tuple[str, ...]
    summary: str
    size: Size = 1
    components: Components = field(default_factory=dict)
    draws: str = ""
    reads_command: int = 0
    unit: str = ""
    better: str = ""
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
        ValueError: ``fn`` lacks a term decorator.
    """
    info = getattr(fn, "term_info", None)
    if not isinstance(info, TermInfo):
        name = getattr(fn, "key", None) or getattr(fn, "__name__", repr(fn))
        raise ValueError(f"{name} is not a term: decorate it with @reward, @observation, ...")
    return info


def _returns_a_value(python_function: Any) -> bool:
    """Whether every way through a function ends with the return of a value."""
    last, found = None, False
    for instruction in dis.get_instructions(python_function):
        if instruction.opname in ("RETURN_VALUE", "RETURN_CONST"):
            source = instruction if instruction.opname == "RETURN_CONST" else last
            if source is not None and source.opname.endswith("_CONST") and source.argval is None:
                return False
            found = True
        last = instruction
    return found


def _marker(kind: str, fn: Any = None, **declared: Any) -> Any:
    """Return the decorator of a kind of term, or apply it to ``fn``; ``declared`` are fields of :class:`TermInfo`."""

    def mark(marked: Any) -> Any:
        if inspect.isfunction(marked) and marked.__name__ != "<lambda>":
            marked = wp.func(marked)
        python_function = getattr(marked, "func", None)
        if python_function is None:
            raise ValueError(f"@{kind} {getattr(marked, '__name__', repr(marked))}: must be a function made by def")
        arguments = tuple(inspect.signature(python_function).parameters)
        fixed = FIXED_ARGUMENTS[kind]
        if arguments[: len(fixed)] != fixed:
            raise ValueError(f"@{kind} {marked.key}{arguments}: the first arguments must be {', '.join(fixed)}")
        if kind in RETURNING and not _returns_a_value(python_function):
            name = python_function.__name__
            raise ValueError(f"@{kind} {name}: returns nothing, at least on one way through it; must return a number")
        params = arguments[len(fixed) :]
        for name in ("before", "update"):
            other, wanted = declared.get(name), ("s", "i", *params)
            if other is not None and tuple(inspect.signature(other.func).parameters) != wanted:
                raise ValueError(f"@{kind} {marked.key}: its {name}'s arguments must be {', '.join(wanted)}")
        summary = (inspect.getdoc(python_function) or "").split("\n")[0]
        marked.term_info = TermInfo(
            kind=kind, name=python_function.__name__, params=params, summary=summary, **declared
        )
        return marked

    return mark if fn is None else mark(fn)


def reward(
    fn: Any = None,
    *,
    fields: Fields | None = None,
    data: tuple[str, ...] = (),
    reads_command: int = 0,
    before: Any = None,
    check: Check | None = None,
) -> Any:
    """Mark ``(s, i, *params) -> float`` as a reward term; see :class:`TermInfo`."""
    declared = {"data": data, "reads_command": reads_command, "before": before, "check": check}
    return _marker("reward", fn, fields=dict(fields or {}), **declared)


def metric(fn: Any = None, *, unit: str = "1", better: str = "", reads_command: int = 0) -> Any:
    """Mark ``(s, i, *params) -> float`` as a metric, which is logged and evaluated; see :class:`TermInfo`.

    The docstring's first line is its meaning, as evaluations and reports show it.
    """
    if better not in BETTER:
        raise ValueError(f"@metric better={better!r}: must be smaller, larger, or empty for neither")
    return _marker("metric", fn, unit=unit, better=better, reads_command=reads_command)


def termination(fn: Any = None, *, data: tuple[str, ...] = ()) -> Any:
    """Mark ``(s, i, *params) -> int`` as a termination term; see :class:`TermInfo`."""
    return _marker("termination", fn, data=data)


def observation(
    *,
    size: Size = 1,
    unit: str = "",
    frame: str = "none",
    signal: str | None = None,
    transform: str = "identity",
    mirror: MirrorRule = (),
    **declared: Any,
) -> Callable[[Any], Any]:
    """Mark ``(s, i, j, *params) -> float`` as an observation term; see :class:`TermInfo`.

    ``declared`` may contain ``source``, ``data`` and ``reads_command``.
    """
    is_measured = (signal or "").startswith(MEASURED) and (signal or "").removeprefix(MEASURED).isidentifier()
    if signal is not None and signal not in SIGNALS and not is_measured:
        known = f"{', '.join(SIGNALS)}, {MEASURED}<name>"
        raise ValueError(f"signal {signal!r} is none of {known} (None for a privileged term)")
    declared |= {"size": size, "unit": unit, "frame": frame, "signal": signal, "transform": transform, "mirror": mirror}
    return _marker("observation", **declared)


def command(
    *,
    components: Components,
    frame: str = "base",
    draws: str = "",
    mirror: MirrorRule = (),
    fields: Fields | None = None,
    update: Any = None,
    check: Check | None = None,
) -> Callable[[Any], Any]:
    """Mark ``(s, i, rng, *params)`` as a command term, which writes ``s.command[i]``; see :class:`TermInfo`.

    A component ``x`` lies between the parameters ``x_lo`` and ``x_hi``; those of a quaternion, a phase and a motion
    need none.

    Args:
        components: see :data:`Components`; all command terms of a task agree.
        frame: of the vector quantities: "base", "world", or "none" without any.
        draws: how a viewer draws it: "" (only numbers), "velocity" (forward, leftward velocity and yaw rate come
            first), "position" (a point comes first), "pose" (a point and a unit quaternion w, x, y, z), "phase" (one
            number in [0, 1)) or "motion" (a frame of a reference motion).
        mirror: sign of each component under the left-right mirror, or a function of the scene; () for none.
        fields: its own state fields.
        update: called in every step in the worlds without a command held by hand.
        check: a check of its parameters.

    Raises:
        ValueError: the declaration contradicts itself, or a component lacks a range.
    """
    known = {} if callable(components) else dict(components)
    if not callable(components):
        check_command(known, frame, draws, mirror if isinstance(mirror, tuple) else ())
    declared: dict[str, Any] = {"components": components if callable(components) else known}
    declared |= {"frame": frame, "draws": draws}
    declared |= {"mirror": mirror, "update": update, "check": check}
    mark = _marker("command", fields=dict(fields or {}), **declared)

    def mark_with_ranges(fn: Any) -> Any:
        marked = mark(fn)
        params, term = marked.term_info.params, marked.term_info.name
        for name, unit in known.items():
            if not {f"{name}_lo", f"{name}_hi"} <= {*params} and unit not in OWN_RANGES.get(draws, {}):
                raise ValueError(f"@command {term}: component {name!r} needs parameters {name}_lo and {name}_hi")
        return marked

    return mark_with_ranges


def check_command(components: dict[str, str], frame: str, draws: str, mirror: tuple[float, ...]) -> None:
    """Refuse the declaration of a command that contradicts itself."""
    names, units = list(components), tuple(components.values())
    if not 1 <= len(names) <= MAX_COMMAND:
        raise ValueError(f"@command components={names!r}: must be 1 to {MAX_COMMAND} names with units")
    for name, unit in components.items():
        if not (isinstance(name, str) and name.isidentifier() and isinstance(unit, str) and unit):
            right = "must be a name of letters, digits and _, and a unit ('1' for none)"
            raise ValueError(f"@command components={ {name: unit} }: {right}")
    if frame not in COMMAND_FRAMES:
        raise ValueError(f"@command frame={frame!r}: must be one of {', '.join(COMMAND_FRAMES)}")
    if draws not in DRAWS:
        raise ValueError(f"@command draws={draws!r}: must be one of {', '.join(filter(None, DRAWS))}, or empty")
    first, is_all = DRAWS[draws], draws in ("pose", "phase")
    if units[: len(first)] != first or (is_all and len(units) != len(first)):
        what = f"{'exactly' if is_all else 'first'} {len(first)} components of {', '.join(first)}"
        raise ValueError(f"@command draws={draws!r}: wants {what}; it has {len(units)} of {', '.join(units)}")
    if draws in ("velocity", "position", "pose") and frame == "none":
        raise ValueError(f"@command frame='none': a {draws} is in a frame; must be base or world")
    if mirror and len(mirror) != len(names):
        raise ValueError(f"@command mirror={mirror!r}: must have a sign for each of {len(names)} components")


def curriculum(
    *,
    fields: Fields | None = None,
    before: Any = None,
    update: Any = None,
    check: Check | None = None,
    reads_command: int = 0,
) -> Callable[[Any], Any]:
    """Mark ``(s, i, rng, *params)`` as a curriculum, which reads an episode's last state; see :class:`TermInfo`.

    It is not called at the first reset, nor in a world that was quarantined. ``update`` runs in every step, e.g. to
    keep a sum over the episode; ``s.step_count[i]`` is 1 in an episode's first.
    """
    declared = {"before": before, "update": update, "check": check, "reads_command": reads_command}
    return _marker("curriculum", fields=dict(fields or {}), **declared)


def event(
    *,
    writes: str = "state",
    model_fields: tuple[str, ...] = (),
    covers: tuple[str, ...] = (),
    fields: Fields | None = None,
    modes: tuple[str, ...] = MODES,
    **declared: Any,
) -> Callable[[Any], Any]:
    """Mark ``(s, i, rng, *params)`` as an event term; see :class:`TermInfo`.

    Nominal values of ``model_fields`` are ``s.<field>_nominal``. ``declared`` may contain ``set_const``, ``check`` and
    ``update``, which runs before interval events.
    """
    if writes not in WRITES:
        raise ValueError(f"writes={writes!r}: must be one of {', '.join(WRITES)}")
    declared |= {"writes": writes, "model_fields": model_fields, "covers": covers or model_fields, "modes": modes}
    return _marker("event", fields=dict(fields or {}), **declared)
