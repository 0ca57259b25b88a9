"""Train a policy; any value of the task and the learner can be set by name.

usage: robot-rl train task=<name> [--config FILE] [key=value ...] [-m] [--cfg job]

tasks:
{tasks}
{patterns}

settings:
{RunCfg}
  max_iterations=     iterations of the training; each task has its own
  save_interval=      iterations between two checkpoints
  metrics.wandb=off  off, offline or online; JSON lines and TensorBoard are always written

Anything of the learner and of the task is set by name:
  ppo.learning_rate=1e-3  num_steps=24  symmetry=augment  actor.hidden=[128,128]
  rewards.track.weight=2  rewards.track.std=0.4      a term's weight and its parameters
  ~rewards.action_rate                               without that term
  observations.actor.terms.joint_pos.noise=0         noise, scale, clip, history of an observation
  commands.velocity.vx_hi=2.0                        ranges of the commands
  events.push.xy=1.0                                 randomization and pushes
  randomize.latency_from=<file>                      a robot's measured delay and jitter (docs/logs.md)
  randomize.identified_from=<file>                   a robot's identified joints and delay (docs/logs.md)
  sim.timestep=0.004  sim.decimation=5  episode_length_s=10
  learner=distill teacher.run=<run>                  imitate a run's policy, which may see more (docs/learner.md)
  learner=distill teacher.policy=panda_lift          imitate a shipped policy, or the bundle in a directory
  robot-rl train task=<name> --cfg job               prints every setting there is, with its value
  robot-rl train learner=<name> --help               describes every setting of a learner
  robot-rl train launcher=<name> --help              describes every setting of a launcher

a file of settings, which words of the command line replace:
  robot-rl train --config my.yaml seed=2             my.yaml: task: go2_flat
                                                     rewards: {action_rate: {weight: -0.02}}
                                                     ppo.learning_rate: 5e-4
  robot-rl train task=<name> --cfg job > my.yaml     writes one with every setting

{source_settings}
sweeps, one run after another, or as the launcher starts them:
  robot-rl train -m task=go2_flat seed=1,2,3 ppo.entropy_coef=0.002,0.01
  robot-rl train -m task=cartpole seed=1,2,3,4 num_threads=1 launcher=local launcher.at_once=2

searches by Optuna, which ends runs that are worse than others; the same command resumes one (docs/launchers.md):
  robot-rl train -m task=cartpole 'ppo.entropy_coef=tag(log,interval(1e-3,1e-1))' ppo.gamma=0.95,0.99 sweeper=optuna
  sweeper.trials=20  sweeper.jobs=1  sweeper.metric=  sweeper.direction=  sweeper.prune=true  sweeper.name=search

launchers, which start the processes of a run, or of each run of a sweep (docs/launchers.md):
{launchers}
  robot-rl train task=go2_flat num_envs=8192 launcher=torchrun launcher.ranks=2

Ctrl-C finishes the iteration, saves, and prints how to continue; SIGTERM, SIGUSR1 and SIGUSR2 (a scheduler's notices)
and SIGHUP (a dropped connection; nohup ignores it) do the same, with exit code 85 (docs/recovery.md). A terminal, pipe
or log file that is gone or full does not end the training: the output is dropped. The run directory contains run.yaml
(every setting, versions, git commit), metrics.jsonl, tb/ (TensorBoard) and checkpoints/; export, eval, video and report
add the rest. Each reward term is in metrics.jsonl, and drawn by robot-rl report and, while it trains, robot-rl board. A
world that breaks (its state is not finite, a buffer is full) is reset, counted, and recorded in quarantine/ for
inspect.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from robot_rl.cli.list import task_rows
from robot_rl.cli.table import two_columns
from robot_rl.errors import UserError
from robot_rl.settings.run import RunCfg
from robot_rl.sources.protocol import TaskSource
from robot_rl.sources.registry import list_sources

__all__ = ["RunCfg", "run"]

if TYPE_CHECKING:
    from robot_rl.cluster.search import SearchCfg, Space


def details(arguments: Sequence[str]) -> str:
    """Return the help of the settings of the learner and of the launcher that are given beside --help."""
    from robot_rl.cli.options import describe
    from robot_rl.cluster.launchers import get_launcher
    from robot_rl.learn.algorithms import get_learner

    given = dict(word.split("=", 1) for word in arguments if "=" in word)
    parts = []
    if "learner" in given:
        parts.append((f"learner={given['learner']}", get_learner(given["learner"]), ""))
    if "launcher" in given:
        parts.append((f"launcher={given['launcher']}", get_launcher(given["launcher"]), "launcher."))
    return "\n".join(f"settings of {name}:\n{describe(cls, prefix)}\n" for name, cls, prefix in parts)


def tasks() -> str:
    """Return a line for each task that can be listed."""
    return two_columns(task_rows())


def patterns() -> str:
    """Return a line for each source of tasks: how its tasks are written."""
    return two_columns([(source.pattern, source.summary) for source in _sources()])


def source_settings() -> str:
    """Return the help of the settings that only tasks of one source have."""
    return "\n".join(source.settings_help for source in _sources() if source.settings_help)


def launchers() -> str:
    """Return a line for each launcher."""
    from robot_rl.cluster.launchers import REGISTRY

    return two_columns([(f"launcher={name}", text) for name, text in REGISTRY.describe().items()])


def _sources() -> list[TaskSource]:
    *others, own = (source for source in list_sources() if source.pattern)
    return [own, *others]


def run(arguments: Sequence[str]) -> int:
    """Train once, or for each job of a sweep; with a launcher, freeze the runs and let it start them."""
    from robot_rl.cli.config_file import take_config

    words, file = take_config(arguments)
    if file is None:
        return _train(words)
    with file.named():
        return _train(words)


def _train(arguments: Sequence[str]) -> int:
    from robot_rl.cli.compose import launch
    from robot_rl.cli.launching import read_launcher_words, read_sweeper_words

    words, search = read_sweeper_words(arguments)
    if search is not None:
        return _search(search, words)
    words, launcher = read_launcher_words(words)
    if launcher is None or launcher.is_this_process:
        launch(words, job)
        return 0
    from robot_rl.cluster.frozen import check_fits, launch_all
    from robot_rl.runs.settings import resolve

    if "--cfg" not in words and "-c" not in words:
        launcher.prepare()
    gpus = launcher.gpus if launcher.is_elsewhere else None
    if not launcher.is_elsewhere:
        launcher.check()
    jobs: list[dict[str, Any]] = []
    launch(words, jobs.append, gpus)
    cfgs = [resolve(tree, gpus) for tree in jobs]
    if launcher.is_elsewhere:  # What a cluster is not needed for is checked before it is connected to, or started.
        for cfg in cfgs:
            check_fits(cfg, launcher)
        launcher.check()
    return launch_all(cfgs, launcher) if cfgs else 0


def _search(cfg: "SearchCfg", arguments: Sequence[str]) -> int:
    """Let Optuna choose the values of the settings that are swept, a run for each trial."""
    from robot_rl.cli.compose import check_words
    from robot_rl.cli.launching import read_launcher_words
    from robot_rl.cluster.search import Search
    from robot_rl.runs.settings import resolve
    from robot_rl.runs.signals import UNWIND, ending
    from robot_rl.settings import tree as trees

    words, launcher = read_launcher_words(arguments)
    if launcher is not None:
        launcher.check()
    gpus = launcher.gpus if launcher is not None and launcher.is_elsewhere else None
    for word in words:
        if word.startswith("run_id="):
            raise UserError(f"'{word}': does not affect sweeper=optuna, which names its runs itself")
    _, overrides, nodes = check_words(words, gpus)
    swept = [override for override in overrides if override.is_sweep_override()]
    if not swept:
        raise UserError("sweeper=optuna: nothing is searched; give a setting as interval(low,high) or a,b,c")
    for override in overrides:
        if override in swept and override.key_or_group in ("task", "root", "device", "learner", "max_iterations"):
            raise UserError(f"'{override.input_line}': cannot be searched; give one value")
    (tree,) = nodes.values()
    fixed = {o.key_or_group: o.value() for o in overrides if o not in swept and o.key_or_group != "task"}
    base = resolve(trees.override(tree, {key: value for key, value in fixed.items() if "${" not in str(value)}), gpus)
    lines = [override.input_line for override in swept]
    every = [word for word in arguments if word not in ("-m", "--multirun") and word not in lines]
    ending.phase = UNWIND
    return Search(cfg=cfg, base=base, words=every, spaces=[_space(override) for override in swept], say=_say).run()


def _space(override: Any) -> "Space":
    """Return the space of a swept setting in the search."""
    from robot_rl.cluster.search import Space

    value, key = override.value(), override.key_or_group
    if override.is_choice_sweep():
        return Space(key=key, choices=tuple(str(getattr(choice, "text", choice)) for choice in value.list))
    if override.is_range_sweep():
        return Space(key=key, low=value.start, high=value.stop - value.step, step=value.step)
    return Space(key=key, low=value.start, high=value.end, log="log" in value.tags)


def _say(line: str) -> None:
    print(line, flush=True)


def job(tree: dict[str, Any]) -> None:
    """Train with the settings of one resolved tree."""
    from robot_rl.runs.settings import resolve

    cfg = resolve(tree)
    from robot_rl.runs import training

    training.train(cfg)
