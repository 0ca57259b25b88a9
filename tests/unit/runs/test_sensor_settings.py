"""Sensors and what is between them and the policy are settings like all others."""

import pytest
from robot_rl_tasks.registry import get_task

from robot_rl.errors import UserError
from robot_rl.settings import tree as trees


def changed(**dotted):
    task = get_task("go2_flat")
    names = {name.replace("__", "."): value for name, value in dotted.items()}
    return trees.apply_tree(task, trees.override(trees.task_tree(task), names))


def test_options_of_an_observation_and_figures_of_a_sensor_are_set_by_name():
    name = next(iter(get_task("go2_flat").observations["actor"].terms))
    at = f"observations__actor__terms__{name}"
    figures = {f"{at}__delay_s": [0, 0.04], f"{at}__dropout": 0.1, f"{at}__noise_kind": "gaussian"}
    task = changed(sensors__height_scan__resolution=0.05, sensors__imu__site="imu", **figures)
    term = task.observations["actor"].terms[name]
    assert (term.delay_s, term.dropout, term.noise_kind) == ((0.0, 0.04), 0.1, "gaussian")
    assert task.sensors["height_scan"].count == 33 * 21
    assert task.sensors["imu"].site == "imu"


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("sensors__height_scan__resolution", 0.001, "sensors.height_scan.resolution=0.001: gives"),
        ("sensors__height_scan__source", "sonar", "sensors.height_scan.source='sonar': must be one of map, rays"),
        ("sensors__imu__sight", "imu", "unknown key 'sensors.imu.sight'"),
        ("observations__actor__terms__gyro__dropout", 1.5, "dropout=1.5: must be less than 1"),
        ("observations__actor__terms__gyro__delay_s", [0.1, 0.0], "delay_s=(0.1, 0.0): must be (lo, hi)"),
        ("observations__actor__terms__gyro__delay_s", 0.1, "must be a list of 2"),
    ],
)
def test_bad_values_are_one_line(name, value, line):
    with pytest.raises(UserError) as caught:
        changed(**{name: value})
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
