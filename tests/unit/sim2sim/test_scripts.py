"""Scripts of faults, the operator's joystick, and the verdict over two evaluations."""

import math
import os
import types

import pytest
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.cli.sim2sim import _show_session
from robot_rl.errors import UserError
from robot_rl.sim2sim.commands import EVENT, ActionReader, Joystick, make_commands
from robot_rl.sim2sim.faults import KINDS, OF_IMU, Fault, Journal, check_faults, dump_faults, load_faults, read_faults
from robot_rl.sim2sim.figures import command_figures
from robot_rl.sim2sim.link import Note
from robot_rl.sim2sim.parity import compare


def test_a_script_is_read():
    found = read_faults("delay=0.03@2-4, nan@5; velocity=-40:3@6-7")
    assert found == (
        Fault(kind="delay", value=0.03, start_s=2, end_s=4),
        Fault(kind="nan", start_s=5),
        Fault(kind="velocity", value=-40, joint=3, start_s=6, end_s=7),
    )
    assert read_faults("") == ()
    assert read_faults("temperature")[0] == Fault(kind="temperature", value=120.0)


def test_what_was_written_is_read(tmp_path):
    faults = read_faults(",".join(KINDS))
    assert load_faults(dump_faults(faults)) == faults
    path = tmp_path / "faults.json"
    path.write_text('[{"kind": "drop", "value": 0.5, "start_s": 1}]')
    assert read_faults(str(path)) == (Fault(kind="drop", value=0.5, start_s=1.0),)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("delai@2", "there is no 'delai'; did you mean 'delay'"),
        ("drop=1.5", "drop=1.5 must be in"),
        ("drop=x", "'drop=x': value=x: must be a number"),
        ("nan=3@2", "nan takes no value"),
        ("nan@5-4", "must begin at 0 or later and end after it"),
        ("nan@@5", "is invalid; write kind=value:joint@start-end"),
        ("nan:99", "joint=99: must be in [0, 63]"),
        ("nowhere.json", "cannot be read"),
        (",", "',' is invalid; write kind=value:joint@start-end"),
    ],
)
def test_a_bad_script_is_one_line(text, line):
    with pytest.raises(UserError) as error:
        read_faults(text)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text", ["{}", "[1]", '[{"kind": 3}]', '[{"value": 1}]', '[{"kind": "nan", "joint": "x"}]', "[", '[{"kin": "nan"}]']
)
def test_bad_json_is_one_line(text):
    with pytest.raises(UserError, match="faults"):
        load_faults(text)


def test_an_injected_fault_is_reported_in_words(capsys):
    rows = [{"kind": "drop", "happened": True, "fault": "state_age", "damping_after_ms": 19.58}]
    rows += [{"kind": "nan", "happened": False, "fault": "", "damping_after_ms": None}]
    result: dict = dict.fromkeys(("policy_s", "falls", "stayed_damped", "states"), 0)
    result |= {"lin_vel_error": None, "yaw_vel_error": None, "faults": [], "binary": {}, "proxy": rows}
    _show_session("a", result | {"commands": {"received": 1, "lost": 0}}, can_fall=False)
    *_, first, second = capsys.readouterr().out.splitlines()
    assert first == "  injected drop: damped by state_age after 19.6 ms"
    assert second == "  injected nan: it did not happen"


def test_the_end_of_a_session_is_no_answer_to_a_fault():
    for kind, fault, wanted in (("drop", "operator_stop", ""), ("operator_stop", "operator_stop", "operator_stop")):
        journal = Journal(kind)
        journal.begin(1_000_000)
        journal.add_command(types.SimpleNamespace(send_time_ns=3_000_000), "DAMPING", fault)
        assert journal.row()["fault"] == wanted
        assert journal.row()["damping_after_ms"] == (2.0 if wanted else None)


@pytest.mark.parametrize("kind", OF_IMU)
def test_a_fault_of_an_imu_is_for_a_policy_that_reads_one(kind):
    faults = read_faults(f"{kind}@2")
    check_faults(faults, "udp:", 2, ["joint_pos", "imu_gyro"])
    with pytest.raises(UserError, match=f"faults: {kind}: the policy reads no IMU"):
        check_faults(faults, "udp:", 2, ["joint_pos", "command"])


