"""Whether a change of the code changed the bits of a training: checksums of every tensor of checkpoints.

    python benchmarks/same_bits.py ref=b547c1a out=benchmarks/same_bits.json
    python benchmarks/same_bits.py ref=HEAD~1 cases=mappo,happo
    python benchmarks/same_bits.py ref=HEAD~1 remote=true

Short trainings (at most three iterations of each case below) run with the code of this checkout and with the code of
``ref``, which is checked out into a temporary folder; both run in the same environment, on the same machine, with one
thread each, two at a time. Compared by checksum are every tensor of the last checkpoint (networks, optimizer, random
streams, worlds), every column of the metrics except times, and the exported policy and the evaluation of the cases that
have them. Without ``ref`` only this checkout is run, and ``against=FILE`` compares it with the checksums in an earlier
output, which is meaningful on the same kind of processor only.

The checksums of a commit are kept in ``$XDG_CACHE_HOME/robot-rl/same_bits`` by the commit, the versions of Python and
packages, and the processor: a second run with the same ``ref`` only runs this checkout. ``fresh=true`` ignores them.

A case that the code of ``ref`` does not have, or that needs a package that is not installed, is skipped with a line.
``remote=true`` adds the case with a simulator in another process, which starts Ray and takes half a minute.

A tensor that has another name now but the same bits counts as renamed. The exit code is 0 if no tensor differs.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from forks import Job, Report, run_jobs
from words import read_words, run_script

from robot_rl.errors import UserError, suggest
from robot_rl.files import write_json
from robot_rl.machine import machine_facts, package_versions

ROOT = Path(__file__).parents[1]
KNOWN = {"ref": "", "against": "", "cases": "", "out": "", "remote": "false", "fresh": "false"}
SMALL = ["max_iterations=3", "num_envs=32", "num_steps=16", "num_threads=1", "device=cpu", "run_id=a"]
TINY = ["max_iterations=3", "num_envs=8", "num_steps=8", "num_threads=1", "device=cpu", "run_id=a"]
RECORD = ["record", "policy=go2_flat", "worlds=2", "seconds=1", "seed=3", "out=motion.safetensors"]
AMP = ["amp.weight=0.5", "amp.motions=motion.safetensors", "amp.batch=64", "amp.replay=512", "symmetry=none"]
WITHOUT_ENERGY = "~rewards.energy"
"""Dropped for code from before the cart-pole had that reward."""
CARTPOLE = ["task=cartpole", *SMALL, WITHOUT_ENERGY, "sim.decimation=2", "episode_length_s=8.0", "ppo.gamma=0.99"]
CARTPOLE += ["events.pole.velocity=2.0", "ppo.max_learning_rate=0.01", "rewards.centred.weight=-0.1"]
"""The cart-pole as it was at first, so that any code can be compared with any."""
TEACHER = ["teacher.run=runs/go2_rough/a"]
WORLD_MODEL = ["learner=world_model", "num_steps=4", "world_model.replay=4096", "world_model.policy_steps=1"]
FLASHSAC = ["learner=flashsac", "num_steps=4", "flashsac.warm_up=0", "flashsac.replay=4096", "flashsac.batch=64"]
PENDULUM = ["task=gym:Pendulum-v1", *(word for word in TINY if not word.startswith("num_threads"))]
RAY = ["launcher=ray", "launcher.address=local", "roles.sim.count=1", "learner_threads=1"]

CASES: dict[str, list[list[str]]] = {
    "distill": [
        ["train", "task=go2_rough", *SMALL],
        ["train", "task=go2_rough_blind", *SMALL, "learner=distill", *TEACHER],
    ],
    "camera": [["train", "task=panda_lift_vision", *TINY, "num_envs=4"]],
    "distill_mix": [
        ["train", "task=go2_rough", *TINY],
        ["train", "task=go2_rough_blind", *TINY, "learner=distill", *TEACHER, "teacher.mix=0.5", "teacher.mix_until=1"],
    ],
    "exported": [
        ["train", "task=go2_flat", *TINY],
        ["export", "run=go2_flat/a"],
        ["eval", "run=go2_flat/a", "episodes=4", "seconds=1"],
    ],
    "cartpole": [["train", *CARTPOLE]],
    "go2_flat": [["train", "task=go2_flat", *SMALL]],
    "go2_flat_augment": [["train", "task=go2_flat", *SMALL, "symmetry=augment", "normalize_values=true"]],
    "go2_rough_blind_gru": [
        ["train", "task=go2_rough_blind", *SMALL, "actor.memory.kind=gru", "critic.memory.kind=gru"],
    ],
    "walker2d_v5": [["train", "task=walker2d_v5", *SMALL]],
    "amp": [RECORD, ["train", "task=go2_flat", *SMALL, *AMP]],
    "rnd": [["train", "task=go2_flat", *SMALL, "rnd.weight=0.5", "symmetry=none"]],
    "resumed": [
        ["train", "task=go2_flat", *SMALL, "max_iterations=2"],
        ["resume", "run=go2_flat/a", "max_iterations=3"],
    ],
    "team_resumed": [
        ["train", "task=go2_pair_carry", *TINY, "max_iterations=2"],
        ["resume", "run=go2_pair_carry/a", "max_iterations=3"],
    ],
    "mappo": [["train", "task=go2_team", *TINY, "num_envs=4", "learner=mappo"]],
    "happo": [["train", "task=go2_pair_carry", *TINY, "learner=examples.happo:HAPPOLearnerCfg"]],
    "world_model": [["train", "task=cartpole", *SMALL, *WORLD_MODEL]],
    "world_model_go2": [["train", "task=go2_flat", *TINY, *WORLD_MODEL]],
    "flashsac": [["train", "task=cartpole", *SMALL, *FLASHSAC]],
    "overlap": [["train", "task=go2_flat", *TINY, "overlap=true"]],
    "int8": [["train", "task=go2_flat", *TINY, "precision=int8"]],
    "fp8": [["train", "task=go2_flat", *TINY, "precision=fp8"]],
    "panda_reach": [["train", "task=panda_reach", *TINY]],
    "gymnasium": [["train", *PENDULUM]],
}
"""Commands of each case, the long ones first; the last run that one of them made is the one that is compared."""
REMOTE = {"remote": [["train", "task=cartpole", *SMALL, *RAY]]}
"""One simulator without staleness learns the bits of a local run; its worlds are not part of the learner's state."""
NEEDED = {"walker2d_v5": "gymnasium", "gymnasium": "gymnasium", "remote": "ray"}
"""Packages of the cases that need an optional one."""
Checksums = dict[str, str]


