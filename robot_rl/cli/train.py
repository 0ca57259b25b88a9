"""Train a policy; any value of the task and the learner can be set by name.

usage: robot-rl train task=<name> [key=value ...] [-m] [--cfg job]

tasks:
{tasks}
{patterns}

settings:
  seed=1               seed of every random stream; the same seed gives the same bits on a CPU
  num_envs=            worlds in parallel; the task specifies how many suit a CPU or a GPU
  max_iterations=      iterations in all
  device=auto          auto, cpu, cuda or cuda:<index>
  engine=auto          mujoco (CPU, all cores), mujoco_warp (GPU), isaac, or auto: as suits the device
  learner=ppo          ppo, distill (imitate teacher.run), flashsac, world_model (through imagined steps), rsl_rl (its
                       runner on the same environment), or your own, <module>:<Class> (docs/algorithms.md)
  init_from=           a run to copy the initial weights from (fine-tuning)
  run_id=              a name for the run; an existing run of that name is continued (for clusters that requeue)
  root=runs            where runs are written
  num_threads=0        threads of the CPU engine; 0 takes all cores
  learner_threads=0    threads of the learner on a CPU; 0 takes OMP_NUM_THREADS, or half of the cores
  kernels=             folder of compiled kernels for a GPU, from robot-rl compile
  metrics.wandb=off    off, offline or online; JSON lines and TensorBoard are always written

anything of the learner and of the task, by name:
  num_steps=24  symmetry=none|augment|network
  save_interval=100  save_interval_s=60              iterations, and seconds, between checkpoints: whichever is first
  keep_checkpoints=5                                 how many checkpoints stay; 0: all
  max_quarantined=0.5                                share of broken samples, iteration after iteration, that ends it
  notice_s=1.2                                       how long a signal waits for the current iteration; 0: to its end
  overlap=false                                      simulate the next rollout while learning (docs/async.md)
  precision=fp32|bf16|int8|fp8                       rounding of the networks, everywhere (docs/precision.md)
  normalize_obs=true  normalize_values=false         the critic in units of the returns' deviation (docs/learner.md)
  actor.hidden=[128,128]  actor.init_std=0.5  critic.hidden=[256,128]
  actor.conv.groups=[actor.scan]                     a height scan or a camera's group through an encoder
  actor.distribution=gaussian|squashed  actor.bound=1  actor.state_std=false
  ppo.learning_rate=1e-3  ppo.schedule=adaptive|fixed|linear  ppo.entropy_coef=0.005  ppo.gamma=0.99
  rewards.track.weight=2  rewards.track.std=0.4      a term's weight and its parameters
  ~rewards.action_rate                               without that term
  observations.actor.terms.joint_pos.noise=0         noise, scale, clip, history of an observation
  commands.velocity.vx_hi=2.0                        ranges of the commands
  events.push.xy=1.0                                 randomization and pushes
  randomize.latency_from=<file>                      a robot's measured delay and jitter (docs/logs.md)
  sim.timestep=0.004  sim.decimation=5  episode_length_s=10
  learner=distill teacher.run=<run>                  imitate a run's policy, which may see more (docs/learner.md)
  learner=distill teacher.policy=panda_lift          imitate a shipped policy, or the bundle in a directory
  reference.run=<run>  reference.weight=0.1          stay near a run's policy
  robot-rl train task=<name> --cfg job               prints every setting there is, with its value

{source_settings}
sweeps, one run after another, or as the launcher starts them:
  robot-rl train -m task=go2_flat seed=1,2,3 ppo.entropy_coef=0.002,0.01
  robot-rl train -m task=cartpole seed=1,2,3,4 num_threads=1 launcher=local launcher.at_once=2

searches by Optuna, which ends runs that are worse than others; the same command resumes one (docs/launchers.md):
  robot-rl train -m task=cartpole 'ppo.entropy_coef=tag(log,interval(1e-3,1e-1))' ppo.gamma=0.95,0.99 sweeper=optuna
  sweeper.trials=20  sweeper.jobs=1  sweeper.metric=  sweeper.direction=  sweeper.prune=true  sweeper.name=search

launchers, which start the processes of a run, or of each run of a sweep (docs/launchers.md):
{launchers}
  launcher.nodes=1  launcher.ranks=0                 machines, and processes on each; the worlds are divided evenly
  launcher.gpus=0  launcher.cpus=0                   GPUs of each machine, cores of each process
  roles.sim.count=4  staleness.max=1                 with launcher=ray: simulators apart, at most a version behind
  roles.sim.least=2                                  begin with two of them; the others join when there is room
  roles.sim.engines=[mujoco,mujoco_warp]             their engines, in turn
  roles.sim.cpus=0  roles.sim.gpus=0                 of each simulator; roles.learner.cpus= and gpus= of the learner
  roles.eval.every=50  roles.eval.episodes=100       with launcher=ray: evaluations while it trains (docs/async.md)
  roles.reference=apart  roles.teacher=apart         with launcher=ray: frozen policies, each in its own process
  launcher.time='04:00:00'  launcher.partition=      time limit and queue, if there are any
  robot-rl train task=go2_flat num_envs=8192 launcher=torchrun launcher.ranks=2

Ctrl-C finishes the iteration, saves, and prints how to continue; SIGTERM, SIGUSR1 and SIGUSR2 (a scheduler's notices)
and SIGHUP (a dropped connection; nohup ignores it) do the same, with exit code 85 (docs/recovery.md). A terminal, pipe
or log file that is gone or full does not end the training: the output is dropped. The run directory contains run.yaml
(every setting, versions, git commit), metrics.jsonl, tb/ (TensorBoard) and checkpoints/; export, eval, video and report
add the rest. A world that breaks (its state is not finite, a buffer is full) is reset, counted, and recorded in
quarantine/ for inspect.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from robot_rl.cli.list import task_rows
from robot_rl.cli.table import two_columns
from robot_rl.errors import UserError
from robot_rl.sources.protocol import TaskSource
from robot_rl.sources.registry import list_sources

if TYPE_CHECKING:
    from robot_rl.cluster.search import SearchCfg, Space


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
            raise UserError(f"'{word}': has no effect on sweeper=optuna, which names its runs itself")
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
