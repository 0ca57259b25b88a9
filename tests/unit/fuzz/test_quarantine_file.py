"""Any file as that of a quarantined world: it is refused in one line, or it can be replayed and drawn.

MuJoCo's own reader gets no damaged model: its hash stands in the file, and a forged hash is not tried.
"""

import hashlib
import io
import json
import zipfile

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_rl.cli.inspect import show
from robot_rl.errors import UserError
from robot_rl.view.inspect.page import render_page
from robot_rl.view.inspect.record import ARRAYS, FORMAT, read_record
from robot_rl.view.inspect.replay import fastest, replay

STEPS = 3
XML = """
<mujoco>
  <worldbody><body><joint name="hinge" type="hinge"/><geom size="0.1"/></body></worldbody>
  <actuator><motor name="motor" joint="hinge"/></actuator>
</mujoco>
"""


def model_bytes():
    model = mujoco.MjModel.from_xml_string(XML)
    buffer = np.zeros(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer


MODEL = model_bytes()
ABOUT = {
    "format": FORMAT,
    "task": "cart",
    "robot": "cart",
    "engine": "mujoco",
    "mujoco": mujoco.__version__,
    "reason": "state",
    "actuator": "position",
    "created": "now",
    "why": ["velocity of hinge is nan"],
    "world": 1,
    "seed": 2,
    "counter": 3,
    "time_s": 0.1,
    "timestep": 0.005,
    "decimation": 2,
    "qpos_names": ["hinge"],
    "dof_names": ["hinge"],
    "action_names": ["motor"],
    "joint_names": ["hinge"],
    "model_sha256": hashlib.sha256(MODEL.tobytes()).hexdigest(),
}
WHOLE = {
    "step": np.arange(STEPS + 1),
    "written": np.zeros(STEPS + 1, np.int32),
    "command": np.zeros((STEPS + 1, 3), np.float32),
    "qpos": np.zeros((STEPS + 1, 1), np.float32),
    "qvel": np.zeros((STEPS + 1, 1), np.float32),
    "action": np.zeros((STEPS, 1), np.float32),
    "ctrl": np.zeros((STEPS, 1, 1), np.float32),
    "reward": np.zeros(STEPS, np.float32),
    "model": MODEL,
}


def packed(about=ABOUT, arrays=WHOLE):
    stream = io.BytesIO()
    text = about if isinstance(about, str) else json.dumps(about)
    np.savez(stream, about=np.array(text), **arrays)
    return stream.getvalue()


@pytest.fixture(scope="module")
def look(tmp_path_factory):
    """A function that does with bytes what robot-rl inspect does, except for images."""
    path = tmp_path_factory.mktemp("fuzz") / "file.npz"

    def inspect(content):
        path.write_bytes(content)
        record = read_record(path)
        with np.errstate(all="ignore"):
            result, growths = replay(record), fastest(record)
            show(record, result, growths)
            return render_page(record, result, growths, []).encode()

    return inspect


def test_the_whole_file_is_replayed(look):
    assert b"</html>" in look(packed())


@given(data=st.data())
def test_other_bytes(data, look, broken, refuses):
    refuses(UserError, look, broken(data.draw, packed()))


@given(data=st.data())
def test_another_description(data, look, damaged, refuses):
    refuses(UserError, look, packed(damaged(data.draw, ABOUT)))


KINDS = ("<f4", "<f8", "|b1", "<i8", "|u1", "<c8", "|S3", "<U2", "|V0", "<M8[s]")
SHAPES = [(), (0,), (3,), (4,), (4, 1), (3, 1), (3, 1, 1), (3, 2, 1), (4, 0), (3, 0, 1), (1, 1, 1)]


@given(data=st.data())
def test_other_arrays(data, look, refuses):
    arrays = dict(WHOLE)
    for _ in range(data.draw(st.integers(1, 2))):
        name = data.draw(st.sampled_from(ARRAYS))
        value = np.zeros(data.draw(st.sampled_from(SHAPES)), data.draw(st.sampled_from(KINDS)))
        if value.dtype.kind == "f":
            value[...] = data.draw(st.sampled_from((np.nan, np.inf, -1e30, 1.0)))
        arrays[name] = value
    refuses(UserError, look, packed(arrays=arrays))


def header(shape, kind="<f4"):
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def with_member(name, content):
    stream = io.BytesIO()
    kept = {key: array for key, array in WHOLE.items() if f"{key}.npy" != name}
    stream.write(packed(arrays=kept) if name != "about.npy" else b"")
    with zipfile.ZipFile(stream, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        packed("[" * 100_000),
        packed({**ABOUT, "decimation": 10**12}),
        packed({**ABOUT, "decimation": 1.5}),
        packed({**ABOUT, "time_s": 10**400}),
        packed({**ABOUT, "why": [""]}),
        packed({**ABOUT, "task": "\ud800"}),
        with_member("qpos.npy", header("(1000000000000000,)")),
        with_member("qpos.npy", header("(-1,)")),
        with_member("qpos.npy", header("(10**9,)")),
        with_member("qpos.npy", header("(" * 900 + ")" * 900)),
        with_member("qpos.npy", b"no array"),
        packed(arrays={**WHOLE, "model": np.zeros((), bool)}),
        with_member("about.npy", header("(1,)", "|O") + b"cos\nsystem\n(S'true'\ntR."),
        with_member("model.npy", header("(2147483648,)", "|u1") + bytes(2**20)),
    ],
    ids=[
        "deep",
        "substeps",
        "half",
        "long",
        "empty",
        "half a character",
        "huge",
        "negative",
        "formula",
        "nested",
        "none",
        "one number",
        "code",
        "bomb",
    ],
)
def test_a_malicious_file_is_refused(content, look, refuses):
    found, line = refuses(UserError, look, content)
    assert found is None
    assert "file.npz" in line


def test_no_plain_file(no_plain_file, refuses):
    found, line = refuses(UserError, read_record, no_plain_file)
    assert found is None
    assert no_plain_file.name in line
