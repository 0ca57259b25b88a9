"""Objects, sites and contact sensors of a scene, and every term about them, against MuJoCo's own kinematics and NumPy.

The scene: an arm of two joints, a cube, a table, a drawer. Worlds are stepped by the real engine; its state is then put
into an `MjData`, and what the terms say is compared with formulas of what MuJoCo computes there.
"""

import dataclasses
from types import SimpleNamespace

import mujoco
import numpy as np
import pytest
import torch
from robot_rl_assets.robot import Joint, Robot
from robot_rl_envs.entity.scene import make_scene
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import commands, objects, observations, randomize
from robot_rl_envs.objects import Articulated, Box, Contact, Cylinder, Mesh, Object, Sphere
from robot_rl_envs.task import (
    Command,
    Event,
    Metric,
    Observation,
    ObservationGroup,
    Reward,
    Sim,
    Task,
    Termination,
)

ARM = """
<mujoco>
  <compiler angle="radian"/>
  <default><geom contype="0" conaffinity="1" group="3"/><joint damping="1" range="-3 3"/></default>
  <worldbody>
    <body name="base">
      <inertial mass="1" pos="0 0 0" diaginertia="0.01 0.01 0.01"/>
      <geom name="foot" type="cylinder" size="0.05 0.05" pos="0 0 0.05"/>
      <body name="upper" pos="0 0 0.1">
        <inertial mass="1" pos="0 0 0.15" diaginertia="0.01 0.01 0.002"/>
        <joint name="shoulder" axis="0 1 0"/>
        <geom name="upper" type="capsule" size="0.03" fromto="0 0 0 0 0 0.3"/>
        <body name="lower" pos="0 0 0.3">
          <inertial mass="0.5" pos="0 0 0.1" diaginertia="0.005 0.005 0.001"/>
          <joint name="elbow" axis="0 1 0"/>
          <geom name="lower" type="capsule" size="0.03" fromto="0 0 0 0 0 0.2"/>
          <site name="tip" pos="0 0 0.25" quat="0.9238795 0 0.3826834 0"/>
        </body>
      </body>
    </body>
  </worldbody>
  <sensor><gyro name="spin" site="tip"/><jointpos name="bend" joint="elbow"/></sensor>
</mujoco>
"""
DRAWER = """
<mujoco>
  <worldbody>
    <body name="cabinet">
      <geom name="bottom" type="box" size="0.1 0.1 0.01" mass="1"/>
      <geom name="sticker" type="box" size="0.01 0.01 0.001" contype="0" conaffinity="0"/>
      <body name="tray">
        <joint name="slide" type="slide" axis="-1 0 0" range="0 0.2" damping="1"/>
        <geom name="front" type="box" size="0.01 0.1 0.05" mass="0.3"/>
        <site name="handle" pos="-0.02 0 0"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
STILL = {"x_lo": 0.0, "x_hi": 0.0, "y_lo": 0.0, "y_hi": 0.0, "z_lo": 0.0, "z_hi": 0.0}
TARGET = (0.3, 0.1, 0.2)
VELOCITY = {"vx_lo": -1.0, "vx_hi": 1.0, "vy_lo": -1.0, "vy_hi": 1.0, "yaw_lo": -1.0, "yaw_hi": 1.0, "standing": 0.0}
SITE, CUBE = {"site": "tip"}, {"object": "cube"}
SLIDE, HANDLE = {"object_joint": "drawer/slide"}, {"to_site": "drawer/handle"}


def toward(distance, std):
    return 1 - np.tanh(distance / std)


def far(a, b):
    return np.linalg.norm(a - b)


OBSERVATIONS = {
    "site_pos": (SITE, lambda m: m.tip),
    "site_lin_vel": (SITE, lambda m: m.tip_vel),
    "site_to_target": (SITE, lambda m: TARGET - m.tip),
    "object_pos": (CUBE, lambda m: m.cube),
    "object_quat": (CUBE, lambda m: m.cube_quat * np.sign(m.cube_quat[0])),
    "object_lin_vel": (CUBE, lambda m: m.cube_vel),
    "site_to_object": (SITE | CUBE, lambda m: m.cube - m.tip),
    "site_to_site": (SITE | HANDLE, lambda m: m.handle - m.tip),
    "object_to_target": (CUBE, lambda m: TARGET - m.cube),
    "object_joint_pos": (SLIDE, lambda m: m.slide),
    "object_joint_vel": (SLIDE, lambda m: m.slide_vel),
    "contact_force": ({"contact": "cube_floor"}, lambda m: 0.1 * 9.81),
    "sensor_value": ({"sensor": "bend"}, lambda m: m.bend),
    "sensor_vector": ({"sensor": "spin"}, lambda m: m.spin),
}
REWARDS = {
    "reach_target": (SITE | {"std": 0.3}, lambda m: toward(far(m.tip, TARGET), 0.3)),
    "reach_object": (SITE | CUBE | {"std": 0.2}, lambda m: toward(far(m.tip, m.cube), 0.2)),
    "reach_site": (SITE | HANDLE | {"std": 0.5}, lambda m: toward(far(m.tip, m.handle), 0.5)),
    "object_lifted": (CUBE | {"height": 0.01}, lambda m: 1.0),
    "object_raised": (CUBE | {"rest": 0.0, "height": 0.2}, lambda m: m.cube[2] / 0.2),
    "object_at_target": (CUBE | {"std": 0.4, "height": 0.0}, lambda m: toward(far(m.cube, TARGET), 0.4)),
    "object_joint_open": (SLIDE | {"goal": 0.4}, lambda m: m.slide / 0.4),
    "touches": ({"contact": "cube_floor", "force": 0.5}, lambda m: 1.0),
    "contact_load": ({"contact": "cube_floor", "force": 2.0}, lambda m: 0.1 * 9.81 / 2.0),
    "closes": (
        SITE | CUBE | {"joint": "elbow", "distance": 0.5, "opened": 4.0},
        lambda m: (1 - m.elbow / 4.0) * np.exp(-((far(m.tip, m.cube) / 0.5) ** 2)),
    ),
    "grasps": (
        SITE | CUBE | {"left_contact": "cube_floor", "right_contact": "cube_floor", "distance": 0.5, "force": 0.5},
        lambda m: np.exp(-((far(m.tip, m.cube) / 0.5) ** 2)),
    ),
}
METRICS = {
    "site_error": (SITE, lambda m: far(m.tip, TARGET)),
    "site_reached": (SITE | {"distance": 0.3}, lambda m: float(far(m.tip, TARGET) < 0.3)),
    "site_distance": (SITE | HANDLE, lambda m: far(m.tip, m.handle)),
    "object_error": (CUBE, lambda m: far(m.cube, TARGET)),
    "object_reached": (CUBE | {"distance": 0.25}, lambda m: float(far(m.cube, TARGET) < 0.25)),
    "joint_opened": (SLIDE | {"goal": 0.1}, lambda m: float(m.slide >= 0.1)),
}
EVENTS = {
    "start": Event(objects.reset_object, object="cube", yaw=0.5, **STILL | {"x_lo": -0.05, "y_hi": 0.05}),
    "drawer": Event(objects.reset_object_joint, object_joint="drawer/slide", lo=0.05, hi=0.15, velocity=0.0),
}


@pytest.fixture(scope="module")
def scene_task(tmp_path_factory):
    """make(**fields): a task with the arm, a cube, a table and a drawer; fields of Task replace its own."""
    folder = tmp_path_factory.mktemp("arm")
    (folder / "arm.xml").write_text(ARM)
    (folder / "drawer.xml").write_text(DRAWER)
    joints = (
        Joint(name="shoulder", default_pos=0.5, effort_limit=40.0, velocity_limit=5.0, kp=60.0, kd=4.0),
        Joint(name="elbow", default_pos=1.0, effort_limit=20.0, velocity_limit=5.0, kp=40.0, kd=2.0),
    )
    robot = Robot(name="arm", model=folder / "arm.xml", joints=joints)

    def make(**fields):
        own = {
            "name": "toy",
            "robot": robot,
            "sim": Sim(timestep=0.005, decimation=4),
            "observations": {
                "actor": ObservationGroup(terms={"angle": Observation(observations.joint_pos_rel)}, noise=False)
            },
            "rewards": {"near": Reward(objects.reach_object, weight=1.0, std=0.2, **SITE | CUBE)},
            "commands": {"target": Command(commands.uniform_velocity, **VELOCITY)},
            "events": EVENTS,
            "objects": {
                "cube": Box(size=(0.05, 0.05, 0.05), pos=(0.4, 0.0, 0.025)),
                "table": Box(size=(0.2, 0.2, 0.1), pos=(-0.5, 0.0, 0.05), fixed=True),
                "drawer": Articulated(model=folder / "drawer.xml", pos=(0.8, 0.0, 0.2)),
            },
            "contacts": {
                "cube_floor": Contact(first="cube", second="floor"),
                "arm_cube": Contact(first="robot", second="cube"),
            },
        }
        return Task(**(own | fields))

    return make


def measured(env, world):
    """What MuJoCo computes from one world's state."""
    model = env.scene.model
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = env.state.qpos[world].numpy(), env.state.qvel[world].numpy()
    mujoco.mj_forward(model, data)
    velocity = np.zeros(6)
    mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_SITE, model.site("tip").id, velocity, 0)
    slide = model.joint("drawer/slide")
    return SimpleNamespace(
        tip=data.site("tip").xpos,
        tip_vel=velocity[3:],
        tip_spin=velocity[:3],
        tip_mat=data.site("tip").xmat,
        handle=data.site("drawer/handle").xpos,
        cube=data.body("cube").xpos,
        cube_quat=data.body("cube").xquat,
        cube_vel=data.joint("cube").qvel[:3],
        slide=data.qpos[slide.qposadr[0]],
        slide_vel=data.qvel[slide.dofadr[0]],
        elbow=data.joint("elbow").qpos[0],
        spin=data.sensor("spin").data,
        bend=data.sensor("bend").data[0],
    )