def Env(draws="velocity", names=("vx", "vy", "yaw"), lower=(-1.0, -0.6, -1.0), upper=(1.5, 0.6, 1.0)):
    """As much of an environment as a command needs."""
    parts = {n: {"unit": "1", "lower": lo, "upper": hi} for n, lo, hi in zip(names, lower, upper, strict=True)}
    described = {"components": parts, "frame": "base", "draws": draws}
    cfg = types.SimpleNamespace(name="walker" if draws == "velocity" else "arm")
    return types.SimpleNamespace(cfg=cfg, describe_command=lambda: described if names else None)


def test_a_joystick_moves_turns_and_asks(tmp_path):
    path = tmp_path / "js0"
    os.mkfifo(path)
    keep = os.open(path, os.O_RDWR)
    stick = make_commands(str(path), Env(), 1.0)
    assert isinstance(stick, Joystick)
    assert stick.command(0.0).tolist() == [0, 0, 0]
    events = [(1, -32767, 2, 1), (1, 32767, 2, 0), (1, 1000, 2, 3), (2, 1, 1, 0)]
    data = b"".join(EVENT.pack(*event) for event in events)
    os.write(keep, data[:13])  # in the middle of an event
    stick.command(0.0)
    os.write(keep, data[13:])
    assert stick.command(0.0).tolist() == pytest.approx([1.5, -0.6, 0.0])
    assert stick.take_request() == "stand"
    assert stick.take_request() == ""
    os.write(keep, EVENT.pack(3, 1, 1, 1) + EVENT.pack(4, 1, 1, 2))
    assert stick.take_request() == "damp"  # whatever was requested after it
    os.write(keep, EVENT.pack(5, -32767, 2, 1))
    assert stick.command(0.0)[0] == pytest.approx(1.5)
    os.close(keep)  # its source has ended
    assert stick.command(0.0).tolist() == [0, 0, 0]
    assert stick.take_request() == "damp"
    stick.close()


@pytest.mark.parametrize("text", ["1,2", "a,b,c", "nan,0,0", "nothing"])
def test_a_command_that_is_none_is_refused(text):
    with pytest.raises(UserError, match="must be task, script, a joystick"):
        make_commands(text, Env(), 1.0)


def test_what_a_binary_commands_is_read_back_by_the_kind_of_each_target():
    rows = [("wheel", "velocity", 5.0, 0.0), ("hip", "position", 0.5, 0.1), ("tail", "effort", 2.0, 0.0)]
    fields = ("joint", "kind", "scale", "offset")
    actions = [types.SimpleNamespace(**dict(zip(fields, row, strict=True)), command="") for row in rows]
    reader = ActionReader(types.SimpleNamespace(actions=actions, command=[]), ["hip", "tail", "wheel"])
    q, dq, tau = [0.6, 9.0, 9.0], [9.0, 9.0, -10.0], [9.0, 3.0, 9.0]
    assert reader.read(q, dq, tau, None).tolist() == pytest.approx([-2.0, 1.0, 1.5])


def test_a_demonstration_stays_within_the_ranges():
    script = make_commands("script", Env(), 10.0)
    assert script.command(0.0).tolist() == pytest.approx([1.125, 0, 0])
    assert script.command(9.9).tolist() == [0, 0, 0]
    assert make_commands("0.5,0,-0.1", Env(), 1.0).command(3.0).tolist() == pytest.approx([0.5, 0, -0.1])


REACH = {"draws": "position", "names": ("x", "y", "z"), "lower": (0.2, -0.3, 0.1), "upper": (0.5, 0.3, 0.5)}
POSE = {
    "draws": "pose",
    "names": ("x", "y", "z", "qw", "qx", "qy", "qz"),
    "lower": (0.2, -0.3, 0.1, -1, -1, -1, -1),
    "upper": (0.5, 0.3, 0.5, 1, 1, 1, 1),
}


def test_a_target_is_given_by_its_own_numbers():
    assert make_commands("0.4,0.1,0.3", Env(**REACH), 1.0).command(0.0).tolist() == pytest.approx([0.4, 0.1, 0.3])
    turned = make_commands("0.4,0.1,0.3,-0.6,0.8,0,0", Env(**POSE), 1.0).command(2.0).tolist()
    assert turned == pytest.approx([0.4, 0.1, 0.3, 0.6, -0.8, 0, 0])
    height = {"draws": "", "names": ("height",), "lower": (0.2,), "upper": (0.4,)}
    assert make_commands("0.25", Env(**height), 1.0).command(2.0).tolist() == pytest.approx([0.25])
    assert make_commands("task", Env(**REACH), 1.0).command(0.0) is None


