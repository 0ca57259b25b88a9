"""Terms that know which robot of a team they are about."""

from typing import Any

from robot_rl_envs.entity.crews import agent_of
from robot_rl_envs.terms import reward, termination


@reward
def own_number(s: Any, i: int) -> float:
    """1 + the robot's index in the team, per second."""
    return float(1 + agent_of(s, i))


@termination
def number_is(s: Any, i: int, number: float, after: float) -> int:
    """The robot of this index, from a control step on."""
    if agent_of(s, i) == int(number) and s.step_count[i] >= int(after):
        return 1
    return 0
