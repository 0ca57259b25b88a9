"""The simulated robots: one world of a task in which the joints obey the commands of the robot's protocol.

Ground, randomization, commands, pushes and metrics are the trainer's. As on a robot, the physics runs at the rate of
the states (500 Hz), the joints' gains and targets come with each command, and another process computes the command.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from robot_rl.errors import UserError, as_user_error

if TYPE_CHECKING:
    from robot_rl_envs.task import Task

RIGID = 1e7
"""Inertia of a base in the gantry [kg, kg m^2]: neither its weight nor the legs move it, and so the legs weigh."""
TICK_S = 0.002
"""Period of states and physics, rounded to a divisor of the control period [s]."""
RESET_S = 1.0
"""Duration of a reset by the robot's own clock [s]: the binary does not compare sensors across it."""
STILL_C = 35.0
"""Temperature that the simulated motors report [C]."""
CONTACT_N = 1.0
"""Contact force above which a foot touches the ground [N]."""
LONE = ""
"""Name of the robot of a task that is not of a team."""


class Exchange(Protocol):
    """Exchanges the states of a plant's robots for commands."""

    def tick(self, plant: Plant, /) -> None:
        """Send the states; give each body the command that it obeys until the next tick, None before the first."""
        ...


def plant_task(task: Task, tick_s: float = TICK_S) -> tuple[Task, list[str]]:
    """Return a copy of a task as the simulated robot runs it, and a line for each difference to the training.

    Args:
        task: The task, as it was trained.
        tick_s: Physics step [s], rounded to a divisor of the control period. 0 keeps the task's own.

    Raises:
        UserError: The step is out of range, or the robot's commands cannot drive the task's actuators.
    """
    from robot_rl_envs.actuation.actuators import PositionPd

    changed, notes = copy.copy(task), []
    if tick_s:
        period = task.sim.step_dt
        count = max(1, round(period / tick_s))
        if not 0 < tick_s <= period or count > 100:
            raise UserError(
                "tick", tick_s, f"must be in [{period / 100:g}, {period:g}] s, or 0 for the task's own step"
            )
        changed.sim = dataclasses.replace(task.sim, timestep=period / count, decimation=count)
    if task.actions.kind == "direct":
        raise UserError(
            "task", task.name, "its model has actuators of its own, which the robot's commands cannot drive"
        )
    actuator = task.actions.actuator
    if type(actuator) is not PositionPd:
        notes.append(f"the joints are ideal PD servos here; {type(actuator).__name__} is the training's")
        actuator = PositionPd(delay_s=actuator.delay_s, delay_history=actuator.delay_history)
        changed.events = {
            name: event
            for name, event in task.events.items()
            if event.info.name not in ("explicit_gains", "dc_motor_gains")
        }
    history = max(actuator.delay_history, round(actuator.delay_s[1] / changed.sim.timestep) + 1)
    changed.actions = dataclasses.replace(task.actions, actuator=dataclasses.replace(actuator, delay_history=history))
    return changed, notes


