"""Task terms: the decorators that mark them, the declarations of a term, and checks of its parameters."""

from robot_rl_envs.terms.declare import (
    SIGNALS,
    Source,
    TermInfo,
    command,
    curriculum,
    event,
    metric,
    observation,
    reward,
    term_info,
    termination,
)
from robot_rl_envs.terms.state import State

__all__ = [
    "SIGNALS",
    "Source",
    "State",
    "TermInfo",
    "command",
    "curriculum",
    "event",
    "metric",
    "observation",
    "reward",
    "term_info",
    "termination",
]
