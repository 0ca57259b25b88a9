"""The rivals in Gymnasium's environments: what a return is, and the jobs that survive being killed."""

import importlib
import json
import runpy
import stat
import sys
from pathlib import Path

import gymnasium_rivals as rivals
import numpy as np
import pytest
from gymnasium_rivals import Job, Queue, parse_jobs, read_runs, train_one
from rivals.episodes import EpisodeLog, evaluate

from robot_rl.errors import UserError

# A worker that answers at once, is quicker with two threads, keeps a diary of when it ran, and fails for seed 13.
FAKE = """
import json, os, sys, time
job = json.loads(sys.argv[-1])
threads = job["threads"] or 2
curve = {"steps": [1], "seconds": [1.0], "return": [None]}
run = {"steps": job["steps"], "return": 10.0 * job["seed"], "train_s": 4.0 / threads, "cpu_s": 2.0, "curve": curve}
result = json.dumps({"run": run | {"threads": threads, "evaluation": [1.0, 3.0]}, "cpu_s": 2.0})
if not job["episodes"]:
    print(result)
    sys.exit()
diary = open(os.path.join(os.path.dirname(__file__), "diary"), "a")
print("in", job["env"], job["seed"], job["threads"], file=diary, flush=True)
print(json.dumps({"step": job["steps"] // 2, "seconds": 1.0, "return": None}), flush=True)
time.sleep(0.1)
if job["seed"] == 13:
    print("cannot open the environment", file=sys.stderr)
    sys.exit(3)
print("out", job["env"], job["seed"], file=diary, flush=True)
print(result, flush=True)
"""


@pytest.fixture
def python(tmp_path):
    """An interpreter that runs the fake worker whatever its arguments are."""
    (tmp_path / "fake.py").write_text(FAKE)
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path / "fake.py"} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def ppo(monkeypatch):
    """The program with CleanRL's settings, imported as the worker does."""
    pytest.importorskip("gymnasium")
    monkeypatch.syspath_prepend(str(rivals.WORKER.parent))
    module = importlib.import_module("gymnasium_ppo")
    yield module
    for name in ("gymnasium_ppo", "episodes"):
        sys.modules.pop(name, None)


def diary(tmp_path):
    return [line.split() for line in (tmp_path / "diary").read_text().splitlines()]


def test_the_return_is_that_of_the_last_hundred_episodes():
    points = []
    log = EpisodeLog(1000, 96, points.append)
    assert log.steps == 960
    log.begin()
    for k in range(1, 11):
        if k > 1:
            for value in range(30):
                log.add(100.0 * k + value, 7)
        log.tick(96 * k)
    result = log.finish()
    # Of the last 100 episodes: 10 of k=7 (the last of them), 30 each of 8, 9 and 10.
    expected = (sum(700 + v for v in range(20, 30)) + sum(100 * k + v for k in (8, 9, 10) for v in range(30))) / 100
    assert result["return"] == pytest.approx(expected, abs=0.01)
    assert (result["last"], result["episodes"], result["length"]) == (100, 270, 7)
    assert result["curve"]["steps"] == [*range(10, 951, 10), 960]
    assert result["curve"]["return"][:9] == [None] * 9
    # Step 100 is reported at 192, after the first 30 episodes.
    assert result["curve"]["return"][9] == 214.5
    assert [point["step"] for point in points] == result["curve"]["steps"]


def test_a_policy_is_evaluated_in_gymnasiums_environment():
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make("Hopper-v5")
    env.reset(seed=13_001)
    total, over = 0.0, False
    while not over:
        _, reward, terminated, truncated, _ = env.step(np.ones(3, dtype=np.float32))
        total, over = total + reward, terminated or truncated
    returns = evaluate("Hopper-v5", lambda obs: np.full(3, 5.0), episodes=2, seed=3)
    assert len(returns) == 2
    assert returns[1] == pytest.approx(total, abs=0.01)


