"""What a GPU would be waited for, or a graph could not hold, is found on a CPU and named."""

import dataclasses
from typing import Any

import pytest
import torch
import warp as wp
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task, list_tasks

from robot_rl.learn.algorithms.ppo.ppo import PPO
from robot_rl.learn.auxiliaries.motions import write_motion
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.performance.capture import (
    ALLOCATION,
    BRANCH,
    NUMBER,
    SYNC,
    check_capture,
    check_env,
    check_learner,
    watched_cfg,
)
from robot_rl.runs.settings import change, default_tree, resolve


@pytest.fixture(scope="module")
def cartpole():
    return check_env(lambda: make_env(get_task("cartpole"), num_envs=4, engine="mujoco_warp"))[1]


def learner_of(task, learner="ppo", **changes):
    tree = change(default_tree(task, "cpu", learner), changes)
    return watched_cfg(resolve(tree).learner)


def found(env, **changes):
    cfg = learner_of("cartpole", **{"actor.hidden": [8], "critic.hidden": [8], **changes})
    return check_learner(env, lambda stub: make_trainer(stub, cfg, seed=1))


def test_nothing_is_waited_for_and_the_gpu_is_left_as_it_was(cartpole):
    generator = torch.Generator
    assert found(cartpole) == []
    assert torch.Generator is generator


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (lambda x: x.sum().item(), "a number read"),
        (lambda x: bool((x > 0).any()), "a truth value read|a number read"),
        (lambda x: x.nonzero(), "nonzero"),
        (lambda x: x[x > 0], "indexed by a mask"),
        (lambda x: x.cpu(), "copied to the host"),
        (lambda x: torch.zeros(x.shape).copy_(x), "copied to the host"),
        (lambda x: x.sum().tolist(), "a number read|copied to the host"),
    ],
)
def test_what_waits_is_named_with_its_line(cartpole, monkeypatch, read, what):
    loss = PPO.loss

    def waits(self, batch, frozen):
        read(batch.advantage)
        return loss(self, batch, frozen)

    monkeypatch.setattr(PPO, "loss", waits)
    findings = found(cartpole)
    assert {(one.kind, one.part) for one in findings} == {(SYNC, "update")}
    assert all("in waits" in one.where or "in <lambda>" in one.where for one in findings)
    assert any(word in str(findings[0]) for word in what.split("|"))


def test_a_number_that_changes_and_another_way_are_found(cartpole, monkeypatch):
    act, calls = Actor.act, []

    def counts(self, obs, *args):
        calls.append(0)
        return act(self, obs * float(len(calls)), *args)

    monkeypatch.setattr(Actor, "act", counts)
    assert {(one.kind, one.part) for one in found(cartpole)} == {(NUMBER, "rollout")}

    def turns(self, obs, *args):
        calls.append(0)
        return act(self, obs.abs() if len(calls) % 8 == 0 else obs, *args)

    calls.clear()
    monkeypatch.setattr(Actor, "act", turns)
    assert (BRANCH, "rollout") in {(one.kind, one.part) for one in found(cartpole)}


def waits_in_torch(env: Any) -> torch.Tensor:
    return torch.full_like(env.reward, float(env.reward.numpy().sum()))


def test_what_a_step_of_the_environment_asks_of_warp_is_found(monkeypatch):
    from robot_rl_envs.buffers import StepResults

    fill = StepResults.fill

    def asks(self, state):
        wp.zeros(3)
        self._written["actor"].numpy()
        return fill(self, state)

    monkeypatch.setattr(StepResults, "fill", asks)
    findings, _ = check_env(lambda: make_env(get_task("cartpole"), num_envs=4, engine="mujoco_warp"))
    assert {(one.kind, one.part) for one in findings} == {(ALLOCATION, "environment"), (SYNC, "environment")}
    assert all("in asks" in one.where for one in findings)


@pytest.mark.long
@pytest.mark.parametrize("task", list_tasks())
def test_every_task_can_be_captured(task):
    cfg, found = learner_of(task), get_task(task)
    solver = "newton" if found.sim.solver == "pgs" else found.sim.solver  # Which MuJoCo Warp lacks.
    found = dataclasses.replace(found, sim=dataclasses.replace(found.sim, solver=solver))
    findings = check_capture(
        lambda: make_env(found, num_envs=4, engine="mujoco_warp"),
        lambda stub: make_trainer(stub, cfg, seed=1),
    )
    assert [str(one) for one in findings] == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("learner", "changes"),
    [
        ("flashsac", {}),
        ("ppo", {"actor.memory.kind": "gru", "critic.memory.kind": "gru", "symmetry": "none"}),
        ("ppo", {"symmetry": "augment", "normalize_values": True}),
        ("ppo", {"rnd.weight": 0.5, "symmetry": "none"}),
    ],
)
def test_every_learner_can_be_captured(learner, changes):
    env = check_env(lambda: make_env(get_task("go2_flat"), num_envs=4, engine="mujoco_warp"))[1]
    cfg = learner_of("go2_flat", learner, **changes)
    assert [str(one) for one in check_learner(env, lambda stub: make_trainer(stub, cfg, seed=1))] == []


@pytest.mark.long
def test_a_teacher_a_reference_and_a_motion_prior(cartpole, tmp_path):
    """What is learned beside the task: each on the device, with the file or the run that it stems from."""
    env = make_env(get_task("cartpole"), num_envs=4, engine="mujoco")
    runner = make_trainer(env, learner_of("cartpole"), run_dir=tmp_path / "teacher", seed=1)
    runner.train(1)
    poses = torch.randn(200, env.get_observations()["actor"].shape[1])
    write_motion(tmp_path / "motion.safetensors", poses, torch.zeros(200), env.components("actor"), env.step_dt)
    teacher = str(tmp_path / "teacher")
    for learner, changes in (
        ("distill", {"teacher.run": teacher}),
        ("ppo", {"reference.run": teacher}),
        ("ppo", {"amp.weight": 0.5, "amp.group": "actor", "amp.motions": str(tmp_path / "motion.safetensors")}),
    ):
        cfg = learner_of("cartpole", learner, **changes)
        findings = check_learner(cartpole, lambda stub, cfg=cfg: make_trainer(stub, cfg, seed=1))
        assert [str(one) for one in findings] == [], learner


def test_the_command_lists_nothing_for_a_task_of_ours_and_refuses_others(run):
    code, out, err = run("profile", "task=cartpole", "check=capture")
    assert code == 0, err
    assert out.startswith("nothing found: cartpole, learner=ppo")
    for words, line in (
        (["task=cartpole", "check=everything"], "check=everything: must be capture"),
        (["task=cartpole", "check=capture", "learner=rsl_rl"], "learner=rsl_rl: has a loop of its own"),
        (["task=cartpole", "check=capture", "device=cpu"], "device=cpu: does not affect check=capture"),
        (["task=gym:Pendulum-v1", "check=capture"], "check=capture is for robot-rl's own tasks, this one is of "),
    ):
        code, out, err = run("profile", *words)
        assert (code, out) == (2, "")
        assert line in err
