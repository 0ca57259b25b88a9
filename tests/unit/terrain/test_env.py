"""A robot on a terrain: where it starts, what its feet stand on, what the task's tree shows of it."""

import dataclasses

import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_envs.entity.scene import make_scene
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import observations, rewards
from robot_rl_envs.task import Observation, ObservationGroup, Reward, Sim, Task
from robot_rl_envs.terrain import PRESETS

from robot_rl.errors import UserError
from robot_rl.settings.tree import apply_tree, override, task_tree


def stand(kind, **changes):
    """A Go2 that stands on a terrain of three rows."""
    terrain = dataclasses.replace(PRESETS[kind][1](), **{"num_rows": 3, "border": 1.0, **changes})
    return Task(
        name="stand",
        robot=get_robot("unitree_go2"),
        terrain=terrain,
        sim=Sim(timestep=0.005, decimation=4, floor_friction=0.8),
        observations={"actor": ObservationGroup(terms={"joint_pos": Observation(observations.joint_pos_rel)})},
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
    )


@pytest.mark.parametrize(("kind", "form"), [("stairs", "hfield"), ("stairs", "boxes"), ("waves", "hfield")])
def test_robots_start_on_their_tiles_and_stand_there(kind, form):
    env = make_env(stand(kind, form=form), num_envs=12, engine="mujoco", num_threads=1)
    env.reset()
    for _ in range(25):
        env.step(torch.zeros(12, env.num_actions))
    state, terrain = env.state, env.scene.terrain
    origin = terrain.origins[state.terrain_level.numpy(), state.terrain_column.numpy()]
    assert state.env_origin_w.numpy() == pytest.approx(origin)
    assert state.base_pos_w.numpy()[:, :2] == pytest.approx(origin[:, :2], abs=0.1)
    assert state.foot_height_w.numpy() == pytest.approx(0.0, abs=5e-3)
    assert len(np.unique(origin[:, 2])) == 1 if kind == "waves" else len(np.unique(origin[:, 2])) >= 4
    env.close()


@pytest.mark.parametrize("form", ["hfield", "boxes"])
def test_friction_is_the_simulation_s_unless_the_terrain_has_its_own(form):
    for own, expected in ((None, 0.8), (0.3, 0.3)):
        scene = make_scene(stand("gaps", form=form, friction=own))
        ground = scene.model.geom_contype == 1
        assert ground.sum() == (1 if form == "hfield" else len(scene.terrain.boxes))
        assert scene.model.geom_friction[ground, 0] == pytest.approx(expected)


@pytest.mark.parametrize("form", ["hfield", "boxes"])
def test_the_model_for_rendering_has_the_same_ground_in_color(form):
    scene = make_scene(stand("gaps", form=form))
    model, drawn = scene.model, scene.render_model
    assert drawn.nq == model.nq
    for name in ("floor", "floor_1") if form == "boxes" else ("floor",):
        assert drawn.geom(name).pos == pytest.approx(model.geom(name).pos)
        assert drawn.geom(name).size == pytest.approx(model.geom(name).size)
    if form == "hfield":
        assert np.array_equal(drawn.hfield_data, model.hfield_data)
        assert drawn.tex("terrain").width[0] == scene.terrain.heights.shape[1]
    else:
        assert len(np.unique(drawn.geom_rgba[drawn.geom_contype == 1], axis=0)) == 2


def test_a_terrain_s_numbers_are_set_by_name_as_any_number_of_a_task():
    task = stand("stairs")
    tree = override(task_tree(task), {"terrain.num_rows": 5, "terrain.tiles.stairs_up.step_height": [0.02, 0.1]})
    changed = apply_tree(task, tree).terrain
    assert changed.num_rows == 5
    assert changed.tiles["stairs_up"].step_height == (0.02, 0.1)
    assert changed.tiles["stairs_down"] == task.terrain.tiles["stairs_down"]
    with pytest.raises(UserError, match=r"terrain\.num_rows=0: must be a whole number in \[1, 1000\]"):
        apply_tree(task, override(task_tree(task), {"terrain.num_rows": 0}))
    with pytest.raises(UserError, match=r"terrain\.tiles\.stairs_up\.step_height=\(0\.1, 9\.0\): must be two numbers"):
        apply_tree(task, override(task_tree(task), {"terrain.tiles.stairs_up.step_height": [0.1, 9.0]}))


def test_a_terrain_without_a_spawn_point_is_refused_when_the_environment_is_built():
    task = stand("stairs")
    task.terrain.tiles["stairs_up"].platform = 1.0
    with pytest.raises(ValueError, match=r"terrain\.tiles\.stairs_up \(row 0, column 0\): leaves no spawn point"):
        make_env(task, num_envs=2, engine="mujoco", num_threads=1)


@pytest.mark.long
@pytest.mark.parametrize("form", ["hfield", "boxes"])
def test_robots_stand_on_the_gpu_s_engine_as_on_the_cpu_s(form):
    bases = []
    for engine in ("mujoco", "mujoco_warp"):
        env = make_env(stand("stairs", form=form, num_rows=2), num_envs=4, engine=engine)
        env.reset()
        for _ in range(15):
            env.step(torch.zeros(4, env.num_actions))
        assert env.state.foot_height_w.numpy() == pytest.approx(0.0, abs=2e-3)
        assert len(np.unique(env.state.env_origin_w.numpy()[:, 2])) >= 2
        bases.append((env.state.base_pos_w - env.state.env_origin_w).numpy())
        env.close()
    assert bases[0] == pytest.approx(bases[1], abs=5e-3)