@pytest.fixture(scope="module")
def seen(scene_task):
    """Three worlds with every term after half a second, and what MuJoCo computes for each."""
    actor = {name: Observation(getattr(objects, name), **params) for name, (params, _) in OBSERVATIONS.items()}
    env = make_env(
        scene_task(
            observations={"actor": ObservationGroup(terms=actor, noise=False)},
            rewards={name: Reward(getattr(objects, name), weight=1.0, **p) for name, (p, _) in REWARDS.items()},
            metrics={name: Metric(getattr(objects, name), **params) for name, (params, _) in METRICS.items()},
        ),
        num_envs=3,
        seed=4,
    )
    env.set_command(TARGET)
    for step in range(25):
        env.pop_metrics()
        obs, *_ = env.step(torch.full((3, 2), 0.1 * step))
    rewards = (env.state.reward_sums / env.step_dt).numpy()
    terms = env.observation_terms
    parts = {name: obs["actor"][:, slice(*_span(terms[f"actor.{name}"]))].numpy() for name in actor}
    worlds = [measured(env, world) for world in range(3)]
    return SimpleNamespace(env=env, parts=parts, rewards=rewards, metrics=env.pop_metrics(), worlds=worlds)


def _span(position):
    return position[0], position[0] + position[1]


def test_observation_is_its_formula(observation_term, seen):
    _, formula = OBSERVATIONS[observation_term]
    want = [np.atleast_1d(formula(world)) for world in seen.worlds]
    # sensors of the model are of the last substep's start
    tolerance = 0.05 if observation_term.startswith("sensor") else 2e-3 if "force" in observation_term else 2e-6
    np.testing.assert_allclose(seen.parts[observation_term], want, atol=tolerance)


