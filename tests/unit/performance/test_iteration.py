"""Where an iteration's time goes: parts and stages that add up, timers that leave nothing behind."""

import gzip
import json
import time

import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.auxiliaries.auxiliary import Auxiliaries, Auxiliary
from robot_rl.learn.rollout import Batch
from robot_rl.learn.trainer import Trainer
from robot_rl.performance import iteration, profile
from robot_rl.performance.iteration import profile_iterations
from robot_rl.performance.profile import StageWatch, watching
from robot_rl.settings import NetworkCfg

CFG = PPOLearnerCfg(num_steps=4, actor=NetworkCfg(hidden=(8,)), critic=NetworkCfg(hidden=(8,), output_gain=1.0))


class Clock:
    """Time goes on by what is done."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


class Slow:
    """Its parts take known times, one within the other."""

    def __init__(self, clock):
        self.clock = clock

    def outer(self):
        self.clock.now += 2.0
        self.inner()
        return 5

    def inner(self):
        self.clock.now += 3.0

    def fail(self):
        self.clock.now += 1.0
        raise ZeroDivisionError


@pytest.fixture
def slow(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(profile, "time", clock)
    return Slow(clock)


def test_a_stage_within_another_counts_for_itself(slow):
    watch = StageWatch("cpu")
    watch.watch(slow, "outer", "outer")
    watch.watch(slow, "inner", "inner")
    with watching(watch) as spent:
        assert slow.outer() == 5
        slow.inner()
    assert spent == {"outer": 2.0, "inner": 6.0}
    assert set(vars(slow)) == {"clock"}
    slow.outer()
    assert spent == {"outer": 2.0, "inner": 6.0}


def test_a_whole_stage_keeps_what_is_within_it(slow):
    watch = StageWatch("cpu")
    watch.watch(slow, "outer", "outer", whole=True)
    watch.watch(slow, "inner", "inner")
    with watching(watch) as spent:
        slow.outer()
    assert spent == {"outer": 5.0}


def test_methods_of_a_class_are_given_back_even_after_an_error(slow):
    before = dict(vars(Slow))
    watch = StageWatch("cpu")
    for method in ("inner", "fail"):
        watch.watch(Slow, method, method)

    def run():
        with watching(watch):
            slow.outer()
            slow.fail()

    with pytest.raises(ZeroDivisionError):
        run()
    assert dict(vars(Slow)) == before
    assert watch.spent["inner"] == 3.0


class Curious(Auxiliary):
    """Takes a while after the epochs."""

    name = "curious"

    def update(self, rollout, progress):
        time.sleep(0.005)
        return {"curious/loss": torch.zeros(())}


def make_session(observer, extra=None):
    env = make_env(get_task("cartpole"), num_envs=8, device="cpu", seed=1, num_threads=1)
    runner = Trainer(env, CFG, observer=observer)
    if extra is not None:
        runner.algorithm.auxiliaries = Auxiliaries((extra,))
    return runner


@pytest.mark.long
def test_parts_and_stages_add_up(tmp_path):
    """And the runner is as it was afterwards."""
    sessions = []

    def make(observer):
        sessions.append(make_session(observer, Curious()))
        return sessions[0]

    untouched = vars(Batch)["rows"], torch.Tensor.backward
    trace = tmp_path / "trace.json.gz"
    result = profile_iterations(make, iterations=2, trace=trace)
    assert json.loads(json.dumps(result)) == result
    assert set(result["parts"]) == {"simulate", "infer", "learn", "other"}
    assert sum(cell["share"] for cell in result["parts"].values()) == pytest.approx(1.0, abs=1e-3)
    assert sum(cell["ms"] for cell in result["parts"].values()) == pytest.approx(result["iteration_ms"], rel=1e-3)
    for part in ("simulate", "learn"):
        found = result["stages"][part]
        assert sum(cell["ms"] for cell in found.values()) == pytest.approx(result["parts"][part]["ms"], rel=5e-3)
    expected = {iteration.VALUES, iteration.GATHER, iteration.FORWARD, iteration.BACKWARD, iteration.STEP, "curious"}
    assert {*expected, iteration.NORMALIZERS, iteration.REST} == set(result["stages"]["learn"])
    assert "physics" in result["stages"]["simulate"]
    shares = {part: cell["share"] for part, cell in result["parts"].items()}
    assert result["limit"] == max(shares, key=lambda part: shares[part])
    longer = max(shares["simulate"] + shares["infer"], shares["learn"])
    assert result["overlap_share"] == pytest.approx(longer, abs=1e-3)
    named = {event.get("name") for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]}
    assert {"simulate", "infer", "learn", iteration.FORWARD, iteration.STEP} <= named
    assert (vars(Batch)["rows"], torch.Tensor.backward) == untouched
    assert not {"update", "loss", "improve", "make_batch"} & set(vars(sessions[0].algorithm))
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json.gz"]
