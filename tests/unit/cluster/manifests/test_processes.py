"""The processes of a node, started by the script in the manifest, with stand-ins for the training."""

import os
import signal
import subprocess
import time

import pytest

from robot_rl.cluster.manifests.processes import SCRIPT
from robot_rl.errors import ExitCode

PROCESS = """#!/bin/bash
echo "$RANK $LOCAL_RANK $*" >> "$CALLS"
codes=($CODES)
trap 'exit "${codes[LOCAL_RANK]}"' TERM
if [ -n "$WAITS" ]; then
  echo ready >> "$CALLS.ready"
  while :; do sleep 0.02; done
fi
exit "${codes[LOCAL_RANK]}"
"""


@pytest.fixture
def node(tmp_path):
    """Starts the processes of a node that end with these codes; the calls are in the file."""
    program = tmp_path / "robot-rl"
    program.write_text(PROCESS)
    program.chmod(0o755)

    def start(codes, **more):
        surroundings = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "CALLS": str(tmp_path / "calls"),
            "CODES": " ".join(str(int(code)) for code in codes),
            "NODE_RANK": "1",
            "LOCAL_WORLD_SIZE": str(len(codes)),
            **more,
        }
        return subprocess.Popen(["bash", "-c", SCRIPT, "node", "robot-rl", "worker", "/runs/a b"], env=surroundings)

    return start


def test_every_process_has_its_rank(node, tmp_path):
    assert node([0, 0, 0]).wait(timeout=30) == 0
    assert sorted((tmp_path / "calls").read_text().splitlines()) == [
        f"{3 + local} {local} worker /runs/a b" for local in range(3)
    ]


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([ExitCode.REQUEUE, ExitCode.REQUEUE], ExitCode.REQUEUE),
        ([ExitCode.FAULT, ExitCode.GIVE_UP], ExitCode.GIVE_UP),
        ([ExitCode.DISK_FULL, ExitCode.FAULT], ExitCode.DISK_FULL),
        ([ExitCode.FAULT, ExitCode.USER], ExitCode.USER),
        ([0, ExitCode.FAULT], ExitCode.FAULT),
    ],
)
def test_the_node_ends_with_the_greatest_code(node, codes, code):
    assert node(codes).wait(timeout=30) == code


def test_a_notice_reaches_all_processes_and_their_codes_are_waited_for(node, tmp_path):
    process = node([ExitCode.REQUEUE] * 3, WAITS="1")
    ready = tmp_path / "calls.ready"
    while not ready.exists() or len(ready.read_text().splitlines()) < 3:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == ExitCode.REQUEUE


def test_kubernetes_expands_nothing_in_it():
    assert "$(" not in SCRIPT
    assert "{{" not in SCRIPT
