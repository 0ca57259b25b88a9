"""A reference motion without a policy: in the browser, as a film strip, and its facts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.view.viewer.play import DRAW_HZ, Page

if TYPE_CHECKING:
    from collections.abc import Callable

    from PIL.Image import Image
    from robot_rl_assets.robot import Robot
    from robot_rl_envs.motions import Motion

IMAGES, WIDTH, HEIGHT = 8, 200, 260
"""Images of a strip, and their size [px]."""


class Stage:
    """A robot on a floor, placed in the poses of a motion.

    Attributes:
        model: the model to draw.
        motion: the motion.
    """

    def __init__(self, motion: Motion, robot: Robot) -> None:
        """Build the scene."""
        from robot_rl_envs.entity.scene import Scene, SceneCfg
        from robot_rl_envs.task import Actions, Sim

        self.motion, sim = motion, Sim()
        scene = Scene(robot, sim, Actions(), contents=SceneCfg(motions={motion.name: motion}))
        self._clips, self.model = scene.reference_motions, scene.render_model
        self.contact = scene.reference_motions.values["reference_foot_contact"]
        self._fine = scene.reference_motions.motions[motion.name]

    def qpos(self, time_s: float) -> np.ndarray:
        """Return the positions (nq,) at a time [s]; after its end a motion begins again."""
        last = len(self._fine.joint_pos) - 1
        return self._clips.qpos(self._fine, round(time_s * self._fine.rate_hz) % max(last, 1))

    def facts(self, robot: Robot) -> list[str]:
        """Return facts about the motion, one per line."""
        motion, fine = self.motion, self._fine
        limits = np.array([joint.velocity_limit for joint in robot.joints])
        speed = np.abs(np.diff(fine.joint_pos, axis=0)).max(0) * fine.rate_hz / limits
        fastest = int(speed.argmax())
        height = motion.base_pos[:, 2]
        ends = "its ends meet, it loops" if motion.loops else "it ends in another pose"
        contact = ", ".join(f"{foot} {share:.0%}" for foot, share in zip(robot.feet, self.contact.mean(0), strict=True))
        return [
            f"{motion.seconds:.2f} s, {len(motion.joint_pos)} frames at {motion.rate_hz:g} Hz; {ends}",
            f"height of the base {height.min():.3f} to {height.max():.3f} m",
            f"fastest joint {robot.joint_names[fastest]}: {speed[fastest]:.0%} of its limit",
            f"share of the time in contact: {contact}",
        ]


def draw_strip(stage: Stage) -> Image:
    """Draw images of a motion at equal steps in time, side by side.

    Raises:
        NoGLError: OpenGL is not available.
    """
    from PIL import Image as Pillow
    from robot_rl_envs.render import Renderer

    with Renderer(stage.model, WIDTH, HEIGHT) as renderer:
        times = np.linspace(0.0, stage.motion.seconds - 1.0 / stage.motion.rate_hz, IMAGES)
        images = []
        for at in times:
            qpos = stage.qpos(float(at))
            renderer.look_at(qpos[:3] * [1.0, 1.0, 0.0] + [0.0, 0.0, 0.55])
            images.append(renderer.frame(qpos))
    return Pillow.fromarray(np.concatenate(images, axis=1))


def show(
    stage: Stage, host: str, port: int, *, ready: Callable[[str], None] | None = None, seconds: float | None = None
) -> None:
    """Play a motion in the browser, over and over, until Ctrl-C.

    Args:
        stage: the robot and the motion to show.
        host: address to listen on.
        port: TCP port; 0 takes a free one.
        ready: called with the page's address once it can be opened.
        seconds: return after this wall time [s]; None runs until Ctrl-C.

    Raises:
        UserError: the address is not available.
    """
    from robot_rl.view.viewer.scene import RobotScene

    page = Page(host, port, stage.motion.name)
    gui: Any = page.server.gui
    gui.configure_theme(control_layout="fixed", show_logo=False, show_share_button=False)
    gui.set_panel_label(stage.motion.name)
    speed = gui.add_slider("speed [×]", 0.0, 2.0, 0.1, 1.0, hint="0 stops; then drag the time")
    clock = gui.add_slider("time [s]", 0.0, round(stage.motion.seconds, 2), 0.01, 0.0)
    scene = RobotScene(page.server, stage.model)
    scene.update(stage.qpos(0.0))
    page.server.on_client_connect(scene.look_from)
    begin = now = time.perf_counter()
    try:
        if ready is not None:
            ready(page.url)
        while seconds is None or now - begin < seconds:
            before, now = now, time.perf_counter()
            if speed.value > 0.0:
                clock.value = (float(clock.value) + speed.value * (now - before)) % stage.motion.seconds
            with page.server.atomic():
                scene.update(stage.qpos(float(clock.value)))
            time.sleep(1.0 / DRAW_HZ)
    except KeyboardInterrupt:
        pass
    finally:
        page.close()
