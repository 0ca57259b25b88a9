"""Every term about reference motions against NumPy: a Go2 on strings with a motion that loops and one that ends.

The motions are drawn at random, smooth enough for their velocities; bodies, feet and velocities of the reference are
checked in tests/unit/motions.
"""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_envs.mdp import motions, observations
from robot_rl_envs.motions import Motion, rotation
from robot_rl_envs.task import (
    Actions,
    Command,
    Curriculum,
    Event,
    Metric,
    Observation,
    ObservationGroup,
    Reward,
    Termination,
)

N, SEED, FRAMES = 40, 5, 101
TRACKED = ("FL_calf", "FR_calf", "base_link")
REWARDS = {
    "track_joints": {"std": 0.8},
    "track_joint_vel": {"std": 4.0},
    "track_base_height": {"std": 0.2},
    "track_base_tilt": {"std": 1.5},
    "track_base_vel": {"std": 2.0},
    "track_base_turn": {"std": 2.0},
    "track_body_pos": {"std": 0.5},
    "track_body_quat": {"std": 2.0},
    "track_body_lin_vel": {"std": 2.0},
    "track_body_ang_vel": {"std": 6.0},
    "track_contact": {},
}
TERMINATIONS = {
    "motion_ended": {},
    "base_height_off": {"limit": 0.15},
    "base_tilt_off": {"limit_rad": 0.5},
    "body_height_off": {"limit": 0.2},
}


