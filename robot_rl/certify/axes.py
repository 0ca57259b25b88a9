"""Properties of a robot and its ground that a certificate varies, each with a value in every world."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

LEAST_FRICTION = 0.01
"""Contacts with less are not finite, see `robot_rl_envs.mdp.events`."""
LONGEST_DELAY_S = 0.1
FASTEST_PUSH = 3.0
"""Largest step of the base's velocity [m/s]."""
COM_M = 0.15
"""Largest shift of the base's center of mass [m]."""
FACTORS = {"motor_strength": (0.25, 2.5), "armature": (0.2, 8.0), "damping": (0.3, 5.0), "dry_friction": (0.1, 10.0)}
"""Ends of the factors of a robot's joints."""
OBJECT_FACTORS = (0.2, 5.0)
FRICTIONS = (0.05, 2.0)
DRAWN = ("model", "velocity", "wrench")
"""Kinds of changes by events that a certificate makes itself, world by world."""
JOINTS = {"armature": "dof_armature", "dry_friction": "dof_frictionloss"}
JOINT_EVENTS = {"joint_armature": "armature", "joint_damping": "damping", "joint_friction": "dry_friction"}
WORDS = {"armature": "armature", "dry_friction": "dry friction"}
CONSTANTS = ("body_mass", "body_inertia", "body_ipos", "dof_armature")
"""Fields of which MuJoCo's other constants are functions."""

Write = Callable[["Fields", Tensor], None]


@dataclass(slots=True)
class Fields:
    """What axes write to.

    Attributes:
        env: The environment.
        live: Model field -> values of every world (N, n, k), live.
    """

    env: Any
    live: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """A property.

    Attributes:
        name: Its name in the certificate.
        unit: SI unit; "1" for a factor or a coefficient.
        meaning: Its meaning in words.
        nominal: The model's value; of a friction or delay that the task draws, the middle of its range.
        low: Lower end of the search; the nominal value if smaller ones are harmless.
        high: Upper end.
        write: Writes values (N,) to `Fields`; None of a push, which acts during an episode.
        fields: Model fields that it needs for every world.
        by_factor: Whether steps from the nominal value are factors.
        quantum: Steps that the simulation resolves [unit]; 0: any.
        box: The task's own range; None if it randomizes nothing of it.
    """

    name: str
    unit: str
    meaning: str
    nominal: float
    low: float
    high: float
    write: Write | None = field(compare=False)
    fields: tuple[str, ...] = ()
    by_factor: bool = False
    quantum: float = 0.0
    box: tuple[float, float] | None = None

    @property
    def sides(self) -> dict[str, float]:
        """The ends that differ from the nominal value, by "low" and "high"."""
        return {side: end for side in ("low", "high") if (end := getattr(self, side)) != self.nominal}

    def at(self, side: str, share: float) -> float:
        """Return the value at a share of the way from the nominal one to the end of a side."""
        end = getattr(self, side)
        if self.by_factor:
            value = self.nominal * (end / self.nominal) ** share
        else:
            value = self.nominal + share * (end - self.nominal)
        if self.quantum:
            value = self.nominal + self.quantum * round((value - self.nominal) / self.quantum)
        return float(f"{value:.6g}")

    def in_box(self, share: float) -> float:
        """Return the value at a share of the task's own range."""
        low, high = self.box or (self.nominal, self.nominal)
        return float(f"{low + share * (high - low):.6g}")


def find_axes(task: Any, scene: Any) -> list[Axis]:
    """Return the properties of a task's robot, ground and objects that can be varied in a scene.

    Args:
        task: The task with its own randomization, of one robot.
        scene: The scene that was built of it.
    """
    found = [*_motors(task, scene), *_joints(task, scene), *_damping(task, scene), _delay(task, scene)]
    found += _base(task, scene)
    return [*found, *_ground(task, scene), *_objects(task, scene)]


def kept_events(task: Any) -> dict[str, Any]:
    """Return the events of a task without those that a certificate takes the place of."""
    return {name: event for name, event in task.events.items() if event.info.writes not in DRAWN or _is_other(event)}


