"""Parameters of a simulated arm are found again, with intervals, and what its log does not show is named."""

import numpy as np
import pytest

from robot_rl.errors import UserError
from robot_rl.identify.fit import fit
from robot_rl.identify.identify import IdentifyCfg, identify
from robot_rl.identify.windows import Problem, cut_windows

ALL = ("gain", "armature", "damping", "friction", "offset", "delay")
BOUNDS = {"gain": 0.02, "armature": 1e-3, "damping": 0.03, "friction": 0.02, "delay": 1e-4}


@pytest.fixture(scope="module")
def found(arm, log, other):
    return identify([log], other, arm, IdentifyCfg())


def test_the_truth_is_found_within_bounds_and_intervals(found, truth):
    parameters = found.model.parameters
    for name, bound in BOUNDS.items():
        at = parameters.indices(name)
        assert np.abs(found.fit.theta[at] - truth[at]).max() < bound, name
    off = np.abs(found.fit.theta - truth)[found.fit.free]
    assert np.mean(off <= found.spread.half) >= 0.85
    errors = found.result.errors["held"]
    assert errors["after"]["q"] < 0.05 * errors["before"]["q"]
    assert found.fit.converged


def test_gravity_does_not_show_the_offset_about_the_vertical(found):
    rows = found.result.joints
    assert not rows["turn"]["offset"].seen
    assert rows["upper"]["offset"].seen
    assert rows["turn"]["gain"].seen


def test_threads_do_not_change_a_bit(arm, log, other, found):
    again = identify([log], other, arm, IdentifyCfg(threads=3))
    assert again.result.to_json() == found.result.to_json()


def test_derivatives_are_exact_with_our_solver_and_found_out_with_a_rough_one(found, truth):
    """A solver that stops after one iteration is rough on the scale of a derivative's step."""
    assert found.fit.column_errors.max() < 0.05
    option = found.model.model.opt
    before = option.iterations, option.tolerance
    option.iterations, option.tolerance = 1, 1e-4
    try:
        rough = fit(Problem(found.model, cut_windows([found.problem.windows[0].log], 0.5)), truth, found.fit.free)
    finally:
        option.iterations, option.tolerance = before
    assert rough.column_errors.max() > 0.05


def test_the_integrators_error_widens_the_interval_of_the_armature(arm, log, other, found):
    """At twice the log's timestep armature absorbs half a step of damping: the shift at half the step says so."""
    coarse = identify([log], other, arm, IdentifyCfg(timestep=0.005))
    at = np.isin(coarse.fit.free, coarse.model.parameters.indices("armature"))
    assert (found.spread.timestep[at] == 0).all()
    assert (np.abs(coarse.spread.timestep[at]) > 0).all()
    truth = np.array([0.02, 0.015, 0.006])
    assert (np.abs(coarse.fit.theta[coarse.fit.free[at]] - truth) <= coarse.spread.half[at]).all()


def test_a_single_log_holds_out_its_last_third(arm, log):
    parts = {row["part"]: row for row in identify([log], None, arm, IdentifyCfg(fit=("gain", "friction"))).result.logs}
    assert parts["held"]["seconds"] == pytest.approx(log.seconds / 3, abs=0.02)
    assert parts["held"]["from_s"] == pytest.approx(2 * log.seconds / 3, abs=0.02)


@pytest.mark.parametrize(
    ("cfg", "line"),
    [
        ({"fit": ("gian",)}, "fit=gian"),
        ({"omit": ("elbow",)}, "omit=elbow"),
        ({"base": "free"}, "base=free"),
        ({"window_s": 9.0}, "shorter than a window"),
    ],
)
def test_settings_that_cannot_be_used(arm, log, other, cfg, line):
    with pytest.raises(UserError, match=line):
        identify([log], other, arm, IdentifyCfg(**cfg))


def test_a_held_out_log_must_be_another(arm, log, other):
    with pytest.raises(UserError, match=r"held=fit.npz: is also fitted"):
        identify([log], log, arm, IdentifyCfg())
    with pytest.raises(UserError, match="is the same log as another"):
        identify([log, other, log], None, arm, IdentifyCfg())


def test_a_fit_that_predicts_worse_is_no_result(arm, log, other):
    """The held-out log has the other sign of one joint: what is right for the first log is wrong for it."""
    flipped = other.joint_pos * [1, -1, 1]
    from dataclasses import replace

    with pytest.raises(UserError, match="predicts it worse"):
        identify([log], replace(other, joint_pos=flipped, joint_vel=-other.joint_vel), arm, IdentifyCfg())
