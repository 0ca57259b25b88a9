"""Check a cluster before a run: versions, clocks, shared root, ports, disks, variables of NCCL, Slurm.

usage: robot-rl preflight [launcher=<name>] [launcher.<setting>=<value> ...] [key=value ...]

{Options}

  robot-rl preflight                                     this machine
  robot-rl preflight launcher=slurm launcher.nodes=2 launcher.gpus=8 launcher.partition=spot root=/scratch/runs
  robot-rl preflight launcher=ray launcher.nodes=4
  robot-rl preflight probe=true                          the facts of this machine as JSON

Give the launcher and its settings as to robot-rl train. A probe is started on each node as its processes would be:
by srun, as a task of Ray; of torchrun's machines only on this one. Exits with 0, or with 1 if a check fails.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.cli.launching import read_launcher_words
from robot_rl.cli.options import option, read_all
from robot_rl.cli.table import print_table
from robot_rl.errors import ExitCode, UserError

WIDTH = 150


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl preflight."""

    root: str = option("runs", "where runs will be")
    probe: bool = option(False, "print the facts of this machine as JSON")
    token: str = option("", "with probe=true: the submitter's file below the root; another probe sets it")


def run(arguments: Sequence[str]) -> int:
    """Print the table of findings, or the facts of this machine."""
    words, launcher = read_launcher_words(arguments)
    options = read_all(Options, words)
    root = Path(options.root).absolute()
    if options.probe:
        return _probe(root, options.token)
    if options.token:
        raise UserError("token", options.token, "is for probe=true", "omit it")
    from robot_rl.cluster.launchers import read_launcher
    from robot_rl.cluster.preflight.finding import FAIL, WARN
    from robot_rl.cluster.preflight.preflight import preflight

    findings = list(preflight(launcher or read_launcher("local", {}), root))
    rows = [(name, finding.status, finding.found, finding.right) for name, finding in findings]
    print_table(("check", "", "found", "right would be"), rows, least=WIDTH)
    failed, warned = (sum(finding.status == status for _, finding in findings) for status in (FAIL, WARN))
    print(f"{len(findings)} checks: {failed} failed, {warned} with a warning")
    return ExitCode.FAULT if failed else ExitCode.DONE


def _probe(root: Path, token: str) -> int:
    from robot_rl.cluster.preflight.probe import probe, serve

    if token and not token.isalnum():
        raise UserError("token", token, "must be of letters and digits")
    facts = probe(root, token)
    if token:
        serve(facts)
    else:
        print(json.dumps(dataclasses.asdict(facts), indent=2))
    return 0
