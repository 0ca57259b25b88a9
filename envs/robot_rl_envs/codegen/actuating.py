"""Explicit actuators, which compute torques before each substep, and the delays of all actuators.

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

from robot_rl_envs.actuation.actuator_net import NetFile
from robot_rl_envs.actuation.actuators import ActuatorNet, ExplicitPd
from robot_rl_envs.codegen.template import STEP
from robot_rl_envs.codegen.writer import KernelWriter
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.launch import Recorder, Stage
from robot_rl_envs.task import Task

DELAY_PATH = "actions.actuator.delay_s"
QUANTILES_PATH = "actions.actuator.delay_quantiles_s"
JITTER_PATH = "actions.actuator.jitter_quantiles_s"


def native_model_fields(task: Task) -> list[str]:
    """Return the model fields that the task's actuators need per world: the engine's delay."""
    actuator = task.actions.actuator
    return ["actuator_delay"] if actuator.delayed and not actuator.explicit else []


def actuator_fields(task: Task, scene: Scene, num_envs: int) -> dict[str, tuple[Any, int, tuple[int, ...]]]:
    """Return the fields that the actuators add to ``s``: name -> dtype, number of dimensions, shape.

    ``joint_target`` [rad or m], ``kp``, ``kd``, ``strength`` (N, na), ``kp_nominal``, ``kd_nominal`` (na,) of explicit
    actuators; ``delay_steps`` (N,), a world's delay in substeps, if it has one; ``delay_base_s`` (N,), the part
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


def step_delay_values(w: KernelWriter, task: Task) -> dict[str, Any]:
    """Return the slots of a control step's delay in a running episode."""
    actuator, quantiles = task.actions.actuator, task.actions.actuator.jitter_quantiles_s
    values = {
        "delayed": actuator.delayed,
        "measured_delay": actuator.measured,
        "delay_history": actuator.delay_history,
        "delay_s": "late" if quantiles else "s.delay_base_s[i]",
        "jitter": "",
        "jitter_rng": w.rng(JITTER_PATH),
        "round_rng": w.rng(f"{JITTER_PATH}.round"),
    }
    if quantiles:
        values["timestep"] = w.layout.param("sim.timestep", task.sim.timestep)
        values["jitter"] = _draw_quantile(w, JITTER_PATH, quantiles)
    return values


def delay_values(w: KernelWriter, task: Task) -> dict[str, Any]:
    """Return the slots of the draw of a world's delay at its reset, if it has one."""
    actuator = task.actions.actuator
    if not actuator.delayed:
        return {}
    values = {"delay_rng": w.rng(DELAY_PATH), "quantile_rng": w.rng(QUANTILES_PATH), "delay_quantile": ""}
    values["delay_lo"], values["delay_hi"] = w.params(DELAY_PATH, actuator.delay_s)
    values["timestep"] = w.layout.param("sim.timestep", task.sim.timestep)
    if actuator.delay_quantiles_s:
        values["delay_quantile"] = _draw_quantile(w, QUANTILES_PATH, actuator.delay_quantiles_s)
    return values


def _draw_quantile(w: KernelWriter, path: str, quantiles: tuple[float, ...]) -> str:
    w.params(path, quantiles)
    first = w.layout.params[f"{path}.0"]
    return f"draw_quantile(p, {first}, {first + len(quantiles) - 1}, rng)"


class Drive:
    """Arrays and source of a task's explicit actuators; false if the engine drives the joints.

    Attributes:
        arrays: the arrays that the kernel reads and writes, by name.
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
        for name, values in zip(("kp", "kd"), zip(*(joint.motor_gains for joint in joints), strict=True), strict=True):
            arrays[f"{name}_nominal"].assign(np.array(values, dtype=np.float32))
            arrays[name].assign(np.tile(np.array(values, dtype=np.float32), (arrays[name].shape[0], 1)))
        arrays["strength"].fill_(1.0)
        arrays["joint_target"].assign(
            np.tile(self.arrays["default_target"].numpy(), (arrays["joint_target"].shape[0], 1))
        )

    def record(self, recorder: Recorder, kernel: Any, s: Any, flight: Any) -> list[Stage]:
        """Record the stage once for each substep of a control period; empty if the engine drives the joints."""
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

    def values(self) -> dict[str, Any]:
        """Return the slots of the kernel ``actuate(s, a, f, substep, first)`` over worlds and driven joints."""
        if not self:
            return {}
        values = {
            "decimation": self.task.sim.decimation,
            "by_speed": "by_speed" in self.arrays,
            "has_net": self._net is not None,
            "saturates": isinstance(self.actuator, ExplicitPd) and self.actuator.saturation_effort > 0,
        }
        return values if self._net is None else values | self._net_values(self._net)

    def _net_values(self, net: NetFile) -> dict[str, Any]:
        lags, last = self._lags, len(net.layers) - 1
        inputs = ["x", *(f"h{k}" for k in range(last))]
        samples = ({"k": k, "lag": lag, "velocity": len(lags) + k} for k, lag in enumerate(lags))
        layers = (
            {"k": k, "input": inputs[k], "inputs": net.sizes[k], "outputs": net.sizes[k + 1]}
            | {"activation": net.activation}
            for k in range(last)
        )
        return {
            "has_lags": max(lags) > 0,
            "net_inputs": STEP.fill_each("net_input", samples),
            "net_layers": STEP.fill_each("net_layer", layers),
            "last": last,
            "last_input": inputs[last],
        }
