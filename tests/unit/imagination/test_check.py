"""Gradients of terms: Warp's adjoint is that of finite differences, and where it is not, that is seen."""

import dataclasses
import json
from typing import Any

import pytest
import torch
import warp as wp
from robot_rl_envs.imagination.check import check_gradients
from robot_rl_envs.make import make_env
from robot_rl_envs.task import Reward, TorchTerm
from robot_rl_envs.terms import reward
from robot_rl_tasks.registry import get_task

from robot_rl.cli.main import main


@reward
def after_loop(s: Any, i: int) -> float:
    """Warp's adjoint has an error: a sum of a loop that is used in a function which is not linear."""
    total = float(0.0)
    for j in range(s.joint_pos.shape[1]):
        total = total + s.joint_pos[i, j] * s.joint_pos[i, j]
    return wp.exp(-total)


@reward
def beyond(s: Any, i: int) -> float:
    """1 where the cart is right of the middle."""
    if s.joint_pos[i, 0] > 0.0:
        return 1.0
    return 0.0


@reward
def nothing(s: Any, i: int) -> float:
    """Always 1."""
    return 1.0


def gradients_of(task, **kwargs):
    env = make_env(task, num_envs=16, device="cpu", seed=1)
    try:
        return {one.path: one for one in check_gradients(env, **kwargs)}
    finally:
        env.close()


def test_every_kind_of_term_is_told_apart():
    task = get_task("cartpole")
    mine = {"bad": Reward(after_loop, weight=1.0), "beyond": Reward(beyond, weight=1.0)}
    mine |= {"nothing": Reward(nothing, weight=1.0)}
    mine["torch"] = TorchTerm(fn=lambda state: torch.zeros(len(state.qpos)), kind="reward", weight=1.0)  # type: ignore[assignment]
    found = gradients_of(dataclasses.replace(task, rewards=task.rewards | mine))
    assert {path: one.verdict for path, one in found.items() if path.startswith("rewards.")} == {
        **{f"rewards.{name}": "right" for name in task.rewards},
        "rewards.bad": "wrong",
        "rewards.beyond": "steps",
        "rewards.nothing": "flat",
        "rewards.torch": "torch",
    }
    assert found["rewards.bad"].where == "qpos"
    assert found["rewards.bad"].error > 0.1
    assert found["rewards.energy"].reads == ["qpos", "qvel"]
    assert found["rewards.beyond"].stands_in == "its value, without a gradient"
    assert found["rewards.torch"].stands_in == "torch's own gradient"
    assert found["terminations.off_rail"].stands_in == "none: it ends an imagined episode"


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("go2_flat", {"rewards.gait": "the model's contacts", "rewards.torque": "the model's torques"}),
        pytest.param("g1_track", {"rewards.bodies": "", "rewards.orientations": ""}, marks=pytest.mark.long),
        pytest.param("panda_lift", {"rewards.carry": ""}, marks=pytest.mark.long),
        ("walker2d_v5", {"rewards.forward": ""}),
        pytest.param(
            "ant_v5",
            {"rewards.forward": "the model's xpos", "rewards.contact": "the model's cfrc_ext"},
            marks=pytest.mark.long,
        ),
    ],
)
def test_no_term_has_a_wrong_gradient(name, by):
    found = gradients_of(get_task(name), rows=32)
    assert [path for path, one in found.items() if one.verdict == "wrong"] == []
    assert {path: found[path].stands_in for path in by} == by
    assert all(found[path].verdict == "right" for path in by)


def test_a_task_for_several_robots_is_refused(monkeypatch):
    env = make_env(get_task("cartpole"), num_envs=1, device="cpu")
    monkeypatch.setattr(env.scene, "crew", object())
    with pytest.raises(ValueError, match="task=cartpole: is for several robots; terms of one robot are checked"):
        check_gradients(env)
    env.close()


def test_the_command_shows_a_table_and_writes_it(tmp_path, capfd):
    assert main(["profile", "task=cartpole", "check=gradients", f"out={tmp_path / 'terms.json'}"]) == 0
    terms = {term["path"]: term for term in json.loads((tmp_path / "terms.json").read_text())["terms"]}
    assert terms["rewards.energy"]["verdict"] == "right"
    out = capfd.readouterr().out
    assert "rewards.energy" in out
    assert "cartpole: 12 terms, none with a wrong gradient" in out


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task=cartpole", "check=gradient"], "check=gradient: must be capture or gradients"),
        (["task=gym:Pendulum-v1", "check=gradients"], "check=gradients: gym:Pendulum-v1 is without terms of one robot"),
        (["task=go2_team", "check=gradients"], "check=gradients: go2_team is without terms of one robot; take another"),
    ],
)
def test_bad_words_are_one_line(words, message, capfd):
    assert main(["profile", *words]) == 2
    err = capfd.readouterr().err
    assert message in err
    assert "Traceback" not in err
