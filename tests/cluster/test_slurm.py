"""The Slurm cluster of these tests: it runs jobs on two nodes, preempts and requeues them, and leaves nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.cluster.slurm import NODES, listening

pytestmark = pytest.mark.long

PREEMPTED = """
trap : TERM
echo start $SLURM_RESTART_COUNT
srun bash -c 'trap "exit 85" TERM; for _ in {1..600}; do sleep 0.1; done'
code=$?
echo end $code
if [ $code -eq 85 ]; then scontrol requeue $SLURM_JOB_ID; fi
exit $code
"""
# What a test that is interrupted leaves: a cluster with a job, and nobody who closes it.
ABANDONED = """
import time
from tests.cluster.slurm import SlurmCluster
with SlurmCluster() as cluster:
    job = cluster.submit("echo up; sleep 1000")
    cluster.until(lambda: cluster.output(job) == "up\\n", "output")
    print(cluster.folder, cluster.supervisor.pid, flush=True)
    time.sleep(1000)
"""


def test_a_job_runs_a_process_on_each_node(slurm):
    job = slurm.submit("srun bash -c 'echo $SLURM_PROCID $SLURMD_NODENAME'", "--nodes=2", "--ntasks-per-node=1")
    facts = slurm.wait(job, "COMPLETED")
    assert facts["ExitCode"] == "0:0"
    assert sorted(slurm.output(job).splitlines()) == [f"{rank} {node}" for rank, node in enumerate(NODES)]


def test_it_listens_on_loopback_only(slurm):
    if "NoInAddrAny" not in listening().split(","):
        pytest.skip("this machine's name is no address of loopback")
    daemons = {process.pid for process in psutil.Process(slurm.supervisor.pid).children(recursive=True)}
    sockets = [found for found in psutil.net_connections("inet") if found.pid in daemons]
    listens = [found.laddr[0] for found in sockets if found.status == psutil.CONN_LISTEN]
    assert len(listens) >= 3
    assert {ip for ip in listens if not ip.startswith("127.")} == set()


def test_a_preempted_job_gets_a_notice_and_starts_again(slurm):
    job = slurm.submit(PREEMPTED, "--partition=low", "--nodes=2", "--ntasks-per-node=1", "--exclusive", "--requeue")
    slurm.wait(job, "RUNNING")
    slurm.until(lambda: "start" in slurm.output(job), "a start")
    time.sleep(1.0)  # The processes of srun set their traps.
    urgent = slurm.submit("exit", "--partition=high", "--nodes=2", "--exclusive")
    slurm.wait(urgent, "COMPLETED")
    slurm.until(lambda: slurm.output(job).count("start") == 2, "second start")
    assert slurm.facts(job)["Restarts"] == "1"
    lines = [line for line in slurm.output(job).splitlines() if line.split()[0] in ("start", "end")]
    assert lines == ["start", "end 85", "start 1"]


def test_an_array_of_four(slurm):
    job = slurm.submit("echo $SLURM_ARRAY_TASK_ID", "--array=0-3", f"--output={slurm.folder}/array-%a.out")
    slurm.until(lambda: not slurm.command("squeue", "--noheader", "--jobs", job).strip(), "end of the array")
    assert [(slurm.folder / f"array-{k}.out").read_text() for k in range(4)] == ["0\n", "1\n", "2\n", "3\n"]


def test_the_job_of_a_lost_node_starts_on_another(slurm):
    job = slurm.submit("echo $SLURMD_NODENAME; srun sleep 300", "--partition=low", "--requeue")
    slurm.until(lambda: slurm.output(job).count("\n") == 1, "a start")
    lost = slurm.output(job).strip()
    slurm.kill_node(lost)
    slurm.until(lambda: slurm.output(job).count("\n") == 2, "second start", 120)
    slurm.start_node(lost)
    (other,) = {*NODES} - {lost}
    assert slurm.output(job).split() == [lost, other]


def test_nothing_is_left_of_a_cluster_whose_owner_is_killed():
    owner = subprocess.Popen([sys.executable, "-c", ABANDONED], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    folder, pid = owner.stdout.readline().split()
    supervisor = psutil.Process(int(pid))
    mine = [supervisor, *supervisor.children(recursive=True)]
    assert {"munged", "slurmctld", "slurmd", "slurmstepd", "sleep"} <= {process.name() for process in mine}
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    _, alive = psutil.wait_procs(mine, timeout=30)
    assert alive == []
    assert not Path(folder).exists()