@pytest.mark.parametrize(
    ("env", "text", "line"),
    [
        (REACH, "script", "command=script: the task arm has no velocity command; leave it out"),
        (REACH, "/dev/input/js0", "command=/dev/input/js0: the task arm has no velocity command"),
        (REACH, "0.4,0.1", "command=0.4,0.1: must be task, or x,y,z"),
        (REACH, "0.5,0,0", r"command=0.5,0,0: z=0 must be in \[0.1, 0.5\]"),
        (POSE, "0.4,0,0.3", "must be task, or x,y,z,qw,qx,qy,qz"),
        (POSE, "0.4,0,0.3,1,1,0,0", "qw,qx,qy,qz must be a quaternion of length 1"),
        ({"draws": "", "names": (), "lower": (), "upper": ()}, "1,2,3", "the task arm has no command; leave it out"),
        ({"draws": "", "names": (), "lower": (), "upper": ()}, "script", "has no velocity command; leave it out"),
    ],
)
def test_what_is_no_command_of_a_task_is_one_line(env, text, line):
    with pytest.raises(UserError, match=line) as error:
        make_commands(text, Env(**env), 1.0)
    assert "\n" not in str(error.value)


def test_the_verdict_is_about_survival_and_the_task_s_own_metrics():
    own = {"over": "mean", "better": "smaller"}
    metrics = {
        "lin_vel_error": own,
        "yaw_vel_error": own,
        "terrain_level": own | {"better": ""},
        "power": {"better": ""},
    }
    trainer = {
        name: {"mean": value} for name, value in (("failure_rate", 0.0), ("lin_vel_error", 0.1), ("yaw_vel_error", 0.2))
    }
    mine = {"failure_rate": [0.0] * 50, "lin_vel_error": [0.104] * 50, "yaw_vel_error": [0.2] * 49 + [math.nan]}
    verdict = compare(mine, trainer, metrics)
    assert verdict["holds"]
    assert verdict["lin_vel_error"]["difference"] == pytest.approx(0.04)
    mine["failure_rate"] = [0.0] * 48 + [1.0] * 2
    assert not compare(mine, trainer, metrics)["survival"]["holds"]
    mine["failure_rate"] = [0.0] * 49 + [1.0]
    assert compare(mine, trainer, metrics)["survival"]["holds"]
    mine["lin_vel_error"] = [0.106] * 50
    assert not compare(mine, trainer, metrics)["holds"]
    assert set(verdict) == {"survival", "lin_vel_error", "yaw_vel_error", "holds"}
    with pytest.raises(UserError, match="all episodes were quarantined"):
        compare({}, trainer, metrics)


def test_a_command_that_names_a_state_again_is_no_second_answer():
    def note(sequence, state, answer, from_policy=True):
        return Note(
            sequence=sequence,
            commander=1,
            state_sequence=state,
            state_age_ns=0,
            answer_ns=answer,
            send_time_ns=0,
            phase="DAMPING",
            fault="not_finite",
            from_policy=from_policy,
        )

    figures = command_figures([note(1, 1, 2000), note(2, 1, 9000, False), note(4, 1, 5_000_000), note(5, 7, 4000)])
    assert (figures["received"], figures["lost"], figures["from_policy"]) == (4, 1, 2)
    assert figures["state_to_command_us"]["p50"] == 3.0


@pytest.mark.long
def test_a_played_motion_is_what_the_environment_compares_the_robot_with():
    env = make_env(get_task("g1_track"), num_envs=1, engine="mujoco", num_threads=1)
    player = make_commands("wave", env, 1.0)
    env.reset()
    env.state.step_count.fill_(7)
    command = player.command(20 * env.step_dt)
    assert env.scene.reference_motions.names[int(env.state.motion_id[0])] == "wave"
    assert int(env.state.motion_start[0]) + 7 == 20
    assert command is not None
    assert command.tolist() == pytest.approx(env.scene.reference_motions.commands("wave")[20].tolist(), abs=1e-6)
    env.close()
