"""The binaries of a team in lockstep with one simulated world against the trainer's evaluation of the same worlds."""

import contextlib
import socket
from pathlib import Path

import numpy as np
import pytest
import robot_rl_tasks
import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.cli.main import main
from robot_rl.evaluation import EVALUATION_SEED, evaluate, evaluation_task
from robot_rl.evaluation.policies import ExportedPolicy
from robot_rl.sim2sim.link import LOOPBACK, free_ports
from robot_rl.sim2sim.message_relay import delay_messages
from robot_rl.sim2sim.parity import BinaryController, ParityCfg, Responder, evaluate_binaries, start_responders
from robot_rl.sim2sim.plant import Plant
from robot_rl.sim2sim.session import Session, SessionCfg
from tests.deploy.sim2sim.conftest import LENIENT, NO_REALTIME
from tests.deploy.sim2sim.test_messages import NAMES, make_task

POLICY = Path(robot_rl_tasks.__file__).parent / "go2_pair_carry" / "policy"
PAIR = dict.fromkeys(("front", "rear"), POLICY)
WORLDS, SECONDS = 2, 3.0


def trainers(task, bundle, seconds):
    """Return the trainer's figures of the same worlds, with messages a control period old."""
    env = make_env(task, num_envs=WORLDS, engine="mujoco", num_threads=1, seed=EVALUATION_SEED)
    with contextlib.closing(env):
        delay_messages(env)
        return evaluate(env, ExportedPolicy(bundle, env), seconds=seconds)


@pytest.fixture
def carriers():
    return evaluation_task(get_task("go2_pair_carry"))


@pytest.fixture
def arms(tmp_path, toy_actor):
    """The task of two arms that send each other their joints, and a bundle for both."""
    from robot_rl_deploy.export import export_policy
    from robot_rl_deploy.parts import TrainingSpec

    task = make_task(tmp_path / "arm3.xml", effort=200.0)  # Only the binary limits the efforts that it asks for.
    task.observations["actor"].noise = True  # Without it nothing is late in the trainer's worlds.
    training = TrainingSpec(run_id="a", task="two_arms", git_commit="unknown", iteration=1)
    with contextlib.closing(make_env(task, num_envs=1, engine="mujoco", num_threads=1)) as env:
        size = env.get_observations()["actor"].shape[1]
        export_policy(env, type(toy_actor)(size, 3), tmp_path / "bundle", run=training, steps=200)
    return evaluation_task(task), tmp_path / "bundle"


@pytest.mark.parametrize("transport", ["udp", "shm"])
def test_at_the_trainers_step_the_figures_are_the_trainers(carriers, transport, tmp_path):
    cfg = ParityCfg(episodes=WORLDS, seconds=SECONDS, seed=EVALUATION_SEED, tick_s=0.0, transport=transport)
    result = evaluate_binaries(carriers, PAIR, cfg, tmp_path)
    assert result["faults"] == [[], []]
    wanted = trainers(carriers, POLICY, SECONDS)
    for name in ("failure_rate", "place_error", "torque_rms", "action_rate"):
        assert np.mean(result["episodes"][name]) == pytest.approx(wanted[name]["mean"], rel=0.02, abs=1e-9), name
    assert set(result["binaries"]) == set(PAIR)


def test_messages_arrive_before_the_next_state(arms, tmp_path):
    task, bundle = arms
    cfg = ParityCfg(episodes=WORLDS, seconds=2.0, seed=EVALUATION_SEED, tick_s=0.0)
    result = evaluate_binaries(task, dict.fromkeys(NAMES, bundle), cfg, tmp_path)
    wanted = trainers(task, bundle, 2.0)
    for name in ("return", "torque_rms", "action_rate"):
        assert np.mean(result["episodes"][name]) == pytest.approx(wanted[name]["mean"], rel=1e-4), name
    for report in result["binaries"].values():
        assert report["team_link"]["received"] >= report["team_link"]["sent"] - 1  # The last one is read by nobody.
        assert report["team_link"]["sent"] >= WORLDS * 100


def test_the_binary_of_a_robot_that_drops_out_waits_and_the_other_goes_on(carriers, tmp_path):
    cfg = ParityCfg(seed=EVALUATION_SEED, tick_s=0.0)
    with contextlib.ExitStack() as stack:
        plant = stack.enter_context(contextlib.closing(Plant(carriers, seed=1, tick_s=0.0)))
        members, messages = start_responders(plant, PAIR, cfg, tmp_path, stack)
        controller = BinaryController(plant, members, messages)
        obs = plant.env.reset()
        controller.reset(torch.ones(2, dtype=torch.bool))
        sent = {}
        for step in range(20):
            if step == 10:
                plant.env.drop("rear")
            action = controller(obs)
            assert bool(action[0].any())
            assert bool(action[1].any()) == (step < 10)
            obs, _, done, extras = plant.env.step(action)
            controller.reset(done.bool() | ~extras["acted"])
            sent[step] = [member.link.low.sequence for member in members.values()]
        assert controller.faults == []
        assert sent[19][0] > sent[10][0]
        assert sent[19][1] == sent[10][1]
        assert plant.bodies["rear"].command.kp.max() == 0 < plant.bodies["rear"].command.kd.min()


def test_a_robot_sends_once_a_control_period_of_its_clock_wherever_that_jumps(arms, tmp_path):
    task, bundle = arms
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        port = free_ports(1)[0]
        own.bind((LOOPBACK, port))
        own.settimeout(5.0)
        plant = stack.enter_context(contextlib.closing(Plant(task, seed=1, tick_s=0.0)))
        words = ["--team-name", "left", "--team-send", f"udp:{LOOPBACK}:{port}"]
        body = plant.bodies["left"]
        member = Responder(body, bundle, ParityCfg(), tmp_path, stack, arguments=words)
        member.steps.connect(body)
        assert own.recv(10_000)
        body.sense(member.link.low)
        times = [(7.0, True), (7.004, False), (7.02, True), (7.0399999, True), (7.05, False), (7.06, True), (1.0, True)]
        for at, sends in [*times, (1.01, False), (1.02, True)]:
            member.link.send(at)
            member.steps.wait(5)
            own.settimeout(5.0 if sends else 0.05)
            with contextlib.nullcontext() if sends else pytest.raises(TimeoutError):
                own.recv(10_000)


@pytest.mark.long
def test_a_team_from_the_command_line(capsys, tmp_path):
    words = ["episodes=1", "seconds=2", "tick=0", f"out={tmp_path / 'parity.json'}"]
    assert main(["sim2sim", "policy=go2_pair_carry", *words]) == 0
    shown = capsys.readouterr().out
    assert "world 0: " in shown
    assert "the binary against the trainer (onnx)" in shown
    assert "the safety layer stopped it in 0 of 1 episodes" in shown
    assert (tmp_path / "parity.json").is_file()


@pytest.mark.long
def test_the_viewer_draws_a_team_and_its_buttons_kill(tmp_path):
    from robot_rl.sim2sim.view import View

    cfg = SessionCfg(seconds=0.0, seed=5, settings=LENIENT, arguments=NO_REALTIME)
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(contextlib.closing(Session(get_task("go2_pair_carry"), PAIR, cfg, tmp_path)))
        view = stack.enter_context(contextlib.closing(View(session, LOOPBACK, 0, drives=True)))
        session.run(lambda: session.policy_s > 0.3)
        view._condemned.append("rear")
        session.run(lambda: session.policy_s > 1.5)
        assert "<td>rear</td><td>killed</td>" in view.table
        assert "<td>front</td><td>POLICY</td><td>none</td>" in view.table
        assert session.report()["robots"]["rear"]["killed"]
