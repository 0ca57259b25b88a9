"""A task's sensors by name, and those of them that its terms read, in a compiled scene.

A quantity that several groups read, or that needs the physics' last substeps, is computed once a step and once after a
reset, and kept in ``s``; the sensor's terms read it there. Noise, bias, delay and dropout are options of each
observation term; see docs/sensors.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp

from robot_rl_envs.engine import DIRTY_STATE, Engine
from robot_rl_envs.sensing.encoders import Encoders
from robot_rl_envs.sensing.foot_force import FootForce
from robot_rl_envs.sensing.height_scan import HeightScan
from robot_rl_envs.sensing.imu import Imu
from robot_rl_envs.sensing.sensor import Fields, Sensor, SensorContext
from robot_rl_envs.terms.checks import nearest, require

if TYPE_CHECKING:
    import mujoco
    import torch
    from robot_rl_assets.robot import Robot

WITHOUT_SETTINGS: dict[str, Sensor] = {"encoders": Encoders()}
"""The sensors of every robot that a task does not set."""
OWN_SIGNALS = ("joint_pos", "joint_vel", "imu_gyro", "imu_quat_wxyz", "command", "foot_contact", "foot_force")
"""The signals of every robot."""


class Sensors(dict[str, Sensor]):
    """A task's sensors by name: the standard ones, and those that are given. One that no term reads costs nothing."""

    def __init__(self, **given: Sensor):
        super().__init__({"imu": Imu(), "height_scan": HeightScan(), "foot_force": FootForce()} | given)


def check_sensors(sensors: Mapping[str, Sensor], terms: Mapping[str, Any]) -> None:
    """Raise ValueError for an entry that is not a sensor, or a term, given by its path, that reads a missing one."""
    known = list(WITHOUT_SETTINGS)
    for name, sensor in sensors.items():
        is_sensor = isinstance(sensor, Sensor) and str(name).isidentifier() and name not in known
        right = "must be a Sensor by its own name of letters, digits and _; see robot_rl_envs.sensing.sensor"
        require(is_sensor, f"sensors.{name}", sensor, right)
        known += [name, *sensor.parts]
    for path, term in terms.items():
        for name in term.info.source.uses if hasattr(term, "params") else ():
            require(name in known, path, term.info.name, f"reads the sensor {name!r}; {nearest(name, known)}")


def used_sensors(task: Any) -> frozenset[str]:
    """Return the names of sensors and of their parts that a task's terms read, such as "imu_acc"."""
    groups = [
        group.terms for group in (*task.observations.values(), *task.messages.values()) if hasattr(group, "terms")
    ]
    terms = [term for group in groups for term in group.values() if hasattr(term, "params")]
    return frozenset(name for term in terms for name in term.info.source.uses)


