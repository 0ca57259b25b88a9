"""A tarball with everything that a robot's computer needs: sources, bundle, settings, service, scripts.

The same inputs give the same bytes: files are sorted, and times, owners and the compressor's header are omitted.
"""

import gzip
import hashlib
import io
import itertools
import json
import os
import re
import shlex
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from robot_rl_deploy.bundle import FILES, OPTIONAL, SUMS, read_bundle
from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.verify import BundleReport, verify_bundle

JETSON = Path(__file__).parent / "jetson"
MANIFEST, MANIFEST_WITHIN = "MANIFEST.json", 8
SOURCES = (".cpp", ".h", ".py", ".cmake", ".txt", ".toml", ".md", ".idl")
"""Endings of the files that are the runtime's sources."""
TRANSPORTS = {"go2": "dds:unitree_go?interface=eth0", "h1": "dds:unitree_go?interface=eth0"}
TRANSPORTS |= {"g1": "dds:unitree_hg?interface=eth0"}
"""Transport by the end of the robot's name; the network card has to be set on site."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Options of the tarball.

    Attributes:
        runtime: Folder of the runtime's sources; None uses those next to this package.
        transport: Address of the robot, as in `robot-rl-infer --transport`; if empty, from the robot's name.
        operator: Address of the operator; if empty, through the robot over DDS (its remote control), else on this
            machine's loopback.
        onnxruntime: An aarch64 wheel of ONNX Runtime to put in; None lets the robot's computer download it.
        public_key: Ed25519 key (PEM) that the bundle must be signed with; None accepts any bundle.
    """

    runtime: Path | None = None
    transport: str = ""
    operator: str = ""
    onnxruntime: Path | None = None
    public_key: Path | None = None


def _policy_of(bundle: Path) -> list[str]:
    """Return the name of a team's policy, which is its folder's, if the team has several; else nothing."""
    several = len(list(bundle.resolve().parent.glob("*/contract.json"))) > 1
    return [bundle.resolve().name] if several else []


