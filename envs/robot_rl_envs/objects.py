"""What is in a scene in addition to the robot and its ground: free and fixed things, articulated ones, contact sensors.

Plain data of a task; :mod:`robot_rl_envs.entity.objects` finds them in the compiled model. They touch the robot, the
ground and each other, and never the fixed ones next to them:

==============================  =======  ===========
geom                            contype  conaffinity
==============================  =======  ===========
robot, collision                0        1
floor, terrain                  1        0
free object                     1        1
fixed or articulated object     1        0
==============================  =======  ===========
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl_envs.terms.checks import are_numbers, is_number, nearest, require

ROBOT = "robot"
"""Name of a task's robot as a part of a contact; in a team each robot by itself."""

OTHERS = "others"
"""In a team: all robots but this one, as a part of a contact."""

CONTACT_SIZE = 4
"""Values of a contact sensor: whether there is a contact, and the net force."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Object:
    """A thing of one body; use a shape: :class:`Box`, :class:`Sphere`, :class:`Cylinder` or :class:`Mesh`.

    Attributes:
        pos: position of its frame at an episode's start [m], in the world; on a terrain, for a free object, relative
            to the robot's start.
        quat_wxyz: orientation at an episode's start.
        fixed: part of the world, for a table or a wall; else it moves freely.
        mass: [kg], spread evenly over the shape; not used where fixed.
        friction: sliding friction. In a contact the larger one of the two geoms counts.
        spin_friction: torsional friction [m]; acts with `condim` 4 or more.
        condim: dimension of its contacts: 1, 3, 4 or 6.
        solref: time constant [s] and damping ratio of its contacts.
        rgba: color.
    """

    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    quat_wxyz: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    fixed: bool = False
    mass: float = 0.1
    friction: float = 1.0
    spin_friction: float = 0.005
    condim: int = 3
    solref: tuple[float, float] = (0.02, 1.0)
    rgba: tuple[float, float, float, float] = (0.85, 0.33, 0.24, 1.0)

    def __post_init__(self) -> None:
        _check_pose(self.pos, self.quat_wxyz)
        require(is_number(self.mass) and self.mass > 0, "mass", self.mass, "must be a number > 0 kg")
        for name in ("friction", "spin_friction"):
            value = getattr(self, name)
            require(is_number(value) and value >= 0, name, value, "must be a number >= 0")
        require(self.condim in (1, 3, 4, 6), "condim", self.condim, "must be 1, 3, 4 or 6")
        fits = are_numbers(self.solref, 2) and min(self.solref) > 0
        require(fits, "solref", self.solref, "must be (time constant [s], damping ratio), both > 0")
        fits = are_numbers(self.rgba, 4) and min(self.rgba) >= 0 and max(self.rgba) <= 1
        require(fits, "rgba", self.rgba, "must be 4 numbers in [0, 1]")

    def shape(self, spec: Any, name: str) -> dict[str, Any]:
        """Return the geom's own fields of ``mujoco.MjSpec.add_geom``; may add an asset to ``spec``."""
        raise NotImplementedError(f"{type(self).__name__} is without a shape; use Box, Sphere, Cylinder or Mesh")

    def add_to(self, spec: Any, name: str, *, visual: bool) -> None:
        """Add the object as a body with one geom of the same name."""
        body = spec.worldbody.add_body(name=name, pos=list(self.pos), quat=list(self.quat_wxyz))
        if not self.fixed:
            body.add_freejoint(name=name)
        geom = body.add_geom(name=name, **self.shape(spec, name))
        geom.contype, geom.conaffinity, geom.condim = 1, 0 if self.fixed else 1, self.condim
        geom.mass, geom.rgba, geom.group = self.mass, list(self.rgba), 2
        geom.friction, geom.solref = [self.friction, self.spin_friction, 0.0001], list(self.solref)


