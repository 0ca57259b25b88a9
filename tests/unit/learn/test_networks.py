"""Actor and critic: the fused passes against PyTorch's own, the Gaussian, the exported form."""

import math

import pytest
import torch

from robot_rl.learn.cpu import mlp as fused
from robot_rl.learn.cpu.mlp import activate
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.distributions import Gaussian
from robot_rl.learn.networks.mlp import Mlp, make_activation
from robot_rl.learn.networks.symmetry import SymmetricMlp
from robot_rl.settings import NetworkCfg

MIRROR_IN = (torch.tensor([1, 0, 2, 3, 5, 4]), torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0]))
MIRROR_OUT = (torch.tensor([1, 0, 2]), torch.tensor([-1.0, -1.0, -1.0]))
SINGLE_PROCESS = (torch.tensor([0]), torch.tensor([1.0]))


def make(kind, activation):
    cfg = NetworkCfg(hidden=(32, 16), activation=activation, output_gain=1.0)
    generator = torch.Generator().manual_seed(3)
    if kind == "plain":
        return Mlp(6, 3, cfg, generator)
    return SymmetricMlp(MIRROR_IN, MIRROR_OUT if kind == "symmetric" else SINGLE_PROCESS, cfg, generator)


def results(network, run, x, weight):
    """Output and gradients of a run."""
    for parameter in network.parameters():
        parameter.grad = None
    out = run(network.encode(x))
    (out * weight).sum().backward()
    return [out.detach(), *(p.grad for p in network.parameters() if p.grad is not None and p.numel())]


@pytest.fixture
def always_fused(monkeypatch):
    """Fused passes for a few rows, too."""
    monkeypatch.setattr(fused, "MOST_PLAIN", 0)


@pytest.mark.usefixtures("always_fused")
@pytest.mark.parametrize("activation", ["elu", "relu", "tanh"])
@pytest.mark.parametrize("kind", ["plain", "symmetric", "invariant"])
def test_fused_passes_agree_with_autograd(kind, activation):
    network = make(kind, activation)
    network.work.block = 20  # Five blocks, the last one short.
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(93, 6, generator=generator)
    weight = torch.randn(93, network.dense()[-1].out_features, generator=generator)
    found, plain = results(network, network.forward, x, weight), results(network, network.plain, x, weight)
    for ours, theirs in zip(found, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    with torch.no_grad():  # What acts and what learns is the same to the bit.
        assert torch.equal(network(network.encode(x)), found[0])


@pytest.mark.parametrize("name", ["elu", "relu", "tanh"])
def test_activations_are_those_of_pytorch(name):
    x = torch.cat((torch.linspace(-30.0, 30.0, 60_001), torch.tensor([-1e30, 1e30, -math.inf, math.inf, math.nan])))
    found = x.clone()
    activate(name, found, torch.empty_like(x))
    expected = make_activation(name)(x)
    torch.testing.assert_close(found, expected, rtol=2e-7, atol=2e-7, equal_nan=True)


@pytest.mark.usefixtures("always_fused")
def test_fused_pass_gives_the_gradient_of_its_input():
    network = make("plain", "elu")
    x = torch.randn(33, 6, requires_grad=True)
    network(x).square().sum().backward()
    found, x.grad = x.grad, None
    network.plain(x).square().sum().backward()
    torch.testing.assert_close(found, x.grad)


def test_a_few_rows_take_few_operations():
    """Up to MOST_PLAIN a pass is PyTorch's own, and any number of them may be recorded."""
    network = make("plain", "elu")
    assert network.work.widest == 32
    few, many = torch.randn(fused.MOST_PLAIN // 32, 6), torch.randn(fused.MOST_PLAIN // 32 + 1, 6)
    assert network(few).grad_fn.name() == "AddmmBackward0"
    assert network(many).grad_fn.name() == "_MlpFunctionBackward"
    (network(few) + network(few)).sum().backward()


@pytest.mark.usefixtures("always_fused")
def test_two_recorded_passes_are_refused_rather_than_wrong():
    network = make("plain", "elu")
    first, second = network(torch.randn(8, 6)), network(torch.randn(8, 6))
    with pytest.raises(RuntimeError, match="ran forward again"):
        (first + second).sum().backward()


@pytest.mark.parametrize("activation", ["elu", "relu", "tanh", "silu"])
@pytest.mark.parametrize("kind", ["plain", "symmetric", "invariant"])
def test_dense_copy_computes_the_same(kind, activation):
    network = make(kind, activation)
    x = torch.randn(17, 6)
    with torch.no_grad():
        torch.testing.assert_close(network.dense()(x), network(network.encode(x)), rtol=1e-5, atol=1e-6)


def test_gaussian_by_hand():
    gaussian = Gaussian(2, NetworkCfg())
    action, mean = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, -1.0]])
    log_std = torch.tensor([math.log(0.5), math.log(2.0)])
    density = math.exp(-0.5) / (0.5 * math.sqrt(2 * math.pi)) * math.exp(-0.125) / (2.0 * math.sqrt(2 * math.pi))
    assert float(gaussian.log_prob(action, (mean, log_std))) == pytest.approx(math.log(density), rel=1e-6)
    entropy = sum(0.5 * math.log(2 * math.pi * math.e * s * s) for s in (0.5, 2.0))
    assert float(gaussian.entropy((mean, log_std))) == pytest.approx(entropy, rel=1e-6)


