"""Isaac Lab's velocity task with our Go2: its file is written from our model, its contract from their descriptors."""

import pytest
import torch
from robot_rl_deploy.contract import ContractError, TrainingSpec
from robot_rl_deploy.describe import make_contract

from robot_rl.errors import UserError
from robot_rl.sources.isaaclab.describe import check_observations

pytestmark = pytest.mark.isaac
NAME = "Isaac-Velocity-Flat-UnitreeGo2"
TRAINING = TrainingSpec(run_id="r", task="t", git_commit="c", iteration=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with our Go2 as go2.usda."""
    from robot_rl_assets.registry import get_robot
    from robot_rl_assets.usd import write_usd

    path = tmp_path_factory.mktemp("usd")
    write_usd(get_robot("unitree_go2"), path / "go2.usda", visual=False)
    return path


def ours(cfg):
    """Our Go2's bodies have other names, and its feet belong to the calves."""
    for term in (cfg.events.add_base_mass, cfg.events.base_com, cfg.events.base_external_force_torque):
        term.params["asset_cfg"].body_names = "base_link"
    cfg.terminations.base_contact.params["sensor_cfg"].body_names = "base_link"
    cfg.rewards.feet_air_time.params["sensor_cfg"].body_names = ".*_calf"


def blind(cfg):
    """Without what no robot measures, and without noise."""
    ours(cfg)
    cfg.observations.policy.base_lin_vel = None
    cfg.observations.policy.enable_corruption = False


def test_a_go2_of_ours_stands_there_and_is_described(make, folder):
    env = make(NAME, num_envs=2, assets=str(folder), change=blind)
    assert env.get_observations()["policy"].shape == (2, 45)
    for _ in range(10):
        obs, reward, done, _ = env.step(torch.zeros(2, 12))
    assert torch.isfinite(obs["policy"]).all()
    assert torch.isfinite(reward).all()
    assert not done.any()
    height = env.env.scene["robot"].data.root_pos_w.torch[:, 2]
    assert ((height > 0.15) & (height < 0.5)).all()

    contract = make_contract(env.describe_policy(), TRAINING)
    assert contract.robot == "unitree_go2"
    assert len(contract.joints) == len(contract.actions) == 12
    joints = {joint.name: joint for joint in contract.joints}
    assert {joint.kp for joint in joints.values()} == {25.0}
    assert {joint.kd for joint in joints.values()} == {0.5}
    thigh, calf = joints["FL_thigh_joint"], joints["RR_calf_joint"]
    assert (thigh.effort_limit, thigh.velocity_limit, thigh.default_pos) == (23.7, 30.1, pytest.approx(0.8))
    assert (calf.effort_limit, calf.velocity_limit, calf.default_pos) == (45.43, 15.7, pytest.approx(-1.5))
    for action in contract.actions:
        assert (action.kind, action.scale, action.offset) == ("position", 0.25, joints[action.joint].default_pos)
    assert [term.name for term in contract.observations] == [
        *("base_ang_vel", "projected_gravity", "velocity_commands", "joint_pos", "joint_vel", "actions")
    ]
    assert [(part.name, part.lower, part.upper) for part in contract.command] == [
        *(("vx", -1.0, 1.0), ("vy", -1.0, 1.0), ("yaw", -1.0, 1.0))
    ]
    assert contract.control_period_s == pytest.approx(0.02)
    check_observations(env, TRAINING)


def test_a_name_that_the_robot_does_not_have_is_one_line(make, folder):
    with pytest.raises(UserError, match="task=isaac/Isaac-Velocity-Flat-UnitreeGo2: Error while parsing") as error:
        make(NAME, num_envs=1, assets=str(folder))
    assert "Available strings: ['base_link'" in str(error.value)


def test_its_velocity_is_refused_by_name(make, folder):
    env = make(NAME, num_envs=1, assets=str(folder), change=ours)
    with pytest.raises(ContractError, match="actor observation 'base_lin_vel' reads no signal of the robot"):
        make_contract(env.describe_policy(), TRAINING)
