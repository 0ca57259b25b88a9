"""Tasks of ours in Isaac Lab: the same states, actions and measures as on MuJoCo's engines, and a policy that walks."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("isaaclab", reason="Isaac Lab is not in this environment")

# Isaac Lab simulates once a process and keeps much: each script is a process of its own.
PRELUDE = """
import dataclasses, json, sys, torch
from robot_rl_envs.task import Actions
from robot_rl_tasks.registry import get_task
from robot_rl_envs.make import make_env
results = {}
"""
EPILOGUE = """
print("RESULTS " + json.dumps(results))
"""


def run_script(script, *words, timeout=900):
    """Run a script; return its `results`."""
    command = [sys.executable, "-c", PRELUDE + script + EPILOGUE, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULTS ")]
    assert lines, done.stderr[-3000:]
    return json.loads(lines[-1].removeprefix("RESULTS "))


ENGINE = """
task = get_task("go2_flat")
task.episode_length_s = 0.4
env = make_env(task, num_envs=4, engine="isaac", device="cpu", seed=3)
results["start"] = env.reset()["actor"].tolist()
before = env.state.qpos.clone()
results["masses"] = env.engine._worlds.robot.data.body_mass.torch[:, 0].tolist()
results["wanted_masses"] = env.state.body_mass[:, 1, 0].tolist()
results["stiffness"] = env.engine._worlds.robot.data.joint_stiffness.torch[:, 0].tolist()
results["wanted_stiffness"] = env.state.actuator_gainprm[:, 0, 0].tolist()
obs, _, _, _ = env.step(torch.zeros(4, 12))
results["first"] = env.state.qpos.tolist()
results["torque"] = env.state.joint_torque.abs().max().item()
done = []
for k in range(19):
    obs, reward, dones, extras = env.step(torch.zeros(4, 12))
    done.append(dones.tolist())
results["done"] = done
results["time_outs"] = extras["time_outs"].tolist()
results["final_differs"] = (extras["final_obs"]["actor"] - obs["actor"]).abs().max(dim=1)[0].tolist()
results["contact"] = env.state.foot_contact.sum().item()
results["height"] = extras["final_obs"]["critic"][:, 50].tolist()
results["describe"] = env.describe_policy()
state = env.state_dict()
env.step(torch.ones(4, 12))
env.load_state_dict(state)
results["restored"] = bool(torch.equal(env.state.qpos, state["state.qpos"]))
moved = env.engine._worlds.robot.data.root_link_pose_w.torch[:, :3] - env.engine._origins
results["handed_over"] = (moved - env.state.qpos[:, :3]).abs().max().item()
env.close()
env = make_env(get_task("cartpole"), num_envs=2, engine="auto", device="cpu", seed=1)
env.reset()
results["speed"] = []
for action in (1.0, 3.0):  # the second is beyond the motor's range
    env.reset()
    before = env.state.joint_vel[:, 0].clone()
    env.step(torch.full((2, 1), action))
    results["speed"].append((env.state.joint_vel[:, 0] - before).tolist())
for _ in range(25):
    env.step(torch.ones(2, 1))
results["second"] = [env.engine.name, env.state.joint_pos[:, 0].tolist()]
env.close()
task = get_task("cartpole")
slider, *others = task.robot.joints
slider = dataclasses.replace(slider, kp=0.0, kd=40.0, action_scale=1.0)
task.robot = dataclasses.replace(task.robot, joints=(slider, *others))
task.actions, task.events = Actions(kind="position"), {}
env = make_env(task, num_envs=2, engine="isaac", device="cpu", seed=1)
env.reset()
for _ in range(15):
    env.step(torch.tensor([[0.5], [-0.3]]))
