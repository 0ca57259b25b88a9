"""A hanging arm of two links, and the log of a Go2 that walks, with wrong wiring if wished."""

from pathlib import Path

import numpy as np
import pytest
import robot_rl_tasks
from robot_rl_assets.registry import get_robot
from robot_rl_assets.robot import Joint, Robot

from robot_rl.identify.excite import excite
from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.simulated_log import simulated_log
from robot_rl.identify.simulated_walk import Walk, walking_log

POLICY = Path(robot_rl_tasks.__file__).parent / "go2_flat" / "policy"
MODEL = """<mujoco><compiler angle="radian"/>
<default><joint damping="0.1" armature="0.01" frictionloss="0.2" range="-2 2" limited="true"/></default>
<worldbody><body name="upper" pos="0 0 1">
    <joint name="upper" axis="0 1 0"/><inertial pos="0 0 -0.15" mass="1.2" diaginertia="0.01 0.01 0.001"/>
    <body name="lower" pos="0 0 -0.3">
      <joint name="lower" axis="0 1 0"/><inertial pos="0 0 -0.12" mass="0.5" diaginertia="0.004 0.004 0.0005"/></body>
</body></worldbody></mujoco>"""


@pytest.fixture(scope="session")
def arm(tmp_path_factory):
    """An arm of two links."""
    path = tmp_path_factory.mktemp("arm") / "model.xml"
    path.write_text(MODEL)
    joints = [
        Joint(name=name, default_pos=pose, effort_limit=25.0, velocity_limit=20.0, kp=30.0, kd=1.0)
        for name, pose in (("upper", 0.3), ("lower", -0.5))
    ]
    return Robot(name="arm", model=path, joints=tuple(joints))


@pytest.fixture(scope="session")
def swing(arm):
    """swing(**changes): 4 s of the arm at 200 Hz, with parameters added to the model's."""

    def make(**changes):
        plant = PlantModel(arm, 0.0025)
        theta = plant.parameters.nominal.copy()
        for name, value in changes.items():
            theta[plant.parameters.indices(name)] += value
        return simulated_log(plant, theta, excite(arm, 4.0, 200.0), seed=1)

    return make


@pytest.fixture(scope="session")
def go2():
    """The Go2."""
    return get_robot("unitree_go2")


@pytest.fixture(scope="session")
def walk(go2):
    """walk(seconds, mass=0, **wiring): the log of a Go2 that walks, and MuJoCo's states at its rows."""

    def make(seconds, mass=0.0, **wiring):
        plant = PlantModel(go2, 0.002, base="free")
        theta = plant.parameters.nominal.copy()
        theta[plant.parameters.indices("mass")] = mass
        robot, states = Walk(plant, theta, POLICY, seed=1), []
        measure = robot.measure

        def noted():
            states.append(np.concatenate([robot.data.qpos, robot.data.qvel]))
            return measure()

        robot.measure = noted
        return walking_log(robot, seconds, **wiring), np.array(states)

    return make
