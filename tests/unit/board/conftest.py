"""Small runs made by hand, and a board that serves them."""

import json
import threading
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
import yaml

from robot_rl.view.board.server import Server
from robot_rl.view.board.table import RunTable


@pytest.fixture
def root(tmp_path):
    """The directory of all runs, empty."""
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def index(tmp_path):
    """The file of the index of runs, which is not there yet."""
    return tmp_path / "index.json"


@pytest.fixture
def make_run(root):
    """make_run(name, values, task="hop", **settings): a run whose goal had these values; returns its directory."""

    def make(name, values=(), task="hop", **settings):
        folder = root / task / name
        folder.mkdir(parents=True)
        config = {"task": task, "seed": 1, "max_iterations": 3, "learner": "ppo", "ppo": {"gamma": 0.9}, **settings}
        record = {"created": f"2026-01-01T00:00:{name}", "config": config, "solved": ["tracking/height", 0.5]}
        (folder / "run.yaml").write_text(yaml.safe_dump(record))
        rows = (
            {"iteration": i, "env_steps": 100 * i, "time_s": 2.0 * i, "tracking/height": value, "loss/value": -value}
            for i, value in enumerate(values, 1)
        )
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return folder

    return make


@pytest.fixture
def table(root, index):
    """table(): the table of the runs, all of them read."""

    def make():
        found = RunTable(root, index)
        found.refresh()
        while found.read_pending():
            pass
        return found

    return make


@pytest.fixture
def serve(root, index, table):
    """serve(): a board; .ask(path, body=None, **headers) returns status, headers and content, .url is its page."""
    servers = []

    def start():
        table()
        server = Server(root, 0, index)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

        def ask(path, body=None, **headers):
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            data = None if body is None else json.dumps(body).encode()
            kind = {"Content-Type": "application/json"} if data else {}
            request = urllib.request.Request(server.url + path.lstrip("/"), data, kind | names)
            try:
                with urllib.request.urlopen(request, timeout=30) as reply:
                    return reply.status, reply.headers, reply.read()
            except urllib.error.HTTPError as error:
                return error.code, error.headers, error.read()

        def answer(path, body=None):
            status, _, content = ask(path, body)
            assert status == 200, content
            return json.loads(content)

        return SimpleNamespace(url=server.url, ask=ask, answer=answer, server=server)

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
