"""A frozen run of several processes, trained by what is left of them: stopped on request, smaller, and back again."""

import contextlib
import json

import pytest

from robot_rl.cluster.frozen import freeze
from robot_rl.cluster.launchers.ray import Ray
from robot_rl.errors import ExitCode, Interrupted
from robot_rl.learn.ranks import ProcessGroup
from robot_rl.runs.settings import default_tree, resolve
from robot_rl.runs.training import TrainHooks, _divisible, train_frozen
from robot_rl.settings.tree import override


def settings(root, **changes):
    small = {"num_envs": 4, "max_iterations": 3, "num_steps": 4, "learner_threads": 1, "root": str(root)}
    return resolve(override(default_tree("cartpole", "cpu"), small | changes))


def frozen(root, nodes):
    with contextlib.ExitStack() as undo:
        run = freeze(settings(root), Ray(nodes=nodes, address="local"), undo)
        undo.pop_all()
    return run.run_dir


def rows(run_dir):
    return [json.loads(line) for line in run_dir.metrics_file.read_text().splitlines()]


def test_a_request_to_stop_saves_after_the_iteration_and_the_run_goes_on(tmp_path):
    run_dir = frozen(tmp_path, nodes=2)
    with pytest.raises(Interrupted) as stop:
        train_frozen(run_dir, hooks=TrainHooks(stop=lambda: True))
    assert stop.value.exit_code == ExitCode.REQUEUE
    assert stop.value.checkpoint.name == "000001"
    train_frozen(run_dir, hooks=TrainHooks(stop=lambda: False), is_elastic=True)
    found = rows(run_dir)
    assert [row["iteration"] for row in found] == [1, 2, 3]
    # One of two processes was left.
    assert {(row["ranks"], row["num_envs"], row["batch"]) for row in found} == {(1, 4, 16)}


def test_the_row_of_a_run_of_one_process_has_no_processes(tmp_path):
    run_dir = frozen(tmp_path, nodes=1)
    train_frozen(run_dir)
    assert not {"ranks", "num_envs", "batch"} & set(rows(run_dir)[0])


@pytest.mark.parametrize(("ranks", "is_elastic", "worlds"), [(3, True, 3), (2, True, 4), (3, False, 4), (8, True, 8)])
def test_processes_that_do_not_divide_the_worlds_train_as_many_as_they_do(tmp_path, ranks, is_elastic, worlds):
    mine = ProcessGroup()
    mine.size = ranks
    cfg = settings(tmp_path)
    found = _divisible(cfg, mine, is_elastic)
    assert found.num_envs == worlds
    assert found.tree == cfg.tree  # What was requested stays.
