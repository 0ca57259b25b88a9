"""The inertial measurement unit: its mount, its accelerometer, and the terms in its own frame."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import warp as wp
from robot_rl_assets.robot import Robot

from robot_rl_envs.actuation.actuators import engine_delay
from robot_rl_envs.engine import DIRTY_MODEL
from robot_rl_envs.quat import multiply, quat_from_axis_angle, quat_multiply, quat_rotate_inverse, rotate_inverse
from robot_rl_envs.sensing.sensor import Fields, Sensor, SensorContext
from robot_rl_envs.terms import Source, event, observation
from robot_rl_envs.terms.checks import are_numbers, nearest, require

ACCELEROMETER = "imu_accelerometer"
MOUNT = "imu_mount"
DELAY_PATH = "sensors.imu.delay_s"


@wp.func
def read_accelerometer(s: Any, i: int):
    """Copy world i's accelerometer of the last substep [m/s^2], in the frame of its site."""
    at = s.imu_at[0]
    acc = wp.vec3(s.sensordata[i, at], s.sensordata[i, at + 1], s.sensordata[i, at + 2])
    s.imu_acc[i] = acc
    s.imu_acc_now[i] = acc


@wp.func
def read_late_accelerometer(s: Any, i: int):
    """Copy the value of world i's delayed accelerometer, and its newest value from MuJoCo's buffer.

    A buffer contains: an internal number, the place of the newest sample, the samples' times, the samples.
    """
    at = s.imu_at[0]
    s.imu_acc[i] = wp.vec3(s.sensordata[i, at], s.sensordata[i, at + 1], s.sensordata[i, at + 2])
    head = s.imu_at[1]
    k = head + 2 + s.imu_at[2] + 3 * int(s.history[i, head + 1])
    s.imu_acc_now[i] = wp.vec3(s.history[i, k], s.history[i, k + 1], s.history[i, k + 2])


@wp.func
def rest_accelerometer(s: Any, i: int):
    """Set world i's accelerometer to its value at rest: the ground's push against gravity, in its own frame."""
    up = quat_rotate_inverse(s.base_quat_wxyz[i], -s.gravity_rest[0])
    acc = quat_rotate_inverse(s.imu_mount_wxyz[0], up)
    s.imu_acc[i] = acc
    s.imu_acc_now[i] = acc


@wp.func
def draw_sensor_delay(s: Any, i: int, sensor: int, rng: wp.uint32, lo: float, hi: float, dt: float, longest: float):
    """Draw world i's delay of a sensor in [lo, hi] seconds, rounded to physics steps; see actuators.engine_delay."""
    steps = wp.clamp(wp.floor((lo + (hi - lo) * wp.randf(rng)) / dt + 0.5), 0.0, longest)
    s.sensor_delay[i, sensor, 0] = wp.max(0.0, (steps - 0.5) * dt)


