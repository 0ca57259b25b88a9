"""An identified robot in training: joints move as the file says, worlds draw around that, the policy's gains stay."""

import json

import numpy as np
import pytest
from robot_rl_tasks.registry import get_task

from robot_rl.cli.main import main
from robot_rl.errors import UserError
from robot_rl.runs.robot_facts import check_unchanged, describe_robots
from robot_rl.runs.settings import default_tree, resolve
from robot_rl.settings.tree import override

JOINTS = get_task("go2_flat").robot.joint_names
FINE, COARSE = 0.002, 0.0067
"""go2_flat steps by 6.67 ms."""


@pytest.fixture
def identified(tmp_path):
    """write(**changes): a file of robot-rl identify with some keys changed; calves have other motors."""

    def write(**changes):
        def fit(timestep, gain):
            values = {"gain": gain, "armature": 0.005, "damping": 0.1, "friction": 0.15, "kd": 1.0}
            calf = {"gain": 1.5, "armature": 0.03, "damping": -0.4, "friction": 0.6, "kd": 2.0}
            joints = {name: dict(calf if "calf" in name else values) for name in JOINTS}
            ranges = {"gain": [0.9, 1.1], "damping": [0.8, 1.2], "armature": [0.75, 1.25], "friction": [0.5, 1.5]}
            return {"timestep": timestep, "joints": joints, "ranges": ranges, "delay_s": [0.006, 0.009]}

        data = {"format": "robot_rl.identified", "version": 1, "robot": "unitree_go2"}
        data |= {"training": [fit(FINE, 0.5), fit(COARSE, 0.8)]} | changes
        path = tmp_path / "go2.identified.json"
        path.write_text(json.dumps(data))
        return str(path)

    return write


def _resolve(path, **changes):
    return resolve(override(default_tree("go2_flat", "cpu"), {"randomize.identified_from": path, **changes}))


def test_worlds_draw_around_the_values_of_the_timestep_that_is_nearest(identified):
    """A calf's motor, 1.5 times as strong, is commanded kd = 1 where the log had 2: its damping is 0.5 less, -0.9."""
    env = _resolve(identified(), num_envs=64, engine="mujoco").make_env()
    env.reset()
    calf = np.array(["calf" in name for name in JOINTS])
    dofs = env.scene.joint_dof
    for field, nominal, share in (
        ("dof_armature", np.where(calf, 0.03, 0.005), 0.25),
        ("dof_frictionloss", np.where(calf, 0.6, 0.15), 0.5),
    ):
        factors = np.asarray(env.engine.expand(field).numpy())[:, dofs, 0] / nominal
        assert 1.0 - share <= factors.min() < 1.0 - 0.9 * share
        assert 1.0 + 0.9 * share < factors.max() <= 1.0 + share
    np.testing.assert_allclose(env.scene.model.dof_damping[dofs], np.where(calf, 0.0, 0.1), atol=1e-9)
    bias = np.asarray(env.engine.expand("actuator_biasprm").numpy())
    kp, kd = -bias[:, :, 1] / np.where(calf, 60.0, 32.0), -bias[:, :, 2] / np.where(calf, 0.1, 1.0)
    assert 0.9 - 1e-6 <= kp.min() < 0.92
    assert 1.18 < kd.max() <= 1.2 + 1e-6
    assert env.cfg.actions.actuator.delay_s == (0.006, 0.009)
    assert {joint.kp for joint in env.scene.robot.joints} == {40.0}


def test_a_run_keeps_the_figures_and_needs_the_file_no_more(identified, tmp_path):
    path = identified()
    cfg = _resolve(path)
    (tmp_path / "go2.identified.json").unlink()
    again = resolve(cfg.tree)
    assert "motors" not in cfg.tree["events"]
    assert cfg.tree["randomize"]["identified_read"] == path
    assert again.tree == cfg.tree
    assert again.task.robot == cfg.task.robot
    assert again.task.robot.joints[2].dynamics.friction == 0.6
    # A run for the model may be evaluated with the identified joints.
    before = describe_robots(resolve(default_tree("go2_flat", "cpu")).task)
    for kept in (describe_robots(cfg.task), before):
        check_unchanged("r", kept, again.task)
    assert sorted(again.task.events) == sorted(cfg.task.events)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"robot": "unitree_g1"}, "is of robot 'unitree_g1', the task's is 'unitree_go2'"),
        ({"format": "robot_rl.latency"}, "is not a file of robot-rl identify"),
        ({"version": 7}, "version=7"),
        ({"training": [{"timestep": 0.005}]}, "is damaged ('joints')"),
        ({"training": []}, "is damaged"),
    ],
)
def test_a_wrong_file_is_named_in_a_line(changes, words, identified, capsys):
    assert main(["train", "task=go2_flat", f"randomize.identified_from={identified(**changes)}"]) == 2
    line = capsys.readouterr().err
    assert words in line
    assert line.count("\n") == 1


def test_a_range_without_values_is_around_the_model_and_is_checked():
    cfg = resolve(override(default_tree("go2_flat", "cpu"), {"randomize.friction_range": [0.5, 2.0]}))
    assert cfg.task.events["identified_friction"].params == {"lo": 0.5, "hi": 2.0}
    assert "motors" in cfg.task.events
    with pytest.raises(UserError, match=r"randomize.gain_range=\(2.*must be empty or \(lo, hi\)"):
        resolve(override(default_tree("go2_flat", "cpu"), {"randomize.gain_range": [2.0, 1.0]}))


def test_a_team_is_refused_by_the_name_of_the_setting(identified):
    with pytest.raises(UserError, match=r"randomize.identified_from=.*is for a task of one robot"):
        resolve(override(default_tree("go2_team", "cpu"), {"randomize.identified_from": identified()}))