def make_motion(name, seed, loops):
    """A smooth motion of the Go2 over 2 s, at the control rate."""
    robot, rng = get_robot("unitree_go2"), np.random.default_rng(seed)
    t = np.arange(FRAMES) / 50.0
    turns = 1.0 if loops else 0.7
    waves = np.sin(np.pi * turns * t[:, None] + rng.uniform(0, 6, size=12))
    tilt = 0.3 * np.sin(np.pi * turns * t[:, None] + rng.uniform(0, 6, size=3))
    base = np.stack([0.2 * t, 0.1 * t**2, 0.3 + 0.03 * np.sin(np.pi * turns * t)], axis=1)
    return Motion(
        name=name,
        rate_hz=50.0,
        joint_names=tuple(robot.joint_names),
        joint_pos=np.array(robot.default_pos()) + 0.3 * waves,
        base_pos=base,
        base_quat_wxyz=rotation.from_rotvec(tilt),
        robot="unitree_go2",
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("motions")
    for name, seed, loops in (("round", 1, True), ("once", 2, False)):
        make_motion(name, seed, loops).save(folder / f"{name}.npz")
    return {name: str(folder / f"{name}.npz") for name in ("round", "once")}


@pytest.fixture(scope="module")
def doll(puppet, go2_task_once, files):
    start = Event(motions.reset_to_motion, position=0.0, velocity=0.0, uniform=0.2, spread=0.5, only=-1, phase=-1)
    privileged = {name: Observation(getattr(motions, name)) for name in ("body_errors", "reference_contact")}
    task = go2_task_once(
        name="follow",
        motions=files,
        tracked=TRACKED,
        actions=Actions(around="command"),
        observations={
            "actor": ObservationGroup(terms={"frame": Observation(observations.command)}),
            "critic": ObservationGroup(terms=privileged | {"phase": Observation(motions.motion_phase)}),
        },
        rewards={name: Reward(getattr(motions, name), weight=1.0, **params) for name, params in REWARDS.items()},
        terminations={name: Termination(getattr(motions, name), **params) for name, params in TERMINATIONS.items()},
        metrics={name: Metric(getattr(motions, name)) for name in ("joint_error", "body_error", "contact_agreement")},
        commands={"frame": Command(motions.reference_motion)},
        curricula={"failing": Curriculum(motions.failing_starts, memory_s=2.0)},
        events={"start": start},
    )
    return puppet(task, num_envs=N, seed=SEED)


@pytest.fixture(scope="module")
def seen(doll, go2_states):
    """A step into random states, at known frames; what it returned, and what the reference was."""
    doll.env.reset()
    state = go2_states(3, N)
    state["qpos"][:, 3:7] = rotation.normalize(np.random.default_rng(1).normal(size=(N, 4)) * 0.3 + [2, 0, 0, 0])
    doll.put("motion_id", np.arange(N) % 2)
    doll.put("motion_start", np.arange(N) * 9)
    doll.put("step_count", 0)
    _, _, dones, extras = doll.step(**state)
    s = doll.snapshot()
    s.step_dt, s.final = doll.env.step_dt, extras["final_obs"]["critic"].numpy()
    return SimpleNamespace(s=s, state=state, dones=dones.numpy(), k=reference_rows(doll.env, np.arange(N) * 9 + 1))


def reference_rows(env, at):
    values, m = env.scene.reference_motions.values, np.arange(N) % 2
    period, loops = values["motion_frames"][m], values["motion_loops"][m]
    return values["motion_first"][m] + np.where(loops == 1, at % period, np.minimum(at, period - 1))


def errors(doll, seen):
    """Everything that rewards, metrics and terminations are functions of, in NumPy."""
    env, k = doll.env, seen.k
    r = {
        name.removeprefix("reference_"): value[k]
        for name, value in env.scene.reference_motions.values.items()
        if "refer" in name
    }
    qpos, qvel = (seen.state[name].astype(np.float64) for name in ("qpos", "qvel"))
    quat = rotation.normalize(qpos[:, 3:7])
    turn = rotation.multiply(quat, rotation.conjugate(r["base_quat_wxyz"]))
    twist = rotation.normalize(turn * [1, 0, 0, 1])[:, None]
    target = rotation.rotate(twist, r["body_pos_w"] - r["base_pos_w"][:, None])
    target[..., :2] += qpos[:, None, :2]
    target[..., 2] = r["body_pos_w"][..., 2]
    down = np.tile([0.0, 0.0, -1.0], (N, 1))
    pos, body_quat, lin, ang = kinematics(env, qpos, qvel)
    touching = np.linalg.norm(seen.state["sensordata"].reshape(N, 4, 4)[:, :, 1:], axis=2) > 1.0
    angle = np.linalg.norm(
        rotation.to_rotvec(
            rotation.multiply(rotation.multiply(twist, r["body_quat_wxyz"]), rotation.conjugate(body_quat))
        ),
        axis=-1,
    )
    return {
        "joints": ((qpos[:, 7:] - r["joint_pos"]) ** 2).mean(1),
        "joint_vel": ((qvel[:, 6:] - r["joint_vel"]) ** 2).mean(1),
        "height": qpos[:, 2] - r["base_pos_w"][:, 2],
        "gravity": rotation.rotate(rotation.conjugate(quat), down),
        "gravity_ref": rotation.rotate(rotation.conjugate(r["base_quat_wxyz"]), down),
        "vel": rotation.rotate(rotation.conjugate(quat), qvel[:, :3])
        - rotation.rotate(rotation.conjugate(r["base_quat_wxyz"]), r["base_lin_vel_w"]),
        "turn": qvel[:, 3:6] - r["base_ang_vel_b"],
        "offset": pos - target,
        "offset_b": rotation.rotate(rotation.conjugate(quat)[:, None], pos - target),
        "angle": angle,
        "lin": lin - rotation.rotate(twist, r["body_lin_vel_w"]),
        "ang": ang - rotation.rotate(twist, r["body_ang_vel_w"]),
        "body_z": pos[..., 2] - r["body_pos_w"][..., 2],
        "contact": 1.0 - np.abs(touching - r["foot_contact"]),
        "reference_contact": r["foot_contact"],
    }


def kinematics(env, qpos, qvel):
    """MuJoCo's own poses and velocities of the tracked bodies."""
    import mujoco

    model, rows = env.scene.model, []
    data = mujoco.MjData(model)
    for world in range(N):
        data.qpos[:], data.qvel[:] = qpos[world], qvel[world]
        mujoco.mj_forward(model, data)
        for name in TRACKED:
            k, velocity = model.body(name).id, np.zeros(6)
            mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, k, velocity, 0)
            rows.append((data.xpos[k].copy(), data.xquat[k].copy(), velocity[3:], velocity[:3]))
    return [np.array(part).reshape(N, len(TRACKED), -1) for part in zip(*rows, strict=True)]


def kernel(square, std):
    return np.exp(-square / std**2)


def mean_square(vectors):
    return (vectors**2).sum(-1).mean(-1)


