"""The fault proxy as a child process, whichever transport it stands on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robot_rl.sim2sim.between import Between
from robot_rl.sim2sim.binary import hurried, tied
from robot_rl.sim2sim.faults import Fault, dump_faults, load_faults

READY = "ready"
START_S, STOP_S = 20.0, 5.0


class ProxyProcess:
    """The proxy as a child process."""

    def __init__(self, folder: Path, *, faults: Sequence[Fault], **where: str) -> None:
        """Starts it and waits until it listens.

        Args:
            folder: For its report.
            faults: The script.
            where: The addresses "front", "robot", "desk" and "operator"; see `Proxy`, or with "contract" `Relay`.

        Raises:
            RuntimeError: It does not come up.
        """
        self._report = folder / "proxy.json"
        given = {**where, "faults": dump_faults(faults)}
        words = [sys.executable, "-m", "robot_rl.sim2sim.proxy_process", json.dumps(given), str(self._report)]
        self._process = subprocess.Popen(tied(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if line != READY:
            raise RuntimeError(f"the fault proxy said '{line}' and ended with {self._process.wait(START_S)}")

    def stop(self) -> None:
        """Asks it to end and waits."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def report(self) -> list[dict[str, Any]]:
        """A row a fault, once it has ended."""
        try:
            return json.loads(self._report.read_text())
        except (OSError, ValueError):
            return []


def make_proxy(given: dict[str, Any]) -> Between:
    """The proxy that fits the addresses: with a contract it relays."""
    if "contract" in given:
        from robot_rl.sim2sim.relay import Relay

        return Relay(**given)
    from robot_rl.sim2sim.proxy import Proxy

    return Proxy(**given)


def main(words: Sequence[str]) -> int:
    """The process: settings as JSON, and where to write the report."""
    given = json.loads(words[0])
    given["faults"] = load_faults(given["faults"])
    proxy = make_proxy(given)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, proxy.stop)
    sys.stdout.write(READY + "\n")
    sys.stdout.flush()
    with hurried():
        proxy.run()
    Path(words[1]).write_text(json.dumps(proxy.report(), allow_nan=False))
    failure = getattr(proxy, "failure", "")
    if failure:
        sys.stderr.write(f"robot-rl: the fault proxy: {failure}\n")
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
