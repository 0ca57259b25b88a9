"""Configuration: typed dataclasses that check themselves; Hydra and JSON only fill them."""

from robot_rl.config.codec import apply_overrides, from_dict, to_dict
from robot_rl.config.learner import LearnerCfg
from robot_rl.config.networks import ConvCfg, MemoryCfg, NetworkCfg
from robot_rl.config.precision import PrecisionCfg

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
