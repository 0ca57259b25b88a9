"""Slurm's settings, as scontrol prints them."""

import pytest

from robot_rl.cluster.launchers import slurm_checks
from robot_rl.cluster.launchers.slurm import Slurm
from robot_rl.cluster.launchers.slurm_checks import SlurmFacts, check_slurm, parse_config, parse_partitions, read_slurm
from robot_rl.cluster.preflight.finding import FAIL, OK, WARN
from robot_rl.errors import UserError

CONFIG = """Configuration data as of 2026-11-25T17:31:20
AuthInfo                = socket=/run/munge,cred_expire=5
JobRequeue              = 1
PreemptMode             = REQUEUE
PreemptType             = preempt/partition_prio
"""
PARTITIONS = (
    "PartitionName=low Default=YES GraceTime=60 MaxNodes=UNLIMITED MaxTime=1-00:00:00 PreemptMode=REQUEUE State=UP "
    "TotalNodes=2\n"
    "PartitionName=high Default=NO GraceTime=0 MaxNodes=1 MaxTime=UNLIMITED PreemptMode=OFF State=UP TotalNodes=2\n"
)


def make_facts(old="", new="", refusal="", iteration_s=None, **launcher):
    assert old in CONFIG + PARTITIONS
    config, partitions = (text.replace(old, new) if old else text for text in (CONFIG, PARTITIONS))
    return SlurmFacts(
        launcher=Slurm(**launcher),
        refusal=refusal,
        config=parse_config(config),
        partitions=parse_partitions(partitions),
        iteration_s=iteration_s,
    )


def test_everything_is_right():
    findings = dict(check_slurm(make_facts(nodes=2, time="24:00:00", iteration_s=6.5)))
    assert {name: finding.status for name, finding in findings.items()} == dict.fromkeys(
        ("request", "time limit", "preemption", "cred_expire", "requeue"), OK
    )
    assert findings["preemption"].found == "PreemptMode=REQUEUE, GraceTime of low 60 s"


@pytest.mark.parametrize(
    ("check", "options", "status", "found"),
    [
        ("request", {"partition": "hihg"}, FAIL, "launcher.partition=hihg: is not a partition"),
        ("request", {"nodes": 3}, FAIL, "launcher.nodes=3: partition low has TotalNodes=2"),
        ("request", {"nodes": 2, "partition": "high"}, FAIL, "partition high has MaxNodes=1"),
        ("request", {"old": "State=UP", "new": "State=DOWN"}, FAIL, "partition low is DOWN"),
        ("request", {"refusal": "launcher.gpus=9: no node has more than 8; give fewer"}, FAIL, "launcher.gpus=9"),
        ("time limit", {"time": "24:00:01"}, FAIL, "launcher.time=24:00:01: partition low has MaxTime=1-00:00:00"),
        ("cred_expire", {"old": ",cred_expire=5", "new": ""}, WARN, "is without cred_expire: a requeued job is held"),
        ("cred_expire", {"old": "expire=5", "new": "expire=90"}, WARN, "cred_expire=90"),
        ("preemption", {"old": "GraceTime=60", "new": "GraceTime=0"}, FAIL, "partition low has GraceTime=0"),
        ("preemption", {"iteration_s": 90.0}, WARN, "GraceTime=60: an iteration takes 90.0 s"),
        ("preemption", {"old": "PreemptMode=REQUEUE", "new": "PreemptMode=CANCEL"}, FAIL, "jobs end"),
        ("preemption", {"old": "PreemptMode=REQUEUE", "new": "PreemptMode=GANG,SUSPEND"}, WARN, "keeps its memory"),
        ("requeue", {"old": "JobRequeue              = 1", "new": "JobRequeue = 0"}, WARN, "JobRequeue=0"),
    ],
)
def test_a_setting_that_costs_a_run(check, options, status, found):
    finding = dict(check_slurm(make_facts(**options)))[check]
    assert finding.status == status
    assert found in finding.found
    assert finding.right


def test_an_unknown_partition_is_answered_with_the_known_ones():
    findings = dict(check_slurm(make_facts(partition="hihg", refusal="launcher.partition=hihg: ...; did you mean")))
    assert findings["request"].right == "one of low, high"
    assert list(findings) == ["request", "cred_expire", "requeue"]


@pytest.mark.parametrize(
    "options",
    [
        {"partition": "high"},
        {"old": "preempt/partition_prio", "new": "preempt/none"},
    ],
)
def test_grace_does_not_matter_where_nothing_preempts(options):
    assert slurm_checks.check_preemption(make_facts(**options)).found == "PreemptMode=OFF: no job is preempted"


def test_without_slurm_only_the_request_is_checked(monkeypatch):
    def refuse(*_):
        raise UserError("launcher=slurm: scontrol is not on this machine")

    monkeypatch.setattr(slurm_checks, "ask", refuse)
    monkeypatch.setenv("PATH", "")
    ((name, finding),) = check_slurm(read_slurm(Slurm()))
    assert (name, finding.status) == ("request", FAIL)
    assert finding.found == "launcher=slurm: sbatch is not on this machine"
    assert finding.right == "give the command on a login node"
