import json
import math
from dataclasses import dataclass

import pytest
import torch

from robot_rl.evaluate import evaluate, evaluate_run, evaluation_task, write_evaluation
from robot_rl.evaluate.controllers import Shadow, TorchController
from robot_rl.evaluate.meter import METRICS, EpisodeMeter, summarize
from robot_rl.evaluate.rollout import agreement, compare_metrics


def still(obs):
    return torch.zeros(len(obs["actor"]), 2)


def run(env, policy=still, seconds=2.0):
    return evaluate(env, TorchController(policy), seconds=seconds)


def test_tracking_counts_after_the_first_second_and_against_the_command_in_force(scripted_env):
    # Steps of 0.1 s: the first ten do not count. At step 11 both worlds get a command of 1 m/s; the command that the
    # step leaves behind holds from step 12 on. World 0 then goes at (0.4, 0.8), 1 m/s off; world 1 does not move.
    script = {
        3: {"base_lin_vel_b": [[5.0, 0, 0], [5.0, 0, 0]]},
        11: {"command": [[1.0, 0, 0.5]] * 2, "base_lin_vel_b": torch.zeros(2, 3)},
        12: {"base_lin_vel_b": [[0.4, 0.8, 9.0], [0, 0, 9.0]], "base_ang_vel_b": [[9.0, 9.0, 0.2], [0, 0, 0.5]]},
    }
    result = run(scripted_env(script=script))
    off = math.hypot(0.6, 0.8)
    errors = (9 * off / 10, 9 * 1.0 / 10)  # nine of ten steps: step 11 still had no command and no speed
    assert result["lin_vel_error"]["mean"] == pytest.approx(sum(errors) / 2)
    assert result["yaw_vel_error"]["mean"] == pytest.approx((0.9 * 0.3 + 0.0) / 2, abs=1e-7)
    assert result["yaw_vel_error"]["std"] == pytest.approx(0.27 / math.sqrt(2), abs=1e-7)


def test_control_of_a_model_s_own_actuators_is_no_torque(scripted_env):
    env = scripted_env()
    description = env.describe_policy() | {"action_kind": "direct"}
    env.describe_policy = lambda: description
    assert set(run(env)) == set(run(scripted_env())) - {"torque_rms", "power"}


def test_torque_power_and_slip_by_hand(scripted_env):
    script = {
        1: {
            "joint_torque": [[3.0, 100.0, -4.0], [0, 0, 0]],  # the tail is passive and does not count
            "joint_vel": [[2.0, 50.0, 1.0], [0, 0, 0]],
            "foot_vel_w": [[[0.3, 0.4, 7.0], [9.0, 9.0, 9.0]], [[0, 0, 0], [0, 0, 0]]],
            "foot_contact": [[1.0, 0.0], [0.0, 0.0]],
        }
    }
    meter_env = scripted_env(script=script)
    meter_env.reset()
    meter = EpisodeMeter(meter_env, meter_env.describe_policy())
    for _ in range(4):
        meter.before_step()
        _, reward, done, extras = meter_env.step(torch.zeros(2, 2))
        meter.after_step(torch.zeros(2, 2), reward, done, extras["time_outs"])
    episodes = meter.episodes()
    assert episodes["torque_rms"][0] == pytest.approx(math.sqrt((9 + 16) / 2))
    assert episodes["power"][0] == pytest.approx(6.0)  # 3*2, and -4*1 brakes
    assert episodes["foot_slip"][0] == pytest.approx(0.5)
    assert episodes["foot_slip"][1].isnan()  # never touched the ground
    assert list(episodes) == [name for name in METRICS if name in episodes]


def test_action_rate_is_that_of_the_target(scripted_env):
    outputs = iter([torch.zeros(2, 2), torch.tensor([[1.0, 0.0], [0, 0]]), torch.tensor([[9.0, 0.0], [0, 0]])])
    result = run(scripted_env(), policy=lambda obs: next(outputs), seconds=0.3)
    # world 0: hip target 0 -> 0.5 -> 1.0 (9 is clipped to 2): twice 5 rad/s on one of two joints
    assert result["action_rate"]["mean"] == pytest.approx(5 / math.sqrt(2) / 2)


def test_a_world_counts_until_its_first_episode_ends(scripted_env):
    fast = [[9.0, 0, 0], [0, 0, 0], [0, 0, 0]]
    script = {
        2: {"reward": [2.0, 2.0, 2.0]},
        12: {"done": [True, False, False], "base_lin_vel_b": fast, "reward": [-5.0, 1.0, 1.0]},
        13: {"time_out": [False, True, False]},
        15: {"done": [True, True, False], "reward": [100.0, 100.0, 1.0]},
    }
    result = run(scripted_env(num_envs=3, script=script))
    assert result["fall_rate"] == {"mean": pytest.approx(1 / 3), "std": pytest.approx(math.sqrt(1 / 3))}
    assert result["lin_vel_error"]["mean"] == 0  # the state after a fall is another episode's
    returns = torch.tensor([10 + 2 - 5, 12 + 2, 19 + 2], dtype=torch.float64)
    assert result["return"]["mean"] == pytest.approx(returns.mean().item())
    assert result["return"]["std"] == pytest.approx(returns.std().item())


