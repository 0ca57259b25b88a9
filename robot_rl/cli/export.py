"""Write the policy bundle that goes to the robot, and check it.

usage: robot-rl export [key=value ...]

{Options}

The bundle is policy.onnx (normalizer, scales and offsets inside), contract.json (joints, gains, limits, observations,
periods), golden.npz (a recorded sequence that every runtime replays before it moves) and SHA256SUMS. A bundle that is
there is replaced as a whole, its signature with it; a directory that holds anything else is refused. A team with
several policies has a bundle for each, in a folder of its name.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from robot_rl.cli.options import TaskRunOptions, option, read_all
from robot_rl.runs.outputs import check_bundle


@dataclass(kw_only=True, slots=True)
class Options(TaskRunOptions):
    """Options of robot-rl export."""

    out: str = option("", "directory of the bundle, new, empty or a bundle's; the run's policy/ by default")
    precision: str = option("", "another precision than the run's, by quantization after training; needs out=")
    opset: int = option(0, "version of the ONNX operators, for an older runtime; 0: that of the precision", least=0)


def run(arguments: Sequence[str]) -> int:
    """Export the newest checkpoint."""
    from robot_rl.runs.export import export_run

    options = read_all(Options, arguments)
    run_dir = options.find_run()
    out = check_bundle("out", options.out) if options.out else run_dir.policy
    report = export_run(run_dir, out, trust=options.trust, precision=options.precision, opset=options.opset or None)
    reports = {out / name: each for name, each in report.items()} if isinstance(report, dict) else {out: report}
    for folder, report in reports.items():
        training, replay = report.contract.training, report.replay
        print(f"{folder}: iteration {training.iteration} of {training.run_id}, {report.model_bytes / 1024:.0f} kB")
        print(f"  digest {report.digest}")
        if report.contract.precision:
            print(f"  precision {report.contract.precision.summary}")
        print(
            f"  checked: ONNX Runtime replays the golden sequence of {replay.steps} steps to {replay.action_error:.1e}"
        )
    return 0
