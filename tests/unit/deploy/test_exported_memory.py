"""Policies with a memory in a bundle: the state goes in and out of the network and is zero after a reset."""

import json
import shutil

import numpy as np
import onnx
import pytest
import torch
from robot_rl_deploy.bundle import read_bundle, write_sums
from robot_rl_deploy.contract import dumps, loads
from robot_rl_deploy.export import export_policy
from robot_rl_deploy.policy import BundlePolicy
from robot_rl_deploy.replay import replay
from robot_rl_deploy.session import Session
from robot_rl_deploy.strict import ContractError
from robot_rl_deploy.verify import verify_bundle

from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.learn.networks.layout import ObservationLayout
from robot_rl.settings import ConvCfg, MemoryCfg, NetworkCfg

MIRROR = (torch.arange(30).roll(15), torch.ones(30))
SAME = (torch.tensor([1, 0]), torch.ones(2))


def make_actor(kind="gru", layers=1, mirrored=False, **fields):
    memory = MemoryCfg(kind=kind, hidden=12, layers=layers)
    cfg = NetworkCfg(hidden=(16,), output_gain=1.0, memory=memory, **fields)
    layout = ObservationLayout({"actor": (30,)}, {"actor.joint_vel": (15, 1, 3, 3)})
    mirror = (MIRROR, SAME) if mirrored else None
    actor = Actor(layout, 2, cfg, mirror=mirror, generator=torch.Generator().manual_seed(0))
    actor.normalizer.update(torch.randn(64, 30, generator=torch.Generator().manual_seed(1)) * 3.0 + 0.5)
    with torch.no_grad():
        for name, parameter in actor.named_parameters():
            if "bias" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(2))
    return actor


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, make_bundle):
    return make_bundle(tmp_path_factory.mktemp("memory") / "policy", make_actor())


@pytest.fixture(scope="module")
def make_bundle():
    from robot_rl_deploy.contract import TrainingSpec

    from .conftest import ToyEnv

    def make(out, actor):
        run = TrainingSpec(run_id="1", task="toy", git_commit="0", iteration=3)
        export_policy(ToyEnv(num_envs=2), actor, out, run=run)
        return out

    return make


@pytest.mark.parametrize(
    ("kind", "layers", "mirrored", "fields"),
    [
        pytest.param("gru", 1, False, {}, marks=pytest.mark.long),
        pytest.param("gru", 2, False, {"distribution": "squashed", "bound": 0.8}, marks=pytest.mark.long),
        ("lstm", 1, False, {"conv": ConvCfg(groups=("actor.joint_vel",), channels=(4, 8), features=6)}),
        pytest.param("lstm", 2, False, {}, marks=pytest.mark.long),
        pytest.param("gru", 2, True, {}, marks=pytest.mark.long),
        ("lstm", 1, True, {"state_std": True}),
    ],
)
def test_the_bundle_does_what_the_policy_does(make_bundle, random_states, tmp_path, kind, layers, mirrored, fields):
    """Over 20 steps, with resets of some robots on the way."""
    actor = make_actor(kind, layers, mirrored, **fields)
    policy = BundlePolicy(make_bundle(tmp_path / "policy", actor), num_envs=8)
    assert policy.contract.layout.state_size == actor.state_size == (1 if kind == "gru" else 2) * layers * 12
    assert policy.report.action_error < 1e-5
    state, largest, rng = torch.zeros(8, actor.state_size), 0.0, np.random.default_rng(0)
    for raw in random_states(8, 20):
        mask = rng.random(8) < 0.2
        policy.reset(mask)
        state[torch.from_numpy(mask)] = 0.0
        _, action, observation = policy.act(raw)
        with torch.no_grad():
            wanted = actor.mean(torch.from_numpy(observation), state).clamp(-10, 10).numpy()
        np.testing.assert_allclose(action, wanted, atol=1e-5)
        largest = max(largest, np.abs(action).max())
    assert largest > 0.1
    policy.reset()
    assert not policy._state.any()


def test_names_and_widths(bundle):
    model = onnx.load(bundle / "policy.onnx")
    assert [node.name for node in model.graph.input] == ["observation", "state"]
    assert [node.name for node in model.graph.output] == ["action", "joint_target", "state_out"]
    data = json.loads((bundle / "contract.json").read_text())
    assert data["layout"]["state_size"] == 12
    assert loads(json.dumps(data)).layout.state_size == 12


def test_contracts_of_policies_without_a_memory_are_as_they_were(toy_bundle):
    text = (toy_bundle / "contract.json").read_text()
    assert "state_size" not in text
    assert loads(text).layout.state_size == 0
    assert dumps(loads(text)) == text


def test_a_runtime_that_does_not_forget_at_a_reset_is_found_out(bundle):
    """The sequence goes through the network with its resets; the first one inside is where an episode ended."""
    content = read_bundle(bundle)
    session = Session(content.model, content.contract)
    assert replay(content.contract, session, content.golden).action_error < 1e-5
    kept, run = [np.zeros((1, 12), np.float32)], session.run

    def remembering(observation, state):
        action, target, after = run(observation, kept[0])
        kept[0] = after
        return action, target, after

    session.run = remembering
    with pytest.raises(ContractError, match="golden replay: action 'hip' is .* at step 60, recorded was"):
        replay(content.contract, session, content.golden)


def edited(bundle, tmp_path, change):
    """A copy of a bundle with another contract, hashes forged."""
    import hashlib

    copy = tmp_path / "policy"
    shutil.copytree(bundle, copy)
    data = json.loads((copy / "contract.json").read_text())
    change(data["layout"])
    (copy / "contract.json").write_text(json.dumps(data))
    model = onnx.load(copy / "policy.onnx")
    digest = hashlib.sha256((copy / "contract.json").read_bytes()).hexdigest()
    onnx.helper.set_model_props(model, {"contract_sha256": digest})
    (copy / "policy.onnx").write_bytes(model.SerializeToString())
    write_sums(copy)
    return copy


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda layout: layout.pop("state_size"), "the names are observation, state; a policy has observation"),
        (lambda layout: layout.update(state_size=11), r"'state' is .*; the contract needs float \(N, 11\)"),
        (lambda layout: layout.update(state_size=-1), "layout.state_size is -1; it must be in"),
        (lambda layout: layout.update(state_size=1.5), "layout.state_size is 1.5; a whole number"),
    ],
)
def test_a_contract_that_does_not_fit_the_memory_is_refused(bundle, tmp_path, change, line):
    assert verify_bundle(edited(bundle, tmp_path / "same", lambda layout: None)).replay.resets > 2
    with pytest.raises(ContractError, match=line) as caught:
        verify_bundle(edited(bundle, tmp_path, change))
    assert "\n" not in str(caught.value)
