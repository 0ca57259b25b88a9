"""A log played back gives every command again, bit for bit; one changed bit is found, and damage is said in a line."""

import math
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robot_rl.cli.main import main

STATE, POLICY, COMMAND = 1, 3, 4
CHUNK = 6  # operation of a record


@pytest.mark.parametrize("backend", ["mixture", "onnxruntime"])
def test_every_command_comes_again_bit_for_bit(rt, record, backend):
    result = rt.replay_log(record(backend=backend))
    assert result["difference"] == ""
    assert (result["events"], result["commands"], result["steps"], result["states"]) == (1351, 660, 60, 600)
    assert result["same_backend"] is (backend == "onnxruntime")
    if backend == "onnxruntime":
        assert result["action_difference"] == 0.0


def test_faults_and_missed_deadlines_are_played_back(rt, record):
    def hurt(recorder):
        now = 10**9 + 601 * 2_000_000
        for k in range(4):
            recorder.on_missed_deadline(now + k)
            recorder.command(now + k)
        recorder.on_fault(rt.Finding(rt.Fault.SECOND_COMMANDER), now + 10)
        assert recorder.command(now + 11).phase == rt.Phase.DAMPING

    result = rt.replay_log(record(after=hurt))
    assert result["difference"] == ""
    assert result["commands"] == 665


@pytest.mark.parametrize("time_ns", [2**62, -(2**63)])
def test_a_time_of_which_no_difference_can_be_taken_is_damage(rt, record, change, time_ns):
    path = record(ticks=20)
    change(path, lambda channel, message: message[:12] + struct.pack("<q", time_ns) + message[20:])
    with pytest.raises(rt.UserError, match="damaged: a message of /event .* cannot be read"):
        rt.replay_log(path)


@pytest.fixture(scope="module")
def measured_log(rt, drive, settings, tmp_path_factory, go2):
    """A log of a policy that reads 5 measured values; a NaN among them at last."""
    from robot_rl_deploy.synthetic import write_synthetic_bundle

    folder = tmp_path_factory.mktemp("measured")
    write_synthetic_bundle(folder / "policy", joints=[joint.name for joint in go2.contract.joints], measured=5)
    recorder = rt.Recorder(rt.read_bundle(folder / "policy"), settings, folder / "run.mcap", "mixture")
    recorder.start()
    now, state = drive(recorder, 400, measured=5), rt.LowState()
    state.joints, state.measured_count, state.measured = 12, 5, [0.0, 1.0, 2.0, float("nan"), 4.0]
    state.joint_pos = [joint.default_pos for joint in go2.contract.joints]
    recorder.on_state(state, 10**10)
    recorder.command(10**10)
    recorder.stop()
    assert now
    return recorder.path


def test_measured_values_are_logged_and_played_back(rt, measured_log, shared):
    result = rt.replay_log(measured_log)
    assert (result["difference"], result["states"]) == ("", 401)
    read = shared("deploy/log_messages.py").messages
    states = [message for _, message, _ in read(measured_log, ["/state"])]
    assert states[0]["measured"] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert math.isnan(states[-1]["measured"][3])
    sent = [message for _, message, _ in read(measured_log, ["/command"])]
    assert (sent[-2]["fault"], sent[-1]["fault"]) == (0, 1)


def test_the_log_of_a_policy_that_reads_none_is_as_before(record, shared):
    _, state, _ = shared("deploy/log_messages.py").messages(record(), ["/state"])[0]
    assert list(state)[-2:] == ["foot_force", "height_scan"]


def flipped(message, at):
    return message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]


