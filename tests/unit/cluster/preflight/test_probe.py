"""The probe on this machine, and the exchange of a submitter with probes that srun would have started."""

import contextlib
import dataclasses
import io
import json
import os
import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from robot_rl.cluster.launchers.slurm import Slurm
from robot_rl.cluster.launchers.slurm_checks import srun_command
from robot_rl.cluster.launchers.torchrun import Torchrun
from robot_rl.cluster.preflight import gather as gathering
from robot_rl.cluster.preflight import shared
from robot_rl.cluster.preflight.facts import NodeFacts, can_bind, read_facts
from robot_rl.cluster.preflight.finding import Cluster
from robot_rl.cluster.preflight.gather import exchange
from robot_rl.cluster.preflight.probe import Messages, accept, candidates, probe, reach, send
from robot_rl.cluster.preflight.shared import SharedRoot


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Nothing is waited for: the file systems of this machine show files at once."""
    monkeypatch.setattr(shared, "PATIENCE_S", 0.0)


def test_the_facts_of_this_machine(tmp_path):
    environ = {"NCCL_DEBUG": "INFO", "HOME": "/home", "MASTER_PORT": "0", "SLURMD_NODENAME": "n7"}
    facts = read_facts(tmp_path / "runs", environ)
    assert facts.name == "n7"
    assert facts.versions["python"].startswith("3.")
    assert facts.cores == len(os.sched_getaffinity(0))
    assert facts.interfaces["lo"] == "127.0.0.1"
    assert facts.variables == {"NCCL_DEBUG": "INFO", "MASTER_PORT": "0"}
    assert facts.master_port is True
    assert facts.disks["root"]
    assert NodeFacts(**json.loads(json.dumps(dataclasses.asdict(facts)))) == facts
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken():
    with socket.create_server(("", 0)) as server:
        assert not can_bind(server.getsockname()[1])


def test_a_shared_root_is_seen_from_both_sides_and_left_as_it_was(tmp_path):
    root = tmp_path / "a" / "runs"
    with SharedRoot(root) as mine:
        assert shared.answer(root, mine.token, "n1") == (True, "")
        assert shared.answer(tmp_path / "elsewhere", mine.token, "n2") == (False, "")
        assert mine.missing(["n1", "n2"]) == ["n2"]
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_cannot_be_written(tmp_path):
    (tmp_path / "runs").touch()
    with SharedRoot(tmp_path / "runs") as mine:
        assert mine.error == "not a directory"
    assert probe(tmp_path / "runs", environ={}).root_error == "not a directory"


def hang_up(server):
    """Another program, which ends every connection."""
    with contextlib.suppress(OSError):
        while True:
            server.accept()[0].close()


def test_nodes_meet_at_the_first_free_port():
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_server(("", 0)) as free:
        ports = [other.getsockname()[1], free.getsockname()[1]]
        free.close()
        found = {}
        first = threading.Thread(target=lambda: found.update(first=accept(ports, 1, "token", patience_s=20)))
        first.start()
        threading.Thread(target=hang_up, args=[other], daemon=True).start()
        found["second"] = reach("127.0.0.1", ports, "token", patience_s=20)
        first.join()
    assert found == {"first": "", "second": ""}


def test_nodes_that_do_not_meet():
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    assert accept([port], 2, "token", patience_s=0) == f"0 of 2 other nodes connected to port {port}"
    reason = reach("127.0.0.1", [port], "token", patience_s=0.01)
    assert reason == f"127.0.0.1 cannot be reached at ports {port} (connection refused)"


def test_a_jobs_ports_begin_with_its_own():
    assert candidates(10_001)[0] == 20_001
    assert all(20_000 <= port < 30_000 for port in candidates(19_999))


def test_long_messages_come_whole_where_lines_of_nodes_are_mixed():
    lines = []
    for name in ("n1", "n2"):
        stream = io.StringIO()
        send(stream, name, {"text": name * 1000})
        lines.append(stream.getvalue().splitlines(keepends=True))
    assert all(len(line) < 1000 for part in lines for line in part)
    messages, found = Messages(), {}
    for pair in zip(*lines, strict=True):
        for line in ("srun: job 7 queued\n", *pair):
            if message := messages.add(line):
                found[message[0]] = message[1]["text"]
    assert found == {"n1": "n1" * 1000, "n2": "n2" * 1000}


class Probes:
    """What srun's process is to the submitter: nodes print facts and answer with their clocks when asked."""

    def __init__(self, clocks, errors=()):
        self.stderr = iter(errors)
        self.stdin = SimpleNamespace(write=lambda _: None, flush=lambda: self._asked.set())
        self._asked = threading.Event()
        self._clocks = clocks
        self.stdout = self._lines()

    def _lines(self):
        for name in self._clocks:
            yield from self._sent(name, {"facts": dataclasses.asdict(NodeFacts(name=name))})
        self._asked.wait(5 if len(self._clocks) > 1 else 0)
        for name, time_s in self._clocks.items():
            yield from self._sent(name, {"time_s": time_s})

    def _sent(self, name, message):
        stream = io.StringIO()
        send(stream, name, message)
        return stream.getvalue().splitlines(keepends=True)


def make_cluster(nodes):
    return Cluster(launcher=Slurm(nodes=nodes), root=Path("/runs"), wanted=nodes)


def test_clocks_are_bounded_by_the_round_trip():
    cluster = make_cluster(2)
    exchange(cluster, Probes({"n1": 1000.0, "n2": 1010.0}), 20.0, clock=lambda: 1000.0)
    assert [node.name for node in cluster.nodes] == ["n1", "n2"]
    assert cluster.offsets_s == {"n1": (0.0, 0.0), "n2": (10.0, 10.0)}
    assert cluster.error == ""


def test_a_node_that_is_missing_and_why():
    cluster = make_cluster(2)
    exchange(cluster, Probes({"n1": 1.0}, ["srun: error: n2: task 1: Exited with exit code 2\n"]), 20.0)
    assert [node.name for node in cluster.nodes] == ["n1"]
    assert cluster.error == "srun: error: n2: task 1: Exited with exit code 2"


def test_the_command_of_srun_requests_what_a_run_would():
    launcher = Slurm(nodes=2, ranks=4, gpus=4, cpus=3, partition="spot", options="--account=lab", setup="module load x")
    words = srun_command(launcher, Path("/runs"), "abc")
    assert {"--nodes=2", "--ntasks=2", "--partition=spot", "--gres=gpu:4", "--cpus-per-task=12"} <= set(words)
    assert words[words.index("--account=lab") + 1 :][:2] == ["bash", "-c"]
    assert words[-4:] == ["preflight", "probe=true", "root=/runs", "token=abc"]


def test_srun_that_fails_is_one_line(monkeypatch, tmp_path):
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text("#!/bin/sh\necho 'srun: error: nodes are busy' >&2\nexit 1\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")
    cluster = gathering.gather(Slurm(nodes=2), tmp_path / "runs")
    assert (cluster.nodes, cluster.error) == ([], "srun: error: nodes are busy")
    assert not (tmp_path / "runs").exists()


def test_of_torchruns_machines_only_this_one_is_asked(tmp_path):
    launcher = Torchrun(nodes=2, rendezvous="127.0.0.1:29400")
    cluster = gathering.gather(launcher, tmp_path / "runs")
    assert (len(cluster.nodes), cluster.wanted, cluster.unseen) == (1, 1, [])
