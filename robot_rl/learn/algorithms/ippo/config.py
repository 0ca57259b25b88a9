"""Settings of independent PPO."""

from __future__ import annotations

from dataclasses import dataclass

from robot_rl.learn.algorithms.mappo.config import MAPPOLearnerCfg


@dataclass(kw_only=True, slots=True)
class IPPOLearnerCfg(MAPPOLearnerCfg):
    """Independent PPO (de Witt et al. 2020, arXiv 2011.09533): `learner=ippo`.

    It is `learner=mappo` with a critic that does not see the other robots.
    """

    name: str = "ippo"
    view: str = "own"
