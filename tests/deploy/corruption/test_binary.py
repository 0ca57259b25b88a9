"""Damaged and forged bundles: `robot-rl-infer --check` refuses every one that Python refuses, and names the culprit."""

import hashlib
import json
import os
import re
import shutil

import numpy as np
import pytest
from robot_rl_deploy.bundle import CERTIFICATE, MODEL, write_sums
from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.verify import verify_bundle

from tests.deploy.conftest import load

unit = load("unit/deploy/test_corruption.py")

REFUSED, BAD_INPUT = 3, 2
# Where the two say it in other words.
CORE_WORDS = {
    "joint renamed": "fallback_pose|action of 'hip'",
    "gain is NaN": r"joints\[0\].kp is nan",
    "hash list no text": "SHA256SUMS names",
    "operators of its own": "operators of .'com.example'|com.example",
    "objects in the sequence": "golden.npz cannot be read",
}


def turned(*path, change):
    """Change one value of the contract, such as a sign."""

    def apply(data):
        place = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = change(place[path[-1]])

    return unit.edit_contract(apply)


def as_folder(bundle):
    (bundle / "golden.npz").unlink()
    (bundle / "golden.npz").mkdir()


def as_pipe(bundle):
    (bundle / "contract.json").unlink()
    os.mkfifo(bundle / "contract.json")


def sub_folder(bundle):
    (bundle / "..policy").mkdir()


def sums_link(bundle):
    target = bundle.parent / "sums"
    (bundle / "SHA256SUMS").rename(target)
    (bundle / "SHA256SUMS").symlink_to(target)


def sparse(model):
    node = model.graph.node[0]
    attribute = node.attribute.add(name="sparse")
    attribute.sparse_tensor.values.name = "hidden"


def own_function(model):
    model.functions.add(name="Evil", domain="")


def training_graph(model):
    model.training_info.add().initialization.name = "start"


def other_width(model):
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 31


def half_precision(model):
    model.graph.input[0].type.tensor_type.elem_type = 10


def compressed(bundle):
    with np.load(bundle / "golden.npz") as stored:
        arrays = dict(stored)
    np.savez_compressed(bundle / "golden.npz", **arrays)
    unit.write_sums(bundle)


def swap_terms(data):
    terms = data["observations"]
    terms[3]["history"], terms[4]["history"] = 3, 2


MORE = {
    "gyro in degrees": (
        turned("observations", 0, "scale", change=lambda scale: scale * 57.29578),
        "observation 'gyro'",
    ),
    "gravity's sign": (turned("observations", 1, "scale", change=lambda scale: -scale), "observation 'gravity'"),
    "histories exchanged": (unit.edit_contract(swap_terms), "observation 'joint_pos'|joint_vel"),
    "kp of zero": (turned("joints", 0, "kp", change=lambda kp: 0.0), "action of 'hip': kind"),
    "no effort": (turned("joints", 0, "effort_limit", change=lambda limit: 0.0), "effort_limit is 0"),
    "pose outside the limits": (turned("fallback_pose", "knee", change=lambda pose: 0.3), "fallback_pose.knee"),
    "period of no whole steps": (turned("control_period_s", change=lambda period: 0.017), "control_period_s"),
    "a file is a folder": (as_folder, "golden.npz is not a regular file"),
    "a file is a pipe": (as_pipe, "contract.json is not a regular file"),
    "a folder besides": (sub_folder, "'..policy' is not a file of a bundle"),
    "the hash list a link": (sums_link, "SHA256SUMS is not a regular file"),
    "a sparse tensor": (unit.edit_model(sparse), "sparse tensor"),
    "a function": (unit.edit_model(own_function), "functions"),
    "a training graph": (unit.edit_model(training_graph), "functions"),
    "an input of another width": (unit.edit_model(other_width), "policy.onnx"),
    "an input of another type": (unit.edit_model(half_precision), "policy.onnx"),
    "a sequence that is packed": (compressed, "is compressed"),
}


def certified(change):
    """A certificate in the bundle, changed after its hashes were written or before."""

    def mutate(bundle):
        digest = hashlib.sha256((bundle / MODEL).read_bytes()).hexdigest()
        text = json.dumps({"model": digest, "lines": ["delay: up to 0.03 s"]})
        (bundle / CERTIFICATE).write_text(text.replace(*change))
        write_sums(bundle)
        if change[0] == "0.03":
            (bundle / CERTIFICATE).write_text(text)

    return mutate


MORE |= {
    "a changed certificate": (certified(("0.03", "0.09")), "certificate.json does not have the hash"),
    "a certificate of another network": (certified(('"model": "', '"model": "0')), "is of another network"),
    "a certificate without lines": (certified(("lines", "words")), "model or lines is missing"),
}


@pytest.fixture
def damaged(toy_bundle, tmp_path):
    def make(mutate):
        bundle = tmp_path / "policy"
        shutil.copytree(toy_bundle, bundle)
        mutate(bundle)
        return bundle

    return make


@pytest.mark.parametrize("name", [*unit.MUTATIONS, *MORE])
def test_a_damaged_bundle_is_refused_by_both(damaged, infer, name):
    mutate, line = (unit.MUTATIONS | MORE)[name]
    bundle = damaged(mutate)
    with pytest.raises(ContractError, match=line):
        verify_bundle(bundle)
    done = infer("--bundle", bundle, "--check")
    assert done.returncode == REFUSED, done
    assert "may move" not in done.stdout
    assert done.stderr.count("\n") == 1
    assert re.search(CORE_WORDS.get(name, line), done.stderr), done.stderr


def test_the_suite_is_large_enough():
    assert len(unit.MUTATIONS) + len(MORE) >= 30


def test_a_bundle_in_order_passes(infer, toy_bundle, go2_bundle, cartpole_bundle):
    for bundle, robot in ((toy_bundle, "toy"), (go2_bundle, "unitree_go2"), (cartpole_bundle, "cartpole")):
        done = infer("--bundle", bundle, "--check")
        assert done.returncode == 0, done.stderr
        assert robot in done.stdout
        assert "may move a robot" in done.stdout


def test_no_bundle_is_bad_input(infer, tmp_path):
    done = infer("--bundle", tmp_path / "nothing", "--check")
    assert done.returncode == BAD_INPUT
    assert "no such directory" in done.stderr


def test_a_network_that_is_cut_anywhere_is_refused(rt, toy_bundle):
    """Every length of the file's first 300 bytes, and every 97th from there on; a truncated one is not a policy."""
    model = (toy_bundle / "policy.onnx").read_bytes()
    contract = rt.read_contract((toy_bundle / "contract.json").read_bytes())
    digest = rt.sha256((toy_bundle / "contract.json").read_bytes())
    rt.check_model(model, contract, digest)
    for size in [*range(300), *range(300, len(model), 97)]:
        with pytest.raises(rt.ContractError):
            rt.check_model(model[:size], contract, digest)


def test_the_check_prints_a_certificate(infer, damaged):
    done = infer("--bundle", damaged(certified(("", ""))), "--check")
    assert done.returncode == 0, done.stderr
    assert "  certificate: delay: up to 0.03 s\n" in done.stdout
