"""Lines of code per folder are a ratchet: lines.toml holds the most of each, and follows where a folder gets smaller.

`python tests/unit/style/test_lines.py` prints the table of today.
"""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
TABLE = Path(__file__).with_name("lines.toml")
ENDINGS = (".py", ".py.txt", ".cpp", ".h", ".pyi")
SPLIT = ("robot_rl", "envs/robot_rl_envs", "deploy_jetson", "tests")
"""Folders of which each folder inside has a row of its own."""
WHOLE = ("tasks", "sim_assets", "benchmarks", "examples")
SLACK = 100
"""How many lines a row may have to spare before it has to follow."""


def count(files):
    """Lines of those files that are code."""
    ours = (path for path in files if path.name.endswith(ENDINGS) and "build" not in path.parts)
    return sum(len(path.read_text().splitlines()) for path in ours)


def today(root=ROOT):
    """Folder -> lines of code in it, with all folders below."""
    rows = {}
    for name in SPLIT:
        folders = sorted(path for path in (root / name).iterdir() if path.is_dir() and any(path.rglob("*.py")))
        rows |= {str(path.relative_to(root)): count(path.rglob("*")) for path in folders}
        rows[f"{name}/*"] = count(path for path in (root / name).iterdir() if path.is_file())
    rows |= {name: count((root / name).rglob("*")) for name in WHOLE}
    return {name: lines for name, lines in rows.items() if lines}


def unlike(rows, table):
    """What is wrong with the table for such rows, a line each."""
    lines = [f"{name}: {rows[name]} lines, and no row in lines.toml" for name in sorted(set(rows) - set(table))]
    lines += [f"{name}: a row in lines.toml, and no folder" for name in sorted(set(table) - set(rows))]
    for name in sorted(set(rows) & set(table)):
        if rows[name] > table[name]:
            lines.append(
                f"{name}: {rows[name]} lines, {table[name]} at most: take something out, or say why in lines.toml"
            )
        elif rows[name] < table[name] - SLACK:
            lines.append(f"{name}: {rows[name]} lines, {table[name]} in lines.toml: lower it")
    return lines


def test_no_folder_has_grown():
    assert unlike(today(), tomllib.loads(TABLE.read_text())["lines"]) == []


def test_a_folder_that_grew_shrank_came_or_went_is_seen():
    said = unlike({"a": 11, "b": 10, "c": 5, "e": 890}, {"a": 10, "b": 10, "d": 5, "e": 1000})
    assert [line.partition(":")[0] for line in said] == ["c", "d", "a", "e"]


if __name__ == "__main__":
    print("\n".join(f'"{name}" = {lines}' for name, lines in today().items()))
