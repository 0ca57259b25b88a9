"""What the board answers, and whom: only pages of this machine, and only the known files of runs."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from robot_rl.errors import UserError
from robot_rl.metrics.rows import lock


def raw(board, target, host=None, method="GET", body=None, **headers):
    """The status and content of a request whose target is sent as it is."""
    connection = http.client.HTTPConnection(urlsplit(board.url).netloc, timeout=30)
    connection.putrequest(method, target, skip_host=True)
    connection.putheader("Host", urlsplit(board.url).netloc if host is None else host)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders(body)
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply.status, content


def test_the_table(make_run, serve):
    make_run("01", [0.25, 0.5])
    make_run("02", [0.25, 0.5, 0.75], ppo={"gamma": 0.8})
    board = serve()
    found = board.answer("api/runs?metrics=loss/value,unknown")
    one, two = sorted(found["runs"], key=lambda run: run["name"])
    assert (one["name"], one["state"], one["iterations"], one["goal"]) == (
        *("hop/01", "stopped", [2, 3]),
        ["tracking/height", 0.5],
    )
    assert (two["metrics"], two["files"], two["reading"]) == ([-0.75, None], [], False)
    values = [(found["bases"]["hop"] | run["set"])["ppo.gamma"] for run in (one, two)]
    assert values == [0.9, 0.8]
    assert found["metrics"] == ["iteration", "env_steps", "time_s", "tracking/height", "loss/value"]
    again = board.answer(f"api/runs?id={found['id']}&since={found['version']}&bases=1")
    assert (again["runs"], again["gone"], again["bases"]) == ([], [], {})
    assert len(board.answer(f"api/runs?id=other&since={found['version']}&bases=1")["runs"]) == 2
    for since in ("9" * 5000, "-1", "x", "%C2%B2"):
        assert len(board.answer(f"api/runs?id={found['id']}&since={since}")["runs"]) == 2


def test_groups_are_the_interquartile_mean_of_the_goal_or_a_metric(make_run, serve):
    for name, value in zip(("01", "02", "03", "04"), (1.0, 2.0, 3.0, 100.0), strict=True):
        make_run(name, [value])
    names = [f"hop/0{i}" for i in range(1, 5)]
    asked = {"metric": "goal", "groups": [names, names[:1], []]}
    many, one, none = serve().answer("api/groups", asked)
    assert (many["runs"], many["middle"], many["least"], many["most"]) == (4, 2.5, 1.0, 100.0)
    assert 1 <= many["low"] < 2.5 < many["high"] <= 100
    assert one == {"runs": 1, "middle": 1.0, "low": None, "high": None, "least": 1.0, "most": 1.0}
    assert none == {"runs": 0}
    (other,) = serve().answer("api/groups", {"metric": "loss/value", "groups": [names[:2]]})
    assert (other["middle"], other["low"], other["high"]) == (-1.5, -2.0, -1.0)


def test_curves_by_each_axis(make_run, serve):
    make_run("01", [1.0, 2.0])
    make_run("02", [3.0, 4.0])
    board = serve()
    for axis, x in (("iteration", [1, 2]), ("env_steps", [100, 200]), ("time_s", [2, 4])):
        asked = {"metrics": ["goal", "loss/value"], "axis": axis, "curves": [["hop/01", "hop/02"], ["hop/01"]]}
        found = board.answer("api/curves", asked)
        (group, run), (losses, _) = found["curves"]
        assert group == {"x": x, "y": [2, 3], "low": [1, 2], "high": [3, 4], "runs": [2, 2]}
        assert run == {"x": x, "y": [1, 2], "low": [None] * 2, "high": [None] * 2, "runs": [1, 1]}
        assert losses["y"] == [-2, -3]
        assert found["bounds"] == [0.5, None]


def test_one_run_and_what_differs_from_another(make_run, serve):
    folder = make_run("01", [1.0])
    make_run("02", [1.0], ppo={"gamma": 0.8})
    (folder / "eval.json").write_text('{"torch": {"height": {"mean": 0.5, "std": 0.1}, "x": 3}, "episodes": 2}')
    board = serve()
    found = board.answer("api/run?run=hop/01")
    assert found["settings"]["ppo.gamma"] == 0.9
    assert found["evaluation"] == {"torch": {"height": [0.5, 0.1]}}
    assert found["words"].startswith("01 root=")
    assert board.answer("api/diff?one=hop/01&other=hop/02")["settings"] == [["ppo.gamma", 0.9, 0.8]]


def test_a_damaged_run_stops_nothing(make_run, serve):
    make_run("01", [1.0])
    folder = make_run("02", [1.0])
    (folder / "run.yaml").write_text("config: [")
    (folder / "metrics.jsonl").write_text('{"iteration": 1, "tracking/height": Infinity}\n{"iteration": 2\n\x00\n')
    (folder / "eval.json").write_text("[[[")
    board = serve()
    (run,) = [run for run in board.answer("api/runs")["runs"] if run["name"] == "hop/02"]
    assert (run["state"], run["set"], run["goal"]) == ("damaged", None, ["", None])
    assert board.answer("api/run?run=hop/02")["evaluation"] == {}
    names = ["hop/01", "hop/02"]
    asked = {"metrics": ["tracking/height"], "axis": "iteration", "curves": [names, ["hop/02"]]}
    assert [curve["y"] for curve in board.answer("api/curves", asked)["curves"][0]] == [[1.0], []]
    assert board.answer("api/groups", {"metric": "tracking/height", "groups": [names]})[0]["runs"] == 1


@pytest.mark.parametrize(
    ("path", "body", "line"),
    [
        ("api/curves", [], "curves: must be a list"),
        ("api/curves", {"curves": [["hop/01"]], "metrics": ["goal"], "axis": "x"}, "axis=x: must be one of"),
        ("api/curves", {"curves": [["hop/9"]], "metrics": ["goal"], "axis": "iteration"}, "run=hop/9: no such run"),
        ("api/curves", {"curves": [[1]], "metrics": ["goal"], "axis": "iteration"}, "must be lists of names"),
        ("api/curves", {"curves": [[]] * 41, "metrics": ["goal"], "axis": "iteration"}, "a list of at most 40"),
        ("api/groups", {"groups": [], "metric": 3}, "metric=3: must be"),
        ("api/run?run=../x", None, "run=../x: no such run"),
    ],
)
def test_a_wrong_question_is_one_line(make_run, serve, path, body, line):
    make_run("01", [1.0])
    status, _, content = serve().ask(path, body)
    assert status == 400
    assert line in content.decode()


def test_a_question_is_json_from_the_page(make_run, serve):
    make_run("01")
    board = serve()
    # What a form of another page can send without asking first.
    assert raw(board, "/api/groups", method="POST", body=b"{}", Content_Type="text/plain", Content_Length="2")[0] == 400
    assert raw(board, "/api/groups", method="POST", Content_Type="application/json")[0] == 400
    assert raw(board, "/api/groups", method="POST", Content_Type="application/json", Content_Length="9" * 9)[0] == 400
    done = raw(board, "/api/groups", method="POST", body=b"{", Content_Type="application/json", Content_Length="1")
    assert done == (400, b'{"error":"the request is not JSON"}')


def test_only_this_machine_is_answered(make_run, serve):
    make_run("01")
    board = serve()
    assert board.server.server_address[0] == "127.0.0.1"
    port = board.server.server_address[1]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost", "localhost:9"):
        assert raw(board, "/api/runs", host)[0] == 200
    for host in ("", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", f"localhost.:{port}", "127.0.0.2"):
        for target in ("/", "/api/runs", "/runs/hop/01/run.yaml", "/static/board.js"):
            assert raw(board, target, host)[0] == 403
    own = f"http://127.0.0.1:{port}"
    assert raw(board, "/api/runs", Origin=own)[0] == 200
    for origin in ("http://evil.example", "null", f"http://localhost:{port}", f"https://127.0.0.1:{port}"):
        assert raw(board, "/api/runs", Origin=origin)[0] == 403
    assert "Access-Control-Allow-Origin" not in board.ask("api/runs")[1]


def test_files_of_a_run(make_run, serve):
    folder = make_run("01")
    (folder / "report.html").write_text("<script>1</script>")
    (folder / "video.mp4").write_bytes(bytes(range(100)))
    (folder / "eval.json").write_text("<b>")
    board = serve()
    status, headers, content = board.ask("runs/hop/01/report.html")
    assert (status, content) == (200, b"<script>1</script>")
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none';")
    assert "allow-same-origin" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert board.ask("runs/hop/01/eval.json")[1]["Content-Type"].startswith("text/plain")
    assert board.ask("runs/hop/01/run.yaml")[1]["Content-Type"].startswith("text/plain")
    assert [run["files"] for run in board.answer("api/runs")["runs"]] == [["report.html", "video.mp4", "eval.json"]]


@pytest.mark.parametrize(
    ("asked", "status", "part", "shown"),
    [
        ("bytes=0-9", 206, range(10), "bytes 0-9/100"),
        ("bytes=90-", 206, range(90, 100), "bytes 90-99/100"),
        ("bytes=-5", 206, range(95, 100), "bytes 95-99/100"),
        ("bytes=90-500", 206, range(90, 100), "bytes 90-99/100"),
        ("bytes=100-", 416, range(0), "bytes */100"),
        ("bytes=0-1,4-5", 200, range(100), None),
        ("bytes=9-2", 200, range(100), None),
        ("bytes=-", 200, range(100), None),
        ("pages=1", 200, range(100), None),
    ],
)
def test_a_player_asks_for_parts_of_a_video(make_run, serve, asked, status, part, shown):
    (make_run("01") / "video.mp4").write_bytes(bytes(range(100)))
    found = serve().ask("runs/hop/01/video.mp4", Range=asked)
    assert (found[0], found[2], found[1]["Content-Range"]) == (status, bytes(part), shown)


def test_nothing_else_is_served(make_run, root, tmp_path, serve):
    folder = make_run("01", [1.0])
    (folder / "secret").write_text("secret")
    (tmp_path / "secret").write_text("secret")
    (folder / "report.html").symlink_to(tmp_path / "secret")
    (root / "away").symlink_to(tmp_path)
    os.mkfifo(folder / "video.mp4")
    (folder / "eval.json").mkdir()
    board = serve()
    for target in (
        "/runs/hop/01/secret",
        "/runs/hop/01/metrics.jsonl",
        "/runs/hop/01/../01/run.yaml",
        "/runs/hop/01/..%2f01%2frun.yaml",
        "/runs/hop/01/report.html",
        "/runs/hop/01/video.mp4",
        "/runs/hop/01/eval.json",
        "/runs/../secret",
        "/runs/..%2f..%2fsecret",
        "/runs/hop/%2e%2e/run.yaml",
        "/runs/away/runs/run.yaml",
        f"/runs/{tmp_path}/secret",
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/server.py",
        "/static/page.js",
        "/static/",
        "//etc/passwd",
        "/etc/passwd",
        "/runs/hop/01/run.yaml%00",
        "//[",
        "/%",
    ):
        status, content = raw(board, target)
        assert (status, b"secret" in content) == (404, False), target
    assert raw(board, "/runs/hop/01/run.yaml")[0] == 200
    assert raw(board, "/", method="DELETE")[0] == 501


def test_a_run_that_became_a_link_is_no_longer_served(make_run, root, tmp_path, serve):
    make_run("01").rename(tmp_path / "moved")
    moved = make_run("02")
    board = serve()
    assert raw(board, "/runs/hop/02/run.yaml")[0] == 200
    moved.rename(tmp_path / "other")
    (root / "hop" / "02").symlink_to(tmp_path / "other")
    assert raw(board, "/runs/hop/02/run.yaml")[0] == 404


def test_the_page_loads_nothing_from_elsewhere(serve):
    board = serve()
    status, headers, page = board.ask("")
    assert status == 200
    assert "default-src 'none'; script-src 'self'" in headers["Content-Security-Policy"]
    assert b"http" not in page
    for name in ("board.js", "board.css", "chart.js", "theme.css"):
        assert board.ask(f"static/{name}")[0] == 200
    assert (raw(board, "/", method="HEAD"), len(page) > 1000) == ((200, b""), True)


def test_a_port_that_is_taken(run, root):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, out, err = run("board", f"root={root}", f"port={port}")
    assert (code, out) == (2, "")
    assert err.endswith(f"port={port}: another program listens on it; give another one, or port=0 for a free one\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["root=nowhere"], "root=nowhere: is not a directory; robot-rl train makes it"),
        (["port=70000"], "port=70000: must be in [0, 65535]"),
        (["ports=1"], "unknown key 'ports': did you mean 'port'?"),
    ],
)
def test_bad_input_is_one_line(run, words, line):
    code, out, err = run("board", *words)
    assert (code, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1


def test_ctrl_c_ends_it(make_run, root, tmp_path):
    make_run("01", [1.0])
    words = [sys.executable, "-m", "robot_rl.cli.main", "board", f"root={root}", "port=0"]
    environ = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    process = subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout
    assert process.stdout.readline().startswith(f"{root}: http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "")


def test_a_listening_error_says_why(root, monkeypatch):
    from robot_rl.view.board.server import Server

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Server, "server_bind", refuse)
    with pytest.raises(UserError, match="port=80: permission denied; give another one"):
        Server(root, 80)


def change(board, path, body, origin=None, token=None):
    """The status and answer of a request to change something; by default as the page sends it."""
    origin, token = origin or board.url.rstrip("/"), board.server.token if token is None else token
    status, _, content = board.ask(f"api/{path}", body, Origin=origin, X_Token=token)
    return status, json.loads(content) if content.startswith(b"{") else content


def test_a_run_is_named_tagged_deleted_and_brought_back(make_run, root, serve, run):
    folder = make_run("01", [1.0])
    make_run("02", [1.0])
    board = serve()
    asked = {"run": "hop/01", "name": " best <b> ", "tags": ["paper", "x1"], "note": "two\nlines"}
    assert change(board, "label", asked) == (200, {})
    (one,) = [run for run in board.answer("api/runs")["runs"] if run["name"] == "hop/01"]
    assert (one["label"], one["tags"]) == ("best <b>", ["paper", "x1"])
    assert board.answer("api/run?run=hop/01")["note"] == "two\nlines"
    code, out, _ = run("runs", f"root={root}", "tag=paper")
    assert code == 0
    assert [word in out for word in ("best <b>", "paper x1", "01", "02 ")] == [True, True, True, False]
    assert change(board, "label", {"run": "hop/01"})[0] == 200
    assert not (folder / "labels.json").exists()
    status, answer = change(board, "delete", {"run": "hop/01"})
    assert (status, folder.exists()) == (200, False)
    assert [run["name"] for run in board.answer("api/runs")["runs"]] == ["hop/02"]
    assert change(board, "restore", answer) == (200, {"runs": ["hop/01"]})
    assert (folder / "metrics.jsonl").is_file()
    assert not any((root / ".trash").iterdir())
    assert len(board.answer("api/runs")["runs"]) == 2


def test_only_the_page_changes_runs(make_run, serve):
    folder = make_run("01", [1.0])
    board = serve()
    asked = {"run": "hop/01", "name": "x"}
    port = board.server.server_address[1]
    for path in ("label", "delete", "restore"):
        assert change(board, path, asked, token="wrong")[0] == 400
        assert board.ask(f"api/{path}", asked, X_Token=board.server.token)[0] == 400, "not from a page"
        assert change(board, path, asked, origin="null")[0] == 403
        assert change(board, path, asked, origin=f"http://localhost:{port}")[0] == 403
        assert board.ask(f"api/{path}?run=hop/01")[0] == 404, "nothing changes by GET"
    assert board.server.token in board.ask("")[2].decode()
    assert sorted(path.name for path in folder.iterdir()) == ["metrics.jsonl", "run.yaml"]


def test_a_run_that_is_written_or_behind_a_link_stays(make_run, root, tmp_path, serve):
    folder, moved = make_run("01", [1.0]), make_run("02", [1.0])
    board = serve()
    with lock(folder / "metrics.jsonl"):
        status, answer = change(board, "delete", {"run": "hop/01"})
    assert status == 400
    assert "another process is writing it" in answer["error"]
    moved.rename(tmp_path / "away")
    moved.symlink_to(tmp_path / "away")
    for path in ("delete", "label"):
        assert change(board, path, {"run": "hop/02", "name": "x"})[0] == 400
    assert sorted(path.name for path in (tmp_path / "away").iterdir()) == ["metrics.jsonl", "run.yaml"]
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("path", "body", "line"),
    [
        ("label", {"run": "hop/01", "name": "a\nb"}, "must be one line of at most 80 characters"),
        ("label", {"run": "hop/01", "tags": ["a b"]}, "tags=a b: must be at most 20 words"),
        ("label", {"run": "hop/01", "note": "x" * 4001}, "must have at most 4000 characters"),
        ("label", {"run": "../x"}, "run=../x: no such run"),
        ("delete", [], "run=None: no such run"),
        ("restore", {"trash": "../hop"}, "trash=../hop: nothing of that name"),
    ],
)
def test_a_wrong_change_is_one_line(make_run, serve, path, body, line):
    make_run("01", [1.0])
    status, answer = change(serve(), path, body)
    assert status == 400
    assert line in answer["error"]
