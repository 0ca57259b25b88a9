"""robot-rl: finds the command, and turns every error into an exit code in one place.

The exit codes are those of `robot_rl.errors.ExitCode`; all but a fault of the program come with a single line.
"""

import contextlib
import errno
import importlib
import os
import sys
import unicodedata
from collections.abc import Callable, Sequence

from robot_rl.cli.caches import cache_variables
from robot_rl.cli.streams import LenientStreams, open_missing
from robot_rl.errors import ExitCode, GiveUpError, Interrupted, PeerError, UserError, suggest
from robot_rl.experiment.signals import TRAININGS, ending

GL_BACKENDS = (
    *("", "egl", "osmesa", "glfw", "glx", "cgl", "wgl"),
    *("on", "off", "enable", "disable", "enabled", "disabled", "true", "false", "0", "1"),
)
"""What MuJoCo itself takes; anything else raises at its import."""
# Command -> what it does; the module robot_rl.cli.<command>, with _ for -, is imported when it is called.
COMMANDS = {
    "train": "train a policy; any value of the task and the learner can be set by name",
    "resume": "go on with a run that was interrupted, or for more iterations",
    "eval": "100 fresh worlds: errors, falls, torque, power; torch and ONNX policy side by side",
    "export": "write the policy bundle that goes to the robot, and check it",
    "deploy": "pack bundle, runtime and service into a tarball for a Jetson Thor",
    "import-mjlab": "make a policy bundle of a policy that was trained with mjlab",
    "sign": "sign a policy bundle, for robots that accept signed ones alone",
    "video": "film a policy",
    "record": "write the motion of a policy to a file, for a motion prior to learn from",
    "play": "drive a policy in the browser: sliders, pushes, speed",
    "sim2sim": "the robot's binary walks a simulated robot, in real time or against the trainer's figures",
    "report": "write the run's HTML page: curves, throughput, evaluation, video",
    "sync": "make TensorBoard's and W&B's copy of a run anew, from its metrics.jsonl",
    "terrain": "draw a terrain: stairs, gaps, waves, the ground of a task",
    "inspect": "what happened to a world that was quarantined: replay, curves, pictures",
    "usd": "write a robot as USD, for Isaac Lab and Newton",
    "cross": "one policy in several engines: merge evaluations into a table and a picture",
    "list": "tasks, robots, engines, policies, runs",
    "replay": "feed a robot's log back through its binary: every command again, bit for bit",
    "latency": "how long a robot waited for its commands: picture, and a file for training",
    "drill": "put faults into copies of a run, go on, and say what each cost",
    "profile": "where an iteration's time goes, stage by stage, and what limits it",
    "bench": "measure the environment or the learner against its rival",
    "new": "write the skeleton of a task, a robot or a package of your own, with its tests",
}

EXAMPLES = """\
examples:
  robot-rl train task=cartpole                      swings up in half a minute on a laptop
  robot-rl train task=go2_flat seed=2               a Go2 that walks, in minutes on a CPU
  robot-rl train task=go2_flat rewards.action_rate.weight=-0.02 ppo.learning_rate=5e-4
  robot-rl train -m task=go2_flat seed=1,2,3        three runs in turn
  robot-rl eval run=latest                          a run is named by its id, latest or <task>/latest
  robot-rl play policy=go2_flat                     a trained policy that comes with the project

Options are key=value. `robot-rl <command> --help` says which; runs are written to runs/<task>/<run id>/.
"""


