"""Every mistake of a user gives one line that names the field, the value and what would be right."""

import dataclasses

import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import commands, events, observations, rewards, terminations
from robot_rl_envs.task import Actions, Command, Event, Observation, ObservationGroup, Reward, Sim, Task, Termination
from robot_rl_envs.terms import reward, term_info
from robot_rl_tasks.registry import get_task


def refused(*, call, **named):
    """The one line of the ValueError that ``call(**named)`` raises."""
    with pytest.raises(ValueError, match=".") as caught:
        call(**named)
    line = str(caught.value)
    assert "\n" not in line
    assert 10 < len(line) < 400
    return line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_envs": 0}, ["num_envs=0", "at least 1"]),
        ({"num_envs": -3}, ["num_envs=-3", "at least 1"]),
        ({"num_envs": 2.5}, ["num_envs=2.5", "integer"]),
        ({"num_envs": "many"}, ["num_envs='many'", "integer"]),
        ({"num_envs": True}, ["num_envs=True", "integer"]),
        ({"engine": "mujocco"}, ["engine='mujocco'", "auto, mujoco, mujoco_warp", "did you mean 'mujoco'"]),
        ({"engine": "bullet"}, ["engine='bullet'", "auto, mujoco, mujoco_warp"]),
        ({"device": "gpu"}, ["device='gpu'", "cpu, cuda"]),
        ({"device": "cuda", "engine": "mujoco"}, ["engine='mujoco'", "CPU", "device='cuda'"]),
        ({"num_threads": -1}, ["num_threads=-1", "0"]),
        ({"seed": -1}, ["seed=-1", "at least 0"]),
        ({"seed": 1.5}, ["seed=1.5", "integer"]),
    ],
)
def test_make_env_names_what_is_wrong(cart_task, options, words):
    line = refused(call=make_env, task=cart_task(), **({"num_envs": 2} | options))
    assert all(word in line for word in words), line


def test_a_gpu_that_is_not_there_is_named(cart_task, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    line = refused(call=make_env, task=cart_task(), num_envs=2, device="cuda")
    assert "device='cuda'" in line
    assert "no CUDA device" in line
    assert "device=cpu" in line


def test_a_position_driven_joint_needs_gains(cart_task):
    line = refused(call=make_env, task=cart_task(actions=Actions(kind="position")), num_envs=2)
    assert "'slider'" in line
    assert "kp=0" in line
    assert "effort" in line


@pytest.mark.parametrize("shape", [(2, 2), (3, 1), (2,), (1, 2, 1)])
def test_actions_of_another_shape(cart_task, shape):
    env = make_env(cart_task(), num_envs=2, engine="mujoco")
    with pytest.raises(ValueError, match=r"actions have shape .* wants \(2, 1\)"):
        env.step(torch.zeros(shape))
    with pytest.raises(ValueError, match=r"actions have shape .* wants \(2, 1\)"):
        env.step(np.zeros(shape))


def test_actions_need_not_be_a_tensor(cart_task):
    env = make_env(cart_task(), num_envs=2, engine="mujoco")
    for actions in (np.array([[0.5], [-1.0]]), [[0.5], [-1.0]]):
        env.step(actions)
        assert env.state.action.tolist() == [[0.5], [-1.0]]
    for actions in ("left", None, [["a"], ["b"]], [[1.0], [1.0, 2.0]]):
        assert "are not numbers of shape (2, 1)" in refused(call=env.step, actions=actions)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Reward(rewards.track_lin_vel, weight=1.0), ["track_lin_vel", "std"]),
        (lambda: Reward(rewards.track_lin_vel, weight=1.0, sigma=0.5), ["track_lin_vel", "sigma", "std"]),
        (lambda: Reward(rewards.alive, weight=1.0, std=0.5), ["alive", "std", "none"]),
        (lambda: Reward(rewards.track_lin_vel, weight=1.0, std="wide"), ["track_lin_vel", "std", "'wide'"]),
        (lambda: Reward(rewards.alive, weight="much"), ["alive", "weight", "'much'"]),
        (lambda: Reward(rewards.alive, weight=float("nan")), ["alive", "weight", "nan"]),
        (lambda: Reward(terminations.tilted, weight=1.0, limit_rad=1.0), ["tilted", "termination", "reward"]),
        (lambda: Reward(print, weight=1.0), ["print", "@reward"]),
        (lambda: Observation(observations.joint_vel, noise=-0.1), ["noise=-0.1", ">= 0"]),
        (lambda: Observation(observations.joint_vel, clip=0.0), ["clip=0.0", "> 0"]),
        (lambda: Observation(observations.joint_vel, history=0), ["history=0", "[1, 100]"]),
        (lambda: Observation(observations.joint_vel, history=1.5), ["history=1.5", "int"]),
        (
            lambda: Event(events.push, mode="sometimes", xy=1.0, yaw=0.0),
            ["mode='sometimes'", "startup, reset or interval"],
        ),
        (
            lambda: Event(events.push, mode="interval", interval_s=(3.0, 2.0), xy=1.0, yaw=0.0),
            ["interval_s=(3.0, 2.0)"],
        ),
        (lambda: Sim(timestep=0.0), ["sim.timestep=0.0", "(0, 0.05]"]),
        (lambda: Sim(decimation=0), ["sim.decimation=0", "[1, 100]"]),
        (lambda: Sim(solver="gauss"), ["sim.solver='gauss'", "newton, cg, pgs"]),
        (lambda: Sim(iterations=0), ["sim.iterations=0"]),
        (lambda: Actions(kind="torque"), ["actions.kind='torque'", "position or effort"]),
        (lambda: Actions(clip=-1.0), ["actions.clip=-1.0", "> 0"]),
        (lambda: reward(lambda s, i: 1.0), ["@reward", "made by def"]),
        (lambda: term_info(observations.is_moving), ["is_moving", "not a term"]),
    ],
)
def test_terms_and_options_name_what_is_wrong(call, words):
    line = refused(call=call)
    assert all(word in line for word in words), line