def test_reward_is_its_formula(reward_term, seen):
    want = [REWARDS[reward_term][1](world) for world in seen.worlds]
    # a contact's force still settles a little
    tolerance = 2e-3 if reward_term == "contact_load" else 2e-4
    np.testing.assert_allclose(seen.rewards[:, list(REWARDS).index(reward_term)], want, rtol=tolerance, atol=1e-5)


def test_metric_is_its_formula(metric_term, seen):
    want = np.mean([METRICS[metric_term][1](world) for world in seen.worlds])
    assert seen.metrics[f"tracking/{metric_term}"] == pytest.approx(want, rel=1e-5)


def test_a_site_has_the_orientation_and_spin_of_mujocos(seen):
    for world, want in enumerate(seen.worlds):
        turn = np.zeros(9)
        mujoco.mju_quat2Mat(turn, seen.env.state.site_quat_wxyz[world, 0].double().numpy())
        np.testing.assert_allclose(turn, want.tip_mat, atol=1e-6)
        np.testing.assert_allclose(seen.env.state.site_ang_vel_w[world, 0].numpy(), want.tip_spin, atol=1e-6)


@pytest.mark.long
def test_a_body_of_a_walking_robot_may_stand_for_a_site(go2_task):
    env = make_env(go2_task(metrics={"d": Metric(objects.site_error, site="FL_calf")}, commands=COMMAND), num_envs=2)
    env.step(torch.full((2, 12), 0.3))
    data = mujoco.MjData(env.scene.model)
    data.qpos[:], data.qvel[:] = env.state.qpos[1].numpy(), env.state.qvel[1].numpy()
    mujoco.mj_forward(env.scene.model, data)
    np.testing.assert_allclose(env.state.site_pos_w[1, 0].numpy(), data.body("FL_calf").xpos, atol=1e-6)
    velocity = np.zeros(6)
    body = env.scene.model.body("FL_calf").id
    mujoco.mj_objectVelocity(env.scene.model, data, mujoco.mjtObj.mjOBJ_XBODY, body, velocity, 0)
    np.testing.assert_allclose(env.state.site_lin_vel_w[1, 0].numpy(), velocity[3:], atol=1e-5)