@dataclass(kw_only=True, slots=True)
class Imu(Sensor):
    """The mount of the inertial measurement unit: a site, or a pose on a body; rigid to the base.

    Attributes:
        site: the site; empty: the robot's own ``imu_site``, or the base's frame if it has none.
        body: a body to mount it on instead of a site.
        pos: position on ``body`` [m].
        quat_wxyz: orientation on ``body``: from the unit's frame to the body's.
        delay_s: (lo, hi) [s]: each world's delay of the accelerometer, drawn at every reset, to the physics step: by
            MuJoCo's own sensor delay.
    """

    parts: ClassVar[tuple[str, ...]] = ("imu_acc",)

    site: str = ""
    body: str = ""
    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    quat_wxyz: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    delay_s: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        require(
            not (self.site and self.body), "sensors.imu.site", self.site, f"leave it or imu.body={self.body!r} empty"
        )
        require(are_numbers(self.pos, 3), "sensors.imu.pos", self.pos, "must be 3 numbers [m]")
        require(are_numbers(self.quat_wxyz, 4), "sensors.imu.quat_wxyz", self.quat_wxyz, "must be 4 numbers")
        length = math.hypot(*self.quat_wxyz)
        require(
            abs(length - 1.0) < 1e-3, "sensors.imu.quat_wxyz", self.quat_wxyz, f"its length is {length:g}, must be 1"
        )
        moved = any(self.pos) or tuple(self.quat_wxyz) != (1.0, 0.0, 0.0, 0.0)
        right = "imu.pos and imu.quat_wxyz place the unit on a body; name it (a site has its own pose)"
        require(bool(self.body) or not moved, "sensors.imu.body", self.body, right)
        fits = are_numbers(self.delay_s, 2) and 0.0 <= self.delay_s[0] <= self.delay_s[1] <= 0.5
        require(fits, "sensors.imu.delay_s", self.delay_s, "must be (lo, hi) with 0 <= lo <= hi <= 0.5 s")

    # -- the model ---------------------------------------------------------------------------------------------------

    def is_late(self, at: SensorContext) -> bool:
        """Return whether the accelerometer is read and delayed by the engine."""
        return "imu_acc" in at.used and self.delay_s[1] > 0

    def mount_site(self, at: SensorContext) -> str:
        """Return the unit's site; empty if none is set and no term reads the unit."""
        if self.site:
            return self.site
        if self.body:
            return MOUNT
        return (at.robot.imu_site or MOUNT) if at.used & {"imu", "imu_acc"} else ""

    def mount_quat(self, at: SensorContext) -> np.ndarray:
        """Return (4,) w x y z, from the unit's frame to the base's.

        Raises:
            ValueError: the unit's body moves against the base.
        """
        import mujoco

        mount, model, robot = self.mount_site(at), at.model, at.robot
        if not mount:
            return np.array([1.0, 0.0, 0.0, 0.0])
        site = model.site(mount)
        quat, body = model.site_quat[site.id].copy(), int(model.site_bodyid[site.id])
        while body != at.base_body:
            if body == 0 or model.body_jntnum[body] > 0:
                name = model.body(int(model.site_bodyid[site.id])).name
                field = f"body={self.body!r}" if self.body else f"site={mount!r}"
                raise ValueError(
                    f"sensors.imu.{field}: sits on body {name!r}, which moves against the base "
                    f"{robot.base_body!r}; mount it on the base or on a body fixed to it"
                )
            outer = quat.copy()
            mujoco.mju_mulQuat(quat, model.body_quat[body], outer)
            body = int(model.body_parentid[body])
        return quat / np.linalg.norm(quat)

    def add_to(self, spec: Any, at: SensorContext) -> None:
        """Add the unit's site and its accelerometer.

        Raises:
            ValueError: the site or body is missing, or the robot is without a base.
        """
        import mujoco

        mount, robot = self.mount_site(at), at.robot
        if mount:
            self._check_place(spec, robot)
        if mount == MOUNT:
            body = spec.body(self.body or robot.base_body)
            body.add_site(name=MOUNT, pos=list(self.pos), quat=list(self.quat_wxyz))
        if "imu_acc" in at.used:
            sensor = spec.add_sensor(
                name=ACCELEROMETER,
                type=mujoco.mjtSensor.mjSENS_ACCELEROMETER,
                objtype=mujoco.mjtObj.mjOBJ_SITE,
                objname=mount,
            )
            if self.is_late(at):
                steps = round(self.delay_s[1] / at.timestep)
                sensor.nsample = steps + 2
                sensor.delay = engine_delay(steps, at.timestep)

    def _check_place(self, spec: Any, robot: Robot) -> None:
        if robot.base_body is None:
            field = f"site={self.site!r}" if self.site else f"body={self.body!r}"
            line = f"robot {robot.name!r} is bolted down, without an IMU; omit its terms"
            raise ValueError(f"sensors.imu.{field}: {line}")
        if self.site and spec.site(self.site) is None:
            hint = nearest(self.site, [site.name for site in spec.sites if site.name])
            raise ValueError(f"sensors.imu.site={self.site!r}: robot {robot.name!r} does not have such a site; {hint}")
        if self.body and spec.body(self.body) is None:
            hint = nearest(self.body, [body.name for body in spec.bodies if body.name not in ("", "world")])
            raise ValueError(f"sensors.imu.body={self.body!r}: robot {robot.name!r} does not have such a body; {hint}")

    def bind(self, at: SensorContext) -> None:
        """Raise ValueError if the unit's body moves against the base, or its values are read in two frames."""
        quat = self.mount_quat(at)
        if at.used & {"imu", "imu_acc"} and at.in_base and abs(quat[0]) < 1.0 - 1e-9:
            raise ValueError(
                f"{at.in_base[0]}: reads the IMU in the base frame, other terms in the unit's own, which is "
                f"turned by {quat.round(4).tolist()}; a robot has one of them: use only the imu terms"
            )

    def fill_history(self, data: Any, at: SensorContext) -> None:
        """Fill the accelerometer's delay buffer with its value at rest, level."""
        if not self.is_late(at):
            return
        import mujoco

        sensor = at.model.sensor(ACCELEROMETER).id
        samples = int(at.model.sensor_history[sensor, 0])
        rest, inverse = np.zeros(3), np.zeros(4)
        mujoco.mju_negQuat(inverse, self.mount_quat(at))
        mujoco.mju_rotVecQuat(rest, -at.model.opt.gravity, inverse)
        mujoco.mj_initSensorHistory(at.model, data, sensor, None, np.tile(rest, (samples, 1)), 0.0)

    def model_fields(self, at: SensorContext) -> list[str]:
        """Return the delay of a sensor, if the accelerometer has one."""
        return ["sensor_delay"] if self.is_late(at) else []

    # -- the state and the step --------------------------------------------------------------------------------------

    def fields(self, sizes: Mapping[str, int], num_envs: int, at: SensorContext) -> Fields:
        """Return the mount, each world's misalignment, and the accelerometer's values."""
        found: Fields = {"imu_mount_wxyz": (wp.vec4, 1, (1,)), "imu_tilt_wxyz": (wp.float32, 2, (num_envs, 4))}
        if "imu_acc" in at.used:
            found |= dict.fromkeys(("imu_acc", "imu_acc_now"), (wp.vec3, 1, (num_envs,)))
            found |= {"imu_at": (wp.int32, 1, (3,)), "gravity_rest": (wp.vec3, 1, (1,))}
        if self.is_late(at):
            found["history"] = (wp.float32, 2, ())
        return found

    def constants(self, at: SensorContext) -> dict[str, Any]:
        """Return the mount, no misalignment, and the accelerometer's place in MuJoCo's arrays."""
        found = {"imu_mount_wxyz": self.mount_quat(at)[None], "imu_tilt_wxyz": [1.0, 0.0, 0.0, 0.0]}
        if "imu_acc" in at.used:
            sensor = at.model.sensor(ACCELEROMETER).id
            columns = (at.model.sensor_adr, at.model.sensor_historyadr, at.model.sensor_history[:, 0])
            found |= {"imu_at": [int(column[sensor]) for column in columns], "gravity_rest": at.model.opt.gravity[None]}
        return found

    def update(self, at: SensorContext) -> Sequence[wp.Function]:
        """Read the accelerometer."""
        if "imu_acc" not in at.used:
            return ()
        return (read_late_accelerometer if self.is_late(at) else read_accelerometer,)

    def reset(self, at: SensorContext) -> Sequence[wp.Function]:
        """Set the accelerometer to its value at rest."""
        return (rest_accelerometer,) if "imu_acc" in at.used else ()

    def draws(self, w: Any, at: SensorContext) -> str:
        """Return the draw of a world's own delay of its accelerometer."""
        if not self.is_late(at):
            return ""
        accelerometer = at.model.sensor(ACCELEROMETER).id
        lo, hi = w.params(DELAY_PATH, self.delay_s)
        timestep = w.layout.param("sim.timestep", at.timestep)
        longest = float(round(self.delay_s[1] / at.timestep))
        draw = w.runs([draw_sensor_delay], f"s, i, {accelerometer}, rng, {lo}, {hi}, {timestep}, {longest}")
        return f"rng = {w.rng(DELAY_PATH)}\n{draw}s.dirty[i] = s.dirty[i] | {DIRTY_MODEL}\n"

    # -- the robot ---------------------------------------------------------------------------------------------------

    def signals(self, state: Any, at: SensorContext) -> dict[str, Any]:
        """Return the unit's values in its own frame."""
        mount = state.imu_mount_wxyz.expand(state.base_quat_wxyz.shape)
        turn = multiply(mount, state.imu_tilt_wxyz)
        found = {
            "imu_gyro": rotate_inverse(turn, state.base_ang_vel_b),
            "imu_quat_wxyz": multiply(state.base_quat_wxyz, turn),
        }
        if "imu_acc" in at.used:
            found["imu_acc"] = rotate_inverse(state.imu_tilt_wxyz, state.imu_acc_now)
        return found

    def mirror(self, rule: str, at: SensorContext) -> tuple[list[int], list[float]] | None:
        """Return the mirror of a vector ("imu_polar") or an angular velocity ("imu_axial") in the unit's frame."""
        if rule not in ("imu_polar", "imu_axial"):
            return None
        import mujoco

        turn, quat = np.zeros(9), self.mount_quat(at)
        mujoco.mju_quat2Mat(turn, quat)
        turn = turn.reshape(3, 3)
        side = turn.T @ np.diag([1.0, -1.0, 1.0]) @ turn * (1.0 if rule == "imu_polar" else -1.0)
        order = np.abs(side).argmax(axis=1)
        if np.abs(np.abs(side).max(axis=1) - 1.0).max() > 1e-5:
            raise ValueError(
                f"sensors.imu: turned by {quat.round(4).tolist()} against the base it cannot be mirrored; "
                "mount it turned about y only, or set mirror to False"
            )
        return order.tolist(), [float(np.sign(side[k, order[k]])) for k in range(3)]


