"""Every range of the learner's configuration is checked where the value is given."""

import math

import pytest

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.settings import NetworkCfg, apply_overrides


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("num_steps", 0, r"num_steps=0: must be in \[1, 100000\]"),
        ("max_iterations", -1, "max_iterations=-1: must be in"),
        ("save_interval", 0, "save_interval=0: must be in"),
        ("symmetry", "both", r"symmetry=both: must be one of.*none, augment, network"),
        ("actor_groups", [], "actor_groups=.*: must name at least one"),
        ("actor.hidden", [], "actor.hidden=.*: must name at least one layer"),
        ("actor.hidden", [128, 0], "actor.hidden=0: must be in"),
        ("actor.activation", "elo", "actor.activation=elo: must be one of .*; did you mean 'elu'"),
        ("actor.init_std", 0.0, "actor.init_std=0.0: must be in"),
        ("critic.min_std", 0.0, r"critic.min_std=0.0: must be in \(0, 100\]"),
        ("ppo.gamma", 1.5, r"ppo.gamma=1.5: must be in \[0, 1\]"),
        ("ppo.gamma", math.nan, "ppo.gamma=nan: must be in"),
        ("ppo.clip", 0.0, "ppo.clip=0.0: must be in"),
        ("ppo.minibatches", 0, "ppo.minibatches=0: must be in"),
        ("ppo.schedule", "adaptiv", "ppo.schedule=adaptiv: must be one of .*; did you mean 'adaptive'"),
        ("ppo.max_learning_rate", 1e-7, "ppo.max_learning_rate=1e-07: must be in"),
        ("ppo.learning_rate", 0.1, r"ppo.learning_rate=0.1: must be in \[1e-05, 0.01\]"),
        ("ppo.bootstrap", "none", "ppo.bootstrap=none: must be one of"),
        ("reward_weights", [1.0, math.nan], "reward_weights=nan: must be in"),
        ("reward_weights", [-1.0], "reward_weights=-1.0: must be in"),
        ("reward_weights", [0.0, 0.0], "reward_weights: all are 0"),
        ("actor.conv.channels", [], r"actor.conv.channels=\[\]: must name at least one convolution"),
    ],
)
def test_out_of_range(key, value, message):
    with pytest.raises(UserError, match=message):
        apply_overrides(PPOLearnerCfg(), {key: value})


def test_defaults_are_valid_and_lists_become_tuples():
    assert NetworkCfg(hidden=[8, 4]).hidden == (8, 4)
    assert PPOLearnerCfg().ppo == PPOCfg()