COMMAND = {"target": Command(commands.uniform_velocity, **VELOCITY)}


def test_termination_ends_where_the_object_fell(termination_term, scene_task):
    assert termination_term == "object_below"
    aside = STILL | {"y_lo": 0.5, "y_hi": 0.5, "z_lo": 0.4, "z_hi": 0.4}
    env = make_env(
        scene_task(
            terminations={"lost": Termination(objects.object_below, object="cube", height=0.15)},
            events={"start": Event(objects.reset_object, object="cube", yaw=0.0, **aside)},
        ),
        num_envs=2,
    )
    # 0.425 m falls to 0.15 m in sqrt(2 * 0.275 / 9.81) = 0.237 s: with steps of 0.02 s in the twelfth.
    ended = [bool(env.step(torch.zeros(2, 2))[2].all()) for _ in range(13)]
    assert ended.index(True) == 11


@pytest.mark.long
def test_event_draws_in_its_range(event_term, scene_task):
    checks = {
        "reset_object": _draws_a_pose,
        "place_fixed": _moves_the_table,
        "reset_object_joint": _opens_the_drawer,
        "object_friction": _draws_friction,
        "object_size": _scales_the_cube,
        "object_color": _draws_a_color,
    }
    checks[event_term](scene_task)


def _draws_a_pose(scene_task):
    ranges = {"x_lo": -0.1, "x_hi": 0.1, "y_lo": 0.2, "y_hi": 0.3, "z_lo": 0.5, "z_hi": 0.5}
    env = make_env(
        scene_task(events={"e": Event(objects.reset_object, object="cube", yaw=1.0, **ranges)}), num_envs=200
    )
    pos, quat = env.state.object_pos_w[:, 0].numpy(), env.state.object_quat_wxyz[:, 0].numpy()
    offset = pos - [0.4, 0.0, 0.025]
    np.testing.assert_allclose(offset.min(0), [-0.1, 0.2, 0.5], atol=0.005)
    np.testing.assert_allclose(offset.max(0), [0.1, 0.3, 0.5], atol=0.005)
    yaw = 2 * np.arctan2(quat[:, 3], quat[:, 0])
    assert np.abs(yaw).max() == pytest.approx(1.0, abs=0.05)
    assert np.abs(quat[:, 1:3]).max() == 0


def _draws_a_color(scene_task):
    env = make_env(scene_task(events={"e": Event(objects.object_color, object="cube", lo=0.2, hi=0.8)}), num_envs=200)
    tint = env.state.object_tint
    assert (tint[:, 0, :3].min(), tint[:, 0, :3].max()) == (pytest.approx(0.2, abs=0.01), pytest.approx(0.8, abs=0.01))
    assert tint[:, 0, 3].eq(1).all()
    assert not tint[:, 1:].any()


def _opens_the_drawer(scene_task):
    event = Event(objects.reset_object_joint, object_joint="drawer/slide", lo=0.1, hi=0.2, velocity=0.5)
    env = make_env(scene_task(events={"e": event}), num_envs=100)
    opened, speed = env.state.object_joint_pos[:, 0].numpy(), env.state.object_joint_vel[:, 0].numpy()
    assert (opened.min(), opened.max()) == (pytest.approx(0.1, abs=0.005), pytest.approx(0.2, abs=0.005))
    assert (speed.min(), speed.max()) == (pytest.approx(-0.5, abs=0.05), pytest.approx(0.5, abs=0.05))


