"""The terms of Gymnasium's tasks: their values are compared with Gymnasium's in parity/test_gymnasium_v5.py.

Here: that no term is left out of that comparison, and that the tasks are there only where the package is.
"""

import importlib.util

import pytest
from robot_rl_assets.gymnasium_v5 import FILES, gymnasium_robot
from robot_rl_tasks import registry

pytest.importorskip("gymnasium", reason="the package gymnasium is not installed")

TASKS = tuple(f"{name}_v5" for name in FILES)


@pytest.fixture(scope="module")
def used():
    """Names of all terms that the tasks use."""
    found = set()
    for task in map(registry.get_task, TASKS):
        sections = [task.rewards, task.terminations, task.events, task.metrics, task.observations["actor"].terms]
        found |= {term.info.name for terms in sections for term in terms.values()}
    return found


def test_every_reward_is_compared(reward_term, used):
    assert reward_term in used


def test_every_observation_is_compared(observation_term, used):
    assert observation_term in used


def test_every_termination_is_compared(termination_term, used):
    assert termination_term in used


def test_every_event_is_compared(event_term, used):
    assert event_term in used


def test_the_metric_is_used(metric_term, used):
    assert metric_term in used


def test_without_the_package_a_task_is_not_listed_and_the_error_names_what_to_install(monkeypatch):
    assert set(TASKS) <= set(registry.list_tasks())
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "gymnasium" else find(name))
    assert not set(TASKS) & set(registry.list_tasks())
    assert "cartpole" in registry.list_tasks()
    with pytest.raises(ValueError, match=r"^task=ant_v5: .* pip install 'robot-rl\[gymnasium\]'$"):
        registry.get_task("ant_v5")
    with pytest.raises(ValueError, match=r"^robot 'ant': .* pip install 'robot-rl\[gymnasium\]'$"):
        gymnasium_robot("ant")
    with pytest.raises(ValueError, match=r"did you mean 'cartpole'"):
        registry.get_task("cart_pole")


def test_an_unknown_robot():
    with pytest.raises(ValueError, match="unknown name 'swimmer'; Gymnasium's robots: ant, half_cheetah"):
        gymnasium_robot("swimmer")
