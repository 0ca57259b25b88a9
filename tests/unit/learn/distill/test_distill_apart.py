"""Distillation with simulators and with overlap: the local run's bits, wherever the teacher is evaluated."""

from dataclasses import replace

import pytest
import torch

from robot_rl.learn.algorithms.distill.config import TeacherCfg
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import MemoryCfg

from ..apart import apart, assert_local_run, assert_resumed
from .conftest import FallEnv, student_cfg, teacher_cfg

MIXED = {"mix": 0.5, "mix_until": 0.9}


class MovingEnv(FallEnv):
    """The same, with a state that can be saved."""

    def state_dict(self):
        parts = {name: getattr(self, name) for name in ("x", "v", "last")}
        seen = {f"obs.{name}": tensor for name, tensor in self.obs.items()}
        return parts | seen | {"age": self.episode_length_buf, "draw": self.generator.get_state()}

    def load_state_dict(self, state):
        for name in ("x", "v", "last"):
            setattr(self, name, state[name].clone())
        self.obs = self.obs.clone()
        for name in list(self.obs.keys()):
            self.obs[name] = state[f"obs.{name}"].clone()
        self.episode_length_buf.copy_(state["age"])
        self.generator.set_state(state["draw"])


@pytest.fixture
def moving(monkeypatch):
    """`stateful` of the other tests adds what a point needs; this environment has its own."""
    import tests.unit.learn.apart as module

    monkeypatch.setattr(module, "stateful", lambda kind, sleep_s=0.0, **options: kind(**options))
    return MovingEnv


def make_cfg(run, **teacher):
    cfg = student_cfg(run, teacher=TeacherCfg(run=str(run), **teacher))
    return replace(cfg, num_steps=8, save_interval=2, keep_checkpoints=0)


@pytest.mark.parametrize("teacher", [MIXED, {"mix": 0.0, "takeover": 0.5}, {"mix": 0.0}])
def test_one_simulator_without_staleness_is_the_local_run(moving, teacher_run, tmp_path, teacher):
    rows = assert_local_run(moving, make_cfg(teacher_run, **teacher), tmp_path)
    acted = [row["teacher/acted"] for row in rows]
    assert (acted[0] > 0.0) == ("takeover" in teacher or teacher["mix"] > 0.0)
    if teacher == MIXED:
        assert acted[0] > acted[-1] > 0.0


@pytest.mark.parametrize("teacher", [MIXED, {"mix": 0.0}])
def test_a_resumed_run_is_the_run(moving, teacher_run, tmp_path, teacher):
    assert_resumed(moving, make_cfg(teacher_run, **teacher), tmp_path)


@pytest.mark.parametrize("mix", [0.0, 0.5])
def test_a_teacher_that_remembers_is_the_local_runs(moving, tmp_path, mix):
    memory = MemoryCfg(kind="gru", hidden=8)
    cfg = replace(teacher_cfg(activation="elu", output_gain=1.0, memory=memory), num_steps=8)
    Trainer(FallEnv(), cfg, run_dir=tmp_path / "teacher").train(1)
    assert_local_run(moving, make_cfg(tmp_path / "teacher", mix=mix), tmp_path)


def test_the_labels_are_the_same_wherever_they_are_computed(teacher_run):
    """Recorded step by step, and of a rollout at once."""
    recorded, computed = (
        Trainer(FallEnv(), make_cfg(teacher_run, mix=0.0, takeover=takeover), seed=1) for takeover in (1e6, 0.0)
    )
    labels = [runner.algorithm.teacher.samples(runner.collect())["teacher"] for runner in (recorded, computed)]
    assert recorded.algorithm.teacher.hook is not None
    assert computed.algorithm.teacher.hook is None
    torch.testing.assert_close(labels[0], labels[1], rtol=1e-5, atol=1e-6)


def test_a_student_learns_from_stale_rollouts_of_two_simulators(moving, teacher_run):
    rows = []
    with apart(moving, make_cfg(teacher_run, **MIXED), count=2, staleness=2, observer=rows.append) as session:
        session.train(40)
    assert rows[-1]["staleness/max"] > 0.0
    # Most of it is what it cannot see.
    assert rows[-1]["loss/imitation"] < 0.95 * rows[0]["loss/imitation"]