@wp.func
def mount_of(s: Any, i: int) -> wp.vec4:
    """Orientation (w, x, y, z) of world i's inertial measurement unit in the base frame, its misalignment included."""
    tilt = wp.vec4(s.imu_tilt_wxyz[i, 0], s.imu_tilt_wxyz[i, 1], s.imu_tilt_wxyz[i, 2], s.imu_tilt_wxyz[i, 3])
    return quat_multiply(s.imu_mount_wxyz[0], tilt)


@wp.func
def tilted(s: Any, i: int, v: wp.vec3) -> wp.vec3:
    """A vector in the frame of the unit's site, in the frame of world i's misaligned unit."""
    tilt = wp.vec4(s.imu_tilt_wxyz[i, 0], s.imu_tilt_wxyz[i, 1], s.imu_tilt_wxyz[i, 2], s.imu_tilt_wxyz[i, 3])
    return quat_rotate_inverse(tilt, v)


@observation(size=3, unit="rad/s", frame="imu", signal="imu_gyro", mirror="imu_axial", source=Source(uses=("imu",)))
def imu_gyro(s: Any, i: int, j: int) -> float:
    """Angular velocity in the frame of the inertial measurement unit [rad/s]."""
    return quat_rotate_inverse(mount_of(s, i), s.base_ang_vel_b[i])[j]