def test_metrics_that_do_not_apply_are_left_out(scripted_env):
    result = run(scripted_env(commanded=False, feet=0))
    assert set(result) == {"torque_rms", "power", "action_rate", "fall_rate", "return"}


def test_a_metric_that_no_episode_has_is_none(scripted_env):
    script = {3: {"done": [True, True]}}
    result = run(scripted_env(script=script))
    assert result["lin_vel_error"] is None
    assert result["fall_rate"]["mean"] == 1


def test_summary_of_one_episode_and_of_some_without():
    nan = float("nan")
    assert summarize({"a": torch.tensor([2.0])}) == {"a": {"mean": 2.0, "std": 0.0}}
    summary = summarize({"a": torch.tensor([1.0, nan, 3.0]), "b": torch.tensor([nan])})
    assert summary == {"a": {"mean": 2.0, "std": pytest.approx(math.sqrt(2))}, "b": None}


def test_metrics_agree_within_two_standard_errors():
    first = {"a": {"mean": 1.0, "std": 0.3}, "b": {"mean": 2.0, "std": 0.0}, "c": None}
    second = {"a": {"mean": 1.05, "std": 0.4}, "b": {"mean": 2.1, "std": 0.0}, "c": None}
    found = compare_metrics(first, second, 100)
    assert found["a"] == {"difference": pytest.approx(0.05), "bound": pytest.approx(0.1)}
    assert found["b"]["difference"] > found["b"]["bound"]
    assert set(found) == {"a", "b"}


class Watched:
    observation_error = 0.0

    def __init__(self, action_error):
        self.action_error = action_error


@pytest.mark.parametrize(("error", "agrees"), [(1e-5, True), (2e-4, False), (math.inf, False)])
def test_agreement_of_actions(error, agrees):
    same = {"a": {"mean": 1.0, "std": 0.3}}
    found = agreement(Watched(error), same, same, 100)
    assert found["actions"] is agrees
    assert found["metrics"] is True


def test_a_shadow_that_sees_nan_does_not_agree():
    from types import SimpleNamespace

    import numpy as np

    spec = SimpleNamespace(clip=None)
    policy = SimpleNamespace(
        act=lambda state: (None, np.full((1, 1), np.nan, np.float32), np.zeros((1, 2), np.float32)),
        contract=SimpleNamespace(actions=[spec]),
        last_action=np.zeros((1, 1), np.float32),
    )
    shadow = Shadow(SimpleNamespace(policy=policy))
    env = SimpleNamespace(robot_state=dict)
    shadow.compare(env, {"actor": torch.zeros(1, 2)}, torch.ones(1, 1))
    assert shadow.action_error == math.inf
    assert shadow.observation_error == 0
    assert policy.last_action == 1
    shadow.compare(env, {"actor": torch.zeros(1, 3)}, torch.ones(1, 1))
    assert shadow.observation_error is None


def test_only_the_torch_policy(scripted_env):
    made = []

    def make_env():
        made.append(scripted_env())
        return made[-1]

    result = evaluate_run(make_env, policy=still, bundle=None, seconds=0.5)
    assert result["episodes"] == 2
    assert "onnx" not in result
    assert "agreement" not in result
    assert [env.closed for env in made] == [True]
    with pytest.raises(ValueError, match="at least one"):
        evaluate_run(make_env, policy=None, bundle=None)


def test_the_task_is_evaluated_without_noise_and_left_as_it_is():
    @dataclass
    class Group:
        noise: bool

    @dataclass
    class Task:
        observations: dict
        name: str = "toy"

    task = Task({"actor": Group(True), "critic": Group(True)})
    changed = evaluation_task(task)
    assert (changed.observations["actor"].noise, changed.observations["critic"].noise) == (False, True)
    assert task.observations["actor"].noise
    assert changed.name == "toy"


def test_eval_json_is_whole_or_as_before(tmp_path, monkeypatch):
    path = tmp_path / "eval.json"
    write_evaluation(
        path, {"torch": {"a": {"mean": 1.5, "std": 0.1}, "b": None}, "agreement": {"action_error": math.inf}}
    )
    assert json.loads(path.read_text()) == {
        "torch": {"a": {"mean": 1.5, "std": 0.1}, "b": None},
        "agreement": {"action_error": None},
    }

    def no_space(*paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", no_space)
    with pytest.raises(OSError, match="No space"):
        write_evaluation(path, {})
    assert "torch" in json.loads(path.read_text())
    assert [item.name for item in tmp_path.iterdir()] == ["eval.json"]
