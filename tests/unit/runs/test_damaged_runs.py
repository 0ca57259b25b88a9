"""One run that is damaged, or somebody's joke, hides none of the others: the table, the board, Prometheus, watch."""

import json
import os
import shutil
import socket
import threading

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from robot_rl.cluster.prometheus.collector import QuarantinedSamples, RunsCollector, RunSource
from robot_rl.cluster.prometheus.serve import make_registry
from robot_rl.cluster.watch import NewRows, follow
from robot_rl.metrics.rows import read_row
from robot_rl.runs.run_dir import RunDir
from robot_rl.runs.run_index import read_runs
from robot_rl.view.board.answers import Board, to_json
from robot_rl.view.board.server import Server
from robot_rl.view.board.table import RunTable

HUGE = 10**400


@pytest.fixture
def root(small_run, tmp_path, monkeypatch):
    """A root with a good run, and copies of it that are damaged in a way each."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "runs" / "cartpole"
    shutil.copytree(small_run, folder / "good")

    def copy(name, rows=None, **record):
        path = os.path.join(os.fsencode(folder), name if isinstance(name, bytes) else name.encode())
        shutil.copytree(os.fsencode(folder / "good"), path)
        if rows is not None:
            with open(os.path.join(path, b"metrics.jsonl"), "wb") as file:
                file.write(
                    b"".join(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows)
                )
        if record:
            config = yaml.safe_load((folder / "good" / "run.yaml").read_text())
            with open(os.path.join(path, b"run.yaml"), "w") as file:
                yaml.safe_dump(config | record, file)

    copy("huge", [{"iteration": 2, "env_steps": HUGE, "quarantined": HUGE, "episode/return": HUGE}])
    copy("many", [{"iteration": HUGE}])
    copy("texts", [{"iteration": 2, "env_steps": "a", "time_s": [], "episode/return": {}, "perf/steps_per_s": "x"}])
    copy("minus", [b'{"iteration": 2, "quarantined": 1-2-3e}\n', {"iteration": 3, "quarantined": 4.0}])
    copy(b"no\xffutf8")
    copy("shape", launcher={"nodes": HUGE, "ranks": "a"}, solved=[HUGE, HUGE], created=HUGE, versions=5)
    copy("settings", config={"task": "cartpole", "max_iterations": HUGE, "seed": [1], "nested": {"a": HUGE}})
    copy("again")  # With other files the same run once more, of another task's folder:
    shutil.copytree(folder / "good", tmp_path / "runs" / "backup" / "good")
    return tmp_path / "runs"


def test_the_table_has_them_all(root, run):
    rows = {row.run_id: row for row in read_runs(root)}
    assert len(rows) == 9  # The copy in another folder has the name of the run.
    assert rows["good"].goal[1] is not None
    assert {rows[name].goal[1] for name in ("huge", "many", "texts")} == {None}
    assert rows["many"].iterations[0] == 0
    for words in ([], ["sort=goal"], ["sort=created"], ["columns=env_steps,max_iterations"], ["by=seed"]):
        code, out, err = run("runs", f"root={root}", "most=0", *words)
        assert (code, err) == (0, "")
        assert words == ["by=seed"] or "good" in out


def test_the_board_answers(root):
    table = RunTable(root)
    table.refresh()
    while table.read_pending():
        pass
    board = Board(table)
    names = list(table.runs)
    assert len(names) == 10
    to_json(board.runs(0, 0, ["env_steps", "quarantined"])).decode()
    to_json([board.run(name) for name in names])
    to_json([board.diff("cartpole/good", name) for name in names])
    asked = {"metrics": ["goal", "env_steps"], "axis": "iteration", "curves": [names]}
    to_json(board.curves(asked))
    to_json(board.groups({"metric": "env_steps", "groups": [names]}))


def test_prometheus_gets_the_others_and_each_series_once(root):
    text = generate_latest(make_registry(RunsCollector(RunSource(root=root, most=50), gpus=list))).decode()
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(set(series)) == len(series)
    states = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name == "robot_rl_state" else ():
            if sample.value:
                states[sample.labels["run"]] = sample.labels["robot_rl_state"]
    assert len(states) == 9
    assert "robot_rl_up 1.0" in text


def test_quarantined_samples_are_counted_again_after_a_resume(tmp_path):
    path, samples = tmp_path / "metrics.jsonl", QuarantinedSamples()

    def row(iteration, count):
        return json.dumps({"iteration": iteration, "quarantined": count, "time_s": iteration * 1.0}) + "\n"

    path.write_text("".join(row(k, 1) for k in range(10, 20)))
    assert samples.count(path) == 10
    with path.open("r+") as file:  # Cut after 5 rows, and written on with more, in the same file.
        file.truncate(5 * len(row(10, 1)))
        file.seek(0, 2)
        file.write("".join(row(k, 3) for k in range(15, 23)))
    assert samples.count(path) == 5 + 8 * 3
    with path.open("a") as file:
        file.write(row(23, 2))
    assert samples.count(path) == 31
    assert samples.count(tmp_path / "none") is None


def test_watch_takes_any_row_and_waits_for_no_pipe(tmp_path):
    run_dir = RunDir(tmp_path)
    os.mkfifo(run_dir.metrics_file)
    assert NewRows(run_dir.metrics_file).read() == []
    run_dir.metrics_file.unlink()
    rows = [{"iteration": 1, "time_s": "x"}, {"iteration": 2, "time_s": HUGE}, {"iteration": 3, "time_s": None}]
    run_dir.metrics_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [row["iteration"] for row in follow(run_dir, 3, sleep=lambda _: None)] == [3]


@pytest.mark.parametrize(
    "line", [b"", b"[1]", b'{"iteration": true}', b'{"iteration": 1e400}', b"[" * 10_000, b"\xff{}"]
)
def test_what_is_no_row(line):
    assert read_row(line) is None
    assert read_row(b'{"iteration": 4, "a": 1e999, "b": [1]}') == {"iteration": 4, "a": float("inf"), "b": None}


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_the_body_of_a_refused_request_is_no_request(root, method):
    with Server(root) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_address[1]}"
        inner = f"GET /api/runs HTTP/1.1\r\nHost: {host}\r\n\r\n"
        head = f"{method} /api/curves HTTP/1.1\r\nHost: {host}\r\nOrigin: http://evil.example\r\n"
        with socket.create_connection(server.server_address, timeout=10) as client:
            client.sendall(f"{head}Content-Length: {len(inner)}\r\n\r\n{inner}".encode())
            answer = b""
            while part := client.recv(65536):
                answer += part
        server.shutdown()
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 403")
