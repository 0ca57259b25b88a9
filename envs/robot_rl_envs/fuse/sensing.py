"""The sensors' part of the stages as text: what is kept, updated, drawn and cleared in each world."""

from __future__ import annotations

from robot_rl_envs.engine import DIRTY_MODEL
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.entity.sensing import ACCELEROMETER, DELAY_PATH
from robot_rl_envs.fuse.writer import Writer
from robot_rl_envs.sensing import measure
from robot_rl_envs.sensing.sensors import used_sensors
from robot_rl_envs.task import Task


def _call(w: Writer, indent: int, name: str) -> None:
    w.functions[name] = getattr(measure, name)
    w.add(indent, f"{name}(s, i)")


def write_before(w: Writer, task: Task) -> None:
    """Write what has to be kept of the last step before the new state is derived."""
    if "encoders" in used_sensors(task):
        _call(w, 1, "keep_joints")


def write_update(w: Writer, task: Task) -> None:
    """Write what is computed once a step from the derived state."""
    used = used_sensors(task)
    if "imu_acc" in used:
        _call(w, 1, "read_late_accelerometer" if task.sensors.imu.delay_s[1] > 0 else "read_accelerometer")
    if "foot_forces" in used:
        _call(w, 1, "read_foot_forces")
    if "height_scan" in used and task.sensors.height_scan.source == "map":
        _call(w, 1, "scan_heights")


def write_delay(w: Writer, task: Task, scene: Scene) -> None:
    """Write the draw of a world's own delay of its accelerometer."""
    if not scene.sensing.late:
        return
    accelerometer = scene.model.sensor(ACCELEROMETER).id
    lo, hi = (w.layout.param(f"{DELAY_PATH}.{n}", value) for n, value in enumerate(task.sensors.imu.delay_s))
    timestep = w.layout.param("sim.timestep", task.sim.timestep)
    longest = float(round(task.sensors.imu.delay_s[1] / task.sim.timestep))
    w.functions["draw_sensor_delay"] = measure.draw_sensor_delay
    w.rng(2, DELAY_PATH)
    w.add(2, f"draw_sensor_delay(s, i, {accelerometer}, rng, {lo}, {hi}, {timestep}, {longest})")
    w.add(2, f"s.dirty[i] = s.dirty[i] | {DIRTY_MODEL}")


def write_reset(w: Writer, task: Task) -> None:
    """Write what the sensors hold at an episode's start, from the derived state."""
    used = used_sensors(task)
    if "encoders" in used:
        _call(w, 2, "keep_joints_at_reset")
    if "imu_acc" in used:
        _call(w, 2, "rest_accelerometer")
    if "foot_forces" in used:
        _call(w, 2, "clear_foot_forces")
    if "height_scan" in used and task.sensors.height_scan.source == "map":
        _call(w, 2, "scan_heights")
