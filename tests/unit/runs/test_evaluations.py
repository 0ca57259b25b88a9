"""Evaluations while a policy is trained: nothing waits, the newest policy counts, a lost evaluator is replaced."""

import json
from dataclasses import replace

import pytest
import torch

from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint, load_checkpoint
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.policy import build_policy, make_policy
from robot_rl.learn.trainer import Trainer
from robot_rl.runs.evaluations import Evaluations, Evaluator, EvaluatorLostError
from robot_rl.runs.run_dir import EVALUATIONS
from tests.unit.learn.conftest import PointEnv


class Slow(Evaluator):
    """Evaluates for as many looks as it is given, one number after the other; an error in its place is raised."""

    def __init__(self, *looks):
        self.looks, self.begun, self.left, self.replaced, self.closed = list(looks), [], 0, 0, False

    def begin(self, request):
        self.begun.append(request)
        self.left = self.looks.pop(0) if self.looks else 0

    def poll(self):
        if isinstance(self.left, Exception):
            raise self.left
        self.left -= 1
        return {"return": float(self.begun[-1].iteration)} if self.left < 0 else None

    def replace(self):
        self.replaced += 1

    def close(self):
        self.closed = True


class Session:
    """What is looked at of a session."""

    def __init__(self):
        self.iteration, self.env_steps, self.mirrors = 0, 0, None
        self.dims = EnvSpec(actor=1, critic=1, action=1)
        self.actor = torch.nn.Linear(1, 1)


@pytest.fixture
def rows(tmp_path):
    """rows(evaluator, iterations, every=1, first=0): what the rows get, and the evaluations."""

    def run(evaluator, iterations, every=1, first=0):
        evaluations, session, found = Evaluations(evaluator, every, tmp_path), Session(), {}
        for iteration in range(first + 1, first + iterations + 1):
            session.iteration, session.env_steps = iteration, 10 * iteration
            if row := evaluations.on_iteration_end(session):
                found[iteration] = (row["eval/iteration"], row["eval/return"], row["eval/skipped"])
        return found, evaluations

    return run


def lines(folder):
    return [json.loads(line) for line in (folder / EVALUATIONS).read_text().splitlines()]


def test_each_so_many_iterations_are_evaluated(rows, tmp_path):
    found, _ = rows(Slow(), 7, every=3)
    assert found == {4: (3.0, 3.0, 0.0), 7: (6.0, 6.0, 0.0)}
    assert lines(tmp_path)[0] == {"iteration": 3, "env_steps": 30, "metrics": {"return": 3.0}}


def test_the_newest_waits_and_those_between_are_skipped(rows):
    found, evaluations = rows(Slow(3, 0), 6)
    # 2 and 3 gave way to 4, and 4 to 5 before it had begun.
    assert found == {5: (1.0, 1.0, 2.0), 6: (5.0, 5.0, 1.0)}
    evaluations.finish()


def test_the_last_ones_are_waited_for_and_not_for_long(rows, tmp_path, capsys):
    _, evaluations = rows(Slow(0, 2), 2)
    evaluations.finish()
    assert [line["iteration"] for line in lines(tmp_path)] == [1, 2]
    _, evaluations = rows(Slow(10_000), 1)
    evaluations.finish(0.0)
    assert "the evaluation of iteration 1 is not ready after 0 s, and is given up" in capsys.readouterr().err


def test_a_lost_evaluator_begins_again_and_a_failure_is_one_line(rows, capsys):
    evaluator = Slow(EvaluatorLostError("killed"), 0, ValueError("no episode\nended"), 0)
    found, _ = rows(evaluator, 6)
    assert evaluator.replaced == 1
    assert [request.iteration for request in evaluator.begun[:2]] == [1, 1]
    assert found[3][:2] == (1.0, 1.0)
    assert 6 in found
    error = capsys.readouterr().err
    assert "the evaluator was lost (killed); the training continues" in error
    assert "failed (no episode ended); the training continues" in error


def test_after_too_many_failures_nothing_is_evaluated(rows, capsys):
    evaluator = Slow(*[EvaluatorLostError("killed")] * 9)
    found, evaluations = rows(evaluator, 20)
    evaluations.finish(0.0)
    assert not found
    assert len(evaluator.begun) == 4
    assert "nothing is evaluated any more" in capsys.readouterr().err


def test_what_is_trained_again_is_evaluated_again(rows, tmp_path):
    rows(Slow(), 6)
    assert [line["iteration"] for line in lines(tmp_path)] == [1, 2, 3, 4, 5]
    with (tmp_path / EVALUATIONS).open("a") as file:
        file.write('{"iteration": 6, "env')
    rows(Slow(), 2, first=3)
    assert [line["iteration"] for line in lines(tmp_path)] == [1, 2, 3, 4]


def test_a_training_has_the_same_bits_and_the_policy_is_that_of_the_iteration(tmp_path):
    cfg, found = PPOLearnerCfg(num_steps=8, max_iterations=4, save_interval=1, keep_checkpoints=0), []
    cfg = replace(cfg, critic=replace(cfg.critic, hidden=(16,)), actor=replace(cfg.actor, hidden=(16,)))
    for name in ("with", "without"):
        rows = []
        runner = Trainer(PointEnv(), cfg, run_dir=tmp_path / name, observer=rows.append)
        if name == "with":
            evaluator = Slow()
            runner.on_iteration_end = Evaluations(evaluator, 2, tmp_path / name).on_iteration_end
        runner.train()
        found.append(load_checkpoint(latest_checkpoint(tmp_path / name))[0])
        assert ("eval/return" in rows[2]) == (name == "with")
    assert all(torch.equal(tensor, found[1][name]) for name, tensor in found[0].items())
    request = evaluator.begun[0]
    checkpoint = tmp_path / "with" / "checkpoints" / "000002"
    policy = build_policy(cfg, dict(request.meta), request.weights, checkpoint)
    saved = make_policy(tmp_path / "with", checkpoint)
    obs = PointEnv().get_observations()
    assert torch.equal(policy(obs), saved(obs))
