"""Facts of the Unitree G1 with 29 joints: motors, effort and speed limits, default pose, gains, left-right symmetry.

Kinematics, masses, joint ranges and effort limits are those of Unitree's own model of it; so is the order of the
joints, which is that of `motor_cmd` and `motor_state` in the robot's messages. The hip's roll motor is of the stronger
kind but keeps the 88 N m of that model; later revisions of the robot allow it 139 N m. Ankles, and the waist's roll and
pitch, are each driven by two motors in parallel, taken here as one on each joint with twice the inertia and 50 N m.

Each motor has a planetary gear of two stages. With the inertias of the rotor J0, of the first stage's carrier J1 and of
the output J2, and the ratios N1 and N2, the joint feels J = J0 (N1 N2)^2 + J1 N2^2 + J2 [kg m^2], its armature in
model.xml. The figures are Unitree's as mjlab publishes them. The dry friction of Unitree's model, 0.2 N m (0.1 at two
joints of the wrist), is omitted: it is less than a hundredth of the torque of a leg, and a third of a step's cost.

The gains are those of a joint that moves nothing else, at 10 Hz with a damping ratio of 2: kp = J w^2 and kd = 4 J w
with w = 2 pi 10 Hz. An action of 1 asks for a quarter of the effort limit.
"""

import math
from dataclasses import dataclass
from pathlib import Path

from robot_rl_assets.robot import Joint, Robot

OMEGA = 2.0 * math.pi * 10.0  # [rad/s]
DAMPING_RATIO = 2.0


@dataclass(frozen=True, slots=True)
class Motor:
    """A kind of motor with its gear: its share of a joint's inertia [kg m^2] and its highest speed there [rad/s]."""

    armature: float
    velocity_limit: float


def reflected_inertia(rotor: float, carrier: float, output: float, first: float, second: float) -> float:
    """Return the inertia [kg m^2] at the output of a planetary gear with the ratios `first` and `second`."""
    return rotor * (first * second) ** 2 + carrier * second**2 + output


M5020 = Motor(reflected_inertia(1.39e-5, 1.7e-6, 1.69e-5, 1 + 46 / 18, 1 + 56 / 16), 37.0)
M5020_PAIR = Motor(2.0 * M5020.armature, M5020.velocity_limit)
M7520_14 = Motor(reflected_inertia(4.89e-5, 9.8e-6, 5.33e-5, 4.5, 1 + 48 / 22), 32.0)
M7520_22 = Motor(reflected_inertia(4.89e-5, 1.09e-5, 7.38e-5, 4.5, 5.0), 20.0)
M4010 = Motor(reflected_inertia(6.8e-6, 0.0, 0.0, 5.0, 5.0), 22.0)

# part: motor, effort limit [N m], default position of the left side [rad]
LEG = {
    "hip_pitch": (M7520_14, 88.0, -0.312),
    "hip_roll": (M7520_22, 88.0, 0.0),
    "hip_yaw": (M7520_14, 88.0, 0.0),
    "knee": (M7520_22, 139.0, 0.669),
    "ankle_pitch": (M5020_PAIR, 50.0, -0.363),
    "ankle_roll": (M5020_PAIR, 50.0, 0.0),
}
WAIST = {
    "yaw": (M7520_14, 88.0, 0.0),
    "roll": (M5020_PAIR, 50.0, 0.0),
    "pitch": (M5020_PAIR, 50.0, 0.0),
}
ARM = {
    "shoulder_pitch": (M5020, 25.0, 0.2),
    "shoulder_roll": (M5020, 25.0, 0.2),
    "shoulder_yaw": (M5020, 25.0, 0.0),
    "elbow": (M5020, 25.0, 0.6),
    "wrist_roll": (M5020, 25.0, 0.0),
    "wrist_pitch": (M4010, 5.0, 0.0),
    "wrist_yaw": (M4010, 5.0, 0.0),
}
OTHER = {"left": "right", "right": "left"}


def make_joint(side: str, part: str, motor: Motor, effort_limit: float, default_pos: float) -> Joint:
    """Make a joint; a turn about the x or z axis goes the other way in the mirror."""
    sign = -1.0 if part.endswith(("roll", "yaw")) else 1.0
    kp = motor.armature * OMEGA**2
    return Joint(
        name=f"{side}_{part}_joint",
        default_pos=default_pos * (sign if side == "right" else 1.0),
        effort_limit=effort_limit,
        velocity_limit=motor.velocity_limit,
        kp=kp,
        kd=2.0 * DAMPING_RATIO * motor.armature * OMEGA,
        action_scale=0.25 * effort_limit / kp,
        mirror=f"{OTHER[side]}_{part}_joint" if side in OTHER else None,
        mirror_sign=sign,
    )


LIMBS = (("left", LEG), ("right", LEG), ("waist", WAIST), ("left", ARM), ("right", ARM))
JOINTS = tuple(make_joint(side, part, *facts) for side, limb in LIMBS for part, facts in limb.items())

ROBOT = Robot(
    name="unitree_g1",
    model=Path(__file__).parent / "model.xml",
    joints=JOINTS,
    base_body="pelvis",
    base_height=0.7575,  # in the default pose the lowest edge of the soles is half a millimetre above the ground
    feet=("left_foot", "right_foot"),
    foot_radius=0.0125,
    foot_mirror=(1, 0),
    imu_site="imu",
)
"""Unitree G1, a humanoid with 29 actuated joints."""
