"""robot-rl serve-metrics: over HTTP, as a file, and what it refuses."""

import json
import socket
import sys
import threading
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from robot_rl.cluster.prometheus.collector import RunsCollector, RunSource
from robot_rl.cluster.prometheus.serve import make_registry, repeat, start_server, write_textfile


@pytest.fixture
def root(small_run, tmp_path, monkeypatch):
    """The runs of a small training, with an index of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return small_run.parent.parent


def names(text):
    return {family.name for family in text_string_to_metric_families(text)}


def test_a_scrape(root):
    registry = make_registry(RunsCollector(RunSource(root=root)))
    server = start_server(registry, "127.0.0.1", 0)
    try:
        assert server.server_address[0] == "127.0.0.1"
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as answer:
            found = names(answer.read().decode())
    finally:
        server.shutdown()
        server.server_close()
    assert {"robot_rl_iteration", "robot_rl_env_steps", "robot_rl_checkpoint_age_seconds", "robot_rl_state"} <= found


def test_a_process_serves_until_it_is_interrupted(start_python, root):
    process = start_python(["-m", "robot_rl.cli.main", "serve-metrics", f"root={root}", "port=0"])
    url = process.stdout.readline().split()[0]
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert "robot_rl_iteration" in names(answer.read().decode())
    process.send_signal(2)
    assert process.communicate()[0] == ""
    assert process.returncode == 0


def test_a_port_in_use(run, root):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, out, err = run("serve-metrics", f"root={root}", f"port={port}")
    assert (code, out) == (2, "")
    assert err == f"robot-rl: port={port}: is in use on 127.0.0.1; choose another, or port=0 for a free one\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["root=nowhere"], "root=nowhere: is not a directory"),
        (["run=nothing"], "run=nothing: no such run"),
        (["host=192.0.2.1"], "host=192.0.2.1: is not an address of this machine"),
        (["host=no.such.host.invalid"], "host=no.such.host.invalid: is not an address"),
        (["every=5"], "every=5: is for textfile="),
        (["textfile=metrics.txt"], "textfile=metrics.txt: must end in .prom"),
        (["textfile=foreign.prom"], "textfile=foreign.prom: is there already and is not a file of robot-rl serve"),
        (["dashboard=mine.json"], "dashboard=mine.json: is there already and is not a dashboard of robot-rl"),
    ],
)
def test_refusals(run, root, in_tmp, words, line):
    (in_tmp / "foreign.prom").write_text("node_uname_info 1\n")
    (in_tmp / "mine.json").write_text('{"title": "mine"}')
    root_word = [] if words[0].startswith("root=") else [f"root={root}"]
    code, out, err = run("serve-metrics", *words, *root_word)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert line in err


def test_a_missing_package_is_named(run, root, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    code, _, err = run("serve-metrics", f"root={root}")
    assert code == 2
    assert err.endswith("pip install 'robot-rl[prometheus]'\n")


def test_a_textfile_is_written_once_and_replaced_as_a_whole(run, root, in_tmp):
    (in_tmp / "robot_rl.prom").write_text("")
    for _ in range(2):
        assert run("serve-metrics", f"root={root}", "textfile=robot_rl.prom") == (0, "", "")
    assert "robot_rl_iteration" in names((in_tmp / "robot_rl.prom").read_text())
    assert (in_tmp / "robot_rl.prom").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in in_tmp.glob("*.prom")] == ["robot_rl.prom"]


def test_a_textfile_that_cannot_be_written_stays(root, tmp_path, monkeypatch):
    path, registry = tmp_path / "robot_rl.prom", make_registry(RunsCollector(RunSource(root=root)))
    write_textfile(registry, path)
    before = path.read_text()

    def fail(*_):
        raise OSError

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError):  # noqa: PT011
        write_textfile(registry, path)
    assert path.read_text() == before
    assert [found.name for found in tmp_path.glob("*robot_rl.prom*")] == ["robot_rl.prom"]


def test_the_file_is_written_again_until_it_is_stopped():
    stop, written = threading.Event(), []

    def write():
        written.append(1)
        if len(written) == 3:
            stop.set()

    repeat(write, 0.001, stop)
    assert len(written) == 3


def test_dashboard_and_alerts_are_printed_or_written(run, in_tmp):
    code, out, _ = run("serve-metrics", "dashboard=-")
    assert code == 0
    assert json.loads(out)["title"] == "robot-rl"
    for _ in range(2):
        code, out, _ = run("serve-metrics", "dashboard=board.json", "alerts=rules.yaml")
        assert (code, out) == (0, "board.json\nrules.yaml\n")
    assert json.loads((in_tmp / "board.json").read_text())["uid"] == "robot-rl"
    assert "name: robot-rl" in (in_tmp / "rules.yaml").read_text()
