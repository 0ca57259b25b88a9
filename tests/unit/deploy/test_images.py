"""Images in a bundle: a measured signal with its camera in the contract, the same image in torch and in the bundle."""

import contextlib
import dataclasses
import json

import numpy as np
import pytest
import torch
from robot_rl_deploy import contract as contracts
from robot_rl_deploy.contract import ContractError, TrainingSpec, from_dict, to_dict
from robot_rl_deploy.describe import make_contract
from robot_rl_deploy.export import export_policy
from robot_rl_envs.make import make_env

from robot_rl.evaluation.policies import ExportedPolicy
from robot_rl.evaluation.shadow import Shadow
from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.learn.networks.layout import ObservationLayout
from robot_rl.settings import ConvCfg, NetworkCfg
from tests.unit.cameras.test_env import cart

RUN = TrainingSpec(run_id="test", task="cart", git_commit="unknown", iteration=0)
IMAGE = {
    "kind": "depth",
    "width": 4,
    "height": 3,
    "focal": [3.0, 3.0],
    "center": [2.0, 1.5],
    "body": "hip",
    "pos": [0.1, 0.0, 0.2],
    "quat_wxyz": [1.0, 0.0, 0.0, 0.0],
    "near": 0.1,
    "far": 2.0,
    "period_s": 0.02,
}
ROW = {
    "name": "front",
    "signal": "measured/front",
    "transform": "identity",
    "unit": "m",
    "frame": "none",
    "size": 12,
    "scale": 0.5,
    "clip": [0.0, 2.0],
    "params": {"image": IMAGE},
}
# Field of the image, or of its term, what it is replaced by, and what the one line must contain.
WRONG = [
    ("kind", "lidar", "params.image.kind is 'lidar'; it must be one of depth, rgb"),
    ("kind", "rgb", "observation 'front': size is 12; its image has 36 values"),
    ("width", 0, "params.image.width is 0; it must be in [1, 1024]"),
    ("height", 4, "observation 'front': size is 12; its image has 16 values"),
    ("focal", [3.0], "params.image.focal is [3.0]; it must be 2 numbers"),
    ("focal", [3.0, 0.0], "params.image.focal is [3.0, 0.0]; it must be more than 0"),
    ("pos", [0.0, 0.0], "params.image.pos is [0.0, 0.0]; it must be 3 numbers"),
    ("quat_wxyz", [1.0], "params.image.quat_wxyz is [1.0]; it must be 4 numbers"),
    ("near", 2.0, "params.image.near is 2.0; it must be less than far (2.0)"),
    ("near", -0.1, "params.image.near is -0.1; it must be at least 0"),
    ("period_s", 0.0, "params.image.period_s is 0.0; it must be more than 0"),
    ("lens", 1.0, "params.image.lens is unknown"),
    ("body", 7, "params.image.body is 7; a text is needed"),
]


def with_image(description):
    """The description with the image as its last term."""
    return description | {"observations": [*description["observations"], ROW]}


def changed(data, field, value):
    """A contract's dictionary with another field of the image."""
    data = json.loads(json.dumps(data))
    data["observations"][-1]["params"]["image"][field] = value
    return data


def test_the_camera_is_read_back_equal(description, training):
    contract = make_contract(with_image(description), training)
    assert contracts.loads(contracts.dumps(contract)) == contract
    assert contract.observations[-1].params["image"] == IMAGE
    assert contract.signal_sizes()["measured/front"] == 12


@pytest.mark.parametrize(("field", "value", "line"), WRONG, ids=[line for *_, line in WRONG])
def test_what_does_not_fit_is_one_line(description, training, field, value, line):
    data = to_dict(make_contract(with_image(description), training))
    with pytest.raises(ContractError) as caught:
        from_dict(changed(data, field, value))
    assert line in str(caught.value)


def test_only_a_measured_signal_is_an_image(description, training):
    wrong = with_image(description)
    wrong["observations"][-1] = ROW | {"signal": "foot_force", "unit": "N"}
    with pytest.raises(ContractError, match=r"params\.image is .*; there is no such parameter of identity"):
        make_contract(wrong, training)


@pytest.fixture(scope="module", params=["depth", pytest.param("rgb", marks=pytest.mark.long)])
def seen(request, tmp_path_factory):
    """A cart-pole's environment with a small camera, an untrained policy of both groups, and its bundle."""
    task = cart(width=12, height=8, delay_steps=(0, 2), missing=0.05)
    group = dataclasses.replace(task.observations["side"], kind=request.param)
    task.observations = {**task.observations, "side": group}
    with contextlib.closing(make_env(task, num_envs=3, engine="mujoco", num_threads=1, seed=4)) as env:
        layout = ObservationLayout({name: tuple(env.get_observations()[name].shape[1:]) for name in ("actor", "side")})
        cfg = NetworkCfg(hidden=(16,), output_gain=1.0, conv=ConvCfg(groups=("side",), channels=(4,)))
        actor = Actor(layout, env.num_actions, cfg, generator=torch.Generator().manual_seed(0))
        env.policy_groups = ("actor", "side")
        out = tmp_path_factory.mktemp(request.param) / "policy"
        yield env, actor, export_policy(env, actor, out, run=RUN, steps=200), out


def test_the_bundle_acts_on_images_as_the_torch_policy_does(seen):
    env, actor, report, out = seen
    term = report.contract.observations[-1]
    group = env.cfg.images["side"]
    assert (term.name, term.signal, term.size) == ("side", "measured/side", int(np.prod(group.shape)))
    assert (term.unit, term.scale) == (("m", 1 / 6.0) if group.kind == "depth" else ("1", 1.0))
    shadow = Shadow(ExportedPolicy(out, env))
    obs = env.reset()
    shadow.reset(torch.ones(3, dtype=torch.bool))
    for _ in range(30):
        row = torch.cat([obs["actor"], obs["side"].flatten(1)], dim=1)
        with torch.no_grad():
            action = actor.mean(row)
        shadow.compare(obs, action)
        obs, _, done, _ = env.step(action)
        shadow.reset(done.bool())
    assert shadow.action_error < 1e-5
    assert shadow.observation_error is not None
    assert shadow.observation_error < 1e-6
    assert report.replay.action_error < 1e-5


def test_a_group_that_no_robot_delivers_is_named(seen):
    env = seen[0]
    kept, env.policy_groups = env.policy_groups, ("actor", "critic")
    with pytest.raises(ValueError, match="observations='critic': a policy for a robot reads 'actor' and groups of im"):
        env.describe_policy()
    env.policy_groups = kept
