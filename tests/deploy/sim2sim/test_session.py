"""Sessions in real time: what they report, over each transport, and the commands that start them."""

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robot_rl.cli.main import main
from robot_rl.errors import UserError
from robot_rl.sim2sim.link import LOOPBACK, free_ports
from robot_rl.sim2sim.plant import LONE


@pytest.mark.parametrize("transport", ["udp", "shm", "dds"])
def test_a_robot_stands_up_and_walks(session, rt, transport):
    if transport == "dds" and not rt.has_dds():
        pytest.skip("this build speaks no DDS")
    made, report = session(seconds=1.5, transport=transport)
    assert report["faults"] == []
    assert [row["phase"] for row in report["phases"]][-2:] == ["STAND", "POLICY"]
    assert report["policy_s"] >= 1.5
    assert report["falls"] == 0
    assert report["lin_vel_error"] < 0.4
    assert report["commands"]["received"] > 100
    assert report["binary"]["fault"] in ("none", "operator_stop")
    assert made.robot.binary.process.returncode == 0


def test_an_arm_gets_a_target_through_the_binary(arm_session):
    """A pose of seven numbers: held by hand, sent as it is, and without an error of a velocity."""
    made, report = arm_session("pose", "0.4,0.1,0.3,0.6,0,-0.8,0")
    assert (report["faults"], report["falls"]) == ([], 0)
    assert report["policy_s"] >= 0.5
    assert (report["lin_vel_error"], report["yaw_vel_error"]) == (None, None)
    assert list(report["metrics"]) == list(made.plant.env.describe_metrics())
    assert made.plant.env.state.command[0].tolist() == pytest.approx([0.4, 0.1, 0.3, 0.6, 0, -0.8, 0])
    assert made.robot.binary.process.returncode == 0


def test_an_arm_is_not_driven_by_a_script(arm_session):
    with pytest.raises(UserError, match="command=script: the task reach has no velocity command; leave it out"):
        arm_session("moving", "script")


def test_joints_in_another_order_are_found_by_name(session, monkeypatch):
    """The robot reports and obeys its joints from last to first; contract and policy know nothing of it."""
    from robot_rl.sim2sim.plant import Body

    names, sense, obey = Body.joint_names, Body.sense, Body.obey
    arrays = ("joint_pos", "joint_vel", "joint_effort", "temperature_c")

    def reversed_sense(self, low, *measured):
        sense(self, low, *measured)
        for name in arrays:
            setattr(low, name, getattr(low, name)[: low.joints][::-1].copy())

    def reversed_obey(self):
        newest = self.command
        if newest is not None:
            self.command = newest.copy()
            for name in ("q", "dq", "kp", "kd", "tau"):
                setattr(self.command, name, getattr(newest, name)[: newest.joints][::-1].copy())
        obey(self)
        self.command = newest

    monkeypatch.setattr(Body, "joint_names", property(lambda self: names.fget(self)[::-1]))
    monkeypatch.setattr(Body, "sense", reversed_sense)
    monkeypatch.setattr(Body, "obey", reversed_obey)
    _, report = session(seconds=1.5)
    assert (report["faults"], report["falls"]) == ([], 0)
    assert report["lin_vel_error"] < 0.4


def test_a_bundle_of_another_robot_is_refused(session, cartpole_bundle, go2_task, tmp_path):
    from robot_rl.sim2sim.session import Session, SessionCfg

    made = Session(go2_task, {LONE: cartpole_bundle}, SessionCfg(seconds=1.0), tmp_path)
    with contextlib.closing(made), pytest.raises(UserError, match="the policy is for 'cartpole'"):
        made.run()


def test_the_command_line_runs_a_session(tmp_path, capsys):
    out = tmp_path / "session.json"
    settings = (
        "settings=stand_s:0.2,blend_s:0.1,limits.state_age_s:1,limits.state_frozen_s:1,limits.missed_deadlines:100"
    )
    code = main(["sim2sim", "policy=go2_flat", "seconds=0.5", "command=0.3,0,0", settings, f"out={out}"])
    assert code == 0
    assert json.loads(out.read_text())["policy_s"] >= 0.5
    assert "the policy ran for 0.5" in (shown := capsys.readouterr().out)
    assert " falls" in shown