WANTED = {
    "track_joints": lambda e, std: kernel(e["joints"], std),
    "track_joint_vel": lambda e, std: kernel(e["joint_vel"], std),
    "track_base_height": lambda e, std: kernel(e["height"] ** 2, std),
    "track_base_tilt": lambda e, std: kernel(((e["gravity"] - e["gravity_ref"]) ** 2).sum(-1), std),
    "track_base_vel": lambda e, std: kernel((e["vel"] ** 2).sum(-1), std),
    "track_base_turn": lambda e, std: kernel((e["turn"] ** 2).sum(-1), std),
    "track_body_pos": lambda e, std: kernel(mean_square(e["offset"]), std),
    "track_body_quat": lambda e, std: kernel((e["angle"] ** 2).mean(-1), std),
    "track_body_lin_vel": lambda e, std: kernel(mean_square(e["lin"]), std),
    "track_body_ang_vel": lambda e, std: kernel(mean_square(e["ang"]), std),
    "track_contact": lambda e: e["contact"].mean(-1),
}


def test_reward(reward_term, doll, seen):
    want = WANTED[reward_term](errors(doll, seen), **REWARDS[reward_term])
    k = list(doll.env.cfg.rewards).index(reward_term)
    fresh = seen.dones.astype(bool)
    got = doll_sums(doll, seen)[:, k]
    np.testing.assert_allclose(got[~fresh], want[~fresh], rtol=2e-3, atol=2e-5)
    assert (~fresh).sum() >= 3
    assert want.std() > 1e-3, "the worlds were to differ"


def doll_sums(doll, seen):
    return seen.s.reward_sums / doll.env.step_dt


def test_metric(metric_term, doll, seen):
    e = errors(doll, seen)
    want = {
        "joint_error": np.sqrt(e["joints"]),
        "body_error": np.linalg.norm(e["offset"], axis=-1).mean(-1),
        "contact_agreement": e["contact"].mean(-1),
    }[metric_term]
    k = list(doll.env.cfg.metrics).index(metric_term)
    np.testing.assert_allclose(seen.s.metric_values[:, k], want, rtol=1e-3, atol=1e-5)


def test_termination(termination_term, doll, seen):
    e = errors(doll, seen)
    tilt = np.arccos(np.clip((e["gravity"] * e["gravity_ref"]).sum(-1), -1, 1))
    last = (np.arange(N) % 2 == 1) & (np.arange(N) * 9 + 1 >= FRAMES - 1)
    want = {
        "motion_ended": last,
        "base_height_off": np.abs(e["height"]) > 0.15,
        "base_tilt_off": tilt > 0.5,
        "body_height_off": (np.abs(e["body_z"]) > 0.2).any(-1),
    }[termination_term]
    k = list(doll.env.cfg.terminations).index(termination_term)
    got = (seen.s.termination_bits.astype(int) >> k) & 1
    np.testing.assert_array_equal(got, want)
    assert termination_term == "motion_ended" or 0 < want.sum() < N


def test_observation(observation_term, doll, seen):
    e = errors(doll, seen)
    clips = doll.env.scene.reference_motions.values
    m = np.arange(N) % 2
    want = {
        "body_errors": (slice(0, 9), e["offset_b"].reshape(N, -1)),
        "reference_contact": (slice(9, 13), e["reference_contact"]),
        "motion_phase": (slice(13, 14), ((seen.k - clips["motion_first"][m]) / clips["motion_frames"][m])[:, None]),
    }[observation_term]
    np.testing.assert_allclose(seen.s.final[seen.dones][:, want[0]], want[1][seen.dones], rtol=1e-3, atol=2e-5)
    assert seen.dones.any()


