"""The board's server, on this machine's loopback address only.

A page from elsewhere in the same browser could also ask it. So requests are answered only if their Host is this
machine (which a name that was made to lead here is not) and their Origin, if any, is this server; answers do not give
permission to others. What changes a run must also have the token that only the page contains. Content of a run that
may come from another person is shown as text, or in its own sandbox.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, unquote

from robot_rl.errors import UserError
from robot_rl.view.board.answers import Board, to_json
from robot_rl.view.board.table import RunTable
from robot_rl.view.shell import STATIC

ADDRESS = "127.0.0.1"
HOSTS = ("127.0.0.1", "localhost")
PARTS = {file.name: file for file in (*(STATIC / "board").iterdir(), STATIC / "theme.css", STATIC / "chart.js")}
"""The page and its parts, by name; those of all pages are the last two."""
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
RUN_TYPES = {
    "report.html": "text/html; charset=utf-8",
    "video.mp4": "video/mp4",
    "run.yaml": "text/plain; charset=utf-8",
    "eval.json": "text/plain; charset=utf-8",
}
"""The only files of a run that are served."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
RUN_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; media-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
REFRESH_S = 1.0
"""The files are looked at again at most this often [s]."""
MAX_BODY, PART = 8 * 2**20, 2**18


class Server(ThreadingHTTPServer):
    """Serves the page, its data and the runs' files; `serve_forever` until it is closed.

    Args:
        root: The directory of all runs.
        port: TCP port; 0 takes a free one.
        index: File of the index of runs; by default one in the user's cache directory.

    Raises:
        UserError: `root` is not a directory, or the port cannot be listened on.
    """

    daemon_threads = True

    def __init__(self, root: str | Path, port: int = 0, index: Path | None = None) -> None:
        self.table, self._over = RunTable(root, index), threading.Event()
        self.board, self.token = Board(self.table), secrets.token_urlsafe(24)
        try:
            super().__init__((ADDRESS, port), Handler)
        except OSError as error:
            is_taken = error.errno == errno.EADDRINUSE
            reason = "another program listens on it" if is_taken else (error.strerror or str(error)).lower()
            raise UserError("port", port, reason, "give another one, or port=0 for a free one") from None
        threading.Thread(target=self._read_settings, daemon=True).start()

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{ADDRESS}:{self.server_address[1]}/"

    def server_bind(self) -> None:
        """Listen, without looking up a name of this machine, for which a network may be asked."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.server_address[1]

    def server_close(self) -> None:
        """Stop listening."""
        self._over.set()
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing if the browser has closed the connection in the middle of an answer."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def _read_settings(self) -> None:
        """Read the settings that the index lacks, a part at a time."""
        self.table.refresh()
        while not self._over.wait(0.0 if self.table.read_pending() else REFRESH_S / 2):
            pass


class Handler(BaseHTTPRequestHandler):
    """Answers a request."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "robot-rl", ""
    timeout = 60
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: a page asks every few seconds."""

    def do_GET(self) -> None:
        """Answer GET: the page, its parts, its data, a run's file."""
        self._answer({"runs": self._runs, "run": self._run, "diff": self._diff})

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Answer POST, in JSON: questions about many runs, and changes of one."""
        board = self.server.board
        changes = {"label": board.label, "delete": board.delete, "restore": board.restore}
        answers = {"curves": board.curves, "groups": board.groups} | changes

        def answer(name: str) -> Any:
            if name in changes and not self._is_the_page():
                raise UserError("only the page itself changes runs; load it again")
            return answers[name](self._body())

        self._answer({name: partial(answer, name) for name in answers})

    def _answer(self, answers: dict[str, Callable[[], Any]]) -> None:
        # A body that nobody reads would be the next request of the connection.
        self._has_body = any(
            self.headers.get(name) not in (None, "0") for name in ("Content-Length", "Transfer-Encoding")
        )
        try:
            if not self._is_from_here():
                self._send(HTTPStatus.FORBIDDEN, b"this address is not that of robot-rl board\n", "text/plain")
                return
            path = unquote(self.path.partition("?")[0])
            if path.startswith(("/api/", "/runs/")):
                self.server.table.refresh(REFRESH_S)
            if path.startswith("/api/") and path[5:] in answers:
                self._send(HTTPStatus.OK, to_json(answers[path[5:]]()), "application/json")
            elif self.command == "POST" or not (self._send_static(path) or self._send_run_file(path)):
                self._send(HTTPStatus.NOT_FOUND, b"this page does not exist\n", "text/plain")
        except UserError as error:
            self._send(HTTPStatus.BAD_REQUEST, to_json({"error": str(error)}), "application/json")

    def _is_from_here(self) -> bool:
        """Whether a request was meant for this server and comes from its own page, or from no page."""
        host = self.headers.get("Host", "")
        origin = self.headers.get("Origin")
        name = host.rpartition(":")[0] if ":" in host else host
        return name in HOSTS and (origin is None or origin == f"http://{host}")

    def _is_the_page(self) -> bool:
        """Whether a request has the token of the page, and the Origin that a browser gives it."""
        token = self.headers.get("X-Token", "").encode()
        return "Origin" in self.headers and secrets.compare_digest(token, self.server.token.encode())

    def _query(self) -> dict[str, str]:
        return dict(parse_qsl(self.path.partition("?")[2]))

    def _body(self) -> Any:
        """Return the JSON of a request."""
        length = _whole(self.headers.get("Content-Length"))
        if self.headers.get_content_type() != "application/json" or length is None or length > MAX_BODY:
            raise UserError(f"the request must be JSON of at most {MAX_BODY} bytes")
        data, self._has_body = self.rfile.read(length), False
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise UserError("the request is not JSON") from None

    def _runs(self) -> Any:
        query = self._query()
        is_known = query.get("id") == self.server.table.id
        since, bases = (_whole(query.get(key)) or 0 if is_known else 0 for key in ("since", "bases"))
        return self.server.board.runs(since, bases, [name for name in query.get("metrics", "").split(",") if name])

    def _run(self) -> Any:
        return self.server.board.run(self._query().get("run", ""))

    def _diff(self) -> Any:
        query = self._query()
        return self.server.board.diff(query.get("one", ""), query.get("other", ""))

    def _send_static(self, path: str) -> bool:
        """Send a part of the page, by the names that are in its directory."""
        name = "board.html" if path == "/" else path.removeprefix("/static/")
        if name not in PARTS:
            return False
        data = PARTS[name].read_bytes().replace(b"{token}", self.server.token.encode())
        self._send(HTTPStatus.OK, data, TYPES[PARTS[name].suffix])
        return True

    def _send_run_file(self, path: str) -> bool:
        """Send a file of a run that is in the table: /runs/<folder of the task>/<run id>/<one of RUN_TYPES>."""
        match = re.fullmatch(r"/runs/([^/]+/[^/]+)/([^/]+)", path)
        if match is None or match[2] not in RUN_TYPES or match[1] not in self.server.table.runs:
            return False
        with open_inside(self.server.table.root, (*match[1].split("/"), match[2])) as stream:
            if stream is None:
                return False
            self._send_part(stream, RUN_TYPES[match[2]])
        return True

    def _send_part(self, stream: BinaryIO, kind: str) -> None:
        """Send a file, or the range of it that a video player asks for."""
        size = os.fstat(stream.fileno()).st_size
        first, last = _range(self.headers.get("Range"), size)
        if first >= size > 0:
            self._head(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, kind, 0, {"Content-Range": f"bytes */{size}"})
            return
        more = {"Accept-Ranges": "bytes", "Content-Security-Policy": RUN_POLICY}
        is_part = (first, last) != (0, size - 1)
        more |= {"Content-Range": f"bytes {first}-{last}/{size}"} if is_part else {}
        self._head(HTTPStatus.PARTIAL_CONTENT if is_part else HTTPStatus.OK, kind, last - first + 1, more)
        stream.seek(first)
        left = last - first + 1 if self.command != "HEAD" else 0
        while left > 0 and (data := stream.read(min(PART, left))):
            self.wfile.write(data)
            left -= len(data)
        self.close_connection = self.close_connection or left > 0

    def _send(self, status: HTTPStatus, data: bytes, kind: str) -> None:
        self._head(status, kind, len(data), {"Content-Security-Policy": POLICY})
        if self.command != "HEAD":
            self.wfile.write(data)

    def _head(self, status: HTTPStatus, kind: str, length: int, more: dict[str, str]) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(length),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            **more,
        }
        if self._has_body:
            headers["Connection"] = "close"  # It also closes the connection.
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def _whole(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"[0-9]{1,15}", text) else None


def _range(text: str | None, size: int) -> tuple[int, int]:
    """Return the first and last byte of a Range header; those of the whole file if it is missing or not understood."""
    match = re.fullmatch(r"bytes=([0-9]{0,15})-([0-9]{0,15})", text or "")
    if match is None or not (match[1] or match[2]) or (match[1] and match[2] and int(match[2]) < int(match[1])):
        return 0, size - 1
    if not match[1]:
        return max(0, size - int(match[2])), size - 1
    return int(match[1]), min(size - 1, int(match[2])) if match[2] else size - 1


@contextlib.contextmanager
def open_inside(root: Path, parts: tuple[str, ...]) -> Iterator[BinaryIO | None]:
    """Open a plain file below a directory, a part of its path at a time and through no link; None: there is none."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    with contextlib.ExitStack() as stack:
        try:
            folder = os.open(root, flags | os.O_DIRECTORY)
            stack.callback(os.close, folder)
            for part in parts[:-1]:
                folder = os.open(part, flags | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                stack.callback(os.close, folder)
            file = os.open(parts[-1], flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            stack.callback(os.close, file)
        except (OSError, ValueError):
            yield None
            return
        is_plain = stat.S_ISREG(os.fstat(file).st_mode)
        yield stack.enter_context(open(file, "rb", closefd=False)) if is_plain else None


def serve(root: str | Path, port: int, ready: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C.

    Args:
        root: The directory of all runs.
        port: TCP port; 0 takes a free one.
        ready: Called with the page's address once it can be opened.

    Raises:
        UserError: `root` is not a directory, or the port cannot be listened on.
    """
    with Server(root, port) as server, contextlib.suppress(KeyboardInterrupt):
        ready(server.url)
        server.serve_forever()
