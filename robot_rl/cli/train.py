"""robot-rl train: builds what the command line asks for, and trains it in a new run directory."""

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robot_rl.claim import Claim
    from robot_rl.cli.settings import TrainCfg
    from robot_rl.learn.ranks import Ranks
    from robot_rl.run_dir import RunDir

TEXT = """\
robot-rl train: train a policy

usage: robot-rl train task=<name> [key=value ...] [-m] [--cfg job]

tasks:
{tasks}
  gym:<id>             any environment of Gymnasium, such as gym:HalfCheetah-v5 or gym:<module>:<id>
  isaac/<id>           any environment of Isaac Lab, where that is installed: make isaac (docs/isaac.md)

settings:
  seed=1               seed of every random stream; the same seed gives the same bits on a CPU
  num_envs=            worlds side by side; the task says how many suit a CPU or a GPU
  max_iterations=      iterations in all
  device=auto          auto, cpu, cuda or cuda:<index>
  engine=auto          mujoco (CPU, all cores), mujoco_warp (GPU), isaac, or auto: what suits the device
  learner=ppo          ppo (ours), distill (imitate teacher.run) or rsl_rl (its runner, on the same environment)
  init_from=           a run whose weights to start from (fine-tuning)
  run_id=              a name for the run; where there is a run of that name, it goes on (for clusters that requeue)
  root=runs            where runs are written
  num_threads=0        threads of the CPU engine; 0 takes all cores
  metrics.wandb=off    off, offline or online; JSON lines and TensorBoard are always written

anything of the learner and of the task, by name:
  num_steps=24  symmetry=none|augment|network
  save_interval=100  save_interval_s=60              iterations, and seconds, between checkpoints: whichever is first
  keep_checkpoints=5                                 how many checkpoints stay; 0: all
  max_quarantined=0.5                                share of broken samples, iteration after iteration, that ends it
  notice_s=1.2                                       how long a signal waits for the iteration in hand; 0: to its end
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
  reference.run=<run>  reference.weight=0.1          stay near a run's policy
  robot-rl train task=<name> --cfg job               prints every setting there is, with its value

of an environment of Gymnasium:
  vectorization=sync|async|own                       one process, a process a world, its own vector environment
  actions=clip|rescale                               clip actions to their box, or stretch [-1, 1] onto it
  env.<argument>=                                    what its constructor takes, and env.max_episode_steps

of an environment of Isaac Lab:
  physics=auto  presets=                             presets of its physics, and others it declares, by name
  assets=<folder>|own                                where USD files are that its store should have, but is out of reach
  action_clip=<bound>                                largest action
  env.<path>=                                        anything of its configuration: env.rewards.alive.weight=2

sweeps, one run after another (Hydra's multirun and launchers):
  robot-rl train -m task=go2_flat seed=1,2,3 ppo.entropy_coef=0.002,0.01
  hydra/launcher=  hydra.launcher.<name>=  hydra/sweeper=  hydra.sweeper.<name>=  hydra.sweep.dir=
  hydra.job.env_set  hydra.job.env_copy              of Hydra's own settings these; a sweep alone takes them

several processes, with the worlds divided evenly among them, each on a GPU of its own where there are GPUs:
  torchrun --nproc-per-node 2 --no-python robot-rl train task=go2_flat num_envs=8192

Ctrl-C finishes the iteration, saves, and says how to go on; SIGTERM, SIGUSR1 and SIGUSR2 (a scheduler's notices) and
SIGHUP (a dropped connection; nohup keeps it away) do the same, with exit code 85 (docs/recovery.md). A terminal, pipe
or log file that is gone or full ends nothing: what it does not take is dropped. The run directory holds run.yaml (every
setting, versions, git commit), metrics.jsonl, tb/ (TensorBoard) and checkpoints/; export, eval, video and report add
the rest. A world that breaks (its state is not finite, a buffer is full) is reset, counted, and put into quarantine/
for inspect.
"""

COMMANDS = ("export", "eval", "video", "report", "play")
"""What can be done with a run."""


def HELP() -> str:
    """The text of robot-rl train --help, with the tasks there are."""
    from robot_rl.cli.list import task_lines

    return TEXT.format(tasks="\n".join(task_lines()))


def run(arguments: Sequence[str]) -> int:
    """Trains, once or for each job of a sweep."""
    from robot_rl.cli.hydra_app import launch

    launch(arguments, job)
    return 0


def job(tree: dict[str, Any]) -> None:
    """Trains with the settings of one resolved tree."""
    from robot_rl.cli.settings import resolve

    train(resolve(tree))


