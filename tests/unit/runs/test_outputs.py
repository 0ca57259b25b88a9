"""What commands write: places tried before the work, and nothing replaced that they did not write."""

import json
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from robot_rl_deploy.bundle import FILES, SUMS, foreign_content, read_bundle
from robot_rl_deploy.export import write_bundle
from robot_rl_deploy.strict import ContractError

from robot_rl.cluster.launchers.slurm import SbatchJob, script
from robot_rl.cluster.manifests.documents import to_yaml
from robot_rl.errors import UserError
from robot_rl.evaluation import write_evaluation
from robot_rl.files import write_json
from robot_rl.learn.auxiliaries.motions import write_motion
from robot_rl.runs import outputs
from robot_rl.runs.outputs import check_output, save_image
from robot_rl.runs.policies import find_bundle
from robot_rl.view.viewer.video import write_video

FACTS = {"machine": {}, "versions": {}}


def film(path):
    frames = (np.full((96, 160, 3), 40 * k, dtype=np.uint8) for k in range(3))
    write_video(frames, path, 25, total=3, progress=False)


def usd(path):
    pytest.importorskip("pxr")
    from robot_rl_assets.usd import write_ground

    write_ground(path, friction=1.0)


OURS = {
    "eval.json": (outputs.EVALUATION, lambda path: write_evaluation(path, {"episodes": 2, "torch": {}})),
    "drill.json": (outputs.DRILL, lambda path: write_json(path, {"run": "", "from": 0, "to": 1, "faults": []} | FACTS)),
    "bench.json": (outputs.BENCH, lambda path: write_json(path, {"name": "env", "rows": []} | FACTS)),
    "profile.json": (outputs.PROFILE, lambda path: write_json(path, {"name": "", "parts": {}, "stages": {}} | FACTS)),
    "session.json": (outputs.SESSION, lambda path: write_json(path, {"policy": "x", "bundle": "y"})),
    "go2.identified.json": (outputs.IDENTIFIED, lambda path: write_json(path, {"format": "robot_rl.identified"})),
    "play.npz": (outputs.EXCITATION, lambda path: np.savez(path, time=0.0, target=0.0, joints="a")),
    "latency.json": (outputs.LATENCY, lambda path: write_json(path, {"format": "robot_rl.latency", "version": 1})),
    "cross.json": (
        outputs.CROSS,
        lambda path: write_json(path, {"policies": [], "engines": [], "bounds": {}, "cells": []}),
    ),
    "m.safetensors": (
        outputs.MOTION,
        lambda path: write_motion(path, torch.zeros(3, 2), torch.tensor([True, False, False]), ["a", "b"], 0.02),
    ),
    "job.yaml": (outputs.MANIFEST, lambda path: path.write_text(to_yaml([{}], "robot-rl manifest target=jobset"))),
    "flow.yaml": (outputs.WORKFLOW, lambda path: path.write_text(to_yaml([{}], "robot-rl flow mine.py target=osmo"))),
    "job.sh": (
        outputs.MANIFEST,
        lambda path: path.write_text(script(SbatchJob(runs=Path("/runs/a"), made_by="robot-rl manifest"))),
    ),
    "image.png": (outputs.IMAGE, lambda path: save_image(Image.new("RGB", (4, 4)), path)),
    "film.mp4": (outputs.FILM, film),
    "a.usda": (outputs.USD, usd),
    "a.usd": (outputs.USD, usd),
}
FOREIGN = {
    ".json": b'{"name": "somebody else\'s"}',
    ".png": b"\x89PNG\r\n\x1a\nof a camera",
    ".mp4": b"\x00\x00\x00\x10ftypisom\x00\x00\x00\x00\x00\x00\x00\x10moov\x00\x00\x00\x00\x00\x00\x00\x00",
    ".usda": b"#usda 1.0\n",
    ".safetensors": b"\x02\x00\x00\x00\x00\x00\x00\x00{}",
}


@pytest.mark.parametrize("name", OURS)
def test_what_a_command_wrote_is_replaced_and_what_it_did_not_is_refused(tmp_path, name):
    kind, write = OURS[name]
    path = tmp_path / name
    check_output("out", str(path), kind)
    path.touch()
    check_output("out", str(path), kind)  # as mktemp leaves it
    write(path)
    assert check_output("out", str(path), kind) == path
    for content in (b"notes\n", b"[1]", b"[" * 100_000, FOREIGN.get(path.suffix, b"\x00"), os.urandom(100)):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"out={path}: is there already and is not .* name another file, or remove"):
            check_output("out", str(path), kind)
        assert path.read_bytes() == content


