"""Any file as recorded motion: it is refused in one line, or it holds pairs of finite frames and their names."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from robot_rl.errors import UserError
from robot_rl.learn.auxiliaries.motions import read_motion

FRAMES = torch.arange(12.0).reshape(6, 2)
STARTS = torch.tensor([1, 0, 0, 1, 0, 0], dtype=torch.uint8)
TENSORS = {"frames": FRAMES, "episode_starts": STARTS}
META = {"components": json.dumps(["a", "b"]), "step_dt": "0.02"}


@pytest.fixture(scope="module")
def look(tmp_path_factory):
    """A function that reads bytes as a file of motion, and checks what it gave."""
    path = tmp_path_factory.mktemp("fuzz") / "motion.safetensors"

    def read(content):
        path.write_bytes(content)
        motion = read_motion(path)
        assert motion.pairs.dtype is torch.float32
        assert motion.pairs.isfinite().all()
        assert motion.pairs.shape[1:] == (2, len(motion.components))
        assert 0 < motion.step_dt < math.inf
        assert all(isinstance(name, str) for name in motion.components)
        return motion

    return read


def test_the_whole_file_is_read(look):
    assert len(look(save(TENSORS, META)).pairs) == 4


@given(data=st.data())
def test_other_bytes(data, look, broken, refuses):
    refuses(UserError, look, broken(data.draw, save(TENSORS, META)))


KINDS = (torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool, torch.bfloat16, torch.complex64)
SHAPES = ((), (0,), (6,), (6, 2), (6, 0), (1, 2), (0, 2), (4, 2, 2), (0, 2, 2), (4, 2, 0), (4, 1, 2))


@given(data=st.data())
def test_other_tensors(data, look, refuses):
    tensors = dict(TENSORS)
    for _ in range(data.draw(st.integers(1, 2))):
        name = data.draw(st.sampled_from(("frames", "episode_starts", "pairs", "other")))
        value = torch.zeros(data.draw(st.sampled_from(SHAPES)), dtype=data.draw(st.sampled_from(KINDS)))
        tensors[name] = (
            value + data.draw(st.sampled_from((0, 1, 1e300, math.nan))) if value.is_floating_point() else value
        )
    refuses(UserError, look, save(tensors, META))


@given(data=st.data())
def test_other_metadata(data, look, hurts, refuses):
    text = st.one_of(hurts.map(lambda value: json.dumps(value, default=str)), st.text(max_size=9))
    text = text.filter(lambda value: value.isprintable() or value.isascii())
    meta = {**META, data.draw(st.sampled_from(("components", "step_dt"))): data.draw(text)}
    refuses(UserError, look, save(TENSORS, meta))


@pytest.mark.parametrize(
    "meta",
    [
        {"components": "[" * 100_000},
        {"components": '"ab"'},
        {"components": "[1, 2]"},
        {"step_dt": "nan"},
        {"step_dt": "-0.02"},
        {"step_dt": "0"},
        {"step_dt": "inf"},
    ],
    ids=["deep", "word", "numbers", "nan", "negative", "zero", "inf"],
)
def test_metadata_that_mean_nothing(meta, look, refuses):
    found, line = refuses(UserError, look, save(TENSORS, {**META, **meta}))
    assert found is None
    assert "components" in line or "step_dt" in line


def test_no_plain_file(no_plain_file, refuses):
    found, line = refuses(UserError, read_motion, no_plain_file)
    assert found is None
    assert no_plain_file.name in line
