"""The actuate stage as text: what explicit actuators do before each substep; and the draws of delays.

Native actuators need none of it: the engine takes joint targets and steps a whole control period at once. For explicit
ones the act stage writes ``s.joint_target``, this stage turns it into torques, one thread a joint, and the engine steps
once, until the control period is over.

A network's layer is a sum of columns: each column of its weights is one fixed-size vector, so the compiler keeps the
layer in registers and computes eight outputs at once. Measured on one core, 12,288 joints, 6-32-32-1, softsign: 6.5 ms
with scalar loops, 1.2 ms so, and 0.8 ms as torch's batched products, which would wake its thread pool in every substep.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp

from robot_rl_envs.actuation import drive
from robot_rl_envs.actuation.actuator_net import NetFile
from robot_rl_envs.actuation.actuators import ActuatorNet, ExplicitPd
from robot_rl_envs.engine import DIRTY_MODEL
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.fuse.layout import Writer
from robot_rl_envs.launch import Recorder, Stage
from robot_rl_envs.task import Task

DELAY_PATH = "actions.actuator.delay_s"
QUANTILES_PATH = "actions.actuator.delay_quantiles_s"
JITTER_PATH = "actions.actuator.jitter_quantiles_s"
_DELAY_FUNCTIONS = ("draw_delay_steps", "draw_quantile", "round_delay", "set_engine_delay")
_FUNCTIONS = ("pd_torque", "torque_speed", "delayed_target", "push_sample", "draw_delay_steps", "set_engine_delay")


def native_model_fields(task: Task) -> list[str]:
    """Return the model fields that the task's actuators need per world: the engine's delay."""
    actuator = task.actions.actuator
    return ["actuator_delay"] if actuator.delayed and not actuator.explicit else []


def actuator_fields(task: Task, scene: Scene, num_envs: int) -> dict[str, tuple[Any, int, tuple[int, ...]]]:
    """Return the fields that the actuators add to ``s``: name -> dtype, number of dimensions, shape.

    ``joint_target`` [rad or m], ``kp``, ``kd``, ``strength`` (N, na), ``kp_nominal``, ``kd_nominal`` (na,) of explicit
    actuators; ``delay_steps`` (N,), a world's delay in substeps, where there is one; ``delay_base_s`` (N,), the part
    of a measured one that is constant during an episode.
    """
    actuator, na = task.actions.actuator, len(scene.actuated)
    fields: dict[str, tuple[Any, int, tuple[int, ...]]] = {}
    if actuator.explicit:
        fields |= dict.fromkeys(("joint_target", "kp", "kd", "strength"), (wp.float32, 2, (num_envs, na)))
        fields |= dict.fromkeys(("kp_nominal", "kd_nominal"), (wp.float32, 1, (na,)))
    if actuator.delayed:
        fields["delay_steps"] = (wp.int32, 1, (num_envs,))
    if actuator.measured:
        fields["delay_base_s"] = (wp.float32, 1, (num_envs,))
    return fields


def write_delay_draw(w: Writer, task: Task, indent: int) -> None:
    """Write the draw of a world's delay at its reset, if it has one."""
    actuator = task.actions.actuator
    if not actuator.delayed:
        return
    w.functions |= {name: getattr(drive, name) for name in _DELAY_FUNCTIONS}
    lo, hi = (w.layout.param(f"{DELAY_PATH}.{n}", value) for n, value in enumerate(actuator.delay_s))
    timestep = w.layout.param("sim.timestep", task.sim.timestep)
    w.rng(indent, DELAY_PATH)
    if actuator.measured:
        w.add(indent, f"s.delay_base_s[i] = {lo} + ({hi} - {lo}) * wp.randf(rng)")
        if actuator.delay_quantiles_s:
            w.rng(indent, QUANTILES_PATH)
            drawn = _draw_quantile(w, QUANTILES_PATH, actuator.delay_quantiles_s)
            w.add(indent, f"s.delay_base_s[i] = s.delay_base_s[i] + {drawn}")
        _write_steps(w, task, indent)
        return
    w.add(indent, f"s.delay_steps[i] = draw_delay_steps(rng, {lo}, {hi}, {timestep}, {actuator.delay_history})")
    _write_engine_delay(w, task, indent)


def write_jitter(w: Writer, task: Task, indent: int) -> None:
    """Write the draw of the next control step's delay in a running episode, if it varies."""
    if task.actions.actuator.jitter_quantiles_s:
        w.functions |= {name: getattr(drive, name) for name in _DELAY_FUNCTIONS}
        _write_steps(w, task, indent)


def _draw_quantile(w: Writer, path: str, values: tuple[float, ...]) -> str:
    for n, value in enumerate(values):
        w.layout.param(f"{path}.{n}", value)
    first = w.layout.params[f"{path}.0"]
    return f"draw_quantile(p, {first}, {first + len(values) - 1}, rng)"