def _moves_the_table(scene_task):
    """A cube that falls on a table that was moved comes to rest on its top."""
    events = {
        "place": Event(objects.place_fixed, object="table", **STILL | {"x_lo": -0.05, "z_lo": -0.05}),
        "drop": Event(
            objects.reset_object, object="cube", yaw=0.0, **STILL | {"x_lo": -0.9, "x_hi": -0.9, "z_hi": 0.2}
        ),
    }
    events["drop"].params["z_lo"] = 0.15
    env = make_env(scene_task(events=events), num_envs=6)
    for _ in range(60):
        env.step(torch.zeros(6, 2))
    table, cube = env.state.object_pos_w[:, 1].numpy(), env.state.object_pos_w[:, 0].numpy()
    assert np.ptp(table[:, 0]) > 0.01
    np.testing.assert_allclose(cube[:, 2], table[:, 2] + 0.05 + 0.025, atol=3e-4)


@pytest.mark.long
def test_a_site_goes_with_an_articulated_object_that_is_moved(scene_task):
    moved = STILL | {"x_lo": 0.1, "x_hi": 0.2, "z_lo": -0.1}
    env = make_env(
        scene_task(
            events={"place": Event(objects.place_fixed, object="drawer", **moved)},
            metrics={"handle": Metric(objects.site_error, site="drawer/handle")},
        ),
        num_envs=3,
    )
    env.step(torch.zeros(3, 2))
    drawer, slide = env.state.object_pos_w[:, 2], env.state.object_joint_pos[:, 0]
    assert float(drawer[:, 0].min()) > 0.9
    at = list(env.scene.elements.sites).index("drawer/handle")
    want = drawer + torch.tensor([-0.02, 0.0, 0.0])
    want[:, 0] -= slide
    torch.testing.assert_close(env.state.site_pos_w[:, at], want)


def _draws_friction(scene_task):
    event = Event(objects.object_friction, object="drawer", lo=0.2, hi=0.4)
    env = make_env(scene_task(events={"e": event}), num_envs=50)
    geoms = env.scene.elements.objects["drawer"].geoms
    assert len(geoms) == 2  # the sticker touches nothing and is left out
    friction = env.state.geom_friction[:, geoms, 0].numpy()
    assert (friction[:, 0] == friction[:, 1]).all()
    assert (friction.min(), friction.max()) == (pytest.approx(0.2, abs=0.01), pytest.approx(0.4, abs=0.01))
    others = np.setdiff1d(np.arange(env.scene.model.ngeom), geoms)
    np.testing.assert_array_equal(
        env.state.geom_friction[7, others, 0].numpy(), env.scene.model.geom_friction[others, 0].astype(np.float32)
    )


def _scales_the_cube(scene_task):
    """A cube of another size rests at half its edge and weighs its volume's share."""
    env = make_env(
        scene_task(events={"e": Event(objects.object_size, object="cube", lo=0.5, hi=2.0)}), num_envs=6, seed=1
    )
    for _ in range(60):
        env.step(torch.zeros(6, 2))
    half = env.state.geom_size[:, env.scene.elements.objects["cube"].geoms[0], 2].numpy()
    assert np.ptp(half) > 0.01
    np.testing.assert_allclose(env.state.object_pos_w[:, 0, 2].numpy(), half, atol=3e-4)
    weight = 0.1 * (half / 0.025) ** 3 * 9.81
    np.testing.assert_allclose(env.state.contact_force[:, 0].numpy(), weight, rtol=0.01)


def test_the_scene_has_objects_by_name(scene_task):
    env = make_env(scene_task(), num_envs=1)
    assert list(env.scene.elements.objects) == ["cube", "table", "drawer"]
    cube, table, drawer = env.scene.elements.objects.values()
    assert (cube.fixed, table.fixed, drawer.fixed) == (False, True, True)
    assert drawer.joints == ["drawer/slide"]
    assert env.robot_state()["joint_pos"].shape == (1, 2)
    model = env.scene.model
    # What is fixed is ground to a height scan; the cube and the arm are not.
    assert {model.geom(k).name for k in np.flatnonzero(model.geom_group == 5)} == {
        "floor",
        "table",
        "drawer/bottom",
    }


