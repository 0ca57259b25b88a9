"""The binary in lockstep on a task with measured values: the actions are the bundle's on the same states, by name."""

import contextlib

import numpy as np
import pytest
import torch
from robot_rl_deploy.contract import TrainingSpec
from robot_rl_deploy.export import export_policy
from robot_rl_deploy.policy import BundlePolicy
from robot_rl_envs.make import make_env

from robot_rl.errors import UserError
from robot_rl.evaluation import evaluation_task
from robot_rl.evaluation.policies import robot_state
from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.settings import NetworkCfg
from robot_rl.sim2sim.link import LOOPBACK, free_ports, make_link
from robot_rl.sim2sim.parity import BinaryController, ParityCfg, start_responders
from robot_rl.sim2sim.plant import LONE, Plant
from tests.deploy.conftest import load

RUN = TrainingSpec(run_id="test", task="ball", git_commit="unknown", iteration=0)
NO_REALTIME = ["--fifo-writer", "0", "--fifo-policy", "0", "--no-watchdog"]
STEPS = 25


@pytest.fixture(scope="module")
def ball():
    return load("parity/test_measured.py")


@pytest.fixture(scope="module")
def bundle(ball, tmp_path_factory):
    """An untrained policy that reads where the ball is, then how fast it moves."""
    env = make_env(evaluation_task(ball.ball_task()), num_envs=1, engine="mujoco", seed=7, num_threads=1)
    cfg, generator = NetworkCfg(hidden=(32, 32), output_gain=0.3), torch.Generator().manual_seed(0)
    actor = Actor(env.get_observations()["actor"].shape[1], env.num_actions, cfg, generator=generator)
    out = tmp_path_factory.mktemp("ball") / "policy"
    export_policy(env, actor, out, run=RUN, steps=200)
    env.close()
    return out


def test_actions_in_lockstep_are_the_bundles(ball, bundle, tmp_path):
    """The simulated robot's task has the measured terms in another order than the policy's contract."""
    task = evaluation_task(ball.ball_task(("ball_vel", "ball")))
    policy, seen = BundlePolicy(bundle), []
    with contextlib.ExitStack() as stack:
        plant = stack.enter_context(contextlib.closing(Plant(task, seed=3, tick_s=0.0)))
        assert list(plant.env.robot_state())[-2:] == ["measured/ball_vel", "measured/ball_pos"]
        controller = BinaryController(plant, *start_responders(plant, {LONE: bundle}, ParityCfg(), tmp_path, stack))
        obs = plant.env.reset()
        controller.reset(torch.ones(1, dtype=torch.bool))
        for step in range(STEPS):
            action = controller(obs)
            state = robot_state(plant.env)
            seen.append(state["measured/ball_pos"][0])
            np.testing.assert_allclose(action, policy.act(state)[1], atol=2e-5, err_msg=f"step {step}")
            obs, _, dones, _ = plant.env.step(action)
            assert not bool(dones[0])
    assert controller.faults == []
    assert np.ptp(seen, axis=0).max() > 0.01


def test_a_task_without_what_the_policy_reads_is_refused(ball, bundle):
    with contextlib.closing(Plant(evaluation_task(ball.ball_task(("ball",))), seed=3, tick_s=0.0)) as plant:
        line = "its policy reads measured/ball_vel; task=ball measures measured/ball_pos"
        with pytest.raises(UserError, match=line):
            make_link(plant.robot, f"udp:{LOOPBACK}:{free_ports(1)[0]}", bundle)
