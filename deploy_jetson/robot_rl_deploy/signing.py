"""Signatures of bundles: Ed25519 over SHA256SUMS, raw, in SHA256SUMS.sig.

`openssl pkeyutl -verify -pubin -inkey KEY.pub -rawin -in SHA256SUMS -sigfile SHA256SUMS.sig` checks them as well. Keys
are PEM files: the private one PKCS #8 without a password, readable by its owner only, the public one next to it.
"""

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl_deploy.strict import ContractError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNATURE_BYTES, MAX_KEY_BYTES = 64, 2**12


class SigningError(ContractError):
    """A key cannot be read or written, or the library for signing is missing; one line."""


def make_key(path: Path) -> Path:
    """Generate a key and write it, with the public one next to it.

    Args:
        path: File of the private key; the public one's name is the same with ".pub" added.

    Returns:
        File of the public key.

    Raises:
        SigningError: One of the files exists or cannot be written.
    """
    _library()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key, public = Ed25519PrivateKey.generate(), public_of(path)
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    if public.exists():
        raise SigningError(f"the key '{public}' exists; name another file")
    _write_new(path, key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain), 0o600)
    _write_new(public, key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo), 0o644)
    return public


def public_of(path: Path) -> Path:
    """Return the path of the public key of a private one."""
    return path.with_name(path.name + ".pub")


def sign(data: bytes, key: Path) -> bytes:
    """Sign bytes.

    Args:
        data: What to sign.
        key: File of the private key.

    Returns:
        The signature, 64 bytes.

    Raises:
        SigningError: The key cannot be read, or is not an Ed25519 key.
    """
    return _private(key).sign(data)


def is_signed_by(data: bytes, signature: bytes, key: Path) -> bool:
    """Whether a signature is valid for some bytes.

    Args:
        data: What was signed.
        signature: The signature.
        key: File of the public key.

    Raises:
        SigningError: The key cannot be read, or is not an Ed25519 key.
    """
    public = _public(key)
    from cryptography.exceptions import InvalidSignature

    try:
        public.verify(signature, data)
    except InvalidSignature:
        return False
    return True


def _library() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        line = "signatures need the package cryptography, which is not installed; pip install 'robot-rl[sign]'"
        raise SigningError(line) from None


def _read(path: Path) -> bytes:
    try:
        # O_NONBLOCK: a pipe is refused, not waited for.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SigningError(f"the key '{path}' is a directory, pipe or device; a regular file is needed")
            return file.read(MAX_KEY_BYTES)
    except OSError as error:
        raise SigningError(
            f"the key '{path}' cannot be read ({error.strerror}); robot-rl sign new=FILE makes one"
        ) from None


def _private(path: Path) -> "Ed25519PrivateKey":
    _library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = _read(path)
    try:
        key = load_pem_private_key(data, password=None)
    except Exception as error:  # those of the library share no other base
        raise SigningError(f"the key '{path}' is not a private key in PEM without a password ({error})") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningError(f"the key '{path}' is not an Ed25519 key; robot-rl sign new=FILE makes one")
    return key


def _public(path: Path) -> "Ed25519PublicKey":
    _library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    data = _read(path)
    try:
        key = load_pem_public_key(data)
    except Exception as error:  # those of the library share no other base
        raise SigningError(f"the key '{path}' is not a public key in PEM ({error})") from None
    if not isinstance(key, Ed25519PublicKey):
        raise SigningError(f"the key '{path}' is not an Ed25519 key; a public key in PEM is needed")
    return key


def _write_new(path: Path, data: bytes, mode: int) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except OSError as error:
        raise SigningError(f"the key '{path}' cannot be written ({error.strerror}); name another file") from None
