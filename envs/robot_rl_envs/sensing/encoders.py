"""Joint encoders: positions in steps of a resolution, velocities as the difference of two control steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import warp as wp

from robot_rl_envs.sensing.sensor import Fields, Sensor, SensorContext
from robot_rl_envs.terms import Source, observation


@wp.func
def keep_joints(s: Any, i: int):
    """Keep world i's joint positions of the last control step, before the new ones are derived."""
    for j in range(s.joint_pos.shape[1]):
        s.last_joint_pos[i, j] = s.joint_pos[i, j]


@wp.func
def keep_joints_at_reset(s: Any, i: int):
    """Start an episode as if world i's joints had moved at constant speed before."""
    for j in range(s.joint_pos.shape[1]):
        s.last_joint_pos[i, j] = s.joint_pos[i, j] - s.joint_vel[i, j] * s.step_dt


@dataclass(kw_only=True, slots=True)
class Encoders(Sensor):
    """The positions of the last control step; every robot has them, without settings."""

    def fields(self, sizes: Mapping[str, int], num_envs: int, at: SensorContext) -> Fields:
        """Return the positions of the last step."""
        return {"last_joint_pos": (wp.float32, 2, (num_envs, sizes["joints"]))}

    def before(self, at: SensorContext) -> Sequence[wp.Function]:
        """Keep the positions."""
        return (keep_joints,)

    def reset(self, at: SensorContext) -> Sequence[wp.Function]:
        """Set them as if the joints had moved before."""
        return (keep_joints_at_reset,)


@wp.func
def quantized(value: float, resolution: float) -> float:
    """The nearest multiple of resolution; value itself if that is 0."""
    if resolution <= 0.0:
        return value
    return wp.floor(value / resolution + 0.5) * resolution


@wp.func
def exact_pos(s: Any, i: int, j: int, resolution: float) -> float:
    """Joint positions relative to the default pose, not rounded."""
    return s.joint_pos[i, j] - s.default_joint_pos[j]


@wp.func
def exact_vel(s: Any, i: int, j: int, resolution: float) -> float:
    """Joint velocities, not rounded."""
    return s.joint_vel[i, j]


@observation(
    size="joints",
    unit="rad",
    frame="joint",
    signal="joint_pos",
    transform="minus_default",
    mirror="joints",
    source=Source(simulated=("resolution",), clean=exact_pos),
)
def encoder_pos(s: Any, i: int, j: int, resolution: float) -> float:
    """Joint positions as counted by an encoder of that resolution [rad or m], relative to the default pose."""
    return quantized(s.joint_pos[i, j], resolution) - s.default_joint_pos[j]


@observation(
    size="joints",
    unit="rad/s",
    frame="joint",
    signal="joint_vel",
    mirror="joints",
    source=Source(uses=("encoders",), simulated=("resolution",), clean=exact_vel),
)
def encoder_vel(s: Any, i: int, j: int, resolution: float) -> float:
    """Joint velocities from an encoder's positions of this control step and the last [rad/s or m/s]."""
    moved = quantized(s.joint_pos[i, j], resolution) - quantized(s.last_joint_pos[i, j], resolution)
    return moved / s.step_dt
