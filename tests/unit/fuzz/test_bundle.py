"""Any directory as a bundle: it is refused in one line, or it passes every check, the golden sequence among them.

Where a file is damaged its hash is made to fit, so that what stands behind the hashes has to find it.
"""

import hashlib
import io
import json
import os
import shutil
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from robot_rl_deploy.bundle import CONTRACT, FILES, GOLDEN, MODEL, SIGNATURE, SUMS, read_bundle, write_sums
from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.verify import verify_bundle

BUNDLE = Path(__file__).parents[3] / "tasks" / "robot_rl_tasks" / "go2_flat" / "policy"
FEW = settings(max_examples=max(1, settings().max_examples // 2))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A function that lays down a whole bundle, with the content of some files given, and hashes that fit."""
    folder = tmp_path_factory.mktemp("fuzz") / "policy"

    def make(content=None, hashed=True):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(BUNDLE, folder)
        for name, data in (content or {}).items():
            (folder / name).write_bytes(data)
        if content and hashed:
            write_sums(folder)
        return folder

    return make


def check(folder):
    """All of a bundle's checks; forged contracts are full of numbers that are too large for float32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return verify_bundle(folder)


@pytest.mark.parametrize("name", [*FILES, SUMS])
@FEW
@given(data=st.data())
def test_other_bytes(name, data, bundle, broken, refuses):
    original = (BUNDLE / name).read_bytes()
    content = broken(data.draw, original)
    folder = bundle({name: content}, hashed=name != SUMS)
    found, line = refuses(ContractError, check, folder)
    if name == SUMS and content != original and found is not None:
        raise AssertionError("a list of hashes with other bytes passed")
    assert found is not None or line


@FEW
@given(data=st.data())
def test_another_contract_of_the_network(data, bundle, damaged, refuses):
    """Contract, hash and the network's copy of the hash all fit: what is wrong shows only in the golden sequence."""
    import onnx

    contract = damaged(data.draw, json.loads((BUNDLE / CONTRACT).read_text()))
    text = json.dumps(contract).encode()
    model = onnx.load(BUNDLE / MODEL)
    onnx.helper.set_model_props(model, {"contract_sha256": hashlib.sha256(text).hexdigest()})
    refuses(ContractError, check, bundle({CONTRACT: text, MODEL: model.SerializeToString()}))


KINDS = ("<f4", "<f8", "|b1", "<i8", "<c8", "|S3", "<U2", "|V0", "<M8[s]", "|O")


@FEW
@given(data=st.data())
def test_another_sequence(data, bundle, refuses):
    with np.load(BUNDLE / GOLDEN) as stored:
        arrays = dict(stored)
    for _ in range(data.draw(st.integers(1, 2))):
        name = data.draw(st.sampled_from([*arrays, "other", "../reset", "a\nb"]))
        shape = data.draw(st.sampled_from([(), (0,), (256,), (256, 2), (2, 256), (256, 12), (10, 0), (1, 1, 1)]))
        arrays[name] = np.zeros(shape, data.draw(st.sampled_from(KINDS)))
    stream = io.BytesIO()
    np.savez(stream, **{name.replace("/", "_"): array for name, array in arrays.items()})
    refuses(ContractError, check, bundle({GOLDEN: stream.getvalue()}))


def member(name, content, way=zipfile.ZIP_STORED):
    """The sequence with one more file in its archive."""
    stream = io.BytesIO((BUNDLE / GOLDEN).read_bytes())
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "a", way) as archive:
        warnings.simplefilter("ignore")
        archive.writestr(name, content)
    return stream.getvalue()


def header(shape, kind="<f4", magic=b"\x93NUMPY\x01\x00"):
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return magic + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "data",
    [
        member("imu_gyro", b"no array"),
        member("reset.npy", header("(256,)", "|b1") + bytes(256)),
        member("x.npy", header("(1000000000000000,)")),
        member("x.npy", header("(-1,)")),
        member("x.npy", header("(10**9,)")),
        member("x.npy", header("(1,)", "|O") + b"cos\nsystem\n(S'true'\ntR."),
        member("x.npy", header("(" * 900 + ")" * 900)),
        member("x.npy", bytes(200 * 2**20), zipfile.ZIP_DEFLATED),
        member("x.npy", bytes(100), zipfile.ZIP_LZMA),
        b"PK\x05\x06" + bytes(18),
        b"",
    ],
    ids=["no array", "twice", "huge", "negative", "formula", "objects", "deep", "bomb", "lzma", "empty zip", "empty"],
)
def test_a_malicious_sequence_is_refused(data, bundle, refuses):
    found, line = refuses(ContractError, read_bundle, bundle({GOLDEN: data}))
    assert found is None
    assert "golden.npz" in line


def other(folder, name, what):
    """Put something else in the place of a file."""
    path, elsewhere = folder / name, folder.parent / "elsewhere"
    elsewhere.write_bytes(path.read_bytes() if path.exists() else b"")
    path.unlink(missing_ok=True)
    if what == "link":
        path.symlink_to(elsewhere)
    elif what == "dangling":
        path.symlink_to(folder.parent / "nowhere")
    elif what == "loop":
        path.symlink_to(path)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "device":
        path.symlink_to("/dev/zero")
    elif what == "large":
        with path.open("wb") as stream:
            stream.truncate(2**40)


OTHERS = ("nothing", "link", "dangling", "loop", "pipe", "folder", "device", "large")


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("name", [*FILES, SUMS])
def test_no_plain_file(name, what, bundle, refuses):
    folder = bundle()
    other(folder, name, what)
    found, line = refuses(ContractError, read_bundle, folder)
    assert found is None
    assert name in line


@FEW
@given(data=st.data())
def test_more_in_the_directory(data, bundle, refuses):
    folder = bundle()
    letters = st.characters(exclude_characters="/\0", exclude_categories=["Cs"])
    name = data.draw(st.one_of(st.text(letters, min_size=1, max_size=40), st.sampled_from((SIGNATURE, "policy.ONNX"))))
    if name in (".", "..") or (folder / name).exists():
        return
    (folder / name).write_bytes(data.draw(st.binary(max_size=8)))
    found, line = refuses(ContractError, read_bundle, folder)
    assert (found is not None) == (name == SIGNATURE), line


@FEW
@given(name=st.text(max_size=30))
def test_a_hash_list_that_leads_elsewhere(name, bundle, refuses):
    lines = (BUNDLE / SUMS).read_text().splitlines()
    digest = lines[0].partition("  ")[0]
    folder = bundle({SUMS: "\n".join([*lines, f"{digest}  {name}"]).encode(errors="replace")}, hashed=False)
    found, _ = refuses(ContractError, read_bundle, folder)
    assert found is None