@observation(
    size=3,
    frame="imu",
    signal="imu_quat_wxyz",
    transform="projected_gravity",
    mirror="imu_polar",
    source=Source(uses=("imu",)),
)
def imu_gravity(s: Any, i: int, j: int) -> float:
    """Unit vector of gravity in the frame of the inertial measurement unit."""
    return quat_rotate_inverse(mount_of(s, i), s.projected_gravity_b[i])[j]


@wp.func
def imu_acc_now(s: Any, i: int, j: int) -> float:
    """The accelerometer's newest value, undelayed [m/s^2]."""
    return tilted(s, i, s.imu_acc_now[i])[j]


@observation(
    size=3,
    unit="m/s^2",
    frame="imu",
    signal="imu_acc",
    mirror="imu_polar",
    source=Source(uses=("imu_acc",), clean=imu_acc_now),
)
def imu_acc(s: Any, i: int, j: int) -> float:
    """Accelerometer of the last substep, gravity included, in the unit's frame [m/s^2]; at rest it reads g upwards."""
    return tilted(s, i, s.imu_acc[i])[j]


def check_mount(params: dict[str, float], scene: Any) -> None:
    """Refuse a misalignment that no term reads, or a large one."""
    if not 0.0 <= params["rpy"] <= 0.5:
        raise ValueError(f"rpy={params['rpy']!r}: must be in [0, 0.5] rad")
    if "imu" not in scene.sensing.read:
        raise ValueError(f"rpy={params['rpy']!r}: no observation reads the IMU in its own frame; use sensing.imu_gyro")


@event(writes="nothing", fields={"imu_tilt_wxyz": (4,)}, modes=("startup", "reset"), check=check_mount)
def imu_mount(s: Any, i: int, rng: wp.uint32, rpy: float):
    """Misalign the inertial measurement unit by up to +-rpy [rad] about each of its axes."""
    turn = quat_from_axis_angle(wp.vec3(0.0, 0.0, 1.0), rpy * (2.0 * wp.randf(rng) - 1.0))
    turn = quat_multiply(turn, quat_from_axis_angle(wp.vec3(0.0, 1.0, 0.0), rpy * (2.0 * wp.randf(rng) - 1.0)))
    turn = quat_multiply(turn, quat_from_axis_angle(wp.vec3(1.0, 0.0, 0.0), rpy * (2.0 * wp.randf(rng) - 1.0)))
    for k in range(4):
        s.imu_tilt_wxyz[i, k] = turn[k]
