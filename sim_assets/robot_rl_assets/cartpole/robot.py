"""Facts of the cart-pole: a motor pushes the cart, the pole turns freely.

The cart runs on a 3.6 m rail. The hinge angle is 0 with the pole upright and pi with it hanging down, which is the
default pose. A single push along the whole rail lifts the pole a little above the horizontal and no further, so a
swing-up has to pump energy in.
"""

import math
from pathlib import Path

from robot_rl_assets.robot import Joint, Robot

ROBOT = Robot(
    name="cartpole",
    model=Path(__file__).parent / "model.xml",
    joints=(
        Joint(name="slider", default_pos=0.0, effort_limit=15.0, velocity_limit=10.0, mirror_sign=-1.0),
        Joint(name="hinge", default_pos=math.pi, effort_limit=0.0, velocity_limit=25.0, mirror_sign=-1.0),
    ),
)
