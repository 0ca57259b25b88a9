"""The reference next to the robot: where it stands and faces, and which motions may be chosen."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_envs.motions import rotation
from robot_rl_tasks.registry import get_task

from robot_rl.errors import UserError
from robot_rl.view.viewer.ghost import OFFSET_M, Motions
from robot_rl.view.viewer.panel import ALL
from robot_rl.view.viewer.play import Player


class Env:
    """World 0 is in frame 1 of the second motion, whose base faces 0.3 rad and is pitched by 0.2 rad."""

    step_dt = 0.02
    cfg = SimpleNamespace(name="follow", sim=SimpleNamespace(floor_height=0.1))

    def __init__(self):
        entity = SimpleNamespace(base_qpos=0, joint_qpos=np.array([7, 8]))
        clips = SimpleNamespace(names=["one", "two"])
        self.scene = SimpleNamespace(entity=entity, reference_motions=clips)
        yaw, pitch = rotation.from_rotvec(np.array([[0.0, 0.0, 0.3], [0.0, 0.2, 0.0]]))
        quat = np.tile(rotation.multiply(yaw, pitch), (9, 1))
        self.state = SimpleNamespace(
            motion_id=torch.tensor([1]),
            motion_start=torch.tensor([3]),
            step_count=torch.tensor([2]),
            motion_first=torch.tensor([0, 5]),
            motion_frames=torch.tensor([5, 4]),
            motion_loops=torch.tensor([1, 1]),
            joint_pos=torch.tensor([[1.0, 1.0]]),
            reference_base_pos_w=torch.tensor([[9.0, 9.0, 0.5]] * 9),
            reference_base_quat_wxyz=torch.tensor(quat),
            reference_joint_pos=torch.arange(18.0).reshape(9, 2),
        )
        self.set = {}

    def params(self):
        return {"events.start.only": -1.0, "events.start.phase": -1.0, "rewards.track.weight": 1.0}

    def set_param(self, path, value):
        self.set[path] = value


def test_the_ghost_faces_as_the_robot_does_and_leans_as_the_reference():
    heading = rotation.from_rotvec(np.array([0.0, 0.0, 1.0]))
    qpos = np.array([2.0, 3.0, 0.7, *heading, 0.0, 0.0])
    ghost = Motions.of(Env()).ghost(qpos)
    left = 1.0 + np.pi / 2
    np.testing.assert_allclose(ghost[:2], [2.0 + OFFSET_M * np.cos(left), 3.0 + OFFSET_M * np.sin(left)], atol=1e-6)
    assert ghost[2] == pytest.approx(0.6)
    want = rotation.multiply(heading, rotation.from_rotvec(np.array([0.0, 0.2, 0.0])))
    assert abs(want @ ghost[3:7]) == pytest.approx(1.0)
    # frame (3 + 2) % 4 = 1 of the motion that begins in row 5
    np.testing.assert_allclose(ghost[7:], [12.0, 13.0])


def test_the_facts_name_motion_time_and_error():
    assert Motions.of(Env()).facts() == {"Motion": "two, 0.0 s", "Joint error": "11.511 rad rms"}


def test_a_motion_is_chosen_by_its_name():
    env = Env()
    Motions.of(env).choose("two")
    assert env.set == {"events.start.only": 1, "events.start.phase": 0.0}
    Motions.of(env).choose("")
    assert env.set == {"events.start.only": -1, "events.start.phase": -1.0}
    with pytest.raises(UserError, match=r"motion=tow: the task lacks a motion of that name; did you mean 'two'"):
        Motions.of(env).choose("tow")


def test_a_task_without_motions_has_no_ghost():
    assert Motions.of(SimpleNamespace(scene=None)) is None


@pytest.mark.long
def test_a_motion_is_chosen_in_a_browser(visit):
    with contextlib.closing(make_env(get_task("g1_track"), num_envs=1, engine="mujoco", num_threads=1)) as env:
        player = Player(env, None, port=0)
        view = visit(player)
        names = env.scene.reference_motions.names
        name = names[int(env.state.motion_id[0]) - 1]  # another one
        view.page.click(f"[...document.querySelectorAll('input')].find(e => e.value == '{ALL}')")
        option = f"[...document.querySelectorAll('[role=option]')].find(e => e.innerText == '{name}')"
        view.wait(f"!!{option}")
        view.page.click(option)
        view.wait(rf"/Motion\s+{name}, /.test(document.body.innerText)")
        assert names[int(env.state.motion_id[0])] == name
        player.close()
