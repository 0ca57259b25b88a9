"""The project in a script: the same presets, files and bits as the command line, by functions; `import robot_rl as rr`.

    env = rr.make("go2_flat", num_envs=64)
    run = rr.train("cartpole", seed=1, ppo={"learning_rate": 5e-4})
    policy = rr.load(run)
    print(rr.evaluate(policy, episodes=20)["onnx"]["return"])
    rr.export(run)

Settings have the names of the command line. One in a group is given by the group, or with its dots:
`rewards={"action_rate": {"weight": -0.03}}` or `**{"rewards.action_rate.weight": -0.03}`. What is wrong is a
`robot_rl.errors.UserError` with one line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl_assets.robot import Robot as _Robot

from robot_rl.errors import UserError, suggest

if TYPE_CHECKING:
    from robot_rl_envs.env import Env
    from robot_rl_envs.task import Task

    from robot_rl.evaluation.policies import Policy as Acting
    from robot_rl.runs.policies import PolicySource
    from robot_rl.runs.run_dir import RunDir
    from robot_rl.runs.settings import TrainCfg

__all__ = ["Policy", "Robot", "Run", "evaluate", "export", "load", "make", "play", "train"]

EPISODES = 100
"""Fresh worlds of an evaluation, an episode each."""
FORMS = ("both", "torch", "onnx")


@dataclass(frozen=True, repr=False)
class Run:
    """A training, and its directory.

    Attributes:
        path: `runs/<task>/<run id>`, with run.yaml, metrics.jsonl, checkpoints/, its report and bundle.
    """

    path: Path

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.path.parent.name

    @property
    def run_id(self) -> str:
        """Its id, by which commands find it."""
        return self.path.name

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of its metrics, one an iteration."""
        from robot_rl.metrics.rows import read_row

        file = self.path / "metrics.jsonl"
        lines = file.read_bytes().split(b"\n") if file.is_file() else []
        return [row for line in lines if (row := read_row(line)) is not None]

    def __repr__(self) -> str:
        rows = self.metrics
        facts = [f"iteration {rows[-1]['iteration']:.0f}"] if rows else ["no iteration"]
        facts += [f"return {rows[-1]['episode/return']:.4g}"] if rows and "episode/return" in rows[-1] else []
        return f"<run {self.task}/{self.run_id}: {', '.join(facts)}>"


class Policy:
    """A trained policy, and the task that it is for.

    Attributes:
        source: the run or the bundle that has it.
    """

    def __init__(self, source: PolicySource) -> None:
        self.source = source

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.source.cfg.reference

    def make_env(self, num_envs: int = 1, seed: int = 0) -> Env:
        """Return worlds of its task, with the settings that it was trained with."""
        return self.source.cfg.make_env(num_envs=num_envs, seed=seed)

    def on(self, env: Env) -> Acting:
        """Return it for an environment: called with observations it returns actions (rows, num_actions)."""
        return self.source.load(env)

    def evaluate(
        self,
        *,
        episodes: int = EPISODES,
        seconds: float | None = None,
        form: str = "both",
        seed: int | None = None,
        steps: int = 0,
    ) -> dict[str, Any]:
        """Evaluate it in fresh worlds, the torch policy and the exported one side by side, as `robot-rl eval` does.

        Args:
            episodes: worlds, an episode each.
            seconds: longest episode [s], at most the task's own; None: 10.
            form: "torch", "onnx" or "both"; a bundle has only onnx.
            seed: of the worlds; None: one that no training uses.
            steps: with Gymnasium and Isaac Lab the longest episode [steps]; 0: its limit.

        Returns:
            The content of eval.json: "torch" and "onnx" (metric -> {"mean", "std"}), of a bundle only "onnx" and in
            Gymnasium and Isaac Lab only "torch"; "metrics" (their descriptions), "agreement" of both, and the settings.

        Raises:
            UserError: one of them is out of its range.
        """
        from robot_rl.evaluation import EVALUATION_SEED
        from robot_rl.sources.protocol import EvaluationCfg

        check_evaluation(episodes=episodes, seconds=seconds, form=form)
        cfg, seed = self.source.cfg, EVALUATION_SEED if seed is None else seed
        how = EvaluationCfg(episodes=episodes, seed=seed, seconds=seconds, steps=steps, form=form)
        result = cfg.source.evaluate(cfg.task, cfg.worlds(), self.source, how)
        made = {"task": cfg.task.name, "policy": self.source.run_id, "iteration": self.source.iteration}
        return result | made

    def __repr__(self) -> str:
        return f"<policy for {self.task}: {'run' if self.source.is_run else 'bundle'} {self.source.name}>"


