"""The batch script, run with stand-ins for Slurm's commands."""

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from robot_rl.cluster.launchers.slurm import SbatchJob, script
from robot_rl.errors import ExitCode, UserError

SRUN = """#!/bin/bash
echo "srun $*" >> "$CALLS"
while [[ "$1" == --* ]]; do shift; done
for i in 0 1 2 3; do
  SLURM_PROCID=$i SLURM_LOCALID=$((i % 2)) SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2 "$@" || code=$?
done
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
echo "squeue $*" >> "$CALLS"
echo "${STATE-RUNNING}"
"""
FULL = SbatchJob(
    runs=Path("/scratch/my runs/go2_flat/rough-1"),
    name="rough-1",
    nodes=2,
    ranks=2,
    gpus=2,
    cpus=8,
    memory="16G",
    time="1-04:00:00",
    partition="gpu,spot",
    options=("--account=lab", "--exclusive"),
    log="/scratch/my runs/go2_flat/rough-1/slurm-%j.out",
    setup=("export FIRST=1",),
    made_by="robot-rl manifest run=rough-1 target=sbatch",
)


@pytest.fixture
def submit(tmp_path):
    """Runs a script where Slurm's commands and robot-rl are stand-ins; returns its exit code and what was called."""
    for name, text in (("srun", SRUN), ("robot-rl", ROBOT_RL), ("scontrol", SCONTROL), ("squeue", SQUEUE)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def call(text, code, **more):
        calls = tmp_path / "calls"
        calls.write_text("")
        surroundings = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "CALLS": str(calls),
            "CODE": str(int(code)),
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NODELIST": "node[7-8]",
            "SLURM_CPUS_PER_TASK": "8",
            **more,
        }
        done = subprocess.run(["bash", "-c", text], env=surroundings, timeout=30, capture_output=True, text=True)
        return done.returncode, calls.read_text().splitlines(), done.stderr

    return call


def directives(text):
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]


def test_everything_that_is_requested_is_a_line():
    assert directives(script(FULL)) == [
        "--job-name=rough-1",
        "--partition=gpu,spot",
        "--nodes=2",
        "--ntasks-per-node=2",
        "--cpus-per-task=8",
        "--gres=gpu:2",
        "--mem=32768M",
        "--time=1-04:00:00",
        '--output="/scratch/my runs/go2_flat/rough-1/slurm-%j.out"',
        "--requeue",
        "--open-mode=append",
        "--signal=USR1@120",
        "--account=lab",
        "--exclusive",
    ]
    assert directives(script(SbatchJob(runs=Path("/runs/a")))) == [
        "--job-name=robot-rl",
        "--nodes=1",
        "--ntasks-per-node=1",
        "--requeue",
        "--open-mode=append",
        "--signal=USR1@120",
    ]


def test_the_script_begins_as_slurm_wants_it():
    lines = script(FULL).splitlines()
    assert lines[0] == "#!/bin/bash"
    assert lines[2] == "# robot-rl manifest run=rough-1 target=sbatch"
    commands = [number for number, line in enumerate(lines) if line and not line.startswith("#")]
    assert max(number for number, line in enumerate(lines) if line.startswith("#SBATCH")) < commands[0]
    assert lines[commands[0]] == "export FIRST=1"
    assert max(len(line) for line in lines) <= 120


@pytest.mark.parametrize("code", [*ExitCode, 137, 138, 140, 143])
def test_a_job_is_requeued_where_its_state_was_saved_and_only_there(submit, code):
    ended, calls, errors = submit(script(FULL), code)
    assert (ended, errors) == (code, "")
    requeued = [call for call in calls if call.startswith("scontrol requeue")]
    assert requeued == (["scontrol requeue 4711"] if code in (ExitCode.REQUEUE, ExitCode.FAULT) else [])


def test_a_lost_process_is_replaced_so_often_and_not_more(submit):
    for count, again in (("2", True), ("3", False)):
        _, calls, _ = submit(script(FULL), ExitCode.FAULT, SLURM_RESTART_COUNT=count)
        assert ("scontrol requeue 4711" in calls) == again


