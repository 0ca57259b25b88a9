"""Adaptation of a policy to a robot while it runs.

Measure, learn, measure again: the robot follows commands without exploration; then it explores in real time, and PPO
learns from its steps (`robot_rl.learn.algorithms.ppo.off_policy_correction`), with a critic that was fitted in
simulation; then it follows the same commands again, by the mean of the last policies.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from robot_rl.errors import Interrupted, UserError
from robot_rl.runs.robot_facts import describe_robots
from robot_rl.settings import apply_overrides
from robot_rl.sim2sim.adapt.plants import PlantCfg, check_plant, make_plant
from robot_rl.sim2sim.adapt.robot import RobotCfg, RobotProcess
from robot_rl.sim2sim.adapt.source import RobotSource
from robot_rl.sim2sim.adapt.steps import POLICY, Joiner
from robot_rl.sim2sim.commands import ActionReader

if TYPE_CHECKING:
    from robot_rl.learn.networks.actor_critic import Actor
    from robot_rl.runs.policies import PolicySource
    from robot_rl.runs.run_dir import RunDir
    from robot_rl.runs.settings import TrainCfg

LEARNER: dict[str, Any] = {
    "symmetry": "none",
    "normalize_values": True,
    "save_interval": 5,
    "ppo.schedule": "fixed",
    "ppo.learning_rate": 2e-4,
    "ppo.entropy_coef": 0.0,
}
"""Settings of the learner: small steps, and no symmetry that a payload would break."""
SIMULATED, ROLLOUT, RATE = 256, 24, 1e-3
"""Worlds, steps of a rollout and step size with which the critic is fitted."""
WORLDS = 64
"""Worlds of the plant in which the policies before and after are compared."""
AVERAGED = 0.8
"""The policy that is kept is a running mean of those that acted, with this decay."""
GROUPS = ("actor_groups", "critic_groups")
"""Settings of the learner that a policy's run has in common with its adaptation."""
SEEN = 1e12
"""Observations that the actor's normalizer has seen: later ones do not move it."""


@dataclass(kw_only=True, slots=True)
class AdaptCfg:
    """Settings of an adaptation.

    Attributes:
        plant: The robot.
        minutes: Time that the robot explores [min].
        explore: Standard deviation of the exploration, of the raw action.
        segment_s: Length of a segment; weights are published as often [s].
        window: Segments of a rollout.
        measure_s: Time of the measurements before and after [s].
        fit: Iterations in simulation in which the critic is fitted.
        seed: Of robot and learner.
        settings: Settings of the binary.
        keep_log: Keep the robot's log of the exploration, some 30 MB a minute.
    """

    plant: PlantCfg = field(default_factory=PlantCfg)
    minutes: float = 10.0
    explore: float = 0.15
    segment_s: float = 20.0
    window: int = 5
    measure_s: float = 60.0
    fit: int = 30
    seed: int = 1
    settings: dict[str, float] = field(default_factory=dict)
    keep_log: bool = False

    @property
    def iterations(self) -> int:
        """Return the updates in the time that the robot explores."""
        return max(1, round(60.0 * self.minutes / self.segment_s) - self.window + 1)


