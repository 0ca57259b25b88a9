"""Sweeps whose runs have one process each, on a cluster that is played from memory; room for all roles of a run."""

import itertools
import sys
import types

import pytest

from robot_rl.cluster.launchers.launcher import FrozenRun
from robot_rl.cluster.launchers.ray import roles_room, runs_at_once
from robot_rl.cluster.ray_runs.evaluator import EvaluatorCfg
from robot_rl.cluster.ray_runs.group import GroupCfg
from robot_rl.cluster.ray_runs.simulators import SimulatorsCfg
from robot_rl.cluster.ray_runs.sweep import train_each
from robot_rl.errors import ExitCode
from robot_rl.runs.run_dir import RunDir


@pytest.fixture
def cluster(monkeypatch):
    """What was submitted, in order, and the most tasks that there were at once; the oldest task is done first."""
    found = types.SimpleNamespace(submitted=[], most=0, codes={})
    numbers = itertools.count()

    def submit(path, options, log):
        found.submitted.append(path.rpartition("/")[2])
        return next(numbers), found.submitted[-1]

    def wait(refs, timeout):
        found.most = max(found.most, len(refs))
        return [min(refs)], []

    def get(ref):
        return found.codes.get(ref[1], [0]).pop(0) if found.codes.get(ref[1]) else 0

    fake = types.ModuleType("ray")
    fake.remote = lambda **_: lambda function: types.SimpleNamespace(remote=submit)
    fake.wait, fake.get, fake.cancel = wait, get, lambda ref: None
    fake.exceptions = types.ModuleType("ray.exceptions")
    fake.exceptions.RayError = fake.exceptions.TaskCancelledError = type("RayError", (Exception,), {})
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setitem(sys.modules, "ray.exceptions", fake.exceptions)
    return found


@pytest.mark.parametrize(("at_once", "most"), [(1, 1), (2, 2), (9, 4)])
def test_each_run_is_trained_once_and_so_many_at_a_time(cluster, at_once, most, tmp_path):
    names = ["a", "b", "c", "d"]
    runs = [FrozenRun(run_dir=RunDir(tmp_path / name)) for name in names]
    cluster.codes = {"b": [int(ExitCode.REQUEUE), 0], "c": [3]}
    cfg = GroupCfg(nodes=1, min_nodes=1, ranks=1, cpus=1, gpus=0.0, max_failures=0, folder=tmp_path)
    assert train_each(runs, cfg, lambda: False, at_once) == [0, 0, 3, 0]
    assert cluster.most == most
    assert sorted(cluster.submitted) == ["a", "b", "b", "c", "d"]


def test_all_roles_of_a_run_count_for_the_room_that_it_needs(tmp_path):
    """2 learners of 1 core with a teacher of 2 cores each, 4 simulators of 1, an evaluation of 3: 13 cores of 40."""
    cfg = GroupCfg(
        nodes=1,
        min_nodes=1,
        ranks=2,
        cpus=1,
        gpus=0.0,
        max_failures=0,
        folder=tmp_path,
        sims=SimulatorsCfg(count=4, cpus=1),
        evaluator=EvaluatorCfg(every=5, cpus=3),
        services={"teacher": {"CPU": 2.0}},
    )
    nodes = [types.SimpleNamespace(total={"CPU": 20.0, "GPU": 1.0})] * 2
    assert roles_room(nodes, cfg) == {"CPU": (13.0, 40.0), "GPU": (0.0, 2.0)}
    assert runs_at_once(nodes, cfg) == 3
