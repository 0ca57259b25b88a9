"""Rollouts: both ways agree, trees may be perturbed together, and load makes friction."""

import numpy as np
import pytest
from robot_rl_assets.registry import get_robot

from robot_rl.errors import UserError
from robot_rl.identify.plant_model import Drive, PlantModel
from robot_rl.identify.windows import STEP, Directions, Problem, blocks_of, cut_windows, differentiate


@pytest.fixture(scope="module")
def problem(arm, log):
    return Problem(PlantModel(arm, 0.0025), cut_windows([log], 0.3)[:3])


@pytest.mark.parametrize("damping", [0.3, -0.1])
def test_steps_in_python_are_those_of_the_batch(problem, truth, damping):
    """Friction with a load of nearly 0 goes through the other loop; a negative damping is taken off the servo's."""
    almost = truth.copy()
    almost[problem.model.parameters.indices("damping")] = damping
    batch = problem.predict([almost])[0]
    almost[problem.model.parameters.indices("load_friction")] = 1e-12
    stepped = problem.predict([almost])[0]
    assert np.abs(batch - stepped).max() < 1e-6


def test_load_makes_friction(problem, truth):
    """The torque at the first steps, times the share of it that rubs, acts as that much more dry friction."""
    loaded = truth.copy()
    loaded[problem.model.parameters.indices("load_friction")] = 0.3
    assert np.abs(problem.predict([loaded])[0] - problem.predict([truth])[0]).max() > 0.005


def test_trees_perturbed_together_give_the_columns_of_each(problem, truth):
    parameters = problem.model.parameters
    free = parameters.indices("gain")
    base = problem.predict([truth])[0]
    together = differentiate(problem, truth, Directions(free=free, basis=np.eye(3)), base)
    assert [list(tree.index) for tree in together] == [[0], [1, 2]]
    for tree in together:
        for index, values in zip(tree.index, tree.values, strict=True):
            step = STEP * parameters.prior[index]
            moved = truth.copy()
            moved[index] += step
            expected = (problem.predict([moved])[0] - base)[:, tree.channels] / step
            np.testing.assert_allclose(values, expected, atol=1e-9)


def test_the_delay_shifts_the_command(arm, problem):
    """Of a target's staircase the mean over a step moves by as much as the delay grows."""
    early, late = problem.drive(0.0).target, problem.drive(0.0025).target
    np.testing.assert_allclose(late[:, 1:], early[:, :-1], atol=1e-12)
    half = problem.drive(0.00125).target
    np.testing.assert_allclose(half[:, 1:], 0.5 * (early[:, 1:] + early[:, :-1]), atol=1e-9)


def test_a_whole_scene_has_no_servos_of_ours(arm):
    from dataclasses import replace

    with pytest.raises(UserError, match="whole scene"):
        PlantModel(replace(arm, complete=True), 0.002)


def test_blocks_are_neighbors_and_of_many_runs_the_runs(log, other):
    one, two = cut_windows([log], 0.1), cut_windows([log, other], 0.1)
    sizes = np.bincount(blocks_of(one))
    assert (len(sizes), np.ptp(sizes) <= 1, (np.diff(blocks_of(one)) >= 0).all()) == (10, True, True)
    assert len(set(blocks_of(two)[: len(one)]) & set(blocks_of(two)[len(one) :])) == 0
    runs = cut_windows([log, other, log.cut(0.0, 0.5), other.cut(0.5, 1.0)], 0.1)
    assert blocks_of(runs).max() == 3


def test_a_free_base_makes_one_tree_that_stands_on_the_floor():
    """Without gains the robot sinks; joints of all legs act on one another through the base."""
    robot = get_robot("unitree_go2")
    model = PlantModel(robot, 0.002, base="free")
    assert set(model.tree) == {model.tree[0]}
    assert set(PlantModel(robot, 0.002).tree) == {0, 1, 2, 3}
    zeros = np.zeros((1, 100, 12))
    drive = Drive(target=zeros, kp=zeros, kd=zeros, limit=zeros, constant=True)
    start = np.array([robot.default_pos()])
    q, _ = model.simulate([model.parameters.nominal], start, np.zeros((1, 12)), [drive])
    knees = q[0, 0, :, 2::3]
    assert (knees[-1] < knees[0] - 0.1).all()


def test_negative_damping_of_a_stiff_joint_is_stable():
    """A kd that is a little less than stated is a negative damping; MuJoCo's own would make this arm explode."""
    robot = get_robot("franka_panda")
    model = PlantModel(robot, 0.002)
    theta, start = model.parameters.nominal.copy(), np.array([robot.default_pos()])
    theta[model.parameters.indices("damping")[:7]] = -20.0
    rows = (1, 100, len(robot.joints))
    kp, kd = (np.broadcast_to([getattr(joint, name) for joint in robot.joints], rows) for name in ("kp", "kd"))
    drive = Drive(target=np.broadcast_to(start, rows), kp=kp, kd=kd, limit=kp, constant=True)
    q, _ = model.simulate([theta], start, np.full((1, rows[2]), 0.1), [drive])
    assert np.abs(q - start).max() < 0.05
