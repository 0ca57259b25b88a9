"""Configuration: typed dataclasses that check themselves; Hydra and JSON only fill them."""

from robot_rl.config.codec import apply_overrides, from_dict, to_dict
from robot_rl.config.learner import LearnerCfg, NetworkCfg, PPOCfg

__all__ = ["LearnerCfg", "NetworkCfg", "PPOCfg", "apply_overrides", "from_dict", "to_dict"]
