"""Any bytes as a file of a bundle: a line that says what is wrong, never a crash; and hashes that are right."""

import hashlib
import io
import json
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from robot_rl_deploy.bundle import write_sums

KEPT = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.fixture(scope="module")
def scratch(toy_bundle, tmp_path_factory):
    """A bundle with files that a test may change and restores."""
    bundle = tmp_path_factory.mktemp("bytes") / "policy"
    shutil.copytree(toy_bundle, bundle)
    return bundle


def refusal(rt, bundle):
    """The line with which a bundle is refused; None where it is not."""
    try:
        rt.read_bundle(bundle)
    except rt.ContractError as error:
        return str(error)
    return None


def change(draw, content):
    result = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(result)))
        more = draw(st.one_of(st.binary(max_size=12), st.sampled_from((b"\0" * 40, b"\xff" * 9))))
        result[at : at + draw(st.integers(0, 200))] = more
    return bytes(result)


@pytest.mark.parametrize("name", ["contract.json", "golden.npz", "policy.onnx", "SHA256SUMS"])
@given(data=st.data())
@settings(max_examples=40, derandomize=True, database=None, deadline=None, suppress_health_check=KEPT)
def test_other_bytes_are_refused_or_read(rt, scratch, name, data):
    path = scratch / name
    before = path.read_bytes(), (scratch / "SHA256SUMS").read_bytes()
    try:
        path.write_bytes(change(data.draw, before[0]))
        if name != "SHA256SUMS":
            write_sums(scratch)
        line = refusal(rt, scratch)
        assert line is None or (line and "\n" not in line)
    finally:
        path.write_bytes(before[0])
        (scratch / "SHA256SUMS").write_bytes(before[1])


@given(data=st.binary(max_size=300))
@settings(max_examples=100, derandomize=True, database=None, deadline=None)
def test_hashes(rt, data):
    assert rt.sha256(data) == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("size", [0, 55, 56, 63, 64, 65, 119, 120, 128, 100_000])
def test_hashes_at_the_edges_of_a_block(rt, size):
    assert rt.sha256(b"a" * size) == hashlib.sha256(b"a" * size).hexdigest()


def golden_with(bundle, header):
    """The bundle's sequence with another .npy header for "action"; sizes as they were."""
    with np.load(bundle / "golden.npz") as stored:
        arrays = dict(stored)
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    data = stream.getvalue()
    right = b"'shape': (256, 2)"
    assert data.count(right) == 2  # action and joint_target
    return data.replace(right, header[: len(right)].ljust(len(right)))


@pytest.mark.parametrize(
    "header", [b"'shape': (9**9, 2)", b"'shape': (256, 3)", b"'shape': (-1, 2)", b"'shapes': (256,)"]
)
def test_a_header_that_lies_is_refused(rt, scratch, toy_bundle, header):
    (scratch / "golden.npz").write_bytes(golden_with(toy_bundle, header))
    write_sums(scratch)
    with pytest.raises(rt.ContractError, match="golden.npz"):
        rt.read_bundle(scratch)
    shutil.copy(toy_bundle / "golden.npz", scratch)
    write_sums(scratch)


def test_what_was_put_back_is_a_bundle(rt, scratch, toy_bundle):
    bundle = rt.read_bundle(scratch)
    assert bundle.identity == hashlib.sha256((toy_bundle / "SHA256SUMS").read_bytes()).hexdigest()
    assert bundle.contract.robot == json.loads((toy_bundle / "contract.json").read_text())["robot"]
    assert bundle.golden_steps == 256