COMMANDS = {
    "eval": ("eval", "policy=go2_flat", "out=x.json"),
    "record": ("record", "policy=go2_flat", "out=x.safetensors"),
    "drill": ("drill", "latest", "out=x.json"),
    "video": ("video", "policy=go2_flat", "out=x.mp4"),
    "video's own name": ("video", "policy=go2_flat", "seconds=1"),
    "terrain": ("terrain", "stairs", "out=x.png"),
    "usd": ("usd", "cartpole", "out=x.usda"),
    "cross": ("cross", "latest", "out=x.json"),
    "cross's image": ("cross", "latest", "out=y.json"),
    "identify": ("identify", "log.npz", "robot=unitree_go2", "out=x.json"),
    "explain": ("explain", "log.npz", "robot=unitree_go2", "out=x.json"),
    "latency": ("latency", "log.mcap", "out=x.json"),
    "latency's image": ("latency", "log.mcap", "out=y.json"),
    "bench": ("bench", "env", "out=x.json"),
    "profile": ("profile", "task=cartpole", "out=x.json"),
    "profile's trace": ("profile", "task=cartpole", "trace=x.json.gz"),
    "manifest": ("manifest", "latest", "target=jobset", "out=x.json"),
    "sim2sim": ("sim2sim", "policy=go2_flat", "out=x.json"),
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_every_command_refuses_before_its_work_to_replace_what_it_did_not_write(run, in_tmp, words):
    if words[0] == "usd":
        pytest.importorskip("pxr")
    names = ("x.json", "x.safetensors", "x.mp4", "go2_flat.mp4", "x.png", "y.png", "x.usda", "y.svg", "x.json.gz")
    for name in names:
        (in_tmp / name).write_text("precious")
    code, _, err = run(*words)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "is there already and is not" in err
    assert sorted(path.name for path in in_tmp.iterdir()) == sorted(names)
    assert all((in_tmp / name).read_text() == "precious" for name in names)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("film.mp4/", "is a folder"),
        ("/proc/film.mp4", "cannot be written there"),
        ("/dev/null/film.mp4", "/dev/null is not a directory"),
        ("dangling/film.mp4", "dangling is not a directory"),
        ("link.mp4", "is a link to elsewhere.mp4; name that file itself"),
        ("pipe.mp4", "is not a plain file"),
        (".mp4", "must end in .mp4"),
    ],
)
def test_places_that_cannot_be_written_are_found_before_the_work(run, in_tmp, text, line):
    (in_tmp / "link.mp4").symlink_to("elsewhere.mp4")
    (in_tmp / "dangling").symlink_to("nowhere")
    os.mkfifo(in_tmp / "pipe.mp4")
    code, _, err = run("video", "policy=go2_flat", f"out={text}")
    assert (code, len(err.splitlines())) == (2, 1)
    assert f"out={text}: {line}" in err
    assert len(list(in_tmp.iterdir())) == 3


def test_a_file_at_a_run_s_own_place_is_the_run_s(tmp_path):
    path = tmp_path / "eval.json"
    path.write_text('{"torn": ')
    assert check_output("out", str(path), None) == path


@pytest.mark.parametrize("name", ["eval.json", "m.safetensors"])
def test_a_pipe_is_written_to_and_stays_one(tmp_path, name):
    kind, write = OURS[name]
    path, read = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
    reader.start()
    assert check_output("out", str(path), kind) == path
    write(path)
    reader.join(timeout=10)
    assert path.is_fifo()
    assert len(read[0]) > 10


