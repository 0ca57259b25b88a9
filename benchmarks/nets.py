"""Prove that a rearrangement of the code changed nothing: refusals, settings, kernels, policies, bits of trainings.

    python benchmarks/nets.py
    python benchmarks/nets.py ref=main~3 parts=bits
    python benchmarks/nets.py update=true
    python benchmarks/nets.py text=settings/go2_flat

  ref=          commit that the bits of trainings are compared with; by default where this branch left origin/main, or
                the last commit
  parts=        parts that are compared, of refusals, bundles, runs, settings, kernels and bits; by default all
  cases=        cases of bits (benchmarks/same_bits.py); by default all
  remote=false  bits: also a simulator in another process, which takes half a minute more
  fresh=false   bits: run the code of ref, although its checksums are kept from an earlier run
  update=false  write the fingerprints of what the code makes now, and the kernels in tests/data/kernels, instead of
                comparing with them
  text=         print the text behind a fingerprint, to compare it with that of another tree

Refusals are the command lines of tests/nets/refusals.py: exit code, one line, the named setting, and nothing written.
Bundles, runs, settings and kernels are compared with the fingerprints in benchmarks/nets.json, which are the same on
every machine (benchmarks/fingerprints.py). Bits are those of short trainings with this tree and with ref
(benchmarks/same_bits.py). The exit code is 1 if anything differs.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import runpy
import shlex
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fingerprints import GOLDEN_KERNELS, PARTS, fingerprint, is_available, make_texts
from forks import PACKAGES
from words import read_words, run_script

import robot_rl
from robot_rl.errors import UserError, suggest
from robot_rl.files import write_atomic

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "benchmarks" / "nets.json"
GOLDEN = ROOT / "tests" / "data" / "kernels"
REFUSALS = ROOT / "tests" / "nets" / "refusals.py"
KNOWN = {"ref": "", "parts": "", "cases": "", "remote": "false", "fresh": "false", "update": "false", "text": ""}
ALL = ("refusals", *PARTS, "bits")
PREFIXES = {
    "bundles": ("bundle/",),
    "runs": ("run/",),
    "settings": ("settings/",),
    "kernels": ("kernels/", "terms/"),
}
"""How the names of a part's fingerprints begin."""


@dataclass(frozen=True, slots=True)
class Result:
    """The comparison of a part.

    Attributes:
        part: name of the part.
        entries: number of things that were compared.
        differ: a line for each difference.
        seconds: time that it took [s].
    """

    part: str
    entries: int
    differ: list[str]
    seconds: float


def read_fingerprints(part: str) -> dict[str, str]:
    """Return the committed fingerprints of a part that can be made with the installed packages, by name."""
    kept = json.loads(FILE.read_text()) if FILE.is_file() else {}
    return {name: text for name, text in kept.items() if name.startswith(PREFIXES[part]) and is_available(name)}


def compare_fingerprints(part: str, texts: Mapping[str, str | bytes]) -> list[str]:
    """Return a line for each fingerprint of a part that is not the committed one, and for each golden text."""
    kept, made = read_fingerprints(part), {name: fingerprint(text) for name, text in texts.items()}
    found = [f"{name}: is gone" for name in kept if name not in made]
    found += [f"{name}: is new" for name in made if name not in kept]
    found += [f"{name}: differs" for name in made if kept.get(name, made[name]) != made[name]]
    return found + (compare_kernels(texts) if part == "kernels" else [])


def compare_kernels(texts: Mapping[str, str | bytes]) -> list[str]:
    """Return a line for each of the whole kernel texts that is not the committed one: where it differs first."""
    found = []
    for task in GOLDEN_KERNELS:
        path = GOLDEN / f"{task}.txt"
        before = path.read_text().splitlines() if path.is_file() else []
        now = str(texts[f"kernels/{task}"]).splitlines()
        for number, (old, new) in enumerate(zip(before, now, strict=False), 1):
            if old != new:
                found.append(f"{path.relative_to(ROOT)}:{number}: {old.strip()} -> {new.strip()}")
                break
        else:
            if len(before) != len(now):
                found.append(f"{path.relative_to(ROOT)}: has {len(before)} lines, the code writes {len(now)}")
    return found


def update(part: str, texts: Mapping[str, str | bytes]) -> None:
    """Write the fingerprints of a part, in place of the committed ones; those that cannot be made here stay."""
    kept = json.loads(FILE.read_text()) if FILE.is_file() else {}
    made = {name: fingerprint(text) for name, text in texts.items()}
    others = {name: text for name, text in kept.items() if name not in read_fingerprints(part)}
    write_atomic(FILE, json.dumps(others | made, indent=0, sort_keys=True) + "\n")
    if part == "kernels":
        for task in GOLDEN_KERNELS:
            write_atomic(GOLDEN / f"{task}.txt", texts[f"kernels/{task}"])


def read_refusals() -> dict[str, tuple[Any, ...]]:
    """Return the table of refused command lines: those without PyTorch ("light"), and the others."""
    table = runpy.run_path(str(REFUSALS))
    return {"light": table["LIGHT"], "others": table["OTHERS"]}


