"""A recorded run of the Go2 policy that comes with the project, and a way to change the content of a log."""

import struct
import zlib

import numpy as np
import pytest

TICK = 2_000_000
CHUNK, MESSAGE = 6, 5


@pytest.fixture(scope="session")
def go2(rt, go2_bundle):
    return rt.read_bundle(go2_bundle)


@pytest.fixture(scope="session")
def drive(rt, go2):
    """drive(recorder, ticks, seed): states at 500 Hz, the policy at 50 Hz, up to walking; what went out."""

    def run(recorder, ticks=600, seed=0, measured=0):
        rng, joints = np.random.default_rng(seed), len(go2.contract.joints)
        pose = np.array([joint.default_pos for joint in go2.contract.joints])
        state, now, sent = rt.LowState(), 10**9, []
        state.joints, state.feet, state.acc = joints, 4, [0.0, 0.0, 9.81]
        state.measured_count, state.measured = measured, np.arange(measured)
        recorder.ready(now)
        for k in range(ticks):
            now += TICK
            state.sequence, state.robot_time_ns, state.receive_time_ns = k + 1, now - 700_000, now - 50_000
            state.joint_pos = pose + 0.02 * rng.standard_normal(joints)
            state.joint_vel, state.gyro = 0.1 * rng.standard_normal(joints), 0.1 * rng.standard_normal(3)
            recorder.on_state(state, now)
            if k % 20 == 0:
                word = rt.OperatorInput()
                word.sequence, word.receive_time_ns, word.size = k, now, 3
                word.command = rng.uniform(-1.0, 1.0, 3)
                word.request = rt.Request.STAND if k == 40 else rt.Request.POLICY if k >= 200 else rt.Request.NONE
                recorder.on_operator(word, now)
            if k % 10 == 0:
                recorder.step(now + 100_000)
                sent.append(recorder.command(now + 150_000, from_policy=True))
            sent.append(recorder.command(now + 200_000))
        return sent

    return run


@pytest.fixture(scope="session")
def settings(rt):
    made = rt.Settings()
    made.stand_s, made.blend_s, made.damping_scale = 0.2, 0.1, 0.1
    return made


@pytest.fixture
def record(rt, go2, drive, settings, tmp_path):
    """record(name, backend, ticks, before, after): a log's path; hooks get the recorder. `record.sent`: commands."""

    def make(name="run", backend="mixture", ticks=600, before=None, after=None):
        recorder = rt.Recorder(go2, settings, tmp_path / f"{name}.mcap", backend)
        recorder.start()
        if before:
            before(recorder)
        make.sent = drive(recorder, ticks)
        if after:
            after(recorder)
        recorder.stop()
        assert recorder.counters["failed"] is False
        return recorder.path

    return make


def records(data):
    """Operation, place and content of every record of an MCAP file."""
    at = 8
    while at + 9 <= len(data) - 8:
        op, length = data[at], struct.unpack_from("<Q", data, at + 1)[0]
        yield op, at, data[at + 9 : at + 9 + length]
        at += 9 + length


@pytest.fixture(scope="session")
def change():
    """change(path, edit): edit(channel, message) gives other bytes, as many; checksums are made right again."""

    def run(path, edit):
        data = bytearray(path.read_bytes())
        for op, at, content in list(records(data)):
            if op != CHUNK:
                continue
            head = 9 + 8 + 8 + 8 + 4 + 4 + 8  # record, times, size, checksum, no compression, length
            inner = bytearray(content[head - 9 :])
            place = 0
            while place < len(inner):
                length = struct.unpack_from("<Q", inner, place + 1)[0]
                first = place + 9 + 22
                channel = struct.unpack_from("<H", inner, place + 9)[0]
                if inner[place] == MESSAGE:
                    inner[first : place + 9 + length] = edit(channel, bytes(inner[first : place + 9 + length]))
                place += 9 + length
            data[at + head : at + head + len(inner)] = inner
            struct.pack_into("<I", data, at + 9 + 24, zlib.crc32(bytes(inner)))
        path.write_bytes(bytes(data))

    return run
