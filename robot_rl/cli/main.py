"""The entry point of robot-rl: run the command, and turn every error into an exit code and one line.

The exit codes are those of `robot_rl.errors.ExitCode`.
"""

import atexit
import contextlib
import errno
import importlib
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from robot_rl.cli.commands import COMMAND_GROUPS, COMMANDS
from robot_rl.cli.process import LenientStreams, cache_variables, open_missing
from robot_rl.errors import ExitCode, Interrupted, NotRetryableError, PeerError, UserError, suggest
from robot_rl.runs.signals import TRAININGS, ending

if TYPE_CHECKING:
    from robot_rl.plugins import Plugin

GL_BACKENDS = (
    *("", "egl", "osmesa", "glfw", "glx", "cgl", "wgl"),
    *("on", "off", "enable", "disable", "enabled", "disabled", "true", "false", "0", "1"),
)
"""The values that MuJoCo accepts; any other one raises at its import."""
EXAMPLES = """\
examples:
  robot-rl train task=cartpole                      swings up in half a minute on a laptop
  robot-rl train task=go2_flat seed=2               a Go2 that walks, in minutes on a CPU
  robot-rl train task=go2_flat rewards.action_rate.weight=-0.02 ppo.learning_rate=5e-4
  robot-rl train -m task=go2_flat seed=1,2,3        three runs in turn
  robot-rl train --config my.yaml seed=2            your own settings in a file
  robot-rl eval run=latest                          a run is named by its id, latest or <task>/latest
  robot-rl play policy=go2_flat                     a trained policy that comes with the project

Options are key=value. `robot-rl <command> --help` says which; runs are written to runs/<task>/<run id>/.
"""


def usage() -> str:
    """Return the text of robot-rl --help."""
    from robot_rl.plugins import first_line

    folder = Path(__file__).parent
    others = {name: f"of {' and of '.join(plugin.packages)}" for name, plugin in _others().items()}
    parts = []
    for group, names in COMMAND_GROUPS.items():
        texts = {name: first_line(folder / f"{name.replace('-', '_')}.py") for name in names}
        texts |= others if group == list(COMMAND_GROUPS)[-1] else {}
        parts.append(f"{group}:\n" + "".join(f"  {name:<13} {text}\n" for name, text in texts.items()))
    return (
        "robot-rl: reinforcement learning for robots, from the simulator to the robot\n\n"
        "usage: robot-rl <command> [key=value ...]\n\n" + "\n".join((*parts, EXAMPLES))
    )


def help_text(command: str) -> str:
    """Return the help of a command: its module's docstring with each {name} replaced by that attribute of the module.

    A dataclass is described, a function called; a name that the module lacks is taken from `robot_rl.cli.options`.
    """
    from robot_rl.cli import options

    module = _module(command)

    def fill(match: re.Match[str]) -> str:
        value = getattr(module, match[1], None) or getattr(options, match[1])
        if isinstance(value, type):
            return options.describe(value)
        return value if isinstance(value, str) else value()

    return re.sub(r"\{(\w+)\}", fill, module.__doc__ or "").rstrip() + "\n"


def _module(command: str) -> Any:
    if command in COMMANDS:
        return importlib.import_module(f"robot_rl.cli.{command.replace('-', '_')}")
    from robot_rl import plugins

    found = plugins.load(plugins.COMMANDS, command, "command")
    if not callable(getattr(found, "run", None)):
        raise UserError("command", command, f"is {found!r}", "must be a module with run(arguments)")
    return found


def _others() -> "dict[str, Plugin]":
    """Return the commands of other packages by name; one of a name here is not among them."""
    from robot_rl import plugins

    return {name: one for name, one in plugins.find_plugins(plugins.COMMANDS).items() if name not in COMMANDS}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Args:
        arguments: The words after robot-rl; those of the process by default.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    with ending.take(words):
        open_missing()
        with LenientStreams() if words[:1] and words[0] in TRAININGS else contextlib.nullcontext():
            code = _main(words)
    if words[:1] == ["worker"]:
        from robot_rl.cluster.launchers import exit_codes

        return exit_codes.end(code)
    return code


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
    """Run one command; raise UserError for an unknown command."""
    if command not in COMMANDS and command not in (others := _others()):
        raise UserError(f"unknown command '{command}': {suggest(command, (*COMMANDS, *others))}")
    _check_environment()
    for word in arguments:
        if any(unicodedata.category(sign) in ("Cc", "Cs") for sign in word):
            raise UserError(f"{word}: contains a control character or bytes that are not UTF-8; write it without them")
    if any(word in ("-h", "--help") for word in arguments):
        details = getattr(_module(command), "details", None)
        print((details and details(arguments)) or help_text(command), end="")
        return 0
    return _module(command).run(arguments) or 0


def _check_environment() -> None:
    """Refuse a rendering backend that MuJoCo would reject at its import; move caches that cannot be written."""
    backend = os.environ.get("MUJOCO_GL", "")
    if backend.lower() not in GL_BACKENDS:
        raise UserError("MUJOCO_GL", backend, "no rendering backend", "set egl or osmesa, or leave it unset")
    os.environ.update(cache_variables(os.environ))


def guarded(command: Callable[[], int]) -> int:
    """Run `command`; an error that the user can fix becomes one line on stderr and an exit code."""
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
        if isinstance(error, NotRetryableError | FloatingPointError):
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
    rank = os.environ.get("RANK", "0")  # Under torchrun: which of the processes reports.
    who = "robot-rl" if rank == "0" else f"robot-rl (process {rank})"
    print(f"{who}: {' '.join(line.split())}", file=sys.stderr)
    return code


def _interrupted(stop: Interrupted) -> int:
    if stop.checkpoint is None:
        return _say(str(stop), stop.exit_code)
    from robot_rl.cluster.launchers.launcher import launcher_words
    from robot_rl.runs.run_dir import RunDir

    kept = "the state is saved" if stop.saved else f"the state of iteration {int(stop.checkpoint.name)} is saved"
    run, launcher = RunDir(stop.checkpoint.parent.parent), ""
    with contextlib.suppress(UserError, OSError):
        launcher = launcher_words(run.read_config().get("launcher"))
    return _say(f"{stop}; {kept}, continue with: robot-rl resume {run.words}{launcher}", stop.exit_code)


def _disk_full(error: BaseException) -> bool:
    """Return whether an error or its cause is a full disk or quota; native libraries only report the text."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        if "No space left on device" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _user_errors() -> tuple[type[Exception], ...]:
    """The errors that a user can fix, with those of the robot's runtime if it was loaded."""
    from robot_rl_deploy.contract import ContractError

    runtime = sys.modules.get("robot_rl_runtime")
    return (UserError, ContractError, *((runtime.UserError, runtime.ContractError) if runtime else ()))


def script() -> NoReturn:
    """Run the command line of this process and end the process.

    A training ends at once: to take down an interpreter with PyTorch and simulators takes more than a second, in which
    a scheduler waits, and a late signal would change the exit code.
    """
    code = main()
    if sys.argv[1:2] and sys.argv[1] in TRAININGS:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        atexit._run_exitfuncs()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    script()
