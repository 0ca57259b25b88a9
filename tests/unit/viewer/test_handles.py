"""Objects are held, moved and let go by their gizmos."""

import asyncio
import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import observations, rewards
from robot_rl_envs.objects import Box
from robot_rl_envs.task import Actions, Observation, ObservationGroup, Reward, Sim, Task
from robot_rl_tasks.registry import get_task

from robot_rl.view.viewer.drive import free_objects, rotation
from robot_rl.view.viewer.handles import GIZMO_M
from robot_rl.view.viewer.play import Player

SHOWN = r"+/Simulated\s+([\d.]+)/.exec(document.body.innerText)[1]"
POSE = [0.3, -1.0, 1.5, 0.6, 0.0, 0.0, 0.8]


@pytest.fixture
def player():
    """A page for a cart-pole with a cube that falls and a table that is fixed."""
    task = Task(
        name="dragged",
        robot=get_robot("cartpole"),
        sim=Sim(timestep=0.01, decimation=2),
        actions=Actions(kind="effort"),
        objects={
            "cube": Box(size=(0.1, 0.1, 0.1), pos=(0.0, -1.0, 2.0)),
            "table": Box(size=(0.2, 0.2, 0.2), pos=(1.0, -1.0, 0.1), fixed=True),
        },
        observations={"actor": ObservationGroup(terms={"angle": Observation(observations.joint_pos_rel)})},
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
    )
    env = make_env(task, num_envs=1, engine="mujoco", num_threads=1)
    player = Player(env, None, port=0)
    yield player
    player.close()
    env.close()


def drag(player, pose, phase="update"):
    handle = SimpleNamespace(position=np.array(pose[:3]), wxyz=np.array(pose[3:]))
    asyncio.run(player._handles._follow("cube")(SimpleNamespace(target=handle, phase=phase)))


def cube(player):
    at = player.env.scene.elements.objects["cube"]
    state = player.env.state
    return state.qpos[0, at.qpos : at.qpos + 7].tolist(), state.qvel[0, at.dof : at.dof + 6].tolist()


def test_a_held_object_stays_at_its_gizmo_and_falls_once_it_is_let_go(player):
    assert list(player._handles._gizmos) == ["cube"]
    for _ in range(10):
        player._step()
    drag(player, POSE)
    for _ in range(10):
        player._apply_requests()
        assert cube(player) == (pytest.approx(POSE), [0.0] * 6)
        player._step()
    drag(player, POSE, "end")
    player._apply_requests()
    assert cube(player)[0] == pytest.approx(POSE)
    for _ in range(10):
        player._apply_requests()
        player._step()
    # 0.2 s of free fall by semi-implicit Euler: g h^2 n (n + 1) / 2 with 20 steps of 0.01 s.
    assert cube(player)[0][2] == pytest.approx(1.5 - 9.81 * 0.01**2 * 20 * 21 / 2, abs=1e-4)


def test_the_gizmo_goes_with_its_object_unless_it_is_held(player):
    player._step()
    player._show(1e9)
    np.testing.assert_allclose(player._handles._gizmos["cube"].position, cube(player)[0][:3], atol=2e-5)
    drag(player, POSE)
    player._apply_requests()
    player._step()
    player._show(2e9)
    assert player._handles._gizmos["cube"].position[2] > 1.9, "the hand holds it"


def test_only_a_free_object_can_be_placed(player):
    with pytest.raises(ValueError, match="object='table': must be a free object of task 'dragged': cube"):
        player.env.place_object("table", (0, 0, 0))
    with pytest.raises(ValueError, match="object='cup'"):
        player.env.place_object("cup", (0, 0, 0))
    player.env.place_object("cube", (0.0, 0.0, 1.0), (2.0, 0.0, 0.0, 0.0), torch.tensor([0]))
    assert cube(player)[0] == [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.long
def test_a_cube_lies_where_it_was_dropped_in_a_browser(visit):
    task = get_task("panda_lift")
    task.episode_length_s = 1e4
    with contextlib.closing(make_env(task, num_envs=1, engine="mujoco", num_threads=1)) as env:
        player = Player(env, None, port=0)  # the arm holds its pose
        view = visit(player)
        player.panel.move(np.array([0.6, 0.2, 0.4]))  # the target's gizmo is out of the way
        player.run(0.2)
        pose = free_objects(env)["cube"]
        along = rotation(pose[3:])[:, 0]
        # By the gizmo's arrow along the cube's x axis, which is level.
        view.drag(pose[:3] + 0.7 * GIZMO_M * along, pose[:3] + (0.7 * GIZMO_M + 0.15) * along)
        view.wait(f"{SHOWN} > {player.driver.time_s + 0.5}")
        dropped, rest = free_objects(env)["cube"], pose[2]
        np.testing.assert_allclose(dropped[:2], (pose[:3] + 0.15 * along)[:2], atol=0.01)
        assert dropped[2] == pytest.approx(rest, abs=1e-3)
        player.close()
