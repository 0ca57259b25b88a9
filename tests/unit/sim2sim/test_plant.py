"""The simulated robot: its joints follow commands as the trainer's follow targets, and it returns measurements."""

import types

import mujoco
import numpy as np
import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.errors import UserError
from robot_rl.evaluation import evaluation_task
from robot_rl.sim2sim.plant import Plant, plant_task
from tests.unit.actuation.conftest import by_speed

SEED = 11


class Commander:
    """Gives one command at each tick, with the gains of the robot's joints."""

    def __init__(self, plant):
        joints = plant.env.scene.robot.joints
        self.kp = np.array([joint.kp for joint in joints])
        self.kd = np.array([joint.kd for joint in joints])
        self.q = np.array([joint.default_pos for joint in joints])
        self.dq, self.tau = np.zeros(len(joints)), np.zeros(len(joints))
        self.seen = []
        plant.connect(self)

    def tick(self, plant):
        low = types.SimpleNamespace()
        plant.robot.sense(low)
        self.seen.append(low)
        plant.robot.command = self


@pytest.fixture
def task():
    return evaluation_task(get_task("go2_flat"))


@pytest.fixture
def make(task):
    plants = []

    def build(**options):
        plants.append(Plant(task, seed=SEED, **options))
        return plants[-1]

    yield build
    for plant in plants:
        plant.close()


@pytest.mark.parametrize("world", [0, 3])
def test_with_the_trainers_step_a_commanded_world_is_the_trainers(task, make, world):
    plant = make(world=world, tick_s=0.0)
    commander = Commander(plant)
    env = make_env(task, num_envs=4, engine="mujoco", num_threads=1, seed=SEED)
    actions = 0.4 * torch.randn(60, 1, 12, generator=torch.Generator().manual_seed(1))
    scale = torch.tensor([row["scale"] for row in env.describe_policy()["actions"]])
    default = torch.tensor([joint.default_pos for joint in env.scene.robot.joints])
    for action in actions:
        commander.q = (default + scale * action[0]).numpy()
        plant.env.step(action)
        env.step(action.expand(4, -1))
        np.testing.assert_allclose(plant.env.state.qpos[0], env.state.qpos[world], atol=1e-5)
    np.testing.assert_allclose(plant.env.state.command[0], env.state.command[world])
    env.close()


@pytest.mark.parametrize("turned", [(), ("FL_calf_joint", "RR_calf_joint")], ids=["held", "driven by their speed"])
def test_a_command_is_torque_plus_gains_times_errors(task, make, turned):
    task.robot = by_speed(task.robot, *turned)
    plant = make()
    commander = Commander(plant)
    commander.kp[:], commander.kd[:], commander.tau[:] = 10.0, 0.5, np.linspace(-3, 3, 12)
    commander.dq[:] = 0.2
    plant.hold(True)
    strength = plant.robot._drawn["gainprm"][0, :, 0] / plant.robot._gain
    plant.env.step(torch.zeros(1, 12))
    before, after = commander.seen[-1], types.SimpleNamespace()
    plant.robot.sense(after)
    wanted = strength * (commander.tau + 10.0 * (commander.q - before.joint_pos) + 0.5 * (0.2 - before.joint_vel))
    np.testing.assert_allclose(after.joint_effort, wanted, rtol=2e-3, atol=2e-3)


def test_without_a_command_the_joints_are_free(make):
    plant = make()
    plant.env.step(torch.zeros(1, 12))
    low = types.SimpleNamespace()
    plant.robot.sense(low)
    assert np.all(low.joint_effort == 0)


def test_the_gantry_holds_the_base_where_it_is(make):
    plant = make()
    plant.hold(True)
    start = plant.env.state.qpos[0, :7].clone()
    for _ in range(20):
        plant.env.step(torch.zeros(1, 12))
    np.testing.assert_allclose(plant.env.state.qpos[0, :7], start, atol=1e-6)
    plant.hold(False)
    heights = []
    plant.connect(types.SimpleNamespace(tick=lambda _: heights.append(float(plant.robot._data["qpos"][0, 2]))))
    for _ in range(20):
        plant.env.step(torch.zeros(1, 12))
    assert min(heights) < start[2] - 0.05


def test_the_legs_of_a_robot_in_the_gantry_weigh(make):
    """Its feet in the air, at rest: the motors hold what the legs weigh, but for the dry friction of the joints."""
    plant = make()
    Commander(plant)
    plant.robot.hold(True, lift=0.3)
    for _ in range(50):
        plant.env.step(torch.zeros(1, 12))
    low = types.SimpleNamespace()
    plant.robot.sense(low)
    model, data = plant.env.engine.model, mujoco.MjData(plant.env.engine.model)
    data.qpos[:] = plant.env.state.qpos[0]
    mujoco.mj_forward(model, data)
    dofs = plant.env.scene.joint_dof
    assert np.abs(data.qfrc_bias[dofs]).max() > 1.0
    assert np.all(np.abs(low.joint_effort - data.qfrc_bias[dofs]) <= model.dof_frictionloss[dofs] + 0.01)


def test_measurements_between_control_steps_match_the_state_after_them(make):
    plant = make()
    commander = Commander(plant)
    for _ in range(5):
        plant.env.step(torch.zeros(1, 12))
    assert len(commander.seen) == 50
    first, next_ones = commander.seen[40], commander.seen[41:50]
    for low in next_ones:
        assert np.abs(np.asarray(low.quat_wxyz) - np.asarray(first.quat_wxyz)).max() < 0.1
        assert abs(np.linalg.norm(low.quat_wxyz) - 1) < 1e-6
    # the same moment, computed from qpos and qvel, and as the environment derives it
    plant.robot._is_fresh = False
    quat, gyro = plant.robot._imu()
    signals = plant.env.robot_state()
    np.testing.assert_allclose(quat, signals["imu_quat_wxyz"][0], atol=1e-6)
    np.testing.assert_allclose(gyro, signals["imu_gyro"][0], atol=1e-6)
    np.testing.assert_allclose(plant.robot._feet(), signals["foot_force"][0], atol=1e-3)


def test_the_physics_runs_at_the_rate_of_the_states(task):
    changed, notes = plant_task(task, 0.002)
    assert (changed.sim.timestep, changed.sim.decimation, notes) == (pytest.approx(0.002), 10, [])
    assert changed.sim.step_dt == pytest.approx(task.sim.step_dt)
    assert plant_task(task, 0.0)[0].sim is task.sim


def test_an_actuator_only_for_training_is_named(task):
    from robot_rl_envs.actuation.actuators import DcMotor

    task.actions.actuator = DcMotor()
    task.events = {name: event for name, event in task.events.items() if name != "motors"}
    _, notes = plant_task(task)
    assert notes == ["the joints are ideal PD servos here; DcMotor is the training's"]


@pytest.mark.parametrize("tick", [-0.002, 0.03, 1e-5])
def test_a_tick_that_does_not_fit_is_refused(task, tick):
    with pytest.raises(UserError, match=f"tick={tick}: must be in"):
        plant_task(task, tick)