class Robot(_Robot):
    """The facts of a robot; `from_file` drafts them from its own model."""

    __slots__ = ()

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        name: str = "",
        *,
        folder: str | Path | None = None,
        base: str = "auto",
        collision: str = "meshes",
        frequency: float = 5.0,
        damping: float = 1.0,
    ) -> Robot:
        """Draft a robot from a URDF or an MJCF file, as `robot-rl new robot NAME from=FILE` does.

        Args:
            path: the file.
            name: its name; that of the file by default.
            folder: the folder for its model; a new temporary one by default.
            base: "floating", "fixed" or "auto".
            collision: "meshes", "primitives" or "boxes".
            frequency: natural frequency of the joints with their gains [Hz].
            damping: their damping ratio.

        Raises:
            UserError: the file cannot be read, or no robot can be made of it.
        """
        from robot_rl.robots.draft import draft_robot, make_robot, write_files
        from robot_rl.robots.parts import Gains
        from robot_rl.robots.source import BASES
        from robot_rl.settings.checks import check_choice

        check_choice("base", base, BASES)
        source = Path(path).expanduser()
        name = name or source.stem
        draft, files = draft_robot(name, source, base=base, collision=collision, gains=Gains(frequency, damping))
        where = Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="robot-rl-"))
        if (where / "model.xml").exists():
            raise UserError("folder", where, "has a model.xml already", "name a new folder")
        write_files(where, files)
        made = make_robot(draft, name, where / "model.xml")
        return cls(**{field.name: getattr(made, field.name) for field in dataclasses.fields(made)})


def check_evaluation(*, episodes: int, seconds: float | None, form: str) -> None:
    """Raise UserError unless the settings of an evaluation are in their ranges; see `Policy.evaluate`."""
    if not isinstance(episodes, int) or isinstance(episodes, bool) or episodes < 1:
        raise UserError("episodes", episodes, "must be an integer of at least 1")
    if seconds is not None and not 0 < seconds <= 3600:
        raise UserError("seconds", seconds, "must be in (0, 3600]")
    if form not in FORMS:
        raise UserError("form", form, f"must be one of {', '.join(FORMS)}")


def make(task: str | Task, num_envs: int | None = None, *, seed: int = 1, **settings: Any) -> Env:
    """Return worlds of a task, with the presets of the command line.

    Args:
        task: the name of a task (`robot-rl list tasks`), "module:name", or a `robot_rl_envs.task.Task`.
        num_envs: worlds; the task's own number by default.
        seed: of all random streams.
        settings: other settings, such as device="cpu", engine="mujoco" or rewards={"track": {"weight": 2.0}}; of a
            Task those of `robot_rl_envs.make.make_env`.

    Raises:
        UserError: a setting does not exist or does not fit.
        ValueError: the same of a Task.
    """
    if not isinstance(task, str):
        from robot_rl_envs.make import make_env
        from robot_rl_envs.task import Task

        if not isinstance(task, Task):
            raise UserError("task", task, "must be the name of a task, or a robot_rl_envs.task.Task")
        return make_env(task, num_envs=num_envs or task.num_envs[0], seed=seed, **settings)
    given = {"seed": seed, **({} if num_envs is None else {"num_envs": num_envs}), **settings}
    return _resolve(task, given).make_env()


def train(task: str, *, seed: int = 1, **settings: Any) -> Run:
    """Train as `robot-rl train` does, in this process, and return the run; a run of that run_id is continued.

    Args:
        task: the name of a task, or "module:name".
        seed: of all random streams.
        settings: other settings, such as learner="ppo", max_iterations=100, root="runs".

    Raises:
        UserError: a setting does not exist or does not fit.
        robot_rl.errors.Interrupted: Ctrl-C ended it, after the state was saved.
    """
    from robot_rl.runs import training

    return Run(training.train(_resolve(task, {"seed": seed, **settings})).path)


def load(policy: str | Path | Run, *, root: str | Path = "runs", trust: bool = False, **settings: Any) -> Policy:
    """Return a policy: of a run, of a bundle, or one that comes with the project.

    Args:
        policy: a run, or its id or directory, or "latest"; the directory of a bundle; the name of a shipped policy.
        root: the directory of all runs.
        trust: import the code that its task names, although it was not made here.
        settings: changed settings of its task.

    Raises:
        UserError: it does not exist, or a setting does not fit.
    """
    from robot_rl.runs.policies import find_policy, list_policies

    name = str(policy.path if isinstance(policy, Run) else policy)
    is_run = (Path(name) / "run.yaml").is_file()
    is_bundle = name in (known := list_policies()) or (not is_run and any(Path(name).glob("**/contract.json")))
    if isinstance(policy, Run):
        root = policy.path.parent.parent
    run, bundle = ("", name) if is_bundle else (name, "")
    try:
        return Policy(find_policy(run, bundle, str(root), _dotted(settings), trust=trust))
    except UserError as error:
        if not str(error).startswith(f"run={name}: "):
            raise
        raise UserError(f"{error}; shipped policies: {suggest(name, known).removeprefix('known: ')}") from None