def refuse(rows: Iterable[Any]) -> list[str]:
    """Run command lines in this process, in an empty folder; return a line for each that is not refused as it should.

    Args:
        rows: command lines, with `words`, `code` and `names`.
    """
    from robot_rl.cli.main import main

    before, found = Path.cwd(), []
    gc.disable()  # It would look at all objects of PyTorch and Warp again and again.
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for row in rows:
                out, err = io.StringIO(), io.StringIO()
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                    code = main(shlex.split(row.words))
                line, written = err.getvalue(), os.listdir(folder)
                if code != row.code:
                    found.append(f"robot-rl {row.words}: exit code {code}, not {row.code}: {line.strip()}")
                elif line.count("\n") != 1 or not line.startswith("robot-rl: ") or out.getvalue():
                    found.append(f"robot-rl {row.words}: not one line on stderr: {line}{out.getvalue()}")
                elif row.names not in line:
                    found.append(f"robot-rl {row.words}: does not name {row.names}: {line.strip()}")
                elif written:
                    found.append(f"robot-rl {row.words}: wrote {', '.join(written)}")
        finally:
            os.chdir(before)
            gc.enable()
    return found


def compare_refusals() -> Result:
    """Run all refused command lines."""
    begin, rows = time.monotonic(), read_refusals()
    found = refuse(rows["light"])
    if "torch" in sys.modules:
        found.append("a refusal of LIGHT imports torch")
    found += refuse(rows["others"])
    return Result("refusals", sum(map(len, rows.values())), found, time.monotonic() - begin)


def compare_part(part: str, *, writes: bool) -> Result:
    """Compare the fingerprints of a part with the committed ones, or write them."""
    begin = time.monotonic()
    texts = make_texts(part)
    if writes:
        update(part, texts)
    return Result(part, len(texts), compare_fingerprints(part, texts), time.monotonic() - begin)


def compare_bits(cases: list[str], commit: str, *, fresh: bool) -> Result:
    """Compare the bits of short trainings with those of a commit."""
    from same_bits import compare, compare_trees, has_changed, show

    begin = time.monotonic()
    print(f"  this tree against {commit[:12]}", flush=True)
    before, after, failed = compare_trees(cases, commit, fresh=fresh)
    result = {name: compare(before[name], after[name]) for name in after if name in before}
    changed = {name: row for name, row in result.items() if has_changed(row)}
    show(changed)
    found = [f"{name}: {len(row['differ'])} differ, {len(row['gone'])} are gone" for name, row in changed.items()]
    found += [f"{name}: {error}" for name, error in failed.items()]
    return Result("bits", len(result), found, time.monotonic() - begin)


def choose_bits(options: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the cases and the commit of the part bits; raise UserError for what there is not."""
    from same_bits import choose_cases, commit_of

    return choose_cases(options), commit_of(options["ref"] or default_ref())


def default_ref() -> str:
    """Return the commit where this branch left origin/main, else the last commit before what is in this tree."""
    from same_bits import git

    last = "HEAD" if git("status", "--porcelain") else "HEAD~1"
    if not git("for-each-ref", "refs/remotes/origin/main"):
        return last
    base = git("merge-base", "HEAD", "origin/main")
    return last if base == git("rev-parse", "HEAD") else base


def choose_parts(options: Mapping[str, str]) -> list[str]:
    """Return the requested parts in the order in which they are compared; raise UserError for an unknown one."""
    names = options["parts"].split(",") if options["parts"] else list(ALL)
    if options["update"] == "true" and not options["parts"]:
        names = list(PARTS)
    for name in names:
        if name not in ALL:
            raise UserError(f"parts={name}: no such part; {suggest(name, ALL)}")
    return [name for name in ALL if name in names]


def show_text(name: str) -> None:
    """Print the text behind a fingerprint; raise UserError if there is none of that name."""
    parts = [part for part, prefixes in PREFIXES.items() if name.startswith(prefixes)]
    texts = make_texts(parts[0]) if parts else {}
    if name not in texts:
        raise UserError(f"text={name}: no such fingerprint; {suggest(name, json.loads(FILE.read_text()))}")
    text = texts[name]
    sys.stdout.buffer.write(text.encode() if isinstance(text, str) else text)


def require_own_packages() -> None:
    """Start this script again with the packages of its own tree if those of another tree were imported."""
    paths = os.pathsep.join(str(ROOT / package) for package in PACKAGES)
    if Path(robot_rl.__file__).resolve().parents[1] == ROOT:
        return
    if os.environ.get("PYTHONPATH") == paths:
        raise UserError(f"robot_rl: is imported from {robot_rl.__file__}, not from {ROOT}")
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"PYTHONPATH": paths})


def main(arguments: list[str]) -> int:
    """Compare the parts, print a table, and name what differs."""
    require_own_packages()
    if {"--help", "-h"} & set(arguments):
        print(__doc__)
        return 0
    options = read_words(arguments, KNOWN)
    for key in ("remote", "fresh", "update"):
        if options[key] not in ("true", "false"):
            raise UserError(f"{key}={options[key]}: must be true or false")
    if options["text"]:
        show_text(options["text"])
        return 0
    results, parts = [], choose_parts(options)
    cases, commit = choose_bits(options) if "bits" in parts else ([], "")
    for part in parts:
        print(f"{part} ...", flush=True)
        if part == "refusals":
            results.append(compare_refusals())
        elif part == "bits":
            results.append(compare_bits(cases, commit, fresh=options["fresh"] == "true"))
        else:
            results.append(compare_part(part, writes=options["update"] == "true"))
        for line in results[-1].differ:
            print(f"  {line}", flush=True)
    print(f"\n{'part':10} {'entries':>7} {'differ':>6} {'seconds':>7}")
    for result in results:
        print(f"{result.part:10} {result.entries:7} {len(result.differ):6} {result.seconds:7.1f}")
    return int(any(result.differ for result in results))


if __name__ == "__main__":
    run_script(main)