@pytest.mark.long
def test_the_same_seed_gives_the_same_worlds_and_a_checkpoint_goes_on(scene_task):
    first, second = (make_env(scene_task(), num_envs=4, seed=3) for _ in range(2))
    for env in (first, second):
        for _ in range(5):
            env.step(torch.full((4, 2), 0.5))
    saved = first.state_dict()
    for name, value in second.state_dict().items():
        assert torch.equal(saved[name], value), name
    other = make_env(scene_task(), num_envs=4, seed=8)
    other.load_state_dict(saved)
    for env in (first, other):
        env.step(torch.full((4, 2), -0.5))
    assert torch.equal(first.state.qpos, other.state.qpos)
    assert torch.equal(first.state.site_pos_w, other.state.site_pos_w)


def test_a_declared_measurement_is_the_value_without_noise(scene_task):
    actor = {
        "angle": Observation(observations.joint_pos_rel),
        "cube": Observation(objects.object_pos, object="cube", noise=0.1, scale=2.0, measured="cube_pos"),
    }
    env = make_env(scene_task(observations={"actor": ObservationGroup(terms=actor)}), num_envs=3)
    assert env.pop_notices() == []
    clean = env.robot_state()["measured/cube_pos"]
    torch.testing.assert_close(clean, env.state.object_pos_w[:, 0])
    noise = env.get_observations()["actor"][:, 2:] / 2.0 - clean
    assert 0.02 < noise.abs().max() < 0.1
    row = env.describe_policy()["observations"][1]
    assert (row["signal"], row["params"], row["unit"], row["frame"]) == ("measured/cube_pos", {}, "m", "base")


def test_what_nothing_measures_is_named_at_the_start_with_its_cure(scene_task):
    actor = {"angle": Observation(observations.joint_pos_rel), "cube": Observation(objects.object_pos, object="cube")}
    groups = {"actor": ObservationGroup(terms=actor)}
    env = make_env(scene_task(observations=groups), num_envs=1)
    (line,) = env.pop_notices()
    assert line.startswith("observations.actor: only a simulator knows cube")
    assert "measured=<name>" in line
    assert env.pop_notices() == []
    assert make_env(scene_task(observations=groups, deployable=False), num_envs=1).pop_notices() == []


@pytest.mark.long
def test_free_objects_start_where_the_robot_does_on_a_terrain(go2_task):
    from robot_rl_envs.terrain import rough_terrains

    ball = {"ball": Sphere(radius=0.1, pos=(1.0, 0.0, 0.5))}
    env = make_env(go2_task(terrain=rough_terrains(), objects=ball), num_envs=4)
    gap = env.state.object_pos_w[:, 0] - env.state.env_origin_w
    torch.testing.assert_close(gap, torch.tensor([[1.0, 0.0, 0.5]]).expand(4, 3), atol=1e-5, rtol=0)