class Body:
    """One robot of a simulated world, in the arrays of its engine: the values of its sensors, the effort of its motors.

    Attributes:
        env: The environment of its rows; of a team its role's.
        row: Its row there.
        command: The command that its joints obey; None: they are free.
    """

    def __init__(
        self, plant: Plant, env: Any, engine: Any, *, row: int = 0, places: Mapping[str, np.ndarray] | None = None
    ) -> None:
        """Bind the arrays of world 0 of an engine.

        `places` has the index in the engine's model of each element of the robot's own one, by "qpos", "dof",
        "actuator" and "sensordata"; None: they are the same.
        """
        self._plant, self.env, self.row, self.command = plant, env, row, None
        self._in_team = places is not None
        scene, model = env.scene, engine.model
        self._data = {name: getattr(engine.data, name).numpy() for name in ("qpos", "qvel", "ctrl", "actuator_force")}
        self._sensors = engine.data.sensordata.numpy()
        self._rows = {name: engine.batch.bind(name) for name in ("qpos", "qvel")}
        self._drawn = {name: engine.expand(f"actuator_{name}").numpy() for name in ("gainprm", "biasprm")}
        self._live = {name: engine.batch.expand(f"actuator_{name}") for name in ("gainprm", "biasprm")}

        def at(kind: str, index: Any) -> np.ndarray:
            return np.asarray(index) if places is None else places[kind][index]

        self._effort = np.zeros(len(scene.joint_qpos), np.float32)
        self._temperature = np.full(len(scene.joint_qpos), STILL_C, np.float32)
        self._joint_qpos, self._joint_dof = at("qpos", scene.joint_qpos), at("dof", scene.joint_dof)
        self._foot_columns = at("sensordata", scene.foot_sensor[:, None] + np.arange(1, 4))
        self._is_servo = env.cfg.actions.kind == "position"
        self._driven = np.flatnonzero(scene.joint_ctrl >= 0)
        self._ctrl = at("actuator", scene.joint_ctrl[self._driven])
        joints = [scene.robot.joints[k] for k in self._driven]
        self._by_speed = np.array([joint.by_speed for joint in joints], bool)
        self._gain, self._kd = model.actuator_gainprm[self._ctrl, 0], np.zeros(len(joints))
        if self._is_servo:  # As commanded: the drawn gain includes the measured difference of a motor.
            self._gain = np.array([joint.kd if joint.by_speed else joint.kp for joint in joints])
            self._kd = np.array([joint.kd for joint in joints])
        self._base_qpos = at("qpos", scene.entity.base_qpos + np.arange(7)) if scene.base else np.zeros(0, int)
        self._base_dof = at("dof", scene.entity.base_dof + np.arange(6)) if scene.base else np.zeros(0, int)
        self._inertia = engine.batch.expand("dof_armature")[0].reshape(model.nv, -1)
        self._is_fresh = self._was_reset = True
        self._supported, self._lift, self._unseen_s = False, 0.0, 0.0
        self._held, self._slow = np.zeros(7), {}

    @property
    def clock_s(self) -> float:
        """The robot's own clock, on which each reset takes RESET_S [s]."""
        return self._plant.time_s + self._unseen_s

    @property
    def is_active(self) -> bool:
        """Whether it takes part: a robot of a team joins, and may fall out."""
        return not self._in_team or bool(self.env.state.active[self.row])

    def was_reset(self) -> None:
        """Note that the environment has reset the robot."""
        self._is_fresh = self._was_reset = True
        self._unseen_s += RESET_S
        if self._supported:
            self.hold(True, lift=self._lift)

    @property
    def joint_names(self) -> list[str]:
        """Names of the joints in the robot's own order, which every joint signal and command has."""
        return [joint.name for joint in self.env.scene.robot.joints]

    def sense(self, low: Any, measured: Sequence[str] = ()) -> None:
        """Write the current signals into a `robot_rl_runtime.LowState`; the caller sets its sequence number and time.

        Joints, IMU and feet are those of the last tick; accelerometer and measured values those of the last
        control step.

        Args:
            low: Where to write.
            measured: Measured signals in the order in which the policy's contract first reads them.
        """
        scene = self.env.scene
        if self._is_fresh:
            self._slow = {name: value[self.row].cpu().numpy() for name, value in self.env.robot_state().items()}
            self._is_fresh = False
            quat, gyro = self._slow["imu_quat_wxyz"], self._slow["imu_gyro"]
        else:
            quat, gyro = self._imu()
        feet, joints = self._feet(), len(scene.joint_qpos)
        low.joints, low.feet = joints, len(feet)
        if scene.base:
            low.quat_wxyz, low.gyro = quat, gyro
        low.joint_pos = self._data["qpos"][0, self._joint_qpos]
        low.joint_vel = self._data["qvel"][0, self._joint_dof]
        self._effort[self._driven] = self._data["actuator_force"][0, self._ctrl]
        low.joint_effort = self._effort
        low.temperature_c = self._temperature
        low.foot_contact, low.foot_force = feet > CONTACT_N, feet
        if "imu_acc" in self._slow:
            low.acc = self._slow["imu_acc"]
        if measured:
            low.measured = values = np.concatenate([self._slow[name] for name in measured])
            low.measured_count = len(values)

    def _imu(self) -> tuple[np.ndarray, np.ndarray]:
        """Return orientation (4,) and rate (3,) of the IMU between control steps."""
        if not self.env.scene.base:
            return self._slow["imu_quat_wxyz"], self._slow["imu_gyro"]
        quat = self._data["qpos"][0, self._base_qpos[3:]].astype(np.float64)
        gyro = self._data["qvel"][0, self._base_dof[3:]].astype(np.float64)
        quat /= np.linalg.norm(quat)
        if "imu" not in self.env.scene.sensing.read:
            return quat, gyro
        import mujoco

        state, turn, inverse = self.env.state, np.zeros(4), np.zeros(4)
        mount, tilt = (
            value.cpu().numpy().reshape(-1, 4)[k].astype(np.float64)
            for value, k in ((state.imu_mount_wxyz, 0), (state.imu_tilt_wxyz, self.row))
        )
        mujoco.mju_mulQuat(turn, mount, tilt)
        mujoco.mju_negQuat(inverse, turn)
        mujoco.mju_rotVecQuat(gyro, gyro.copy(), inverse)
        mujoco.mju_mulQuat(quat, quat.copy(), turn)
        return quat, gyro

    def _feet(self) -> np.ndarray:
        """Return the net force (nf,) on each foot [N]; zero after a reset, as in the environment."""
        force = self._sensors[0, self._foot_columns]
        feet = np.sqrt((force * force).sum(axis=1)) if len(force) else np.zeros(0, np.float32)
        return np.zeros_like(feet) if self._was_reset else feet

    def begin(self) -> None:
        """Note that the environment has computed its sensors' values at the control rate."""
        self._is_fresh = True

    def settle(self) -> None:
        """Finish a physics step: the gantry holds the base, if it is to."""
        self._was_reset = False
        if self._supported:
            for values in (self._rows["qpos"], self._data["qpos"]):
                values[0, self._base_qpos] = self._held
            for values in (self._rows["qvel"], self._data["qvel"]):
                values[0, self._base_dof] = 0.0
            self._inertia[self._base_dof] = RIGID

    def obey(self) -> None:
        """Drive every joint by effort = tau + kp (q - q_measured) + kd (dq - dq_measured), within its limit.

        The gains keep the randomization of the world's motors. A servo's damping is integrated implicitly, as in
        training.
        """
        command = self.command
        gain, bias, ctrl = self._live["gainprm"][0], self._live["biasprm"][0], self._data["ctrl"][0]
        joints, at = self._driven, self._ctrl
        if command is None:
            gain[at, 0], bias[at, :3], ctrl[at] = 0.0, 0.0, 0.0
            return
        strength, nominal = self._drawn["gainprm"][0, at, 0] / self._gain, self._kd
        # A model without damping has the factors of the stiffness.
        factor = -self._drawn["biasprm"][0, at, 2] / np.where(nominal > 0, nominal, 1.0)
        kp, kd = command.kp[joints] * strength, command.kd[joints] * np.where(nominal > 0, factor, strength)
        tau, target, speed = command.tau[joints] * strength, command.q[joints], command.dq[joints]
        if self._is_servo:
            is_speed = self._by_speed  # What the engine delays is the target of the training.
            gain[at, 0], ctrl[at] = np.where(is_speed, kd, kp), np.where(is_speed, speed, target)
            bias[at, 0] = tau + np.where(is_speed, kp * target, kd * speed)
            bias[at, 1], bias[at, 2] = -kp, -kd
            return
        qpos, qvel = self._data["qpos"][0, self._joint_qpos[joints]], self._data["qvel"][0, self._joint_dof[joints]]
        gain[at, 0] = 1.0
        ctrl[at] = tau + kp * (target - qpos) + kd * (speed - qvel)

    def hold(self, supported: bool, *, lift: float = 0.0) -> None:
        """Hold the base in place by a gantry, so much higher [m], or release it."""
        self._supported, self._lift = supported and self.env.scene.base, lift
        self._inertia[self._base_dof] = RIGID if self._supported else 0.0
        if self._supported:
            self._held = self._rows["qpos"][0, self._base_qpos].copy()
            self._held[2] += lift