def train(cfg: "TrainCfg") -> "RunDir":
    """Trains in a new run directory, or goes on with the run of that id.

    Args:
        cfg: The run, resolved.

    Returns:
        The run directory.

    Raises:
        UserError: Something asked for cannot be had; the directory is left as it was found.
        Interrupted: The user stopped it, after the state was saved.
    """
    from robot_rl.claim import Claim
    from robot_rl.cli import signals
    from robot_rl.cli.guides import with_guides
    from robot_rl.cli.resume import find_begun, go_on_with
    from robot_rl.learn.checkpoints.checkpoint import good_checkpoint
    from robot_rl.learn.ranks import make_ranks
    from robot_rl.run_dir import RunDir

    signals.ending.phase = signals.START
    cfg = with_guides(cfg)
    ranks = make_ranks(cfg.device)
    if begun := ranks.first(lambda: find_begun(cfg)):
        return go_on_with(RunDir(Path(begun)), cfg, ranks)
    weights = good_checkpoint(cfg.init_from.path) if cfg.init_from else None

    def prepare(runner: Any) -> None:
        if weights is not None:
            runner.load(weights, weights_only=True)

    with contextlib.ExitStack() as stack:
        env = stack.enter_context(contextlib.closing(cfg.make_env(ranks=ranks)))
        claims: list[Claim] = []

        def begin() -> str:
            claims.append(stack.enter_context(Claim.begin(cfg.root, cfg.task.name, cfg.seed, cfg.run_id)))
            claims[0].run_dir.write_config(cfg.tree, sys.argv)
            return str(claims[0].run_dir.path)

        signals.ending.phase = signals.UNWIND  # A directory in which nothing was learned is left as it was found.
        run_dir = RunDir(Path(ranks.first(begin)))
        learn(env, cfg, run_dir, prepare, ranks, claims=claims)
    if ranks.is_first:
        say_what_next(run_dir, cfg)
    return run_dir


def learn(
    env: Any,
    cfg: "TrainCfg",
    run_dir: "RunDir",
    prepare: Callable[[Any], None],
    ranks: "Ranks",
    *,
    claims: "Sequence[Claim]",
    begun: Callable[[Any], None] = lambda _: None,
) -> None:
    """Runs the iterations that are left; the first process shows the progress and keeps the metrics.

    Args:
        env: The environment, with this process's worlds.
        cfg: The run, resolved.
        run_dir: Where metrics and checkpoints go.
        prepare: Called with the runner before it learns, to load a state.
        ranks: The processes that train together.
        claims: The first process's claim of the run's directory; none in the others.
        begun: Called with the runner when nothing can be refused any more.

    Raises:
        UserError: The learner does not fit the environment, or the state does not fit the learner.
        Interrupted: The user stopped it, after the state was saved.
    """
    from robot_rl.cli import signals
    from robot_rl.cli.progress import Progress
    from robot_rl.cli.settings import asked
    from robot_rl.learn.make import make_runner
    from robot_rl.metrics.writers import MetricsWriter

    env.quarantine_dir = run_dir.path / "quarantine"
    options: dict[str, Any] = {"run_dir": run_dir.path, "seed": cfg.seed, "ranks": ranks}
    with contextlib.ExitStack() as stack:
        if ranks.is_first:
            progress = Progress(cfg.learner.max_iterations, env.pop_notices)
            options["observer"] = stack.enter_context(progress)
        else:
            options["observer"] = notices(env, ranks.rank)
        with asked():
            runner = make_runner(env, cfg.learner, **options)
            prepare(runner)
        runner.settings = cfg.tree
        for claim in claims:  # Rows that the state knows nothing of are cut off, which is for runs that go on alone.
            name, mark, file = f"{run_dir.task}/{run_dir.run_id}", runner.metrics_mark, claim.rows_file()
            runner.writer = MetricsWriter(run_dir.path, cfg.wandb, name=name, resume=mark, file=file)
            stack.enter_context(runner.writer)
        begun(runner)
        for claim in claims:
            claim.tell()
            announce(cfg, run_dir, ranks.size)
        signals.ending.check()
        runner.learn()
        signals.ending.phase = signals.OVER


def notices(env: Any, rank: int) -> Callable[[Any], None]:
    """An observer for processes that show no progress: what the environment has to say goes to stderr as it is."""

    def show(_: Any) -> None:
        for line in env.pop_notices():
            print(f"robot-rl (process {rank}): {line}", file=sys.stderr, flush=True)

    return show


def announce(cfg: "TrainCfg", run_dir: "RunDir", processes: int = 1) -> None:
    """Says in one line what begins, and where it is written."""
    worlds = f"{cfg.num_envs} worlds, {cfg.engine} on {cfg.device}, seed {cfg.seed}"
    worlds += f", {processes} processes" if processes > 1 else ""
    print(f"{cfg.task.name}: {worlds}, {cfg.learner.max_iterations} iterations -> {run_dir.path}", flush=True)


def say_what_next(run_dir: "RunDir", cfg: "TrainCfg") -> None:
    """Says where the run is and what can be done with it."""
    from robot_rl.cli.gym import is_gym
    from robot_rl.cli.isaac import is_isaac
    from robot_rl.cli.options import run_words

    print(f"done: {run_dir.path}")
    known = ("eval", "video", "report") if is_gym(cfg.task.name) else COMMANDS
    for command in ("export", "eval", "report") if is_isaac(cfg.task.name) else known:
        print(f"  robot-rl {command} run={run_words(run_dir.path)}")
