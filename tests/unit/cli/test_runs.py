"""robot-rl runs: the table, its groups, and what differs between two runs."""

import json
import shutil

import pytest

from robot_rl.metrics.rows import lock
from robot_rl.runs.run_index import index_file, read_runs


@pytest.fixture
def root(small_run, tmp_path, monkeypatch):
    """Three runs of cartpole: "a" as it was trained, "b" and "c" with other settings, "c" without an iteration."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "runs"
    for name in "abc":
        shutil.copytree(small_run, folder / "cartpole" / name)
        (folder / "cartpole" / name / "metrics.jsonl").chmod(0o644)
    change(folder, "b", "seed: 1", "seed: 2")
    change(folder, "c", "gamma: 0.98", "gamma: 0.9")
    (folder / "cartpole" / "c" / "metrics.jsonl").unlink()
    return folder


def change(root, name, old, new):
    file = root / "cartpole" / name / "run.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def states(root, **options):
    return {row.run_id: row.state for row in read_runs(root, **options)}


def test_the_table(run, root):
    code, out, _ = run("runs", f"root={root}", "columns=ppo.gamma,perf/steps_per_s")
    assert code == 0
    lines = [
        [cell.strip() for cell in line.strip("│ \n").split("│")] for line in out.splitlines() if "cartpole" in line
    ]
    assert {line[0]: line[3:6] for line in lines} == {
        "a": ["1", "done", "2 of 2"],
        "b": ["2", "done", "2 of 2"],
        "c": ["1", "empty", "0 of 2"],
    }
    assert {line[0]: line[-2] for line in lines} == {"a": "0.98", "b": "0.98", "c": "0.9"}
    assert {line[0]: line[-1] == "-" for line in lines} == {"a": False, "b": False, "c": True}


def test_no_id_is_cut(run, root):
    name = "20261125-154917-1-5d42" + "x" * 70
    shutil.copytree(root / "cartpole" / "a", root / "cartpole" / name)
    assert name in run("runs", f"root={root}", "columns=ppo.gamma,ppo.lam,num_envs")[1]
    assert name in run("runs", "diff", "c", name, f"root={root}")[1]


def test_filters_and_an_order(run, root):
    shown = run("runs", f"root={root}", "ppo.gamma=0.98", "sort=seed")[1]
    assert [line[2] for line in shown.splitlines() if "cartpole" in line] == ["b", "a"]
    assert run("runs", f"root={root}", "state=running")[1] == f"3 runs in {root}, none of these\n"
    assert "2 more: most=0 shows all" in run("runs", f"root={root}", "most=1")[1]
    line = f"robot-rl: task=go2_flat: no run in {root} is of it; known: cartpole\n"
    assert run("runs", f"root={root}", "task=go2_flat") == (2, "", line)


def test_whole_numbers_are_numbers_and_values_of_any_kind_are_sorted(run, root):
    change(root, "b", "gamma: 0.98", "gamma: 2.0")
    change(root, "a", "gamma: 0.98", "gamma: [1]")
    change(root, "c", "max_iterations: 2", "max_iterations: many")
    shown = run("runs", f"root={root}", "ppo.gamma=2")[1]
    assert [line[2] for line in shown.splitlines() if "cartpole" in line] == ["b"]
    code, shown, _ = run("runs", f"root={root}", "sort=ppo.gamma", "columns=ppo.gamma")
    assert code == 0
    assert [line[2] for line in shown.splitlines() if "cartpole" in line] == ["a", "b", "c"]


def test_groups_over_seeds(run, root):
    for name, value in (("a", 1.0), ("b", 3.0)):
        file = root / "cartpole" / name / "metrics.jsonl"
        row = json.loads(file.read_text().splitlines()[-1])
        file.write_text(json.dumps(row | {"tracking/upright": value}) + "\n")
    out = run("runs", f"root={root}", "by=ppo.gamma")[1]
    (line,) = [line for line in out.splitlines() if "cartpole" in line]
    assert [cell.strip() for cell in line.strip("│ \n").split("│")] == [
        *("cartpole", "0.98", "upright", "2", "2", "1 to 3", "1", "3")
    ]


def test_a_run_that_is_trained_is_running_and_a_row_that_is_half_written_does_not_count(root):
    metrics = root / "cartpole" / "a" / "metrics.jsonl"
    with lock(metrics) as stream:
        stream.write(b'{"iteration": 3, "epi')
        rows = {row.run_id: row for row in read_runs(root)}
    assert (rows["a"].state, rows["a"].iterations) == ("running", (2, 2))
    assert states(root)["a"] == "done"


def test_the_index_follows_the_files_and_may_be_lost(root):
    first = states(root)
    file = index_file(root)
    assert file.is_file()
    change(root, "a", "max_iterations: 2", "max_iterations: 9")
    assert states(root) == first | {"a": "stopped"}
    shutil.rmtree(root / "cartpole" / "b")
    (root / "cartpole" / "c" / "run.yaml").write_text("config: [")
    assert states(root) == {"a": "stopped", "c": "damaged"} == states(root)
    for damage in ("{", '{"version": 1}', '{"version": 1, "bases": {}, "runs": {"x": {}}}', "[]"):
        file.write_text(damage)
        assert states(root) == {"a": "stopped", "c": "damaged"}
    assert states(root, index=root / "cartpole" / "a" / "run.yaml" / "no") == {"a": "stopped", "c": "damaged"}


def test_what_cannot_be_read_is_damaged(run, root):
    (root / "cartpole" / "a" / "metrics.jsonl").write_bytes(b"\xff\n\x80\0")
    (root / "cartpole" / "b" / "run.yaml").unlink()
    (root / "cartpole" / "b" / "run.yaml").mkdir()
    assert states(root) == {"a": "damaged", "b": "damaged", "c": "empty"}
    for words in (("runs", "diff", "a", "b"), ("report", "run=b"), ("watch", "b"), ("worker", f"{root}/cartpole/b")):
        code, _, err = run(*words, *([] if words[0] == "worker" else [f"root={root}"]))
        assert (code, err.count("\n")) == (2, 1), words
        assert "b/run.yaml: is a directory or device, must be a plain file" in err, words


def test_what_differs(run, root):
    code, out, _ = run("runs", "diff", "a", "c", f"root={root}")
    assert code == 0
    assert [line for line in out.splitlines() if "ppo.gamma" in line and "0.98" in line and "0.9 " in line]
    assert out.count("│ ") == 3  # one setting: its name and two values
    assert "the same: command, launcher, versions, machine, git of robot-rl" in out
    assert (
        "the same: command, settings, launcher, versions, machine, git of robot-rl"
        in run("runs", "diff", "a", "a", f"root={root}")[1]
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["root=nowhere"], "root=nowhere: is not a directory; robot-rl train makes it"),
        (["state=ran"], "state=ran: must be one of running, done, stopped, empty, damaged"),
        (["ppo.gama=0.9"], "ppo.gama: no run here has that setting; did you mean 'ppo.gamma'?"),
        (["~ppo.gamma"], "'~ppo.gamma': write <setting>=<value>"),
        (["sort=ppo.gama"], "sort=ppo.gama: no run here has it; did you mean 'ppo.gamma'?"),
        (["sort=xyzzy"], "sort=xyzzy: no run here has it; give created, changed, goal, iteration, state, a metric or"),
        (["by=ppo.gama"], "by=ppo.gama: no run here has it; did you mean 'ppo.gamma'?"),
        (["columns=seed,ppo.gama"], "columns=ppo.gama: no run here has it; did you mean 'ppo.gamma'?"),
        (["most=-1"], "most=-1: must be in [0, 1000000]"),
        (["diff", "a"], "runs diff: name two runs; given: a"),
        (["diff", "a", "x"], "run=x"),
    ],
)
def test_bad_input_is_one_line(run, root, words, line):
    code, out, err = run("runs", *words, *([] if "root=" in words[0] else [f"root={root}"]))
    assert (code, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1