def write_tarball(bundle: Path, to: Path, packing: Packing | None = None) -> tuple[Path, BundleReport]:
    """Check a bundle and write the tarball for a robot's computer.

    Args:
        bundle: Directory of the bundle.
        to: Directory of the tarball, created if it is missing.
        packing: Options.

    Returns:
        The tarball, `<robot>-<run id>.tar.gz`, with `-<policy>` if a team has several, and the report of the
        bundle's check.

    Raises:
        FileNotFoundError: The bundle or the runtime's sources are not there.
        ContractError: The bundle must not move a robot, or is not signed with the key, or another file has the name.
        OSError: The tarball cannot be written; an older one is unchanged.
    """
    packing = packing or Packing()
    _check_addresses(packing)
    report = verify_bundle(bundle)
    if packing.public_key is not None:  # pack neither a bundle that the robot would refuse, nor a private key
        read_bundle(bundle, signed_by=packing.public_key)
    contract = report.contract
    parts = [contract.robot, contract.training.run_id, *_policy_of(bundle)]
    name = re.sub(r"[^A-Za-z0-9._-]", "_", "-".join(parts)).lstrip(".")
    files = _bundle_files(bundle) | _source_files(packing.runtime or find_runtime()) | _jetson_files()
    files["settings.json"] = (json.dumps(SETTINGS, indent=1) + "\n").encode()
    files["robot-rl.env"] = environment(contract.robot, packing).encode()
    files[MANIFEST] = _manifest(report)
    if packing.onnxruntime is not None:
        files[packing.onnxruntime.name] = _wheel(packing.onnxruntime)
    if packing.public_key is not None:
        files["key.pub"] = packing.public_key.read_bytes()
    sums = [f"{hashlib.sha256(data).hexdigest()}  {path}\n" for path, data in sorted(files.items())]
    files["SHA256SUMS"] = "".join(sums).encode()
    tarball = Path(to) / f"{name}.tar.gz"
    if os.path.lexists(tarball) and not is_tarball(tarball):
        raise ContractError(f"'{tarball}': is not a tarball of robot-rl deploy; name another directory, or remove it")
    tarball.parent.mkdir(parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(prefix=f".{name}-", dir=tarball.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(_pack(files, name))
        os.chmod(fresh, 0o644)
        os.replace(fresh, tarball)
    finally:
        Path(fresh).unlink(missing_ok=True)
    return tarball, report


def is_tarball(path: Path) -> bool:
    """Whether a file is a tarball of `write_tarball`, identified by its MANIFEST.json; links are not followed."""
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with tarfile.open(path, "r|gz") as archive:
            # Files are sorted, so the manifest is among the first.
            names = [entry.name.partition("/")[2] for entry in itertools.islice(archive, MANIFEST_WITHIN)]
    except (OSError, EOFError, tarfile.TarError, zlib.error):
        return False
    return MANIFEST in names


# For a first day: slow ramps, and tighter limits that a healthy robot does not approach. Other settings keep their
# defaults, such as the limit of joint speed: the impact of a foot would exceed a tighter one (docs/safety.md).
SETTINGS = {"stand_s": 4.0, "blend_s": 2.0, "limits": {"tilt_rad": 0.7, "temperature_c": 80.0}}


def environment(robot: str, packing: Packing) -> str:
    """Return the content of /etc/robot-rl/robot-rl.env: the options of the service that depend on the installation.

    Args:
        robot: Name of the robot in the contract.
        packing: Options.
    """
    transport = packing.transport
    if not transport:
        ends = [value for ending, value in TRANSPORTS.items() if robot.lower().endswith(ending)]
        transport = ends[0] if ends else "udp:127.0.0.1:9870"
    operator = packing.operator or ("robot" if transport.startswith("dds:") else "udp:127.0.0.1:9871")
    words = ["--transport", transport, "--operator", operator]
    if packing.public_key is not None:
        words += ["--signed-by", "/opt/robot-rl/current/key.pub"]
    return (
        "# Options of robot-rl-infer that depend on the installation. `ip link` shows the network card of the robot;\n"
        "# --cpu-writer and --cpu-policy select isolated cores (doctor.sh lists them).\n"
        f'ROBOT_RL_ARGS="{shlex.join(words)}"\n'
    )


def find_runtime() -> Path:
    """Return the folder of the runtime's sources: next to this package in a checkout, inside it if installed.

    Raises:
        FileNotFoundError: There is none.
    """
    here = Path(__file__).parent
    for folder in (here.parent / "runtime", here / "runtime"):
        if (folder / "CMakeLists.txt").is_file():
            return folder
    raise FileNotFoundError(f"{here.parent / 'runtime'}: the runtime's sources are missing; set runtime=")


def _bundle_files(bundle: Path) -> dict[str, bytes]:
    names = [*FILES, SUMS, *(name for name in OPTIONAL if (bundle / name).is_file())]
    return {f"bundle/{name}": (bundle / name).read_bytes() for name in names}


def _source_files(runtime: Path) -> dict[str, bytes]:
    files = {}
    for path in sorted(runtime.rglob("*")):
        place = path.relative_to(runtime)
        built = any(part.startswith((".", "build", "__pycache__")) for part in place.parts)
        if path.suffix in SOURCES and path.is_file() and not built:
            files[f"runtime/{place.as_posix()}"] = path.read_bytes()
    for name in ("CMakeLists.txt", "src/main.cpp"):
        if f"runtime/{name}" not in files:
            raise FileNotFoundError(f"{runtime / name}: missing in the runtime's sources")
    return files


def _jetson_files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(JETSON.iterdir()) if path.is_file()}


def _manifest(report: BundleReport) -> bytes:
    training = asdict(report.contract.training)
    about = {"robot": report.contract.robot, "bundle": report.digest, "training": training}
    return (json.dumps(about, indent=1) + "\n").encode()


def _wheel(path: Path) -> bytes:
    if not re.fullmatch(r"onnxruntime-.*aarch64.*\.whl", path.name):
        raise ContractError(f"onnxruntime={path}: must be an aarch64 wheel of ONNX Runtime, onnxruntime-...aarch64.whl")
    return path.read_bytes()


_ADDRESS = re.compile(r"(udp:[^:?\s]+:[1-9]\d{0,4}|shm:[\w-]{1,64}|dds:unitree_(go|hg))(\?[^\s?]+)?")
_OPERATOR = re.compile(r"robot|none|udp:[^:?\s]+:[1-9]\d{0,4}")


def _check_addresses(packing: Packing) -> None:
    """Refuse addresses that the robot would refuse at its start."""
    if packing.transport and not _ADDRESS.fullmatch(packing.transport):
        raise ContractError(
            f"transport={packing.transport}: must be udp:HOST:PORT, shm:NAME, dds:unitree_go or dds:unitree_hg"
        )
    if packing.operator and not _OPERATOR.fullmatch(packing.operator):
        raise ContractError(f"operator={packing.operator}: must be udp:HOST:PORT, robot or none")


def _pack(files: Mapping[str, bytes], folder: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{folder}/{path}")
            entry.size, entry.mode = len(data), 0o755 if path.endswith(".sh") else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(stream.getvalue(), compresslevel=6, mtime=0)