def test_of_an_arm_no_falls_are_reported(capsys):
    assert main(["sim2sim", "policy=panda_reach", "seconds=0.5"]) == 0
    shown = capsys.readouterr().out
    assert "the policy ran for" in shown
    assert "falls" not in shown


def test_an_evaluation_says_how_often_the_safety_layer_stopped_it_and_why(capsys):
    words = ["episodes=1", "seconds=1", "settings=limits.velocity_factor:0.1"]
    assert main(["sim2sim", "policy=go2_flat", *words]) == 1
    shown = capsys.readouterr().out
    assert "the safety layer stopped it in 1 of 1 episodes" in shown
    assert "joint_velocity: '" in shown
    assert "operator_stop" not in shown


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["transport=tcp"], "transport=tcp: must be udp, shm or dds"),
        (["faults=relabel", "transport=shm"], "faults: relabel works over udp only; write transport=udp"),
        (["all_states=true"], "all_states=True: is only for episodes"),
        (["episodes=2", "viewer=true"], "viewer=true: is only for a session; omit episodes"),
        (["episodes=-1"], "episodes=-1: must be in [0, 1048576]"),
        (["seconds=-1"], "seconds=-1.0: must be in"),
        (["settings=stand_s"], "'stand_s' must be name:number"),
        (["settings=stand:1"], "setting 'stand' is unknown"),
        (["tick=1"], "tick=1.0: must be in"),
        (["command=up"], "command=up: must be task, script, a joystick"),
        (["faults=nun"], "there is no 'nun'"),
        (["faults=nan:64"], "joint=64: must be in [0, 63]"),
        (["faults=nan:12"], "nan:12: the robot's joints are 0 to 11"),
    ],
)
def test_bad_input_is_one_line(words, line, capsys):
    assert main(["sim2sim", "policy=go2_flat", *words]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("kind", ["UserError", "ContractError"])
def test_what_the_runtime_refuses_is_one_line(rt, kind, monkeypatch, capsys):
    from robot_rl.cli import main as module

    def fail(*_):
        raise getattr(rt, kind)("robot: 'spot' has no table of motors here")

    monkeypatch.setattr(module, "dispatch", fail)
    assert main(["sim2sim"]) == 2
    assert capsys.readouterr().err == "robot-rl: robot: 'spot' has no table of motors here\n"


def test_the_viewer_draws_and_its_buttons_ask(session, go2_task, go2_bundle, tmp_path):
    from robot_rl.sim2sim.session import Session, SessionCfg
    from robot_rl.sim2sim.view import View

    settings = {"stand_s": 0.1, "limits.state_age_s": 2.0, "limits.state_frozen_s": 2.0}
    settings["limits.missed_deadlines"] = 500.0
    made = Session(go2_task, {LONE: go2_bundle}, SessionCfg(seconds=20.0, settings=settings), tmp_path)
    with contextlib.closing(made), contextlib.closing(View(made, "127.0.0.1", 0, drives=True)) as view:
        made.run(lambda: made.policy_s > 0.3)
        view._press("Damp")
        made.run(lambda: made.robot.phase == "DAMPING")
        assert made.robot.link.fault == "operator_stop"
        assert "<td>Phase</td>" in view.table
        view._press("Stand")
        made.run(lambda: made.robot.phase == "STAND")


PARENT = """
import sys, time
from pathlib import Path
from robot_rl.sim2sim.binary import Binary
made = Binary(Path(sys.argv[1]), Path(sys.argv[2]), transport=sys.argv[3], arguments=["--connect-timeout", "300"])
print(made.process.pid, flush=True)
time.sleep(300)
"""


def test_the_binary_of_a_session_that_is_killed_ends_too(go2_bundle, tmp_path):
    address = f"udp:{LOOPBACK}:{free_ports(1)[0]}"
    words = [sys.executable, "-c", PARENT, str(go2_bundle), str(tmp_path), address]
    parent = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    stat = Path(f"/proc/{int(parent.stdout.readline())}/stat")
    end = time.monotonic() + 60
    while "backend" not in (tmp_path / "stderr.txt").read_text() and time.monotonic() < end:
        time.sleep(0.02)
    parent.kill()
    parent.communicate()
    while time.monotonic() < end and stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z":
        time.sleep(0.02)
    assert time.monotonic() < end
    assert "stopped by SIGTERM" in (tmp_path / "stderr.txt").read_text()
