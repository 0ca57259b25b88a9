import json
import math
from dataclasses import dataclass

import pytest
import torch

from robot_rl.evaluation import evaluate, evaluate_run, evaluation_task, write_evaluation
from robot_rl.evaluation.meter import EpisodeMeter, describe_metrics, summarize
from robot_rl.evaluation.policies import FunctionPolicy
from robot_rl.evaluation.rollout import agreement, compare_metrics
from robot_rl.evaluation.shadow import Shadow
from robot_rl.evaluation.team_rows import AllRows
from robot_rl.metrics.description import explain

RATES = ("failure_rate", "quarantine_rate")


def still(obs):
    return torch.zeros(len(obs["actor"]), 2)


def run(env, policy=still, seconds=2.0):
    return evaluate(env, FunctionPolicy(policy), seconds=seconds)


def measure(env, steps):
    """A meter after so many steps without any action."""
    env.reset()
    meter = EpisodeMeter(env)
    for _ in range(steps):
        _, reward, done, extras = env.step(torch.zeros(env.num_envs, 2))
        meter.after_step(torch.zeros(env.num_envs, 2), reward, done, extras["time_outs"], extras["valid"])
    return meter


def test_what_is_taken_of_an_episode_by_hand(scripted_env, own):
    # World 0 is there for 4 steps of 0.1 s, world 1 fails in the third one, which counts.
    values = [[5.0, 1.0], [2.0, -3.0], [4.0, 7.0], [3.0, 100.0]]
    own_metrics = {over: own(over=over) for over in ("mean", "end", "max", "min")}
    script = {k: {"metric_values": torch.tensor([row] * 4).T} for k, row in enumerate(values, start=1)}
    script[3]["done"] = [False, True]
    env = scripted_env(script=script, **own_metrics)
    meter = measure(env, 4)
    episodes = {name: value.tolist() for name, value in meter.episodes().items()}
    assert episodes["mean"] == pytest.approx([14 / 4, 5 / 3])
    assert episodes["end"] == [3.0, 7.0]
    assert episodes["max"] == [5.0, 7.0]
    assert episodes["min"] == [2.0, -3.0]
    assert list(episodes)[:4] == list(own_metrics)


def test_the_first_seconds_do_not_count(scripted_env, own):
    # Steps end at 0.1, 0.2, ... s: those at 0.1, 0.2 and 0.3 s do not count, nor does an episode that ends by then.
    script = {k: {"metric_values": [[10.0 - k] * 2, [10.0 - k] * 2]} for k in range(1, 6)}
    script[3]["done"] = [False, True]
    env = scripted_env(script=script, late=own(after_s=0.3), best=own(over="max", after_s=0.3))
    episodes = measure(env, 5).episodes()
    assert episodes["late"][0] == pytest.approx((6.0 + 5.0) / 2)
    assert episodes["best"][0] == 6.0
    assert episodes["late"][1].isnan()
    assert episodes["best"][1].isnan()


def test_a_quarantined_episode_counts_in_nothing_but_its_own_rate(scripted_env, own):
    script = {k: {"metric_values": [[float(k)]] * 3} for k in range(1, 5)}
    script[2] |= {"done": [True, True, False], "valid": [False, True, True], "termination_bits": [1, 1, 0]}
    env = scripted_env(num_envs=3, script=script, value=own())
    result = run(env, seconds=0.4)
    assert result["quarantine_rate"]["mean"] == pytest.approx(1 / 3)
    assert result["failure_rate"]["mean"] == pytest.approx(1 / 2)
    assert result["ended/low"]["mean"] == pytest.approx(1 / 2)
    assert result["value"]["mean"] == pytest.approx((1.5 + 2.5) / 2)
    assert result["return"]["mean"] == pytest.approx((2.0 + 4.0) / 2)
    all_broken = run(scripted_env(script={1: {"done": [True, True], "valid": [False, False]}}), seconds=0.2)
    assert all_broken["quarantine_rate"]["mean"] == 1
    assert all_broken["failure_rate"] is None


