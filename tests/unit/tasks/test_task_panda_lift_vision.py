"""The cube by a wrist camera: the actor is not told where it is, and its camera shows it."""

import dataclasses

import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.panda_lift_vision import CUBE_TERMS, WRIST
from robot_rl_tasks.registry import get_task

from robot_rl.runs.settings import default_tree


def test_the_actor_is_not_told_where_the_cube_is():
    mine, teacher = get_task("panda_lift_vision"), get_task("panda_lift")
    sensed = set(teacher.vectors["actor"].terms) - set(CUBE_TERMS)
    assert set(mine.vectors["actor"].terms) == sensed
    assert set(mine.rewards) == set(teacher.rewards)
    assert list(mine.images) == [WRIST]


def test_distillation_is_its_learner_and_others_can_be_named():
    assert default_tree("panda_lift_vision", "cpu")["learner"] == "distill"
    assert default_tree("panda_lift_vision", "cpu")["teacher"]["policy"] == "panda_lift"
    ppo = default_tree("panda_lift_vision", "cpu", "ppo")
    assert (ppo["learner"], ppo["actor_groups"]) == ("ppo", ["actor", WRIST])
    assert default_tree("panda_lift", "cpu")["learner"] == "ppo"


def test_the_camera_shows_the_cube_wherever_it_starts():
    """The last world's cube is out of view: where the others' images differ from its image, there is the cube."""
    task = get_task("panda_lift_vision")
    task.events = {}
    exact = {"delay_steps": (0, 0), "pos_jitter": 0.0, "angle_jitter_deg": 0.0, "noise": 0.0, "missing": 0.0}
    task.images[WRIST].camera = dataclasses.replace(task.images[WRIST].camera, **exact)
    env = make_env(task, num_envs=5, engine="mujoco", num_threads=1)
    env.reset()
    places = [(0.4, -0.15), (0.4, 0.15), (0.6, -0.15), (0.6, 0.15), (-1.0, 0.0)]
    for world, (x, y) in enumerate(places):
        env.place_object("cube", (x, y, 0.025), env_ids=torch.tensor([world]))
    image = env.step(torch.zeros(5, env.num_actions))[0][WRIST]
    assert image.shape == (5, 1, 16, 24)
    nearer = image[4] - image[:4] > 0.04  # Its top is 5 cm nearer, a tenth of the range.
    assert (nearer.sum((1, 2, 3)) >= 3).all()
    env.close()
