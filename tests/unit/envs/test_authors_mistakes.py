"""A mistake in a task or a robot is one line that names the place, and never an error of MuJoCo or Warp."""

import dataclasses
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import robot_rl_tasks
import torch
import warp as wp
from robot_rl_assets.registry import get_robot
from robot_rl_assets.robot import Robot
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.make import make_env
from robot_rl_envs.task import Actions, Event, Observation, Reward, Sim, TorchTerm
from robot_rl_envs.terms import event, observation, reward
from robot_rl_tasks.registry import get_task


def refused(call, *words):
    """The one line of the ValueError that ``call`` raises; it holds the words."""
    with pytest.raises(ValueError, match=".") as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line
    assert [word for word in words if word not in line] == [], line
    return line


def compiled(robot):
    return lambda: Scene(robot, Sim(), Actions(kind="effort"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"feet": ("FL", "FX", "RL", "RR")}, ["feet='FX'", "no geom", "did you mean"]),
        ({"imu_site": "imuu"}, ["imu_site='imuu'", "no site", "'imu'"]),
        ({"base_body": "bas_link"}, ["base_body='bas_link'", "no body", "'base_link'"]),
        ({"base_body": "FL_hip"}, ["base_body='FL_hip'", "without a free joint"]),
    ],
)
def test_names_are_looked_up_before_mujoco_compiles(changes, words):
    robot = dataclasses.replace(get_robot("unitree_go2"), **changes)
    refused(compiled(robot), "robot 'unitree_go2'", "model.xml", *words)


def test_a_joint_that_the_model_does_not_have():
    cart = get_robot("cartpole")
    robot = dataclasses.replace(cart, joints=(dataclasses.replace(cart.joints[0], name="slidr"), cart.joints[1]))
    refused(compiled(robot), "joints='slidr'", "model.xml", "did you mean 'slider'")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("</worldbody>", "", ["cannot be read"]),
        ("<body name=", "<body nam=", ["cannot be read", "nam"]),
        ('mass="1"', 'mass="-1"', ["does not compile", "mass"]),
    ],
)
def test_what_mujoco_refuses_names_the_file(tmp_path, old, new, words):
    cart = get_robot("cartpole")
    path = tmp_path / "mine.xml"
    path.write_text(cart.model.read_text().replace(old, new, 1))
    refused(compiled(Robot(name="mine", model=path, joints=cart.joints)), "robot 'mine'", str(path), *words)


@pytest.fixture
def own_task():
    """write(old, new): a copy of cartpole's file with one piece of text replaced, as a task called "slipped"."""
    folder = Path(robot_rl_tasks.__file__).parent / "slipped"

    def write(old, new):
        folder.mkdir()
        text = (folder.parent / "cartpole" / "__init__.py").read_text()
        assert old in text
        (folder / "__init__.py").write_text(text.replace(old, new, 1))
        sys.modules.pop("robot_rl_tasks.slipped", None)

    yield write
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rewards.centred", "rewards.centered", ["AttributeError", "centered"]),
        ("weight=", "wait=", ["Reward", "weight"]),
        ("robot_rl_envs.mdp import", "robot_rl_envs.mpd import", ["ModuleNotFoundError", "mpd"]),
        ("return Task(", "return Task(,", ["SyntaxError"]),
        ('get_robot("cartpole")', 'get_robot("cartpole").joints["hinge"]', ["TypeError"]),
    ],
)
def test_a_mistake_in_a_task_s_file_names_the_line(own_task, old, new, words):
    own_task(old, new)
    refused(lambda: get_task("slipped"), "task=slipped", "slipped/__init__.py:", *words)


def test_a_task_s_file_that_returns_nothing(own_task):
    own_task("return Task(", "Task(")
    refused(lambda: get_task("slipped"), "must lead to a function that returns a Task", "found None")


@wp.func
def misspelt(s: Any, i: int) -> float:
    return s.joint_poss[i, 0]


LINE = misspelt.func.__code__.co_firstlineno + 2
"""Of the mistake in it; Warp counts it from the decorator, since `s` is of any type."""


@reward
@wp.func
def reads_misspelt(s: Any, i: int) -> float:
    return 2.0 * misspelt(s, i)


@reward
@wp.func
def reads_unwatched(s: Any, i: int) -> float:
    return float(s.engine_cvel[i, 1, 0])


@reward
@wp.func
def counts(s: Any, i: int):
    return 1


@event(writes="model")
@wp.func
def writes_undeclared(s: Any, i: int, rng: wp.uint32):
    s.body_mass[i, 1, 0] = 1.0


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"rewards": {"mine": Reward(reads_misspelt, weight=1.0)}},
            ["rewards.mine", "s.joint_poss", f"misspelt, {__file__}:{LINE};", "did you mean 'joint_pos'"],
        ),
        ({"rewards": {"mine": Reward(reads_unwatched, weight=1.0)}}, ["rewards.mine", "data=('cvel',)"]),
        ({"rewards": {"mine": Reward(counts, weight=1.0)}}, ["rewards.mine", "int32"]),
        ({"events": {"mine": Event(writes_undeclared)}}, ["events.mine", "model_fields=('body_mass',)"]),
    ],
)
def test_a_term_that_does_not_compile_is_named(cart_task, fields, words):
    refused(lambda: make_env(cart_task(**fields), num_envs=2, engine="mujoco"), *words)


def test_a_term_has_to_return_a_number():
    def nothing(s: Any, i: int) -> float:
        s.joint_pos[i, 0]

    def sometimes(s: Any, i: int) -> float:
        if s.joint_pos[i, 0] > 0.0:
            return 1.0

    for function in (nothing, sometimes):
        refused(lambda function=function: reward(wp.func(function)), f"@reward {function.__name__}", "return a number")


def test_names_that_a_term_declares(cart_task):
    wide = observation(size="leggs")(wp.func(lambda_free))
    terms = {"mine": Observation(wide)}
    task = cart_task()
    task.observations["actor"].terms |= terms
    refused(lambda: make_env(task, num_envs=2), "observations.actor.mine", "size='leggs'", "joints")
    drawn = {"mine": Event(event(writes="model", model_fields=("body_mas",))(wp.func(drawn_free)))}
    refused(lambda: make_env(cart_task(events=drawn), num_envs=2), "events.mine", "'body_mas'", "'body_mass'")


def lambda_free(s: Any, i: int, j: int) -> float:
    return 1.0


def drawn_free(s: Any, i: int, rng: wp.uint32):
    s.body_mas[i, 1, 0] = 1.0


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda s: None, ["NoneType", "(2,)"]),
        (lambda s: s.joint_pos, ["(2, 2)", "(2,)"]),
        (lambda s: s.joint_poss[:, 0], ["joint_poss", "did you mean 'joint_pos'"]),
    ],
)
def test_a_torch_term_is_named(cart_task, fn, words):
    def steps():
        task = cart_task(rewards={"mine": TorchTerm(kind="reward", fn=fn)})
        make_env(task, num_envs=2, engine="mujoco").step(torch.zeros(2, 1))

    refused(steps, "rewards.mine", *words)