def test_which_termination_ended_an_episode(scripted_env):
    # Bits: 1 is "low", 2 is "mine". Both hold in world 0's last step; world 2 goes on although a bit is set later.
    script = {
        2: {"done": [True, False, False], "termination_bits": [3, 0, 0]},
        3: {"time_out": [False, True, False], "termination_bits": [1, 2, 0]},
    }
    result = run(scripted_env(num_envs=3, script=script), seconds=0.4)
    assert result["ended/low"]["mean"] == pytest.approx(1 / 3)
    assert result["ended/mine"]["mean"] == pytest.approx(2 / 3)
    assert result["failure_rate"]["mean"] == pytest.approx(1 / 3)


def test_a_value_that_is_not_finite_is_none(scripted_env, own):
    script = {2: {"metric_values": [[math.nan] * 2, [1.0] * 2]}, 3: {"metric_values": [[2.0] * 2] * 2}}
    episodes = measure(scripted_env(script=script, mean=own(), most=own(over="max")), 3).episodes()
    assert episodes["mean"].isnan().tolist() == episodes["most"].isnan().tolist() == [True, False]


def test_a_metric_of_the_task_takes_the_place_of_a_generic_one(scripted_env, own):
    env = scripted_env(script={1: {"metric_values": [[4.0]] * 2}}, power=own(unit="W"))
    assert run(env, seconds=0.3)["power"] == {"mean": 4.0, "std": 0.0}
    described = describe_metrics(env)
    assert next(iter(described)) == "power"
    assert (described["power"]["unit"], described["power"]["over"]) == ("W", "mean")
    assert explain(described["power"]).startswith("Growth of the world's command range")


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
    episodes = measure(meter_env, 4).episodes()
    assert episodes["torque_rms"][0] == pytest.approx(math.sqrt((9 + 16) / 2))
    assert episodes["power"][0] == pytest.approx(6.0)  # 3*2, and -4*1 brakes
    assert episodes["foot_slip"][0] == pytest.approx(0.5)
    assert episodes["foot_slip"][1].isnan()  # never touched the ground
    assert list(episodes) == [name for name in describe_metrics(meter_env) if name in episodes]


def test_action_rate_is_that_of_the_target(scripted_env):
    outputs = iter([torch.zeros(2, 2), torch.tensor([[1.0, 0.0], [0, 0]]), torch.tensor([[9.0, 0.0], [0, 0]])])
    result = run(scripted_env(), policy=lambda obs: next(outputs), seconds=0.3)
    # world 0: hip target 0 -> 0.5 -> 1.0 (9 is clipped to 2): twice 5 rad/s on one of two joints
    assert result["action_rate"]["mean"] == pytest.approx(5 / math.sqrt(2) / 2)


def test_a_world_counts_until_its_first_episode_ends(scripted_env, own):
    fast = {"joint_vel": torch.full((3, 3), 9.0), "joint_torque": torch.full((3, 3), 9.0)}
    script = {
        2: {"reward": [2.0, 2.0, 2.0]},
        12: {"done": [True, False, False], "reward": [-5.0, 1.0, 1.0], "metric_values": [[13.0], [0.0], [0.0]]},
        13: {"time_out": [False, True, False], "metric_values": [[99.0], [26.0], [0.0]]},
        14: {**fast, "metric_values": [[99.0], [99.0], [0.0]]},
        15: {"done": [True, True, False], "reward": [100.0, 100.0, 1.0]},
        16: {"joint_vel": torch.zeros(3, 3)},
    }
    env = scripted_env(num_envs=3, script=script, value=own(after_s=1.0))
    result = run(env)
    assert result["failure_rate"] == {"mean": pytest.approx(1 / 3), "std": pytest.approx(math.sqrt(1 / 3))}
    # Of the steps after the first second world 0 has two, world 1 three; the last one counts, later ones do not.
    assert result["value"]["mean"] == pytest.approx((13.0 / 2 + 26.0 / 3) / 3)
    assert result["power"]["mean"] == pytest.approx(2 * 2 * 81.0 / 20 / 3)  # two of 20 steps, only in world 2
    returns = torch.tensor([10 + 2 - 5, 12 + 2, 19 + 2], dtype=torch.float64)
    assert result["return"]["mean"] == pytest.approx(returns.mean().item())
    assert result["return"]["std"] == pytest.approx(returns.std().item())


