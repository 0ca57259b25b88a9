"""The two engines against each other: one model, one state, one sequence of controls, contacts included.

`mujoco` steps in float64 and `mujoco_warp` in float32. While the same contacts are open and closed on both, they differ
only by rounding: measured 5e-7 in positions, 2e-5 in velocities and 2e-4 N in forces (of 200 N) over 50 substeps of a
Go2 that is dropped and held; the bounds below are ten times that. In a step in which a joint begins to slip, float32
ends the solver's iterations sooner: forces of the feet differ by 1.2e-2 N in one step of these 50. A foot that lands or
lifts within a rounding error of a substep's end does so one substep earlier on one engine than on the other; from there
on the two are different motions. That is why the horizon is short: 50 substeps (0.25 s) for the bare engines, 10
control steps (0.2 s) for environments of a Go2 (measured 5e-6 in observations); a cart-pole touches nothing and stays
together (2e-6 after 100 control steps).
"""

import mujoco
import numpy as np
import pytest
import torch
import warp as wp
from robot_rl_assets.registry import get_robot
from robot_rl_envs.engine import DIRTY_STATE
from robot_rl_envs.engines import make_engine
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import commands, events, observations, rewards, terminations
from robot_rl_envs.task import Actions, Command, Event, Observation, ObservationGroup, Reward, Sim, Task, Termination
from robot_rl_tasks.registry import get_task

pytestmark = pytest.mark.long  # mujoco_warp compiles for most of a minute where its kernels are not cached

N = 4
SIM = Sim(timestep=0.005, decimation=4, solver="newton", iterations=50, ls_iterations=50)
POS_TOL, VEL_TOL, FORCE_TOL = 5e-6, 2e-4, 2e-3
SLIPPING, SLIP_TOL = 3, 0.1
"""In so many steps the feet's forces may differ by more than FORCE_TOL, and by so much [N]."""


@pytest.fixture(scope="module")
def scene():
    return Scene(get_robot("unitree_go2"), SIM, Actions())


@pytest.fixture(scope="module")
def engines(scene):
    return [make_engine(name, scene, num_envs=N, device="cpu", num_threads=1) for name in ("mujoco", "mujoco_warp")]


def put(engine, qpos, qvel):
    """Start every world of an engine in the given state, as a reset does."""
    engine.data.qpos.numpy()[...] = qpos
    engine.data.qvel.numpy()[...] = qvel
    engine.write_back(wp.array(np.full(N, DIRTY_STATE), dtype=wp.int32, device="cpu"))


def dropped(scene):
    """Four Go2 from 0 to 20 cm above the floor, two of them moving forward, legs held at random targets."""
    rng = np.random.default_rng(0)
    qpos = np.tile(scene.default_qpos, (N, 1)).astype(np.float32)
    qpos[:, 2] += [0.0, 0.05, 0.1, 0.2]
    qvel = np.zeros((N, 18), dtype=np.float32)
    qvel[:, 0] = [0.0, 0.5, 0.0, 1.0]
    ctrl = scene.robot.default_pos() + rng.uniform(-0.2, 0.2, size=(N, 12))
    return qpos, qvel, ctrl.astype(np.float32)


def contacts(engine):
    return engine.data.sensordata.numpy().reshape(N, 4, 4)


def test_a_dropped_robot_falls_and_lands_alike(scene, engines):
    qpos, qvel, ctrl = dropped(scene)
    landed, off = np.zeros(N), []
    for engine in engines:
        put(engine, qpos, qvel)
        engine.data.ctrl.numpy()[...] = ctrl
    for _ in range(50):
        for engine in engines:
            engine.step(1)
        one, two = (engine.data for engine in engines)
        np.testing.assert_allclose(two.qpos.numpy(), one.qpos.numpy(), atol=POS_TOL)
        np.testing.assert_allclose(two.qvel.numpy(), one.qvel.numpy(), atol=VEL_TOL)
        np.testing.assert_allclose(two.actuator_force.numpy(), one.actuator_force.numpy(), atol=FORCE_TOL)
        first, second = (contacts(engine) for engine in engines)
        np.testing.assert_array_equal(first[:, :, 0] > 0, second[:, :, 0] > 0)
        off.append(np.abs(second - first).max())
        landed = np.maximum(landed, (first[:, :, 0] > 0).sum(axis=1))
    assert (landed >= 3).all(), "the contacts were to be part of it"
    assert sorted(off)[-1 - SLIPPING] < FORCE_TOL
    assert max(off) < SLIP_TOL


