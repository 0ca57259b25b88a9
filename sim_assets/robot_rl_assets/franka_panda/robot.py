"""Facts of the Franka Emika Panda with its hand: limits, gains, ready pose.

Speed limits are those of the data sheet, 2.175 rad/s for joints 1 to 4 and 2.61 rad/s for 5 to 7; torque limits those
of Franka's control interface, 87 and 12 N m. Masses and inertias in the model were identified on the arm by Gaz et al.,
"Dynamic Identification of the Franka Emika Panda Robot With Retrieval of Feasible Parameters Using Penalty-Based
Optimization", RA-L 2019.

The arm's gains and the rotors' inertia are the usual ones of this robot in MuJoCo. With kd = kp / 10 a joint follows a
step in its target with a lag of about 0.1 s, so the target offset of an action of 1, 0.25 rad, peaks at about the
slowest joints' speed limit.

Gravity: the real controller adds the torques that carry arm and hand to every command, and so does the model
(`gravcomp`), as passive forces. A joint's torque is therefore that of its PD law only, the desired torque of
Franka's interface; the motors give the arm's weight on top of it (up to 57 N m, at joint 2 of the outstretched arm).
What the hand holds is not compensated.

Hand: one action opens and closes it. `finger_joint1` is driven, and `finger_joint2` follows it by an equality
constraint of the model. An action of -1 closes the hand, 0 opens it. Speed and force are the data sheet's, 50 mm/s of
each finger and 70 N: the model's fingers have a damping of 700 N s/m each, which that force overcomes at that speed.
Like the real hand's spindle they are never faster, with any target, and contacts hardly push them. An object that is
held gets half of the force at each finger. The reflected inertia of motor and spindle, 4 kg at each
finger, is an estimate. The hand's usual actuator in MuJoCo, with a kp of 100 N/m and a damping of 10 N s/m, closes ten
times as fast as the real one.

The arm lacks a left-right mirror: in the ready pose joint 7 is at 45 degrees, and its mirror image `pi / 2 - q` is more
than a sign; one finger is driven and the other is not; and the links' centres of mass lie up to 4 cm beside the plane
of the arm.
"""

import math
from pathlib import Path

from robot_rl_assets.robot import Joint, Robot

ARM_SCALE = 0.25  # [rad] joint target offset for an action of 1
OPEN = 0.04  # [m] position of a finger of the open hand

# default position [rad] with the hand pointing straight down, torque limit [N m], speed limit [rad/s], kp [N m/rad]
ARM = (
    (0.0, 87.0, 2.175, 4500.0),
    (-math.pi / 4, 87.0, 2.175, 4500.0),
    (0.0, 87.0, 2.175, 3500.0),
    (-3 * math.pi / 4, 87.0, 2.175, 3500.0),
    (0.0, 12.0, 2.61, 2000.0),
    (math.pi / 2, 12.0, 2.61, 2000.0),
    (math.pi / 4, 12.0, 2.61, 2000.0),
)

JOINTS = (
    *(
        Joint(
            name=f"joint{number}",
            default_pos=default_pos,
            effort_limit=effort_limit,
            velocity_limit=velocity_limit,
            kp=kp,
            kd=kp / 10,
            action_scale=ARM_SCALE,
        )
        for number, (default_pos, effort_limit, velocity_limit, kp) in enumerate(ARM, start=1)
    ),
    Joint(
        name="finger_joint1",
        default_pos=OPEN,
        effort_limit=70.0,
        velocity_limit=0.05,
        kp=10000.0,
        kd=500.0,
        action_scale=OPEN,
    ),
    Joint(name="finger_joint2", default_pos=OPEN, effort_limit=0.0, velocity_limit=0.05, action_scale=OPEN),
)

ROBOT = Robot(name="franka_panda", model=Path(__file__).parent / "model.xml", joints=JOINTS)
