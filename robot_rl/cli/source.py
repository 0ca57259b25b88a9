"""Where eval, video and play take a policy from: a run, or a bundle that comes with the project or lies in a folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.options import option
from robot_rl.errors import UserError

if TYPE_CHECKING:
    from robot_rl.cli.settings import TrainCfg
    from robot_rl.run_dir import RunDir

OVERRIDES_HELP = """\
Numbers of the task can be set by name as in training, such as commands.velocity.vx_hi=2 or sim.floor_friction=0.5.
"""


@dataclass(kw_only=True, slots=True)
class SourceOptions:
    """Options that say which policy."""

    run: str = option("", "the run: its id, latest or <task>/latest; the newest one by default")
    policy: str = option("", "instead of a run: a policy that comes with the project, or the folder of a bundle")
    root: str = option("runs", "where runs are")
    trust: bool = option(False, "import the module that the policy's task names, where it was not made here")


@dataclass(kw_only=True, slots=True)
class Source:
    """A policy, and the task it is for.

    Attributes:
        cfg: The settings it was trained with, or the task's defaults for a bundle.
        run_dir: The run; None for a bundle.
        bundle: The bundle's directory; None for a run.
        trust: Whether the user trusts the code that its task names.
    """

    cfg: "TrainCfg"
    run_dir: "RunDir | None"
    bundle: Path | None
    trust: bool = False

    @property
    def name(self) -> str:
        """The run's id or the bundle's directory."""
        return self.run_dir.run_id if self.run_dir is not None else str(self.bundle)

    def load(self, env: Any) -> Any:
        """The policy, ready to act in an environment.

        Args:
            env: The environment.

        Returns:
            For a run a function from observations to actions, for a bundle a `robot_rl_deploy.policy.BundlePolicy`.

        Raises:
            UserError: The checkpoint is missing or damaged.
            ContractError: The bundle is damaged.
        """
        if self.run_dir is not None:
            from robot_rl.learn.policy import make_policy

            return make_policy(self.run_dir.path, device=env.device)
        from robot_rl_deploy.policy import BundlePolicy

        assert self.bundle is not None
        names = [joint.name for joint in self.cfg.task.robot.joints]
        return BundlePolicy(self.bundle, env.num_envs, joint_names=names)


def task_of(options: SourceOptions) -> str:
    """The name of the task that the policy is for, whatever is or is not installed here.

    Args:
        options: Which policy.

    Raises:
        UserError: There is no such run or bundle.
        ContractError: The bundle is damaged.
    """
    from robot_rl.run_dir import RunDir

    if not options.policy:
        return str(RunDir.find(options.run or "latest", options.root).read_config()["config"].get("task"))
    from robot_rl_deploy.bundle import read_bundle

    from robot_rl.cli.policies import find_policy

    return str(read_bundle(find_policy(options.policy)).contract.training.task)


def find_source(options: SourceOptions, dotted: Mapping[str, Any]) -> Source:
    """The policy that the options name, with overrides of its task applied.

    Args:
        options: Which policy.
        dotted: Values of the task by dotted name.

    Raises:
        UserError: There is no such run or bundle, or an override does not fit.
        ContractError: The bundle is damaged.
    """
    from robot_rl.cli import tree as trees
    from robot_rl.cli.settings import default_tree, load, resolve
    from robot_rl.consent import require
    from robot_rl.run_dir import RunDir

    if not options.policy:
        run_dir = RunDir.find(options.run or "latest", options.root)
        return Source(cfg=load(run_dir, dotted, trust=options.trust), run_dir=run_dir, bundle=None, trust=options.trust)
    if options.run:
        raise UserError(f"run={options.run} and policy={options.policy}: name one of the two")
    from robot_rl.cli.policies import find_policy

    name = task_of(options)
    require({"task": name}, None, f"policy {options.policy}", trust=options.trust)
    cfg = resolve(trees.override(default_tree(name), dotted))
    return Source(cfg=cfg, run_dir=None, bundle=find_policy(options.policy))
