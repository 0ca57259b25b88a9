"""A task's sensors in a compiled scene: what they add to the model and to ``s``, and the signals of a real robot.

A quantity that several groups read, or that needs the physics' last substeps, is computed once a step and once after a
reset, and kept in ``s``; the terms of :mod:`robot_rl_envs.mdp.sensing` read it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp

from robot_rl_envs.actuation.actuators import engine_delay
from robot_rl_envs.sensing.sensors import Sensors
from robot_rl_envs.terms.checks import nearest

if TYPE_CHECKING:
    import mujoco
    import torch
    from robot_rl_assets.robot import Robot

ACCELEROMETER = "imu_accelerometer"
MOUNT = "imu_mount"
DELAY_PATH = "sensors.imu.delay_s"


class Sensing:
    """The part of a task's :class:`~robot_rl_envs.sensing.sensors.Sensors` that its terms read, in one scene.

    Attributes:
        used: names as :func:`~robot_rl_envs.sensing.sensors.used_sensors` returns them.
        substeps: physics steps of contact force that are kept.
        mount_quat: (4,) w x y z, from the IMU's frame to the base's.
        mount_site: the IMU's site.
    """

    def __init__(
        self,
        sensors: Sensors | None = None,
        used: frozenset[str] = frozenset(),
        decimation: int = 1,
        in_base: tuple[str, ...] = (),
    ):
        self.sensors, self.used, self._in_base = sensors or Sensors(), used, in_base
        self.substeps = self.sensors.foot_force.substeps or decimation
        self.mount_quat = np.array([1.0, 0.0, 0.0, 0.0])
        self.mount_site = ""
        self._imu_at = [0, 0, 0]
        self._gravity = np.zeros(3)

    @property
    def imu(self) -> bool:
        """Whether a term reads the inertial measurement unit."""
        return bool(self.used & {"imu", "imu_acc"})

    @property
    def rays(self) -> bool:
        """Whether the height scan is cast by the engine."""
        return "height_scan" in self.used and self.sensors.height_scan.source == "rays"

    @property
    def late(self) -> bool:
        """Whether the accelerometer is delayed by the engine."""
        return "imu_acc" in self.used and self.sensors.imu.delay_s[1] > 0

    # -- the model ---------------------------------------------------------------------------------------------------

    def add_to(self, spec: Any, robot: Robot, timestep: float) -> None:
        """Add sites and sensors to a ``mujoco.MjSpec`` that already has the feet's contact sensors.

        Raises:
            ValueError: the IMU's site or body is missing, or the robot has no base.
        """
        import mujoco

        imu = self.sensors.imu
        if imu.site or imu.body or self.imu:
            self._mount(spec, robot)
        if "imu_acc" in self.used:
            sensor = spec.add_sensor(
                name=ACCELEROMETER,
                type=mujoco.mjtSensor.mjSENS_ACCELEROMETER,
                objtype=mujoco.mjtObj.mjOBJ_SITE,
                objname=self.mount_site,
            )
            if self.late:
                steps = round(imu.delay_s[1] / timestep)
                sensor.nsample = steps + 2
                sensor.delay = engine_delay(steps, timestep)
        if "foot_forces" in self.used:
            for foot in robot.feet:
                spec.sensor(f"{foot}_contact").nsample = self.substeps

    def _mount(self, spec: Any, robot: Robot) -> None:
        imu = self.sensors.imu
        if robot.base_body is None:
            field = f"site={imu.site!r}" if imu.site else f"body={imu.body!r}"
            line = f"robot {robot.name!r} is bolted down and has no IMU; leave its terms out"
            raise ValueError(f"sensors.imu.{field}: {line}")
        if imu.site and spec.site(imu.site) is None:
            hint = nearest(imu.site, [site.name for site in spec.sites if site.name])
            raise ValueError(f"sensors.imu.site={imu.site!r}: robot {robot.name!r} has no such site; {hint}")
        if imu.body and spec.body(imu.body) is None:
            hint = nearest(imu.body, [body.name for body in spec.bodies if body.name not in ("", "world")])
            raise ValueError(f"sensors.imu.body={imu.body!r}: robot {robot.name!r} has no such body; {hint}")
        self.mount_site = imu.site or ("" if imu.body else robot.imu_site or "")
        if not self.mount_site:
            self.mount_site = MOUNT
            body = spec.body(imu.body or robot.base_body)
            body.add_site(name=MOUNT, pos=list(imu.pos), quat=list(imu.quat_wxyz))

    def bind(self, model: mujoco.MjModel, robot: Robot, base_body: int) -> dict[str, int]:
        """Find everything in the compiled model; return the widths that terms name.

        Raises:
            ValueError: the IMU's body moves against the base, or its values are read in two frames.
        """
        self._gravity = model.opt.gravity.copy()
        if self.mount_site:
            self.mount_quat = self._mount_in_base(model, robot, base_body)
        if self.imu and self._in_base and abs(self.mount_quat[0]) < 1.0 - 1e-9:
            raise ValueError(
                f"{self._in_base[0]}: reads the IMU in the base frame, other terms in the unit's own, which is "
                f"turned by {self.mount_quat.round(4).tolist()}; a robot has one of them: use only the imu terms"
            )
        if "imu_acc" in self.used:
            sensor = model.sensor(ACCELEROMETER).id
            columns = (model.sensor_adr, model.sensor_historyadr, model.sensor_history[:, 0])
            self._imu_at = [int(column[sensor]) for column in columns]
        return {"height_scan": self.sensors.height_scan.count, "foot_forces": self.substeps * len(robot.feet)}

    def _mount_in_base(self, model: mujoco.MjModel, robot: Robot, base_body: int) -> np.ndarray:
        import mujoco

        site = model.site(self.mount_site)
        quat, body = model.site_quat[site.id].copy(), int(model.site_bodyid[site.id])
        while body != base_body:
            if body == 0 or model.body_jntnum[body] > 0:
                name = model.body(int(model.site_bodyid[site.id])).name
                field = f"body={self.sensors.imu.body!r}" if self.sensors.imu.body else f"site={self.mount_site!r}"
                raise ValueError(
                    f"sensors.imu.{field}: sits on body {name!r}, which moves against the base "
                    f"{robot.base_body!r}; mount it on the base or on what is fixed to it"
                )
            outer = quat.copy()
            mujoco.mju_mulQuat(quat, model.body_quat[body], outer)
            body = int(model.body_parentid[body])
        return quat / np.linalg.norm(quat)

    def fill_history(self, model: Any, data: Any) -> None:
        """Fill the delay buffers of ``data`` with the accelerometer's value at rest, level."""
        if not self.late:
            return
        import mujoco

        sensor = model.sensor(ACCELEROMETER).id
        samples = int(model.sensor_history[sensor, 0])
        rest, inverse = np.zeros(3), np.zeros(4)
        mujoco.mju_negQuat(inverse, self.mount_quat)
        mujoco.mju_rotVecQuat(rest, -self._gravity, inverse)
        mujoco.mj_initSensorHistory(model, data, sensor, None, np.tile(rest, (samples, 1)), 0.0)

    # -- the state ---------------------------------------------------------------------------------------------------

    def model_fields(self) -> list[str]:
        """Return the model fields that need per-world values."""
        return ["sensor_delay"] if self.late else []

    def fields(self, sizes: dict[str, int], num_envs: int) -> dict[str, tuple[Any, int, tuple[int, ...]]]:
        """Return fields of ``s``: name -> dtype, number of dimensions, shape; an empty shape is the engine's array."""
        found: dict[str, tuple[Any, int, tuple[int, ...]]] = {}
        if self.imu:
            found |= {"imu_mount_wxyz": (wp.vec4, 1, (1,)), "imu_tilt_wxyz": (wp.float32, 2, (num_envs, 4))}
        if "imu_acc" in self.used:
            found |= dict.fromkeys(("imu_acc", "imu_acc_now"), (wp.vec3, 1, (num_envs,)))
            found |= {"imu_at": (wp.int32, 1, (3,)), "gravity_rest": (wp.vec3, 1, (1,))}
        if "encoders" in self.used:
            found["last_joint_pos"] = (wp.float32, 2, (num_envs, sizes["joints"]))
        if "foot_forces" in self.used:
            found["foot_forces"] = (wp.float32, 2, (num_envs, sizes["foot_forces"]))
            found["foot_history_at"] = (wp.int32, 1, (sizes["feet"],))
        if self.late or "foot_forces" in self.used:
            found["history"] = (wp.float32, 2, ())
        if "height_scan" in self.used:
            count = self.sensors.height_scan.count
            found |= {"height_scan": (wp.float32, 2, (num_envs, count)), "scan_points": (wp.vec2, 1, (count,))}
            found["scan_reach"] = (wp.float32, 1, (1,))
        return found

    def fill(self, arrays: dict[str, wp.array], model: mujoco.MjModel, feet: tuple[str, ...]) -> None:
        """Set the values of constants and mounts."""
        contacts = [model.sensor(f"{foot}_contact").id for foot in feet]
        values: dict[str, Any] = {
            "imu_mount_wxyz": self.mount_quat[None],
            "imu_at": self._imu_at,
            "gravity_rest": self._gravity[None],
            "scan_points": self.sensors.height_scan.points(),
            "scan_reach": [self.sensors.height_scan.max_distance],
            "foot_history_at": model.sensor_historyadr[contacts],
        }
        for name, value in values.items():
            if name in arrays:
                arrays[name].assign(np.asarray(value, dtype=np.int32 if name.endswith("_at") else np.float32))
        if "imu_tilt_wxyz" in arrays:
            arrays["imu_tilt_wxyz"].assign(np.tile([1.0, 0.0, 0.0, 0.0], (arrays["imu_tilt_wxyz"].shape[0], 1)))

    # -- what the robot itself reads ---------------------------------------------------------------------------------

    def signals(self, state: Any) -> dict[str, torch.Tensor]:
        """Return the signals of a real robot, without noise, from ``Env.state``.

        Returns:
            joint_pos, joint_vel (N, nj), imu_gyro (N, 3) [rad/s], imu_quat_wxyz (N, 4), command (N, 3), foot_contact
            and foot_force (N, nf) [N]; and, where a term reads them, imu_acc (N, 3) [m/s^2] and height_scan (N, n) [m].
            The IMU's are in its own frame where a term reads it there, else in the base's.
        """
        fields = {"imu_gyro": "base_ang_vel_b", "imu_quat_wxyz": "base_quat_wxyz"}
        names = ("joint_pos", "joint_vel", "imu_gyro", "imu_quat_wxyz", "command", "foot_contact", "foot_force")
        found: dict[str, torch.Tensor] = {name: getattr(state, fields.get(name, name)).clone() for name in names}
        if self.imu:
            mount = state.imu_mount_wxyz.expand(state.base_quat_wxyz.shape)
            turn = _multiply(mount, state.imu_tilt_wxyz)
            found["imu_gyro"] = rotate_inverse(turn, state.base_ang_vel_b)
            found["imu_quat_wxyz"] = _multiply(state.base_quat_wxyz, turn)
        if "imu_acc" in self.used:
            found["imu_acc"] = rotate_inverse(state.imu_tilt_wxyz, state.imu_acc_now)
        if "height_scan" in self.used:
            found["height_scan"] = state.height_scan.clone()
        return found

    def mirror(self, rule: str) -> tuple[list[int], list[float]] | None:
        """Return permutation and sign of a sensor's values under the left-right mirror; None for any other rule.

        Raises:
            ValueError: the sensor's mount has no mirror.
        """
        if rule == "height_scan":
            scan = self.sensors.height_scan
            if scan.offset[1] != 0:
                line = "a grid to one side has no mirror; set mirror to False"
                raise ValueError(f"sensors.height_scan.offset={scan.offset!r}: {line}")
            rows, columns = scan.shape
            order = np.arange(rows * columns).reshape(rows, columns)[::-1]
            return order.ravel().tolist(), [1.0] * scan.count
        if rule not in ("imu_polar", "imu_axial"):
            return None
        import mujoco

        turn = np.zeros(9)
        mujoco.mju_quat2Mat(turn, self.mount_quat)
        turn = turn.reshape(3, 3)
        side = turn.T @ np.diag([1.0, -1.0, 1.0]) @ turn * (1.0 if rule == "imu_polar" else -1.0)
        order = np.abs(side).argmax(axis=1)
        if np.abs(np.abs(side).max(axis=1) - 1.0).max() > 1e-5:
            raise ValueError(
                f"sensors.imu: turned by {self.mount_quat.round(4).tolist()} against the base it has no mirror; "
                "mount it turned about y only, or set mirror to False"
            )
        return order.tolist(), [float(np.sign(side[k, order[k]])) for k in range(3)]


def _multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the Hamilton product of quaternions w x y z, (N, 4)."""
    import torch

    aw, bw, av, bv = a[:, :1], b[:, :1], a[:, 1:], b[:, 1:]
    vector = aw * bv + bw * av + torch.linalg.cross(av, bv)
    return torch.cat([aw * bw - (av * bv).sum(dim=1, keepdim=True), vector], dim=1)


def rotate_inverse(q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return vectors (N, 3) in the frame that q (N, 4) rotates into theirs."""
    import torch

    t = 2.0 * torch.linalg.cross(q[:, 1:], v)
    return v - q[:, :1] * t + torch.linalg.cross(q[:, 1:], t)
