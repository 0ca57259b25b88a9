"""Run the long tests of what has changed since they last passed.

    python .ci/long.py stale [GROUP ...]   print the groups that have to run
    python .ci/long.py run [GROUP ...]     run those, and write their keys to .ci/long.json as they pass
    python .ci/long.py run all [GROUP ...] run them whether anything changed or not

.ci/long.toml lists the groups: the tests of each, what they test, and the target of make that runs them. The key of a
group is a checksum of both, so that a commit of .ci/long.json says which code the tests have passed with. A name of a
target, such as `unit`, means its groups.
"""

import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Groups = dict[str, dict[str, Any]]
"""By name: tests, covers, target."""
ROOT = Path(__file__).resolve().parents[1]
KEYS = ROOT / ".ci" / "long.json"
EVERYWHERE = ["constraints.txt", "tests/conftest.py", "tests/forked.py"]
"""What the tests of every group depend on."""


def read_groups() -> Groups:
    """Return the groups of .ci/long.toml by name."""
    return tomllib.loads((ROOT / ".ci" / "long.toml").read_text())


def read_keys() -> dict[str, str]:
    """Return the key with which each group has passed."""
    return json.loads(KEYS.read_text()) if KEYS.exists() else {}


def files_of(patterns: Sequence[str]) -> list[str]:
    """Return the files that patterns of git name, new ones included and deleted ones not."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted({name for name in output.split("\0") if name and (ROOT / name).is_file()})


def key_of(group: dict[str, Any]) -> str:
    """Return the checksum of a group's tests and of what they test."""
    total = hashlib.sha256()
    for name in files_of([*group["tests"], *group["covers"], *EVERYWHERE]):
        total.update(f"{name}\0{hashlib.sha256((ROOT / name).read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()[:16]


def select(groups: Groups, names: Sequence[str]) -> Groups:
    """Return the groups that names of groups or targets mean; all without a name."""
    known = {*groups, "all", *(group["target"] for group in groups.values())}
    for name in names:
        if name not in known:
            print(f"{name}: no such group; known: {', '.join(sorted(known))}", file=sys.stderr)
            sys.exit(2)
    names = [name for name in names if name != "all"]
    if not names:
        return groups
    return {name: group for name, group in groups.items() if name in names or group["target"] in names}


def stale(groups: Groups) -> Groups:
    """Return the groups that have not passed as they are."""
    keys = read_keys()
    return {name: group for name, group in groups.items() if keys.get(name) != key_of(group)}


def run(groups: Groups) -> bool:
    """Run groups, those of a target at once; return whether all passed."""
    passed = True
    for target in dict.fromkeys(group["target"] for group in groups.values()):
        mine = {name: group for name, group in groups.items() if group["target"] == target}
        before = {name: key_of(group) for name, group in mine.items()}
        tests = " ".join(test for group in mine.values() for test in group["tests"])
        print(f"== {target}: {', '.join(mine)}", flush=True)
        done = subprocess.run(["make", f"long-{target}", f"TESTS={tests}"], cwd=ROOT, check=False)
        if done.returncode:
            print(f"{', '.join(mine)}: changed, and the tests did not pass (make long-{target})", file=sys.stderr)
            passed = False
            continue
        same = {name: key for name, key in before.items() if key_of(mine[name]) == key}
        KEYS.write_text(json.dumps(dict(sorted((read_keys() | same).items())), indent=1) + "\n")
    return passed


def main(words: Sequence[str]) -> int:
    """Do what the words say; return the exit code."""
    if not words or words[0] not in ("stale", "run"):
        print(__doc__)
        return 2
    groups = select(read_groups(), words[1:])
    chosen = groups if "all" in words[1:] else stale(groups)
    if words[0] == "stale":
        print("\n".join(chosen))
        return 0
    for name in groups:
        if name not in chosen:
            print(f"{name}: unchanged since its long tests passed")
    return 0 if run(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
