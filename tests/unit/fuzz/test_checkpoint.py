"""Any files as a checkpoint: loaded completely, or refused in one line and nothing is changed.

Where a file is damaged its checksum is made to fit, so that what stands behind the checksums has to find it.
"""

import hashlib
import json
import os
import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task
from safetensors.torch import load, save

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.checkpoints.checkpoint import good_checkpoint, load_checkpoint, verify_checkpoint
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.learn.policy import make_policy
from robot_rl.settings import apply_overrides

FEW = limits(max_examples=max(1, limits().max_examples // 2))
META, WEIGHTS, WORLDS = FILES = ("meta.json", "model.safetensors", "env.safetensors")
SMALL = {"num_steps": 4, "actor.hidden": [8], "critic.hidden": [8], "ppo.epochs": 1, "ppo.minibatches": 1}


def make(directory, seed):
    torch.set_num_threads(1)
    env = make_env(get_task("cartpole"), num_envs=2, engine="mujoco", seed=seed, num_threads=1)
    return make_trainer(env, apply_overrides(PPOLearnerCfg(), SMALL), run_dir=directory, seed=seed)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The files of a checkpoint after one iteration, by name."""
    runner = make(tmp_path_factory.mktemp("fuzz"), 1)
    runner.train(1)
    runner.env.close()
    return {name: (runner.checkpoint / name).read_bytes() for name in FILES}


@pytest.fixture(scope="module")
def runner():
    """One that is to take over checkpoints, and keeps what it has where it cannot."""
    made = make(None, 2)
    made.env.load_state_dict(made.env.state_dict())  # What was marked as to be written to the engine is written.
    yield made
    made.env.close()


@pytest.fixture(scope="module")
def lay(tmp_path_factory):
    """A function that writes the files of a checkpoint, with checksums that match unless others are given."""
    path = tmp_path_factory.mktemp("fuzz") / "run" / "checkpoints" / "000001"

    def write(files, forged=True):
        shutil.rmtree(path.parent, ignore_errors=True)
        path.mkdir(parents=True)
        files = dict(files)
        if forged:
            meta = json.loads(files[META])
            sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items() if name != META}
            files[META] = forge(meta, sums)
        for name, data in files.items():
            (path / name).write_bytes(data)
        return path

    return write


def forge(meta, sums):
    body = {key: value for key, value in meta.items() if key != "sha256"}
    plain = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return json.dumps({**body, "sha256": {**sums, META: hashlib.sha256(plain.encode()).hexdigest()}}).encode()


def everything(runner):
    """All that a runner, its worlds included, holds."""
    state = runner.networks() | runner.state() | runner.worlds() | runner.env.state_dict()
    counters = torch.tensor([runner.iteration, runner.env_steps, runner.time_s], dtype=torch.float64)
    return {name: tensor.detach().clone() for name, tensor in {**state, "counters": counters}.items()}


def changed(one, other):
    """Names of what is not the same bits in two states."""
    assert one.keys() == other.keys()
    return [name for name in one if one[name].numpy().tobytes() != other[name].numpy().tobytes()]


def attempt(runner, path, refuses):
    """Load a checkpoint in every way there is; where it is refused, nothing may be changed."""
    before = everything(runner)
    loaded, line = refuses(UserError, lambda: runner.load(path, tell=str) or True)
    assert loaded or not changed(before, everything(runner)), f"partly loaded, then refused: {line}"
    before = everything(runner)
    light, line = refuses(UserError, lambda: runner.load(path, weights_only=True) or True)
    assert light or not changed(before, everything(runner)), f"partly loaded, then refused: {line}"
    refuses(UserError, make_policy, path.parent.parent, path)
    refuses(UserError, good_checkpoint, path.parent.parent, str)
    return loaded


def test_a_whole_checkpoint_is_loaded(saved, lay, runner, refuses):
    for forged in (False, True):
        assert attempt(runner, lay(saved, forged), refuses)


@pytest.mark.parametrize("name", FILES)
@FEW
@given(data=st.data())
def test_other_bytes(name, data, saved, lay, runner, broken, refuses):
    """With the checksums as they were: what is loaded is what was saved."""
    content = broken(data.draw, saved[name])
    path = lay(saved | {name: content}, forged=False)
    loaded = attempt(runner, path, refuses)
    if loaded and name != META:
        assert content == saved[name]
    if name != META:
        assert (refuses(UserError, lambda: verify_checkpoint(path) or True)[0] is None) == (content != saved[name])


@pytest.mark.parametrize("name", [WEIGHTS, WORLDS])
@FEW
@given(data=st.data())
def test_other_bytes_that_were_signed(name, data, saved, lay, runner, broken, refuses):
    header = 8 + int.from_bytes(saved[name][:8], "little")
    content = broken(data.draw, saved[name][:header]) + saved[name][header:]
    attempt(runner, lay(saved | {name: content}), refuses)


@given(data=st.data())
def test_another_description(data, saved, lay, runner, damaged, refuses):
    meta = damaged(data.draw, {key: value for key, value in json.loads(saved[META]).items() if key != "sha256"})
    try:
        text = json.dumps(meta).encode()
    except ValueError:  # a number of too many digits
        return
    attempt(runner, lay(saved | {META: text}), refuses)


KINDS = (torch.float64, torch.int32, torch.int64, torch.bool, torch.uint8, torch.bfloat16, torch.complex64)
NUMBERS = (float("nan"), float("inf"), -1.0, 1e30, 3e9, 0.0)


@pytest.mark.parametrize("name", [WEIGHTS, WORLDS])
@given(data=st.data())
def test_other_tensors(name, data, saved, lay, runner, refuses):
    tensors = load(saved[name])
    for _ in range(data.draw(st.integers(1, 2))):
        chosen = data.draw(st.sampled_from(sorted(tensors)))
        what = data.draw(st.sampled_from(("gone", "kind", "shape", "value", "renamed", "bytes")))
        tensor = tensors[chosen]
        if what == "gone":
            del tensors[chosen]
        elif what == "kind":
            tensors[chosen] = tensor.to(data.draw(st.sampled_from(KINDS)))
        elif what == "shape":
            shape = data.draw(st.sampled_from([(), (0,), (1,), (*tensor.shape, 1), tensor.shape[::-1], (2, 2, 2)]))
            tensors[chosen] = torch.zeros(shape, dtype=tensor.dtype)
        elif what == "value" and tensor.numel():
            number = torch.tensor(data.draw(st.sampled_from(NUMBERS)), dtype=torch.float64)
            tensors[chosen] = (
                tensor.clone().view(-1).index_fill(0, torch.tensor([0]), number.to(tensor.dtype)).view_as(tensor)
            )
        elif what == "renamed":
            tensors[data.draw(st.text(max_size=5))] = tensors.pop(chosen)
        elif what == "bytes" and tensor.dtype == torch.uint8:
            tensors[chosen] = torch.randint(
                0, 256, tensor.shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
            )
        if not tensors:
            return
    attempt(runner, lay(saved | {name: save(tensors)}), refuses)


@pytest.mark.parametrize(
    ("name", "tensor", "value", "message"),
    [
        (WEIGHTS, "random.order", torch.full((5056,), 255, dtype=torch.uint8), "tate"),
        (WEIGHTS, "actor.normalizer.mean", torch.zeros(5, dtype=torch.int64), "must be torch.float32"),
        (WORLDS, "env.state.terrain_level", torch.tensor([0, 1], dtype=torch.int32), "0 to 1, wants 0 to 0"),
        (WORLDS, "env.state.step_count", torch.tensor([-1, 1], dtype=torch.int32), "-1 to 1, wants 0"),
        (WORLDS, "env.state.time_out", torch.zeros(2, dtype=torch.int64), "must be torch.int32"),
    ],
)
def test_what_cannot_be_loaded(name, tensor, value, message, saved, lay, runner, refuses):
    """The first is found after networks, worlds and optimizer were loaded."""
    tensors = load(saved[name])
    assert tensor in tensors
    path = lay(saved | {name: save(tensors | {tensor: value})})
    assert not attempt(runner, path, refuses)
    assert message in refuses(UserError, lambda: runner.load(path, tell=str))[1]


OTHERS = ("nothing", "link", "dangling", "loop", "pipe", "folder", "device")


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("name", FILES)
def test_no_plain_file(name, what, saved, lay, runner, refuses, tmp_path):
    path = lay(saved) / name
    path.rename(tmp_path / name)
    if what in ("link", "dangling", "loop", "device"):
        targets = {"link": tmp_path / name, "dangling": "nowhere", "loop": path, "device": "/dev/zero"}
        path.symlink_to(targets[what])
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    assert not attempt(runner, path.parent, refuses)
    found, line = refuses(UserError, good_checkpoint, path.parents[2], str)
    assert found is None
    assert name in line


@pytest.mark.parametrize(
    "name", ["../000001/model.safetensors", "/etc/passwd", "model.safetensors/..", "env.rank0.safetensors", ""]
)
def test_names_that_lead_elsewhere(name, saved, lay, refuses):
    path = lay(saved)
    meta = json.loads((path / META).read_text())
    (path / META).write_bytes(forge(meta, meta["sha256"] | {name: "0" * 64}))
    for read in (load_checkpoint, verify_checkpoint):
        found, line = refuses(UserError, read, path)
        assert found is None
        assert "not a file of a checkpoint" in line


def test_a_checkpoint_that_is_a_link(saved, lay, runner, refuses, tmp_path):
    path = lay(saved)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert not attempt(runner, path, refuses)
    assert refuses(UserError, good_checkpoint, path.parents[1], str)[0] is None