def test_command(command_term, doll):
    """The frame is joints, their velocities, gravity, the base's rates in its own frame, and its height."""
    doll.env.reset()
    s, clips = doll.snapshot(), doll.env.scene.reference_motions.values
    k = clips["motion_first"][s.motion_id.astype(int)] + s.motion_start.astype(int)
    quat = clips["reference_base_quat_wxyz"][k]
    back = rotation.conjugate(quat)
    want = np.concatenate(
        [
            clips["reference_joint_pos"][k],
            clips["reference_joint_vel"][k],
            rotation.rotate(back, np.tile([0.0, 0.0, -1.0], (N, 1))),
            clips["reference_base_ang_vel_b"][k],
            rotation.rotate(back, clips["reference_base_lin_vel_w"][k]),
            clips["reference_base_pos_w"][k, 2:],
        ],
        axis=1,
    )
    assert command_term == "reference_motion"
    np.testing.assert_allclose(s.command, want, atol=1e-5)
    played = np.concatenate([doll.env.scene.reference_motions.commands(name) for name in ("round", "once")])
    np.testing.assert_allclose(played[k], want, atol=1e-9)
    names = list(doll.env.describe_command()["components"])
    assert names[:2] == ["FL_hip_joint", "FL_thigh_joint"]
    assert names[12] == "FL_hip_joint_vel"
    assert names[24:] == list(motions.BASE_COMPONENTS)


def test_event(event_term, doll):
    """A reset puts the robot into the reference's state, and the reference goes on from there, frame after frame."""
    assert event_term == "reset_to_motion"
    doll.env.reset()
    s, clips = doll.snapshot(), doll.env.scene.reference_motions.values
    m, start = s.motion_id.astype(int), s.motion_start.astype(int)
    k = clips["motion_first"][m] + start
    assert {*m} == {0, 1}
    assert len({*start}) > 3
    np.testing.assert_allclose(s.joint_pos, clips["reference_joint_pos"][k], atol=1e-5)
    np.testing.assert_allclose(s.joint_vel, clips["reference_joint_vel"][k], atol=1e-5)
    np.testing.assert_allclose(s.base_pos_w, clips["reference_base_pos_w"][k], atol=1e-5)
    np.testing.assert_allclose(s.base_quat_wxyz, clips["reference_base_quat_wxyz"][k], atol=1e-5)
    np.testing.assert_allclose(s.base_lin_vel_w, clips["reference_base_lin_vel_w"][k], atol=1e-5)
    np.testing.assert_allclose(s.site_pos_w[:, s.tracked_site.astype(int)], clips["reference_body_pos_w"][k], atol=1e-5)


def test_one_motion_from_a_phase_on(doll):
    for only in (0, 1):
        doll.env.set_param("events.start.only", only)
        doll.env.set_param("events.start.phase", 0.5)
        doll.env.reset()
        s = doll.snapshot()
        assert (s.motion_id == only).all()
        assert (s.motion_start == 50 - (only == 0)).all(), "half of 100 steps; of a loop the last frame is the first"
    doll.env.set_param("events.start.only", -1)
    doll.env.set_param("events.start.phase", -1)


def test_curriculum(curriculum_term, doll):
    """Failures of a bin and the seconds spent in it are counted, and forgotten with a time constant."""
    assert curriculum_term == "failing_starts"
    doll.env.reset()
    s0 = doll.snapshot()
    bins = np.stack([s0.bin_motion, s0.bin_first, s0.bin_frames], axis=1).astype(int)
    np.testing.assert_array_equal(bins, [[0, 0, 50], [0, 50, 50], [1, 0, 50], [1, 50, 50]])
    doll.put("bin_failed", [0.0, 0.0, 0.0, 4.0])
    doll.put("bin_seconds", [1.0, 2.0, 3.0, 4.0])
    doll.put("new_failed", [[1, 0, 0, 0]])
    doll.put("new_steps", [[10, 0, 0, 0]])
    doll.put("motion_id", 1)
    doll.put("motion_start", 60)
    far = np.tile([0.0, 0.0, 2.0, 1.0, 0.0, 0.0, 0.0, *get_robot("unitree_go2").default_pos()], (N, 1))
    doll.step(qpos=far, qvel=np.zeros((N, 18)))
    s, kept, dt = doll.snapshot(), np.exp(-doll.env.step_dt / 2.0), doll.env.step_dt
    failed = kept * np.array([0.0, 0.0, 0.0, 4.0]) + [1, 0, 0, 0]
    seconds = kept * np.array([1.0, 2.0, 3.0, 4.0]) + np.array([10 * dt, 0, 0, 0])
    np.testing.assert_allclose(s.bin_failed, failed, rtol=1e-5)
    np.testing.assert_allclose(s.bin_seconds, seconds, rtol=1e-5)
    # every world failed in the last bin of the second motion, in this step
    np.testing.assert_array_equal(s.new_failed, [[0, 0, 0, N]])
    np.testing.assert_array_equal(s.new_steps, [[0, 0, 0, N]])


