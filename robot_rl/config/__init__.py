"""Configuration: typed dataclasses that check themselves; Hydra and JSON only fill them."""

from robot_rl.config.codec import apply_overrides, from_dict, to_dict
from robot_rl.config.extras import AmpCfg, ReferenceCfg, RndCfg, TeacherCfg
from robot_rl.config.learner import LearnerCfg, PPOCfg
from robot_rl.config.networks import ConvCfg, MemoryCfg, NetworkCfg

__all__ = [
    "AmpCfg",
    "ConvCfg",
    "LearnerCfg",
    "MemoryCfg",
    "NetworkCfg",
    "PPOCfg",
    "ReferenceCfg",
    "RndCfg",
    "TeacherCfg",
    "apply_overrides",
    "from_dict",
    "to_dict",
]