def with_delay(task: Any) -> Any:
    """Return a task with an actuator that can delay each world's commands by up to `LONGEST_DELAY_S`."""
    actuator, steps = task.actions.actuator, longest_steps(task)
    delay = {"delay_s": (0.0, steps * task.sim.timestep), "delay_history": steps}
    actuator = replace(actuator, delay_quantiles_s=(), jitter_quantiles_s=(), **delay)
    return replace(task, actions=replace(task.actions, actuator=actuator))


def longest_steps(task: Any) -> int:
    """Return the longest delay in physics steps, of which MuJoCo keeps a limited number."""
    return min(max(1, round(LONGEST_DELAY_S / task.sim.timestep)), 256)


def _is_other(event: Any) -> bool:
    """Whether no axis stands for an event: it stays as in training."""
    return event.info.name not in (
        *("motor_strength", "motor_gains", "explicit_gains", "dc_motor_gains", *JOINT_EVENTS, "base_mass"),
        *("body_payload", "body_com", "foot_friction", "push", "wrench", "body_mass", "object_friction"),
    )


def _events(task: Any, *names: str) -> list[dict[str, Any]]:
    """Return the parameters of a task's events of these functions."""
    return [event.params for event in task.events.values() if event.info.name in names]


def _range(task: Any, names: Iterable[str], lo: str = "lo", hi: str = "hi") -> tuple[float, float] | None:
    params = [row for row in _events(task, *names) if lo in row]
    return (float(params[0][lo]), float(params[0][hi])) if params else None


def _motors(task: Any, scene: Any) -> list[Axis]:
    actuator = task.actions.actuator
    if task.actions.kind == "direct" or not scene.actuated:
        return []
    kind = type(actuator).__name__
    box = _range(task, ("motor_strength",)) or _range(
        task, ("explicit_gains", "dc_motor_gains"), "strength_lo", "strength_hi"
    )
    write, fields = _scale_gains, ("actuator_gainprm", "actuator_biasprm")
    if actuator.explicit:
        write, fields = _scale_strength, ()
    elif kind == "DcMotor":
        write, fields = _scale_resistance, ("actuator_gainprm",)
    low, high = FACTORS["motor_strength"]
    text = "factor of all motors' gains, not of their torque limits"
    options = {"unit": "1", "meaning": text, "nominal": 1.0, "low": low, "high": high, "by_factor": True}
    return [Axis(name="motor_strength", write=write, fields=fields, box=box, **options)]


def _scale_gains(to: Fields, values: Tensor) -> None:
    to.live["actuator_gainprm"][:, :, 0] *= values[:, None]
    to.live["actuator_biasprm"][:, :, :3] *= values[:, None, None]


def _scale_resistance(to: Fields, values: Tensor) -> None:
    to.live["actuator_gainprm"][:, :, 0] /= values[:, None]


def _scale_strength(to: Fields, values: Tensor) -> None:
    to.env.state.strength.copy_(values[:, None].expand_as(to.env.state.strength))


def _joints(task: Any, scene: Any) -> list[Axis]:
    """Return the axes of joints of which the model has some armature or dry friction."""
    axes = []
    for name, model_field in JOINTS.items():
        if not getattr(scene.model, model_field)[scene.joint_dof].any():
            continue

        def write(to: Fields, values: Tensor, model_field: str = model_field) -> None:
            dofs = to.env.scene.joint_dof.tolist()
            to.live[model_field][:, dofs] *= values[:, None, None]

        low, high = FACTORS[name]
        event = next(event for event, axis in JOINT_EVENTS.items() if axis == name)
        text = f"factor of the {WORDS[name]} of all joints"
        options = {"unit": "1", "nominal": 1.0, "low": low, "high": high, "by_factor": True}
        box = _range(task, (event,))
        axes.append(Axis(name=name, meaning=text, write=write, fields=(model_field,), box=box, **options))
    return axes


