"""Every range of the learner's configuration is checked where the value is given."""

import math

import pytest

from robot_rl.config import NetworkCfg, apply_overrides
from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("num_steps", 0, r"num_steps: 0 is out of range, must be in \[1, 100000\]"),
        ("max_iterations", -1, "max_iterations: -1 is out of range"),
        ("save_interval", 0, "save_interval: 0 is out of range"),
        ("symmetry", "both", r"symmetry: 'both' is unknown.*none, augment, network"),
        ("actor_groups", [], "actor_groups: .* must name at least one"),
        ("actor.hidden", [], "actor.hidden: .* must name at least one layer"),
        ("actor.hidden", [128, 0], "actor.hidden: 0 is out of range"),
        ("actor.activation", "elo", "actor.activation: 'elo' is unknown, did you mean 'elu'"),
        ("actor.init_std", 0.0, "actor.init_std: 0.0 is out of range"),
        ("critic.min_std", 0.0, r"critic.min_std: 0.0 is out of range, must be in \(0, 100\]"),
        ("ppo.gamma", 1.5, r"ppo.gamma: 1.5 is out of range, must be in \[0, 1\]"),
        ("ppo.gamma", math.nan, "ppo.gamma: nan is out of range"),
        ("ppo.clip", 0.0, "ppo.clip: 0.0 is out of range"),
        ("ppo.minibatches", 0, "ppo.minibatches: 0 is out of range"),
        ("ppo.schedule", "adaptiv", "ppo.schedule: 'adaptiv' is unknown, did you mean 'adaptive'"),
        ("ppo.max_learning_rate", 1e-7, "ppo.max_learning_rate: 1e-07 is out of range"),
        ("ppo.learning_rate", 0.1, r"ppo.learning_rate: 0.1 is out of range, must be in \[1e-05, 0.01\]"),
        ("ppo.bootstrap", "none", "ppo.bootstrap: 'none' is unknown"),
        ("reward_weights", [1.0, math.nan], "reward_weights: nan is out of range"),
        ("reward_weights", [-1.0], "reward_weights: -1.0 is out of range"),
        ("reward_weights", [0.0, 0.0], "reward_weights: all are 0"),
        ("actor.conv.channels", [], r"actor.conv.channels: \[\] is out of range"),
    ],
)
def test_out_of_range(key, value, message):
    with pytest.raises(UserError, match=message):
        apply_overrides(PPOLearnerCfg(), {key: value})


def test_defaults_are_valid_and_lists_become_tuples():
    assert NetworkCfg(hidden=[8, 4]).hidden == (8, 4)
    assert PPOLearnerCfg().ppo == PPOCfg()