def test_advantages_end_with_the_episode(ppo):
    torch = ppo.torch
    rows = [torch.zeros(3, 1), torch.zeros(3, 1), torch.zeros(3)]
    rollout = ppo.Rollout(
        *rows,
        value=torch.tensor([1.0, 2.0, 3.0]),
        reward=torch.tensor([1.0, 1.0, 1.0]),
        over=torch.tensor([0.0, 1.0, 0.0]),
        next_value=torch.tensor(4.0),
    )
    # By hand with gamma 0.5, lambda 0.5: 1 + 2 - 3 = 0; an end: 1 - 2 = -1; 1 + 1 - 1 + 0.25 * -1 = 0.75.
    assert rollout.advantages(0.5, 0.5).tolist() == [0.75, -1.0, 0.0]


@pytest.mark.long
def test_cleanrls_settings_train(ppo):
    log = EpisodeLog(4096, 2048)
    act = ppo.train("HalfCheetah-v5", 1, log)
    result = log.finish()
    assert (result["steps"], result["episodes"], result["length"]) == (4096, 4, 1000.0)
    # Untrained policies of this size neither run nor fall far back.
    assert -1000.0 < result["return"] < 500.0
    assert act(np.zeros(17)).shape == (6,)


@pytest.mark.long
@pytest.mark.skipif(not (rivals.ROOT / rivals.DEFAULT_PYTHON).is_file(), reason="make rival-gymnasium was not run")
@pytest.mark.parametrize("rival", list(rivals.RIVALS))
def test_each_rival_trains_in_its_own_environment(rival):
    run = train_one(rivals.find_python(), Job("Hopper-v5", rival, 1), 5000, lambda _: None)
    assert (run["steps"], run["load"], len(run["evaluation"])) == (4096, "alone", 20)
    # Random hoppers fall within a second: tens of steps that pay about one each.
    assert run["episodes"] > 50
    assert 5.0 < run["return"] < 200.0
    assert run["curve"]["steps"][-1] == 4096
    assert run["curve"]["return"][-1] == run["return"]
    assert {"mujoco", "gymnasium", "torch", "stable-baselines3"} <= set(run["versions"])


def test_jobs_are_named_by_their_parts():
    assert parse_jobs("Ant-v5:sb3:2") == [Job("Ant-v5", "sb3", 2)]
    assert parse_jobs("Ant-v5::7,Ant-v5:sb3:7") == [Job("Ant-v5", "cleanrl", 7), Job("Ant-v5", "sb3", 7)]
    assert len(parse_jobs("")) == len(set(parse_jobs(""))) == 30
    assert all(job.seed == 1 for job in parse_jobs("")[:10])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Ant-v4", "no 'Ant-v4'; did you mean 'Ant-v5'"),
        ("Ant-v5:sb2", "no 'sb2'; did you mean 'sb3'"),
        ("Ant-v5:sb3:x", "must be <environment>:<rival>:<seed>"),
        ("Ant-v5:sb3:1:2", "must be <environment>:<rival>:<seed>"),
    ],
)
def test_a_wrong_job_is_one_line(text, line):
    with pytest.raises(UserError, match=line):
        parse_jobs(text)


def test_timed_jobs_run_alone_and_the_others_in_pairs(python, tmp_path):
    out, lines = tmp_path / "runs.json", []
    jobs = parse_jobs("Ant-v5,Hopper-v5:sb3")
    assert Queue(python, out, steps=4096, parallel=2, say=lines.append).run(jobs) == 9
    entries = diary(tmp_path)
    inside, most = {1: 0, 2: 0, 3: 0}, {"1": 0, "2": 0}
    for word, _, seed, *threads in entries:
        inside[int(seed)] += 1 if word == "in" else -1
        if word == "in":
            assert threads == ["2" if seed == "1" else "1"]
            most[threads[0]] = max(most[threads[0]], sum(inside.values()))
    assert most == {"2": 1, "1": 2}
    runs = read_runs(out)
    assert len(runs) == 9
    assert {run["load"] for run in runs if run["seed"] == 1} == {"alone"}
    assert {run["load"] for run in runs if run["seed"] != 1} == {"pair"}
    alone = [run for run in runs if run["load"] == "alone"]
    assert all("share_of_cpu_elsewhere" in run for run in alone)
    assert all(run["threads_tried_s"] == {"1": 4.0, "2": 2.0} for run in alone)
    assert len(out.read_text().splitlines()) == 9 + 3
    assert any("to go, about 0 h 00 min" in line for line in lines)


