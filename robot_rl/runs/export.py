"""The policy bundle of a run."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError
from robot_rl.runs.run_dir import RunDir
from robot_rl.runs.settings import load
from robot_rl.runs.trust import named_code
from robot_rl.sources.registry import refuse_unsupported

TRACE_S = 5.0
"""How long a policy is simulated to fit the grids of quantization after training [s]."""


def export_run(
    run_dir: RunDir, out: Path, *, trust: bool = False, precision: str = "", opset: int | None = None
) -> Any:
    """Write the bundle of a run's newest checkpoint, and return the report of its check.

    Several policies of a team have a bundle each, and the reports are those of each by name. In another `precision`
    than the run's the layers are quantized after training, to the observations in a few worlds; such a bundle
    cannot be in the place of the run's own. `opset` is the version of the ONNX operators, None that of the precision.

    Raises:
        UserError: The run or its checkpoint is damaged, the policy reads values that no robot can measure, or
            `opset` is too old for its precision.
        ContractError: Something else than a bundle is at `out`.
        OSError: The bundle cannot be written; an older one is unchanged.
    """
    from robot_rl_deploy.contract import TrainingSpec

    from robot_rl.learn.policy import make_policy

    record = run_dir.read_config()
    refuse_unsupported(str(record["config"].get("task")), "export")
    cfg = load(run_dir, {"device": "cpu", "engine": "auto"}, trust=trust)
    policy = make_policy(run_dir.path, code=named_code(cfg.tree))
    actor = policy.actor
    if precision and precision != cfg.learner.precision.mode:
        if out.resolve() == run_dir.policy.resolve():
            own = cfg.learner.precision.mode
            raise UserError(
                "precision", precision, f"the run has {own}", "give out= for a bundle that differs from its own"
            )
        actor = quantized_later(cfg, policy, precision)
    training = TrainingSpec(
        run_id=run_dir.run_id,
        task=cfg.reference,
        git_commit=record.get("git", {}).get("commit", "unknown"),
        iteration=policy.meta["iteration"],
    )
    groups = tuple(cfg.learner.actor_groups)
    about = {"groups": groups, "out": out, "training": training, "opset": opset}
    return cfg.source.export(cfg.task, cfg.worlds(), actor, **about)


def quantized_later(cfg: Any, policy: Any, precision: str) -> Any:
    """Return a run's policy in another precision, its grids fitted to its observations in a few worlds.

    Raises:
        UserError: The precision does not exist, or the policy has none.
    """
    from robot_rl.evaluation.policies import TRACED, Tracer
    from robot_rl.evaluation.rollout import EVALUATION_SEED, measure
    from robot_rl.learn.precision.conversion import in_precision
    from robot_rl.settings import PrecisionCfg, from_dict

    wanted = from_dict(PrecisionCfg, {"mode": precision}, prefix="precision.")
    if line := no_precision(cfg):
        raise UserError(line)
    worlds = dataclasses.replace(cfg.worlds(), num_envs=TRACED, seed=EVALUATION_SEED + 1)
    tracer = Tracer(policy)
    with contextlib.closing(cfg.source.make_env(cfg.task, worlds)) as env:
        measure(env, tracer, seconds=TRACE_S)
    return in_precision(policy.actor, wanted, tracer.outputs)


def no_precision(cfg: Any) -> str:
    """Return why the policy of a run with these settings lacks other precisions; empty if it has them."""
    learner = cfg.learner
    if cfg.source.name != "robot-rl":
        return f"task={cfg.reference}: precisions are compared of robot-rl's own tasks; omit that"
    if not learner.supports_precision or getattr(cfg.task, "robots", None):
        which = f"learner={learner.name}" if not learner.supports_precision else f"task={cfg.reference}: a team"
        return f"{which}: its policy is without other precisions; omit that"
    return ""


def exported(run_dir: RunDir, *, trust: bool = False) -> Path:
    """Return the bundle of a run's newest checkpoint, written now if it is missing or older; see `export_run`."""
    from robot_rl_deploy.bundle import read_bundle

    from robot_rl.learn.checkpoints.checkpoint import good_checkpoint

    newest = int(good_checkpoint(run_dir.path, lambda _: None).name)
    bundles = sorted(path.parent for path in run_dir.policy.glob("**/contract.json"))
    if not bundles or any(read_bundle(bundle).contract.training.iteration != newest for bundle in bundles):
        export_run(run_dir, run_dir.policy, trust=trust)
    return run_dir.policy
