"""Sign a policy bundle, for robots that accept only signed ones.

usage: robot-rl sign new=robot.key
       robot-rl sign run=<id> key=robot.key

{Options}

The signature is Ed25519 over SHA256SUMS and is next to it, in SHA256SUMS.sig. With `--signed-by robot.key.pub`
`robot-rl-infer` refuses every other bundle. Whoever has the private key can sign: keep it off the robot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.cli.options import PolicyOptions, option, read_all
from robot_rl.errors import UserError


@dataclass(kw_only=True, slots=True)
class Options(PolicyOptions):
    """Options of robot-rl sign."""

    key: str = option("", "file of the private key to sign with")
    new: str = option("", "generate a key pair, the private key in this file, the public one in <file>.pub")


def run(arguments: Sequence[str]) -> int:
    """Sign a bundle, or generate a key."""
    from robot_rl_deploy.signing import make_key, public_of, sign
    from robot_rl_deploy.verify import verify_bundle

    options = read_all(Options, arguments)
    if bool(options.new) == bool(options.key):
        raise UserError("sign: give key=<file> to sign with, or new=<file> to generate one")
    if options.new:
        print(f"{options.new}: the private key, {make_key(Path(options.new))}: the public one")
        return 0
    from robot_rl_deploy.bundle import sign_bundle

    from robot_rl.runs.robot_facts import check_robot

    sign(b"", Path(options.key))  # a key that cannot be used is found before the work
    directory = options.find_bundle()
    report = verify_bundle(directory)
    check_robot(report.contract)
    path, key = sign_bundle(directory, Path(options.key)), Path(options.key)
    print(f"{path}: iteration {report.contract.training.iteration} of {report.contract.training.run_id}, signed")
    print(f"  digest {report.digest}")
    print(f"  a robot checks it: robot-rl-infer --bundle {directory} --signed-by {public_of(key)} --check")
    return 0
