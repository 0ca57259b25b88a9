"""Time until `robot-rl board` shows thousands of runs: the whole table over HTTP, and in headless Chromium.

    python benchmarks/board.py out=benchmarks/board.json

It trains one small run of cartpole and makes the others from it: their own settings, seeds and rows of metrics.jsonl.
"cold" is the first start, without the index of runs: the table is there at once, the settings follow. "warm" is every
later one. Times begin with the start of the process, those of the page (page_s, page_curves_s) with its address. Other
programs that run meanwhile lengthen all but the processor time (cpu).
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import facts, medians, write
from words import read_words, run_script

from robot_rl.errors import UserError

KNOWN = {"runs": "3000", "rows": "300", "rounds": "3", "out": ""}
GAMMAS, RATES, ENTROPIES = (0.97, 0.98, 0.99), (3e-4, 1e-3, 2e-3), (0.0, 0.005)
SEEDS = 10
PATIENCE_S = 300.0
SCRIPT = "robot_rl.cli.main"
SHOWN = "Number(document.documentElement.dataset.rows) >= {runs} && !!document.querySelector('.row')"
TYPED = """(() => {
  const [start, filter] = [performance.now(), document.getElementById("filter")];
  filter.value = "seed=3 gamma=0.98";
  filter.dispatchEvent(new Event("input"));
  return performance.now() - start;
})()"""
DRAWN = "!!document.querySelector('.plot .line')"


def train(root: Path) -> Path:
    """Train a small run and return its directory."""
    words = ["train", "task=cartpole", "num_envs=4", "num_steps=4", "max_iterations=2", "num_threads=1", f"root={root}"]
    subprocess.run([sys.executable, "-m", SCRIPT, *words], check=True, stdout=subprocess.DEVNULL)
    (run,) = root.glob("cartpole/*")
    return run


def make_runs(template: Path, root: Path, count: int, rows: int) -> None:
    """Write runs: three settings, ten seeds and more with the same ones."""
    text = (template / "run.yaml").read_text()
    last = json.loads((template / "metrics.jsonl").read_text().splitlines()[-1])
    own = ("iteration", "env_steps", "time_s", "episode/return", "tracking/upright")
    rest = json.dumps({key: value for key, value in last.items() if key not in own})[1:-1]
    draw = random.Random(0)
    for index in range(count):
        gamma, rate = GAMMAS[index % 3], RATES[index // 3 % 3]
        entropy, seed = ENTROPIES[index // 9 % 2], index // 18 % SEEDS
        run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(1_790_000_000 + 60 * index))}-{seed}-{index:04x}"
        changes = {
            "run_id: .*": f"run_id: {run_id}",
            "created: .*": f"created: {run_id[:4]}-{run_id[4:6]}-{run_id[6:8]}T00:00:{index:05}",
            "  seed: .*": f"  seed: {seed}",
            "  max_iterations: .*": f"  max_iterations: {rows}",
            "    gamma: .*": f"    gamma: {gamma}",
            "    learning_rate: .*": f"    learning_rate: {rate}",
            "    entropy_coef: .*": f"    entropy_coef: {entropy}",
        }
        mine = text
        for pattern, new in changes.items():
            mine = re.sub(pattern, new, mine, count=1)
        folder = root / "cartpole" / run_id
        folder.mkdir(parents=True)
        (folder / "run.yaml").write_text(mine)
        level, pace = draw.gauss(0.7 + gamma - 0.98, 0.05), draw.uniform(0.1, 0.3) * rows
        lines = []
        for i in range(1, rows + 1):
            value = level * (1 - math.exp(-i / pace)) + draw.gauss(0, 0.02)
            begin = f'"iteration": {i}, "env_steps": {4096 * i}, "time_s": {0.3 * i}'
            lines.append(f'{{{begin}, {rest}, "episode/return": {5 * value}, "tracking/upright": {value}}}')
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")


@contextmanager
def started(root: Path, cache: Path) -> Iterator[tuple[str, float, int]]:
    """Start the board; yields its address, when it was started, and its process."""
    begin = time.perf_counter()
    words = [sys.executable, "-m", SCRIPT, "board", f"root={root}", "port=0"]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env={**os.environ, "XDG_CACHE_HOME": str(cache)}
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+/", process.stdout.readline())
        if found is None:
            raise UserError("robot-rl board did not start")
        yield found[0], begin, process.pid
    finally:
        process.terminate()
        process.wait()


def processor_s(pid: int) -> float:
    """Return the processor time of a process so far [s]."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(url: str, body: Any = None) -> Any:
    """Return an answer of the board."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"} if data else {})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
        return json.load(reply)


def over_http(root: Path, cache: Path, count: int) -> dict[str, float]:
    """Return how long it takes over HTTP [s]: a full table, all settings, the groups, curves of all runs."""
    with started(root, cache) as (url, begin, pid):
        table = ask(f"{url}api/runs")
        found = {"table_s": time.perf_counter() - begin, "table_cpu_s": processor_s(pid)}
        if len(table["runs"]) != count:
            raise UserError(f"{len(table['runs'])} runs of {count} in the table")
        while table["reading"]:
            time.sleep(0.2)
            table = ask(f"{url}api/runs?id={table['id']}&since={table['version']}")
        found["settings_s"] = time.perf_counter() - begin
        table = ask(f"{url}api/runs")
        groups: dict[str, list[str]] = {}
        for run in table["runs"]:
            key = json.dumps([value for name, value in sorted(run["set"].items()) if name != "seed"])
            groups.setdefault(key, []).append(run["name"])
        names = list(groups.values())
        for key, path, more in (
            ("groups_s", "groups", {"metric": "goal", "groups": names}),
            ("one_group_s", "curves", {"metrics": ["goal"], "axis": "iteration", "curves": [names[0][:10]]}),
            ("all_curves_s", "curves", {"metrics": ["goal"], "axis": "iteration", "curves": names[:40]}),
            ("changes_s", f"runs?id={table['id']}&since={table['version']}", None),
        ):
            time.sleep(1.1 if key == "changes_s" else 0.0)  # The files are looked at again once a second.
            at = time.perf_counter()
            ask(f"{url}api/{path}", more)
            found[key] = time.perf_counter() - at
    return found


def in_browser(root: Path, cache: Path, count: int) -> dict[str, float]:
    """Return how long it takes from the board's start until a page that was open before shows the table [s]."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.unit.browser import Page

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        return {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Page(Path(chromium), Path(folder))
        try:
            with started(root, cache) as (url, begin, pid):
                at = time.perf_counter()
                page.call("Page.navigate", url=url)
                page.wait(SHOWN.format(runs=count), PATIENCE_S, meanwhile=lambda _: time.sleep(0.01))
                shown, cpu_s = time.perf_counter(), processor_s(pid)
                page.wait(DRAWN, PATIENCE_S, meanwhile=lambda _: time.sleep(0.01))
                drawn = time.perf_counter()
                typed = page.js(TYPED)
        finally:
            page.close()
    return {
        "page_s": shown - at,
        "page_and_start_s": shown - begin,
        "page_server_cpu_s": cpu_s,
        "page_curves_s": drawn - at,
        "filter_s": typed / 1e3,
    }


def main(arguments: list[str]) -> None:
    """Measure, print and write it down."""
    given = read_words(arguments, KNOWN, whole=("runs", "rows", "rounds"))
    count, rows = int(given["runs"]), int(given["rows"])
    with tempfile.TemporaryDirectory(prefix="board-") as folder:
        root, cache = Path(folder) / "runs", Path(folder) / "cache"
        make_runs(train(Path(folder) / "one"), root, count, rows)
        size = sum(path.stat().st_size for path in root.glob("*/*/metrics.jsonl"))
        cold = over_http(root, cache, count)
        rounds = [over_http(root, cache, count) | in_browser(root, cache, count) for _ in range(int(given["rounds"]))]
    warm = medians(rounds)
    result = facts("thousands of runs on the board") | {
        "load": os.getloadavg()[0],
        "runs": count,
        "rows_of_each": rows,
        "metrics_mb": size / 1e6,
        "rounds": len(rounds),
        "cold": cold,
        "warm": warm,
    }
    for kind, values in (("cold", cold), ("warm", warm)):
        for key, value in values.items():
            print(f"{kind} {key:<20}{value:8.3f}")
    write(given["out"], result)


if __name__ == "__main__":
    run_script(main)