def test_a_timed_seed_may_run_together_with_others_if_requested(python, tmp_path):
    out = tmp_path / "runs.json"
    jobs = parse_jobs("Ant-v5:sb3:1,Ant-v5:sb3:2")
    assert Queue(python, out, steps=4096, parallel=2, timed=(), say=lambda _: None).run(jobs) == 2
    assert [run["load"] for run in read_runs(out)] == ["pair", "pair"]


def test_a_stopped_queue_goes_on_with_what_is_missing(python, tmp_path):
    out = tmp_path / "runs.json"
    with pytest.raises(UserError, match="Ant-v5:sb3:13: ended with code 3: cannot open the environment"):
        Queue(python, out, steps=4096, say=lambda _: None).run(parse_jobs("Ant-v5:sb3:1,Ant-v5:sb3:13,Ant-v5:sb3:2"))
    assert [run["seed"] for run in read_runs(out)] == [1]
    assert Queue(python, out, steps=4096, say=lambda _: None).run(parse_jobs("Ant-v5:sb3")) == 2
    assert [run["seed"] for run in read_runs(out)] == [1, 2, 3]
    # Another length is another measurement: it replaces the old one.
    assert Queue(python, out, steps=8192, say=lambda _: None).run(parse_jobs("Ant-v5:sb3:1")) == 1
    assert [run["steps"] for run in read_runs(out)] == [8192, 4096, 4096]


def test_two_queues_do_not_write_one_file(python, tmp_path):
    out = tmp_path / "runs.json"
    with rivals._locked(out), pytest.raises(UserError, match=f"out={out}: another run is writing"):
        Queue(python, out, say=lambda _: None).run([])


def test_a_damaged_file_is_one_line(tmp_path):
    (tmp_path / "runs.json").write_text('{"runs": [')
    with pytest.raises(UserError, match="runs.json: damaged"):
        read_runs(tmp_path / "runs.json")


def test_one_training_of_a_rival(python):
    lines = []
    run = train_one(python, Job("Ant-v5", "sb3", 2), 4096, lines.append)
    assert (run["return"], run["load"], run["who"]) == (20.0, "alone", rivals.RIVALS["sb3"])
    with pytest.raises(UserError, match="code 3"):
        train_one(python, Job("Ant-v5", "sb3", 13), 4096, lines.append)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["job=x"], "unknown key 'job'"),
        (["parallel=3"], "parallel=3: must be 1 or 2"),
        (["steps=100"], "steps=100: must be a whole number of at least 2048"),
        (["rival_python=/not/there"], "rival_python=/not/there: no such interpreter; 'make rival-gymnasium' makes it"),
    ],
)
def test_the_script_refuses_in_one_line(words, line, capsys):
    script = Path(__file__).parents[3] / "benchmarks" / "gymnasium_rivals.py"
    assert runpy.run_path(str(script))["main"](words) == 2
    assert line in capsys.readouterr().err


def test_the_committed_file_is_whole():
    path = rivals.ROOT / "benchmarks" / "gymnasium_rivals.json"
    if not path.is_file():
        pytest.skip("the rivals were not run yet")
    runs = read_runs(path)
    assert all(run["steps"] == 999_424 and len(run["evaluation"]) == 20 for run in runs)
    assert all(run["versions"]["mujoco"] and run["machine"]["cpu"] for run in runs)
    assert json.loads(path.read_text())["about"] == rivals.ABOUT