def test_metrics_that_do_not_apply_are_left_out(scripted_env):
    result = run(scripted_env(feet=0))
    assert set(result) == {"ended/low", "ended/mine", "torque_rms", "power", "action_rate", *RATES, "return"}


def test_a_metric_that_no_episode_has_is_none(scripted_env, own):
    script = {3: {"done": [True, True]}}
    result = run(scripted_env(script=script, value=own(after_s=1.0)))
    assert result["value"] is None
    assert result["failure_rate"]["mean"] == 1


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

    def __init__(self, action_error, action_bound=1e-4):
        self.action_error, self.action_bound = action_error, action_bound
        self.are_within = action_error <= action_bound


@pytest.mark.parametrize(("error", "agrees"), [(1e-5, True), (2e-4, False), (math.inf, False)])
def test_agreement_of_actions(error, agrees):
    same = {"a": {"mean": 1.0, "std": 0.3}}
    found = agreement(Watched(error), same, same, 100)
    assert found["actions"] is agrees
    assert found["metrics"] is True
    rounded = agreement(Watched(error, 1e-3), same, same, 100)  # of a bundle in int8
    assert rounded["actions"] is (error <= 1e-3)
    assert rounded["action_bound"] == 1e-3


def test_a_shadow_that_sees_nan_does_not_agree():
    from types import SimpleNamespace

    import numpy as np

    spec = SimpleNamespace(clip=None)
    policy = SimpleNamespace(
        act=lambda state: (None, np.full((1, 1), np.nan, np.float32), np.zeros((1, 2), np.float32)),
        contract=SimpleNamespace(
            actions=[spec], precision=None, observations=[SimpleNamespace(name="gyro", params={})]
        ),
        last_action=np.zeros((1, 1), np.float32),
        network_state=np.zeros((1, 0), np.float32),
    )
    robots = AllRows(SimpleNamespace(robot_state=dict, num_actions=1))
    shadow = Shadow(SimpleNamespace(parts=[(robots, policy, "")]))
    shadow.compare({"actor": torch.zeros(1, 2)}, torch.ones(1, 1))
    assert shadow.action_error == math.inf
    assert shadow.observation_error == 0
    assert policy.last_action == 1
    shadow.compare({"actor": torch.zeros(1, 3)}, torch.ones(1, 1))
    assert shadow.observation_error is None


def test_only_the_torch_policy(scripted_env):
    made = []

    def make_env():
        made.append(scripted_env())
        return made[-1]

    result = evaluate_run(make_env, policy=still, bundle=None, seconds=0.5)
    assert (result["episodes"], result["seconds"]) == (2, 0.3)
    assert "onnx" not in result
    assert "agreement" not in result
    assert [env.closed for env in made] == [True]
    with pytest.raises(ValueError, match="at least one"):
        evaluate_run(make_env, policy=None, bundle=None)


def test_the_task_is_evaluated_without_noise_and_left_as_it_is():
    @dataclass
    class Group:
        muted: bool = False

    @dataclass
    class Task:
        observations: dict
        name: str = "toy"

    task = Task({"actor": Group(), "critic": Group()})
    changed = evaluation_task(task)
    assert (changed.observations["actor"].muted, changed.observations["critic"].muted) == (True, False)
    assert not task.observations["actor"].muted
    assert changed.name == "toy"


def test_eval_json_is_whole_or_as_before(tmp_path, monkeypatch):
    path = tmp_path / "eval.json"
    torch = {"a": {"mean": 1.5, "std": 0.1}, "b": None}
    write_evaluation(path, {"torch": torch, "agreement": {"action_error": math.inf}, "rows": [{"gap": math.nan}]})
    assert json.loads(path.read_text()) == {
        "torch": torch,
        "agreement": {"action_error": None},
        "rows": [{"gap": None}],
    }

    def no_space(*paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", no_space)
    with pytest.raises(OSError, match="No space"):
        write_evaluation(path, {})
    assert "torch" in json.loads(path.read_text())
    assert [item.name for item in tmp_path.iterdir()] == ["eval.json"]
