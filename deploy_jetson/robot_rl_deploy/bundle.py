"""A bundle on disk: its files, and how to read them without trusting them."""

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from robot_rl_deploy import contract as contract_module
from robot_rl_deploy import golden as golden_module
from robot_rl_deploy.contract import Contract
from robot_rl_deploy.golden import Golden
from robot_rl_deploy.signing import is_signed_by, sign
from robot_rl_deploy.strict import ContractError, is_printable

CONTRACT, GOLDEN, MODEL, SUMS = "contract.json", "golden.npz", "policy.onnx", "SHA256SUMS"
FILES = (CONTRACT, GOLDEN, MODEL)
CERTIFICATE = "certificate.json"
SIGNATURE = "SHA256SUMS.sig"
OPTIONAL = (CERTIFICATE, SIGNATURE)
"""Files that a bundle need not have. SHA256SUMS names the certificate if there is one."""
NAMES = (*FILES, SUMS, *OPTIONAL)
MAX_BYTES = {CONTRACT: 2**20, GOLDEN: 512 * 2**20, MODEL: 512 * 2**20, SUMS: 2**12, SIGNATURE: 2**12}
MAX_BYTES |= {CERTIFICATE: 2**20}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The content of a bundle, each file read once.

    Attributes:
        contract: The contract.
        golden: The golden sequence.
        model: The ONNX file.
        digest: SHA-256 of SHA256SUMS in hexadecimal: it identifies the bundle.
        contract_digest: SHA-256 of contract.json; the network's file also contains it.
        certificate: Lines of certificate.json for people; empty without one.
    """

    contract: Contract
    golden: Golden
    model: bytes
    digest: str
    contract_digest: str
    certificate: tuple[str, ...] = ()


def read_bundle(directory: Path, *, signed_by: Path | None = None) -> Bundle:
    """Read a bundle and check files, hashes, contract and the shape of the golden sequence.

    Args:
        directory: Where the bundle is.
        signed_by: File of an Ed25519 public key; a bundle without that key's signature is refused.

    Returns:
        Its content.

    Raises:
        FileNotFoundError: The directory does not exist.
        ContractError: The bundle is damaged, or the directory contains other files.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise FileNotFoundError(f"policy bundle '{directory}': no such directory; robot-rl export writes one")
    names = sorted(path.name for path in directory.iterdir())
    for name in (*FILES, SUMS):
        if name not in names:
            raise ContractError(f"policy bundle '{directory}': {name} is missing; export the bundle again")
    for name in names:
        if name not in NAMES:
            raise ContractError(f"policy bundle '{directory}': {name!r} is not a file of a bundle; remove it")
    sums = _read(directory / SUMS)
    if signed_by is not None:
        _check_signature(directory, sums, signed_by)
    expected = _parse_sums(sums)
    content = {}
    if CERTIFICATE in names and CERTIFICATE not in expected:
        raise ContractError(f"policy bundle '{directory}': {SUMS} does not name {CERTIFICATE}; remove it")
    for name in expected:
        content[name] = _read(directory / name)
        if hashlib.sha256(content[name]).hexdigest() != expected[name]:
            raise ContractError(f"policy bundle '{directory}': {name} does not have the hash that {SUMS} gives")
    try:
        text = content[CONTRACT].decode()
    except UnicodeDecodeError as error:
        raise ContractError(f"{CONTRACT} is not UTF-8 ({error}); export the bundle again") from None
    contract = contract_module.loads(text)
    return Bundle(
        contract=contract,
        golden=golden_module.loads(content[GOLDEN], contract),
        model=content[MODEL],
        digest=hashlib.sha256(sums).hexdigest(),
        contract_digest=expected[CONTRACT],
        certificate=_certificate_lines(content[CERTIFICATE], expected[MODEL]) if CERTIFICATE in content else (),
    )


def foreign_content(directory: Path) -> str:
    """Return why a bundle must not be written to a directory: it contains something other than a bundle of ours.

    A bundle is identified by its list of files, and by contract.json or SHA256SUMS, of which one may be damaged or
    missing: an incomplete bundle can be written again.

    Args:
        directory: Where a bundle is to be written.

    Returns:
        A description such as "holds 'notes.txt', which is not a file of a bundle"; empty if a bundle can be written:
        the directory does not exist, is empty, or is a bundle.
    """
    directory = Path(directory)
    if directory.is_symlink():
        return f"is a link to '{os.readlink(directory)}'"
    if directory.name in ("", "..") or directory.resolve() == Path.cwd() or directory.is_mount():
        return "is the current directory, one above it or a mount point, which cannot be replaced"
    if not directory.exists():
        return ""
    if not directory.is_dir():
        return "is not a directory"
    names = sorted(path.name for path in directory.iterdir())
    for name in names:
        if name not in NAMES:
            return f"holds '{name}', which is not a file of a bundle"
        if not stat.S_ISREG((directory / name).lstat().st_mode):
            return f"holds '{name}', which is not a regular file"
    return "" if not names or _bears_our_mark(directory) else "holds files named as in a bundle, but is not a bundle"


def _bears_our_mark(directory: Path) -> bool:
    """Whether SHA256SUMS names files of a bundle, or contract.json is a contract; both are read leniently."""
    with contextlib.suppress(ContractError):
        if any(line.endswith(f"  {MODEL}".encode()) for line in _read(directory / SUMS).splitlines()):
            return True
    with contextlib.suppress(ContractError, ValueError, RecursionError):
        contract = json.loads(_read(directory / CONTRACT))
        return isinstance(contract, dict) and {"schema_version", "joints", "actions", "observations"} <= contract.keys()
    return False


