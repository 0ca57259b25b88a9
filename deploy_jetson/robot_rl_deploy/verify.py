"""The check of a bundle, for the command line and for every start of a policy."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from robot_rl_deploy.bundle import read_bundle
from robot_rl_deploy.contract import Contract
from robot_rl_deploy.policy import open_session
from robot_rl_deploy.replay import ReplayReport


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleReport:
    """Report of a bundle that passed the check.

    Attributes:
        contract: The contract.
        digest: SHA-256 of SHA256SUMS in hexadecimal.
        model_bytes: Size of the network's file.
        replay: Result of the golden replay.
    """

    contract: Contract
    digest: str
    model_bytes: int
    replay: ReplayReport

    def to_dict(self) -> dict[str, Any]:
        """Return the report's figures for JSON or a table; "precision" is missing for a network in fp32."""
        training = asdict(self.contract.training)
        sizes = {"observation_size": self.contract.layout.observation_size, "joints": len(self.contract.joints)}
        figures = {"robot": self.contract.robot, "digest": self.digest, "model_bytes": self.model_bytes}
        found = figures | sizes | {"training": training, "replay": asdict(self.replay)}
        if (precision := self.contract.precision) is not None:
            counts = {"layers": len(precision.layers), "rounded": len(precision.rounded)}
            found["precision"] = {"mode": precision.mode, "action_bound": precision.action_bound} | counts
        return found


def verify_bundle(directory: Path, *, signed_by: Path | None = None) -> BundleReport:
    """Check files, hashes, contract and network, and replay the golden sequence.

    Args:
        directory: Where the bundle is.
        signed_by: File of an Ed25519 public key; a bundle without that key's signature is refused.

    Returns:
        The report.

    Raises:
        FileNotFoundError: The directory does not exist.
        ContractError: Something is wrong; the line names it.
    """
    bundle = read_bundle(Path(directory), signed_by=signed_by)
    _, report = open_session(bundle)
    return BundleReport(contract=bundle.contract, digest=bundle.digest, model_bytes=len(bundle.model), replay=report)
