"""Two arms whose binaries send each other their joints, with the latency and the losses of the contract."""

import contextlib
from pathlib import Path

import numpy as np
import pytest
import robot_rl_tasks
from robot_rl_assets.robot import Joint, Robot
from robot_rl_envs.agents import Agent, Message
from robot_rl_envs.mdp import events, observations, rewards, team
from robot_rl_envs.task import Event, Observation, ObservationGroup, Reward, Sim, Task

from robot_rl.sim2sim.session import Kill, Session, SessionCfg
from tests.deploy.sim2sim.conftest import LENIENT, NO_REALTIME

NAMES = ("left", "right")
LATENCY_S, MAX_AGE_S = 0.06, 0.2


def make_task(path, *, wider=False, effort=20.0):
    """Two arms that move at random around their default pose, and receive each other's joint positions.

    With `wider` they also send their velocities, in the same message.
    """
    from tests.unit.arm import ARM

    path.write_text(ARM.replace('<site name="mark" pos="0.5 0.5 0"/>', ""))
    gains = {"default_pos": 0.3, "effort_limit": effort, "velocity_limit": 10.0, "kp": 40.0, "kd": 2.0}
    joints = tuple(Joint(name=name, **gains) for name in ("pan", "shoulder", "elbow"))
    arm = Robot(name="arm3", model=path, joints=joints)
    sent = {"joints": Observation(observations.joint_pos_rel)}
    sent |= {"speeds": Observation(observations.joint_vel)} if wider else {}
    width = 3 * len(sent)
    terms = {
        "joint_pos": Observation(observations.joint_pos_rel),
        "joint_vel": Observation(observations.joint_vel, scale=0.1),
        "other": Observation(team.received, message="joints", sender=0, scale=0.5),
    }
    return Task(
        name="two_arms",
        robots={name: Agent(robot=arm, pos=(0.0, side, 0.0)) for name, side in zip(NAMES, (1.0, -1.0), strict=True)},
        sim=Sim(timestep=0.005, decimation=4, floor_height=-0.9),
        observations={"actor": ObservationGroup(terms=terms, noise=False)},
        rewards={"slow": Reward(rewards.joint_vel_size, weight=-1.0)},
        events={"joints": Event(events.reset_joints, position=0.3, velocity=0.0)},
        messages={
            "joints": Message(terms=sent, width=width, latency_s=(LATENCY_S, LATENCY_S), loss=0.2, max_age_s=MAX_AGE_S)
        },
        episode_length_s=10.0,
    )


@pytest.fixture
def arms(tmp_path, toy_actor):
    """run(**options): the report of a session, the states in the left one's log, and where the right one's joints were.

    The latter by tick: (n,) times and (n, 3) joints from their default.
    """
    from robot_rl_deploy.export import export_policy
    from robot_rl_deploy.parts import TrainingSpec
    from robot_rl_envs.make import make_env

    from tests.deploy.log_messages import messages

    task = make_task(tmp_path / "arm3.xml")
    training = TrainingSpec(run_id="a", task="two_arms", git_commit="unknown", iteration=1)

    def bundle(task, name):
        with contextlib.closing(make_env(task, num_envs=1, engine="mujoco", num_threads=1)) as env:
            size = env.get_observations()["actor"].shape[1]
            export_policy(env, type(toy_actor)(size, 3), tmp_path / name, run=training, steps=200)
        return tmp_path / name

    def run(*, wider=False, **options):
        cfg = SessionCfg(settings=LENIENT, arguments=NO_REALTIME, log=str(tmp_path / "log"), **options)
        bundles = dict.fromkeys(NAMES, bundle(task, "bundle"))
        if wider:
            bundles["right"] = bundle(make_task(tmp_path / "arm3.xml", wider=True), "wider")
        was = []
        with contextlib.closing(Session(task, bundles, cfg, tmp_path)) as session:
            right, settle = session.plant.bodies["right"], session.plant.bodies["right"].settle

            def note():
                settle()
                was.append((session.plant.time_s, right._data["qpos"][0, right._joint_qpos] - 0.3))

            right.settle = note
            session.run()
            report = session.report()
        left = states(messages(next((tmp_path / "log" / "left").glob("*.mcap"))))
        return report, left, (np.array([time for time, _ in was]), np.array([joints for _, joints in was]))

    return run


def states(found):
    """(n,) times by the simulation's clock [s], and (n, 4) what is received."""
    rows = [row for topic, row, _ in found if topic == "/state"]
    return np.array([row["robot_time_ns"] for row in rows]) / 1e9, np.array([row["measured"] for row in rows])


def test_each_receives_from_the_other_late_and_not_after_its_binary_was_killed(arms):
    report, (times, received), (ticks, joints) = arms(seconds=2.0, kills=(Kill("right", 1.0),))
    assert (report["robots"]["right"]["killed"], report["robots"]["left"]["killed"]) == (True, False)
    team_link = report["robots"]["left"]["binary"]["team_link"]
    assert team_link["sent"] > 100
    assert team_link["received"] > 50
    assert (team_link["damaged"], team_link["foreign"]) == (0, 0)
    carried = report["messages"]
    assert carried["lost"] == pytest.approx(0.2 * carried["sent"], rel=0.5)
    assert received.shape[1] == 4
    present = received[:, 3] == 1
    assert set(received[:, 3]) == {0.0, 1.0}
    assert present.sum() > 200
    # What is received is what the other measured, at least the latency before.
    for at, values in zip(times[present][::25], received[present, :3][::25], strict=True):
        same = ticks[(np.abs(joints - values) < 1e-5).all(axis=1)]
        assert (at - same > LATENCY_S - 0.01).any()
    last = times[present][-1]
    killed = report["robots"]["right"]["phases"][-1]["time_s"]
    assert last < killed + MAX_AGE_S + LATENCY_S + 0.2
    assert (received[times > last] == 0).all()
    assert times[-1] > last + 0.3


def test_a_message_wider_than_declared_is_not_used_and_named(arms, tmp_path):
    report, (_, received), _ = arms(seconds=0.5, wider=True)
    team_link = report["robots"]["left"]["binary"]["team_link"]
    assert (team_link["received"], received[:, 3].max()) == (0, 0.0)
    assert team_link["foreign"] > 10
    line = "warning: the messages of right have 6 values, this bundle declares 3; they are not used"
    assert (tmp_path / "left" / "stderr.txt").read_text().count(line) == 1


def test_words_about_messages_must_fit_the_bundle(infer, go2_bundle):
    ended = infer("--bundle", str(go2_bundle), "--team-listen", "udp:127.0.0.1:9999")
    assert ended.returncode == 2
    assert "the bundle has no messages between robots; remove them" in ended.stderr


@pytest.mark.parametrize("words", [(), ("--team-name", "north")])
def test_a_robot_that_the_team_does_not_have_is_named(infer, words):
    bundle = Path(robot_rl_tasks.__file__).parent / "panda_pair_lift" / "policy"
    ended = infer("--bundle", str(bundle), "--transport", "shm:nobody", "--connect-timeout", "0.1", *words)
    assert ended.returncode == 2
    name = words[-1] if words else ""
    assert f"--team-name={name}: must be one of the robots of the team: east, west" in ended.stderr
