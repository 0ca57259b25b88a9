"""Damaged bytes against every reader of the robot binary, under the address and undefined-behaviour sanitizers.

`make fuzz` tries many more, other ones each time: FUZZ times 100 for each target.
"""

import base64
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from robot_rl.sim2sim.link import free_ports
from tests.deploy.conftest import ROOT, load

unit = load("unit/deploy/test_precision.py")
written = unit.written
HERE, RUNTIME = Path(__file__).parent, ROOT / "deploy_jetson/runtime"
FUZZ = int(os.environ.get("FUZZ") or 0)
PARTS = (
    *("address", "backend", "bundle", "commander", "contract", "contract_compare", "contract_messages"),
    *("contract_precision", "contract_terms", "crc32", "engine_cache", "error", "events", "explore"),
    *("frame_transport", "golden", "imu_convention", "json", "json_read", "log_format", "log_reader", "mcap", "npz"),
    *("observe", "onnx_check", "onnx_operators", "options", "plausible", "policy", "processor", "protocol"),
    *("receiver", "records", "replay", "robot_end", "rt", "safety", "sensors", "settings", "sha256", "shm"),
    *("signature", "team_link", "transport", "types", "udp", "unavailable", "unitree"),
)
BUNDLE_TARGETS = ("contract", "golden", "model", "sums")
TARGETS = (
    *("address", "cdr", "engine", "frame", "key", "log", "record", "remote", "sample", "segment", "settings"),
    "team",
)
COUNTS = {"golden": 300, "team": 10_000}
"""Inputs of a short run; where nothing is said 3000."""
# The header of an Ed25519 key in SubjectPublicKeyInfo (RFC 8410), and a point.
KEY = base64.b64encode(bytes.fromhex("302a300506032b6570032100") + bytes(range(32))).decode()


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    """Objects of Unitree's messages, and the options of the compiler for their codec; None without CycloneDDS."""
    if shutil.which("idlc") is None:
        return None
    folder = tmp_path_factory.mktemp("idl")
    for family in ("unitree_go", "unitree_hg"):
        idl = RUNTIME / "idl" / f"{family}.idl"
        subprocess.run(["idlc", "-t", "-Wno-implicit-extensibility", "-o", folder, idl], check=True)
        subprocess.run(["gcc", "-c", folder / f"{family}.c", "-o", folder / f"{family}.o"], check=True)
    return [f"-I{folder}", "-DROBOT_RL_CODEC"], [*folder.glob("*.o"), "-lddsc"]


@pytest.fixture(scope="module")
def program(sanitized, messages):
    flags, objects = messages or ([], [])
    mains = [HERE / name for name in ("fuzz.cpp", "files.cpp", "messages.cpp")]
    return sanitized(mains, (*PARTS, "dds_codec") if messages else PARTS, flags=flags, objects=objects)


def folder_of(bundle, folder):
    """What the program reads: a bundle's files, the bundle in a folder of its own, and the contract of a team."""
    shutil.copytree(bundle, folder)
    shutil.copytree(bundle, folder / "bundle")
    shutil.copy(ROOT / "tasks/robot_rl_tasks/panda_pair_lift/policy/contract.json", folder / "team.json")
    (folder / "robot.pub").write_text(f"-----BEGIN PUBLIC KEY-----\n{KEY}\n-----END PUBLIC KEY-----\n")
    return folder


def record_log(rt, bundle, path):
    """A log with each kind of event."""
    bundle = rt.read_bundle(bundle)
    recorder = rt.Recorder(bundle, rt.Settings(), path)
    recorder.start()
    state, word = rt.LowState(), rt.OperatorInput()
    state.joints, state.feet, state.acc = len(bundle.contract.joints), 2, [0.0, 0.0, 9.81]
    state.joint_pos = [joint.default_pos for joint in bundle.contract.joints]
    word.size, now = 3, 10**9
    recorder.ready(now)
    for k in range(6):
        now += 2_000_000
        state.sequence, state.robot_time_ns, state.receive_time_ns = k + 1, now - 700_000, now - 50_000
        recorder.on_state(state, now)
        word.sequence, word.request = k, rt.Request.STAND if k < 3 else rt.Request.POLICY
        recorder.on_operator(word, now)
        recorder.step(now)
        recorder.command(now, from_policy=k % 2 == 0)
    recorder.on_missed_deadline(now)
    recorder.on_fault(rt.Finding(rt.Fault.JOINT_VELOCITY, 1, 31.5, 30.1), now)
    recorder.command(now)
    recorder.stop()


@pytest.fixture(scope="module")
def toy(rt, toy_bundle, tmp_path_factory):
    folder = folder_of(toy_bundle, tmp_path_factory.mktemp("fuzz") / "toy")
    record_log(rt, toy_bundle, folder / "log.mcap")
    return folder


def fuzz(program, target, folder):
    seed = random.SystemRandom().getrandbits(32) if FUZZ else 1
    count = FUZZ * 100 if FUZZ else COUNTS.get(target, 3000)
    command = [program, target, folder, *map(str, (*free_ports(2), seed, count))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = f"{' '.join(map(str, command))}: the input is in {folder}/{target}.crash\n{done.stderr[-3000:]}"
    assert (done.returncode, done.stdout) == (0, "clean\n"), said


@pytest.mark.long
@pytest.mark.parametrize("target", [*BUNDLE_TARGETS, *TARGETS])
def test_no_damaged_byte_leads_a_reader_astray(program, messages, toy, target):
    if target == "sample" and messages is None:
        pytest.skip("no idlc: without CycloneDDS there is no codec")
    fuzz(program, target, toy)


@pytest.mark.long
@pytest.mark.parametrize("mode", unit.MODES)
def test_nor_in_a_bundle_with_a_precision(program, written, tmp_path, mode):
    folder = folder_of(written(mode)[0], tmp_path / mode)
    for target in BUNDLE_TARGETS:
        fuzz(program, target, folder)