def once(words: list[str]) -> list[str]:
    """Return the words of a command with only the last of several values for a key."""
    last = {word.split("=", 1)[0]: word for word in words}
    return list(last.values())


def describe(array: Any) -> str:
    """Return "shape dtype checksum" of an array."""
    return f"{list(array.shape)} {array.dtype} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"


def checksums(checkpoint: Path) -> Checksums:
    """Return "shape dtype checksum" of every tensor below a checkpoint, by file and name."""
    from safetensors.numpy import load_file

    found = {}
    for path in sorted(checkpoint.rglob("*.safetensors")):
        for name, array in load_file(path).items():
            found[f"{path.relative_to(checkpoint)}:{name}"] = describe(array)
    return found


def short_hash(value: Any) -> str:
    """Return the checksum of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def metrics_checksums(run: Path) -> Checksums:
    """Return the checksum of every column of a run's metrics except times."""
    from robot_rl.drill import TIMES, rows_of

    rows = rows_of(run)
    names = sorted({name for row in rows for name in row if not name.startswith(TIMES)})
    return {f"metrics:{name}": f"{len(rows)} rows {short_hash([row.get(name) for row in rows])}" for name in names}


def export_checksums(run: Path) -> Checksums:
    """Return the checksums of an exported policy and an evaluation, without times and names of the run."""
    found: Checksums = {}
    policy = run / "policy"
    if (policy / "contract.json").is_file():
        import numpy as np
        import onnx
        from onnx import numpy_helper

        contract = json.loads((policy / "contract.json").read_text())
        found |= {f"contract:{key}": short_hash(value) for key, value in contract.items() if key != "training"}
        with np.load(policy / "golden.npz", allow_pickle=False) as golden:
            found |= {f"golden:{name}": describe(golden[name]) for name in golden.files}
        graph = onnx.load(policy / "policy.onnx").graph
        found["onnx:nodes"] = short_hash([node.SerializeToString().hex() for node in graph.node])
        found |= {f"onnx:{tensor.name}": describe(numpy_helper.to_array(tensor)) for tensor in graph.initializer}
    if (run / "eval.json").is_file():
        result = json.loads((run / "eval.json").read_text())
        found |= {f"eval:{form}": short_hash(result[form]) for form in ("torch", "bundle") if form in result}
    return found