def _damping(task: Any, scene: Any) -> list[Axis]:
    """Return the axis of the joints' damping: the model's and kd, which no log of a robot can tell apart."""
    dofs = [int(dof) for dof in scene.joint_dof]
    own = [float(scene.model.dof_damping[dof]) for dof in dofs]
    gains = [joint.kd if task.actions.kind == "position" else 0.0 for joint in scene.robot.joints]
    if not any(own) and not any(gains):
        return []
    actuator = task.actions.actuator
    place = {"PositionPd": ("actuator_biasprm", 2), "DcMotor": ("actuator_gainprm", 6)}.get(type(actuator).__name__)
    name, column = place if place is not None and any(gains) else ("", 0)

    def write(to: Fields, values: Tensor) -> None:
        to.live["dof_damping"][:, dofs] *= values[:, None, None]
        if name:
            to.live[name][:, :, column] *= values[:, None]
        elif actuator.explicit and actuator.takes_gains:
            to.env.state.kd.copy_(to.env.state.kd_nominal * values[:, None])

    low, high = FACTORS["damping"]
    options = {"unit": "1", "nominal": 1.0, "low": low, "high": high, "by_factor": True}
    text = "factor of the damping of all joints: of the model's and of kd"
    box = _range(task, ("joint_damping",))
    if box is not None:  # The event multiplies only the model's.
        share = max(each / (each + kd) for each, kd in zip(own, gains, strict=True) if each + kd)
        box = (1.0 + share * (box[0] - 1.0), 1.0 + share * (box[1] - 1.0))
    fields = ("dof_damping", name) if name else ("dof_damping",)
    return [Axis(name="damping", meaning=text, write=write, fields=fields, box=box, **options)]


def _delay(task: Any, scene: Any) -> Axis:
    own, step = task.actions.actuator, task.sim.timestep
    longest = longest_steps(task) * step
    box = (float(own.delay_s[0]), float(own.longest_delay_s)) if own.delayed else None

    def write(to: Fields, values: Tensor) -> None:
        steps = (values / step).round()
        to.env.state.delay_steps.copy_(steps.int())
        if not to.env.cfg.actions.actuator.explicit:
            to.env.state.actuator_delay.copy_(((steps - 0.5).clamp(min=0.0) * step)[:, None, None])

    text = "from the policy's action to the motors, in whole physics steps"
    middle = step * round(_middle(box, 0.0) / step)
    return Axis(
        name="delay", unit="s", meaning=text, nominal=middle, low=0.0, high=longest, write=write, quantum=step, box=box
    )


def _base(task: Any, scene: Any) -> list[Axis]:
    """Return payload, center of mass and pushes of a floating base."""
    robot, model = scene.robot, scene.model
    if robot.base_body is None or robot.complete:
        return []
    body = int(model.body(robot.base_body).id)
    own, whole = float(model.body_mass[body]), float(model.body_subtreemass[body])
    mass = [params["mass"] for params in _events(task, "base_mass")]
    boxed = (-float(mass[0]), float(mass[0])) if mass else _range(task, ("body_payload",))

    def load(to: Fields, values: Tensor) -> None:
        factor = (own + values) / own
        to.live["body_mass"][:, body, 0] *= factor
        to.live["body_inertia"][:, body] *= factor[:, None]

    fields = ("body_mass", "body_inertia")
    options = {"unit": "kg", "nominal": 0.0, "low": -0.5 * own, "high": float(f"{whole:.3g}")}
    axes = [Axis(name="payload", meaning="mass added to the base", write=load, fields=fields, box=boxed, **options)]
    if model.body_sameframe[body] != 1 and model.body_simple[body] == 0:
        axes.append(_center(task, body))
    pushes = [params["xy"] for params in _events(task, "push")]
    box = (0.0, float(pushes[0])) if pushes else None
    text = "sudden change of the base's horizontal velocity, in a random direction"
    options = {"unit": "m/s", "nominal": 0.0, "low": 0.0, "high": FASTEST_PUSH}
    return [*axes, Axis(name="push", meaning=text, write=None, box=box, **options)]


