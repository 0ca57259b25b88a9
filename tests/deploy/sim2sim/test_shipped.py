"""Policies of an arm that stay within its limits: the binary's safety layer never stops them."""

from pathlib import Path

import pytest
import robot_rl_tasks
from robot_rl_tasks.registry import get_task

from robot_rl.evaluation import EVALUATION_SEED, evaluation_task
from robot_rl.sim2sim.parity import ParityCfg, evaluate_binaries
from robot_rl.sim2sim.plant import LONE
from tests.covering import chosen

ARMS = ("panda_reach", "panda_lift", "panda_drawer")
WORLDS = 2


@pytest.mark.parametrize("name", chosen(ARMS, "panda_reach"))
def test_the_safety_layer_never_stops_it(name, tmp_path):
    bundle = Path(robot_rl_tasks.__file__).parent / name / "policy"
    cfg = ParityCfg(episodes=WORLDS, seconds=4.0, seed=EVALUATION_SEED, all_states=True)
    result = evaluate_binaries(evaluation_task(get_task(name)), {LONE: bundle}, cfg, tmp_path)
    assert result["faults"] == [[]] * WORLDS
    assert result["episodes"]["success"] == [1.0] * WORLDS