def write_sums(directory: Path) -> None:
    """Write SHA256SUMS for the files of a bundle; `sha256sum -c` also reads it."""
    names = [*FILES, *([CERTIFICATE] if (directory / CERTIFICATE).exists() else [])]
    lines = [f"{hashlib.sha256((directory / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (directory / SUMS).write_text("".join(lines))


@contextlib.contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """Yield a new directory next to `out`, which takes its place at the end, and only without an exception.

    Raises:
        ContractError: `out` is something other than a bundle; it is unchanged.
        OSError: It cannot be written; the content of `out` is unchanged.
    """
    out = Path(out)
    _check_free(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        fresh = scratch / "new"
        fresh.mkdir()
        yield fresh
        _check_free(out)
        if out.exists():
            out.rename(scratch / "old")
        fresh.rename(out)
    finally:
        if not out.exists() and (scratch / "old").exists():
            (scratch / "old").rename(out)
        shutil.rmtree(scratch, ignore_errors=True)


def _check_free(out: Path) -> None:
    if found := foreign_content(out):
        raise ContractError(f"policy bundle '{out}': {found}; name another directory, or empty this one")


def add_certificate(directory: Path, certificate: bytes) -> Bundle:
    """Put a certificate into a bundle and name it in SHA256SUMS; an older one is replaced, a signature removed.

    Args:
        directory: Where the bundle is.
        certificate: Content of certificate.json.

    Returns:
        The bundle as it is now.

    Raises:
        ContractError: The bundle is damaged, or the certificate is of another network.
        OSError: It cannot be written; the bundle is unchanged.
    """
    read_bundle(directory)
    with replacing(directory) as fresh:
        for name in FILES:
            (fresh / name).write_bytes(_read(Path(directory) / name))
        (fresh / CERTIFICATE).write_bytes(certificate)
        write_sums(fresh)
        return read_bundle(fresh)


def _certificate_lines(data: bytes, model_digest: str) -> tuple[str, ...]:
    """Return the lines of a certificate; raise ContractError if it is damaged or of another network."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ContractError(f"{CERTIFICATE}: is not JSON; robot-rl certify writes it") from None
    if not isinstance(value, dict) or not isinstance(value.get("lines"), list) or "model" not in value:
        raise ContractError(f"{CERTIFICATE}: model or lines is missing; robot-rl certify writes it")
    if value["model"] != model_digest:
        raise ContractError(f"{CERTIFICATE} is of another network; robot-rl certify writes one of this")
    for line in value["lines"]:
        if not isinstance(line, str) or not is_printable(line):
            raise ContractError(f"{CERTIFICATE}: lines are not printable text; robot-rl certify writes it")
    return tuple(value["lines"])


def sign_bundle(directory: Path, key: Path) -> Path:
    """Sign a bundle; an older signature is replaced.

    Args:
        directory: Where the bundle is.
        key: File of an Ed25519 private key.

    Returns:
        File of the signature.

    Raises:
        ContractError: The bundle is damaged, or the key cannot be read.
        OSError: The signature cannot be written.
    """
    read_bundle(directory)
    path = Path(directory) / SIGNATURE
    signature = sign(_read(path.with_name(SUMS)), key)
    folder = path.parent.absolute()  # in the parent: a bundle contains no other file, not even after a kill
    handle, fresh = tempfile.mkstemp(prefix=f".{folder.name}-", dir=folder.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(signature)
        os.chmod(fresh, 0o644)
        os.replace(fresh, path)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise
    return path


def _check_signature(directory: Path, sums: bytes, key: Path) -> None:
    if not (directory / SIGNATURE).exists():
        raise ContractError(
            f"policy bundle '{directory}': {SIGNATURE} is missing, and only bundles signed by '{key}' are accepted; "
            "robot-rl sign writes it"
        )
    if not is_signed_by(sums, _read(directory / SIGNATURE), key):
        raise ContractError(
            f"policy bundle '{directory}': {SIGNATURE} is not a signature of {SUMS} by '{key}'; sign the bundle again"
        )


def _read(path: Path) -> bytes:
    most = MAX_BYTES[path.name]
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise ContractError(f"policy bundle: {path} is not a regular file; a bundle may contain only regular files")
        if status.st_size > most:
            raise ContractError(f"policy bundle: {path} has {status.st_size} bytes; {most} are the most")
        return path.read_bytes()
    except OSError as error:
        raise ContractError(f"policy bundle: {path} cannot be read ({error.strerror}); export it again") from None


def _parse_sums(data: bytes) -> dict[str, str]:
    sums: dict[str, str] = {}
    # Lines end only in "\n": readers must not disagree about the end of a line.
    for line in data.decode(errors="replace").removesuffix("\n").split("\n"):
        digest, separator, name = line.partition("  ")
        if name not in (*FILES, CERTIFICATE):
            raise ContractError(f"{SUMS} names {name!r}; it must name {', '.join(FILES)} and no path")
        if not separator or len(digest) != 64 or set(digest) - set("0123456789abcdef") or name in sums:
            raise ContractError(
                f"{SUMS}: the line of {name} is {line[:80]!r}; one line of 64 hexadecimal digits, two spaces, name"
            )
        sums[name] = digest
    for name in FILES:
        if name not in sums:
            raise ContractError(f"{SUMS} does not name {name}; export the bundle again")
    return sums