def test_episodes_start_where_they_fail(doll):
    """A failure makes its bin and those before it likelier; a share of the draws is uniform over time."""
    failed, seconds = np.array([0.5, 1.5, 0.0, 7.5]), np.array([1.0, 0.0, 3.0, 1.0])
    doll.put("bin_failed", failed)
    doll.put("bin_seconds", seconds)
    rate = (failed + 0.5) / (seconds + 1.0)
    weight = np.array([rate[0] + 0.5 * rate[1], rate[1], rate[2] + 0.5 * rate[3], rate[3]])
    counts = np.zeros(4)
    for _ in range(100):
        doll.env.reset()
        s = doll.snapshot()
        counts += np.bincount((2 * s.motion_id + (s.motion_start >= 50)).astype(int), minlength=4)
    want = 0.8 * weight / weight.sum() + 0.2 / 4
    np.testing.assert_allclose(counts / counts.sum(), want, atol=0.04)


@pytest.mark.long
def test_threads_count_alike(go2_task, files):
    """Two chunks of worlds on one thread and on two: every world counts, and all have the same bits."""
    from robot_rl_envs.make import make_env

    kept = []
    for threads in (1, 2):
        task = go2_task(
            motions=files,
            terminations={"off": Termination(motions.base_height_off, limit=0.02)},
            curricula={"failing": Curriculum(motions.failing_starts, memory_s=2.0)},
            events={
                "start": Event(
                    motions.reset_to_motion, position=0.1, velocity=0.1, uniform=0.2, spread=0.5, only=-1, phase=-1
                )
            },
        )
        env = make_env(task, num_envs=300, engine="mujoco", num_threads=threads, seed=3)
        for _ in range(15):
            env.step(torch.zeros(300, 12))
            assert int(env.state.new_steps.sum()) == 300
        kept.append({name: value.clone() for name, value in env.state_dict().items()})
        env.close()
    assert kept[0]["state.bin_failed"].sum() > 20
    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])


def test_an_action_of_0_asks_for_the_reference(doll):
    doll.env.reset()
    command = doll.env.state.command.clone()
    doll.step(0.1 * torch.ones(N, 12))
    scale = torch.tensor([joint.action_scale for joint in get_robot("unitree_go2").joints])
    torch.testing.assert_close(doll.env.state.ctrl, command[:, :12] + 0.1 * scale)


def test_a_restored_motion_that_does_not_exist_is_refused(doll):
    kept = doll.env.state_dict()
    assert not any(name.startswith("state.reference") for name in kept), "the files are no part of a checkpoint"
    for name, value in (("motion_id", 2), ("motion_id", -1), ("motion_start", -1)):
        wrong = kept | {f"state.{name}": torch.full_like(kept[f"state.{name}"], value)}
        with pytest.raises(ValueError, match=f"environment state '{name}': {value}"):
            doll.env.load_state_dict(wrong)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"only": 2}, ["events.start.only=2", "0 to 1"]),
        ({"uniform": 1.5}, ["events.start.uniform=1.5", "[0, 1]"]),
        ({"phase": 1.0}, ["events.start.phase=1", "less than 1"]),
        ({"velocity": -1.0}, ["events.start.velocity=-1", "at least 0"]),
    ],
)
def test_a_wrong_start_is_refused(go2_task, puppet, files, change, parts):
    params = {"position": 0.0, "velocity": 0.0, "uniform": 0.2, "spread": 0.5, "only": -1, "phase": -1}
    event = Event(motions.reset_to_motion, **(params | change))
    with pytest.raises(ValueError, match=".*".join(map(re.escape, parts))):
        puppet(go2_task(motions=files, events={"start": event}))


def test_terms_of_motions_need_one(go2_task, puppet):
    with pytest.raises(ValueError, match=r"commands\.frame\.draws=motion: the task lacks a motion"):
        puppet(go2_task(commands={"frame": Command(motions.reference_motion)}))


def test_actions_around_a_command_need_the_joints_in_it(go2_task):
    with pytest.raises(ValueError, match=r"actions\.around='command': the command lacks a component 'FL_hip_joint'"):
        go2_task(actions=Actions(around="command"))
