"""Whether a change of the code changed the bits of a training: checksums of every tensor of checkpoints.

    python benchmarks/same_bits.py ref=b547c1a out=benchmarks/same_bits.json

Short trainings (three iterations of each case below) run with the code of this checkout and with the code of ``ref``,
which is checked out into a temporary folder; both run in the same environment, on the same machine, with one thread.
Every tensor of the last checkpoint (networks, optimizer, random streams, worlds) is compared by its checksum. Without
``ref`` only this checkout is run, and ``against=FILE`` compares it with the checksums in an earlier output, which is
meaningful on the same kind of processor only.

A tensor that has another name now but the same bits counts as renamed. The exit code is 0 where no tensor differs.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from words import read_words, run_script

from robot_rl.files import write_json
from robot_rl.machine import machine_facts, package_versions

ROOT = Path(__file__).parents[1]
PACKAGES = (".", "envs", "tasks", "sim_assets", "deploy_jetson")
KNOWN = {"ref": "", "against": "", "cases": "", "out": ""}
SMALL = ["max_iterations=3", "num_envs=32", "num_steps=16", "num_threads=1", "device=cpu", "run_id=a"]
RECORD = ["record", "policy=go2_flat", "worlds=2", "seconds=1", "seed=3", "out=motion.safetensors"]
AMP = ["amp.weight=0.5", "amp.motions=motion.safetensors", "amp.batch=64", "amp.replay=512", "symmetry=none"]
WITHOUT_ENERGY = "~rewards.energy"
"""Dropped for code from before the cart-pole had that reward."""
CARTPOLE = ["task=cartpole", *SMALL, WITHOUT_ENERGY, "sim.decimation=2", "episode_length_s=8.0", "ppo.gamma=0.99"]
CARTPOLE += ["events.pole.velocity=2.0", "ppo.max_learning_rate=0.01", "rewards.centred.weight=-0.1"]
"""The cart-pole as it was at first, so that any code can be compared with any."""
TEACHER = ["teacher.run=runs/go2_rough/a"]

CASES: dict[str, list[list[str]]] = {
    "cartpole": [["train", *CARTPOLE]],
    "go2_flat": [["train", "task=go2_flat", *SMALL]],
    "go2_flat_augment": [["train", "task=go2_flat", *SMALL, "symmetry=augment", "normalize_values=true"]],
    "go2_rough_blind_gru": [
        ["train", "task=go2_rough_blind", *SMALL, "actor.memory.kind=gru", "critic.memory.kind=gru"],
    ],
    "walker2d_v5": [["train", "task=walker2d_v5", *SMALL]],
    "distill": [
        ["train", "task=go2_rough", *SMALL],
        ["train", "task=go2_rough_blind", *SMALL, "learner=distill", *TEACHER],
    ],
    "amp": [RECORD, ["train", "task=go2_flat", *SMALL, *AMP]],
    "rnd": [["train", "task=go2_flat", *SMALL, "rnd.weight=0.5", "symmetry=none"]],
    "resumed": [
        ["train", "task=go2_flat", *SMALL, "max_iterations=2"],
        ["resume", "run=go2_flat/a", "max_iterations=3"],
    ],
}
"""Commands of each case; the last run that one of them made is the one that is compared."""


def once(words: list[str]) -> list[str]:
    """Return the words of a command with only the last of several values for a key."""
    last = {word.split("=", 1)[0]: word for word in words}
    return list(last.values())


def checksums(checkpoint: Path) -> dict[str, str]:
    """Return "shape dtype checksum" of every tensor below a checkpoint, by file and name."""
    from safetensors.numpy import load_file

    found = {}
    for path in sorted(checkpoint.rglob("*.safetensors")):
        for name, array in load_file(path).items():
            digest = hashlib.sha256(array.tobytes()).hexdigest()[:16]
            found[f"{path.relative_to(checkpoint)}:{name}"] = f"{list(array.shape)} {array.dtype} {digest}"
    return found


def run_case(tree: Path, commands: list[list[str]]) -> dict[str, str]:
    """Run the commands with the code below `tree` in an empty folder and return the checksums of the last run."""
    env = dict(os.environ) | {
        "PYTHONPATH": os.pathsep.join(str(tree / package) for package in PACKAGES),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    known = (tree / "tasks" / "robot_rl_tasks" / "cartpole" / "energy.py").is_file()
    with tempfile.TemporaryDirectory() as folder:
        for words in commands:
            kept = [word for word in once(words) if known or word != WITHOUT_ENERGY]
            line = [sys.executable, "-m", "robot_rl.cli.main", *kept]
            done = subprocess.run(line, check=False, cwd=folder, env=env, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
        runs = [path for path in Path(folder).glob("runs/*/a/checkpoints/*") if path.is_dir()]
        return checksums(max(runs, key=lambda path: path.stat().st_mtime_ns))


def compare(before: dict[str, str], after: dict[str, str]) -> dict[str, Any]:
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


def run_all(tree: Path, names: list[str], what: str) -> dict[str, dict[str, str]]:
    """Return the checksums of every case with the code below `tree`."""
    found = {}
    for name in names:
        found[name] = run_case(tree, CASES[name])
        print(f"{what} {name}: {len(found[name])} tensors", flush=True)
    return found


def main(arguments: list[str]) -> int:
    """Run the cases, print the comparison, write the JSON."""
    options = read_words(arguments, KNOWN)
    names = options["cases"].split(",") if options["cases"] else list(CASES)
    before: dict[str, dict[str, str]] = {}
    if options["ref"]:
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "ref"
            git = ["git", "-C", str(ROOT), "worktree"]
            subprocess.run([*git, "add", "--detach", "-q", str(tree), options["ref"]], check=True)
            try:
                before = run_all(tree, names, options["ref"])
            finally:
                subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    elif options["against"]:
        before = json.loads(Path(options["against"]).read_text())["checksums"]
    after = run_all(ROOT, names, "here")
    result = {name: compare(before[name], after[name]) for name in names if name in before}
    for name, row in result.items():
        counts = {key: value if key == "equal" else len(value) for key, value in row.items()}
        print(f"{name:22} {'  '.join(f'{key} {count}' for key, count in counts.items())}")
    if options["out"]:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
        text = {
            "ref": options["ref"] or options["against"],
            "commit": head.stdout.strip(),
            "machine": machine_facts(),
            "versions": package_versions(),
            "comparison": result,
            "checksums": after,
        }
        write_json(Path(options["out"]), text)
    return int(any(row["differ"] or row["gone"] for row in result.values()))


if __name__ == "__main__":
    run_script(main)