class Plant:
    """One world, stepped tick by tick under the commands of its robots' binaries.

    Attributes:
        env: The environment; `env.step(action)` runs the control period's ticks, and uses `action` for rewards only.
        bodies: Its robots by name; the robot of a task without a team is `LONE`.
        tick_s: Physics step and period of the states [s].
        ticks: Ticks since the start.
        notes: Differences to the training.
        on_period: Called after a control period's ticks, before the environment computes rewards.
    """

    def __init__(self, task: Task, *, seed: int, world: int = 0, tick_s: float = TICK_S) -> None:
        """Build world number `world` of a seed; see `plant_task` for `tick_s` and the reasons for a UserError."""
        from robot_rl_envs.make import make_env

        changed, self.notes = plant_task(task, tick_s)
        with as_user_error():
            self.env: Any = make_env(
                changed, num_envs=1, device="cpu", engine="mujoco", seed=seed, num_threads=1, world_offset=world
            )
        self.bodies = self._make_bodies() if task.robots else {LONE: Body(self, self.env, self.env.engine)}
        self.tick_s, self.ticks = changed.sim.timestep, 0
        self.on_period: Callable[[], None] | None = None
        self._exchange: Exchange | None = None
        self._step = self.env.engine.step
        self.env.engine.step = self._run_ticks

    def _make_bodies(self) -> dict[str, Body]:
        """Return the robots of a team, in the order of the environment's rows."""
        env, bodies = self.env, {}
        for crew, where in zip(env.crews.values(), env.scene.maps, strict=True):
            for row, agent in enumerate(crew.scene.crew.agents):
                places = {kind: at[row] for kind, at in where.at.items()}
                bodies[env.agents[agent]] = Body(self, crew, env.engine, row=row, places=places)
        return {name: bodies[name] for name in env.agents}

    @property
    def robot(self) -> Body:
        """The robot of a task without a team."""
        return self.bodies[LONE]

    @property
    def time_s(self) -> float:
        """Simulated time since the start [s]."""
        return self.ticks * self.tick_s

    def connect(self, exchange: Exchange) -> None:
        """Take the commands from an exchange."""
        self._exchange = exchange

    def hold(self, supported: bool) -> None:
        """Hold the bases in place by gantries, or release them."""
        for body in self.bodies.values():
            body.hold(supported)

    def _run_ticks(self, substeps: int) -> None:
        """Run a control period, tick by tick, in place of the engine's step."""
        for body in self.bodies.values():
            body.begin()
        self.advance(substeps)
        for body in self.bodies.values():
            body.begin()
        if self.on_period is not None:
            self.on_period()

    def advance(self, ticks: int) -> None:
        """Run so many ticks, of which the environment knows nothing."""
        for _ in range(ticks):
            if self._exchange is not None:
                self._exchange.tick(self)
            for body in self.bodies.values():
                body.obey()
            self._step(1)
            self.ticks += 1
            for body in self.bodies.values():
                body.settle()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
