"""A certificate in a bundle: hashes and signature cover it, and nothing else takes its place."""

import json
import shutil

import pytest
from robot_rl_deploy.bundle import CERTIFICATE, FILES, SIGNATURE, SUMS, add_certificate, read_bundle, sign_bundle
from robot_rl_deploy.signing import make_key
from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.tarball import _bundle_files


@pytest.fixture
def bundle(toy_bundle, tmp_path):
    """A bundle that may be changed."""
    return shutil.copytree(toy_bundle, tmp_path / "policy")


@pytest.fixture
def certificate(bundle):
    """The content of a certificate of the bundle's network."""
    digest = next(line.split()[0] for line in (bundle / SUMS).read_text().splitlines() if line.endswith("policy.onnx"))
    return json.dumps({"format": "robot_rl.certificate", "model": digest, "lines": ["delay: up to 0.03 s"]}).encode()


def test_a_certificate_is_read_with_the_bundle_and_names_it_anew(bundle, certificate):
    before = read_bundle(bundle)
    after = add_certificate(bundle, certificate)
    assert (before.certificate, after.certificate) == ((), ("delay: up to 0.03 s",))
    assert before.digest != after.digest
    assert before.contract == after.contract
    assert [path.name for path in bundle.parent.iterdir()] == ["policy"]


def test_a_changed_removed_or_unnamed_certificate_is_refused(bundle, certificate):
    sums = (bundle / SUMS).read_text()
    add_certificate(bundle, certificate)
    (bundle / CERTIFICATE).write_bytes(certificate.replace(b"0.03", b"0.09"))
    with pytest.raises(ContractError, match="does not have the hash"):
        read_bundle(bundle)
    (bundle / CERTIFICATE).unlink()
    with pytest.raises(ContractError, match="certificate.json cannot be read"):
        read_bundle(bundle)
    (bundle / CERTIFICATE).write_bytes(certificate)
    (bundle / SUMS).write_text(sums)
    with pytest.raises(ContractError, match="SHA256SUMS does not name certificate.json"):
        read_bundle(bundle)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ({"model": "0" * 64, "lines": []}, "of another network"),
        ({"lines": []}, "model or lines is missing"),
        ({"lines": ["\x1b[2J"], "model": None}, "not printable"),
    ],
)
def test_a_certificate_that_is_not_the_bundles_leaves_it_as_it_was(bundle, certificate, content, line):
    files = {path.name: path.read_bytes() for path in bundle.iterdir()}
    if "model" in content and content["model"] is None:
        content = content | {"model": json.loads(certificate)["model"]}
    with pytest.raises(ContractError, match=line):
        add_certificate(bundle, json.dumps(content).encode())
    assert {path.name: path.read_bytes() for path in bundle.iterdir()} == files


def test_a_signature_covers_the_certificate(bundle, certificate, tmp_path):
    pytest.importorskip("cryptography")
    public = make_key(tmp_path / "robot.key")
    sign_bundle(bundle, tmp_path / "robot.key")
    add_certificate(bundle, certificate)
    assert not (bundle / SIGNATURE).exists()
    sign_bundle(bundle, tmp_path / "robot.key")
    assert read_bundle(bundle, signed_by=public).certificate
    assert sorted(_bundle_files(bundle)) == sorted(f"bundle/{n}" for n in (*FILES, SUMS, CERTIFICATE, SIGNATURE))
