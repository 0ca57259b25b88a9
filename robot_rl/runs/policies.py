"""Trained policies: a run's, those that come with the project, and bundles in a folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.errors import UserError, suggest
from robot_rl.evaluation.bundle_folders import policies_in
from robot_rl.files import read_json
from robot_rl.runs.export import exported
from robot_rl.runs.run_dir import MAX_CONFIG, RunDir
from robot_rl.runs.run_index import read_runs
from robot_rl.runs.settings import TrainCfg, change, default_tree, load, resolve, resolve_device
from robot_rl.runs.trust import named_code, require_trust

if TYPE_CHECKING:
    from robot_rl.evaluation.policies import Policy


@dataclass(kw_only=True, slots=True)
class PolicySource:
    """A policy, and the task it is for.

    Attributes:
        cfg: The settings it was trained with, or the task's defaults for a bundle.
        run_dir: The run; None for a bundle.
        bundle: The bundle's directory; None for a run.
        trust: Whether the user trusts the code that its task names.
        live: The torch policy, if its weights are not those of a checkpoint.
        iteration: How many iterations it was trained for; None if that is unknown, or it is not loaded.
    """

    cfg: TrainCfg
    run_dir: RunDir | None
    bundle: Path | None
    trust: bool = False
    live: Any = None
    iteration: int | None = None

    @property
    def name(self) -> str:
        """Return the run's id or the bundle's directory."""
        return self.run_dir.run_id if self.run_dir is not None else str(self.bundle)

    @property
    def title(self) -> str:
        """Return the name, of a run with its task, and the iteration if that is known."""
        name = self.name if self.run_dir is None else f"{self.run_dir.task}/{self.name}"
        return name if self.iteration is None else f"{name}, iteration {self.iteration}"

    @property
    def is_run(self) -> bool:
        """Return whether it is a run's, so that there is a torch policy."""
        return self.run_dir is not None

    @property
    def run_id(self) -> str:
        """Return the id of the run that it comes from, for a bundle from its contract."""
        if self.run_dir is not None:
            return self.run_dir.run_id
        assert self.bundle is not None
        return _training_of(self.bundle).run_id or str(self.bundle)

    def load(self, env: Any) -> "Policy":
        """Return the policy for an environment: of a run the torch policy, else that of the bundle or bundles.

        Raises:
            UserError: The checkpoint is missing or damaged.
            ContractError: The bundle is damaged, or is for another robot or another control period.
        """
        from robot_rl.evaluation.policies import load_policy

        return load_policy(self.bundle or self.torch_policy(env.device), env)

    def torch_policy(self, device: str | None = None) -> Any:
        """Return the torch policy on a device, by default that of the settings; None for a bundle."""
        if self.run_dir is None or self.live is not None:
            return self.live
        from robot_rl.learn.policy import make_policy

        found = make_policy(self.run_dir.path, device=device or self.cfg.device, code=named_code(self.cfg.tree))
        self.iteration = found.meta.get("iteration")
        return found

    def find_bundle(self) -> Path:
        """Return the bundle's directory; of a run its newest checkpoint's, exported now if it is missing."""
        if self.bundle is not None:
            return self.bundle
        assert self.run_dir is not None
        found = exported(self.run_dir, trust=self.trust)
        self.iteration = _training_of(found).iteration
        return found


def one_bundle(bundle: Path) -> Path:
    """Return the directory of a bundle; raise UserError if it has a bundle for each policy of a team."""
    if names := policies_in(bundle):
        raise UserError(
            "policy", bundle, "has a bundle for each policy of the team", f"name one: policy={bundle / names[0]}"
        )
    return bundle


def list_policies() -> dict[str, Path]:
    """Return the directories of the committed bundles by the names of their tasks."""
    from robot_rl_tasks import registry

    folder = Path(registry.__file__).parent
    return {path.parent.parent.name: path.parent for path in sorted(folder.glob("*/policy/contract.json"))}