def collect(folder: Path) -> Checksums:
    """Return the checksums of the last run below a job's folder."""
    runs = [path for path in folder.glob("runs/*/a/checkpoints/*") if path.is_dir()]
    if not runs:
        return {}
    last = max(runs, key=lambda path: path.stat().st_mtime_ns)
    run = last.parents[1]
    return checksums(last) | metrics_checksums(run) | export_checksums(run)


def commands_of(case: str, tree: Path) -> list[list[str]]:
    """Return the words of a case's commands for the code of a tree."""
    known = (tree / "tasks" / "robot_rl_tasks" / "cartpole" / "energy.py").is_file()
    commands = (CASES | REMOTE)[case]
    return [[word for word in once(words) if known or word != WITHOUT_ENERGY] for words in commands]


def run_all(jobs: Mapping[tuple[str, str], Path]) -> Iterator[tuple[str, str, Report, Checksums]]:
    """Run cases with the code of trees, two at a time; yield what each comes to, in the order in which they end.

    Args:
        jobs: tree by name of the tree ("here", "ref") and case.

    Yields:
        name of the tree, case, report, and checksums.
    """
    with tempfile.TemporaryDirectory() as base:
        started = []
        for (side, case), tree in jobs.items():
            folder = Path(base, side, case)
            folder.mkdir(parents=True)
            started.append(Job(f"{side} {case}", str(tree), str(folder), commands_of(case, tree)))
        for report in run_jobs(started):
            side, case = report.name.split()
            found = {} if report.code else collect(Path(base, side, case))
            what = f"exit code {report.code}" if report.code else f"{len(found)} checksums"
            print(f"{report.name:24} {what}, {report.seconds:.1f} s, {report.cpu_s:.1f} s of a core", flush=True)
            yield side, case, report, found


def compare(before: Checksums, after: Checksums) -> dict[str, Any]:
    """Return how many tensors are equal, and which are renamed, differ, are gone or are new."""
    equal = [name for name, text in before.items() if after.get(name) == text]
    gone = {name: text for name, text in before.items() if name not in after}
    new = {name: text for name, text in after.items() if name not in before}
    spare = Counter(new.values())
    renamed = []
    for name, text in gone.items():
        if spare[text] > 0:
            spare[text] -= 1
            renamed.append(name)
    left = Counter(gone[name] for name in renamed)
    added = []
    for name, text in new.items():
        if left[text] > 0:
            left[text] -= 1
        else:
            added.append(name)
    return {
        "equal": len(equal),
        "renamed": renamed,
        "differ": [name for name, text in before.items() if name in after and after[name] != text],
        "gone": [name for name in gone if name not in renamed],
        "new": added,
    }


def git(*words: str) -> str:
    """Return the output of a git command in this checkout."""
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout.strip()


def commit_of(ref: str) -> str:
    """Return the commit that a ref names; raise UserError if there is none."""
    try:
        return git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    except subprocess.CalledProcessError:
        raise UserError(f"ref={ref}: no such commit; name one of this repository") from None


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check a commit out into a temporary folder; yield the folder, and remove it."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "ref"
        git("worktree", "add", "--detach", "-q", str(tree), commit)
        try:
            yield tree
        finally:
            git("worktree", "remove", "--force", str(tree))


def cache_file(commit: str) -> Path:
    """Return the file with the checksums of a commit on this kind of machine and these versions of packages."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    cpu = {line for line in lines if line.startswith(("model name", "flags", "Features"))}
    key = [sorted(cpu), platform.machine(), {k: v for k, v in package_versions().items() if k != "robot-rl"}]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "robot-rl" / "same_bits" / f"{commit[:16]}-{short_hash(key)}.json"


def read_cache(commit: str, names: list[str]) -> dict[str, Checksums]:
    """Return the kept checksums of a commit's cases that had the same commands."""
    try:
        kept = json.loads(cache_file(commit).read_text())
    except (OSError, ValueError):
        return {}
    wanted = {name: short_hash((CASES | REMOTE)[name]) for name in names if name in kept}
    return {name: kept[name][1] for name, commands in wanted.items() if kept[name][0] == commands}