def evaluate(policy: Policy | Run | str | Path, **how: Any) -> dict[str, Any]:
    """Evaluate a policy in fresh worlds, and return its figures.

    Args:
        policy: a policy, or what `load` takes.
        how: the arguments of `Policy.evaluate`: episodes, seconds, form, seed, steps.
    """
    return (policy if isinstance(policy, Policy) else load(policy)).evaluate(**how)


def play(
    policy: Policy | Run | str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    seconds: float | None = None,
    seed: int = 0,
    worlds: int = 1,
    ready: Callable[[str], None] | None = None,
    root: str | Path = "runs",
) -> None:
    """Drive a policy in the browser until Ctrl-C, as `robot-rl play` does.

    Args:
        policy: a policy, or what `load` takes.
        host: address to listen on; only "0.0.0.0" lets other machines in.
        port: TCP port; 0 takes a free one.
        seconds: stop after this long [s].
        seed: of the worlds.
        worlds: so many side by side; one of them, which the page chooses, is driven.
        ready: called with the page's address; by default it is printed.
        root: the directory of all runs; the page can change to those of the same robot.
    """
    from robot_rl.metrics.rows import to_stderr
    from robot_rl.view.viewer.play import play as serve

    source = (policy if isinstance(policy, Policy) else load(policy, root=root)).source

    def tell(url: str) -> None:
        to_stderr(f"{source.name}: {url}  (Ctrl-C ends it)")

    with contextlib.closing(_Played(source, str(root), num_envs=worlds, seed=seed)) as played:
        more = {"policies": played.names, "load": played.load}
        serve(*played.first, host, port, ready=ready or tell, seconds=seconds, **more)


class _Played:
    """The policy that a page shows, and those of the same robot that it can change to.

    Attributes:
        first: the environment and the policy that the page begins with.
        names: of the policies; that one is the first.
    """

    def __init__(self, source: PolicySource, root: str, **worlds: Any) -> None:
        from robot_rl.runs.policies import list_policies, policies_of_robot

        self._made, self._worlds, self._root, self._trust = contextlib.ExitStack(), worlds, root, source.trust
        self.first = self._begin(source)
        robot = next(iter(self.first[0].crews.values())).scene.robot.name
        self._known = policies_of_robot(robot, source.cfg.task.name, root)
        shipped = {str(path): name for name, path in list_policies().items()}
        runs = {run.rpartition("/")[2]: name for name, (run, _) in self._known.items() if run}
        own = (runs if source.is_run else shipped).get(source.name, source.name)
        self.names, self._own = [own, *(name for name in self._known if name != own)], source

    def _begin(self, source: PolicySource) -> tuple[Any, Acting]:
        # A day: the user says when it is over.
        cfg = dataclasses.replace(source.cfg, task=dataclasses.replace(source.cfg.task, episode_length_s=86_400.0))
        with contextlib.ExitStack() as made:
            env = made.enter_context(contextlib.closing(cfg.make_env(**self._worlds)))
            policy = source.load(env)
            self._made.close()
            self._made = made.pop_all()
        return env, policy

    def load(self, name: str) -> tuple[Any, Acting]:
        """Return the environment and the policy of a name; those before are closed."""
        from robot_rl.runs.policies import find_policy

        here = {"device": "cpu", "engine": "auto"}
        is_own = name == self.names[0]
        return self._begin(
            self._own if is_own else find_policy(*self._known[name], self._root, here, trust=self._trust)
        )

    def close(self) -> None:
        self._made.close()


def export(run: Run | str | Path, out: str | Path | None = None, *, root: str | Path = "runs") -> Path:
    """Write the bundle of a run's newest checkpoint, check it, and return its directory; the run's policy/ by default.

    Raises:
        UserError: the run is damaged, or its policy reads values that no robot can measure.
    """
    from robot_rl.runs.export import export_run
    from robot_rl.runs.outputs import check_bundle

    run_dir = _find(run, root)
    folder = run_dir.policy if out is None else check_bundle("out", str(out))
    export_run(run_dir, folder)
    return folder


def _find(run: Run | str | Path, root: str | Path) -> RunDir:
    from robot_rl.runs.run_dir import RunDir

    return RunDir(run.path) if isinstance(run, Run) else RunDir.find(str(run), root)


def _resolve(task: str, settings: Mapping[str, Any]) -> TrainCfg:
    """Return a run's settings: the task's presets, changed."""
    from robot_rl.runs.settings import change, default_tree, resolve

    if not isinstance(task, str):
        raise UserError("task", type(task).__name__, "must be a name", "name your task module:name")
    given = dict(settings)
    tree = default_tree(task, str(given.get("device", "auto")), str(given.get("learner", "")))
    return resolve(change(tree, _dotted(given)))


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as values of the command line: paths as text, tuples as lists."""
    plain = {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}
