"""The bundles of a team with several policies: run side by side, they are the torch policies."""

import contextlib
import shutil

import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import observations
from robot_rl_envs.task import Observation, ObservationGroup

from robot_rl.errors import UserError
from robot_rl.evaluation import evaluate_run, evaluation_task
from robot_rl.evaluation.bundle_folders import policies_in, team_bundles
from robot_rl.evaluation.team_rows import export_team
from robot_rl.learn.algorithms.mappo.config import MAPPOLearnerCfg
from robot_rl.learn.build import make_actor
from robot_rl.learn.dims import make_env_spec
from robot_rl.runs.policies import find_task_name, one_bundle
from robot_rl.view.viewer.drive import Driver


@pytest.fixture(scope="module")
def made(puck_task, tmp_path_factory):
    """A task of three pucks, the policies of one and of the other two, and the folder of their bundles."""
    from robot_rl_deploy.contract import TrainingSpec

    seen = {"pos": Observation(observations.joint_pos_rel), "vel": Observation(observations.joint_vel, scale=0.1)}
    groups = {name: ObservationGroup(terms=seen, noise=name == "actor") for name in ("actor", "critic")}
    task, cfg = evaluation_task(puck_task(3, observations=groups)), MAPPOLearnerCfg(groups=(("p0",), ("p1", "p2")))
    training = TrainingSpec(run_id="a", task="pucks", git_commit="unknown", iteration=1)
    with contextlib.closing(make_env(task, num_envs=1, seed=0)) as env:
        torch.manual_seed(0)
        actor = make_actor(cfg, make_env_spec(env, cfg), None)
        folder = tmp_path_factory.mktemp("pucks") / "policy"
        export_team(env, actor, folder, training=training)
    return task, actor, folder


@pytest.fixture
def pucks(made, tmp_path):
    """The same, with a folder of the test's own."""
    task, actor, folder = made
    return task, actor, shutil.copytree(folder, tmp_path / "policy")


@pytest.mark.long
def test_they_are_the_torch_policies(pucks):
    task, actor, folder = pucks
    assert policies_in(folder) == ["p0", "p1+p2"]
    assert {name: path.name for name, path in team_bundles(folder, task).items()} == {
        "p0": "p0",
        "p1": "p1+p2",
        "p2": "p1+p2",
    }
    found = evaluate_run(
        lambda: make_env(task, num_envs=3, seed=1),
        policy=lambda obs: actor.mean(obs["actor"]),
        bundle=folder,
        seconds=1.0,
    )
    assert found["agreement"]["actions"]
    assert 0.0 < found["agreement"]["action_error"] < 1e-5
    assert found["agreement"]["observation_error"] < 1e-5
    assert found["agreement"]["metrics"]
    assert found["onnx"]["return"]["mean"] == pytest.approx(found["torch"]["return"]["mean"], abs=1e-4)


@pytest.mark.long
def test_the_page_and_the_film_drive_them(pucks):
    task, actor, folder = pucks
    with contextlib.closing(make_env(task, num_envs=2, seed=1)) as env:
        driver, obs, given = Driver(env, folder), env.get_observations(), []
        env.step, step = lambda action: given.append(action) or step(action), env.step
        driver.step()
    torch.testing.assert_close(given[0], actor.mean(obs["actor"]).detach(), atol=1e-5, rtol=0)


@pytest.mark.long
def test_a_robot_without_a_bundle_is_named(pucks):
    task, _, folder = pucks
    (folder / "p0" / "contract.json").unlink()
    with pytest.raises(UserError, match="has no bundle for robot 'p0'; export the run again"):
        team_bundles(folder, task)


@pytest.mark.long
def test_what_takes_one_bundle_says_which_there_are(pucks):
    _, _, folder = pucks
    assert find_task_name("", str(folder), "runs") == "pucks"
    assert one_bundle(folder / "p0") == folder / "p0"
    with pytest.raises(UserError, match=f"has a bundle for each policy of the team; name one: policy={folder}/p0"):
        one_bundle(folder)
