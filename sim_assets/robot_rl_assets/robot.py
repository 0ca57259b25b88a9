"""What the code has to know about a robot beyond its MJCF file.

The model file carries physics (inertias, joint ranges, friction, shapes) and nothing about control: actuators, floor,
lights and sensors are added by the code that builds the scene, from the facts below.

Contact bits are the same for every robot, so that scenes and robots combine freely:

===================  =======  ===========
geom                 contype  conaffinity
===================  =======  ===========
robot, collision     0        1
robot, visual        0        0
floor and terrain    1        0 (or more)
===================  =======  ===========

A robot therefore touches the ground and never itself. Visual geoms are in group 2, collision geoms in group 3. Every
body has an explicit inertial, so a scene for training may drop the visual geoms without a change of dynamics.

A model that is a whole scene, with its own ground and actuators, is the exception: its robot has `complete=True`,
and nothing is added to it or removed.
"""

import dataclasses
import math
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any


def _require_finite(where: str, facts: object, fields: tuple[str, ...]) -> None:
    """Raise ValueError, with the field and its value, unless all fields are finite numbers."""
    for field in fields:
        value = getattr(facts, field)
        if not isinstance(value, Real) or not math.isfinite(value):
            raise ValueError(f"{where}: {field} is {value!r}; a finite number is needed")


