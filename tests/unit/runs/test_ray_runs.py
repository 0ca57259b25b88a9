"""Runs on Ray, without one: sizes of groups, what ends a process, and what is refused before anything is started."""

import builtins
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from robot_rl.cluster.launchers import read_launcher
from robot_rl.cluster.launchers.ray import _stopping, runs_at_once
from robot_rl.cluster.ray_runs import cluster, rank
from robot_rl.cluster.ray_runs.cluster import Node, count, find_running, room
from robot_rl.cluster.ray_runs.group import GroupCfg
from robot_rl.cluster.ray_runs.rank import GROW, STOP, EndedError, RankCfg, Watcher, run_as_rank
from robot_rl.cluster.ray_runs.simulators import SimulatorsCfg, check_facts, device_of
from robot_rl.errors import ExitCode, Interrupted, NotRetryableError, PeerError, UserError


def node(name, cpus, used=0.0, *, is_leaving=False):
    free = {} if is_leaving else {"CPU": cpus - used}
    return Node(node_id=name, total={"CPU": cpus}, free=free)


def group(nodes, min_nodes, ranks=1):
    return GroupCfg(nodes=nodes, min_nodes=min_nodes, ranks=ranks, cpus=1, gpus=0, max_failures=3, folder=Path())


def test_an_ignored_hangup_stays_ignored():
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _stopping([]):
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_process_fits_by_its_scarcest_resource():
    assert count({"CPU": 8.0, "GPU": 3.0}, {"CPU": 2.0, "GPU": 1.0}) == 3
    assert count({"CPU": 8.0}, {"CPU": 2.0, "GPU": 1.0}) == 0


def test_a_machine_that_is_taken_away_has_no_room():
    nodes = [node("a", 4.0, used=1.0), node("b", 4.0, is_leaving=True)]
    assert room(nodes, {"CPU": 1.0}) == 3
    assert room(nodes, {"CPU": 1.0}, total=True) == 8


@pytest.mark.parametrize(
    ("free", "cfg", "size"),
    [
        (2, group(2, 2), 2),
        (1, group(2, 2), 0),
        (1, group(2, 1), 1),
        (9, group(2, 1), 2),
        (7, group(3, 1, ranks=2), 6),
        (3, group(3, 1, ranks=2), 2),
        (3, group(3, 2, ranks=2), 0),
    ],
)
def test_a_group_is_as_large_as_there_is_room_for_in_whole_machines(free, cfg, size):
    assert cfg.fitting([node("a", float(free))]) == size


def test_as_many_runs_at_once_as_have_room_with_all_their_simulators():
    nodes = [node("a", 8.0), node("b", 8.0)]
    sims = SimulatorsCfg(count=4, cpus=1, least=1)
    assert runs_at_once(nodes, replace(group(1, 1), sims=sims)) == 3
    assert runs_at_once(nodes, replace(group(2, 2), sims=replace(sims, cpus=0))) == 7
    assert runs_at_once(nodes, replace(group(1, 1), sims=replace(sims, cpus=16))) == 1
    assert runs_at_once(nodes, group(1, 1)) == 16


def test_engines_are_taken_in_turn():
    sims = SimulatorsCfg(count=4, engines=("mujoco", "mujoco_warp"))
    assert [sims.engine(index) for index in range(4)] == ["mujoco", "mujoco_warp"] * 2
    assert SimulatorsCfg(count=2).engine(1) == ""
    assert [device_of("mujoco", 1.0), device_of("mujoco_warp", 0.5), device_of("mujoco_warp", 0)] == [
        "cpu",
        "cuda",
        "cpu",
    ]


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"torch": "1.0"}, "roles.sim: torch is 1.0 in simulator 3, must be 2.0 as in the learner"),
        ({"engine": "mujoco"}, "roles.sim: engine is mujoco in simulator 3, must be mujoco_warp as requested"),
        ({"task": "go2_flat"}, "roles.sim: task is go2_flat in simulator 3, must be cartpole as requested"),
    ],
)
def test_a_simulator_that_is_another_than_requested_is_named(changed, line):
    facts = {"task": "cartpole", "engine": "mujoco_warp", "torch": "2.0"}
    check_facts(3, facts, facts)
    with pytest.raises(UserError, match=line):
        check_facts(3, {**facts, **changed}, facts)


