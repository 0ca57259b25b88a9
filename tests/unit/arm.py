"""An arm of three joints that is to bring its tip to a target: a task with a command that is no velocity."""

from pathlib import Path
from typing import Any

import warp as wp
from robot_rl_assets.robot import Joint, Robot
from robot_rl_envs.mdp import commands, events, observations
from robot_rl_envs.quat import quat_rotate
from robot_rl_envs.task import Command, Event, Observation, ObservationGroup, Reward, Sim, Task
from robot_rl_envs.terms import reward

ARM = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="turret" pos="0 0 0.1">
      <joint name="pan" axis="0 0 1" range="-3 3"/>
      <geom type="cylinder" size="0.04 0.05" mass="1" rgba="0.2 0.2 0.2 1"/>
      <body name="upper" pos="0 0 0.2">
        <joint name="shoulder" axis="0 1 0" range="-2 2"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" mass="0.6" rgba="0.9 0.6 0.1 1"/>
        <body name="fore" pos="0.3 0 0">
          <joint name="elbow" axis="0 1 0" range="-2.5 2.5"/>
          <geom type="capsule" fromto="0 0 0 0.25 0 0" size="0.025" mass="0.4" rgba="0.9 0.6 0.1 1"/>
          <site name="tip" pos="0.25 0 0"/>
        </body>
      </body>
    </body>
    <site name="mark" pos="0.5 0.5 0"/>
  </worldbody>
</mujoco>
"""
"""The first joint is at (0, 0, 0.1); from there it is 0.2 + 0.3 + 0.25 = 0.75 m to the tip."""

BOX = {"x_lo": 0.2, "x_hi": 0.5, "y_lo": -0.3, "y_hi": 0.2, "z_lo": 0.1, "z_hi": 0.5}
TURNS = {"roll_lo": -3.0, "roll_hi": 3.0, "pitch_lo": -0.5, "pitch_hi": 1.0, "yaw_lo": -3.0, "yaw_hi": 2.0}
KINDS = {
    "position": Command(commands.uniform_position, site="tip", **BOX),
    "pose": Command(commands.uniform_pose, site="tip", **BOX, **TURNS),
    "moving": Command(commands.moving_position, resample_s=(0.5, 0.5), speed=0.2, site="tip", **BOX),
}


@reward(data=("xpos", "xquat"), reads_command=3)
def near_target(s: Any, i: int, std: float, body: float) -> float:
    """exp(-|p - p*|^2 / std^2) of the tip, 25 cm along the x axis of a body, and the point of the command [m]."""
    b = int(body)
    p = wp.vec3(float(s.engine_xpos[i, b, 0]), float(s.engine_xpos[i, b, 1]), float(s.engine_xpos[i, b, 2]))
    q = wp.vec4()
    for k in range(4):
        q[k] = float(s.engine_xquat[i, b, k])
    way = p + quat_rotate(q, wp.vec3(0.25, 0.0, 0.0)) - wp.vec3(s.command[i][0], s.command[i][1], s.command[i][2])
    return wp.exp(-wp.dot(way, way) / (std * std))


def make_arm_task(path: Path, command: Command, **fields: Any) -> Task:
    """A task of the arm, which is written to an MJCF file; fields of Task replace its own."""
    path.write_text(ARM)
    gains = {"default_pos": 0.3, "effort_limit": 20.0, "velocity_limit": 10.0, "kp": 40.0, "kd": 2.0}
    sensed = {
        "joint_pos": Observation(observations.joint_pos_rel),
        "joint_vel": Observation(observations.joint_vel, scale=0.1),
        "target": Observation(observations.command),
        "last_action": Observation(observations.last_action),
    }
    own = {
        "name": "reach",
        "robot": Robot(
            name="arm3", model=path, joints=tuple(Joint(name=n, **gains) for n in ("pan", "shoulder", "elbow"))
        ),
        "sim": Sim(timestep=0.005, decimation=4, floor_height=-0.9),  # it hangs down when nothing drives it
        "observations": {"actor": ObservationGroup(terms=sensed, noise=False)},
        "rewards": {"near": Reward(near_target, weight=1.0, std=0.2, body="fore")},
        "commands": {"target": command},
        "events": {"joints": Event(events.reset_joints, position=0.1, velocity=0.0)},
    }
    return Task(**(own | fields))
