"""Write the motion of a policy to a file, for a motion prior (amp.motions=) to learn from.

usage: robot-rl record [key=value ...]

{Options}

The file is safetensors: frames (F, D), episode_starts (F,), and the names of the D components and the time step as
metadata. The policy acts without noise; randomization and pushes are the task's.
{CHANGES_HELP}
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robot_rl.cli.options import MAX_SEED, PolicyOptions, option, read
from robot_rl.errors import UserError, suggest
from robot_rl.runs.outputs import MOTION, check_output

if TYPE_CHECKING:
    from robot_rl.runs.policies import PolicySource


@dataclass(kw_only=True, slots=True)
class Options(PolicyOptions):
    """Options of robot-rl record."""

    out: str = option("motion.safetensors", "the file")
    seconds: float = option(20.0, "length of each world's recording [s]")
    worlds: int = option(16, "worlds, each with its own commands", least=1, most=65536)
    seed: int = option(0, "seed of the worlds", least=0, most=MAX_SEED)
    group: str = option("motion", "observation group to keep; motion is added if the task has none")


def run(arguments: Sequence[str]) -> int:
    """Write the motion."""
    options, changes = read(Options, arguments)
    if not 0 < options.seconds <= 3600:
        raise UserError("seconds", options.seconds, "must be in (0, 3600]")
    out = check_output("out", options.out or Options().out, MOTION)
    options.refuse_unsupported("record")
    source = _with_group(options.find_policy(changes), options.group)
    from robot_rl.evaluation.rollout import record_motion
    from robot_rl.learn.auxiliaries.motions import write_motion

    with contextlib.closing(source.cfg.make_env(num_envs=options.worlds, seed=options.seed)) as env:
        frames, starts = record_motion(env, source.load(env), options.seconds, options.group)
        names = env.components(options.group)
        path = write_motion(out, frames, starts, names, env.step_dt)
    print(f"{path}: {len(frames)} frames of {len(names)} components, {int(starts.sum())} episodes")
    return 0


def _with_group(source: "PolicySource", group: str) -> "PolicySource":
    """Return the policy with its task as it is recorded: without observation noise, and with the group."""
    from robot_rl_envs.motion import MOTION, with_motion

    from robot_rl.evaluation import evaluation_task

    task = source.cfg.task
    task = evaluation_task(with_motion(task) if group == MOTION else task)
    if group not in task.vectors:
        raise UserError("group", group, f"{task.name} lacks such a group of terms", suggest(group, task.vectors))
    return dataclasses.replace(source, cfg=dataclasses.replace(source.cfg, task=task))
