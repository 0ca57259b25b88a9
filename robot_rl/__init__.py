"""Robot RL: reinforcement learning for robots, from the simulator to the robot.

The functions of `robot_rl.api` are here: `rr.make`, `rr.train`, `rr.load`, `rr.evaluate`, `rr.play`, `rr.export`,
`rr.Robot`. They are imported when they are used.
"""

from typing import TYPE_CHECKING, Any

from robot_rl import moved

if TYPE_CHECKING:
    from robot_rl.api import Policy, Robot, Run, evaluate, export, load, make, play, train

__version__ = "0.2.0"
__all__ = ["Policy", "Robot", "Run", "evaluate", "export", "load", "make", "play", "train"]
moved.install()


def __getattr__(name: str) -> Any:
    if name in __all__:
        from robot_rl import api

        return getattr(api, name)
    raise AttributeError(f"module 'robot_rl' lacks the attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
