"""A bundle from Isaac Lab's own descriptors: what it contains, what is refused by name, and that its policy replays."""

import dataclasses
import json

import pytest
import torch
from robot_rl_deploy.contract import ContractError, TrainingSpec
from robot_rl_deploy.describe import make_contract

from robot_rl.errors import UserError
from robot_rl.sources.isaaclab.describe import check_observations

pytestmark = pytest.mark.isaac
TRAINING = TrainingSpec(run_id="r", task="t", git_commit="c", iteration=1)


def contract_of(env):
    return make_contract(env.describe_policy(), TRAINING)


def test_a_contract_describes_the_environment(make):
    contract = contract_of(make("Isaac-Cartpole", num_envs=2))
    assert contract.robot == "cartpole"
    assert contract.joint_names == ("slider_to_cart", "cart_to_pole")
    cart, pole = contract.joints
    assert (cart.kp, cart.kd, cart.effort_limit, cart.lower, cart.upper) == (0.0, 10.0, 400.0, -4.0, 4.0)
    assert (pole.effort_limit, pole.lower, pole.upper) == (0.0, None, None)
    (action,) = contract.actions
    assert (action.joint, action.kind, action.scale, action.offset) == ("slider_to_cart", "effort", 100.0, 0.0)
    terms = [(term.name, term.signal, term.transform, term.size) for term in contract.observations]
    assert terms == [("joint_pos_rel", "joint_pos", "minus_default", 2), ("joint_vel_rel", "joint_vel", "identity", 2)]
    assert contract.control_period_s == pytest.approx(1 / 60)
    assert contract.physics_timestep_s == pytest.approx(1 / 120)


def change_everything(cfg):
    """Position actions of a scale by name, histories, scales, clips, a part of the joints, the last action."""
    from isaaclab.envs import mdp
    from isaaclab.managers import ObservationTermCfg, SceneEntityCfg

    cart = cfg.scene.robot.actuators["cart_actuator"]
    cart.stiffness, cart.damping, cart.joint_velocity_limit = 300.0, 30.0, 10.0
    cfg.scene.robot.init_state.joint_pos = {"slider_to_cart": 0.25, "cart_to_pole": 0.0}
    cfg.actions.joint_effort = mdp.JointPositionActionCfg(
        asset_name="robot", joint_names=["slider_.*"], scale={"slider_.*": 0.4}, use_default_offset=True
    )
    policy = cfg.observations.policy
    policy.joint_pos_rel.history_length = 3
    policy.joint_pos_rel.scale = 2.0
    policy.joint_vel_rel.clip = (-0.5, 0.5)
    policy.joint_vel_rel.params = {"asset_cfg": SceneEntityCfg("robot", joint_names=["cart_to_pole"])}
    policy.action = ObservationTermCfg(func=mdp.last_action)


def test_positions_histories_scales_and_clips_agree_with_the_environment(make):
    env = make("Isaac-Cartpole", num_envs=3, change=change_everything, action_clip=2.0)
    contract = contract_of(env)
    (action,) = contract.actions
    assert (action.kind, action.clip) == ("position", 2.0)
    assert (action.scale, action.offset) == (pytest.approx(0.4), 0.25)
    assert (contract.joints[0].kp, contract.joints[0].kd) == (300.0, 30.0)
    position, speed, last = contract.observations
    assert (position.history, position.scale, position.size) == (3, 2.0, 2)
    assert (speed.clip, speed.params) == ((-0.5, 0.5), {"joints": ["cart_to_pole"]})
    assert (last.signal, last.size) == ("last_action", 1)
    check_observations(env, TRAINING)


def follow_a_speed(cfg):
    from isaaclab.envs import mdp

    cart = cfg.scene.robot.actuators["cart_actuator"]
    cart.stiffness, cart.damping, cart.joint_velocity_limit = 0.0, 30.0, 10.0
    cfg.actions.joint_effort = mdp.JointVelocityActionCfg(asset_name="robot", joint_names=["slider_.*"], scale=2.0)


def test_a_speed_is_exported_as_one(make):
    contract = contract_of(make("Isaac-Cartpole", num_envs=2, change=follow_a_speed, action_clip=2.0))
    (action,) = contract.actions
    assert (action.joint, action.kind, action.scale, action.offset) == ("slider_to_cart", "velocity", 2.0, 0.0)
    assert (contract.joints[0].kp, contract.joints[0].kd) == (0.0, 30.0)


