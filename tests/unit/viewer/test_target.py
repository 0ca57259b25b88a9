"""A command that is a target: its sliders, what is drawn of it, and dragging it."""

import asyncio
import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
from robot_rl_envs.make import make_env

from robot_rl.view.viewer.command import command_info
from robot_rl.view.viewer.drive import can_be_pushed, command_frame
from robot_rl.view.viewer.play import Player
from robot_rl.view.viewer.target import GIZMO_M
from robot_rl.view.viewer.video import COMMAND, VideoCfg, draw_numbers, strip_height

ROW = r"/x \[m\]\s+{x}\s+y \[m\]\s+{y}\s+z \[m\]\s+{z}/.test(document.body.innerText)"


@pytest.fixture
def arm(arm_task):
    """make(kind, num_envs=1): worlds of the arm with a command of a kind."""
    return lambda kind, num_envs=1: make_env(arm_task(kind), num_envs=num_envs, engine="mujoco", num_threads=1, seed=3)


@pytest.fixture
def play_arm(arm):
    """make(kind): a page for the arm."""
    with contextlib.ExitStack() as stack:

        def make(kind):
            player = Player(stack.enter_context(contextlib.closing(arm(kind))), None, port=0)
            stack.callback(player.close)
            return player

        yield make


def drag(player, position, phase="update", wxyz=(1.0, 0.0, 0.0, 0.0)):
    """What viser calls when the gizmo is dragged."""
    target = player._target
    handle = SimpleNamespace(position=np.array(position), wxyz=np.array(wxyz))
    asyncio.run(target._drag(SimpleNamespace(target=handle, phase=phase)))


def test_a_page_begins_with_the_target_that_was_drawn(play_arm):
    player = play_arm("position")
    drawn = player.env.state.command[0].tolist()
    assert list(player.panel._sliders.handles) == ["x", "y", "z"]
    assert [handle.label for handle in player.panel._sliders.handles.values()] == ["x [m]", "y [m]", "z [m]"]
    assert player.panel.command == pytest.approx(drawn, abs=1e-3)
    assert player.panel._buttons.options == ("Pause", "Reset")
    assert player.panel._follow is None, "an arm stays where it is"
    player.run(0.2)
    assert player.env.state.command[0].tolist() == pytest.approx(player.panel.command)
    text = player.panel._figures.content
    assert "x [m]" in text
    assert "Return" in text
    assert "measured" not in text
    assert "velocity" not in text


def test_a_dragged_target_stays_in_its_box_and_the_sliders_follow(play_arm):
    player = play_arm("position")
    target = player._target
    drag(player, (9.0, 0.1, 0.3))
    player.run(0.2)
    assert player.panel.command == pytest.approx((0.5, 0.1, 0.3))
    assert player.env.state.command[0].tolist() == pytest.approx([0.5, 0.1, 0.3])
    np.testing.assert_allclose(target._ball.position, [0.5, 0.1, 0.3])
    assert not np.allclose(target._gizmo.position, [0.5, 0.1, 0.3]), "the hand holds it"
    drag(player, (9.0, 0.1, 0.3), "end")
    player.run(0.2)
    np.testing.assert_allclose(target._gizmo.position, [0.5, 0.1, 0.3])
    player.panel._sliders.handles["z"].value = 0.2
    player.run(0.2)
    np.testing.assert_allclose(target._gizmo.position, [0.5, 0.1, 0.2])


def test_a_dragged_pose_turns_as_well(play_arm):
    player = play_arm("pose")
    drag(player, (0.3, 0.0, 0.2), "end", wxyz=(-0.6, 0.0, 0.8, 0.0))
    player.run(0.2)
    want = [0.3, 0.0, 0.2, 0.6, 0.0, -0.8, 0.0]
    assert player.env.state.command[0].tolist() == pytest.approx(want, abs=1e-4)
    axes = player._target._nodes[1]
    np.testing.assert_allclose([*axes.position, *axes.wxyz], want, atol=1e-4)


def test_a_target_in_the_frame_of_a_floating_base_moves_with_it(fake_env, play_arm):
    info = command_info(play_arm("position").env)
    env = fake_env()
    half = np.sqrt(0.5)
    env.state.qpos[0, :7] = env.state.qpos.new_tensor([1.0, 2.0, 0.3, half, 0, 0, half])
    position, quat = command_frame(env, info)
    np.testing.assert_allclose([*position, *quat], [1, 2, 0.3, half, 0, 0, half], atol=1e-6)


def test_an_arm_is_not_pushed_and_its_frame_is_the_world_s(arm):
    env = arm("position")
    assert not can_be_pushed(env)
    position, quat = command_frame(env, command_info(env))
    assert [*position, *quat] == [0, 0, 0, 1, 0, 0, 0]
    env.close()


def blue(image):
    """Where the sphere of a target is seen."""
    return image[..., 2].astype(int) - image[..., 0] > 40


@pytest.mark.long
@pytest.mark.parametrize("kind", ["position", "pose"])
def test_a_film_shows_the_targets_that_the_task_draws(gl, arm, kind):
    env = arm(kind, num_envs=4)
    cfg = VideoCfg(seconds=0.4, fps=5, num_robots=4, width=320, height=240)
    with contextlib.closing(cfg.film(env, None)) as frames:
        images = list(frames)
    assert len(images) == 2
    assert env.state.command_hold.tolist() == [0] * 4
    scene = images[-1][: 240 - strip_height(240)]
    half = len(scene) // 2
    for quarter in (scene[:half, :160], scene[:half, 160:], scene[half:, :160], scene[half:, 160:]):
        assert blue(quarter).sum() > 5
    env.close()


def test_the_strip_of_a_target_lists_its_numbers():
    size = (640, strip_height(480))
    names = ("x", "y", "z", "qw", "qx", "qy", "qz")
    for count in (1, 3, 7, 16):
        values = dict.fromkeys([*names, *(f"c{k}" for k in range(9))][:count], -0.25)
        strip = draw_numbers(size, "reach", 1.0, values)
        assert strip.shape == (size[1], 640, 3)
        columns = np.nonzero((strip == COMMAND).all(-1).any(0))[0]
        assert (np.diff(columns) > 12).sum() >= min(count, 8) - 1


@pytest.mark.long
def test_a_target_is_dragged_in_a_browser(visit, play_arm):
    player = play_arm("position")
    view = visit(player)
    _, y, z = player.panel.command
    assert not view.page.js("document.body.innerText.includes('Push')")
    assert not view.page.js("document.body.innerText.includes('Follow')")
    # By the gizmo's arrow along x, further than the box reaches: there it stays, and nothing else has changed.
    start, along = player._target._gizmo.position, np.array([1.0, 0.0, 0.0])
    view.drag(start + 0.7 * GIZMO_M * along, start + (0.7 * GIZMO_M + 0.5) * along)
    view.wait(ROW.format(x="0.50", y=f"{y:.2f}", z=f"{z:.2f}"))
    assert player.env.state.command[0].tolist() == pytest.approx([0.5, y, z], abs=1e-3)
