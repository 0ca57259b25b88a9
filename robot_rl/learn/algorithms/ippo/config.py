"""Settings of independent PPO."""

from __future__ import annotations

from dataclasses import dataclass

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.mappo.config import MAPPOLearnerCfg


@dataclass(kw_only=True, slots=True)
class IPPOLearnerCfg(MAPPOLearnerCfg):
    """Independent PPO (de Witt et al. 2020, arXiv 2011.09533): `learner=ippo`.

    It is `learner=mappo` with a critic that does not see the other robots.
    """

    name: str = "ippo"
    view: str = "own"

    def __post_init__(self) -> None:
        """Check the ranges."""
        MAPPOLearnerCfg.__post_init__(self)
        if self.view != "own":
            raise UserError(f"view={self.view}: the critic of learner=ippo sees its own robot only; use learner=mappo")