def test_the_state_of_both_is_mujoco_s_own(scene, engines):
    """And both agree with mj_step, called by hand."""
    qpos, qvel, ctrl = dropped(scene)
    for engine in engines:
        put(engine, qpos, qvel)
        engine.data.ctrl.numpy()[...] = ctrl
        engine.step(30)
    for i in range(N):
        data = mujoco.MjData(scene.model)
        data.qpos[:], data.qvel[:], data.ctrl[:] = qpos[i], qvel[i], ctrl[i]
        mujoco.mj_step(scene.model, data, 30)
        np.testing.assert_array_equal(engines[0].data.qpos.numpy()[i], data.qpos.astype(np.float32))
        np.testing.assert_allclose(engines[1].data.qpos.numpy()[i], data.qpos, atol=POS_TOL)
        np.testing.assert_allclose(engines[1].data.qvel.numpy()[i], data.qvel, atol=VEL_TOL)


def test_the_state_is_saved_and_restored(scene, engines):
    """A step after a restored state is the step after the original, bit for bit."""
    qpos, qvel, ctrl = dropped(scene)
    for engine in engines:
        put(engine, qpos, qvel)
        engine.data.ctrl.numpy()[...] = ctrl
        engine.step(25)
        kept = engine.get_state()
        engine.step(5)
        want = engine.data.qpos.numpy().copy(), engine.data.qvel.numpy().copy()
        engine.step(20)
        engine.set_state(kept)
        engine.step(5)
        np.testing.assert_array_equal(engine.data.qpos.numpy(), want[0], err_msg=engine.name)
        np.testing.assert_array_equal(engine.data.qvel.numpy(), want[1], err_msg=engine.name)
        with pytest.raises(ValueError, match="engine state has shape"):
            engine.set_state(kept[:-1])


def walk_task():
    """A Go2 with observations of every kind, all randomized model fields, pushes and commands; no noise."""
    ranges = {"vx_lo": -1.0, "vx_hi": 1.5, "vy_lo": -0.6, "vy_hi": 0.6, "yaw_lo": -1.0, "yaw_hi": 1.0, "standing": 0.1}
    terms = {
        "gyro": Observation(observations.base_ang_vel),
        "gravity": Observation(observations.projected_gravity),
        "command": Observation(observations.velocity_command),
        "joint_pos": Observation(observations.joint_pos_rel, history=2),
        "joint_vel": Observation(observations.joint_vel, scale=0.05),
        "lin_vel": Observation(observations.base_lin_vel),
        "contact": Observation(observations.foot_contact),
        "torque": Observation(observations.joint_torque, scale=0.1),
    }
    return Task(
        name="parity",
        robot=get_robot("unitree_go2"),
        sim=SIM,
        observations={"actor": ObservationGroup(terms=terms)},
        rewards={
            "track": Reward(rewards.track_lin_vel, weight=1.0, std=0.5),
            "slip": Reward(rewards.foot_slip, weight=-0.1),
            "torque": Reward(rewards.joint_torque, weight=-1e-4),
        },
        terminations={"low": Termination(terminations.base_below, height=0.1)},
        commands={"velocity": Command(commands.uniform_velocity, resample_s=(0.1, 0.3), **ranges)},
        events={
            "mass": Event(events.base_mass, mode="startup", body=1, mass=1.5, com=0.03),
            "base": Event(events.reset_base, xy=0.5, yaw=3.14, velocity=0.2),
            "joints": Event(events.reset_joints, position=0.1, velocity=0.2),
            "friction": Event(events.foot_friction, lo=0.3, hi=1.2),
            "motors": Event(events.motor_strength, lo=0.8, hi=1.1),
            "push": Event(events.push, mode="interval", interval_s=(0.04, 0.1), xy=0.5, yaw=0.3),
        },
    )


@pytest.fixture(scope="module")
def walkers():
    return [make_env(walk_task(), num_envs=N, engine=name, seed=7, num_threads=1) for name in ("mujoco", "mujoco_warp")]


def actions_at(step, env):
    return torch.randn(env.num_envs, env.num_actions, generator=torch.Generator().manual_seed(step))


def assert_alike(envs, steps, tolerance):
    for step in range(steps):
        (obs1, r1, d1, _), (obs2, r2, d2, _) = (env.step(actions_at(step, env)) for env in envs)
        for group in [*obs1.keys()]:
            torch.testing.assert_close(obs2[group], obs1[group], atol=tolerance, rtol=1e-4)
        torch.testing.assert_close(r2, r1, atol=tolerance, rtol=1e-4)
        assert torch.equal(d1, d2)


def test_environments_on_both_engines_see_and_earn_the_same(walkers):
    """Ten steps from a reset, then ten from the next, with every random draw alike and every model field in use."""
    one, two = walkers
    for name in ("body_mass", "body_inertia", "body_ipos", "geom_friction", "actuator_gainprm", "command", "qpos"):
        torch.testing.assert_close(getattr(two.state, name), getattr(one.state, name), atol=1e-6, rtol=1e-6)
    for _ in range(2):
        for env in walkers:
            env.reset()
        assert_alike(walkers, 10, tolerance=5e-5)


