"""A command of three components is a velocity only where the task says so: a robot on a rail that is given a point."""

from typing import Any

import pytest
import torch
import warp as wp
from robot_rl_envs.make import make_env
from robot_rl_envs.task import Command, Metric
from robot_rl_envs.terms import command, metric
from robot_rl_tasks.registry import get_task

from robot_rl.evaluation import evaluate
from robot_rl.evaluation.policies import FunctionPolicy


@command(components={"x": "m", "y": "m", "z": "m"}, draws="position")
def point(s: Any, i: int, rng: wp.uint32, x_lo: float, x_hi: float, y_lo: float, y_hi: float, z_lo: float, z_hi: float):
    """A point to reach [m]."""
    s.command[i] = wp.vec3(x_lo, y_lo, z_lo)


POINT = {"x_lo": 0.4, "x_hi": 0.4, "y_lo": 0.0, "y_hi": 0.0, "z_lo": 0.0, "z_hi": 0.0}


@metric(unit="m", better="smaller", reads_command=1)
def distance(s: Any, i: int) -> float:
    """Distance of the cart from the point."""
    return wp.abs(s.command[i][0] - s.joint_pos[i, 0])


@pytest.fixture
def arm():
    """Worlds of the cart-pole, which is given a point on its rail and does not move."""
    task = get_task("cartpole")
    task.events = {}
    task.commands = {"point": Command(point, resample_s=(10.0, 10.0), **POINT)}
    task.metrics = {"distance": Metric(distance, over="end"), "nearest": Metric(distance, over="min", after_s=0.1)}
    env = make_env(task, num_envs=2, num_threads=1)
    yield env
    env.close()


def test_it_has_the_metrics_that_its_task_declares_and_no_velocity_error(arm):
    assert arm.state.command.shape == (2, 3)
    found = evaluate(arm, FunctionPolicy(lambda obs: torch.zeros(2, 1)), seconds=0.4)
    generic = {"failure_rate", "quarantine_rate", "torque_rms", "power", "action_rate", "return"}
    assert set(found) == {"distance", "nearest", *(f"ended/{name}" for name in arm.cfg.terminations), *generic}
    # The cart stays where it is, but for what the pole's fall gives it.
    assert found["distance"]["mean"] == pytest.approx(0.4, abs=0.05)
    assert found["nearest"]["mean"] <= found["distance"]["mean"]
