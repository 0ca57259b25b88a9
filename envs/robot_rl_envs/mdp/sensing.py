"""Observation terms of a robot's sensors: inertial measurement unit, encoders, feet, height scan.

A sensor's pose and range are in ``Task.sensors``; its noise, bias, delay and dropout are options of the term. In a
group with ``noise=False`` each term gives the clean value.
"""

from typing import Any

import warp as wp

from robot_rl_envs.quat import quat_from_axis_angle, quat_multiply, quat_rotate_inverse
from robot_rl_envs.terms import Source, event, observation
from robot_rl_envs.terrain.lookup import terrain_height


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
    if not scene.sensing.imu:
        raise ValueError(f"rpy={params['rpy']!r}: no observation reads the IMU in its own frame; use sensing.imu_gyro")


@event(writes="nothing", fields={"imu_tilt_wxyz": (4,)}, modes=("startup", "reset"), check=check_mount)
def imu_mount(s: Any, i: int, rng: wp.uint32, rpy: float):
    """Misalign the inertial measurement unit by up to +-rpy [rad] about each of its axes."""
    turn = quat_from_axis_angle(wp.vec3(0.0, 0.0, 1.0), rpy * (2.0 * wp.randf(rng) - 1.0))
    turn = quat_multiply(turn, quat_from_axis_angle(wp.vec3(0.0, 1.0, 0.0), rpy * (2.0 * wp.randf(rng) - 1.0)))
    turn = quat_multiply(turn, quat_from_axis_angle(wp.vec3(1.0, 0.0, 0.0), rpy * (2.0 * wp.randf(rng) - 1.0)))
    for k in range(4):
        s.imu_tilt_wxyz[i, k] = turn[k]


@wp.func
def quantized(value: float, resolution: float) -> float:
    """The nearest multiple of resolution; value itself where that is 0."""
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


@observation(size="feet", unit="N", frame="none", signal="foot_force", mirror="feet")
def foot_force(s: Any, i: int, j: int) -> float:
    """Magnitude of the net contact force on each foot in the last substep [N]."""
    return s.foot_force[i, j]


@observation(size="feet", unit="N", mirror="feet", source=Source(uses=("foot_forces",)))
def foot_force_peak(s: Any, i: int, j: int) -> float:
    """Largest contact force on each foot in the substeps that are kept [N]: no peak between control steps is missed."""
    peak = float(0.0)
    feet = s.foot_force.shape[1]
    for n in range(s.foot_forces.shape[1] // feet):
        peak = wp.max(peak, s.foot_forces[i, n * feet + j])
    return peak


@observation(size="foot_forces", unit="N", mirror="foot_forces", source=Source(uses=("foot_forces",)))
def foot_force_history(s: Any, i: int, j: int) -> float:
    """Contact force on each foot in each substep that is kept, oldest substep first [N]."""
    return s.foot_forces[i, j]


@observation(size="feet", unit="s", mirror="feet")
def foot_contact_time(s: Any, i: int, j: int) -> float:
    """How long each foot has been on the ground [s]; 0 in the air."""
    return s.foot_contact_time_s[i, j]


@observation(size="feet", unit="m", frame="world", mirror="feet")
def foot_ground(s: Any, i: int, j: int) -> float:
    """Height of the ground below each foot [m]."""
    return terrain_height(s, s.foot_pos_w[i, j][0], s.foot_pos_w[i, j][1])


@observation(unit="m", frame="world", mirror=(1.0,))
def base_clearance(s: Any, i: int, j: int) -> float:
    """Height of the base above the ground below it [m]."""
    return s.base_pos_w[i][2] - terrain_height(s, s.base_pos_w[i][0], s.base_pos_w[i][1])


@observation(
    size="height_scan",
    unit="m",
    frame="heading",
    signal="height_scan",
    transform="minus_offset",
    mirror="height_scan",
    source=Source(uses=("height_scan",)),
)
def height_scan(s: Any, i: int, j: int, offset: float) -> float:
    """Height of the base above the ground at each point of the grid, less ``offset`` [m]; see sensors.HeightScan."""
    return s.height_scan[i, j] - offset
