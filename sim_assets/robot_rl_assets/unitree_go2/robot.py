"""Facts of the Unitree Go2: effort and speed limits, default pose, gains and left-right symmetry.

Torque limits are those of Unitree's own model, 23.7 N m at hip and thigh and 45.43 N m at the calf: its motor
drives the knee through a linkage that trades speed (15.7 instead of 30.1 rad/s) for torque.

The gains, kp = 40 N m/rad and kd = 1 N m s/rad, are at the upper end of the usual range for this robot. A softer knee
lets it sink: it carries about 6 N m standing, and with kp = 25 the base settles 7 cm under the height of its target
pose, with kp = 40 less than 4 cm. The damping, with the joint's own, is more than half of critical for a calf that
swings freely (0.026 kg m^2 about the knee with the rotor), so that legs neither ring nor drag.

The joints' damping, armature and friction in model.xml are those that `robot-rl identify` finds in chirps of real Go2
that hang in the air (github.com/iit-DLSLab/sim2real-robot-identification, BSD-3-Clause), divided by each joint's gain
and averaged over the legs: friction of 0.16 to 0.22 N m at the hip, 0.12 to 0.17 at the thigh, 0.50 to 0.62 at the
calf; armature of 0.003 to 0.005 kg m^2 at the thigh, 0.018 to 0.023 at the calf. The hip's armature is not seen there;
it has the thigh's motor. They agree with Unitree's rotor of 1.1e-4 kg m^2 behind gears of 6.33, and 12 at the knee.
"""

from pathlib import Path

from robot_rl_assets.robot import Joint, Robot

KP = 40.0  # [N m/rad]
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
    base_height=0.289,  # in the default pose the feet are half a millimetre above the ground
    feet=FEET,
    foot_radius=0.022,
    foot_mirror=tuple(FEET.index(MIRROR[leg]) for leg in FEET),
    imu_site="imu",
)
