"""The registered tasks' policies from their bundles: what the robot will compute is what the trainer computes."""

import numpy as np
import pytest
import torch
from robot_rl_deploy.contract import ContractError, TrainingSpec
from robot_rl_deploy.describe import make_contract
from robot_rl_deploy.export import export_policy
from robot_rl_deploy.observe import Observer
from robot_rl_deploy.replay import observation_labels
from robot_rl_deploy.verify import verify_bundle
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task, list_tasks

from robot_rl.evaluation import evaluate, evaluate_run, evaluation_task, rollout
from robot_rl.evaluation.policies import ExportedPolicy, FunctionPolicy
from robot_rl.evaluation.rollout import evaluate_team
from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.settings import NetworkCfg
from tests.covering import tasks

TASKS = [name for name in list_tasks() if get_task(name).deployable]
CHOSEN = tasks(lambda task: task.deployable, ("cartpole", "go2_flat"))
RUN = TrainingSpec(run_id="test", task="test", git_commit="unknown", iteration=0)


def build(name, num_envs, episode_length_s=None):
    task = evaluation_task(get_task(name))
    if episode_length_s is not None:
        task.episode_length_s = episode_length_s
    return make_env(task, num_envs=num_envs, engine="mujoco", seed=7, num_threads=1)


@pytest.mark.parametrize("name", CHOSEN)
def test_observations_from_raw_state_are_the_environments(name):
    """Over a rollout with worlds that end on their own, time-outs and a reset of all."""
    env = build(name, 8, episode_length_s=1.2)
    contract = make_contract(env.describe_policy(), RUN)
    rows = env.num_envs  # in a team one for each robot
    observer, labels = Observer(contract, rows), observation_labels(contract)
    bound = env.describe_policy()["action_clip"]
    random, done, obs = torch.Generator().manual_seed(0), np.ones(rows, bool), env.reset()
    assert obs["actor"].shape == (rows, contract.layout.observation_size)
    ended = 0
    for step in range(100):
        if step == 70:
            obs, done = env.reset(), np.ones(rows, bool)
        observer.reset(done)
        seen = observer.observe({key: value.numpy() for key, value in env.robot_state().items()})
        right = obs["actor"].numpy()
        error = np.abs(seen - right) / np.maximum(1, np.abs(right))
        if get_task(name).robots:
            error[~env.taking_part.numpy()] = 0.0  # Nothing is computed for them.
        worst = np.unravel_index(error.argmax(), error.shape)
        assert error[worst] <= 1e-6, f"step {step}, {labels[worst[1]]}: {seen[worst]} and {right[worst]}"
        action = 6 * torch.randn(rows, env.num_actions, generator=random)
        obs, _, dones, extras = env.step(action)
        observer.last_action[:] = action.clamp(-bound, bound).numpy()
        ended += dones.sum().item()
        done = (dones.bool() | ~extras.get("acted", torch.ones(rows, dtype=torch.bool))).numpy()
    env.close()
    assert ended >= 8


@pytest.fixture(scope="module", params=CHOSEN)
def exported(request, tmp_path_factory):
    """An untrained actor of a task, and its bundle."""
    env = build(request.param, 2)
    cfg = NetworkCfg(hidden=(32, 32), output_gain=0.3)
    actor = Actor(
        env.get_observations()["actor"].shape[1], env.num_actions, cfg, generator=torch.Generator().manual_seed(0)
    )
    out = tmp_path_factory.mktemp("bundle") / "policy"
    export_policy(env, actor, out, run=RUN, steps=200)
    env.close()
    return request.param, actor, out


def test_an_exported_actor_passes_its_check(exported):
    name, _, out = exported
    report = verify_bundle(out)
    assert report.contract.robot == get_task(name).robot.name
    assert report.replay.observation_error <= 1e-6
    assert report.replay.action_error <= 1e-5


@pytest.fixture(scope="module")
def evaluated(exported):
    """The evaluation of the actor and of its bundle; of a team, in which each robot drops out, a short one."""
    name, actor, out = exported

    def drop_out(_, controller, seconds):
        return evaluate_team(lambda: build(name, 2), controller, seconds / 4)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollout, "evaluate_team", drop_out)
        return evaluate_run(
            lambda: build(name, 12), policy=lambda obs: actor.mean(obs["actor"]), bundle=out, seconds=2.0
        )


def test_torch_and_onnx_evaluate_alike(exported, evaluated):
    name, _, _ = exported
    result = evaluated
    assert result["agreement"]["actions"], result["agreement"]
    assert result["agreement"]["observation_error"] <= 1e-6
    assert result["agreement"]["metrics"], result["agreement"]
    assert result["episodes"] == 12 * max(1, len(get_task(name).robots))
    assert set(result["torch"]) == set(result["onnx"]) >= {"failure_rate", "return", "torque_rms"}


def test_evaluation_repeats_bit_for_bit(exported, evaluated):
    name, actor, _ = exported
    env = build(name, 12)
    again = evaluate(env, FunctionPolicy(lambda obs: actor.mean(obs["actor"])), seconds=2.0)
    env.close()
    assert again == evaluated["torch"]


def test_a_bundle_of_another_robot_or_rate_is_refused(exported):
    name, _, out = exported
    other = next(task for task in TASKS if get_task(task).robot.name != get_task(name).robot.name)
    env = build(other, 1)
    with pytest.raises(ContractError, match="missing"):
        ExportedPolicy(out, env)
    env.close()
    env = build(name, 1)
    env.step_dt *= 2
    with pytest.raises(ContractError, match="control_period_s is"):
        ExportedPolicy(out, env)
    env.close()