def policies_of_robot(robot: str, task: str, root: str) -> dict[str, tuple[str, str]]:
    """Return the policies of a robot: shipped ones, and runs of their tasks or of `task`, the newest 30.

    Returns:
        Name to show -> the first two arguments of `find_policy`.
    """
    of = {name: read_json(path / "contract.json", MAX_CONFIG)["robot"] for name, path in list_policies().items()}
    found = {name: ("", name) for name, its in of.items() if its == robot}
    rows = read_runs(root) if Path(root).is_dir() else []
    for row in [row for row in rows if row.iterations[0] and row.task in (task, *found)][:30]:
        found[f"{row.labels.name or row.run_id} ({row.task})"] = (f"{row.path.parent.name}/{row.path.name}", "")
    return found


def _find(run: str, policy: str, root: str) -> RunDir | Path:
    """Return the run, or the directory of the bundle; raise UserError if it does not exist, or both are named."""
    if not policy:
        return RunDir.find(run or "latest", root)
    if run:
        raise UserError(f"run={run} and policy={policy}: name one of the two")
    return find_bundle(policy)


def find_one_bundle(run: str, policy: str, root: str, *, trust: bool = False) -> Path:
    """Return the directory of one bundle, exported now if a run has none; the arguments are those of `find_policy`."""
    place = _find(run, policy, root)
    return one_bundle(exported(place, trust=trust) if isinstance(place, RunDir) else place)


def find_bundle(name: str) -> Path:
    """Return the directory of a bundle by the name of a committed one or by its path."""
    known = list_policies()
    if name in known:
        return known[name]
    if Path(name).is_dir():
        return Path(name)
    raise UserError("policy", name, "no such bundle, and no directory of that name", suggest(name, known))


def find_policy(
    run: str, policy: str, root: str, changes: Mapping[str, Any] | None = None, *, trust: bool = False
) -> PolicySource:
    """Return the policy that a user names, with changes of its task's settings applied.

    Args:
        run: A run, as `RunDir.find` takes it; the newest if both are empty.
        policy: The name or directory of a bundle, instead of a run.
        root: The directory of all runs.
        changes: By dotted name. Without them a run of a GPU that is missing here runs on the available device.
        trust: Whether the user trusts the code that its task names.

    Raises:
        UserError: The run or bundle does not exist, both are named, or a change does not fit.
        ContractError: The bundle is damaged.
    """
    place = _find(run, policy, root)
    if isinstance(place, RunDir):
        cfg = load(place, {**_here(place), **(changes or {})}, trust=trust)
        return PolicySource(cfg=cfg, run_dir=place, bundle=None, trust=trust)
    training = _training_of(place)
    name = str(training.task)
    require_trust({"task": name}, None, f"policy {policy}", trust=trust)
    cfg = resolve(change(default_tree(name), changes or {}))
    return PolicySource(cfg=cfg, run_dir=None, bundle=place, trust=trust, iteration=training.iteration)


def _here(run_dir: RunDir) -> dict[str, str]:
    """Return the settings by which this machine runs a policy that was trained on a GPU it lacks."""
    device = str(run_dir.read_config()["config"].get("device", "auto"))
    try:
        resolve_device(device)
    except UserError:
        return {"device": "auto", "engine": "auto"} if device.startswith("cuda") else {}
    return {}


def find_task_name(run: str, policy: str, root: str) -> str:
    """Return the name of the task that a policy is for, installed here or not; see `find_policy`."""
    place = _find(run, policy, root)
    if isinstance(place, RunDir):
        return str(place.read_config()["config"].get("task"))
    return str(_training_of(place).task)


def _training_of(bundle: Path) -> Any:
    """Return the training facts of a bundle, or of the first one of a team's policies."""
    from robot_rl_deploy.bundle import read_bundle

    names = policies_in(bundle)
    return read_bundle(bundle / names[0] if names else bundle).contract.training