class Adaptation:
    """An adaptation; `run` it.

    Attributes:
        run_dir: Its directory: rows, checkpoints, log, and at the end the bundle.
    """

    def __init__(
        self,
        source: PolicySource,
        changes: Mapping[str, Any],
        cfg: AdaptCfg,
        *,
        root: str = "runs",
        say: Callable[[str], None] = print,
    ) -> None:
        """Find the policy.

        Args:
            source: The policy.
            changes: Changed settings of the learner, by dotted name; those of the task are the source's already.
            cfg: The settings.
            root: The directory of all runs.
            say: Called with lines for the user.

        Raises:
            UserError: Its network is not a plain perceptron, or something requested is not available.
        """
        self.cfg, self._say = cfg, say
        self._steps: Callable[[], int] = int
        self._weights, self.train = prepare(source, changes, cfg, root)
        self.run_dir: RunDir

    def run(self) -> dict[str, Any]:
        """Measure, learn, measure again; return the results, and write them to adapt.json."""
        from robot_rl.files import write_json
        from robot_rl.runs.run_dir import RunDir

        self.run_dir = RunDir.create(self.train.root, self.train.task.name, self.cfg.seed)
        self.run_dir.write_config(self.train.tree, ["robot-rl", "adapt"], describe_robots(self.train.task))
        path = self.run_dir.path
        _, difference = make_plant(self.train.task, self.cfg.plant, path / "plant")
        self._say(f"plant={self.cfg.plant.name}: {difference} -> {path}")
        runner, critic = self._fit()
        actor = copy.deepcopy(runner.actor)
        first = self._bundle(actor, 0, path / "follow" / "000000")[1]
        before = self._measure(first, "before") | {"evaluated": self._evaluate(first)}
        learned = self._learn(actor, critic)
        after = self._measure(path / "policy", "after") | {"evaluated": self._evaluate(path / "policy")}
        result = {"plant": asdict(self.cfg.plant), "words": difference, "before": before, "after": after} | learned
        write_json(path / "adapt.json", result)
        return result

    def _fit(self) -> tuple[Any, dict[str, Any]]:
        """Fit a critic to the policy in simulation, with exploration; return the runner, and the critic's state."""
        from robot_rl.learn.trainer import Trainer

        changes = {"ppo.learning_rate": RATE, "num_steps": ROLLOUT, "staleness.max": 0}
        learner = apply_overrides(self.train.learner, changes)
        with contextlib.closing(self.train.make_env(num_envs=SIMULATED)) as env:
            # Each update gives the policy its first weights again.
            runner = Trainer(
                env, learner, seed=self.cfg.seed, observer=lambda _: load_actor(runner.actor, self._weights)
            )
            load_actor(runner.actor, self._weights)
            row = runner.train(self.cfg.fit)
            self._say(f"critic fitted in simulation: {row['env_steps']:.0f} steps, loss {row['loss/value']:.3f}")
            return runner, copy.deepcopy(runner.critic.state_dict())

    def _bundle(self, actor: Actor, version: int, out: Path) -> tuple[str, Path]:
        """Write the bundle of a policy; return its identity and its path."""
        from robot_rl_deploy.contract import TrainingSpec

        training = TrainingSpec(
            run_id=self.run_dir.run_id, task=self.train.reference, git_commit="unknown", iteration=version
        )
        groups = tuple(self.train.learner.actor_groups)
        report = self.train.source.export(
            self.train.task, self.train.worlds(1), actor, groups=groups, out=out, training=training
        )
        return report.digest, out

    def _robot(self, bundle: Path, name: str, **more: Any) -> RobotProcess:
        folder = self.run_dir.path / name
        folder.mkdir(parents=True, exist_ok=True)
        paths = {"run": self.run_dir.path, "bundle": bundle, "folder": folder}
        settings = {"plant": self.cfg.plant, "seed": self.cfg.seed, "settings": self.cfg.settings}
        return RobotProcess(RobotCfg(**{key: str(path.resolve()) for key, path in paths.items()}, **settings, **more))

    def _measure(self, bundle: Path, name: str) -> dict[str, Any]:
        """Let the robot follow commands without exploration; return its errors, falls and faults."""
        sums: dict[str, list[float]] = {}
        with contextlib.closing(self._robot(bundle, name, seconds=self.cfg.measure_s)) as robot:
            for row in robot.rows():
                for key, value in row["errors"].items() if row["phase"] == POLICY else ():
                    sums.setdefault(key, []).append(value)
        report = robot.report
        figures: dict[str, Any] = {key: sum(values) / len(values) for key, values in sums.items()}
        figures |= {key: report[key] for key in ("policy_s", "falls", "faults", "late_ticks")}
        shown = ", ".join(f"{key} {figures[key]:.3f}" for key in sums)
        stops = f"{figures['falls']} falls, {len(figures['faults'])} faults"
        self._say(f"{name}: {figures['policy_s']:g} s, {shown}, {stops}")
        return figures

    def _evaluate(self, bundle: Path) -> dict[str, float]:
        """Return the means of the metrics in many worlds of the plant: a minute of one robot is a rough measure."""
        from robot_rl.evaluation import EVALUATION_SEED, evaluate_run, evaluation_task

        task = evaluation_task(make_plant(self.train.task, self.cfg.plant, self.run_dir.path / "plant")[0])
        worlds = self.train.worlds(WORLDS, EVALUATION_SEED)
        summary = evaluate_run(lambda: self.train.source.make_env(task, worlds), policy=None, bundle=bundle)["onnx"]
        return {name: value["mean"] for name, value in summary.items() if value is not None}

    def _learn(self, actor: Actor, critic: Mapping[str, Any]) -> dict[str, Any]:
        """Let the robot explore, and learn from it; write the bundle; return the figures."""
        from robot_rl.learn.simulators.remote import RemoteWorlds
        from robot_rl.learn.trainer import Trainer

        path, follow = self.run_dir.path, (self.run_dir.path / "follow").resolve()
        log = path.resolve() / "robot.mcap"
        identity, bundle = self._bundle(actor, 0, follow / "000000")
        more = {"seconds": 0.0, "follow": str(follow), "log": str(log), "explore": self.cfg.explore}
        with contextlib.ExitStack() as stack:
            template = stack.enter_context(contextlib.closing(self.train.make_env(num_envs=2)))
            robot = stack.enter_context(contextlib.closing(self._robot(bundle, "robot", **more)))
            versions, reader = {identity: 0}, self._reader(bundle)
            segments = RobotSource(
                robot,
                Joiner(read_action=reader, version_of=versions, identity=identity, read_log=self._tail(log)),
                actor=actor,
                export=lambda policy, version, out: self._bundle(policy, version, out)[0],
                follow=follow,
                say=self._say,
                num_steps=self.train.learner.num_steps,
                window=self.cfg.window,
            )
            stack.callback(segments.close)
            if not self.cfg.keep_log:
                stack.callback(log.unlink, missing_ok=True)
            self._steps = lambda: segments.steps
            mean = Mean(self._show, lambda: segments.steps >= self.cfg.minutes * 60.0 / self.train.task.sim.step_dt)
            worlds = RemoteWorlds(template, self.cfg.window, segments)
            learner = Trainer(worlds, self.train.learner, run_dir=path, seed=self.cfg.seed, observer=mean)
            segments.is_stopping = lambda: learner.is_stopping
            load_actor(learner.actor, actor.state_dict())
            learner.critic.load_state_dict(critic)
            learner.settings = self.train.tree
            mean.begin(learner.actor)
            try:
                learner.train(self.cfg.iterations)
            except Interrupted as stop:
                if learner.iteration:
                    newest = max(follow.glob("[0-9]*"))
                    self._say(f"to go on from its newest policy: policy={newest}")
                raise Interrupted(None, learner.iteration, stop.signal, saved=False) from None
            load_actor(learner.actor, mean.weights)
            learner.save()
            self._bundle(learner.actor, learner.iteration, path / "policy")
            robot.request_stop()
            report = segments.finish()
        return {
            "minutes": self.cfg.minutes,
            "steps": segments.steps,
            "limited": segments.limited,
            "updates": learner.iteration,
            "bundles": report["binary"].get("bundles", []),
            "robot": {key: report[key] for key in ("policy_s", "falls", "faults", "late_ticks", "slipped_s")},
        }

    def _reader(self, bundle: Path) -> Callable[..., Any]:
        from robot_rl_deploy.bundle import read_bundle

        return ActionReader(read_bundle(bundle).contract, [j.name for j in self.train.task.robot.joints]).read

    def _tail(self, log: Path) -> Callable[[], list[Mapping[str, Any]]]:
        """Return a reader of the log as it grows."""
        from robot_rl.sim2sim.binary import load_runtime

        tail = load_runtime().LogTail(log)
        return lambda: tail.read(["/policy", "/command", "/event"])

    def _show(self, row: Mapping[str, float]) -> None:
        minutes = self._steps() * self.train.task.sim.step_dt / 60.0
        errors = ", ".join(f"{name.partition('/')[2]} {row[name]:.3f}" for name in ERRORS if name in row)
        age, effective = row["staleness/mean"], row["staleness/effective"]
        line = f"{minutes:5.1f} min: {errors}, reward {row['robot/reward']:.2f}; {age:.1f} versions behind, effective "
        self._say(f"{line}{effective:.0%}; limited in {row['robot/limited']:.1%} of steps")