def test_a_description_that_is_wrong_is_found_before_a_robot_gets_it(make):
    env = make("Isaac-Cartpole", num_envs=2)
    described = env.describe_policy()
    described["observations"][1]["scale"] = 0.9
    env.describe_policy = lambda: described
    with pytest.raises(UserError, match="export: observation 'joint_vel_rel' of isaac/Isaac-Cartpole is "):
        check_observations(env, TRAINING)


@pytest.mark.parametrize(
    ("function", "name"), [("root_pos_w", "where"), ("base_lin_vel", "speed"), ("base_pos_z", "up")]
)
def test_what_no_robot_measures_is_refused_by_name(make, function, name):
    def add(cfg):
        from isaaclab.envs import mdp
        from isaaclab.managers import ObservationTermCfg

        setattr(cfg.observations.policy, name, ObservationTermCfg(func=getattr(mdp, function)))

    with pytest.raises(ContractError, match=f"actor observation '{name}' reads no signal of the robot"):
        contract_of(make("Isaac-Cartpole", num_envs=2, change=add))


def test_actions_that_no_joint_controller_accepts_are_refused_by_name(make):
    def move(cfg):
        from isaaclab.envs import mdp

        cfg.actions.joint_effort = mdp.RelativeJointPositionActionCfg(
            asset_name="robot", joint_names=["slider_to_cart"]
        )

    with pytest.raises(
        UserError, match="action term 'joint_effort' of isaac/Isaac-Cartpole is a RelativeJointPositionAction"
    ):
        contract_of(make("Isaac-Cartpole", num_envs=2, change=move))


def test_a_direct_environment_does_not_describe_its_observations(make):
    with pytest.raises(UserError, match="export: isaac/Isaac-Cartpole-Direct is a direct environment"):
        contract_of(make("Isaac-Cartpole-Direct", num_envs=2))


REFUSED = {
    "eval run=tiny form=onnx": "form=onnx: in isaac/Isaac-Cartpole the torch policy plays; leave form= out",
    "eval run=tiny assets=nowhere": "nowhere: is no folder",
    "cross tiny": "isaac/Isaac-Cartpole has physics of its own; cross compares our tasks",
    "play run=tiny": "is not a scene that the browser can show; robot-rl eval reports figures",
    "video run=tiny": "is filmed by Isaac Lab's own tools; robot-rl eval reports figures",
    "sim2sim run=tiny": "is not simulated by us, so that no binary could command its robot here",
}
"""Commands that a run in an environment of Isaac Lab does not support, and their error messages."""


def test_a_run_from_training_to_a_bundle_that_replays(run, tmp_path):
    from robot_rl_deploy.verify import verify_bundle

    tiny = ("num_envs=4", "num_steps=8", "max_iterations=2", "actor.hidden=[8]", "critic.hidden=[8]")
    code, out, err = run(
        "train", "task=isaac/Isaac-Cartpole", "assets=own", "env.rewards.alive.weight=2", "run_id=tiny", *tiny
    )
    assert code == 0, err
    assert "4 worlds, isaaclab on cpu, seed 1, 2 iterations" in out
    assert "[INFO]" not in out + err
    folder = tmp_path / "runs" / "isaac-Isaac-Cartpole" / "tiny"
    assert "weight: 2" in (folder / "run.yaml").read_text()
    assert [json.loads(row)["env_steps"] for row in (folder / "metrics.jsonl").read_text().splitlines()] == [32, 64]
    code, out, err = run("resume", "tiny", "max_iterations=3", "env.episode_length_s=0.5")
    assert code == 0, err
    code, out, err = run("eval", "run=isaac/Isaac-Cartpole/latest", "episodes=4")
    assert code == 0, err
    assert json.loads((folder / "eval.json").read_text())["torch"]["length"]["mean"] <= 30
    for words, line in REFUSED.items():
        code, out, err = run(*words.split(), "root=runs")
        assert (code, err.count("\n")) == (2, 1), err
        assert line in err
    code, out, err = run("export", "run=tiny")
    assert code == 0, err
    code, out, err = run("eval", "policy=runs/isaac-Isaac-Cartpole/tiny/policy", "assets=own")
    assert code == 2
    assert "in isaac/Isaac-Cartpole a run's policy plays; give run=" in err
    report = verify_bundle(folder / "policy")
    assert report.contract.training.iteration == 3
    assert report.replay.action_error < 1e-5
    assert dataclasses.asdict(report.contract)["robot"] == "cartpole"
    assert torch.isfinite(torch.tensor(report.replay.steps))
