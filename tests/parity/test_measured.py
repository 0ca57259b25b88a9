"""A task with measured terms as its bundle sees it: the Go2 with a ball that a camera's detector reports."""

import dataclasses

import pytest
import torch
from robot_rl_deploy.contract import TrainingSpec
from robot_rl_deploy.export import export_policy
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import objects
from robot_rl_envs.objects import Sphere
from robot_rl_envs.task import Observation, ObservationGroup
from robot_rl_tasks.registry import get_task

from robot_rl.evaluation import evaluate_run, evaluation_task
from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.settings import NetworkCfg

RUN = TrainingSpec(run_id="test", task="ball", git_commit="unknown", iteration=0)
MEASURED = {
    "ball": Observation(objects.object_pos, object="ball", noise=0.05, scale=0.5, history=2, measured="ball_pos"),
    "ball_vel": Observation(objects.object_lin_vel, object="ball", clip=2.0, measured="ball_vel"),
}


def ball_task(names=("ball", "ball_vel")):
    """The Go2 beside a ball, with measured terms in this order between its own."""
    task = get_task("go2_flat")
    own = task.observations["actor"].terms
    first = {name: own[name] for name in ("gyro", "gravity", "command", "clock")}
    terms = first | {name: MEASURED[name] for name in names} | own
    return dataclasses.replace(
        task,
        name="ball",
        mirror=False,
        learner=task.learner | {"symmetry": "none"},
        observations=task.observations | {"actor": ObservationGroup(terms=terms)},
        objects={"ball": Sphere(radius=0.06, mass=0.1, pos=(0.35, 0.1, 0.06))},
    )


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """An untrained actor, and its bundle."""
    env = build(2)
    cfg, generator = NetworkCfg(hidden=(32, 32), output_gain=0.3), torch.Generator().manual_seed(0)
    actor = Actor(env.get_observations()["actor"].shape[1], env.num_actions, cfg, generator=generator)
    out = tmp_path_factory.mktemp("ball") / "policy"
    export_policy(env, actor, out, run=RUN, steps=200)
    env.close()
    return actor, out


def build(num_envs):
    return make_env(evaluation_task(ball_task()), num_envs=num_envs, engine="mujoco", seed=7, num_threads=1)


@pytest.mark.long
def test_the_bundle_evaluates_as_the_torch_policy(exported):
    actor, out = exported
    result = evaluate_run(lambda: build(6), policy=lambda obs: actor.mean(obs["actor"]), bundle=out, seconds=1.5)
    assert result["agreement"]["actions"], result["agreement"]
    assert result["agreement"]["observation_error"] <= 1e-6
    assert result["agreement"]["metrics"], result["agreement"]
