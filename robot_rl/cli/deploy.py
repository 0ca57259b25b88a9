"""Pack bundle, runtime, settings and service into a tarball for a Jetson Thor.

usage: robot-rl deploy [key=value ...]

{Options}

A bundle of a robot that is among the assets must have its joints, limits no wider and gains within a factor of 5.
On the robot's computer: tar xf <robot>-<run id>.tar.gz, then ./build.sh compiles for JetPack 7 and replays the golden
sequence, ./doctor.sh looks at the machine, sudo ./install.sh installs the service. docs/robot.md has the whole walk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.cli.options import PolicyOptions, option, read_all
from robot_rl.errors import UserError
from robot_rl.runs.outputs import check_folder


@dataclass(kw_only=True, slots=True)
class Options(PolicyOptions):
    """Options of robot-rl deploy."""

    to: str = option("deploy", "directory of the tarball")
    transport: str = option("", "how the robot is reached; by default derived from its name")
    operator: str = option("", "the operator's input; by default that of the transport, a Unitree's remote control")
    onnxruntime: str = option("", "an aarch64 wheel of ONNX Runtime to put in, for a robot without internet")
    key: str = option("", "public key (PEM): the robot then accepts only bundles that are signed with it")
    runtime: str = option("", "folder of the runtime's sources; by default those of this robot-rl")


def run(arguments: Sequence[str]) -> int:
    """Write the tarball."""
    from robot_rl_deploy.bundle import read_bundle
    from robot_rl_deploy.tarball import Packing, write_tarball

    from robot_rl.runs.robot_facts import check_robot

    options = read_all(Options, arguments)
    packing = Packing(
        runtime=_existing("runtime", options.runtime),
        transport=options.transport,
        operator=options.operator,
        onnxruntime=_existing("onnxruntime", options.onnxruntime, is_file=True),
        public_key=_existing("key", options.key, is_file=True),
    )
    to = check_folder("to", options.to)
    bundle = options.find_bundle()
    check_robot(read_bundle(bundle, signed_by=packing.public_key).contract)
    try:
        tarball, report = write_tarball(bundle, to, packing)
    except FileNotFoundError as error:
        raise UserError(error) from None
    print(f"{tarball}: {report.contract.robot}, {tarball.stat().st_size / 1024:.0f} kB, bundle {report.digest}")
    folder = tarball.name.removesuffix(".tar.gz")
    print(f"  on the robot's computer: tar xf {tarball.name} && cd {folder} && ./build.sh")
    return 0


def _existing(name: str, text: str, *, is_file: bool = False) -> Path | None:
    if not text:
        return None
    if not Path(text).exists():
        raise UserError(name, text, "the file or folder does not exist")
    if is_file and not Path(text).is_file():
        raise UserError(name, text, "is not a plain file")
    return Path(text)
