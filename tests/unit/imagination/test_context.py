"""What differs from world to world is part of a world's row, and no step changes it."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import warp as wp
from robot_rl_envs.entity.scene import make_scene
from robot_rl_envs.imagination.context import Number, drawn_numbers, mirror_numbers, representatives
from robot_rl_envs.imagination.imagine import Imagination
from robot_rl_envs.imagination.worlds import with_world
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import randomize
from robot_rl_envs.task import Event
from robot_rl_envs.terms import event
from robot_rl_tasks.registry import get_task


@event(writes="model", model_fields=("body_mass",), set_const=True)
def heavier_where_it_turns(s: Any, i: int, rng: wp.uint32, most: float):
    """Draw a mass from what no model has."""
    s.body_mass[i, 1, 0] = s.body_mass_nominal[1, 0] + most * wp.abs(s.base_ang_vel_b[i][2])


def drawn(name, **events):
    task = get_task(name)
    task = replace(task, events=task.events | events)
    scene = make_scene(task)
    return drawn_numbers(task, scene), scene


def test_numbers_that_follow_from_one_another_are_one():
    found, scene = drawn("go2_flat")
    one = representatives(found)
    assert [number.field for number in one] == [
        "body_mass",
        *["body_ipos"] * 3,
        "geom_friction",
        *["actuator_gainprm"] * 12,
    ]
    feet = {found[Number("geom_friction", int(foot), 0)] for foot in scene.entity.foot_geoms}
    assert len(feet) == 1
    assert found[Number("actuator_biasprm", 3, 2)] == found[Number("actuator_gainprm", 3, 0)]
    assert found[Number("body_inertia", 1, 2)] == found[Number("body_mass", 1, 0)]


def test_every_draw_of_the_library_is_found():
    more = {
        "gravity": Event(randomize.gravity, lo=0.9, hi=1.1),
        "inertia": Event(randomize.body_inertia, body="FL_thigh", lo=0.9, hi=1.1),
        "armature": Event(randomize.joint_armature, lo=0.9, hi=1.1),
        "soft": Event(randomize.foot_solref, time_lo=0.02, time_hi=0.04, damping_lo=0.8, damping_hi=1.2),
    }
    found, _ = drawn("go2_flat", **more)
    fields = [number.field for number in representatives(found)]
    assert fields.count("gravity") == 1
    assert fields.count("body_inertia") == 3
    assert fields.count("dof_armature") == 12
    assert fields.count("geom_solref") == 2


def test_the_mirror_of_a_draw():
    found, scene = drawn("go2_flat")
    perm, sign = mirror_numbers(scene, found)
    one = representatives(found)
    assert [one[k].field for k in perm] == [number.field for number in one]
    assert sign == [-1.0 if (number.field, number.column) == ("body_ipos", 1) else 1.0 for number in one]
    motors = perm[5:]
    assert sorted(motors) == list(range(5, 17))
    assert all(perm[perm[k]] == k for k in range(len(perm)))


def test_a_draw_that_cannot_be_called_is_left_out():
    found, _ = drawn("go2_flat", mass=Event(heavier_where_it_turns, mode="reset", most=1.0))
    assert {number.field for number in found} == {"geom_friction", "actuator_gainprm", "actuator_biasprm"}


@pytest.mark.long
@pytest.mark.parametrize("engine", ["mujoco", "mujoco_warp"])
def test_a_row_has_the_numbers_of_its_world(engine):
    env = make_env(with_world(get_task("go2_flat")), num_envs=4, engine=engine, device="cpu", seed=1)
    imagination = Imagination(env, 4, 1)
    worlds, state = imagination.read_worlds(), env.state
    context = worlds[:, imagination.context]
    assert context.shape == (4, 17)
    assert torch.equal(context[:, 0], state.body_mass[:, 1, 0])
    assert torch.equal(context[:, 4], state.geom_friction[:, env.scene.entity.foot_geoms[0], 0])
    assert torch.equal(context[:, 16], state.actuator_gainprm[:, 11, 0])
    assert (context.std(0) > 0.0).all()
    obs, *_ = env.step(torch.zeros(4, 12))
    assert torch.equal(obs["world"], imagination.read_worlds())
    assert torch.equal(obs["world"][:, imagination.context], context)
    env.close()
