"""The values of sensors in one world: the accelerometer, contact forces of past substeps, the height scan."""

from typing import Any

import warp as wp

from robot_rl_envs.quat import quat_rotate_inverse
from robot_rl_envs.terrain.lookup import terrain_height


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


@wp.func
def read_foot_forces(s: Any, i: int):
    """Copy the magnitudes of world i's contact forces [N] in the last substeps, oldest first, from MuJoCo's buffers."""
    feet = s.foot_force.shape[1]
    count = s.foot_forces.shape[1] // feet
    for f in range(feet):
        head = s.foot_history_at[f]
        newest = int(s.history[i, head + 1])
        for n in range(count):
            k = head + 2 + count + 4 * ((newest + 1 + n) % count)
            force = wp.vec3(s.history[i, k + 1], s.history[i, k + 2], s.history[i, k + 3])
            s.foot_forces[i, n * feet + f] = wp.length(force)


@wp.func
def clear_foot_forces(s: Any, i: int):
    """Clear the contact forces from before world i's episode."""
    for k in range(s.foot_forces.shape[1]):
        s.foot_forces[i, k] = 0.0


@wp.func
def heading_of(q: wp.vec4) -> wp.vec2:
    """Cosine and sine of the heading of a body with orientation q (w, x, y, z); (1, 0) where it points straight up."""
    x = 1.0 - 2.0 * (q[2] * q[2] + q[3] * q[3])
    y = 2.0 * (q[0] * q[3] + q[1] * q[2])
    length = wp.sqrt(x * x + y * y)
    if length < 1.0e-6:
        return wp.vec2(1.0, 0.0)
    return wp.vec2(x / length, y / length)


@wp.func
def scan_heights(s: Any, i: int):
    """Height of world i's base above the ground at each point of its grid [m], from the terrain's map."""
    pos = s.base_pos_w[i]
    turn = heading_of(s.base_quat_wxyz[i])
    for j in range(s.scan_points.shape[0]):
        point = s.scan_points[j]
        x = pos[0] + turn[0] * point[0] - turn[1] * point[1]
        y = pos[1] + turn[1] * point[0] + turn[0] * point[1]
        s.height_scan[i, j] = wp.clamp(pos[2] - terrain_height(s, x, y), -s.scan_reach[0], s.scan_reach[0])


@wp.kernel(enable_backward=False)
def aim_scan(
    qpos: wp.array2d(dtype=wp.float32),
    base: int,
    points: wp.array(dtype=wp.vec2),
    top: float,
    # outputs
    origins_out: wp.array2d(dtype=wp.vec3),
):
    """Set where the ray of world i's point j starts: above the point [m], at height top."""
    i, j = wp.tid()
    turn = heading_of(wp.normalize(wp.vec4(qpos[i, base + 3], qpos[i, base + 4], qpos[i, base + 5], qpos[i, base + 6])))
    point = points[j]
    x = qpos[i, base] + turn[0] * point[0] - turn[1] * point[1]
    y = qpos[i, base + 1] + turn[1] * point[0] + turn[0] * point[1]
    if wp.isfinite(x) and wp.isfinite(y):
        origins_out[i, j] = wp.vec3(x, y, top)
    else:
        origins_out[i, j] = wp.vec3(0.0, 0.0, top)  # of a world that is to be quarantined


@wp.kernel(enable_backward=False)
def measure_scan(
    qpos: wp.array2d(dtype=wp.float32),
    base: int,
    distances: wp.array2d(dtype=wp.float32),
    top: float,
    reach: float,
    # outputs
    scan_out: wp.array2d(dtype=wp.float32),
):
    """Set the height of world i's base above what the ray of point j hit [m]; reach if it hit nothing."""
    i, j = wp.tid()
    height = reach
    if distances[i, j] >= 0.0:
        height = wp.clamp(qpos[i, base + 2] - (top - distances[i, j]), -reach, reach)
    scan_out[i, j] = height
