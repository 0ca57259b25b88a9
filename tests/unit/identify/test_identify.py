"""Parameters of a simulated arm are found again, with intervals, and what its log does not show is named."""

import numpy as np
import pytest

from robot_rl.errors import UserError
from robot_rl.identify.excite import excite
from robot_rl.identify.fit import fit
from robot_rl.identify.identify import IdentifyCfg, identify
from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.robot_log import make_log
from robot_rl.identify.simulated_log import simulated_log
from robot_rl.identify.windows import Problem

BOUNDS = {"gain": 0.02, "armature": 1e-3, "damping": 0.03, "friction": 0.02, "delay": 1e-4}
"""Of the joints whose scale gravity shows."""


@pytest.fixture(scope="module")
def found(arm, log, other):
    return identify([log], other, arm, IdentifyCfg())


def test_the_truth_is_found_within_bounds_and_intervals(found, truth):
    parameters = found.model.parameters
    for name, bound in BOUNDS.items():
        at = parameters.indices(name)
        at = at if name == "delay" else at[1:]
        assert np.abs(found.fit.theta[at] - truth[at]).max() < bound, name
    off = np.abs(found.fit.theta - truth)[found.fit.free]
    assert np.mean(off <= found.spread.half) >= 0.85
    errors = found.result.errors["held"]
    assert errors["after"]["q"] < 0.05 * errors["before"]["q"]
    assert found.fit.converged


def test_without_gravity_only_ratios_are_seen(found, truth):
    """About the vertical all torques may have any factor: only ratios, such as that of friction and gain, are known."""
    rows, parameters = found.result.joints["turn"], found.model.parameters
    assert not rows["offset"].seen
    assert not rows["armature"].seen
    assert rows["scale"].hi > 1.1 > 1.05 > found.result.joints["upper"]["scale"].hi
    for name, more in (("friction", 0.0), ("damping", 1.0)):
        value, true = (vector[parameters.indices(name)[0]] + more for vector in (found.fit.theta, truth))
        assert value / rows["gain"].value == pytest.approx(true / truth[0], rel=0.02)
        assert rows[name].ratio < 0.5 * (rows[name].hi - rows[name].value)
    at = [n for n, index in enumerate(found.fit.free) if parameters.name(int(index))[0] == "turn"]
    assert (np.abs(found.fit.theta - truth)[found.fit.free][at] <= found.spread.half[at]).all()


def test_threads_do_not_change_a_bit(arm, log, other, found):
    again = identify([log], other, arm, IdentifyCfg(threads=3))
    assert again.result.to_json() == found.result.to_json()


def test_rollouts_that_are_rough_on_the_scale_of_a_step_are_found_out(found, monkeypatch):
    """Predictions rounded to 0.01 mrad predict as well, and their derivatives are wrong."""
    assert found.fit.column_errors.max() < 0.05
    predict = Problem.predict
    monkeypatch.setattr(Problem, "predict", lambda self, thetas: np.round(predict(self, thetas), 5))
    rough = fit(found.problem, [found.fit.theta], found.fit.free[:6])
    assert found.problem.errors(rough.theta)["q"] < 1.1 * found.problem.errors(found.fit.theta)["q"]
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


def test_a_fit_that_predicts_worse_is_no_result(arm, log):
    """The held-out log is of another arm, one just like the model."""
    plant = PlantModel(arm, 0.0025)
    arrays = simulated_log(plant, plant.parameters.nominal, excite(arm, 4.0, 200.0), seed=3)
    with pytest.raises(UserError, match="predicts it worse"):
        identify([log], make_log("model.npz", "3", arrays, arm), arm, IdentifyCfg(fit=("gain", "friction")))


def test_friction_that_grows_with_load_is_told_from_dry_friction(arm):
    """A gear rubs with 15 % of its torque: a fit without it takes it for dry friction, and predicts worse."""
    plant = PlantModel(arm, 0.0025)
    loaded, fields = plant.parameters.nominal.copy(), ("gain", "friction")
    loaded[plant.parameters.indices("friction")] = 0.1
    loaded[plant.parameters.indices("load_friction")] = 0.15
    logs = []
    for seed, share in ((4, 1.0), (5, 0.7)):
        arrays = simulated_log(plant, loaded, excite(arm, 4.0, 100.0, share=share), seed=seed)
        logs.append(make_log(f"{seed}.npz", str(seed), arrays, arm))
    cfgs = (IdentifyCfg(fit=(*fields, *more), omit=("turn",), every_s=1.5) for more in ((), ("load_friction",)))
    plain, full = (identify(logs, None, arm, cfg) for cfg in cfgs)
    at = plant.parameters.indices("load_friction")[1:]
    np.testing.assert_allclose(full.fit.theta[at], 0.15, atol=0.03)
    assert full.result.errors["held"]["after"]["q"] < 0.6 * plain.result.errors["held"]["after"]["q"]
