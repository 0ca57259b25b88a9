"""robot-rl export: writes the policy bundle of a run and checks it."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.options import describe, option, read_all
from robot_rl.cli.outputs import check_bundle
from robot_rl.errors import UserError

if TYPE_CHECKING:
    from robot_rl.run_dir import RunDir


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl export."""

    run: str = option("latest", "the run: its id, latest or <task>/latest")
    root: str = option("runs", "where runs are")
    trust: bool = option(False, "import the module that the run's task names, where the run was not made here")
    out: str = option("", "directory of the bundle, new, empty or a bundle's; the run's policy/ by default")


HELP = f"""\
robot-rl export: write the policy bundle that goes to the robot, and check it

usage: robot-rl export [key=value ...]

{describe(Options)}

The bundle is policy.onnx (normalizer, scales and offsets inside), contract.json (joints, gains, limits, observations,
periods), golden.npz (a recorded sequence that every runtime replays before it moves) and SHA256SUMS. A bundle that is
there is replaced as a whole, its signature with it; a directory that holds anything else is refused.
"""


def run(arguments: Sequence[str]) -> int:
    """Exports the newest checkpoint."""
    from robot_rl.run_dir import RunDir

    options = read_all(Options, arguments)
    run_dir = RunDir.find(options.run, options.root)
    out = check_bundle("out", options.out) if options.out else run_dir.policy
    report = export_run(run_dir, out, trust=options.trust)
    training, replay = report.contract.training, report.replay
    print(f"{out}: iteration {training.iteration} of {training.run_id}, {report.model_bytes / 1024:.0f} kB")
    print(f"  digest {report.digest}")
    print(f"  checked: ONNX Runtime replays the golden sequence of {replay.steps} steps to {replay.action_error:.1e}")
    return 0


def export_run(run_dir: "RunDir", out: Path, *, trust: bool = False) -> Any:
    """Writes the bundle of a run's newest checkpoint.

    Args:
        run_dir: The run.
        out: Directory of the bundle.
        trust: As `robot_rl.cli.settings.load` takes it.

    Returns:
        The report of its check, a `robot_rl_deploy.verify.BundleReport`.

    Raises:
        UserError: The run or its checkpoint is damaged, or the policy reads what no robot can measure.
        ContractError: Something else than a bundle is at `out`.
        OSError: The bundle cannot be written; an older one is as before.
    """
    from robot_rl_deploy.contract import TrainingSpec
    from robot_rl_deploy.export import export_policy

    from robot_rl.cli.gym import is_gym
    from robot_rl.cli.isaac import export_policy_there, is_isaac
    from robot_rl.cli.settings import asked, load
    from robot_rl.learn.policy import make_policy

    if is_gym(task := run_dir.read_config()["config"].get("task")):
        lacks = "names no robot's joints and sensors, so there is no contract to write; eval needs none"
        raise UserError(f"export: {task} {lacks}")
    cfg = load(run_dir, {"device": "cpu", "engine": "auto"}, trust=trust)
    policy = make_policy(run_dir.path)
    commit = run_dir.read_config().get("git", {}).get("commit", "unknown")
    training = TrainingSpec(
        run_id=run_dir.run_id, task=cfg.task.name, git_commit=commit, iteration=policy.meta["iteration"]
    )
    if is_isaac(cfg.task.name):
        with asked():
            return export_policy_there(cfg, policy.actor, out, training)
    with contextlib.closing(cfg.make_env(num_envs=1)) as env, asked():
        return export_policy(env, policy.actor, out, run=training)


def exported(run_dir: "RunDir", *, trust: bool = False) -> Path:
    """The bundle of a run's newest checkpoint, written now where there is none or an older one; see `export_run`."""
    from robot_rl_deploy.bundle import read_bundle

    from robot_rl.learn.checkpoints.checkpoint import good_checkpoint

    newest = int(good_checkpoint(run_dir.path, lambda _: None).name)
    if not run_dir.policy.is_dir() or read_bundle(run_dir.policy).contract.training.iteration != newest:
        export_run(run_dir, run_dir.policy, trust=trust)
    return run_dir.policy