class Sensing:
    """A task's sensors in one scene; those that its terms read are called.

    Attributes:
        sensors: all sensors of the task by name.
        read: those that a term reads.
        at: the robot and the model.
    """

    def __init__(self, sensors: Mapping[str, Sensor] | None = None, at: SensorContext | None = None):
        self.at = at or SensorContext()
        self.sensors = WITHOUT_SETTINGS | dict(Sensors() if sensors is None else sensors)
        self.read = {name: one for name, one in self.sensors.items() if self.at.used & {name, *one.parts}}

    @property
    def is_launched(self) -> bool:
        """Whether a sensor is read by its own launches."""
        return any(sensor.is_launched for sensor in self.read.values())

    def add_to(self, spec: Any, robot: Robot, timestep: float) -> None:
        """Add sites and sensors to a ``mujoco.MjSpec`` that already has the feet's contact sensors.

        Raises:
            ValueError: a sensor cannot be mounted.
        """
        self.at.robot, self.at.timestep = robot, timestep
        for sensor in self.sensors.values():
            sensor.add_to(spec, self.at)

    def bind(self, model: mujoco.MjModel, robot: Robot, base_body: int) -> dict[str, int]:
        """Check every sensor in the compiled model; return the widths that terms name.

        Raises:
            ValueError: a sensor cannot be in its place.
        """
        self.at.robot, self.at.model, self.at.base_body = robot, model, base_body
        for sensor in self.sensors.values():
            sensor.bind(self.at)
        return {name: math.prod(shape) for name, shape in self.shapes.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of terms by the name of their size."""
        return {name: shape for one in self.sensors.values() for name, shape in one.sizes(self.at).items()}

    def fill_history(self, data: mujoco.MjData) -> None:
        """Fill the delay buffers of ``data`` with values at rest."""
        for sensor in self.read.values():
            sensor.fill_history(data, self.at)

    def model_fields(self) -> list[str]:
        """Return the model fields that need per-world values."""
        return [name for sensor in self.read.values() for name in sensor.model_fields(self.at)]

    def fields(self, sizes: dict[str, int], num_envs: int) -> Fields:
        """Return fields of ``s``: name -> dtype, number of dimensions, shape; an empty shape is the engine's array."""
        return {
            name: field
            for sensor in self.read.values()
            for name, field in sensor.fields(sizes, num_envs, self.at).items()
        }

    def fill(self, arrays: dict[str, wp.array]) -> None:
        """Set the values of constants and mounts."""
        for sensor in self.read.values():
            for name, value in sensor.constants(self.at).items():
                array = arrays[name]
                rows = np.asarray(value, dtype=np.int32 if array.dtype is wp.int32 else np.float32)
                array.assign(np.broadcast_to(rows, array.numpy().shape).copy())

    def functions(self, when: str) -> list[wp.Function]:
        """Return the functions of a moment of the step: "before", "update" or "reset"."""
        return [function for sensor in self.read.values() for function in getattr(sensor, when)(self.at)]

    @property
    def derived(self) -> list[wp.Function]:
        """The functions of an update that read nothing but the derived state."""
        return [function for sensor in self.read.values() if sensor.derives for function in sensor.update(self.at)]

    def draws(self, w: Any) -> str:
        """Return the lines of a world's draws at its reset."""
        return "".join(sensor.draws(w, self.at) for sensor in self.read.values())

    # -- the robot ---------------------------------------------------------------------------------------------------

    def signals(self, state: Any) -> dict[str, torch.Tensor]:
        """Return the signals of a real robot, without noise, from ``Env.state``.

        Returns:
            joint_pos, joint_vel (N, nj), imu_gyro (N, 3) [rad/s], imu_quat_wxyz (N, 4), command (N, 3), foot_contact
            and foot_force (N, nf) [N]; and those of the sensors that a term reads, such as imu_acc (N, 3) [m/s^2] and
            height_scan (N, n) [m]. The IMU's are in its own frame if a term reads it there, else in the base's.
        """
        fields = {"imu_gyro": "base_ang_vel_b", "imu_quat_wxyz": "base_quat_wxyz"}
        found: dict[str, torch.Tensor] = {name: getattr(state, fields.get(name, name)).clone() for name in OWN_SIGNALS}
        for sensor in self.read.values():
            found |= sensor.signals(state, self.at)
        return found

    def describe(self, uses: Sequence[str]) -> dict[str, Any]:
        """Return the contract's entries of the sensors that a term reads."""
        read = (self.sensors[name] for name in uses if name in self.sensors)
        return {key: value for sensor in read for key, value in sensor.describe().items()}

    def mirror(self, rule: str) -> tuple[list[int], list[float]] | None:
        """Return permutation and sign of a sensor's values under the left-right mirror; None for any other rule.

        Raises:
            ValueError: the sensor's mount cannot be mirrored.
        """
        return next((found for one in self.sensors.values() if (found := one.mirror(rule, self.at)) is not None), None)


class SensorLaunches:
    """The launches of the sensors that have some; false if none has. ``arrays`` are those of ``s``."""

    def __init__(self, sensing: Sensing, scene: Any, engine: Engine, arrays: dict[str, wp.array]):
        self._blind = engine.capturable
        launched = (sensor for sensor in sensing.read.values() if sensor.is_launched)
        self._all = [sensor.make_launches(scene, engine, arrays) for sensor in launched]

    def __bool__(self) -> bool:
        return bool(self._all)

    def look(self) -> None:
        """Read every world at its current state; capturable if the engine is."""
        for launches in self._all:
            launches.look()

    def look_again(self, dirty: wp.array) -> bool:
        """Read the start of worlds that were reset; return whether there were any, or may have been.

        A CPU may read ``dirty`` (N,) and skip the launches; a graph holds them in any case.
        """
        if not self._blind and not (dirty.numpy() & DIRTY_STATE).any():
            return False
        self.look()
        return True