def raising(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Interrupted(None, 3, 15), ExitCode.REQUEUE),
        (NotRetryableError("no checkpoint"), ExitCode.GIVE_UP),
        (FloatingPointError("the loss is not finite"), ExitCode.GIVE_UP),
        (UserError("num_envs=3: no"), ExitCode.USER),
        (OSError(28, "No space left on device"), ExitCode.DISK_FULL),
    ],
)
def test_what_another_attempt_would_repeat_ends_the_group_with_its_code(error, code):
    with pytest.raises(EndedError) as ended:
        run_as_rank(raising(error), lambda: "a reason")
    assert ended.value.code == code
    assert ended.value.line == ("a reason" if isinstance(error, Interrupted) else str(error))


@pytest.mark.parametrize("error", [PeerError("lost"), ValueError("a fault")])
def test_what_another_attempt_may_not_meet_is_raised_as_it_is(error, monkeypatch):
    monkeypatch.setattr(rank, "PEER_S", 0.0)
    with pytest.raises(type(error)):
        run_as_rank(raising(error), str)


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """A first process's watcher of a group that lacks one process, with what it sees of the cluster."""
    seen = {"nodes": [node("mine", 1.0, used=1.0)], "leaving": False}
    monkeypatch.setattr(rank, "is_leaving", lambda _: seen["leaving"])
    monkeypatch.setattr(rank, "list_nodes", lambda: seen["nodes"])
    cfg = RankCfg(run=str(tmp_path), log=str(tmp_path / "log"), need={"CPU": 1.0}, missing=1)
    return Watcher(cfg, "mine", is_first=True), seen, tmp_path


def test_a_notice_or_a_request_stops_the_training(watched):
    watcher, seen, path = watched
    assert watcher.look() == ""
    (path / STOP).touch()
    assert watcher.look() == "it was asked to"
    seen["leaving"] = True
    assert watcher.look() == "its machine is being taken away"


def test_a_machine_that_joined_stops_the_training_when_it_is_seen_twice(watched):
    watcher, seen, _ = watched
    seen["nodes"].append(node("new", 1.0))
    assert [watcher.look(), watcher.look()] == ["", GROW]


def test_a_whole_group_does_not_look_for_machines(watched):
    watcher, seen, _ = watched
    seen["nodes"].append(node("new", 1.0))
    whole = Watcher(replace(watcher._cfg, missing=0), "mine", is_first=True)
    assert [whole.look(), whole.look()] == ["", ""]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"nodes": 2, "min_nodes": 3}, "launcher.min_nodes=3: must be at least 1 and at most launcher.nodes=2"),
        ({"max_failures": -1}, "launcher.max_failures=-1: must be in [0, 1000]"),
        ({"address": ""}, "launcher.address=: must be auto, host:port, or http://host:port of a dashboard"),
        ({"time": "1:00:00"}, "launcher.time=1:00:00: does not affect launcher=ray; omit it"),
    ],
)
def test_settings_out_of_range_are_one_line(settings, line):
    with pytest.raises(UserError) as error:
        read_launcher("ray", settings)
    assert str(error.value) == line


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere"])
def test_an_address_where_nothing_answers_is_one_line(address):
    with pytest.raises(UserError, match=f"launcher.address={address}: nothing answers at {address}"):
        read_launcher("ray", {"address": address}).check()


def test_a_dashboard_that_does_not_answer_is_one_line():
    with pytest.raises(UserError, match="launcher.address=http://127.0.0.1:1: no dashboard answers there"):
        read_launcher("ray", {"address": "http://127.0.0.1:1"}).check()


def test_a_missing_package_names_the_extra(monkeypatch):
    before = builtins.__import__

    def without_ray(name, *arguments):
        if name == "ray":
            raise ModuleNotFoundError("no ray", name="ray")
        return before(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_ray)
    with pytest.raises(UserError, match=r"the package ray is missing; install the extra ray: pip install"):
        cluster.import_ray()


def test_a_cluster_that_is_gone_is_not_found(tmp_path):
    assert find_running({"RAY_TMPDIR": str(tmp_path)}) == ""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray/ray_current_cluster").write_text("127.0.0.1:1")
    assert find_running({"RAY_TMPDIR": str(tmp_path)}) == ""
    assert find_running({"RAY_ADDRESS": "10.0.0.1:6379"}) == "10.0.0.1:6379"
