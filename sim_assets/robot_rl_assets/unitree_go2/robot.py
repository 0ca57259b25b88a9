"""Facts of the Unitree Go2: effort and speed limits, default pose, gains and left-right symmetry.

Torque limits are those of Unitree's own model, 23.7 N m at hip and thigh and 45.43 N m at the calf, whose motor drives
the knee through a linkage that trades speed (15.7 instead of 30.1 rad/s) for torque.

The gains are stiff enough that the robot stands within a few centimetres of the pose it is told, and soft enough that
a foot striking the ground early is not thrown back: kp = 35 N m/rad. The damping kd = 1 N m s/rad, with the joints' own,
is about 0.7 of critical for a calf swinging freely (0.016 kg m^2 about the knee with the rotor).
"""

from pathlib import Path

from robot_rl_assets.robot import Joint, Robot

KP = 35.0  # [N m/rad]
KD = 1.0  # [N m s/rad]
ACTION_SCALE = 0.25  # [rad] joint target offset for an action of 1

FEET = ("FL", "FR", "RL", "RR")
MIRROR = {"FL": "FR", "FR": "FL", "RL": "RR", "RR": "RL"}

# part: default position [rad], torque limit [N m], speed limit [rad/s], sign under the mirror
PARTS = {
    "hip": (0.0, 23.7, 30.1, -1.0),
    "thigh": (0.9, 23.7, 30.1, 1.0),
    "calf": (-1.8, 45.43, 15.7, 1.0),
}

JOINTS = tuple(
    Joint(
        name=f"{leg}_{part}_joint",
        default_pos=default_pos,
        effort_limit=effort_limit,
        velocity_limit=velocity_limit,
        kp=KP,
        kd=KD,
        action_scale=ACTION_SCALE,
        mirror=f"{MIRROR[leg]}_{part}_joint",
        mirror_sign=mirror_sign,
    )
    for leg in FEET
    for part, (default_pos, effort_limit, velocity_limit, mirror_sign) in PARTS.items()
)

ROBOT = Robot(
    name="unitree_go2",
    model=Path(__file__).parent / "model.xml",
    joints=JOINTS,
    base_body="base_link",
    base_height=0.287,  # the feet just touch the ground in the default pose
    feet=FEET,
    foot_radius=0.022,
    foot_mirror=tuple(FEET.index(MIRROR[leg]) for leg in FEET),
    imu_site="imu",
)
