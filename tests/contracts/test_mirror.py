"""The left-right mirror of every symmetric task, checked against a mirror of the physical state itself.

A state is reflected in the plane y = 0 by the rules of mechanics: positions and velocities change their y component,
angular velocities (axial vectors) their x and z component, quaternions their x and z component, and every joint takes
its partner's place. Terms seen in the mirror must be what the task's mirror maps make of them, and rewards the same.
"""

import numpy as np
import pytest
import torch

N = 16


@pytest.fixture(scope="module")
def pair(build):
    """Two environments of the task on puppet strings: their worlds are where the test puts them."""
    envs = [build(num_envs=N) for _ in range(2)]
    if envs[0].mirror is None:
        pytest.skip("the task is not declared symmetric")
    for env in envs:
        env.moves = {}
        env.engine.step = lambda substeps, env=env: put(env, env.moves)
        # terrain is not symmetric; level ground is
        env.state.terrain_heights.zero_()
        env.state.terrain_origins.zero_()
        for path in env.params():
            if path.endswith(".noise"):
                env.set_param(path, 0.0)
        leave_the_motion(env)
    return envs


def leave_the_motion(env):
    """Let no episode end where a robot is far from its reference motion."""
    for path in env.params() if env.scene.reference_motions.names else ():
        if path.startswith("terminations."):
            env.set_param(path, np.pi if path.endswith("_rad") else 1e6)


def put(env, fields):
    for name, value in fields.items():
        view = getattr(env.state, name)
        view.copy_(torch.as_tensor(np.asarray(value)).to(view.dtype).expand(view.shape))


def joint_mirror(robot):
    names = robot.joint_names
    partner = [names.index(joint.mirror or joint.name) for joint in robot.joints]
    return np.array(partner), np.array([joint.mirror_sign for joint in robot.joints])


def reflect(env, state):
    """The state seen in a mirror at y = 0."""
    scene, robot = env.scene, env.cfg.robot
    partner, sign = joint_mirror(robot)
    seen = {name: np.array(value, copy=True) for name, value in state.items()}
    seen["qpos"][:, scene.joint_qpos] = sign * state["qpos"][:, scene.joint_qpos[partner]]
    seen["qvel"][:, scene.joint_dof] = sign * state["qvel"][:, scene.joint_dof[partner]]
    if scene.base:
        seen["qpos"][:, :7] *= [1, -1, 1, 1, -1, 1, -1]
        seen["qvel"][:, :6] *= [1, -1, 1, -1, 1, -1]
    driven = [j for j, joint in enumerate(robot.joints) if not joint.passive]
    drive = np.array([driven.index(partner[j]) for j in driven])
    for name in ("actions", "before", "earlier", "actuator_force"):
        seen[name] = sign[driven] * state[name][:, drive]
    if not scene.reference_motions.names:
        seen["command"] = state["command"] * [1, -1, -1]
    if robot.feet:
        feet = list(robot.foot_mirror)
        sensors = state["sensordata"][:, : 4 * len(feet)].reshape(N, -1, 4)[:, feet]
        seen["sensordata"][:, : 4 * len(feet)] = (sensors * [1, 1, -1, 1]).reshape(N, -1)
        for name in ("foot_contact", "foot_air_time_s"):
            seen[name] = state[name][:, feet]
    return seen


def random_state(env, rng):
    """A random state of every kind a step reads, without ending an episode."""
    scene, robot = env.scene, env.cfg.robot
    joints, driven, feet = len(robot.joints), env.num_actions, len(robot.feet)
    qpos = np.tile(scene.default_qpos, (N, 1))
    qpos[:, scene.joint_qpos] += rng.uniform(-0.3, 0.3, size=(N, joints))
    if scene.base:
        axis = rng.normal(size=(N, 3)) * [0.1, 0.1, 1.0]
        quat = np.concatenate([np.ones((N, 1)), axis], axis=1)
        qpos[:, 3:7] = quat / np.linalg.norm(quat, axis=1, keepdims=True)
        qpos[:, :3] += rng.uniform(-0.02, 0.02, size=(N, 3))
    touching = rng.random((N, feet, 1)) < 0.5
    sensors = touching * np.concatenate([np.ones((N, feet, 1)), rng.uniform(2, 40, size=(N, feet, 3))], axis=2)
    others = np.zeros((N, env.scene.model.nsensordata - 4 * feet))  # the task's own contact sensors touch nothing
    return {
        "qpos": qpos,
        "qvel": rng.normal(size=(N, env.scene.model.nv)) * 0.5,
        "actions": rng.normal(size=(N, driven)),
        "before": rng.normal(size=(N, driven)),
        "earlier": rng.normal(size=(N, driven)),
        "actuator_force": rng.normal(size=(N, driven)) * 5.0,
        "sensordata": np.concatenate([sensors.reshape(N, -1), others], axis=1),
        "command": rng.uniform(-1, 1, size=(N, 3)) * (rng.random((N, 1)) < 0.7),
        "foot_contact": (rng.random((N, feet)) < 0.5).astype(float),
        "foot_air_time_s": rng.uniform(0, 0.4, size=(N, feet)),
    }


def gait_period_steps(env):
    """Control steps in the period of a gait clock, an even number; every clock is set to it."""
    steps = 20
    for path in env.params():
        if path.endswith(".frequency_hz"):
            env.set_param(path, 1.0 / (steps * env.step_dt))
    return steps


