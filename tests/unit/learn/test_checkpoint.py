"""Checkpoints are whole or not there, and what is damaged is named."""

import errno
import json
import os

import pytest
import torch

from robot_rl.errors import UserError
from robot_rl.learn.checkpoints import checkpoint as module
from robot_rl.learn.checkpoints.checkpoint import (
    check_shapes,
    good_checkpoint,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    load_worlds,
    prune,
    save_checkpoint,
    tidy,
    verify_checkpoint,
)

TENSORS = {
    "actor.weight": torch.arange(6.0).view(2, 3).T,
    "count": torch.tensor(7),
    "random": torch.arange(5, dtype=torch.uint8),
}


@pytest.fixture
def saved(tmp_path):
    return save_checkpoint(tmp_path / "checkpoints" / "000010", TENSORS, {"iteration": 10, "name": "φ"})


def leftovers(directory):
    return [path for path in directory.rglob("*") if path.name.startswith(".")]


def test_there_and_back(saved):
    tensors, meta = load_checkpoint(saved)
    assert meta == {"iteration": 10, "name": "φ"}
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)
    assert leftovers(saved.parent) == []


def test_one_of_the_same_name_is_replaced(saved):
    save_checkpoint(saved, {"x": torch.ones(1)}, {"iteration": 11})
    tensors, meta = load_checkpoint(saved)
    assert (list(tensors), meta) == (["x"], {"iteration": 11})
    assert leftovers(saved.parent) == []


@pytest.mark.parametrize("fails", ["fsync", "rename"])
def test_a_full_disk_leaves_the_old_one_and_nothing_else(saved, monkeypatch, fails):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    if fails == "fsync":
        monkeypatch.setattr(module.os, "fsync", full)
    else:
        monkeypatch.setattr(module.Path, "rename", full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(saved, {"x": torch.ones(1)}, {})
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(saved.parent / "000020", {"x": torch.ones(1)}, {})
    monkeypatch.undo()
    assert load_checkpoint(saved)[1]["iteration"] == 10
    assert [path.name for path in saved.parent.iterdir()] == ["000010"]


def test_nothing_is_visible_before_it_is_on_the_disk(tmp_path, monkeypatch):
    """At every sync the checkpoint's own name does not exist yet, until the last: that of its folder."""
    target = tmp_path / "000001"
    seen = []
    fsync = os.fsync
    monkeypatch.setattr(module.os, "fsync", lambda descriptor: (seen.append(target.exists()), fsync(descriptor)))
    save_checkpoint(target, TENSORS, {})
    assert seen == [False, False, False, True]


@pytest.mark.parametrize("position", [0, 100, -1])
def test_a_flipped_bit_in_the_weights(saved, position):
    path = saved / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"model\.safetensors: damaged, sha256 is .*, must be"):
        load_checkpoint(saved)


def test_weights_cut_short(saved):
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(UserError, match=r"model\.safetensors: damaged, sha256"):
        load_checkpoint(saved)


def test_a_description_that_was_edited(saved):
    path = saved / "meta.json"
    path.write_text(path.read_text().replace('"iteration": 10', '"iteration": 99'))
    with pytest.raises(UserError, match=r"meta\.json: damaged, sha256 of its content"):
        load_checkpoint(saved)


@pytest.mark.parametrize(("content", "check"), [("{", "no JSON"), ("[]", "no 'sha256'"), ("{}", "no 'sha256'")])
def test_a_description_that_is_none(saved, content, check):
    (saved / "meta.json").write_text(content)
    with pytest.raises(UserError, match=rf"meta\.json: damaged, .*{check}"):
        load_checkpoint(saved)


@pytest.mark.parametrize("name", ["model.safetensors", "meta.json"])
def test_a_missing_file(saved, name):
    (saved / name).unlink()
    with pytest.raises(UserError, match=f"{name}: missing"):
        load_checkpoint(saved)


def test_a_missing_checkpoint(tmp_path):
    with pytest.raises(UserError, match="no such directory"):
        load_checkpoint(tmp_path / "000001")
    with pytest.raises(UserError, match="has no checkpoint"):
        latest_checkpoint(tmp_path)


