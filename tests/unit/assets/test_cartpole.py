"""The cart-pole's conventions: where upright is, how fast the pole swings, what the motor can do."""

import math

import mujoco
import numpy as np
import pytest
from robot_rl_assets import get_robot


@pytest.fixture
def cartpole():
    model = mujoco.MjModel.from_xml_path(str(get_robot("cartpole").model))
    return model, mujoco.MjData(model)


def test_angle_zero_is_upright_and_positive_leans_forward(cartpole):
    model, data = cartpole
    pivot = data.body("pole")
    tip = data.site("pole_tip")
    for angle in (0.0, math.pi / 2, math.pi, -math.pi / 2):
        data.joint("hinge").qpos[0] = angle
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(
            tip.xpos - pivot.xpos, 0.8 * np.array([math.sin(angle), 0, math.cos(angle)]), atol=1e-9
        )
    assert not model.joint("hinge").limited[0]


def test_rail_and_pole_stay_above_the_ground(cartpole):
    model, data = cartpole
    data.joint("hinge").qpos[0] = math.pi
    mujoco.mj_forward(model, data)
    lowest = data.geom_xpos[:, 2].min()
    assert 0 <= lowest < 0.05
    assert data.site("pole_tip").xpos[2] > 0.1


def test_swing_period_is_that_of_a_rod(cartpole):
    """Held by its cart the pole is a rod hung at its end: T = 2 pi sqrt(2 L / 3 g) for small swings."""
    model, data = cartpole
    spec = mujoco.MjSpec.from_file(str(get_robot("cartpole").model))
    spec.delete(spec.joint("slider"))
    spec.option.timestep = 1e-3
    model = spec.compile()
    data = mujoco.MjData(model)
    data.qpos[0] = math.pi - 0.05
    crossings = []
    for _ in range(4000):
        before = data.qpos[0]
        mujoco.mj_step(model, data)
        if before < math.pi <= data.qpos[0]:
            crossings.append(data.time)
    expected = 2 * math.pi * math.sqrt(2 * 0.8 / (3 * 9.81))
    assert np.diff(crossings).mean() == pytest.approx(expected, rel=0.01)


def test_one_push_along_the_whole_rail_does_not_swing_the_pole_up(cartpole):
    model, data = cartpole
    slider, hinge = get_robot("cartpole").joints
    assert hinge.passive
    data.qpos[:] = [-1.8, math.pi]
    highest = -1.0
    while data.qpos[0] < 1.79 and data.time < 2:
        data.qfrc_applied[0] = slider.effort_limit
        mujoco.mj_step(model, data)
        highest = max(highest, math.cos(data.qpos[1]))
    assert data.qpos[0] >= 1.79
    assert 0 < highest < 0.3
    assert data.qvel[0] < slider.velocity_limit