ERRORS = ("robot/lin_vel_error", "robot/yaw_vel_error")


class Mean:
    """An observer that keeps a running mean of the policies, and ends the training when the time is over."""

    def __init__(self, show: Callable[[Mapping[str, float]], None], is_over: Callable[[], bool]) -> None:
        """Take a function that shows a row, and one that returns whether the time is over."""
        self._show, self._is_over = show, is_over
        self._actor: Any = None
        self.weights: dict[str, Any] = {}

    def begin(self, actor: Actor) -> None:
        """Begin with a policy."""
        self._actor, self.weights = actor, copy.deepcopy(actor.state_dict())

    def __call__(self, row: dict[str, float]) -> bool:
        """Take the policy after an update; return whether the time is over."""
        self._show(row)
        for name, tensor in self._actor.state_dict().items():
            if tensor.is_floating_point():
                self.weights[name].lerp_(tensor, 1.0 - AVERAGED)
            else:
                self.weights[name].copy_(tensor)
        return self._is_over()


def prepare(
    source: PolicySource, changes: Mapping[str, Any], cfg: AdaptCfg, root: str
) -> tuple[dict[str, Any], TrainCfg]:
    """Return the weights of a policy's network, and the settings of a learner of that network.

    Task and rewards are those of the policy's run; of a bundle without one those of the task, with the changes.

    Raises:
        UserError: The network is not a plain perceptron, the robot does not fit the plant, or a setting is invalid.
    """
    from robot_rl.runs.bundle_teacher import bundle_actor
    from robot_rl.runs.settings import change, default_tree, resolve

    task, before = source.cfg.task, source.cfg.tree
    if task.robots:
        raise UserError("task", task.name, "a team does not adapt", "name a policy of one robot")
    if "velocity" not in task.commands:
        raise UserError(
            "task", task.name, "has no velocity command, by which policies are compared", "name another policy"
        )
    check_plant(task, cfg.plant)
    defaults = source.cfg.source.defaults(source.cfg.reference, "cpu")
    tree = default_tree(source.cfg.reference, "cpu", "ppo")
    tree |= {key: before[key] for key in (*defaults.settings, *GROUPS) if key in before and key != "metrics"}
    given = {key: value for key, value in changes.items() if key.partition(".")[0] not in defaults.settings}
    change(tree, given)  # A name that does not exist is refused before anything is done.
    tensors, network = bundle_actor(source.find_bundle())
    settings = {
        **LEARNER,
        "device": "cpu",
        "engine": "mujoco",
        "seed": cfg.seed,
        "root": root,
        "num_steps": round(cfg.segment_s / task.sim.step_dt),
        "max_iterations": cfg.iterations,
        "staleness.max": cfg.window + 2,
        "actor.hidden": network["hidden"],
        "actor.activation": network["activation"],
        **{f"actor.{name}": cfg.explore for name in ("init_std", "min_std", "max_std")},
    }
    return tensors, resolve(change(tree, {**settings, **given}))


@torch.no_grad()
def load_actor(actor: Actor, weights: Mapping[str, Any]) -> None:
    """Give an actor the weights of another of the same architecture, but for the deviation, and keep its normalizer."""
    network = {name: tensor for name, tensor in weights.items() if not name.startswith("distribution.")}
    missing, unknown = actor.load_state_dict(network, strict=False)
    if wrong := [name for name in missing if not name.startswith("distribution.")] + unknown:
        raise UserError(f"actor: the task's network is of another kind than the policy's ({wrong[0]}); set actor.*")
    if actor.normalizer is not None:
        actor.normalizer.count.fill_(int(SEEN))
