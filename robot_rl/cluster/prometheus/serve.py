"""Give the metrics to Prometheus: over HTTP, or as a file for the textfile collector of node exporter."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from robot_rl.cluster.prometheus.collector import RunsCollector
from robot_rl.errors import UserError
from robot_rl.files import write_atomic
from robot_rl.runs.outputs import Kind, has_mark

TEXTFILE = Kind(
    what="a file of robot-rl serve-metrics", is_ours=has_mark("# HELP robot_rl_"), endings=(".prom",), streams=False
)
DASHBOARD = Kind(what="a dashboard of robot-rl", is_ours=has_mark('"robot-rl"'), endings=(".json",))
ALERTS = Kind(what="alert rules of robot-rl", is_ours=has_mark("name: robot-rl"), endings=(".yaml", ".yml"))


def require_client() -> None:
    """Raise UserError if prometheus_client is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ModuleNotFoundError:
        raise UserError(
            "serve-metrics: needs the package prometheus-client; pip install 'robot-rl[prometheus]'"
        ) from None


def make_registry(collector: RunsCollector) -> Any:
    """Return a registry with only this collector."""
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry


def start_server(registry: Any, host: str, port: int) -> Any:
    """Start to answer HTTP requests in a thread, and return the server; `server_port` is its port.

    Raises:
        UserError: The address is not one of this machine, or the port cannot be used.
    """
    from prometheus_client import start_http_server

    try:
        server, _ = start_http_server(port, addr=host, registry=registry)
    except socket.gaierror as error:
        raise UserError("host", host, f"is not an address ({error.strerror})", "such as 127.0.0.1") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError("port", port, f"is in use on {host}", "choose another, or port=0 for a free one") from None
        if error.errno == errno.EACCES:
            raise UserError("port", port, "may not be used by this user", "choose one from 1024 on") from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise UserError("host", host, "is not an address of this machine", "such as 127.0.0.1") from None
        raise
    return server


def write_textfile(registry: Any, path: Path) -> None:
    """Write the metrics of now to a file, whole or not at all.

    Raises:
        OSError: The file cannot be written; the previous content is unchanged.
    """
    from prometheus_client import generate_latest

    write_atomic(path, generate_latest(registry))


def repeat(action: Callable[[], None], every_s: float, stop: threading.Event | None = None) -> None:
    """Call `action` now and after each `every_s` seconds, until `stop` is set; once if `every_s` is 0."""
    stop = stop or threading.Event()
    action()
    while every_s and not stop.wait(every_s):
        action()


def packaged(name: str) -> str:
    """Return the text of grafana.json or alerts.yaml."""
    return (Path(__file__).parent / name).read_text()
