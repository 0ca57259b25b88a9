"""A small environment that follows its command, and a browser that shows its page."""

from types import SimpleNamespace

import mujoco
import numpy as np
import pytest
import torch

from robot_rl.view.viewer.drive import rotation

MODEL = """
<mujoco>
  <worldbody>
    <light name="sun" type="directional" dir="0.2 0.3 -1" pos="0 0 5"/>
    <geom name="floor" type="plane" size="0 0 1" rgba="0.85 0.87 0.9 1"/>
    <body name="base" pos="0 0 0.3">
      <freejoint/>
      <geom name="trunk" type="box" size="0.2 0.1 0.05" mass="5" rgba="0.8 0.1 0.1 1"/>
      <geom name="hull" type="box" size="0.3 0.3 0.3" group="3" contype="0" conaffinity="0" mass="0"/>
      <body name="leg" pos="0.15 0 -0.05">
        <joint name="hip" axis="0 1 0" range="-1 1"/>
        <geom name="shin" type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02" rgba="0.1 0.1 0.1 1"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


class FakeEnv:
    """What the viewer needs of an environment; robots move at 0.9 of the command, one falls where fall_next is set."""

    step_dt = 0.02
    num_actions = 1
    device = "cpu"

    def __init__(self, num_envs=1, commanded=True):
        self.num_envs = num_envs
        model = mujoco.MjModel.from_xml_string(MODEL)
        self.engine = SimpleNamespace(model=model)
        self.cfg, self.commanded = SimpleNamespace(name="fake"), commanded
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.int32)
        self.fall_next = torch.zeros(num_envs, dtype=torch.bool)
        self.time_out_next = self.fall_next.clone()
        self.actions, self.commands, self.pushes = [], [], []
        self.state = SimpleNamespace(command=torch.zeros(num_envs, 3))
        self.reset()

    def reset(self):
        n = self.num_envs
        qpos = torch.zeros(n, 8)
        qpos[:, 2], qpos[:, 3] = 0.3, 1.0
        self.state.qpos = qpos
        self.state.base_pos_w, self.state.base_quat_wxyz = qpos[:, :3], qpos[:, 3:7]
        self.state.base_lin_vel_b, self.state.base_ang_vel_b = torch.zeros(n, 3), torch.zeros(n, 3)
        return self.get_observations()

    def describe_command(self):
        """A velocity, as robot_rl_envs.env.Env.describe_command does."""
        limits = {"vx": (1.0, "m/s"), "vy": (0.5, "m/s"), "yaw": (0.8, "rad/s")}
        parts = {name: {"unit": unit, "lower": -most, "upper": most} for name, (most, unit) in limits.items()}
        return {"components": parts, "frame": "base", "draws": "velocity"} if self.commanded else None

    def get_observations(self):
        return {"actor": self.state.command.clone()}

    def robot_state(self):
        return {"command": self.state.command.clone(), "joint_pos": self.state.qpos[:, 7:].clone()}

    def set_command(self, value, env_ids=None):
        if value is not None:
            self.state.command[slice(None) if env_ids is None else env_ids] = torch.tensor(value)
        self.commands.append(value if value is None else tuple(value))

    def push(self, delta_v, env_ids=None):
        self.pushes.append(delta_v)

    def step(self, actions):
        assert actions.shape == (self.num_envs, self.num_actions)
        self.actions.append(actions.clone())
        state = self.state
        state.base_lin_vel_b = torch.cat([0.9 * state.command[:, :2], torch.zeros(self.num_envs, 1)], dim=1)
        state.base_ang_vel_b = torch.cat([torch.zeros(self.num_envs, 2), 0.9 * state.command[:, 2:]], dim=1)
        state.qpos[:, :3] += state.base_lin_vel_b * self.step_dt
        done, self.fall_next = self.fall_next, torch.zeros(self.num_envs, dtype=torch.bool)
        state.qpos[done, :2] = 0.0
        time_outs, self.time_out_next = self.time_out_next, torch.zeros(self.num_envs, dtype=torch.bool)
        return self.get_observations(), torch.ones(self.num_envs), done | time_outs, {"time_outs": time_outs}


@pytest.fixture
def fake_env():
    """Builds an environment: fake_env(num_envs=1, commanded=True)."""
    return FakeEnv


class Visit:
    """A browser that shows the page of a player of this process, which simulates while something is waited for."""

    def __init__(self, page, player):
        self.page, self.player = page, player
        page.call("Page.navigate", url=player.url)
        self.wait(r"/Simulated\s+[1-9]/.test(document.body.innerText)")

    def wait(self, code):
        self.page.wait(code, meanwhile=self.player.run)

    def pixel(self, point):
        """Where a point (3,) of the world [m] is seen, (2,) pixels."""
        (client,) = self.player.page.server.get_clients().values()
        camera = client.camera
        x, y, z = rotation(np.asarray(camera.wxyz)).T @ (np.asarray(point) - camera.position)
        scale = camera.image_height / (2 * np.tan(camera.fov / 2)) / z
        return np.array([camera.image_width / 2 + scale * x, camera.image_height / 2 + scale * y])

    def drag(self, start, end):
        """Drags what is seen at a point (3,) of the world to where another one is seen."""
        self.page.drag(self.pixel(start), self.pixel(end))


@pytest.fixture
def visit(page):
    """visit(player): the player's page in the browser, once it shows a simulated second; no script of it may fail."""
    yield lambda player: Visit(page, player)
    assert not [e for e in page.events if e["method"] == "Runtime.exceptionThrown"]
