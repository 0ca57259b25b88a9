"""A bolted arm of two links, its true parameters, and logs of what it does."""

import numpy as np
import pytest
from robot_rl_assets.robot import Joint, Robot

from robot_rl.identify.excite import excite
from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.robot_log import make_log
from robot_rl.identify.simulated_log import digest, simulated_log

MODEL = """<mujoco><compiler angle="radian"/>
<default><joint damping="0.1" armature="0.01" frictionloss="0.2" range="-2 2" limited="true"/></default>
<worldbody>
  <body name="turn" pos="0 1 0">
    <joint name="turn" axis="0 0 1"/><inertial pos="0.2 0 0" mass="1.0" diaginertia="0.01 0.01 0.01"/></body>
  <body name="upper" pos="0 0 1">
    <joint name="upper" axis="0 1 0"/><inertial pos="0 0 -0.15" mass="1.2" diaginertia="0.01 0.01 0.001"/>
    <body name="lower" pos="0 0 -0.3">
      <joint name="lower" axis="0 1 0"/><inertial pos="0 0 -0.12" mass="0.5" diaginertia="0.004 0.004 0.0005"/></body>
  </body>
</worldbody></mujoco>"""
TRUTH = {
    "gain": [1.1, 0.85, 1.15],
    "armature": [0.02, 0.015, 0.006],
    "damping": [0.3, 0.05, 0.2],
    "friction": [0.3, 0.4, 0.1],
    "offset": [0.0, 0.02, -0.015],
}
DELAY = 0.006


@pytest.fixture(scope="session")
def arm(tmp_path_factory):
    """An arm of two links beside a joint that turns about the vertical."""
    path = tmp_path_factory.mktemp("arm") / "model.xml"
    path.write_text(MODEL)
    joints = [
        Joint(name=name, default_pos=pose, effort_limit=25.0, velocity_limit=20.0, kp=30.0, kd=1.0)
        for name, pose in (("turn", 0.0), ("upper", 0.3), ("lower", -0.5))
    ]
    return Robot(name="arm", model=path, joints=tuple(joints))


@pytest.fixture(scope="session")
def truth(arm):
    """The true parameters, as a vector."""
    parameters = PlantModel(arm, 0.0025).parameters
    found = parameters.nominal.copy()
    for name, values in TRUTH.items():
        found[parameters.indices(name)] = values
    found[parameters.delay] = DELAY
    return found


@pytest.fixture(scope="session")
def arrays(arm, truth):
    """4 s of the arm at 200 Hz, as the arrays of an .npz."""
    return simulated_log(PlantModel(arm, 0.0025), truth, excite(arm, 4.0, 200.0), seed=1)


@pytest.fixture(scope="session")
def log(arm, arrays):
    """The same as a log."""
    return make_log("fit.npz", digest(arrays), arrays, arm)


@pytest.fixture(scope="session")
def other(arm, truth):
    """Another log of the arm."""
    found = simulated_log(PlantModel(arm, 0.0025), truth, excite(arm, 4.0, 200.0, share=0.8), seed=2)
    return make_log("held.npz", digest(found), found, arm)


@pytest.fixture
def changed(arrays):
    """changed(**arrays): the arrays with some of them replaced, None: removed."""

    def make(**changes):
        found = {key: np.array(value) for key, value in arrays.items()} | changes
        return {key: value for key, value in found.items() if value is not None}

    return make