def reflect_motions(env):
    """Put the mirror image of every reference motion in its place."""
    state, robot = env.state, env.cfg.robot
    partner, sign = (torch.as_tensor(part) for part in joint_mirror(robot))
    polar, axial, quat = (torch.tensor(signs) for signs in ([1, -1, 1], [-1, 1, -1], [1, -1, 1, -1]))
    bodies = [env.scene.reference_motions.tracked.index(swapped(name)) for name in env.scene.reference_motions.tracked]
    for name in ("joint_pos", "joint_vel"):
        field = getattr(state, f"reference_{name}")
        field.copy_((field[:, partner] * sign).float())
    for name, signs in (("pos_w", polar), ("quat_wxyz", quat), ("lin_vel_w", polar)):
        field = getattr(state, f"reference_base_{name}")
        field.copy_(field * signs)
        field = getattr(state, f"reference_body_{name}")
        field.copy_(field[:, bodies] * signs)
    state.reference_base_ang_vel_b.mul_(axial)
    state.reference_body_ang_vel_w.copy_(state.reference_body_ang_vel_w[:, bodies] * axial)
    state.reference_foot_contact.copy_(state.reference_foot_contact[:, list(robot.foot_mirror)])


def swapped(name):
    return name.replace("left", "R").replace("right", "left").replace("R", "right")


def play(env, past, now, turn):
    """Two steps, so that histories, last actions and contacts have a past; the clock is at ``turn`` steps."""
    env.reset()
    for state in (past, now):
        fields = {name: state[name] for name in ("qpos", "qvel", "sensordata", "actuator_force")}
        env.moves = {name: value for name, value in fields.items() if value.size}
        put(env, {"interval_left_s": 99.0})
        if env.scene.reference_motions.names:
            put(
                env,
                {"motion_id": np.arange(N) % len(env.scene.reference_motions.names), "motion_start": np.arange(N) * 5},
            )
        else:
            put(env, {"command": state["command"], "command_hold": 1})
        put(env, {"step_count": turn, "action": state["before"], "prev_action": state["earlier"]})
        if env.cfg.robot.feet:
            put(env, {name: state[name] for name in ("foot_contact", "foot_air_time_s")})
        obs, reward, dones, _ = env.step(torch.as_tensor(state["actions"], dtype=torch.float32))
    return {name: value.clone() for name, value in obs.items()}, reward.clone(), dones.clone(), env.state.reward_sums


def test_the_mirror_maps_are_their_own_inverse(pair):
    env = pair[0]
    obs = env.get_observations()
    assert set(env.mirror) == {*obs.keys(), "action"}
    for name, (index, sign) in env.mirror.items():
        width = env.num_actions if name == "action" else obs[name].shape[1]
        assert sorted(index.tolist()) == list(range(width)), name
        assert torch.equal(index[index], torch.arange(width)), name
        assert torch.equal(sign * sign[index], torch.ones(width)), name


def test_a_mirrored_state_is_seen_mirrored_and_earns_the_same(pair):
    one, two = pair
    if one.scene.mujoco_fields:
        pytest.skip(
            "the task reads MuJoCo's own arrays: tests/unit/sources/gymnasium/test_mirrors.py, with the physics"
        )
    rng = np.random.default_rng(1)
    past, now = random_state(one, rng), random_state(one, rng)
    period = gait_period_steps(one), gait_period_steps(two)
    if one.scene.reference_motions.names:
        period = 0, 0  # a motion has no half period later
        reflect_motions(two)
    obs, reward, dones, sums = play(one, past, now, turn=7)
    seen, earned, ended, terms = play(two, reflect(two, past), reflect(two, now), turn=7 + period[0] // 2)
    assert not dones.any()
    assert torch.equal(dones, ended)
    for group, value in obs.items():
        index, sign = one.mirror[group]
        torch.testing.assert_close(seen[group], value[:, index] * sign, atol=2e-5, rtol=1e-4, msg=f"group {group}")
        assert not torch.allclose(seen[group], value, atol=1e-2), "the states were to look different in the mirror"
    for k, name in enumerate(one.cfg.rewards):
        torch.testing.assert_close(terms[:, k], sums[:, k], atol=2e-5, rtol=1e-3, msg=f"reward {name}")
    torch.testing.assert_close(earned, reward, atol=2e-5, rtol=1e-3)


def test_mirrored_actions_move_the_robot_mirrored(build):
    """In the physics itself: a robot need not be symmetric to the last gram, a wrong sign or partner shows at once."""
    one, two = build(num_envs=1), build(num_envs=1)
    if one.mirror is None:
        pytest.skip("the task is not declared symmetric")
    scene = one.scene
    if scene.reference_motions.names:
        reflect_motions(two)
        one.reset()
        two.reset()
    start = {"qpos": scene.default_qpos[None].copy(), "qvel": np.zeros((1, scene.model.nv))}
    if scene.base:
        start["qpos"][0, :3] += one.state.env_origin_w[0].numpy()
        start["qpos"][0, 2] += 0.5  # in the air: contacts would magnify every gram
    partner, sign = joint_mirror(one.cfg.robot)
    index, action_sign = one.mirror["action"]
    for env in (one, two):
        for path in env.params():
            if path.endswith(".z_hi"):  # of an end above which no robot is well
                env.set_param(path, 1e6)
        leave_the_motion(env)
        for name in ("qpos", "qvel"):
            getattr(env.engine.batch, name)[...] = start[name]
    moved = []
    for step in range(10):
        # small enough to keep off the joints' limits, which magnify every gram as well
        action = 0.3 * torch.randn(1, one.num_actions, generator=torch.Generator().manual_seed(step // 3))
        one.step(action)
        two.step(action[:, index] * action_sign)
        moved.append([env.engine.batch.qpos[0, scene.joint_qpos].copy() for env in (one, two)])
    default = np.array(one.cfg.robot.default_pos())
    for left, right in moved:
        # angles: a full turn is no difference
        np.testing.assert_allclose(np.sin(right), np.sin(sign * left[partner]), atol=0.03)
    assert np.abs(moved[-1][0] - default).max() > 0.02
