"""The metrics of runs that were written by hand, parsed as Prometheus would."""

import json
import math
import os

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from robot_rl.cluster.prometheus.collector import RunsCollector, RunSource
from robot_rl.cluster.prometheus.families import FAMILIES, STATES, exported_names
from robot_rl.cluster.prometheus.gpus import Gpu
from robot_rl.cluster.prometheus.serve import make_registry
from robot_rl.metrics.rows import lock

NOW = 2_000_000_000.0
ROW = {
    "iteration": 4,
    "env_steps": 4096,
    "time_s": 2.0,
    "perf/steps_per_s": 2048.0,
    "episode/return": 1.5,
    "episode/length_s": 3.0,
    "tracking/upright": 0.25,
    "quarantined": 64.0,
}


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """An empty root, and an index of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def write_run(root, name, rows, *, age_s=0.0, saved=(), **record):
    path = root / "cartpole" / name
    path.mkdir(parents=True)
    config = {"task": "cartpole", "seed": 7, "max_iterations": 10}
    (path / "run.yaml").write_text(yaml.safe_dump({"created": name, "config": config, **record}))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path / "metrics.jsonl", (NOW - age_s,) * 2)
    for iteration, written_s in saved:
        meta = path / "checkpoints" / f"{iteration:06d}" / "meta.json"
        meta.parent.mkdir(parents=True)
        meta.write_text("{}")
        (meta.parent / "env.safetensors").touch()
        (meta.parent / "env.rank1.safetensors").touch()
        os.utime(meta, (NOW - written_s,) * 2)
    return path


def scrape(root, gpus=(), **options):
    """{(name, values of labels without task and seed): value}"""
    collector = RunsCollector(RunSource(root=root, **options), lambda: list(gpus), lambda: NOW)
    text = generate_latest(make_registry(collector)).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    for sample in samples:
        assert sample.name in exported_names()
    found = {
        (sample.name, *(value for key, value in sorted(sample.labels.items()) if key not in ("task", "seed")))
        for sample in samples
    }
    assert len(found) == len(samples)
    return {
        (sample.name, *(v for k, v in sorted(sample.labels.items()) if k not in ("task", "seed"))): sample.value
        for sample in samples
    }


def test_every_value_of_a_run(root):
    rows = [{**ROW, "iteration": 3, "quarantined": 36.0}, ROW]
    launcher = {"name": "slurm", "nodes": 2, "ranks": 4}
    write_run(
        root, "a", rows, age_s=90, saved=[(2, 500), (4, 120)], solved=["tracking/upright", 0.6], launcher=launcher
    )
    found = scrape(root)
    assert {
        name: found[f"robot_rl_{name}", "a"]
        for name in (
            *("iteration", "max_iterations", "env_steps_total", "steps_per_second", "episode_return"),
            *("episode_length_seconds", "quarantined_total", "quarantined_share", "checkpoint_iteration"),
            *("checkpoint_age_seconds", "last_row_age_seconds", "ranks"),
        )
    } == {
        "iteration": 4,
        "max_iterations": 10,
        "env_steps_total": 4096,
        "steps_per_second": 2048,
        "episode_return": 1.5,
        "episode_length_seconds": 3,
        "quarantined_total": 100,
        "quarantined_share": 64 / 1024,
        "checkpoint_iteration": 4,
        "checkpoint_age_seconds": 120,
        "last_row_age_seconds": 90,
        "ranks": 8,
    }
    assert found["robot_rl_goal", "tracking/upright", "a"] == 0.25
    assert found["robot_rl_goal_target", "tracking/upright", "a"] == 0.6
    assert {state: found["robot_rl_state", state, "a"] for state in STATES} == {
        state: float(state == "stopped") for state in STATES
    }
    assert (found["robot_rl_up",], found["robot_rl_runs", "stopped"]) == (1, 1)


def test_labels_and_types_are_those_of_the_table(root):
    write_run(root, "a", [ROW], saved=[(4, 1)], solved=["tracking/upright", 0.6])
    gpu = Gpu(index=0, uuid="GPU-1", name="H100", utilization=0.5, memory_used=1.0, memory_total=2.0)
    collector = RunsCollector(RunSource(root=root), lambda: [gpu], lambda: NOW)
    text = generate_latest(make_registry(collector)).decode()
    families = list(text_string_to_metric_families(text))
    assert {family.name for family in families} == set(FAMILIES)
    for family in families:
        mine = FAMILIES[family.name]
        assert family.type == ("gauge" if mine.kind == "stateset" else mine.kind)
        extra = {family.name} if mine.kind == "stateset" else set()
        assert {*family.samples[0].labels} == {*mine.labels} | extra
    (seed,) = {sample.labels["seed"] for family in families for sample in family.samples if "seed" in sample.labels}
    assert seed == "7"


def test_what_a_run_does_not_have_is_left_out(root):
    write_run(root, "a", [{"iteration": 1, "env_steps": 8, "episode/return": None}])
    write_run(root, "b", [])
    found = scrape(root)
    assert {key[0] for key in found if key[1:] == ("a",)} == {
        *("robot_rl_iteration", "robot_rl_max_iterations", "robot_rl_env_steps_total", "robot_rl_last_row_age_seconds")
    }
    assert {key[0] for key in found if key[1:] == ("b",)} == {"robot_rl_max_iterations"}
    assert not [key for key in found if "gpu" in key[0]]


def test_values_that_are_not_finite_stay_what_they_are(root):
    path = write_run(root, "a", [])
    (path / "metrics.jsonl").write_text('{"iteration": 1, "episode/return": NaN, "perf/steps_per_s": Infinity}\n')
    found = scrape(root)
    assert math.isnan(found["robot_rl_episode_return", "a"])
    assert found["robot_rl_steps_per_second", "a"] == math.inf


def test_processes_are_counted_in_the_checkpoint_where_no_launcher_is_known(root):
    write_run(root, "a", [ROW], saved=[(4, 1)])
    assert scrape(root)["robot_rl_ranks", "a"] == 2


def test_states(root):
    write_run(root, "done", [{**ROW, "iteration": 10}], age_s=1e6)
    write_run(root, "elsewhere", [ROW], age_s=5)
    write_run(root, "stopped", [ROW], age_s=31)
    write_run(root, "slow", [{**ROW, "perf/steps_per_s": 100.0}], age_s=100)
    here = write_run(root, "here", [ROW], age_s=1e6)
    (write_run(root, "damaged", [ROW]) / "run.yaml").write_text("config: [")
    with lock(here / "metrics.jsonl"):
        found = scrape(root)
    states = {key[2]: key[1] for key, value in found.items() if key[0] == "robot_rl_state" and value}
    assert states == {
        **dict.fromkeys(("here", "elsewhere", "slow"), "running"),
        **{name: name for name in ("done", "stopped", "damaged")},
    }


def test_the_runs_that_are_trained_come_first_and_then_the_newest(root):
    for k in range(5):
        write_run(root, f"old{k}", [{**ROW, "iteration": 10}], age_s=1000 + k)
    with lock(write_run(root, "trained", [ROW], age_s=1e6) / "metrics.jsonl"):
        found = scrape(root, most=3)
    assert [key[1] for key in found if key[0] == "robot_rl_iteration"] == ["trained", "old0", "old1"]
    assert found["robot_rl_runs", "done"] == 5


def test_one_run(root):
    for name in ("20260101-000000-1-aaaa", "20260102-000000-1-bbbb"):
        write_run(root, name, [ROW])
    chosen = scrape(root, run="cartpole/latest")
    assert [key[1] for key in chosen if key[0] == "robot_rl_iteration"] == ["20260102-000000-1-bbbb"]


def test_only_what_was_appended_is_counted_and_a_cut_file_again(root):
    path = write_run(root, "a", [ROW, ROW]) / "metrics.jsonl"
    collector = RunsCollector(RunSource(root=root), list, lambda: NOW)

    def total():
        text = generate_latest(make_registry(collector)).decode()
        (value,) = [line.split()[-1] for line in text.splitlines() if line.startswith("robot_rl_quarantined_total")]
        return float(value)

    assert total() == 128
    with path.open("a") as file:
        file.write(json.dumps(ROW) + "\n" + '{"iteration": 5, "quarantined": 1000.0')
    assert total() == 192
    with path.open("a") as file:
        file.write("}\n")
    assert total() == 1192
    path.write_text(json.dumps(ROW) + "\n")
    assert total() == 64


def test_a_root_that_is_gone_is_reported(root):
    root.rmdir()
    assert scrape(root) == {("robot_rl_up",): 0.0}


def test_gpus(root):
    whole = Gpu(index=0, uuid="GPU-1", name="H100", utilization=0.5, memory_used=2.0**30, memory_total=2.0**36)
    part = Gpu(index=1, uuid="GPU-2", name="MIG", utilization=None, memory_used=None, memory_total=2.0**33)
    found = scrape(root, gpus=[whole, part])
    assert {key[:2]: value for key, value in found.items() if "gpu" in key[0]} == {
        ("robot_rl_gpu_utilization_ratio", "0"): 0.5,
        ("robot_rl_gpu_memory_used_bytes", "0"): 2.0**30,
        ("robot_rl_gpu_memory_total_bytes", "0"): 2.0**36,
        ("robot_rl_gpu_memory_total_bytes", "1"): 2.0**33,
    }
