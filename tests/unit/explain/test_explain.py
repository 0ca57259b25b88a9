"""Logs of simulated robots are explained: a wrong wiring, motors, a mass, or nothing."""

import numpy as np
import pytest

from robot_rl.errors import UserError
from robot_rl.explain.causes import causes
from robot_rl.explain.explain import ExplainCfg, explain
from robot_rl.explain.motors import fit_motors
from robot_rl.explain.result import NOTHING, lines, to_json
from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.robot_log import make_log
from robot_rl.identify.walking import walking_windows

SWAPPED = np.array([3, 4, 5, 0, 1, 2, 6, 7, 8, 9, 10, 11])


@pytest.fixture
def few(go2, monkeypatch):
    """A part of the hypotheses, with the swap of FL and FR, for the time that they take."""
    part = causes(go2)[::4]
    assert "joint order: FL and FR are swapped" in [cause.name for cause in part]
    monkeypatch.setattr("robot_rl.explain.explain.causes", lambda robot: part)


def test_swapped_legs_of_a_robot_that_falls_are_named_with_the_moment(go2, walk, few):
    def sense(row):
        return row | {key: row[key][SWAPPED] for key in ("q", "dq")}

    arrays, _ = walk(0.7, sense=sense, act=lambda target: target[SWAPPED])
    found = explain(("walk.npz", "", arrays), go2, ExplainCfg(with_motors=False))
    assert found.base == "free"
    assert found.named[0].cause == "joint order: FL and FR are swapped"
    assert found.alike == []
    assert found.parting.first_s < 0.2


def test_a_log_as_the_simulation_has_no_cause(go2, walk, few):
    found = explain(("walk.npz", "", walk(0.7)[0]), go2, ExplainCfg(with_motors=False))
    assert found.named == []
    assert found.parting.first_s is None
    assert lines(found)[-1] == NOTHING


def test_a_mass_is_told_from_motors(go2, walk):
    arrays, _ = walk(1.5, mass=3.0)
    model = PlantModel(go2, 0.002, base="free")
    windows = walking_windows([make_log("walk", "", arrays, go2)], 0.06, 0.1)
    first, second, *_ = fit_motors(model, windows).parts
    assert (first.name, first.unusual, second.unusual) == ("mass", True, False)
    assert first.value == pytest.approx(3.0, abs=1.0)
    assert first.explains > 0.1


def test_a_delay_of_a_hanging_arm_is_named(arm, swing):
    found = explain(("swing.npz", "", swing(delay=0.012)), arm)
    assert found.base == "fixed"
    assert found.named[0].cause.startswith("delay")
    assert found.named[0].size.startswith("12")
    assert not any(row.cause is not None and row.cause.imu for row in found.ranked)


def test_a_joint_that_turns_the_other_way_is_named(arm, swing):
    arrays = swing()
    for key in ("q", "dq", "target"):
        arrays[key] = arrays[key] * [-1.0, 1.0]
    found, again = (
        explain(("swing.npz", "", arrays), arm, ExplainCfg(with_motors=False, threads=threads)) for threads in (1, 2)
    )
    assert found.named[0].cause == "sign of upper"
    assert to_json(again) == to_json(found)


def test_against_identified_values_nothing_is_left(arm, swing):
    from robot_rl.identify.identify import IdentifyCfg, identify

    arrays = swing(delay=0.012, friction=0.5)
    result = identify([make_log("a", "a", arrays, arm)], None, arm, IdentifyCfg(fit=("friction", "delay"))).result
    assert explain(("a", "a", arrays), arm, ExplainCfg(against=result)).named == []


def test_refusals(go2, arm, swing, walk):
    with pytest.raises(UserError, match="base=free needs the arrays quat and gyro"):
        explain(("a", "", swing()), arm, ExplainCfg(base="free"))
    with pytest.raises(UserError, match="base=lying"):
        explain(("a", "", swing()), arm, ExplainCfg(base="lying"))
    damping = swing()
    damping["kp"] = np.zeros_like(damping["kp"])
    with pytest.raises(UserError, match="kp is 0, so it is all damping"):
        explain(("a", "", damping), arm)


def test_a_log_that_is_frozen_from_the_start_is_checked_only(arm, swing):
    arrays = swing()
    arrays["q"][20:, 0] = arrays["q"][20, 0]
    found = explain(("a", "", arrays), arm)
    assert found.named[0].cause == "the encoder of upper is frozen"
    assert (found.motors, found.parting) == (None, None)
    assert "too little is left" in lines(found)[0]