def test_a_fault_of_a_single_process_is_not_repeated(submit):
    _, calls, _ = submit(script(dataclasses.replace(FULL, nodes=1, ranks=1)), ExitCode.FAULT)
    assert not any(call.startswith("scontrol requeue") for call in calls)


@pytest.mark.parametrize(("state", "again"), [("RUNNING", True), ("COMPLETING", False), ("", True)])
def test_a_cancelled_job_is_not_requeued(submit, state, again):
    """Where the controller does not answer it is: a run that waits is better than one that is lost."""
    code, calls, _ = submit(script(FULL), ExitCode.REQUEUE, STATE=state)
    assert code == ExitCode.REQUEUE
    assert "squeue --noheader --format=%T --jobs=4711" in calls
    assert ("scontrol requeue 4711" in calls) == again


def test_every_process_gets_its_rank_and_the_run(submit):
    _, calls, _ = submit(script(FULL), 0)
    assert [call for call in calls if call.startswith("robot-rl")] == [
        f"robot-rl {rank}/4 {rank % 2}/2 node7:24711 worker /scratch/my runs/go2_flat/rough-1" for rank in range(4)
    ]
    (srun,) = [call for call in calls if call.startswith("srun")]
    assert srun.startswith("srun --kill-on-bad-exit=0 --wait=120 --cpus-per-task=8 bash -c")


def test_a_job_of_an_array_trains_its_line_and_requeues_itself_only(submit, tmp_path):
    file = tmp_path / "runs.txt"
    file.write_text("/runs/a\n/runs/b b\n")
    job = SbatchJob(runs=file, count=2, at_once=1)
    assert "--array=0-1%1" in directives(script(job))
    assert "--array=0-1" in directives(script(SbatchJob(runs=file, count=2)))
    words = {"SLURM_ARRAY_JOB_ID": "4700", "SLURM_ARRAY_TASK_ID": "1"}
    code, calls, _ = submit(script(job), ExitCode.REQUEUE, **words)
    assert code == ExitCode.REQUEUE
    assert calls[-1] == "scontrol requeue 4700_1"
    assert calls[2].endswith(" worker /runs/b b")
    code, calls, errors = submit(script(job), 0, **words | {"SLURM_ARRAY_TASK_ID": "2"})
    assert (code, calls) == (ExitCode.USER, [])
    assert errors == "the file of runs has no run in line 3\n"


def test_no_word_of_the_settings_is_run_by_the_shell(submit, tmp_path):
    run = Path("/runs/$(touch made)'; touch made; '")
    job = SbatchJob(runs=run, command=("robot-rl", "worker", "$(touch made)"))
    code, calls, _ = submit(f"cd {tmp_path}\n{script(job)}", 0)
    assert code == 0
    assert calls[2].endswith(f"worker $(touch made) {run}")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"runs": Path("runs/a")}, "run=runs/a: must be an absolute path"),
        ({"runs": Path("/runs/a\nb")}, "must be an absolute path without quotes and control characters"),
        ({"runs": Path("runs.txt"), "count": 2}, "file=runs.txt: must be an absolute path"),
        ({"name": "a b"}, "name=a b: must be of letters"),
        ({"name": "a\n#SBATCH --wrap"}, "must be of letters"),
        ({"options": ("-p gpu",)}, "options=-p gpu: must be written --name=value"),
        ({"time": "soon"}, "time=soon: no time; write it as hours:minutes:seconds"),
        ({"time": "00:02:00"}, "time=00:02:00: must be longer than the notice of 120 s"),
    ],
)
def test_what_sbatch_would_misread_is_one_line(wrong, line):
    with pytest.raises(UserError) as error:
        SbatchJob(**{"runs": Path("/runs/a"), **wrong})
    assert line in str(error.value)
    assert "\n" not in str(error.value)
