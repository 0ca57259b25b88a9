"""Height and velocity of the base by leg odometry, and windows of a robot on its feet."""

from dataclasses import replace

import numpy as np
import pytest

from robot_rl.errors import UserError
from robot_rl.identify.identify import IdentifyCfg, identify
from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.robot_log import make_log
from robot_rl.identify.walking import Odometry, WalkingProblem, walking_windows


@pytest.fixture(scope="module")
def model(go2):
    return PlantModel(go2, 0.002, base="free")


@pytest.fixture(scope="module")
def walked(go2, walk):
    arrays, states = walk(2.0)
    return make_log("walk", "", arrays, go2), states


@pytest.mark.parametrize("feet", [True, False])
def test_the_base_is_found_by_its_feet_with_and_without_their_sensors(model, walked, feet):
    log, states = walked
    log = log if feet else replace(log, feet=None)
    firsts = np.arange(150, 850, 50)
    off = Odometry(model).starts(log, firsts) - states[firsts][:, [2, 19, 20, 21]]
    assert np.sqrt((off**2).mean(0))[0] < 0.004
    assert (np.sqrt((off**2).mean(0))[1:] < 0.04).all()
    assert states[firsts, 19:22].std(0).max() > 0.1


def test_the_bases_error_is_taken_out_of_the_residuals(model, walked):
    """A start that is 4 mm too high predicts wrong motions; with the adaptation most of it goes."""
    windows = walking_windows([walked[0]], 0.04, 0.15)
    nominal, rest = model.parameters.nominal, []
    for adapt in (False, True):
        problem = WalkingProblem(model, windows, adapt=adapt)
        before = problem.predict([nominal])[0]
        problem._start[:, 2] += 0.001
        rest.append(np.abs(problem.predict([nominal])[0] - before)[:, problem.channels["q"]].mean())
    assert rest[1] < 0.6 * rest[0]


def test_windows_in_which_gains_change_are_omitted(walked):
    log, _ = walked
    kp = log.kp.copy()
    kp[:500] *= np.linspace(0.5, 1.0, 500)[:, None]
    first = walking_windows([replace(log, kp=kp)], 0.04, 0.1)[0]
    assert first.first >= 499


def test_a_walking_robot_is_identified_and_the_result_has_its_mass(go2, walk):
    arrays, _ = walk(3.0, mass=2.0)
    log = make_log("walk", "w", arrays, go2)
    omit = tuple(joint for joint in go2.joint_names if "calf" not in joint)
    found = identify([log], None, go2, IdentifyCfg(fit=("gain", "mass"), omit=omit, base="free", every_s=0.1)).result
    assert found.body["mass"].value == pytest.approx(2.0, abs=0.5)
    assert found.window_s == 0.04
    assert found.joints["FL_calf_joint"]["gain"].value == pytest.approx(1.0, abs=0.05)


def test_a_walking_log_needs_orientation_and_gyro(go2, walked):
    log = replace(walked[0], quat=None)
    with pytest.raises(UserError, match="base=free"):
        identify([log], None, go2, IdentifyCfg(base="free"))
    with pytest.raises(UserError, match="fit=load_friction"):
        identify([walked[0]], None, go2, IdentifyCfg(base="free", fit=("load_friction",)))
