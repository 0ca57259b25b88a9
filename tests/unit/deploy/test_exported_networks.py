"""The parts of a learner's policy in a bundle: encoders, mirrored networks, every distribution of actions."""

import numpy as np
import pytest
import torch
from robot_rl_deploy.export import export_policy
from robot_rl_deploy.policy import BundlePolicy

from robot_rl.errors import UserError
from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.learn.networks.layout import ObservationLayout
from robot_rl.settings import ConvCfg, NetworkCfg

TERM = "actor.joint_vel"
"""Three values of three joints, components 15 to 23 of the toy's 30: an image of 3 x 3."""
LAYOUT = ObservationLayout({"actor": (30,)}, {TERM: (15, 1, 3, 3)})
CONV = {"conv": ConvCfg(groups=(TERM,), channels=(4, 8), features=6)}
ROWS = torch.arange(9).view(3, 3).flip(0).reshape(-1)
MIRROR = (torch.cat((torch.arange(15), 15 + ROWS, torch.arange(24, 30))), torch.ones(30))
SAME = (torch.tensor([0, 1]), torch.tensor([-1.0, 1.0]))
SQUASHED = {"distribution": "squashed", "bound": 0.8}


def make_actor(mirrored=False, **fields):
    cfg = NetworkCfg(**({"hidden": (16, 16), "output_gain": 1.0, "activation": "elu"} | fields))
    mirror = (MIRROR, SAME) if mirrored else None
    actor = Actor(LAYOUT, 2, cfg, mirror=mirror, generator=torch.Generator().manual_seed(0))
    actor.normalizer.update(torch.randn(64, 30, generator=torch.Generator().manual_seed(1)) * 3.0 + 0.5)
    return actor


@pytest.mark.parametrize(
    ("mirrored", "fields"),
    [
        pytest.param(False, CONV, marks=pytest.mark.long),
        pytest.param(True, CONV, marks=pytest.mark.long),
        (False, CONV | {"activation": "silu", "state_std": True}),
        pytest.param(False, SQUASHED, marks=pytest.mark.long),
        (True, SQUASHED | {"state_std": True}),
    ],
    ids=["conv", "conv-mirrored", "conv-state_std", "squashed", "squashed-state_std-mirrored"],
)
def test_the_bundle_does_what_the_policy_does(make_toy_env, training, random_states, tmp_path, mirrored, fields):
    actor = make_actor(mirrored, **fields)
    report = export_policy(make_toy_env(num_envs=2), actor, tmp_path / "policy", run=training, steps=200)
    assert report.replay.steps == 200
    policy, largest = BundlePolicy(tmp_path / "policy", num_envs=8), 0.0
    for raw in random_states(8, 10):
        _, action, observation = policy.act(raw)
        with torch.no_grad():
            wanted = actor.mean(torch.from_numpy(observation)).clamp(-10, 10).numpy()
        np.testing.assert_allclose(action, wanted, atol=1e-4)
        largest = max(largest, np.abs(action).max())
    assert 0.3 < largest < (0.8 if "bound" in fields else np.inf)


def test_choices_leave_nothing_behind(make_toy_env, training, tmp_path):
    actor = Actor(30, 2, NetworkCfg(hidden=(8,)), choices=(3, 3))
    with pytest.raises(UserError, match="export: the policy makes choices"):
        export_policy(make_toy_env(), actor, tmp_path / "policy", run=training)
    assert not list(tmp_path.iterdir())
