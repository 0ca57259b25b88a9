"""robot-rl runs prune: what is not needed from finished runs, and nothing else."""

import json
import shutil

import pytest
import torch
import yaml

from robot_rl.learn.checkpoints.checkpoint import list_checkpoints, load_checkpoint, save_checkpoint, verify_checkpoint
from robot_rl.metrics.rows import lock


@pytest.fixture
def root(small_run, tmp_path, monkeypatch):
    """A finished run "a" with checkpoints 1 to 5, each with a replay memory, and a stopped one, "b"."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "runs" / "cartpole"
    shutil.copytree(small_run, folder / "a")
    (newest,) = list_checkpoints(folder / "a")[-1:]
    tensors, meta = load_checkpoint(newest)
    shutil.rmtree(folder / "a" / "checkpoints")
    for iteration in range(1, 6):
        path = folder / "a" / "checkpoints" / f"{iteration:06d}"
        save_checkpoint(path, tensors, meta, replay={"replay.reward": torch.ones(1000)})
    shutil.copytree(folder / "a", folder / "b")
    rows = (folder / "b" / "metrics.jsonl").read_text().splitlines()
    (folder / "b" / "metrics.jsonl").write_text(f"{rows[0]}\n")
    return folder.parent


def left(root, run="a"):
    """Checkpoints of a run, negative if they have a replay memory; all are whole."""
    for path in list_checkpoints(root / "cartpole" / run):
        verify_checkpoint(path)
    found = list_checkpoints(root / "cartpole" / run)
    return [-int(path.name) if (path / "replay.safetensors").exists() else int(path.name) for path in found]


def test_sizes_are_shown_and_nothing_is_removed(run, root):
    code, out, _ = run("runs", "prune", f"root={root}")
    assert code == 0
    cells = next(line for line in out.splitlines() if "cartpole/a" in line).replace("│", " ").split()
    assert cells[:3] + cells[4:] == ["cartpole/a", "4", "1", "5", "(newest)"]
    assert float(cells[3]) == pytest.approx(sum(map(size, list_checkpoints(root / "cartpole/a"))) / 1e6, abs=0.1)
    assert "cartpole/b" not in out
    assert "nothing was removed; yes=true removes it" in out
    assert left(root) == [-1, -2, -3, -4, -5]


def size(path):
    return sum(file.stat().st_size for file in path.iterdir())


def test_the_newest_stays_without_its_memory_and_a_stopped_run_whole(run, root):
    (root / "cartpole/a/checkpoints/.000006-abc").mkdir()
    code, out, _ = run("runs", "prune", f"root={root}", "yes=true")
    assert (code, out.splitlines()[-1]) == (0, "removed from 1 run")
    assert left(root) == [5]
    assert left(root, "b") == [-1, -2, -3, -4, -5]
    assert [path.name for path in (root / "cartpole/a/checkpoints").iterdir()] == ["000005"]
    assert run("runs", "prune", f"root={root}")[1] == "nothing to remove\n"
    assert "b: is stopped; only finished runs are pruned" in run("runs", "prune", "b", f"root={root}", "yes=true")[1]


def test_what_is_exported_best_or_needed_by_another_run_stays(run, root):
    a = root / "cartpole" / "a"
    (a / "policy").mkdir()
    (a / "policy" / "contract.json").write_text(json.dumps({"training": {"iteration": 2}}))
    name = str(yaml.safe_load((a / "run.yaml").read_text())["solved"][0]).rpartition("/")[2]
    values = {1: 0.3, 3: 0.1, 4: 0.2, 9: 0.0}
    lines = [json.dumps({"iteration": iteration, "metrics": {name: value}}) for iteration, value in values.items()]
    (a / "evaluations.jsonl").write_text("\n".join([*lines, '{"iteration": 1, "met']))
    record = yaml.safe_load((root / "cartpole/b/run.yaml").read_text())
    record["config"]["teacher"] = {"run": str((a / "checkpoints" / "000001").resolve())}
    (root / "cartpole/b/run.yaml").write_text(yaml.safe_dump(record))
    better = yaml.safe_load((a / "run.yaml").read_text())["metrics"]
    best = next(row["better"] for key, row in better.items() if key.rpartition("/")[2] == name)
    kept = 3 if best == "smaller" else 1
    assert run("runs", "prune", f"root={root}", "yes=true")[0] == 0
    assert left(root) == sorted({1, 2, kept, 5})


def test_as_many_of_the_newest_stay_as_requested(run, root):
    assert run("runs", "prune", "a", "task=cartpole", "keep=3", f"root={root}", "yes=true")[0] == 0
    assert left(root) == [3, 4, 5]


def test_one_that_is_trained_or_damaged_is_not_touched(run, root):
    with lock(root / "cartpole/a/metrics.jsonl"):
        assert run("runs", "prune", f"root={root}", "yes=true")[1] == "nothing to remove\n"
    (root / "cartpole/a/checkpoints/000005/model.safetensors").write_bytes(b"")
    code, out, _ = run("runs", "prune", f"root={root}", "yes=true")
    assert (code, "a: not pruned: " in out, "000005/model.safetensors: damaged" in out) == (1, True, True)
    assert len(list_checkpoints(root / "cartpole" / "a")) == 5


def test_one_that_another_process_trains_since_it_was_looked_at(root):
    from robot_rl.errors import UserError
    from robot_rl.runs.prune import find_surplus, remove
    from robot_rl.runs.run_index import read_runs

    rows = read_runs(root)
    (found,) = find_surplus(rows, rows)
    with lock(root / "cartpole/a/metrics.jsonl"), pytest.raises(UserError, match="another process is writing it"):
        remove(found)
    newest = list_checkpoints(root / "cartpole/a")[-1]
    shutil.copytree(newest, newest.with_name("000006"))
    with pytest.raises(UserError, match="was trained meanwhile"):
        remove(found)
    assert left(root) == [-1, -2, -3, -4, -5, -6]
