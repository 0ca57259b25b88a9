"""A small world for cameras: level ground, a step as height field, a red box, a ball, and a body that carries a camera.

All tests of depth look at this one scene: which geom types there are is compiled into the renderer.
"""

from types import SimpleNamespace

import mujoco
import numpy as np
import pytest
import warp as wp
from robot_rl_envs.cameras import Camera, ImageGroup

LOOKS_DOWN = {"forward": (0.0, 0.0, -1.0), "up": (1.0, 0.0, 0.0)}
CARRIER = 2.0
"""Height of the carrying body at rest [m]."""


def make_spec(*, visual=False, textured=False):
    """The scene: a height field from y = 8 on that rises by 0.5 m in its middle, a box at x = 3, a ball at x = -3."""
    spec = mujoco.MjSpec()
    world = spec.worldbody
    world.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.1])
    heights = np.zeros((21, 21))
    # Level at its border: the renderer draws no sides below a height field.
    heights[1:-1, 10:-1] = 1.0
    spec.add_hfield(name="step", nrow=21, ncol=21, size=[2, 2, 0.5, 0.1], userdata=heights.ravel())
    world.add_geom(name="step", type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname="step", pos=[0, 10, 0.01])
    world.add_geom(name="box", type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.5, 0.4, 0.3], pos=[3, 0, 0.3], rgba=[1, 0, 0, 1])
    world.add_geom(name="ball", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.5, 0, 0], pos=[-3, 0, 0.5])
    body = world.add_body(name="carrier", pos=[0, 0, CARRIER])
    body.add_freejoint()
    body.add_geom(name="chip", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.01, 0, 0], mass=1)
    site = body.add_site(name="mast", pos=[0, 0, 0.5])
    site.quat = [np.sqrt(0.5), 0, 0, np.sqrt(0.5)]
    if textured:
        world.add_light(type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, dir=[0.2, 0.3, -1.0], pos=[0, 0, 6])
    return spec


class Rig:
    """A sensor over worlds in which a test sets qpos and counters."""

    def __init__(self, camera, poses=None, *, num_envs=1, kind="depth", name="eye", **options):
        from robot_rl_envs.cameras.sensor import CameraSensor

        rest = [0, 0, CARRIER, 1, 0, 0, 0]
        qpos = np.tile(rest, (num_envs, 1)) if poses is None else np.array(poses)
        self.qpos = wp.array(qpos.astype(np.float32), dtype=wp.float32, device="cpu")
        steps = {name: wp.zeros(len(qpos), dtype=wp.int32, device="cpu") for name in ("step_count", "counter")}
        scene = SimpleNamespace(make_spec=make_spec, robot=SimpleNamespace(name="rig"))
        state = {"qpos": self.qpos, **steps}
        group = ImageGroup(camera=camera, kind=kind)
        self.sensor = CameraSensor(name, group, scene, state, device="cpu", **options)
        self.step_count, self.counter = (steps[name].numpy() for name in ("step_count", "counter"))
        self.camera, self.model = camera, self.sensor._views.model
        self.first = True

    def step(self, reset=()):
        """One control step, in which the worlds `reset` start afresh; the images."""
        if not self.first:
            self.step_count += 1
        self.first = False
        self.counter += 1
        self.step_count[list(reset)] = 0
        self.sensor.update()
        return self.sensor.out.numpy().copy()

    def lift(self, heights):
        """Put the carriers at these heights [m]."""
        self.qpos.numpy()[:, 2] = heights

    def rays(self):
        """(height, width, 3) a ray through each pixel, 1 long along the line of sight, in the camera's frame."""
        tangent = np.tan(np.radians(self.camera.fovy) / 2)
        x = (
            tangent
            * self.camera.width
            / self.camera.height
            * (2 * (np.arange(self.camera.width) + 0.5) / self.camera.width - 1)
        )
        y = tangent * (1 - 2 * (np.arange(self.camera.height) + 0.5) / self.camera.height)
        return np.stack([*np.meshgrid(x, y), -np.ones((self.camera.height, self.camera.width))], axis=-1)

    def gl(self, world=0):
        """What MuJoCo's own renderer shows of a world: depth [m], or colors in [0, 1]."""
        model = self.model
        # Of an endless plane OpenGL draws a part, which its far plane sizes.
        model.vis.map.znear, model.vis.map.zfar = 0.01, 64.0
        model.vis.quality.numslices = model.vis.quality.numstacks = 128
        data = mujoco.MjData(model)
        data.qpos[:] = self.qpos.numpy()[world]
        mujoco.mj_forward(model, data)
        with mujoco.Renderer(model, self.camera.height, self.camera.width) as renderer:
            depth = self.sensor.group.kind == "depth"
            if depth:
                renderer.enable_depth_rendering()
            renderer.update_scene(data, self.camera.name)
            return renderer.render() if depth else renderer.render() / 255.0


@pytest.fixture
def rig():
    """rig(poses=None, num_envs=1, kind="depth", threads=1, **camera): a Rig with a camera on the carrier."""
    made = []

    def make(poses=None, *, num_envs=1, kind="depth", group="eye", num_threads=1, seed=0, world_offset=0, **fields):
        own = {"name": "eye", "body": "carrier", "width": 32, "height": 24, "far": 8.0, "fovy": 60.0} | LOOKS_DOWN
        options = {"num_threads": num_threads, "seed": seed, "world_offset": world_offset}
        made.append(Rig(Camera(**(own | fields)), poses, num_envs=num_envs, kind=kind, name=group, **options))
        return made[-1]

    yield make
    for one in made:
        one.sensor.close()
