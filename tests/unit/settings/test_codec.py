"""Configurations to plain values and back, and overrides by dotted name."""

import json

import pytest

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.settings import NetworkCfg, apply_overrides, from_dict, to_dict


def test_there_and_back_through_json():
    cfg = PPOLearnerCfg(num_steps=7, symmetry="augment", actor=NetworkCfg(hidden=(16, 8)), actor_groups=("a", "b"))
    assert from_dict(PPOLearnerCfg, json.loads(json.dumps(to_dict(cfg)))) == cfg


def test_overrides_leave_the_original_unchanged():
    cfg = PPOLearnerCfg()
    changed = apply_overrides(cfg, {"ppo.learning_rate": 2e-3, "actor.hidden": [64, 32], "num_steps": 12})
    assert (changed.ppo.learning_rate, changed.actor.hidden, changed.num_steps) == (2e-3, (64, 32), 12)
    assert cfg == PPOLearnerCfg()
    assert changed.critic == cfg.critic


def test_a_group_of_settings_can_be_overridden_in_part():
    assert apply_overrides(PPOLearnerCfg(), {"ppo": {"gamma": 0.9}}).ppo.gamma == 0.9
    assert apply_overrides(PPOLearnerCfg(), {"ppo": {"gamma": 0.9}}).ppo.lam == PPOLearnerCfg().ppo.lam


@pytest.mark.parametrize(
    ("key", "offer"),
    [
        ("ppo.lerning_rate", "ppo.learning_rate"),
        ("num_step", "num_steps"),
        ("actor.hiden", "actor.hidden"),
        ("ppo.learning_rat", "ppo.learning_rate"),
        ("pp.clp", "ppo.clip"),
        ("learning_rate", "ppo.learning_rate"),  # Without its group; rnd has one as well.
        ("gae_lambda", "ppo.lam"),  # Of other libraries.
        ("ent_coef", "ppo.entropy_coef"),
        ("n_steps", "num_steps"),
        ("net_arch", "actor.hidden"),
    ],
)
def test_a_typo_gets_a_suggestion(key, offer):
    with pytest.raises(UserError, match=f"unknown key '{key}': did you mean '{offer}'"):
        apply_overrides(PPOLearnerCfg(), {key: 1})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"num_steps": "many"}, "num_steps=many: must be a whole number"),
        ({"num_steps": 2.5}, "num_steps=2.5: must be a whole number"),
        ({"num_steps": True}, "num_steps=true: must be a whole number"),
        ({"ppo.gamma": "high"}, "ppo.gamma=high: must be a number"),
        ({"normalize_obs": 1}, "normalize_obs=1: must be true or false"),
        ({"symmetry": 3}, "symmetry='3': must be one of none"),
        ({"actor.hidden": 128}, "actor.hidden=128: must be a list; such as .128."),
        ({"actor.hidden": [128, "x"]}, r"actor.hidden\[1\]=x: must be a whole number"),
        ({"ppo": 1}, "ppo=1: is a group; set one of ppo.gamma, "),
        ({"ppo.gamma.x": 1}, "unknown key 'ppo.gamma.x'"),
    ],
)
def test_a_wrong_type_is_named(overrides, message):
    with pytest.raises(UserError, match=message):
        apply_overrides(PPOLearnerCfg(), overrides)


def test_whole_numbers_serve_as_numbers():
    cfg = apply_overrides(PPOLearnerCfg(), {"ppo.max_grad_norm": 2, "num_steps": 8.0})
    assert isinstance(cfg.ppo.max_grad_norm, float)
    assert isinstance(cfg.num_steps, int)


def test_from_dict_names_unknown_keys():
    with pytest.raises(UserError, match=r"unknown key 'ppo.clp': did you mean 'ppo.clip'"):
        from_dict(PPOLearnerCfg, {"ppo": {"clp": 0.1}})