results["speeds"] = env.state.joint_vel[:, 0].tolist()
"""


@pytest.fixture(scope="module")
def engine():
    return run_script(ENGINE)


def test_masses_and_gains_are_the_worlds_own(engine):
    assert engine["masses"] == pytest.approx(engine["wanted_masses"])
    assert engine["stiffness"] == pytest.approx(engine["wanted_stiffness"])
    assert len(set(engine["masses"])) == 4


def test_a_step_moves_and_stays_finite(engine):
    assert np.isfinite(engine["first"]).all()
    assert 0.1 < engine["torque"] < 46


def test_time_is_up_after_twenty_steps_and_the_last_observation_is_returned(engine):
    assert not np.array(engine["done"][:-1]).any()
    assert all(engine["done"][-1])
    assert all(engine["time_outs"])
    assert min(engine["final_differs"]) > 0.01


def test_it_stands_on_its_feet(engine):
    """After 0.4 s on the default pose's targets the base is where MuJoCo has it: see the gains' 4 cm of sag."""
    assert engine["contact"] == 0  # worlds were just reset into the air
    assert all(0.2 < height < 0.33 for height in engine["height"])


def test_a_state_is_restored_and_handed_over(engine):
    assert engine["restored"]
    assert engine["handed_over"] < 1e-6


def test_another_environment_after_the_first(engine):
    name, slider = engine["second"]
    assert name == "isaac"  # what auto is here
    assert all(position > 0.5 for position in slider)


def test_an_effort_beyond_the_motors_range_is_cut(engine):
    """15 N push 1.2 kg at most for 0.04 s: 0.5 m/s, a little more where the pole hangs."""
    for speeds in engine["speed"]:
        assert all(0.4 < speed < 0.6 for speed in speeds)


def test_a_joint_follows_its_speed(engine):
    """The slider holds 0.5 and -0.3 m/s against the pole."""
    assert engine["speeds"] == pytest.approx([0.5, -0.3], abs=0.1)


def test_the_description_is_the_contracts(engine):
    """What is exported from here is what the policy that comes with the project has."""
    folder = Path(__file__).parents[2] / "tasks" / "robot_rl_tasks" / "go2_flat" / "policy"
    contract = json.loads((folder / "contract.json").read_text())
    described = engine["describe"]
    keys = ("name", "signal", "transform", "frame", "size", "scale", "history")
    mine = [{key: term[key] for key in keys} for term in described["observations"]]
    assert mine == [{key: term[key] for key in keys} for term in contract["observations"]]
    assert [joint["name"] for joint in described["joints"]] == [joint["name"] for joint in contract["joints"]]
    for joint, wanted in zip(described["joints"], contract["joints"], strict=True):
        for key in ("default_pos", "kp", "kd", "effort_limit", "velocity_limit"):
            assert joint[key] == wanted[key]
        assert joint["lower"] == pytest.approx(wanted["lower"])
    actions = [(action["joint"], action["scale"], action["offset"]) for action in described["actions"]]
    assert actions == [(action["joint"], action["scale"], action["offset"]) for action in contract["actions"]]
    assert described["control_period_s"] == contract["control_period_s"]


LAB = """
import gymnasium, robot_rl_tasks.isaac
from isaaclab.envs import DirectRLEnv
from isaaclab_tasks.utils import parse_env_cfg
name = "RobotRL-Go2-Flat-v0"
cfg = parse_env_cfg(name, device="cpu", num_envs=4)
cfg.compute_final_obs, cfg.seed, cfg.episode_length_s = True, 3, 0.2
env = gymnasium.make(name, cfg=cfg).unwrapped
results["direct"] = isinstance(env, DirectRLEnv)
results["spaces"] = [env.single_observation_space["policy"].shape[0], env.single_action_space.shape[0]]
obs, _ = env.reset()
results["start"] = obs["policy"].tolist()
for k in range(10):
    obs, reward, terminated, truncated, extras = env.step(torch.zeros(4, 12))
results["ended"] = [terminated.tolist(), truncated.tolist()]
results["final"] = extras["final_obs"]["policy"].tolist()
results["again"] = obs["policy"].tolist()
env.close()
"""


def test_it_is_an_environment_of_isaac_lab(engine):
    results = run_script(LAB)
    assert results["direct"]
    assert results["spaces"] == [47, 12]
    # Without noise the same seed would be the same numbers; with it they are, too.
    np.testing.assert_allclose(results["start"], engine["start"], atol=1e-6)
    assert results["ended"] == [[False] * 4, [True] * 4]
    assert np.abs(np.array(results["final"]) - results["again"]).max(axis=1).min() > 0.01


WALK = """
from pathlib import Path
from robot_rl.evaluation import evaluate_run, evaluation_task
task = evaluation_task(get_task("go2_flat"))
bundle = Path(sys.argv[1])
def worlds():
    return make_env(task, num_envs=16, engine="isaac", device="cpu", seed=7)
result = evaluate_run(worlds, policy=None, bundle=bundle, seconds=3)
results["onnx"] = result["onnx"]
"""


@pytest.mark.long
def test_the_policy_that_comes_with_the_project_walks_there():
    """It was trained on MuJoCo: 0.11 m/s there."""
    folder = Path(__file__).parents[2] / "tasks" / "robot_rl_tasks" / "go2_flat" / "policy"
    results = run_script(WALK, folder)
    assert results["onnx"]["failure_rate"]["mean"] == 0
    assert results["onnx"]["lin_vel_error"]["mean"] < 0.2
    assert results["onnx"]["torque_rms"]["mean"] == pytest.approx(5.8, rel=0.25)


REFUSED = """
import dataclasses
from robot_rl_envs.actuation.actuators import DcMotor, PositionPd
def refused(change, name="go2_flat"):
    task = get_task(name)
    change(task)
    try:
        make_env(task, num_envs=1, engine="isaac", device="cpu")
    except ValueError as error:
        return str(error)
    return "taken"
def motor(task): task.actions.actuator = DcMotor(); task.events.pop("motors")
def late(task): task.actions.actuator = PositionPd(delay_s=(0.01, 0.02))
def nothing(task): pass
results["lines"] = [refused(motor), refused(late), refused(nothing, "go2_rough"), refused(nothing, "hopper_v5")]
for engine in ("mujoco", "mujoco_warp"):
    try:
        make_env(get_task("cartpole"), num_envs=1, engine=engine)
    except ValueError as error:
        results["lines"].append(str(error))
"""


def test_what_it_does_not_do_is_one_line():
    lines = run_script(REFUSED)["lines"]
    assert [line.partition(":")[0] for line in lines[:4]] == [
        "actions.actuator=DcMotor",
        "actions.actuator.delay_s",
        "terrain",
        "engine='isaac'",
    ]
    assert all("4.0 is needed" in line for line in lines[4:])
    assert len(lines) == 6