@pytest.mark.long
def test_a_mesh_and_a_cylinder(scene_task, tmp_path):
    corners = [(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
    faces = [
        (1, 3, 4),
        (1, 4, 2),
        (5, 6, 8),
        (5, 8, 7),
        (1, 2, 6),
        (1, 6, 5),
        (3, 7, 8),
        (3, 8, 4),
        (1, 5, 7),
        (1, 7, 3),
    ]
    faces += [(2, 4, 8), (2, 8, 6)]
    lines = [f"v {x} {y} {z}" for x, y, z in corners] + [f"f {a} {b} {c}" for a, b, c in faces]
    (tmp_path / "die.obj").write_text("\n".join(lines))
    things = {
        "cube": Mesh(file=tmp_path / "die.obj", scale=(0.05, 0.05, 0.05), pos=(0.5, 0.0, 0.06), mass=0.2),
        "can": Cylinder(radius=0.03, height=0.2, pos=(0.0, 0.5, 0.1)),
    }
    env = make_env(scene_task(objects=things, events={}, contacts={}), num_envs=1)
    for _ in range(50):
        env.step(torch.zeros(1, 2))
    np.testing.assert_allclose(env.state.object_pos_w[0, :, 2].numpy(), [0.05, 0.1], atol=5e-4)
    assert float(env.scene.model.body("cube").mass[0]) == pytest.approx(0.2)


NO_SITE = {"near": Reward(objects.reach_object, weight=1.0, std=0.2, site="tipp", object="cube")}
CASES = {
    "objects='2nd'": {"objects": {"2nd": Sphere(radius=0.1)}},
    "objects='robot'": {"objects": {"robot": Sphere(radius=0.1)}},
    "objects.ball=": {"objects": {"ball": "round"}},
    "objects.thing=": {"objects": {"thing": Object()}},
    "objects.base: robot 'arm' has a body": {"objects": {"base": Sphere(radius=0.1), "cube": Sphere(radius=0.1)}},
    "contacts.touch.second='cubo': .* did you mean 'cube'": {
        "contacts": {"touch": Contact(first="cube", second="cubo")}
    },
    "contacts.touch.first=''": {"contacts": {"touch": Contact(first="")}},
    "rewards.near.site='tipp': the scene lacks a site or body of that name; did you mean 'tip'": {"rewards": NO_SITE},
    "rewards.near.object='cub': the task has no object of that name; did you mean 'cube'": {
        "rewards": {"near": Reward(objects.reach_object, weight=1.0, std=0.2, site="tip", object="cub")}
    },
    "rewards.hit.force=0: must be": {
        "rewards": {"hit": Reward(objects.contact_load, weight=-1.0, contact="arm_cube", force=0.0)}
    },
    "events.e.object='table': is fixed": {
        "events": {"e": Event(objects.reset_object, object="table", yaw=0.0, **STILL)}
    },
    "events.e.object='cube': moves freely": {"events": {"e": Event(objects.place_fixed, object="cube", **STILL)}},
    "events.e.object='drawer': its size cannot be multiplied": {
        "events": {"e": Event(objects.object_size, object="drawer", lo=1.0, hi=2.0)}
    },
    "observations.actor: measured='q'": {
        "observations": {
            "actor": ObservationGroup(
                terms={
                    name: Observation(objects.object_pos, object="cube", measured="q") for name in ("first", "second")
                }
            )
        }
    },
}


@pytest.mark.parametrize("line", CASES)
def test_what_does_not_fit_is_one_line(line, scene_task):
    with pytest.raises(ValueError, match=line):
        make_env(scene_task(**CASES[line]), num_envs=1)


def test_an_objects_own_figures_are_checked():
    for make, line in (
        (lambda: Box(size=(0.1, 0.0, 0.1)), "size="),
        (lambda: Sphere(radius=-1.0), "radius="),
        (lambda: Sphere(radius=1.0, mass=0.0), "mass="),
        (lambda: Sphere(radius=1.0, condim=2), "condim="),
        (lambda: Sphere(radius=1.0, quat_wxyz=(1.0, 1.0, 0.0, 0.0)), "quat_wxyz="),
        (lambda: Sphere(radius=1.0, rgba=(2.0, 0.0, 0.0, 1.0)), "rgba="),
        (lambda: Mesh(file="/nowhere.obj"), "file="),
        (lambda: Articulated(model="/nowhere.xml"), "model="),
        (lambda: Observation(observations.joint_vel, measured="speed"), "measured="),
        (lambda: Observation(objects.object_pos, object="cube", measured="a b"), "measured="),
    ):
        with pytest.raises(ValueError, match=line):
            make()


def test_the_floor_is_ours_whatever_the_robots_file_has(scene_task, tmp_path):
    """Its own defaults for geoms, such as contacts without friction, and its own pattern of the same name."""
    own = '<texture name="grid" type="2d" builtin="flat" width="8" height="8"/>'
    default = '<default><geom condim="1" margin="0.01" solref="0.1 1" rgba="1 0 0 1"'
    text = ARM.replace("<default><geom", f"<asset>{own}</asset>{default}")
    (tmp_path / "own.xml").write_text(text)
    robot = dataclasses.replace(scene_task().robot, model=tmp_path / "own.xml")
    models = [make_scene(scene_task(robot=one)).render_model for one in (scene_task().robot, robot)]
    assert models[1].geom("upper").condim == 1
    for field in ("condim", "margin", "solref", "solimp", "friction", "rgba"):
        first, second = (getattr(model.geom("floor"), field) for model in models)
        assert first.tolist() == second.tolist(), field
    (tmp_path / "own.xml").write_text(ARM.replace('name="foot"', 'name="floor"'))
    with pytest.raises(ValueError, match=r"own.xml: a geom's name is 'floor'; rename it"):
        make_scene(scene_task(robot=robot))


@pytest.mark.long
def test_a_body_of_an_object_is_randomized_by_its_name(scene_task):
    event = Event(randomize.body_mass, mode="startup", body="drawer/tray", lo=2.0, hi=3.0)
    env = make_env(scene_task(events={"e": event}), num_envs=20)
    mass = env.state.body_mass[:, env.scene.model.body("drawer/tray").id, 0].numpy()
    assert 0.6 <= mass.min() < mass.max() <= 0.9
