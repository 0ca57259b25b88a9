"""Settings of HAPPO."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar

from robot_rl.learn.algorithms.mappo.config import MAPPOLearnerCfg
from robot_rl.settings.checks import check_choice

ORDERS = ("random", "fixed")


@dataclass(kw_only=True, slots=True)
class HAPPOLearnerCfg(MAPPOLearnerCfg):
    """Heterogeneous-agent PPO (Zhong et al. 2024, arXiv 2304.09870): `learner=happo`.

    Attributes:
        order: in which the policies are improved in an iteration: "random", drawn each time, or "fixed".
    """

    uses_stale: ClassVar[bool] = False

    name: str = "happo"
    sharing: str = "separate"
    order: str = "random"

    def __post_init__(self) -> None:
        """Check the ranges."""
        MAPPOLearnerCfg.__post_init__(self)
        check_choice("order", self.order, ORDERS)

    def make_algorithm(self, context: Any) -> Any:
        """Build the policies, the critic and the algorithm."""
        return importlib.import_module("robot_rl.learn.algorithms.happo.happo").make_happo(self, context)
