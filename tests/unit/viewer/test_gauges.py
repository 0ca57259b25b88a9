"""Bars of a world: rewards of the last steps, efforts of joints within their limits, forces of contacts."""

import contextlib
import math

import numpy as np
import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.view.viewer.gauges import MINUS, PLUS, SMOOTHING_S, Gauges, draw_bars


def test_rewards_are_those_of_the_steps_and_efforts_those_of_the_joints(fake_env):
    with contextlib.closing(make_env(get_task("cartpole"), num_envs=2, engine="mujoco", num_threads=1)) as env:
        gauges, expected = Gauges.of(env), np.zeros(2)
        for _ in range(5):
            reward = env.step(torch.full((2, 1), 0.5))[1].numpy() / env.step_dt
            gauges.step()
            expected += (1 - math.exp(-env.step_dt / SMOOTHING_S)) * (reward - expected)
        assert gauges.rewards.sum(1) == pytest.approx(expected, rel=1e-4)
        *terms, total = gauges.reward_bars(1)
        assert ([name for name, *_ in terms], total[0]) == (list(env.cfg.rewards), "sum")
        assert float(total[3]) == pytest.approx(expected[1], abs=1e-3)
        (_, effort, limit, _), (_, passive, *_) = gauges.effort_bars(0)
        assert (effort, passive) == (pytest.approx(float(env.state.joint_torque[0, 0])), 0.0)
        assert limit == env.cfg.robot.joints[0].effort_limit
        assert gauges.metrics(1) == {"Upright": f"{float(env.state.metric_values[1, 0]):.3g}"}
        assert (gauges.contact_bars(0), gauges.has_feet) == ([], False)
    assert Gauges.of(fake_env()) is None


def test_bars_lead_from_the_middle_to_either_side_and_names_are_text():
    html = draw_bars([("<b>", 1.0, 2.0, "+1"), ("b", -4.0, 2.0, "-4")])
    assert f"left:50.0%;width:25.0%;height:100%;background:{PLUS}" in html
    assert f"left:0.0%;width:50.0%;height:100%;background:{MINUS}" in html
    assert "<b>" not in html
    assert f"left:0.0%;width:50.0%;height:100%;background:{PLUS}" in draw_bars([("a", 1.0, 2.0, "1")])
    assert "width:0.0%" in draw_bars([("a", math.nan, 2.0, "nan")])
