"""robot-rl export: writes the policy bundle of a run and checks it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.cli.options import describe, option, read_all


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl export."""

    run: str = option("latest", "the run: its id, latest or <task>/latest")
    root: str = option("runs", "where runs are")
    out: str = option("", "directory of the bundle; the run's policy/ by default")


HELP = f"""\
robot-rl export: write the policy bundle that goes to the robot, and check it

usage: robot-rl export [key=value ...]

{describe(Options)}

The bundle is policy.onnx (normalizer, scales and offsets inside), contract.json (joints, gains, limits, observations,
periods), golden.npz (a recorded sequence that every runtime replays before it moves) and SHA256SUMS.
"""


def run(arguments: Sequence[str]) -> int:
    """Exports the newest checkpoint."""
    from robot_rl_deploy.contract import TrainingSpec
    from robot_rl_deploy.export import export_policy

    from robot_rl.cli.settings import asked, load
    from robot_rl.learn.build import make_policy
    from robot_rl.run_dir import RunDir

    options = read_all(Options, arguments)
    run_dir = RunDir.find(options.run, options.root)
    cfg = load(run_dir, {"device": "cpu", "engine": "auto"})
    policy = make_policy(run_dir.path)
    commit = run_dir.read_config().get("git", {}).get("commit", "unknown")
    training = TrainingSpec(
        run_id=run_dir.run_id, task=cfg.task.name, git_commit=commit, iteration=policy.meta["iteration"]
    )
    env = cfg.make_env(num_envs=1)
    try:
        with asked():
            out = Path(options.out) if options.out else run_dir.policy
            report = export_policy(env, policy.actor, out, run=training)
    finally:
        env.close()
    print(f"{out}: {report.model_bytes / 1024:.0f} kB, digest {report.digest[:12]}")
    print(f"golden sequence replayed by ONNX Runtime: {report.replay}")
    return 0
