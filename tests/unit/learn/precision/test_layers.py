"""Quantized networks: bits that depend on nothing but the row, gradients, grids, and which layers are in."""

import copy

import pytest
import torch
from torch import nn

from robot_rl.errors import UserError
from robot_rl.learn.networks.symmetry import reflect
from robot_rl.learn.precision.conversion import acting, describe_layers, in_precision, layers_of, measure
from robot_rl.learn.precision.formats import FP32, INT8
from robot_rl.learn.precision.layer import QuantizedLayer
from robot_rl.settings import PrecisionCfg
from tests.unit.learn.precision.actors import KINDS, MIRROR, MODES, SWAP, make_actor, outputs, state_of


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_the_same_bits_in_every_batch(kind, mode, threads):
    torch.set_num_threads(threads)
    actor = make_actor(kind, mode)
    x = torch.randn(600, actor.obs_dim, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        everything, part, one = (outputs(actor, x[rows]) for rows in (slice(None), slice(101, 338), slice(333, 334)))
    learned = outputs(actor, x[101:338])  # with gradients
    assert learned.requires_grad
    assert torch.equal(everything[101:338], part)
    assert torch.equal(everything[333:334], one)
    assert torch.equal(part, learned)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_it_differs_from_float32_by_rounding_alone(kind, mode):
    plain, rounded = make_actor(kind, "fp32"), make_actor(kind, mode)
    x = torch.randn(200, plain.obs_dim, generator=torch.Generator().manual_seed(0))
    exact, found = outputs(plain, x), outputs(rounded, x)
    error = (found - exact).std() / exact.std()
    assert 1e-4 < error < {"bf16": 0.02, "int8": 0.05, "fp8": 0.12}[mode]


@pytest.mark.parametrize("mode", ["int8", "fp8"])
def test_a_mirrored_observation_gives_the_mirrored_action(mode):
    actor = make_actor("symmetric", mode)
    x = 4.0 * torch.randn(300, 47, generator=torch.Generator().manual_seed(0))  # saturates on both sides
    same = torch.equal if mode == "int8" else lambda a, b: torch.allclose(a, b, atol=1e-5)
    assert same(outputs(actor, reflect(x, MIRROR)), reflect(outputs(actor, x), SWAP))


@pytest.mark.parametrize("mode", MODES)
def test_gradients_go_straight_through_the_rounding(mode):
    actor = make_actor("plain", mode, hidden=(32,), activation="tanh")
    x = torch.randn(64, 47, generator=torch.Generator().manual_seed(0))
    rounded = []
    for layer, (weight, _) in zip(layers_of(actor), actor.body.deployed(), strict=True):
        if layer.format.has_step:
            step = layer.format.weight_step(weight)[:, None]
            rounded.append(layer.format.levels(weight / step) * step)
        else:
            rounded.append(weight.bfloat16().float())
    outputs(actor, x).square().sum().backward()
    twin = make_actor("plain", "fp32", hidden=(32,), activation="tanh")
    with torch.no_grad():
        for (weight, _), values in zip(twin.body.deployed(), rounded, strict=True):
            weight.copy_(values)
    outputs(twin, x).square().sum().backward()
    for (mine, _), (theirs, _) in zip(actor.body.deployed(), twin.body.deployed(), strict=True):
        angle = nn.functional.cosine_similarity(mine.grad.flatten(), theirs.grad.flatten(), dim=0)
        assert float(angle) > (0.97 if mode == "fp8" else 0.995)


def test_inputs_that_saturate_have_no_gradient():
    layer = QuantizedLayer("x", (1, 2), INT8)
    layer.step.fill_(0.01)
    x = torch.tensor([[0.5, 9.0], [-9.0, 0.2]], requires_grad=True)
    layer(x, torch.ones(1, 2), torch.zeros(1)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_grids_change_when_they_are_measured_and_only_then():
    actor = make_actor("plain", "int8", measured=False)
    before = [layer.step.clone() for layer in layers_of(actor)]
    x = torch.randn(128, 47)
    outputs(actor, x).sum().backward()
    assert all(torch.equal(a, layer.step) for a, layer in zip(before, layers_of(actor), strict=True))
    with torch.no_grad():
        measure(actor, lambda: outputs(actor, x))
    assert all(float(layer.step) < float(a) for a, layer in zip(before, layers_of(actor), strict=True))
    assert all(layer.seen is None for layer in layers_of(actor))


@pytest.mark.parametrize("width", [48, 64, 128, 512])
def test_every_component_counts_in_a_step(width):
    x = torch.full((4096, width), 0.01)
    for component in (0, 1, width - 1):
        layer = QuantizedLayer("x", (4, width), INT8)
        one = x.clone()
        one[:, component] = 5.0
        measure(layer, lambda layer=layer, one=one: layer(one, torch.ones(4, width), None))
        assert float(layer.step) * INT8.largest == pytest.approx(5.0)


def test_a_failure_while_grids_are_measured_leaves_them_as_they_are():
    layer = QuantizedLayer("x", (4, 3), INT8)
    before = layer.step.clone()

    def fail():
        layer(torch.ones(2, 3), torch.ones(4, 3), None)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        measure(layer, fail)
    assert torch.equal(layer.step, before)
    assert layer.seen is None


def test_the_average_over_ranks_is_what_every_rank_takes():
    actors = [make_actor("plain", "int8", measured=False) for _ in range(2)]
    for scale, actor in zip((1.0, 3.0), actors, strict=True):
        x = scale * torch.randn(128, 47, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            measure(actor, lambda actor=actor, x=x: outputs(actor, x), lambda step: torch.full_like(step, 0.02))
    assert all(float(layer.step) == pytest.approx(0.02) for actor in actors for layer in layers_of(actor))


def test_layers_that_are_kept_compute_in_float32():
    actor = make_actor("gru", "int8", keep=("actor.1", "actor.memory"))
    formats = {layer.name: layer.format.name for layer in layers_of(actor)}
    assert formats == {
        "actor.memory.0.x": "fp32",
        "actor.memory.0.h": "fp32",
        "actor.0": "int8",
        "actor.1": "fp32",
        "actor.2": "int8",
    }
    first_and_last = make_actor("plain", "fp8", first=False, last=False)
    assert [layer.format.name for layer in layers_of(first_and_last)] == ["fp32", "fp8", "fp32"]
    assert describe_layers(first_and_last, "cpu").startswith("1 of 3 layers in fp8")


def test_a_layer_that_there_is_not_is_no_layer_to_keep():
    with pytest.raises(UserError, match=r"precision.keep: 'actor.7' is not a layer of this network; did you mean"):
        make_actor("plain", "int8", keep=("actor.7",))


def test_rollouts_may_have_a_precision_of_their_own():
    actor = make_actor("plain", "bf16", rollout="int8")
    x = torch.randn(64, 47)
    with torch.no_grad():
        learned = outputs(actor, x)
        with acting(actor):
            acted = outputs(actor, x)
        assert torch.equal(outputs(actor, x), learned)
        assert torch.equal(actor.act(x, torch.zeros(64, 4))[1], acted)
    assert not torch.equal(acted, learned)


def test_quantization_after_training_leaves_the_policy_as_it_is():
    actor = make_actor("images", "fp32")
    x = torch.randn(100, actor.obs_dim)
    with torch.no_grad():
        before = outputs(actor, x)
        later = in_precision(actor, PrecisionCfg(mode="int8"), lambda twin: outputs(twin, x))
        assert not torch.equal(outputs(later, x), before)
        assert torch.equal(outputs(actor, x), before)
        assert torch.equal(outputs(in_precision(later, PrecisionCfg(), lambda twin: None), x), before)
    assert layers_of(actor) == []
    assert all(layer.format is not FP32 for layer in layers_of(later))


def test_a_copy_rounds_as_the_original_does():
    actor = make_actor("gru", "bf16")
    x = torch.randn(40, 47)
    with torch.no_grad():
        assert torch.equal(outputs(copy.deepcopy(actor), x), outputs(actor, x))
        assert state_of(actor, x) is not None


@pytest.mark.parametrize("mode", ["bf16", "int8"])
def test_no_worlds_give_no_rows(mode):
    """A rollout without an episode that was cut short needs no value of a last observation."""
    actor = make_actor("gru", mode)
    with torch.no_grad():
        out, after = actor.step(actor.encode(torch.zeros(0, 47)), torch.zeros(0, actor.state_size))
    assert (out.shape[0], after.shape) == (0, (0, actor.state_size))
