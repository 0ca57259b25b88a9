"""Driving by hand: the page's inputs reach the environment, and the page shows the robot."""

import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from robot_rl.errors import UserError
from robot_rl.view.viewer.neighbors import shifts
from robot_rl.view.viewer.play import Player, checked_port, play

SERVE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("fake", sys.argv[1])
fake = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fake)
from robot_rl.view.viewer.neighbors import shifts
from robot_rl.view.viewer.play import play
play(fake.FakeEnv(), None, port=0, ready=lambda url: print(url, flush=True), seconds=300)
print("ended", flush=True)
"""


@pytest.fixture
def player(fake_env):
    player = Player(fake_env(), None, port=0)
    yield player
    player.close()


def test_sliders_command_the_robot(player):
    player.panel._sliders.handles["vx"].value = -0.4
    player.panel._sliders.handles["yaw"].value = 0.2
    player.run(0.3)
    assert player.steps > 0
    assert player.env.commands[-1] == pytest.approx((-0.4, 0.0, 0.2))
    assert player.driver.time_s == pytest.approx(0.02 * player.steps)
    assert player.env.pushes == []


def test_buttons(player):
    panel = player.panel
    player.run(0.1)
    assert float(player.env.state.qpos[0, 0]) > 0
    panel._press("Reset")
    panel._press("Push")
    panel._push.value = 0.5
    player._apply_requests()
    assert float(player.env.state.qpos[0, 0]) == 0.0
    ((dx, dy, dz),) = player.env.pushes
    assert (np.hypot(dx, dy), dz) == pytest.approx((0.5, 0.0))
    player._apply_requests()
    assert len(player.env.pushes) == 1
    panel._press("Pause")
    steps = player.steps
    player.run(0.1)
    assert player.steps == steps
    panel.move(np.zeros(3))
    assert panel.command == (0.0, 0.0, 0.0)


def test_bodies_follow_and_the_world_moves_under_the_robot(player):
    scene = player._scene
    qpos = np.array([3.25, -1.5, 0.3, 1, 0, 0, 0, 0.5])
    scene.update(qpos, follow=True)
    base, leg = (scene._bodies[k] for k in (1, 2))
    np.testing.assert_allclose(base.position, [3.25, -1.5, 0.3])
    np.testing.assert_allclose(leg.wxyz, [np.cos(0.25), 0, np.sin(0.25), 0], atol=1e-9)
    np.testing.assert_allclose(scene._world.position, [-3.25, 1.5, 0])
    np.testing.assert_allclose(scene._grid.position, [0.75, 0.5, 0])
    scene.update(qpos, follow=False)
    np.testing.assert_allclose(scene._world.position, 0)
    scene.update(np.full(8, np.nan))
    np.testing.assert_allclose(base.position, [3.25, -1.5, 0.3])


def test_one_of_several_worlds_is_driven(fake_env):
    env = fake_env(3)
    player = Player(env, None, port=0)
    player.panel.move(np.array([1.0, 0.0, 0.0]))
    player._step()
    assert env.state.command[:, 0].tolist() == [1.0, 0.0, 0.0]
    player.panel._world.value = "3"
    player._apply_requests()
    assert env.commands[-1] is None, "the task commands the first one again"
    player._step()
    player._show(1e9)
    assert env.state.command[2].tolist() == [1.0, 0.0, 0.0]
    # The third is in the middle; the first and the second are one cell of 1 m behind it.
    shown = {body: batch.batched_positions.tolist() for body, batch in player._others._batches}
    player.close()
    np.testing.assert_allclose(shown[1], [[-1.0 + 0.036 - 0.018, 0.0, 0.3], [-1.0 - 0.018, 1.0, 0.3]], atol=1e-5)


def test_a_robot_that_leaves_on_one_side_comes_in_on_the_other():
    bases = np.array([[7.0, 0.0], [2.5, 0.0], [0.0, 0.0], [0.0, -1.5]])
    # Cells of 2 m: (0, 0), (0, 2), (2, 0), (2, 2). Seen from the first the second is at -4.5, that is at +3.5 of +-4.
    moved = shifts(bases, 0, 2, follow=True)
    np.testing.assert_allclose(moved + bases, [[0.0, 0.0], [3.5, 2.0], [3.0, 0.0], [3.0, 0.5]])
    np.testing.assert_allclose(shifts(bases, 3, 2, follow=False), [[-2, -2], [-2, 0], [0, -2], [0, 0]])


def test_readout(player):
    player.panel.write([("vx <m>", 1.0, 0.7), ("vy", 0.4, 0.0)], {"a": "<b>"})
    text = player.panel._figures.content
    assert "vx &lt;m&gt;" in text
    assert "<b>" not in text
    # sqrt(0.3^2 + 0.4^2)
    assert "0.50 m/s" in text


def test_figures_are_named_as_the_sliders_are(player):
    player.run(0.1)
    for handle in player.panel._sliders.handles.values():
        assert f"<td>{handle.label}</td>" in player.panel._figures.content


def test_episode_does_not_end_by_time(player):
    player.env.episode_length_buf.fill_(900)
    player._step()
    assert player.env.episode_length_buf.tolist() == [0]


def test_task_without_command(fake_env):
    player = Player(fake_env(commanded=False), None, port=0)
    player.run(0.2)
    player.close()
    assert player.env.commands == []
    assert "Return" in player.panel._figures.content


@pytest.mark.parametrize(
    ("host", "port", "message"), [("127.0.0.1", 70000, "port=70000"), ("192.0.2.1", 8080, "cannot listen on 192.0.2.1")]
)
def test_bad_address(host, port, message):
    with pytest.raises(UserError, match=message):
        checked_port(host, port)


def test_taken_port(fake_env):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{port}"):
            play(fake_env(), None, port=port)


@pytest.mark.long
def test_page_in_a_browser(page, tmp_path):
    fake = Path(__file__).parent / "conftest.py"
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(fake)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        url = server.stdout.readline().strip()
        assert url.startswith("http://localhost:"), server.stderr.read()
        page.call("Page.navigate", url=url)
        page.wait("document.body.innerText.includes('Push')")
        page.wait("/Simulated\\s+[1-9]/.test(document.body.innerText)")
        assert page.js("!!document.querySelector('canvas')")
        # The trunk is red, and nothing else is.
        image = page.screenshot().astype(int)
        scene = image[:, :900]
        assert ((scene[..., 0] - scene[..., 1]) > 60).sum() > 500
        requested = [e["params"]["request"]["url"] for e in page.events if e["method"] == "Network.requestWillBeSent"]
        assert all(a.startswith((url, "data:", f"blob:{url}")) for a in requested), requested
        assert not [e for e in page.events if e["method"] == "Runtime.exceptionThrown"]
        page.js("[...document.querySelectorAll('button')].find(b => b.innerText == 'Pause').click()")
        page.wait("/Speed\\s+paused/.test(document.body.innerText)")
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=30)
        assert (server.returncode, out.strip()) == (0, "ended"), err
    finally:
        server.kill()
        server.wait()


def test_shares_of_a_command_are_of_its_ranges_and_nothing_else_is_taken(player):
    def steer(text):
        asyncio.run(player.panel._steer(SimpleNamespace(target=SimpleNamespace(value=text))))
        player._apply_requests()
        return player.panel.command

    assert steer("0.5 -1 1") == pytest.approx((0.5, -0.5, 0.8))
    for text in ("", "1 1", "nan 0 0", "x y z"):
        assert steer(text) == pytest.approx((0.5, -0.5, 0.8))


@pytest.mark.long
def test_keys_and_a_gamepad_drive_the_robot_in_a_browser(player, visit):
    page = visit(player).page

    def key(code, kind):
        page.call("Input.dispatchKeyEvent", type=f"key{kind}", code=code)
        player.run(0.5)

    key("KeyS", "Down")
    key("ArrowLeft", "Down")
    assert player.panel.command == pytest.approx((-1.0, 0.0, 0.8))
    key("KeyS", "Up")
    key("ArrowLeft", "Up")
    assert player.panel.command == (0.0, 0.0, 0.0)
    key("Space", "Down")
    assert player.panel.paused
    page.js("navigator.getGamepads = () => [null, {index: 1, axes: [-1, 0.05, 0, 0], buttons: []}]")
    player.run(0.5)
    assert player.panel.command == pytest.approx((0.0, 0.5, 0.0))


def test_another_policy_is_loaded_into_the_same_page(fake_env, monkeypatch):
    from robot_rl.view.viewer.panel import Panel

    player = Player(fake_env(), None, port=0, policies=("a", "b"))
    assert player.panel.take_policy() is None
    player.panel._policies.value = "b"
    assert player.run(0.1) == "b"
    player.close()
    first, second, asked = fake_env(), fake_env(2), []

    def load(name):
        asked.append(name)
        if len(asked) == 1:
            raise UserError("it is damaged")
        return second, None

    wanted = iter((None, None, "b", None, None, "b"))
    monkeypatch.setattr(Panel, "take_policy", lambda self: next(wanted, None))
    play(first, None, port=0, seconds=0.5, policies=("a", "b"), load=load)
    assert (asked, len(first.actions) > 0, len(second.actions) > 0) == (["b", "b"], True, True)