@dataclass(kw_only=True, slots=True, frozen=True)
class Dynamics:
    """How a joint of a certain robot moves, as `robot-rl identify` measures it; None: as the model file has it.

    Units are those of the joint's coordinate, as of `Joint`.

    Attributes:
        gain: Factor on kp: the strength of the motor and an error of kp have the same effect.
        armature: Inertia of the rotor and gears [kg m^2 or kg].
        damping: Viscous damping [N m s/rad or N s/m]; below 0 if the motor's kd is less than the commanded one.
        friction: Dry friction [N m or N].
    """

    gain: float = 1.0
    armature: float | None = None
    damping: float | None = None
    friction: float | None = None

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ValueError: A field is out of range; the line names it.
        """
        given = [field.name for field in dataclasses.fields(self) if getattr(self, field.name) is not None]
        _require_finite("dynamics", self, tuple(given))
        if self.gain <= 0:
            raise ValueError(f"dynamics: gain is {self.gain}; it must be more than 0")
        for field in ("armature", "friction"):
            value = getattr(self, field)
            if value is not None and value < 0:
                raise ValueError(f"dynamics: {field} is {value}; it must be 0 or more")


@dataclass(kw_only=True, slots=True, frozen=True)
class Joint:
    """One joint with a single coordinate: actuated, or passive but read by the policy.

    Units are those of the coordinate: rad, N m and rad/s for a hinge; m, N and m/s for a slider. The torque is
    `kp * (target - pos) - kd * vel` clipped to the effort limit. With `kp = 0` and a kd the target is a speed, as of a
    wheel: `kd * (target - vel)`. With `kp = kd = 0` and an effort limit the joint is driven by the effort itself; with
    an effort limit of 0 it is passive.

    Attributes:
        name: Name of the joint in the MJCF file.
        default_pos: Position in the default pose, the origin of position targets [rad or m].
        effort_limit: Largest torque or force of the actuator [N m or N]; 0 for a passive joint.
        velocity_limit: Largest speed the real joint reaches [rad/s or m/s].
        kp: Proportional gain [N m/rad or N/m].
        kd: Derivative gain [N m s/rad or N s/m].
        action_scale: Target offset (or speed, or effort as a share of the limit) for an action of 1.
        mirror: Name of the joint on the other side of the left-right plane; None for a joint in the plane.
        mirror_sign: -1 if the mirrored position has the opposite sign, else 1.
        dynamics: What is measured of the real joint; None: the model file and the gains hold.
    """

    name: str
    default_pos: float
    effort_limit: float
    velocity_limit: float
    kp: float = 0.0
    kd: float = 0.0
    action_scale: float = 1.0
    mirror: str | None = None
    mirror_sign: float = 1.0
    dynamics: Dynamics | None = None

    def __post_init__(self) -> None:
        """Check names, ranges and signs.

        Raises:
            ValueError: A field is out of range; the line names the joint, the field and the value.
        """
        if not self.name:
            raise ValueError("Joint.name is empty; give the joint's name in the MJCF file")
        fields = ("default_pos", "effort_limit", "velocity_limit", "kp", "kd", "action_scale", "mirror_sign")
        _require_finite(f"joint '{self.name}'", self, fields)
        for field in ("effort_limit", "kp", "kd"):
            value = getattr(self, field)
            if value < 0:
                raise ValueError(f"joint '{self.name}': {field} is {value}; it must be 0 or more")
        for field in ("velocity_limit", "action_scale"):
            value = getattr(self, field)
            if value <= 0:
                raise ValueError(f"joint '{self.name}': {field} is {value}; it must be more than 0")
        if self.effort_limit == 0 and (self.kp or self.kd):
            raise ValueError(
                f"joint '{self.name}': effort_limit is 0 but kp is {self.kp} and kd is {self.kd}; "
                "a passive joint is without gains, an actuated one needs an effort limit"
            )
        if self.mirror_sign not in (-1.0, 1.0):
            raise ValueError(f"joint '{self.name}': mirror_sign is {self.mirror_sign}; it must be 1 or -1")
        if self.dynamics is not None and (self.dynamics.damping or 0.0) < -self.kd:
            raise ValueError(
                f"joint '{self.name}': dynamics: damping is {self.dynamics.damping}; with kd it is below 0"
            )

    @property
    def motor_gains(self) -> tuple[float, float]:
        """The kp and kd that the motor has when it is commanded `kp` and `kd`: a simulated servo takes these."""
        if self.dynamics is None:
            return self.kp, self.kd
        return self.kp * self.dynamics.gain, self.kd + min(self.dynamics.damping or 0.0, 0.0)

    @property
    def passive(self) -> bool:
        """Whether nothing drives this joint."""
        return self.effort_limit == 0

    @property
    def by_speed(self) -> bool:
        """Whether its target is a speed [rad/s or m/s], as of a wheel, if actions are targets."""
        return self.kp == 0 and self.kd > 0


@dataclass(kw_only=True, slots=True, frozen=True)
class Robot:
    """A robot: its model file and the facts that control, mirroring and resets need.

    Attributes:
        name: Name in the registry, that of the robot's folder.
        model: MJCF file, without actuators, floor or lights.
        joints: Joints in the policy's order; of a complete model the driven ones in its actuators' order.
        base_body: Name of the floating base's body; None for a robot bolted down.
        base_height: Height of the base's origin above the ground in the default pose [m]; 0 with a fixed base.
        feet: Names of the feet: geom `<foot>`, a sphere or a box, and site `<foot>_foot` at its centre.
        foot_radius: Distance of a foot's centre from its sole [m]: radius of a sphere, half the height of a box; 0
            without feet.
        foot_mirror: For each foot the index of the one on the other side.
        imu_site: Site of the inertial measurement unit, None without one.
        complete: The model file is a whole scene, with its own ground and actuators.
    """

    name: str
    model: Path
    joints: tuple[Joint, ...]
    base_body: str | None = None
    base_height: float = 0.0
    feet: tuple[str, ...] = ()
    foot_radius: float = 0.0
    foot_mirror: tuple[int, ...] = ()
    imu_site: str | None = None
    complete: bool = False

    def __post_init__(self) -> None:
        """Check that names are unique and that both mirror maps are involutions.

        Raises:
            ValueError: A field is inconsistent; the line names the robot, the field and the value.
        """
        if not self.joints:
            raise ValueError(f"robot '{self.name}': joints is empty; at least one joint is needed")
        if not self.model.is_file():
            raise ValueError(f"robot '{self.name}': model is '{self.model}'; no such file")
        for field, names in (("joints", self.joint_names), ("feet", self.feet)):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"robot '{self.name}': {field} names {', '.join(twice)} twice; names must be unique")
        _require_finite(f"robot '{self.name}'", self, ("base_height", "foot_radius"))
        self._check_base()
        self._check_joint_mirror()
        self._check_feet()

    def _check_base(self) -> None:
        if self.base_body is None and self.base_height != 0:
            raise ValueError(
                f"robot '{self.name}': base_height is {self.base_height} without a base_body; a fixed base has 0"
            )
        if self.base_body is not None and not self.base_height > 0:
            raise ValueError(
                f"robot '{self.name}': base_height is {self.base_height}; a floating base needs more than 0 [m]"
            )

    def _check_joint_mirror(self) -> None:
        by_name = {joint.name: joint for joint in self.joints}
        for joint in self.joints:
            if joint.mirror is None:
                continue
            partner = by_name.get(joint.mirror)
            if partner is None:
                raise ValueError(f"robot '{self.name}': joint '{joint.name}' mirrors unknown joint '{joint.mirror}'")
            if (partner.mirror or partner.name) != joint.name or partner.mirror_sign != joint.mirror_sign:
                raise ValueError(
                    f"robot '{self.name}': joint '{joint.name}' mirrors '{partner.name}', which must mirror it back "
                    f"with mirror_sign {joint.mirror_sign}"
                )

    def _check_feet(self) -> None:
        count = len(self.feet)
        if sorted(self.foot_mirror) != list(range(count)) or any(
            self.foot_mirror[self.foot_mirror[i]] != i for i in range(count)
        ):
            raise ValueError(
                f"robot '{self.name}': foot_mirror is {self.foot_mirror}; it must pair the {count} feet by index"
            )
        if self.feet and not self.foot_radius > 0:
            raise ValueError(f"robot '{self.name}': foot_radius is {self.foot_radius}; feet need more than 0 [m]")

    def load_model(self) -> Any:
        """Return the `mujoco.MjSpec` of the model file, with the measured dynamics of the joints that have some.

        Raises:
            ValueError: MuJoCo cannot read the file.
            ModuleNotFoundError: MuJoCo is not installed.
        """
        import mujoco as compiled  # without stubs

        mujoco: Any = compiled
        spec = mujoco.MjSpec.from_file(str(self.model))
        for joint in self.joints:
            if joint.dynamics is None:
                continue
            found, known = spec.joint(joint.name), joint.dynamics
            if known.armature is not None:
                found.armature = known.armature
            if known.damping is not None:
                found.damping = [max(known.damping, 0.0), 0.0, 0.0]
            if known.friction is not None:
                found.frictionloss = known.friction
        return spec

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints in the policy's order."""
        return tuple(joint.name for joint in self.joints)

    def default_pos(self) -> tuple[float, ...]:
        """Joint positions of the default pose in the policy's order [rad or m]."""
        return tuple(joint.default_pos for joint in self.joints)

    def joint_mirror(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Left-right mirror of joint positions: `mirrored[i] = sign[i] * pos[index[i]]`.

        Returns:
            Index of the partner, and sign, of each joint in the policy's order.
        """
        names = self.joint_names
        index = tuple(names.index(joint.mirror or joint.name) for joint in self.joints)
        return index, tuple(joint.mirror_sign for joint in self.joints)
