"""The bar and the lines of a training."""

import io

import pytest
from rich.console import Console

from robot_rl.runs.progress import Progress, facts, goal

ROW = {
    "iteration": 3,
    "perf/steps_per_s": 20123.4,
    "episode/return": 12.345,
    "episode/length_s": 19.96,
    "tracking/lin_vel_error": 0.231,
}


METRICS = {"lin_vel_error": {"unit": "m/s"}, "yaw_vel_error": {"unit": "rad/s"}}


def test_the_figures_worth_watching():
    shown = "20,123 steps/s  return 12.35  length 20.0 s"
    assert facts(ROW) == shown
    assert facts(ROW, METRICS) == f"{shown}  lin vel error 0.23 m/s"
    assert facts(ROW | {"tracking/upright": 0.5}, {"upright": {"unit": "1"}}) == f"{shown}  upright 0.50"
    assert facts({"iteration": 1, "perf/steps_per_s": 7.0}) == "7 steps/s"
    ended = {"iteration": 1, "perf/steps_per_s": 7.0, "episodes": 40, "termination/time_limit": 0.75}
    assert facts(ended) == "7 steps/s  failures 10"


@pytest.mark.parametrize("terminal", [False, True])
def test_lines_in_a_log_and_a_bar_in_a_terminal(monkeypatch, terminal):
    screen = io.StringIO()
    progress = Progress(12, metrics=METRICS)
    progress._console = Console(file=screen, force_terminal=terminal, width=150)
    with progress:
        for iteration in range(3, 13):
            progress({**ROW, "iteration": iteration})
    text = screen.getvalue()
    assert "lin vel error 0.23 m/s" in text
    if terminal:
        assert "12/12" in text
    else:
        assert [line.split()[1] for line in text.splitlines()] == ["3/12", "12/12"]


def test_the_goal_is_named_after_the_last_iteration_alone():
    row = {"iteration": 12, "tracking/lin_vel_error": 0.234, "tracking/upright": 0.7}
    metrics = {"lin_vel_error": {"unit": "m/s", "better": "smaller"}, "upright": {"unit": "1", "better": "larger"}}
    error, upright = ("tracking/lin_vel_error", 0.2), ["tracking/upright", 0.7]
    end = "in the last iteration"
    assert goal(row, 12, metrics, error) == f"goal: lin vel error of 0.2 m/s or less: not reached, 0.234 m/s {end}"
    assert goal(row, 12, metrics, upright) == f"goal: upright of 0.7 or more: reached, 0.7 {end}"
    for given in ((row, 13, metrics, error), (row, 12, {}, error), (row, 12, metrics, None), ({}, 12, metrics, error)):
        assert goal(*given) == ""


def test_the_time_left_is_without_what_was_compiled_before_the_first_iteration(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("robot_rl.runs.progress.time.monotonic", lambda: now[0])
    screen, progress = io.StringIO(), Progress(101)
    progress._console = Console(file=screen, width=150)
    times = {"perf/simulate_s": 1.0, "perf/infer_s": 0.5, "perf/learn_s": 0.4, "perf/other_s": 0.1}
    with progress:
        for iteration, seconds in ((1, 60.0), (11, 90.0)):
            now[0] = seconds
            progress({**ROW, **times, "iteration": iteration})
    assert [line.split()[-1] for line in screen.getvalue().splitlines()[:2]] == ["3:20", "4:30"]


@pytest.mark.parametrize("terminal", [False, True])
def test_the_last_line_shows_where_the_time_went(terminal):
    screen = io.StringIO()
    progress = Progress(2)
    progress._console = Console(file=screen, force_terminal=terminal, width=150)
    with progress:
        for iteration, learn in ((1, 0.1), (2, 0.5)):
            times = {"perf/simulate_s": 1.0, "perf/infer_s": 0.2, "perf/learn_s": learn, "perf/other_s": 0.1}
            progress({**ROW, **times, "iteration": iteration})
    summary = "time: simulate 62%, infer 12%, learn 19%, other 6%; limited by simulate; a perfect overlap"
    assert summary in screen.getvalue().splitlines()[-1]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_notice_of_the_environment_is_a_line_of_its_own(monkeypatch, terminal):
    """A quarantined world is named once, with the counts of the iteration; brackets are no markup."""
    screen, lines = io.StringIO(), [["world 3: [b] is nan; robot-rl inspect x.npz"], []]
    progress = Progress(5, lambda: lines.pop(0))
    progress._console = Console(file=screen, force_terminal=terminal, width=150)
    with progress:
        for iteration in (4, 5):
            progress({**ROW, "iteration": iteration, "quarantined": 2.0, "quarantined/state": 2.0})
    text = screen.getvalue()
    assert text.count("iteration 4 (2 state): world 3: [b] is nan; robot-rl inspect x.npz") == 1
