"""robot-rl record: writes the motion of a policy to a file that a motion prior learns from."""

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from robot_rl.cli.options import MAX_SEED, describe, option, read
from robot_rl.cli.outputs import MOTION, check_output
from robot_rl.cli.source import OVERRIDES_HELP, Source, SourceOptions, find_source
from robot_rl.errors import UserError, suggest

if TYPE_CHECKING:
    from robot_rl.evaluate.controllers import Controller


@dataclass(kw_only=True, slots=True)
class Options(SourceOptions):
    """Options of robot-rl record."""

    out: str = option("motion.safetensors", "the file")
    seconds: float = option(20.0, "length of each world's recording [s]")
    worlds: int = option(16, "worlds, each with commands of its own", least=1, most=65536)
    seed: int = option(0, "seed of the worlds", least=0, most=MAX_SEED)
    group: str = option("motion", "observation group to keep; motion is added where the task has none")


HELP = f"""\
robot-rl record: the motion of a policy, as a file for amp.motions=

usage: robot-rl record [key=value ...]

{describe(Options)}

The file is safetensors: frames (F, D), episode_starts (F,), and the names of the D components and the time step as
metadata. The policy acts without noise; randomization and pushes are the task's.
{OVERRIDES_HELP}"""


def run(arguments: Sequence[str]) -> int:
    """Writes the motion."""
    from robot_rl.evaluate.motion import record_motion
    from robot_rl.learn.auxiliaries.motions import write_motion

    options, dotted = read(Options, arguments)
    if not 0 < options.seconds <= 3600:
        raise UserError(f"seconds={options.seconds}: must lie in (0, 3600]")
    out = check_output("out", options.out or Options().out, MOTION)
    source = _with_group(find_source(options, dotted), options.group)
    with contextlib.closing(source.cfg.make_env(num_envs=options.worlds, seed=options.seed)) as env:
        frames, starts = record_motion(env, _controller(source, env), options.seconds, options.group)
        names = env.components(options.group)
        path = write_motion(out, frames, starts, names, env.step_dt)
    print(f"{path}: {len(frames)} frames of {len(names)} components, {int(starts.sum())} episodes")
    return 0


def _with_group(source: Source, group: str) -> Source:
    """The policy's task as it is recorded: no observation noise, and the group there."""
    from robot_rl_envs.motion import MOTION, with_motion

    from robot_rl.cli.foreign import whose
    from robot_rl.evaluate import evaluation_task

    task = source.cfg.task
    if whose(task.name) is not None:
        raise UserError(f"task={task.name}: has no observation group of terms to record, an environment of ours has")
    task = evaluation_task(with_motion(task) if group == MOTION else task)
    if group not in task.vectors:
        raise UserError(f"group={group}: {task.name} has no such group of terms; {suggest(group, task.vectors)}")
    return dataclasses.replace(source, cfg=dataclasses.replace(source.cfg, task=task))


def _controller(source: Source, env: Any) -> "Controller":
    from robot_rl.evaluate.controllers import BundleController, TorchController

    return TorchController(source.load(env)) if source.bundle is None else BundleController(source.bundle, env)