def write_cache(commit: str, found: Mapping[str, Checksums]) -> None:
    """Keep the checksums of a commit's cases, with those that are kept already."""
    path = cache_file(commit)
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        kept = {}
    write_json(path, kept | {case: [short_hash((CASES | REMOTE)[case]), sums] for case, sums in found.items()})


def is_on(options: Mapping[str, str], key: str) -> bool:
    """Return whether an option is true; raise UserError if it is neither true nor false."""
    if options[key] not in ("true", "false"):
        raise UserError(f"{key}={options[key]}: must be true or false")
    return options[key] == "true"


def choose_cases(options: Mapping[str, str]) -> list[str]:
    """Return the cases that are requested and can be run here; raise UserError for an unknown one."""
    known = CASES | REMOTE
    default = list(known) if is_on(options, "remote") else list(CASES)
    names = options["cases"].split(",") if options["cases"] else default
    for name in names:
        if name not in known:
            raise UserError(f"cases={name}: no such case; {suggest(name, known)}")
    missing = {name: NEEDED[name] for name in names if importlib.util.find_spec(NEEDED.get(name, "json")) is None}
    for name, package in missing.items():
        print(f"{name:24} skipped: needs {package}, which is not installed", flush=True)
    return [name for name in names if name not in missing]


def compare_trees(
    names: list[str], commit: str, *, fresh: bool = False
) -> tuple[dict[str, Checksums], dict[str, Checksums], dict[str, str]]:
    """Run cases with this checkout and with a commit.

    Args:
        names: cases.
        commit: commit to compare with; empty for none.
        fresh: run the commit's cases, also those with kept checksums.

    Returns:
        Checksums of the commit, checksums of this checkout, and the errors of the cases that failed here.
    """
    before = read_cache(commit, names) if commit and not fresh else {}
    if before:
        print(f"{commit[:12]}: the checksums of {len(before)} cases are kept from an earlier run", flush=True)
    after: dict[str, Checksums] = {}
    failed: dict[str, str] = {}
    missing = [name for name in names if commit and name not in before]
    with checked_out(commit) if missing else nullcontext(ROOT) as tree:
        sides = {"here": ROOT, "ref": tree}
        jobs = {(side, case): sides[side] for case in names for side in sides if side == "here" or case in missing}
        for side, case, report, found in run_all(jobs):
            if not report.code:
                (after if side == "here" else before)[case] = found
            elif side == "here":
                failed[case] = report.error
            else:
                print(f"{case:24} skipped: {commit[:12]} cannot run it: {report.error.splitlines()[-1]}", flush=True)
    if missing:
        write_cache(commit, {name: before[name] for name in missing if name in before})
    return before, after, failed


def show(result: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a line for each case, and the names of what differs."""
    for name, row in result.items():
        counts = {key: value if key == "equal" else len(value) for key, value in row.items()}
        print(f"{name:22} {'  '.join(f'{key} {count}' for key, count in counts.items())}")
        for kind in ("differ", "gone"):
            if row[kind]:
                print(f"{'':22} {kind}: {', '.join(row[kind][:6])}{', ...' * (len(row[kind]) > 6)}")


def has_changed(row: Mapping[str, Any]) -> bool:
    """Return whether the comparison of a case found a difference."""
    return bool(row["differ"] or row["gone"])


def main(arguments: list[str]) -> int:
    """Run the cases, print the comparison, write the JSON."""
    if {"--help", "-h"} & set(arguments):
        print(__doc__)
        return 0
    options = read_words(arguments, KNOWN)
    names = choose_cases(options)
    commit = commit_of(options["ref"]) if options["ref"] else ""
    before, after, failed = compare_trees(names, commit, fresh=is_on(options, "fresh"))
    if options["against"] and not commit:
        before = json.loads(Path(options["against"]).read_text())["checksums"]
    result = {name: compare(before[name], after[name]) for name in names if name in before and name in after}
    show(result)
    for name, error in failed.items():
        print(f"{name}: failed here: {error}", file=sys.stderr)
    if options["out"]:
        text = {
            "ref": options["ref"] or options["against"],
            "commit": git("rev-parse", "HEAD"),
            "machine": machine_facts(),
            "versions": package_versions(),
            "comparison": result,
            "checksums": after,
        }
        write_json(Path(options["out"]), text)
    return int(bool(failed) or any(map(has_changed, result.values())))


if __name__ == "__main__":
    run_script(main)