def _write_steps(w: Writer, task: Task, indent: int) -> None:
    """Write the conversion of a world's delay and this step's jitter to whole substeps."""
    actuator = task.actions.actuator
    timestep = w.layout.param("sim.timestep", task.sim.timestep)
    late = "s.delay_base_s[i]"
    if actuator.jitter_quantiles_s:
        w.rng(indent, JITTER_PATH)
        w.add(indent, f"late = {late} + {_draw_quantile(w, JITTER_PATH, actuator.jitter_quantiles_s)}")
        late = "late"
    w.rng(indent, f"{JITTER_PATH}.round")
    w.add(indent, f"s.delay_steps[i] = round_delay(rng, {late}, {timestep}, {actuator.delay_history})")
    _write_engine_delay(w, task, indent)


def _write_engine_delay(w: Writer, task: Task, indent: int) -> None:
    timestep = w.layout.param("sim.timestep", task.sim.timestep)
    if not task.actions.actuator.explicit:
        w.add(indent, f"set_engine_delay(s, i, {timestep})", f"s.dirty[i] = s.dirty[i] | {DIRTY_MODEL}")


class Drive:
    """Arrays and source of a task's explicit actuators; false where the engine drives the joints.

    Attributes:
        arrays: what the stage reads and writes, by name.
        struct: the Warp struct type of all of it.
    """

    def __init__(self, task: Task, scene: Scene, num_envs: int, device: str):
        self.task, self.scene, self.device = task, scene, device
        self.actuator = task.actions.actuator
        self.arrays: dict[str, wp.array] = {}
        self.namespace: dict[str, Any] = {}
        self._net: NetFile | None = None
        self._lags: list[int] = []
        if not self.actuator.explicit:
            return
        self._add_joints()
        if self.actuator.delayed:
            # the target in force, and one for each control step that the longest delay reaches back
            depth = 1 + -(-self.actuator.delay_history // task.sim.decimation)
            self._state("target_history", (num_envs, len(scene.actuated), depth))
        if isinstance(self.actuator, ActuatorNet):
            self._add_net(self.actuator, num_envs)
        annotations = {name: wp.array(dtype=array.dtype, ndim=array.ndim) for name, array in self.arrays.items()}
        self.struct = self.namespace["Drive"] = wp.struct(
            type("Drive", (), {"__annotations__": annotations, "__module__": __name__})
        )

    def __bool__(self) -> bool:
        return self.actuator.explicit

    def _state(self, name: str, shape: tuple[int, ...]) -> None:
        self.arrays[name] = wp.zeros(shape, dtype=wp.float32, device=self.device)

    def _constant(self, name: str, values: Any, dtype: Any = wp.float32) -> None:
        self.arrays[name] = wp.array(np.asarray(values), dtype=dtype, device=self.device)

    @property
    def state(self) -> dict[str, wp.array]:
        """The arrays that a checkpoint has to keep."""
        kept = ("target_history", "net_errors", "net_velocities")
        return {name: array for name, array in self.arrays.items() if name in kept}

    def _add_joints(self) -> None:
        joints = [joint for joint in self.scene.robot.joints if not joint.passive]
        driven = self.scene.joint_ctrl >= 0
        stall = getattr(self.actuator, "saturation_effort", 0.0)
        self._constant("qpos_at", self.scene.joint_qpos[driven], wp.int32)
        self._constant("dof_at", self.scene.joint_dof[driven], wp.int32)
        self._constant("limit", [joint.effort_limit for joint in joints])
        self._constant("stall", [stall * joint.effort_limit for joint in joints])
        self._constant("no_load", [joint.velocity_limit for joint in joints])
        self._constant("default_target", [0.0 if joint.by_speed else joint.default_pos for joint in joints])
        if any(joint.by_speed for joint in joints):
            self._constant("by_speed", [float(joint.by_speed) for joint in joints])

    def _add_net(self, actuator: ActuatorNet, num_envs: int) -> None:
        net = self._net = actuator.load(self.scene.robot)
        self._lags = actuator.lag_steps(net, self.task.sim.timestep)
        shape = (num_envs, len(self.scene.actuated), max(self._lags) + 1)
        if shape[2] > 1:
            self._state("net_errors", shape)
            self._state("net_velocities", shape)
        count = len(net.layers)
        for k, (weight, bias) in enumerate(net.layers):
            columns, offset = weight.T.astype(np.float64), bias.astype(np.float64)
            if k == 0:
                scales = np.repeat([net.error_scale, net.velocity_scale], len(self._lags))
                columns = columns * scales[:, None]
            if k == count - 1:
                # one output: its weights are one row, as wide as the layer before
                row = wp.types.vector(length=weight.shape[1], dtype=wp.float32)
                self._constant(f"w{k}", (net.output_scale * columns).T.astype(np.float32), row)
                self._constant(f"b{k}", (net.output_scale * offset).astype(np.float32))
            else:
                column = wp.types.vector(length=weight.shape[0], dtype=wp.float32)
                self._constant(f"w{k}", columns.astype(np.float32), column)
                self._constant(f"b{k}", offset[None].astype(np.float32), column)
        self.namespace["Inputs"] = wp.types.vector(length=net.sizes[0], dtype=wp.float32)

    def fill(self, arrays: dict[str, wp.array]) -> None:
        """Set every world's gains and strength to the nominal ones, and targets to the default pose."""
        if not self:
            return
        joints = [joint for joint in self.scene.robot.joints if not joint.passive]
        for name, values in (("kp", [j.kp for j in joints]), ("kd", [j.kd for j in joints])):
            arrays[f"{name}_nominal"].assign(np.array(values, dtype=np.float32))
            arrays[name].assign(np.tile(np.array(values, dtype=np.float32), (arrays[name].shape[0], 1)))
        arrays["strength"].fill_(1.0)
        arrays["joint_target"].assign(
            np.tile(self.arrays["default_target"].numpy(), (arrays["joint_target"].shape[0], 1))
        )

    def record(self, recorder: Recorder, kernel: Any, s: Any, flight: Any) -> list[Stage]:
        """Record the stage once for each substep of a control period; empty where the engine drives the joints."""
        if not self:
            return []
        a = self.struct()
        for name, array in self.arrays.items():
            setattr(a, name, array)
        # A PD law is over before a second thread would be awake.
        options: dict[str, Any] = {"threads": self._net is not None, "columns": len(self.scene.actuated)}
        return [
            recorder.record(kernel, lambda _, first, m=m: [s, a, flight, m, first], **options)
            for m in range(self.task.sim.decimation)
        ]

    def write(self, w: Writer) -> None:
        """Write the stage: ``actuate(s, a, f, substep, first)`` over worlds and driven joints."""
        if not self:
            return
        w.functions |= {name: getattr(drive, name) for name in _FUNCTIONS}
        w.add(0, "def actuate(s: SceneState, a: Drive, f: Flight, substep: int, first: int):")
        w.add(1, "row, j = wp.tid()", "i = first + row")
        if self.actuator.delayed:
            w.add(1, f"target = delayed_target(s, a, i, j, substep, {self.task.sim.decimation})")
        else:
            w.add(1, "target = s.joint_target[i, j]")
        w.add(1, "pos = s.qpos[i, a.qpos_at[j]]", "vel = s.qvel[i, a.dof_at[j]]")
        if self._net is not None:
            self._write_net(w, self._net)
        else:
            law = "pd_torque(s, i, j, target, pos, vel)"
            if "by_speed" in self.arrays:
                w.functions["pd_torque_or_speed"] = drive.pd_torque_or_speed
                law = "pd_torque_or_speed(s, a, i, j, target, pos, vel)"
            w.add(1, f"torque = {law}")
            if isinstance(self.actuator, ExplicitPd) and self.actuator.saturation_effort > 0:
                w.add(1, "torque = torque_speed(torque, vel, a.stall[j], a.no_load[j])")
        w.add(1, "s.ctrl[i, j] = s.strength[i, j] * wp.clamp(torque, -a.limit[j], a.limit[j])")
        w.add(1, "record_control(s, f, i, substep, j)")

    def _write_net(self, w: Writer, net: NetFile) -> None:
        w.functions[net.activation] = getattr(drive, net.activation)
        w.add(1, "x = Inputs()")
        if max(self._lags) == 0:
            w.add(1, "x[0] = target - pos", "x[1] = vel")
        else:
            w.add(1, "push_sample(s, a.net_errors, i, j, substep, target - pos)")
            w.add(1, "push_sample(s, a.net_velocities, i, j, substep, vel)")
            for k, lag in enumerate(self._lags):
                w.add(1, f"x[{k}] = a.net_errors[i, j, {lag}]")
                w.add(1, f"x[{len(self._lags) + k}] = a.net_velocities[i, j, {lag}]")
        before, widths = "x", net.sizes
        for k in range(len(net.layers) - 1):
            w.add(1, f"h{k} = a.b{k}[0]", f"for k in range({widths[k]}):")
            w.add(2, f"h{k} += {before}[k] * a.w{k}[k]")
            w.add(1, f"for k in range({widths[k + 1]}):")
            w.add(2, f"h{k}[k] = {net.activation}(h{k}[k])")
            before = f"h{k}"
        last = len(net.layers) - 1
        w.add(1, f"torque = wp.dot(a.w{last}[0], {before}) + a.b{last}[0]")