def test_weights_that_are_no_safetensors_but_match_their_sum(saved):
    import hashlib

    (saved / "model.safetensors").write_bytes(b"rubbish")
    meta = json.loads((saved / "meta.json").read_text())
    meta["sha256"]["model.safetensors"] = hashlib.sha256(b"rubbish").hexdigest()
    (saved / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(UserError, match="no safetensors file"):
        load_checkpoint(saved)


def test_the_newest_is_found_and_hidden_ones_are_not(saved):
    newer = save_checkpoint(saved.parent / "000200", TENSORS, {})
    (saved.parent / ".000300-abc").mkdir()
    run = saved.parent.parent
    assert list_checkpoints(run) == [saved, newer]
    assert latest_checkpoint(run) == newer


def test_another_architecture_is_reported_with_both_shapes(saved):
    tensors, _ = load_checkpoint(saved)
    with pytest.raises(UserError, match=r"'actor.weight' has shape \(3, 2\), must be \(4, 2\)"):
        check_shapes(saved, tensors, {"actor.weight": torch.zeros(4, 2)})
    with pytest.raises(UserError, match=r"has no 'actor.bias' \(4,\)"):
        check_shapes(saved, tensors, {"actor.bias": torch.zeros(4)})


def test_the_worlds_are_in_a_file_of_their_own(tmp_path):
    path = save_checkpoint(tmp_path / "000001", TENSORS, {"iteration": 1}, worlds={"env.pos": torch.ones(3)})
    assert load_checkpoint(path)[0].keys() == TENSORS.keys()
    worlds = load_worlds(path)
    assert worlds is not None
    assert worlds["env.pos"].tolist() == [1.0] * 3
    assert load_worlds(path, rank=1) is None
    (path / "env.safetensors").write_bytes(b"")
    load_checkpoint(path)  # Who reads a policy reads no more than that.
    for read in (load_worlds, verify_checkpoint):
        with pytest.raises(UserError, match=r"env\.safetensors: damaged, sha256"):
            read(path)


def test_the_newest_whole_one_is_found_and_the_others_are_named_and_left(tmp_path):
    paths = [save_checkpoint(tmp_path / "checkpoints" / f"{n:06d}", TENSORS, {}, worlds=TENSORS) for n in (1, 2, 3, 4)]
    (paths[3] / "env.safetensors").unlink()
    (paths[2] / "model.safetensors").write_bytes((paths[2] / "model.safetensors").read_bytes()[:-1])
    messages = []
    assert good_checkpoint(tmp_path, messages.append) == paths[1]
    assert [line.endswith("going back to checkpoint 000002") for line in messages] == [True, True]
    assert "000004/env.safetensors: missing" in messages[0]
    assert "000003/model.safetensors: damaged" in messages[1]
    assert list_checkpoints(tmp_path) == paths
    for path in paths[:2]:
        (path / "meta.json").unlink()
    with pytest.raises(UserError, match=r"000004/env\.safetensors: missing.*; the run has no checkpoint that is whole"):
        good_checkpoint(tmp_path, messages.append)
    assert len(messages) == 2


def test_checkpoints_are_in_the_order_of_their_iterations(tmp_path):
    """A name of seven digits comes after one of six."""
    for name in ("1000000", "999999", "000001"):
        save_checkpoint(tmp_path / "checkpoints" / name, {}, {})
    assert [path.name for path in list_checkpoints(tmp_path)] == ["000001", "999999", "1000000"]


def test_only_so_many_are_kept_and_newer_ones_are_let_be(tmp_path):
    """Going on from an older one, the damaged ones behind it stay until they are replaced."""
    paths = [save_checkpoint(tmp_path / "checkpoints" / f"{n:06d}", TENSORS, {}) for n in range(1, 7)]
    prune(paths[3], 2)
    assert list_checkpoints(tmp_path) == [paths[2], paths[3], paths[4], paths[5]]
    prune(paths[3], 1)
    assert list_checkpoints(tmp_path) == paths[3:]
    prune(paths[5], 0)
    assert list_checkpoints(tmp_path) == paths[3:]
    assert leftovers(tmp_path) == []


def test_what_a_killed_process_left_is_removed_and_what_it_was_replacing_comes_back(saved):
    run = saved.parent.parent
    saved.rename(saved.with_name(".000010-replaced"))
    (saved.parent / ".000020-x1y2z3").mkdir()
    (saved.parent / ".000005-removed").mkdir()
    assert good_checkpoint(run) == saved
    tidy(run)
    assert [path.name for path in saved.parent.iterdir()] == ["000010"]
    assert load_checkpoint(saved)[1]["iteration"] == 10


def rewrite(path, change):
    """Change a checkpoint's description and its checksum with it."""
    meta = json.loads((path / "meta.json").read_text())
    change(meta)
    body = {key: value for key, value in meta.items() if key != "sha256"}
    meta["sha256"]["meta.json"] = module._meta_sum(body)
    (path / "meta.json").write_text(json.dumps(meta))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (4, "schema 4, made by a newer robot-rl"),
        (1, "schema 1, older than release 0.1.0"),
        ("2", "must be a whole number"),
    ],
)
def test_a_schema_that_is_not_known(saved, schema, message):
    rewrite(saved, lambda meta: meta.update(schema=schema))
    with pytest.raises(UserError, match=message):
        load_checkpoint(saved)


def test_files_elsewhere_are_not_read(saved, tmp_path):
    rewrite(saved, lambda meta: meta["sha256"].update({"../../etc/passwd": "0"}))
    with pytest.raises(UserError, match=r"'\.\./\.\./etc/passwd' is not a file of a checkpoint"):
        load_checkpoint(saved)
    rewrite(saved, lambda meta: meta["sha256"].pop("../../etc/passwd"))
    (saved / "model.safetensors").rename(tmp_path / "elsewhere")
    (saved / "model.safetensors").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link"):
        load_checkpoint(saved)