def test_divergence_agrees_with_torch():
    old, new = torch.randn(5, 3), torch.randn(5, 3)
    old_log_std, log_std = torch.randn(3), torch.randn(3)
    p, q = torch.distributions.Normal(old, old_log_std.exp()), torch.distributions.Normal(new, log_std.exp())
    expected = torch.distributions.kl_divergence(p, q).sum(-1)
    found = Gaussian(3, NetworkCfg()).kl((old, old_log_std), (new, log_std))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_acting_samples_the_distribution_it_returns():
    actor = Actor(4, 2, NetworkCfg(hidden=(8,), init_std=0.3), generator=torch.Generator().manual_seed(0))
    obs, noise = torch.randn(6, 4), torch.randn(6, 2)
    action, mean = actor.act(obs, noise)
    torch.testing.assert_close(mean, actor.mean(obs))
    torch.testing.assert_close(action, mean + 0.3 * noise)
    expected = torch.distributions.Normal(mean, 0.3).log_prob(action).sum(-1)
    torch.testing.assert_close(actor.distribution.log_prob(action, actor.params(obs)), expected)


def test_deviation_stays_in_its_range():
    actor = Actor(4, 2, NetworkCfg(hidden=(8,), min_std=0.1, max_std=2.0))
    with torch.no_grad():
        actor.distribution.log_std.copy_(torch.tensor([-9.0, 9.0]))
    torch.testing.assert_close(actor.distribution.current().exp(), torch.tensor([0.1, 2.0]))


def test_seeded_weights_leave_the_global_stream_unchanged():
    before = torch.get_rng_state()
    first = Actor(4, 2, NetworkCfg(hidden=(8,)), generator=torch.Generator().manual_seed(5))
    second = Actor(4, 2, NetworkCfg(hidden=(8,)), generator=torch.Generator().manual_seed(5))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_the_first_policy_hardly_moves():
    actor = Actor(30, 12, NetworkCfg(), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert float(actor.mean(torch.randn(100, 30)).abs().max()) < 0.1


@pytest.mark.parametrize("mirrored", [False, True])
def test_exported_actor_takes_raw_observations(mirrored):
    mirror = (MIRROR_IN, MIRROR_OUT) if mirrored else None
    actor = Actor(6, 3, NetworkCfg(hidden=(16, 8), output_gain=1.0), mirror=mirror)
    actor.normalizer.update(torch.randn(40, 6) * 5.0 + 3.0)
    exported = actor.export_module()
    obs = torch.randn(11, 6) * 5.0
    with torch.no_grad():
        torch.testing.assert_close(exported(obs), actor.mean(obs), rtol=1e-5, atol=1e-5)
        before = exported(obs)
        actor.normalizer.update(torch.randn(40, 6))
        assert torch.equal(exported(obs), before)
    assert not exported.training


def test_critic_values_have_one_dimension():
    assert Critic(5, NetworkCfg(hidden=(8,))).value(torch.randn(7, 5)).shape == (7,)


@pytest.mark.skipif(not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="PyTorch was built without oneDNN")
@pytest.mark.parametrize("rows", [3000, 3001])
def test_either_library_gives_the_same_products(monkeypatch, rows):
    monkeypatch.setattr(fused, "LEAST_PRODUCT", 0)
    monkeypatch.setattr(fused, "LEAST_GRADIENT", 0)
    torch.manual_seed(3)
    sizes, x = ((7, 32), (32, 32), (32, 3)), torch.randn(3001, 7)[:rows].requires_grad_()
    layers = [
        (torch.randn(out, width, requires_grad=True), torch.randn(out, requires_grad=True)) for width, out in sizes
    ]
    results = []
    for is_quick in (False, True):
        monkeypatch.setattr(fused, "has_quick_onednn", lambda is_quick=is_quick: is_quick)
        out = fused.run_mlp(fused.Workspace("elu", 32), x, layers)
        parts = [x, *(part for layer in layers for part in layer)]
        results.append([out, *torch.autograd.grad(out.square().mean(), parts)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
