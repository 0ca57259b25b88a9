"""The log as others read it: MCAP by its own library, messages by their ROS definitions, and nothing lost."""

import ctypes
import json
import struct
import subprocess
import sys

import numpy as np
import pytest

mcap_reader = pytest.importorskip("mcap.reader")


@pytest.fixture(scope="module")
def read(shared):
    """read(path, topic): the messages of a topic, each decoded and as the library has it."""
    messages = shared("deploy/log_messages.py").messages
    return lambda path, topic: [(found, raw) for _, found, raw in messages(path, [topic])]


def test_the_library_of_mcap_reads_all_of_it(record, go2_bundle):
    path = record()
    with path.open("rb") as file:
        reader = mcap_reader.make_reader(file, validate_crcs=True)
        summary = reader.get_summary()
        kept = {item.name: item.data for item in reader.iter_attachments()}
        about = {item.name: item.metadata for item in reader.iter_metadata()}
        found = sum(1 for _ in reader.iter_messages())
    counts = {summary.channels[k].topic: n for k, n in summary.statistics.channel_message_counts.items()}
    assert counts == {"/state": 600, "/operator": 30, "/policy": 60, "/command": 660, "/event": 1}
    assert found == summary.statistics.message_count == 1351
    assert all(schema.encoding == "ros2msg" for schema in summary.schemas.values())
    assert kept == {name: (go2_bundle / name).read_bytes() for name in ("contract.json", "policy.onnx")}
    assert about["run"]["robot"] == "unitree_go2"
    assert about["run"]["joints"].split()[0] == json.loads(kept["contract.json"])["joints"][0]["name"]
    assert about["settings"]["stand_s"] == "0.2"
    assert about["end"] == {"events": "1351", "lost": "0"}


def test_commands_stand_in_it_to_the_last_bit(record, read):
    messages = read(record(), "/command")
    sent = record.sent
    assert len(messages) == len(sent) == 660
    assert {m["phase"] for m, _ in messages} == {1, 2, 3}
    for (message, raw), command in zip(messages, sent, strict=True):
        assert raw.sequence == message["order"]
        for name in ("sequence", "commander", "state_sequence", "state_robot_time_ns", "state_age_ns", "send_time_ns"):
            assert message[name] == getattr(command, name)
        assert message["from_policy"] == command.from_policy
        for name in ("q", "dq", "kp", "kd", "tau"):
            assert np.array(message[name], np.float32).tobytes() == getattr(command, name)[:12].tobytes()


def test_states_steps_and_the_operator_can_be_read(record, read):
    path = record()
    state, raw = read(path, "/state")[-1]
    assert (state["sequence"], len(state["joint_pos"]), len(state["foot_contact"]), state["height_scan"]) == (
        600,
        12,
        4,
        [],
    )
    assert state["time_ns"] - state["robot_time_ns"] == 700_000
    step, later = read(path, "/policy")[-1]
    assert (step["step"], step["state_sequence"], step["ok"], len(step["action"])) == (59, 591, True, 12)
    assert len(step["observation"]) > 12
    assert len(step["command"]) == 3
    assert later.log_time - raw.log_time == step["time_ns"] - state["time_ns"]
    words = [m for m, _ in read(path, "/operator")]
    assert [m["request"] for m in words[:4]] == [0, 0, 2, 0]
    assert read(path, "/event")[0][0]["text"].startswith("ready")


def test_faults_are_said_in_words(rt, record, read):
    def hurt(recorder):
        recorder.on_missed_deadline(3 * 10**9)
        recorder.on_fault(rt.Finding(rt.Fault.JOINT_VELOCITY, 3, 31.5, 30.1), 3 * 10**9)

    events = [m for m, _ in read(record(after=hurt), "/event")]
    assert "control period" in events[1]["text"]
    assert "31.5" in events[2]["text"]
    assert (events[2]["joint"], events[2]["value"], events[2]["limit"]) == (3, 31.5, 30.1)


def test_a_folder_gets_a_file_named_after_the_robot(rt, go2, settings, tmp_path):
    names = set()
    for _ in range(2):
        recorder = rt.Recorder(go2, settings, tmp_path / "logs")
        recorder.start()
        recorder.stop()
        names.add(recorder.path.name)
    assert len(names) == 2
    assert all(name.startswith("unitree_go2-") and name.endswith(".mcap") for name in names)


def test_a_log_is_never_written_over_another(rt, go2, settings, tmp_path):
    (tmp_path / "x.mcap").write_bytes(b"precious")
    with pytest.raises(rt.UserError, match=r"--log=.*x.mcap: File exists"):
        rt.Recorder(go2, settings, tmp_path / "x.mcap")
    assert (tmp_path / "x.mcap").read_bytes() == b"precious"


FULL_DISK = """
import resource, sys
import robot_rl_runtime as rt
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
recorder = rt.Recorder(rt.read_bundle(sys.argv[1]), rt.Settings(), sys.argv[2])
recorder.start()
state = rt.LowState()
state.joints = 12
for k in range(4000):
    state.sequence = k + 1
    recorder.on_state(state, 10**9 + k)
recorder.stop()
counters = recorder.counters
print(counters["failed"], counters["events"] + counters["lost"] == 4000 or counters, recorder.why)
"""


def test_a_full_disk_stops_the_log_and_nothing_else(rt, go2_bundle, tmp_path):
    """The rings are emptied all the same, every event is counted, and what is there can be read."""
    path = tmp_path / "full.mcap"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(go2_bundle), str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("True")
    assert "full.mcap: File too large" in done.stdout
    about = rt.log_about(path)
    assert about["cut"] is True


class Heap(ctypes.Structure):
    """What glibc's mallinfo2() returns; uordblks: bytes that are in use."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")),
        *((name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")),
    )


def test_the_memory_of_a_writer_does_not_grow_with_its_chunks_and_attachments(rt, tmp_path):
    """A log of hours has its index of chunks in locked memory otherwise; the finished file has all of it."""
    used = ctypes.CDLL(None).mallinfo2
    used.restype = Heap
    path, count = tmp_path / "long.mcap", 5000
    writer = rt.McapWriter(path)
    begin = 0
    for k in range(count):
        if k == 100:
            begin = used().uordblks
        writer.message(k, struct.pack("<I", k))
        writer.attachment(f"file.{k}", k, b"x")
    grown = used().uordblks - begin
    writer.finish()
    assert grown < 20_000
    assert [item.name for item in tmp_path.iterdir()] == ["long.mcap"]
    with path.open("rb") as file:
        reader = mcap_reader.make_reader(file, validate_crcs=True)
        summary = reader.get_summary()
        assert len(summary.chunk_indexes) == summary.statistics.chunk_count == count
        assert len(summary.attachment_indexes) == summary.statistics.attachment_count == count
        found = [struct.unpack("<I", message.data)[0] for _, _, message in reader.iter_messages(start_time=4000)]
    assert found == list(range(4000, count))
