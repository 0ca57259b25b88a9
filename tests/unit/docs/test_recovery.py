"""docs/recovery.md: its exit codes are those of the program, and its batch scripts do as described, with a stand-in."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from robot_rl.errors import ExitCode

TEXT = (Path(__file__).parents[3] / "docs" / "recovery.md").read_text()
SRUN = """#!/bin/bash
echo "srun $*" >> "$CALLS"
for i in 0 1; do SLURM_PROCID=$i SLURM_LOCALID=$i SLURM_NTASKS=2 SLURM_NTASKS_PER_NODE=2 "$@" || code=$?; done
exit "${code:-0}"
"""
ROBOT_RL = """#!/bin/bash
echo "robot-rl $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $*" >> "$CALLS"
exit "$CODE"
"""
SCONTROL = """#!/bin/bash
echo "scontrol $*" >> "$CALLS"
echo node7
echo node8
"""
SQUEUE = """#!/bin/bash
echo "${STATE-RUNNING}"
"""


def script(name):
    """A block of the page by its file name."""
    found = re.search(rf"^```bash file={re.escape(name)}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.fixture
def submit(tmp_path):
    """Runs a script where Slurm's commands and robot-rl are stand-ins; returns its exit code and what was called."""
    for name, text in (("srun", SRUN), ("robot-rl", ROBOT_RL), ("scontrol", SCONTROL), ("squeue", SQUEUE)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def call(name, code, **more):
        calls = tmp_path / "calls"
        calls.write_text("")
        surroundings = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "CALLS": str(calls),
            "CODE": str(int(code)),
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NODELIST": "node[7-8]",
            **more,
        }
        done = subprocess.run(["bash", "-c", script(name)], env=surroundings, timeout=30)
        return done.returncode, calls.read_text().splitlines()

    return call


def test_the_table_of_exit_codes_is_the_programs():
    table = TEXT.partition("## Exit codes")[2].partition("\n## ")[0]
    codes = [int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in row.split(",")]
    assert codes == [*sorted(ExitCode), 143, 138, 140]


@pytest.mark.parametrize("code", [ExitCode.REQUEUE, ExitCode.DONE, ExitCode.GIVE_UP, ExitCode.DISK_FULL, 143])
def test_a_job_is_requeued_where_its_state_was_saved(submit, code):
    ended, calls = submit("requeue.sh", code)
    assert ended == code
    assert ("scontrol requeue 4711" in calls) == (code == ExitCode.REQUEUE)
    assert any(call.startswith("srun robot-rl train task=") and " run_id=" in call for call in calls)


def test_a_cancelled_job_is_not_requeued(submit):
    ended, calls = submit("requeue.sh", ExitCode.REQUEUE, STATE="COMPLETING")
    assert ended == ExitCode.REQUEUE
    assert [call for call in calls if call.startswith("scontrol")] == []


def test_srun_gives_every_process_its_rank(submit):
    ended, calls = submit("several.sh", ExitCode.REQUEUE)
    started = [call.split()[1:4] for call in calls if call.startswith("robot-rl")]
    assert (ended, started) == (85, [["0/2", "0/2", "node7:29500"], ["1/2", "1/2", "node7:29500"]])