def first_float(message, sizes):
    """Offset of a list's first number after this many bytes of numbers, aligned to 4."""
    return 4 + -(-sizes // 4) * 4 + 4


@pytest.mark.parametrize(
    ("channel", "at", "words"),
    [
        (COMMAND, first_float(b"", 8 * 8 + 3), "command 400: q of 'FL_hip_joint' is"),
        (COMMAND, 4 + 8 * 2, "command 401: sequence is 400, the log has 401"),
        (STATE, first_float(b"", 8 * 6 + 4 * 10), "policy step"),
        (POLICY, first_float(b"", 8 * 9 + 2), "action of 'FL_hip_joint' is"),
    ],
)
def test_one_bit_is_found_and_named(rt, record, change, channel, at, words):
    """Of the 400th command, or the state or step before it. A changed state shows in what was computed of it."""
    path, seen = record(backend="onnxruntime"), {"n": 0}
    chosen = {COMMAND: 400, STATE: 361, POLICY: 37}[channel]

    def edit(found, message):
        seen["n"] += found == channel
        return flipped(message, at) if found == channel and seen["n"] == chosen else message

    change(path, edit)
    difference = rt.replay_log(path)["difference"]
    assert words in difference
    assert difference.startswith("event ")


def test_another_backend_takes_the_logs_actions(rt, record, capfd):
    """The mixture is no library: the network's own actions differ, the commands do not."""
    path = record(backend="mixture")
    assert main(["replay", str(path)]) == 0
    out = capfd.readouterr().out
    assert "660 commands, 60 policy steps, every command reproduced bit for bit" in out
    result = rt.replay_log(path, "onnxruntime")
    assert result["difference"] == ""
    assert result["action_difference"] > 0


def test_a_lost_event_ends_the_replay(rt, record):
    result = rt.replay_log(record(before=lambda recorder: recorder.lose()))
    assert "1 events before it are missing" in result["difference"]


def test_a_log_that_was_cut_is_played_up_to_there(rt, record, tmp_path):
    data = record(ticks=3000).read_bytes()
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(data[: int(0.7 * len(data))])
    result = rt.replay_log(cut)
    assert result["cut"] is True
    assert result["difference"] == ""
    assert 0 < result["commands"] < 3300


def test_the_command_line_says_what_is_wrong(record, change, capfd, tmp_path):
    path = record()
    change(path, lambda channel, message: flipped(message, 40) if channel == COMMAND else message)
    assert main(["replay", str(path)]) == 3
    assert "robot-rl-infer: replay of" in capfd.readouterr().err
    (tmp_path / "noise.mcap").write_bytes(b"no log at all")
    for name, words in (("noise.mcap", "not an MCAP file"), ("none.mcap", "cannot be read")):
        assert main(["replay", str(tmp_path / name)]) == 2
        assert words in capfd.readouterr().err
    assert main(["replay"]) == 2
    assert "log: is missing" in capfd.readouterr().err


def test_a_damaged_chunk_is_named(rt, record):
    path = record()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))
    with pytest.raises(rt.UserError, match=r"checksum of the chunk at byte \d+ is wrong"):
        rt.replay_log(path)


def test_a_length_that_is_too_long_is_damage_where_the_log_came_to_its_end(rt, record):
    path = record()
    data = bytearray(path.read_bytes())
    at = 8
    while data[at] != CHUNK:
        at += 9 + int.from_bytes(data[at + 1 : at + 9], "little")
    data[at + 6] ^= 1  # of its length
    path.write_bytes(bytes(data))
    with pytest.raises(rt.UserError, match=rf"the record at byte {at} goes beyond the file's end"):
        rt.replay_log(path)


def test_a_log_without_a_command_proves_nothing(infer, record):
    path = record(ticks=0)
    ended = infer("--replay", path)
    assert ended.returncode == 2
    assert "holds no command" in ended.stderr


def what_is_said(rt, path):
    try:
        return rt.replay_log(path)["difference"]
    except (rt.UserError, rt.ContractError) as error:
        return str(error)


@pytest.fixture(scope="module")
def small_log(rt, go2, drive, tmp_path_factory):
    recorder = rt.Recorder(go2, rt.Settings(), tmp_path_factory.mktemp("small") / "small.mcap")
    recorder.start()
    drive(recorder, ticks=12)
    recorder.stop()
    return recorder.path


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_damage_does_more_than_an_error(rt, small_log, tmp_path, data):
    """Bytes changed, cut out or put in: an error of one line, or a replay that says what it found."""
    noise = bytearray(small_log.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        # mostly in heads and messages: the network is most of the file
        part = data.draw(st.sampled_from([(0, 2000), (len(noise) - 12_000, len(noise)), (0, len(noise))]))
        at = data.draw(st.integers(max(0, part[0]), max(1, part[1] - 1)))
        kind = data.draw(st.sampled_from(["flip", "cut", "put", "end"]))
        if kind == "flip":
            noise[at : at + 1] = bytes(byte ^ 1 << data.draw(st.integers(0, 7)) for byte in noise[at : at + 1])
        elif kind == "cut":
            del noise[at : at + data.draw(st.integers(1, 40))]
        elif kind == "put":
            noise[at:at] = data.draw(st.binary(min_size=1, max_size=16))
        else:
            del noise[max(at, 1) :]
    path = tmp_path / "noise.mcap"
    path.write_bytes(bytes(noise))
    assert "\n" not in what_is_said(rt, path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_message_does_more_than_an_error(rt, small_log, tmp_path, change, data):
    """The same behind checksums that are right."""
    path = tmp_path / "noise.mcap"
    path.write_bytes(small_log.read_bytes())
    chosen, counter = data.draw(st.integers(0, 25)), iter(range(10**6))
    at, value = data.draw(st.integers(0, 4000)), data.draw(st.integers(1, 255))

    def edit(_, message):
        if next(counter) != chosen:
            return message
        k = at % len(message)
        return message[:k] + bytes([message[k] ^ value]) + message[k + 1 :]

    change(path, edit)
    assert "\n" not in what_is_said(rt, path)