def test_constants_that_follow_from_masses_are_alike(walkers):
    one, two = walkers
    for i in range(N):
        model = one.engine.batch.get_model(i)
        for name in ("body_subtreemass", "dof_invweight0", "body_invweight0"):
            got = getattr(two.engine.warp_model, name).numpy()[i]
            np.testing.assert_allclose(got, getattr(model, name), rtol=1e-3, atol=1e-6, err_msg=name)


def test_a_world_is_reset_alone_on_both(walkers):
    for env in walkers:
        env.reset()
        for step in range(5):
            env.step(actions_at(step, env))
        assert env.state.foot_contact.any()
        env.episode_length_buf[1] = env.max_episode_length
        before = env.state.qpos.clone()
        dones = env.step(actions_at(5, env))[2]
        assert dones.tolist() == [False, True, False, False]
        assert not env.state.foot_contact[1].any()
        assert not env.state.sensordata[1].any()
        assert torch.all((env.state.qpos[:, :3] - before[:, :3]).abs().amax(dim=1)[[0, 2, 3]] < 0.1)
    torch.testing.assert_close(walkers[0].state.qpos[1], walkers[1].state.qpos[1], atol=1e-6, rtol=0)
    torch.testing.assert_close(walkers[0].state.qvel[1], walkers[1].state.qvel[1], atol=1e-6, rtol=0)


def test_a_world_that_is_not_finite_is_quarantined_alone_on_the_gpu_engine_too(walkers):
    env = walkers[1]
    env.reset()
    env.pop_metrics()
    env.step(actions_at(0, env))
    env.state.qpos[2, 1] = torch.nan
    obs, reward, dones, extras = env.step(actions_at(1, env))
    assert dones.tolist() == [False, False, True, False]
    assert extras["valid"].tolist() == [True, True, False, True]
    for step in range(2, 6):
        assert torch.isfinite(obs["actor"]).all()
        assert torch.isfinite(extras["final_obs"]["actor"]).all()
        assert torch.isfinite(reward).all()
        obs, reward, dones, extras = env.step(actions_at(step, env))
        assert extras["valid"].all()
    assert env.pop_metrics()["quarantined"] == 1


def test_a_state_dict_of_the_gpu_engine_goes_on_bit_for_bit(walkers):
    env = walkers[1]
    env.reset()
    for step in range(8):
        env.step(actions_at(step, env))
    kept = env.state_dict()
    first = [env.step(actions_at(step, env))[0]["actor"].clone() for step in range(8, 16)]
    env.load_state_dict(kept)
    second = [env.step(actions_at(step, env))[0]["actor"].clone() for step in range(8, 16)]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_cartpole_is_the_same_on_both_engines():
    envs = [
        make_env(get_task("cartpole"), num_envs=N, engine=name, seed=3, num_threads=1)
        for name in ("mujoco", "mujoco_warp")
    ]
    assert_alike(envs, 100, tolerance=2e-5)


def test_objects_fall_slide_and_are_pushed_alike():
    """A cube is dropped, a ball thrown, a cylinder stands on a fixed table; 25 control steps of 0.02 s."""
    from robot_rl_envs.objects import Box, Cylinder, Sphere

    task = get_task("cartpole")
    task.objects = {
        "cube": Box(size=(0.1, 0.1, 0.1), pos=(0.0, -1.0, 0.3)),
        "ball": Sphere(radius=0.05, pos=(1.0, -1.0, 0.2)),
        "can": Cylinder(radius=0.04, height=0.1, pos=(2.0, -1.0, 0.25)),
        "table": Box(size=(0.4, 0.4, 0.2), pos=(2.0, -1.0, 0.1), fixed=True),
    }
    envs = [make_env(task, num_envs=N, engine=name, seed=3, num_threads=1) for name in ("mujoco", "mujoco_warp")]
    for env in envs:
        at = env.scene.elements.objects["ball"].dof
        env.state.qvel[:, at] = 1.0
        env.state.dirty.fill_(DIRTY_STATE)
        env.write_back()
    for step in range(25):
        for env in envs:
            env.step(torch.zeros(N, env.num_actions) + 0.01 * step)
        one, two = (env.state for env in envs)
        torch.testing.assert_close(two.object_pos_w, one.object_pos_w, atol=5e-5, rtol=0)
        torch.testing.assert_close(two.object_quat_wxyz, one.object_quat_wxyz, atol=5e-4, rtol=0)
        torch.testing.assert_close(two.object_lin_vel_w, one.object_lin_vel_w, atol=5e-3, rtol=0)
    start = torch.tensor([thing.pos for thing in task.objects.values()])
    moved = (one.object_pos_w - start).norm(dim=-1)
    assert (moved[:, 0] > 0.2).all(), "the cube was to fall"
    assert (moved[:, 1] > 0.3).all(), "the ball was to fly"
    assert (moved[:, 3] == 0).all()
    for env in envs:
        env.close()
