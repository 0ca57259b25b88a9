"""Draft a robot from its own file, and see whether its joints follow.

python examples/own_robot.py robot.urdf
"""

import sys

from robot_rl_envs.entity.trials import try_robot

import robot_rl as rr

if len(sys.argv) != 2:
    sys.exit(__doc__)
robot = rr.Robot.from_file(sys.argv[1])
print(f"{robot.name}: {len(robot.joints)} joints, feet {', '.join(robot.feet) or 'none'}, model {robot.model}")
for joint in robot.joints:
    print(f"  {joint.name}: kp {joint.kp:g}, kd {joint.kd:g}, effort limit {joint.effort_limit:g}")
print("\n".join(finding.text for finding in try_robot(robot)) or "every joint follows")
