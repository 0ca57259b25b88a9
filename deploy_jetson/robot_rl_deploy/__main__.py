"""Check a policy bundle: its files, hashes, contract and network, and the golden sequence.

usage: robot-rl-bundle FOLDER [PUBLIC_KEY]

With the file of an Ed25519 public key, a bundle without that key's signature is refused.
"""

import sys
from pathlib import Path

from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.verify import verify_bundle


def main() -> int:
    """Print the bundle's facts, or the line that says why it is refused; return the exit code."""
    words = sys.argv[1:]
    if not 1 <= len(words) <= 2 or {"-h", "--help"} & {*words}:
        print((__doc__ or "").rstrip())
        return 0 if {"-h", "--help"} & {*words} else 2
    try:
        report = verify_bundle(Path(words[0]), signed_by=Path(words[1]) if words[1:] else None)
    except (ContractError, OSError) as error:
        print(f"robot-rl-bundle: {error}", file=sys.stderr)
        return 2
    found, replay = report.contract, report.replay
    errors = f"observations within {replay.observation_error:.1g}, actions within {replay.action_error:.1g}"
    print(f"{words[0]}: {found.robot}, {len(found.joints)} joints, an action every {found.control_period_s:g} s")
    print(
        f"  {found.layout.observation_size} observations, {report.model_bytes / 1e6:.2f} MB,"
        f" digest {report.digest[:16]}"
    )
    print(f"  golden sequence of {replay.steps} steps reproduced: {errors}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