def test_a_command_needs_a_time_to_last():
    ranges = dict.fromkeys(("vx_lo", "vx_hi", "vy_lo", "vy_hi", "yaw_lo", "yaw_hi", "standing"), 0.0)
    line = refused(call=Command, fn=commands.uniform_velocity, resample_s=(0.0, 1.0), **ranges)
    assert "resample_s=(0.0, 1.0)" in line


def test_a_task_needs_an_actor_and_a_length():
    terms = {"joint_pos": Observation(observations.joint_pos_rel)}
    parts = {"name": "t", "robot": get_robot("cartpole"), "rewards": {"alive": Reward(rewards.alive, weight=1.0)}}
    critic = {"critic": ObservationGroup(terms=terms)}
    assert "'actor'" in refused(call=Task, observations=critic, **parts)
    actor = {"actor": ObservationGroup(terms=terms)}
    assert "episode_length_s=0" in refused(call=Task, observations=actor, episode_length_s=0, **parts)


@pytest.mark.parametrize("name", ["lin vel", "a-b", "2nd", "", "x.y", "a;b"])
def test_terms_and_groups_have_names_that_can_be_written(cart_task, name):
    term = Reward(rewards.alive, weight=1.0)
    assert f"rewards={name!r}" in refused(call=cart_task, rewards={name: term})
    group = ObservationGroup(terms={"v": Observation(observations.joint_vel)})
    assert f"observations={name!r}" in refused(call=cart_task, observations={"actor": group, name: group})
    wrong = ObservationGroup(terms={name: Observation(observations.joint_vel)})
    assert f"observations.actor={name!r}" in refused(call=cart_task, observations={"actor": wrong})


def test_a_term_listed_under_another_kind(cart_task):
    term = Reward(rewards.alive, weight=1.0)
    assert "terminations.t='reward': must be a termination" in refused(call=cart_task, terminations={"t": term})
    assert "observations.actor.t='reward'" in refused(
        call=cart_task, observations={"actor": ObservationGroup(terms={"t": term})}
    )
    assert "rewards.t=<built-in" in refused(call=cart_task, rewards={"t": print})
    assert "needs at least one term" in refused(call=cart_task, observations={"actor": ObservationGroup(terms={})})


def test_names_that_nothing_has_get_a_suggestion():
    assert "did you mean 'go2_flat'" in refused(call=get_task, name="go2_flta")
    assert "did you mean 'cartpole'" in refused(call=get_robot, name="cartpol")


def test_a_robot_with_a_model_that_lacks_what_it_names(cart_task, tmp_path):
    robot = get_robot("cartpole")
    ghost = dataclasses.replace(robot.joints[1], name="elbow")
    wrong = dataclasses.replace(robot, joints=(robot.joints[0], ghost))
    line = refused(call=Scene, robot=wrong, sim=Sim(), actions=Actions(kind="effort"))
    assert "cartpole" in line
    assert "'elbow'" in line


def test_an_index_of_a_joint_or_body_outside_the_robot(cart_task):
    """Read unchecked on the device, it would be another joint's value or worse."""
    tasks = {
        "rewards.far.joint": cart_task(rewards={"far": Reward(rewards.centred, weight=1.0, joint=2)}),
        "terminations.far.joint": cart_task(
            terminations={"far": Termination(terminations.joint_beyond, joint=-1, limit=1.0)}
        ),
        "events.far.body": cart_task(
            events={"far": Event(events.base_mass, mode="startup", body=9, mass=0.1, com=0.0)}
        ),
    }
    for path, task in tasks.items():
        line = refused(call=make_env, task=task, num_envs=2)
        assert path in line


def test_the_pgs_solver_is_the_cpu_engine_s(cart_task):
    task = cart_task(sim=Sim(timestep=0.05, decimation=2, solver="pgs"))
    assert "sim.solver='pgs'" in refused(call=make_env, task=task, num_envs=2, engine="mujoco_warp")


def test_a_checkpoint_of_another_size_or_task_is_refused(cart_task, go2_task):
    small, large = (make_env(cart_task(), num_envs=n, engine="mujoco") for n in (2, 3))
    with pytest.raises(ValueError, match=r"checkpoint has \(3.*wants \(2"):
        small.load_state_dict(large.state_dict())
    with pytest.raises(ValueError, match="checkpoint has nothing"):
        small.load_state_dict({})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ((float("nan"), 0.0, 0.0), "must be finite"),
        ("fast", "must be 3 numbers"),
        ((1.0,), "needs 3 components"),
        (None, "must be 3 numbers"),
    ],
)
def test_a_command_or_a_push_of_something_else_than_three_numbers_changes_nothing(go2_task, value, words):
    env = make_env(go2_task(), num_envs=2, engine="mujoco", seed=1)
    env.reset()
    before = env.state.qvel.clone()
    assert words in refused(call=env.push, delta_v=value)
    if value is not None:  # It ends a command.
        assert words in refused(call=env.set_command, value=value)
    assert torch.equal(env.state.qvel, before)
    assert not env.state.command_hold.any()