def usage() -> str:
    """The text of robot-rl --help."""
    rows = "\n".join(f"  {name:<12} {text}" for name, text in COMMANDS.items())
    return (
        "robot-rl: reinforcement learning for robots, from the simulator to the robot\n\n"
        f"usage: robot-rl <command> [key=value ...]\n\ncommands:\n{rows}\n\n{EXAMPLES}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: The words after robot-rl; those of the process by default.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    with ending.take(words):
        open_missing()
        with LenientStreams() if words[:1] and words[0] in TRAININGS else contextlib.nullcontext():
            return _main(words)


def _main(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage(), end="")
        return 0 if words else ExitCode.USER
    if words[0] == "--version":
        from importlib import metadata

        print(f"robot-rl {metadata.version('robot-rl')}")
        return 0

    def command() -> int:
        try:
            return dispatch(words[0], words[1:])
        except BaseException as error:
            if isinstance(error, Exception):
                ending.check()  # A signal's exception may come out of an import or a library as another.
            ending.has_failed = True
            raise

    return guarded(command)


def dispatch(command: str, arguments: Sequence[str]) -> int:
    """Runs one command.

    Raises:
        UserError: There is no such command.
    """
    if command not in COMMANDS:
        raise UserError(f"unknown command '{command}': {suggest(command, COMMANDS)}")
    _check_environment()
    for word in arguments:
        if any(unicodedata.category(sign) in ("Cc", "Cs") for sign in word):
            raise UserError(f"{word}: holds a control character or bytes that are no UTF-8; write it without them")
    module = importlib.import_module(f"robot_rl.cli.{command.replace('-', '_')}")
    if any(word in ("-h", "--help") for word in arguments):
        text = module.HELP
        print(text if isinstance(text, str) else text(), end="")
        return 0
    return module.run(arguments) or 0


def _check_environment() -> None:
    """Refuse a rendering backend that MuJoCo would raise about at its import; move caches that cannot be written."""
    backend = os.environ.get("MUJOCO_GL", "")
    if backend.lower() not in GL_BACKENDS:
        raise UserError(f"MUJOCO_GL={backend}: no rendering backend, set egl or osmesa, or leave it unset")
    os.environ.update(cache_variables(os.environ))


def guarded(command: Callable[[], int]) -> int:
    """Runs `command`; an error that is the user's to mend becomes one line on stderr and an exit code."""
    try:
        return command()
    except Interrupted as stop:
        return _interrupted(stop)
    except KeyboardInterrupt:
        return _say("interrupted", ExitCode.INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except Exception as error:
        if _disk_full(error):
            return _say(f"the disk is full: {error}", ExitCode.DISK_FULL)
        if isinstance(error, GiveUpError | FloatingPointError):
            return _say(str(error), ExitCode.GIVE_UP)
        if isinstance(error, _user_errors()):
            return _say(str(error), ExitCode.USER)
        if isinstance(error, PeerError):
            return _say(str(error), ExitCode.FAULT)
        if isinstance(error, PermissionError | IsADirectoryError | NotADirectoryError | FileExistsError) or (
            isinstance(error, OSError) and error.errno in (errno.EROFS, errno.ENAMETOOLONG)
        ):
            return _say(f"cannot use {error.filename}: {(error.strerror or 'no permission').lower()}", ExitCode.USER)
        raise


def _say(line: str, code: int) -> int:
    rank = os.environ.get("RANK", "0")  # Under torchrun: which of the processes speaks.
    who = "robot-rl" if rank == "0" else f"robot-rl (process {rank})"
    print(f"{who}: {' '.join(line.split())}", file=sys.stderr)
    return code


def _interrupted(stop: Interrupted) -> int:
    if stop.checkpoint is None:
        return _say(str(stop), stop.exit_code)
    from robot_rl.experiment.run_dir import RunDir

    kept = "the state is saved" if stop.saved else f"the state of iteration {int(stop.checkpoint.name)} is saved"
    run = RunDir(stop.checkpoint.parent.parent).words
    return _say(f"{stop}; {kept}, go on with: robot-rl resume {run}", stop.exit_code)


def _disk_full(error: BaseException) -> bool:
    """Whether an error, or what caused it, is a full disk, a quota or a limit that is used up.

    Libraries written in other languages have only the words.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        if "No space left on device" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _user_errors() -> tuple[type[Exception], ...]:
    """Errors that are the user's to put right, those of the robot's runtime among them where it was loaded."""
    from robot_rl_deploy.contract import ContractError

    runtime = sys.modules.get("robot_rl_runtime")
    return (UserError, ContractError, *((runtime.UserError, runtime.ContractError) if runtime else ()))


if __name__ == "__main__":
    sys.exit(main())
