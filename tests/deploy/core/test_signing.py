"""Signed bundles: Python and C++ accept the same signature, and refuse every other one before the bundle is read."""

import shutil
import subprocess

import pytest
from robot_rl_deploy.bundle import sign_bundle
from robot_rl_deploy.policy import BundlePolicy
from robot_rl_deploy.signing import SigningError, is_signed_by, make_key, sign
from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.verify import verify_bundle

from robot_rl.cli.main import main


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Two keys: files of the private ones."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("mine", "other"):
        make_key(folder / name)
    return folder / "mine", folder / "other"


@pytest.fixture
def signed(toy_bundle, tmp_path, keys):
    bundle = tmp_path / "policy"
    shutil.copytree(toy_bundle, bundle)
    assert sign_bundle(bundle, keys[0]).stat().st_size == 64
    return bundle


def public(key):
    return key.with_name(key.name + ".pub")


def both(rt, bundle, key, line):
    """Both readers refuse a bundle with a line."""
    for read, error in ((verify_bundle, ContractError), (rt.read_bundle, rt.ContractError)):
        with pytest.raises(error, match=line):
            read(bundle, signed_by=key)
    with pytest.raises(ContractError, match=line):
        BundlePolicy(bundle, signed_by=key)


def test_the_right_signature_passes(rt, signed, keys):
    assert rt.read_bundle(signed, signed_by=public(keys[0])).golden_steps == 256
    assert verify_bundle(signed, signed_by=public(keys[0])).replay.steps == 256
    assert rt.read_bundle(signed).golden_steps == 256, "who asks for no signature does not need one"


def test_the_binary_accepts_signed_ones_alone(infer, signed, toy_bundle, keys):
    done = infer("--bundle", signed, "--signed-by", public(keys[0]), "--check")
    assert done.returncode == 0, done.stderr
    assert ", signed" in done.stdout
    refused = ((signed, keys[1], "is not a signature of"), (toy_bundle, keys[0], "SHA256SUMS.sig is missing"))
    for bundle, key, line in refused:
        done = infer("--bundle", bundle, "--signed-by", public(key), "--check")
        assert done.returncode == 3
        assert line in done.stderr


def test_another_key_is_refused(rt, signed, keys):
    both(rt, signed, public(keys[1]), "SHA256SUMS.sig is not a signature")


def test_no_signature_is_refused(rt, toy_bundle, keys):
    both(rt, toy_bundle, public(keys[0]), "SHA256SUMS.sig is missing")


@pytest.mark.parametrize(
    "change", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: b"", lambda data: bytes(64)]
)
def test_a_damaged_signature_is_refused(rt, signed, keys, change):
    path = signed / "SHA256SUMS.sig"
    path.write_bytes(change(path.read_bytes()))
    both(rt, signed, public(keys[0]), "is not a signature")


def test_a_changed_bundle_is_refused_although_its_hashes_fit(rt, signed, keys):
    sums = signed / "SHA256SUMS"
    sums.write_bytes(sums.read_bytes().replace(b"\n", b" \n", 1))
    both(rt, signed, public(keys[0]), "is not a signature")


def test_a_signature_that_is_a_link_is_refused(rt, signed, keys):
    path = signed / "SHA256SUMS.sig"
    path.rename(signed.parent / "sig")
    path.symlink_to(signed.parent / "sig")
    both(rt, signed, public(keys[0]), "is not a regular file")


def test_openssl_reads_the_signature(signed, keys):
    if not shutil.which("openssl"):
        pytest.skip("no openssl")
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", public(keys[0]), "-rawin"]
    files = ["-in", signed / "SHA256SUMS", "-sigfile", signed / "SHA256SUMS.sig"]
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", [b"", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", b"\xff" * 5000])
def test_a_key_that_is_none_is_named(rt, signed, tmp_path, text):
    key = tmp_path / "key.pub"
    key.write_bytes(text)
    with pytest.raises(rt.UserError, match=r"key.pub' is not an?"):
        rt.read_bundle(signed, signed_by=key)
    with pytest.raises(SigningError, match=r"key.pub' is not an?"):
        is_signed_by(b"", bytes(64), key)


def test_a_key_that_is_missing_or_of_another_kind_is_named(rt, signed, tmp_path):
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    with pytest.raises(rt.UserError, match="cannot be read"):
        rt.read_bundle(signed, signed_by=tmp_path / "none")
    with pytest.raises(SigningError, match="cannot be read"):
        sign(b"", tmp_path / "none")
    key = tmp_path / "ec.pub"
    spki = generate_private_key(SECP256R1()).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    key.write_bytes(spki)
    with pytest.raises(rt.UserError, match="is not an Ed25519 key"):
        rt.read_bundle(signed, signed_by=key)
    with pytest.raises(SigningError, match="is not an Ed25519 key"):
        is_signed_by(b"", bytes(64), key)


def test_the_command_line_signs(rt, toy_bundle, tmp_path, capsys, monkeypatch):
    bundle = tmp_path / "policy"
    shutil.copytree(toy_bundle, bundle)
    monkeypatch.chdir(tmp_path)
    assert main(["sign", "new=robot.key"]) == 0
    assert (tmp_path / "robot.key").stat().st_mode & 0o777 == 0o600
    assert main(["sign", f"policy={bundle}", "key=robot.key"]) == 0
    assert "--signed-by robot.key.pub --check" in capsys.readouterr().out
    assert rt.read_bundle(bundle, signed_by="robot.key.pub").golden_steps == 256
    for words, line in (
        (["new=robot.key"], "robot.key.pub' exists"),
        ([], "give key=<file>"),
        (["key=none", f"policy={bundle}"], "the key 'none' cannot be read"),
        (["key=robot.key", "policy=nowhere"], "no such bundle, and no directory"),
    ):
        assert main(["sign", *words]) == 2
        said = capsys.readouterr().err
        assert line in said
        assert said.count("\n") == 1
