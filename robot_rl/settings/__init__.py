"""Configuration: typed dataclasses that check themselves; Hydra and JSON only fill them."""

from robot_rl.settings.learner import LearnerCfg
from robot_rl.settings.networks import ConvCfg, MemoryCfg, NetworkCfg
from robot_rl.settings.precision import PrecisionCfg
from robot_rl.settings.schema import from_dict, to_dict
from robot_rl.settings.tree import apply_overrides

__all__ = [
    "ConvCfg",
    "LearnerCfg",
    "MemoryCfg",
    "NetworkCfg",
    "PrecisionCfg",
    "apply_overrides",
    "from_dict",
    "to_dict",
]