def _center(task: Any, body: int) -> Axis:
    def shift(to: Fields, values: Tensor) -> None:
        to.live["body_ipos"][:, body, 0] += values

    found = [params["com"] for params in _events(task, "base_mass")] + [p["x"] for p in _events(task, "body_com")]
    box = (-float(found[0]), float(found[0])) if found else None
    options = {"unit": "m", "nominal": 0.0, "low": -COM_M, "high": COM_M}
    text = "shift of the base's center of mass along its x axis"
    return Axis(name="center_of_mass", meaning=text, write=shift, fields=("body_ipos",), box=box, **options)


def _ground(task: Any, scene: Any) -> list[Axis]:
    feet = [int(geom) for geom in scene.foot_geoms]
    if not feet:
        return []
    box = _range(task, ("foot_friction",))
    nominal = _middle(box, float(scene.model.geom_friction[feet[0], 0]))

    def write(to: Fields, values: Tensor) -> None:
        to.live["geom_friction"][:, feet, 0] = values[:, None].clamp(min=LEAST_FRICTION)

    low, high = FRICTIONS
    return [
        Axis(
            name="floor_friction",
            unit="1",
            meaning="sliding friction between feet and floor",
            nominal=nominal,
            low=min(low, nominal),
            high=max(high, nominal),
            write=write,
            fields=("geom_friction",),
            by_factor=True,
            box=box,
        )
    ]


def _middle(box: tuple[float, float] | None, own: float) -> float:
    """Return the middle of the range in which a task draws a value, which need not contain the model's own one."""
    return float(f"{own if box is None else 0.5 * (box[0] + box[1]):.6g}")


def _objects(task: Any, scene: Any) -> list[Axis]:
    """Return the axes of randomized objects: their mass and their friction."""
    axes = []
    for event in task.events.values():
        params, model = event.params, scene.model
        if event.info.name == "body_mass":
            body = _body(model, params["body"])

            def weigh(to: Fields, values: Tensor, body: int = body) -> None:
                for name in ("body_mass", "body_inertia"):
                    to.live[name][:, body] *= values[:, None]

            low, high = OBJECT_FACTORS
            name = model.body(body).name
            options = {"unit": "1", "nominal": 1.0, "low": low, "high": high, "by_factor": True}
            text = f"factor of the mass of {name}"
            fields, box = ("body_mass", "body_inertia"), (float(params["lo"]), float(params["hi"]))
            axes.append(Axis(name=f"mass_{name}", meaning=text, write=weigh, fields=fields, box=box, **options))
        if event.info.name == "object_friction":
            axes.append(_object_friction(model, list(scene.objects), params))
    return axes


def _object_friction(model: Any, objects: list[str], params: dict[str, Any]) -> Axis:
    name = params["object"] if isinstance(params["object"], str) else objects[int(params["object"])]
    root = int(model.body(name).id)
    geoms = [geom for geom in range(model.ngeom) if _is_below(model, int(model.geom_bodyid[geom]), root)]

    def write(to: Fields, values: Tensor) -> None:
        to.live["geom_friction"][:, geoms, 0] = values[:, None].clamp(min=LEAST_FRICTION)

    box = (float(params["lo"]), float(params["hi"]))
    nominal, (low, high) = _middle(box, float(model.geom_friction[geoms[0], 0])), FRICTIONS
    text, fields = f"sliding friction of {name}", ("geom_friction",)
    options = {"low": min(low, nominal), "high": max(high, nominal), "by_factor": True}
    axis = {"name": f"friction_{name}", "unit": "1", "meaning": text, "nominal": nominal}
    return Axis(write=write, fields=fields, box=box, **axis, **options)


def _body(model: Any, named: Any) -> int:
    return int(model.body(named).id) if isinstance(named, str) else int(named)


def _is_below(model: Any, body: int, root: int) -> bool:
    while body not in (0, root):
        body = int(model.body_parentid[body])
    return body == root
