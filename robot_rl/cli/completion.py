"""Print the script by which a shell completes robot-rl: commands, options, tasks, robots, runs, settings.

usage: robot-rl completion bash|zsh|fish

  robot-rl completion bash > ~/.robot-rl.bash; echo 'source ~/.robot-rl.bash' >> ~/.bashrc
  robot-rl completion zsh > ~/.robot-rl.zsh; echo 'source ~/.robot-rl.zsh' >> ~/.zshrc
  robot-rl completion fish > ~/.config/fish/completions/robot-rl.fish

or, in the shell of this moment only:

  source <(robot-rl completion bash)
  robot-rl completion fish | source

The script asks the robot-rl of the command line that is completed, so each environment completes its own version. The
settings of a task are known once a training with it was begun; those of an installed task are also read in the
background when they are first asked for. Nothing of a project in the working folder is imported.
"""

from collections.abc import Sequence
from pathlib import Path

from robot_rl.errors import UserError, one_of

SHELLS = ("bash", "zsh", "fish")
SUGGEST, LEARN = "suggest", "learn"
"""What the scripts and `robot_rl.cli.suggestions` call: suggest LINE, and learn TASK [LEARNER]."""


def run(arguments: Sequence[str]) -> int:
    """Print a script, or the suggestions for a line."""
    from robot_rl.cli.suggestions import learn, suggestions

    if len(arguments) == 2 and arguments[0] == SUGGEST:
        print("".join(f"{word}\n" for word in suggestions(arguments[1])), end="")
        return 0
    if len(arguments) in (2, 3) and arguments[0] == LEARN:
        learn(*arguments[1:])
        return 0
    if len(arguments) != 1 or arguments[0] not in SHELLS:
        given = " ".join(arguments)
        raise UserError(f"completion {given}".rstrip() + f": {one_of(given, SHELLS)}")
    print((Path(__file__).parent / "templates" / f"completion.{arguments[0]}").read_text(), end="")
    return 0