@dataclass(kw_only=True, slots=True, frozen=True)
class Box(Object):
    """A box; its frame is in its middle.

    Attributes:
        size: lengths of its edges along x, y and z [m].
    """

    size: tuple[float, float, float]

    def __post_init__(self) -> None:
        Object.__post_init__(self)
        fits = are_numbers(self.size, 3) and min(self.size) > 0
        require(fits, "size", self.size, "must be 3 lengths > 0 m")

    def shape(self, spec: Any, name: str) -> dict[str, Any]:
        """Return the geom's own fields."""
        return {"type": _kind("BOX"), "size": [length / 2 for length in self.size]}


@dataclass(kw_only=True, slots=True, frozen=True)
class Sphere(Object):
    """A ball.

    Attributes:
        radius: [m].
    """

    radius: float

    def __post_init__(self) -> None:
        Object.__post_init__(self)
        require(is_number(self.radius) and self.radius > 0, "radius", self.radius, "must be a number > 0 m")

    def shape(self, spec: Any, name: str) -> dict[str, Any]:
        """Return the geom's own fields."""
        return {"type": _kind("SPHERE"), "size": [self.radius, 0.0, 0.0]}


@dataclass(kw_only=True, slots=True, frozen=True)
class Cylinder(Object):
    """An upright cylinder; its frame is in its middle.

    Attributes:
        radius, height: [m].
    """

    radius: float
    height: float

    def __post_init__(self) -> None:
        Object.__post_init__(self)
        for name in ("radius", "height"):
            value = getattr(self, name)
            require(is_number(value) and value > 0, name, value, "must be a number > 0 m")

    def shape(self, spec: Any, name: str) -> dict[str, Any]:
        """Return the geom's own fields."""
        return {"type": _kind("CYLINDER"), "size": [self.radius, self.height / 2, 0.0]}


@dataclass(kw_only=True, slots=True, frozen=True)
class Mesh(Object):
    """A mesh; contacts are with its convex hull.

    Attributes:
        file: an .obj, .stl or .msh file.
        scale: factors along its axes.
    """

    file: Path
    scale: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        Object.__post_init__(self)
        require(Path(self.file).is_file(), "file", str(self.file), "no such file")
        fits = are_numbers(self.scale, 3) and min(self.scale) > 0
        require(fits, "scale", self.scale, "must be 3 factors > 0")

    def shape(self, spec: Any, name: str) -> dict[str, Any]:
        """Return the geom's own fields."""
        spec.add_mesh(name=f"{name}/mesh", file=str(Path(self.file).resolve()), scale=list(self.scale))
        return {"type": _kind("MESH"), "meshname": f"{name}/mesh"}


@dataclass(kw_only=True, slots=True, frozen=True)
class Articulated:
    """A thing of several bodies with joints that nothing drives, fixed in the world: a drawer, a door.

    Its bodies, joints, geoms and sites are called ``<name>/<its own name>``.

    Attributes:
        model: MJCF file; its joints are hinges and slides.
        pos, quat_wxyz: pose of the model's origin in the world [m].
        fixed: always true.
    """

    model: Path
    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    quat_wxyz: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    fixed: bool = True

    def __post_init__(self) -> None:
        _check_pose(self.pos, self.quat_wxyz)
        require(self.fixed, "fixed", self.fixed, "an articulated object is fixed in the world; give its model a joint")
        require(Path(self.model).is_file(), "model", str(self.model), "no such file")

    def add_to(self, spec: Any, name: str, *, visual: bool) -> None:
        """Add the object below a body of its name; geoms that touch nothing are omitted unless ``visual``."""
        import mujoco

        try:
            own = mujoco.MjSpec.from_file(str(self.model))
        except ValueError as error:
            line = " ".join(str(error).split())
            raise ValueError(f"objects.{name}.model={str(self.model)!r}: cannot be read: {line}") from None
        allowed = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
        for joint in own.joints:
            right = "must be a hinge or a slide; a free object is a Box, Sphere, Cylinder or Mesh"
            require(joint.type in allowed, f"objects.{name}: joint", joint.name, right)
        for geom in list(own.geoms):
            touches = bool(geom.contype or geom.conaffinity)
            geom.contype, geom.conaffinity = int(touches), 0
            if not touches and not visual:
                own.delete(geom)
        body = spec.worldbody.add_body(name=name, pos=list(self.pos), quat=list(self.quat_wxyz))
        spec.attach(own, frame=body.add_frame(), prefix=f"{name}/")