def test_a_plot_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    save_image(Image.new("RGB", (4, 4)), path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        save_image(Image.new("RGB", (8, 8)), path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["a.png"]


# -- bundles -----------------------------------------------------------------------------------------------------------


def test_an_export_never_removes_what_is_not_a_bundle(run, small_run, in_tmp):
    trained = in_tmp / "runs" / "cartpole" / small_run.name
    shutil.copytree(small_run, trained)
    (in_tmp / "notes.txt").write_text("precious")
    before = sorted(in_tmp.rglob("*"))
    for out, found in (
        ("runs", "holds 'cartpole', which is not a file of a bundle"),
        (str(trained), "which is not a file of a bundle"),
        ("notes.txt", "is not a directory"),
        (".", "is the current directory"),
        (str(in_tmp), "is the current directory"),
        ("..", "is the current directory, one above it"),
        ("/proc/policy", "cannot be written there"),
        ("notes.txt/policy", "notes.txt is not a directory"),
    ):
        code, _, err = run("export", f"out={out}")
        assert (code, len(err.splitlines())) == (2, 1)
        assert f"out={out}: " in err
        assert found in err
    assert sorted(in_tmp.rglob("*")) == before


@pytest.fixture(scope="module")
def bundle() -> Path:
    """A bundle that comes with the project, to be read and not changed."""
    return find_bundle("go2_flat")


def test_a_bundle_is_replaced_unless_something_was_put_into_it(bundle, tmp_path, monkeypatch):
    made = read_bundle(bundle)
    contract, out = (bundle / "contract.json").read_bytes(), tmp_path / "policy"

    def write():
        return write_bundle(out, contract, made.golden, made.model).digest

    assert write() == made.digest
    assert write() == made.digest
    (out / "SHA256SUMS.sig").write_text("signature of the old one")
    (out / "golden.npz").unlink()
    (out / "contract.json").write_text("torn")
    assert write() == made.digest
    assert sorted(path.name for path in out.iterdir()) == sorted([*FILES, SUMS])
    (out / "SHA256SUMS").unlink()
    assert write() == made.digest
    (out / "notes.txt").write_text("precious")
    with pytest.raises(ContractError, match=r"holds 'notes.txt', which is not a file of a bundle; name another"):
        write()
    assert (out / "notes.txt").read_text() == "precious"
    (out / "notes.txt").unlink()
    for name in FILES:
        (out / name).write_text("{}")
    (out / "SHA256SUMS").unlink()
    assert foreign_content(out) == "holds files named as in a bundle, but is not a bundle"
    (tmp_path / "link").symlink_to("policy")
    assert foreign_content(tmp_path / "link") == "is a link to 'policy'"
    monkeypatch.chdir(out)
    assert "is the current directory" in foreign_content(Path("x/.."))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_tarball_replaces_only_tarballs(run, bundle, in_tmp):
    words = ("deploy", f"policy={bundle}")
    code, _, err = run(*words)
    assert code == 0, err
    (tarball,) = (in_tmp / "deploy").iterdir()
    assert run(*words)[0] == 0
    tarball.write_text("precious")
    code, _, err = run(*words)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "is not a tarball of robot-rl deploy" in err
    assert tarball.read_text() == "precious"
    assert [path.name for path in (in_tmp / "deploy").iterdir()] == [tarball.name]
    code, _, err = run(*words, f"to={tarball}")
    assert (code, f"to={tarball}: {tarball} is not a directory" in err) == (2, True)


def test_the_form_of_facts_is_tried_and_a_foreign_folder_is_refused(run, in_tmp):
    (in_tmp / "policy").mkdir()
    (in_tmp / "policy" / "photo.jpg").write_text("precious")
    code, _, err = run("import-mjlab", "policy=x.onnx")
    assert (code, "out=policy: holds 'photo.jpg'" in err) == (2, True)


# -- what is read ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [("latency", "pipe.json"), ("latency", "pipe.mcap"), ("cross", "pipe.json"), ("deploy", "key=pipe.json")],
)
def test_a_pipe_is_refused_and_not_waited_for(run, in_tmp, words):
    for name in ("pipe.json", "pipe.mcap"):
        os.mkfifo(in_tmp / name)
    code, _, err = run(*words)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "pipe" in err


def test_a_pipe_is_no_key(run, bundle, in_tmp):
    pytest.importorskip("cryptography")
    shutil.copytree(bundle, in_tmp / "policy")
    os.mkfifo(in_tmp / "pipe")
    for words in (("policy=policy",), ("run=latest",)):  # before it looks for the run
        code, _, err = run("sign", *words, "key=pipe")
        assert (code, len(err.splitlines())) == (2, 1)
        assert "the key 'pipe' is a directory, pipe or device" in err
    (in_tmp / "policy" / "SHA256SUMS.sig").write_bytes(b"x")
    with pytest.raises(ContractError, match="is a directory, pipe or device"):
        read_bundle(in_tmp / "policy", signed_by=in_tmp / "pipe")


def test_a_link_to_a_report_is_read(run, in_tmp):
    (in_tmp / "real.json").write_text(json.dumps({"latencies": 1}))
    (in_tmp / "link.json").symlink_to("real.json")
    assert "link.json: has no 'latencies'" in run("latency", "link.json", "out=x.json")[2]
