"""Give the state of runs to Prometheus, from their files: over HTTP on this machine, or as a textfile.

usage: robot-rl serve-metrics [run=RUN] [key=value ...]

{Options}

  robot-rl serve-metrics                                        http://127.0.0.1:9848/metrics of all runs below runs/
  robot-rl serve-metrics run=go2_flat/latest                    only the newest run of a task
  robot-rl serve-metrics textfile=/var/lib/node_exporter/robot_rl.prom every=15
  robot-rl serve-metrics dashboard=robot_rl.json                the dashboard for Grafana; - prints it
  robot-rl serve-metrics alerts=robot_rl.yaml                   alert rules for Prometheus; - prints them

Ctrl-C ends it. Needs the package prometheus-client (pip install 'robot-rl[prometheus]').
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.cli.options import option, read_all
from robot_rl.errors import UserError

if TYPE_CHECKING:
    from robot_rl.runs.outputs import Kind


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl serve-metrics."""

    run: str = option("", "one run: its id, latest or <task>/latest; all by default")
    root: str = option("runs", "the directory of all runs")
    task: str = option("", "only runs of this task")
    runs: int = option(20, "most runs: those that are trained, then the newest", least=1, most=1000)
    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 lets other machines in")
    port: int = option(9848, "TCP port; 0 takes a free one", least=0, most=65535)
    textfile: str = option("", "instead of serving: a file ending in .prom for node exporter's textfile collector")
    every: float = option(0.0, "write the textfile again after so long [s]; 0 writes it once", least=0, most=86_400)
    dashboard: str = option("", "write the dashboard for Grafana to this file, and end")
    alerts: str = option("", "write alert rules for Prometheus to this file, and end")


def run(arguments: Sequence[str]) -> int:
    """Serve, or write the requested files."""
    from robot_rl.cluster.prometheus.collector import RunsCollector, RunSource
    from robot_rl.cluster.prometheus.serve import (
        ALERTS,
        DASHBOARD,
        TEXTFILE,
        make_registry,
        repeat,
        require_client,
        start_server,
        write_textfile,
    )
    from robot_rl.runs.outputs import check_output

    options = read_all(Options, arguments, first="run")
    if options.every and not options.textfile:
        raise UserError("every", f"{options.every:g}", "is for textfile=", "a server reads the files at each scrape")
    if options.dashboard or options.alerts:
        _write_packaged("dashboard", options.dashboard, "grafana.json", DASHBOARD)
        _write_packaged("alerts", options.alerts, "alerts.yaml", ALERTS)
        return 0
    require_client()
    source = RunSource(root=Path(options.root), run=options.run, task=options.task, most=options.runs)
    source.read(time.time())
    registry = make_registry(RunsCollector(source))
    if options.textfile:
        if not Path(options.textfile).absolute().parent.is_dir():
            raise UserError("textfile", options.textfile, "the directory does not exist", "name one that exists")
        path = check_output("textfile", options.textfile, TEXTFILE)
        with contextlib.suppress(KeyboardInterrupt):
            repeat(lambda: write_textfile(registry, path), options.every)
        return 0
    server = start_server(registry, options.host, options.port)
    try:
        print(f"http://{options.host}:{server.server_port}/metrics  (Ctrl-C ends it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:  # A wait without end may miss a signal that comes just before it.
                time.sleep(1.0)
    finally:
        server.shutdown()
        server.server_close()
    return 0


def _write_packaged(key: str, name: str, content: str, kind: "Kind") -> None:
    """Write a file that comes with the package to the path that the user gives; "-" is standard output, "" nowhere."""
    from robot_rl.cluster.prometheus.serve import packaged
    from robot_rl.files import write_atomic
    from robot_rl.runs.outputs import check_output

    if name == "-":
        print(packaged(content), end="")
    elif name:
        path = check_output(key, name, kind)
        write_atomic(path, packaged(content))
        print(path)