@dataclass(kw_only=True, slots=True, frozen=True)
class Contact:
    """A sensor of the contacts between two parts of the scene: the size of their net force, ``s.contact_force``.

    A part is "robot" or an object with everything that it consists of, or the name of one body or geom; in a team also
    "others", all robots but this one.

    Attributes:
        first: a part.
        second: the other one; "" is anything.
    """

    first: str
    second: str = ""


def check_objects(objects: dict[str, Any], contacts: dict[str, Any]) -> None:
    """Check names and kinds of a task's objects and contact sensors."""
    for name, thing in objects.items():
        is_name = str(name).isidentifier() and name not in (ROBOT, OTHERS, "world", "floor")
        right = "an object's name must be letters, digits and _, and not robot, others, world, floor"
        require(is_name, "objects", name, right)
        right = "must be a Box, Sphere, Cylinder, Mesh or Articulated"
        require(isinstance(thing, Object | Articulated) and type(thing) is not Object, f"objects.{name}", thing, right)
    for name, sensor in contacts.items():
        require(str(name).isidentifier(), "contacts", name, "a sensor's name must be letters, digits and _")
        require(isinstance(sensor, Contact), f"contacts.{name}", sensor, "must be Contact(first=..., second=...)")
        require(bool(sensor.first), f"contacts.{name}.first", sensor.first, "must name a part of the scene")


def add_contact(spec: Any, name: str, sensor: Contact, roots: dict[str, str]) -> None:
    """Add a contact sensor to a ``mujoco.MjSpec``; ``roots`` are entity -> its topmost body.

    Raises:
        ValueError: it names a part that does not exist.
    """
    import mujoco

    known = {
        "SUBTREE": list(roots),
        "BODY": [body.name for body in spec.bodies if body.name not in ("", "world")],
        "GEOM": [geom.name for geom in spec.geoms if geom.name],
    }
    kinds = {"SUBTREE": "mjOBJ_XBODY", "BODY": "mjOBJ_BODY", "GEOM": "mjOBJ_GEOM"}
    ends = []
    for end in ("first", "second"):
        part = getattr(sensor, end)
        if not part:
            ends.append((mujoco.mjtObj.mjOBJ_UNKNOWN, ""))
            continue
        kind = next((kind for kind, names in known.items() if part in names), None)
        if kind is None:
            names = [name for group in known.values() for name in group]
            line = "the scene lacks an entity, body or geom of that name"
            raise ValueError(f"contacts.{name}.{end}={part!r}: {line}; {nearest(part, names)}")
        ends.append((getattr(mujoco.mjtObj, kinds[kind]), roots.get(part, part) if kind == "SUBTREE" else part))
    sense_contact(spec, f"contact/{name}", *ends)


def sense_contact(spec: Any, name: str, first: tuple[Any, str], second: tuple[Any, str] | None = None) -> None:
    """Add MuJoCo's sensor of CONTACT_SIZE values to a ``mujoco.MjSpec``; a part is its kind and its name."""
    import mujoco

    fields, net_force = mujoco.mjtConDataField, 3
    data = (1 << int(fields.mjCONDATA_FOUND)) | (1 << int(fields.mjCONDATA_FORCE))
    ends: dict[str, Any] = {"objtype": first[0], "objname": first[1]}
    if second is not None:
        ends |= {"reftype": second[0], "refname": second[1]}
    spec.add_sensor(name=name, type=mujoco.mjtSensor.mjSENS_CONTACT, intprm=[data, net_force, 1], **ends)


def _check_pose(pos: Any, quat: Any) -> None:
    require(are_numbers(pos, 3), "pos", pos, "must be 3 numbers [m]")
    require(are_numbers(quat, 4), "quat_wxyz", quat, "must be 4 numbers")
    require(abs(math.hypot(*quat) - 1.0) < 1e-3, "quat_wxyz", quat, "must have length 1")


def _kind(name: str) -> Any:
    import mujoco

    return getattr(mujoco.mjtGeom, f"mjGEOM_{name}")
