"""Recurrent layers against PyTorch's own, and what may and may not pass from step to step."""

import copy

import pytest
import torch

from robot_rl.errors import UserError
from robot_rl.learn.networks.memory import Memory, Recurrent
from robot_rl.settings import MemoryCfg

KINDS = pytest.mark.parametrize("kind", ["gru", "lstm"])
SHAPES = pytest.mark.parametrize(("kind", "layers"), [("gru", 1), ("gru", 2), ("lstm", 1), ("lstm", 2)])


def make(kind, layers=1, hidden=8, in_dim=5, dtype=torch.float32):
    memory = Memory(in_dim, MemoryCfg(kind=kind, hidden=hidden, layers=layers), torch.Generator().manual_seed(0))
    with torch.no_grad():
        for name, parameter in memory.named_parameters():
            if "bias" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(1))
    return memory.to(dtype)


def data(memory, steps=7, worlds=6, ends=0.3, dtype=torch.float32):
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(steps, worlds, 5, generator=generator, dtype=dtype)
    state = torch.randn(worlds, memory.state_size, generator=generator, dtype=dtype)
    return x, state, torch.rand(steps, worlds, generator=generator) < ends


def plainly(memory, x, state, start):
    """The sequence by PyTorch's own operations and autograd."""
    for cell, before in zip(memory.cells, memory._split(state), strict=True):
        x = cell.plain(x, before, start)[0]
    return x


@KINDS
def test_a_layer_is_pytorchs(kind):
    """PyTorch has two biases in each gate and orders an LSTM's gates i, f, g, o."""
    memory = make(kind)
    cell, size = memory.cells[0], memory.hidden
    theirs = (torch.nn.GRU if kind == "gru" else torch.nn.LSTM)(5, size)
    order = range(3) if kind == "gru" else (0, 1, 3, 2)
    rows = torch.cat([torch.arange(gate * size, (gate + 1) * size) for gate in order])
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(cell.weight_x[rows])
        theirs.weight_hh_l0.copy_(cell.weight_h[rows])
        theirs.bias_ih_l0.copy_(cell.bias[rows])
        theirs.bias_hh_l0.zero_()
        if kind == "gru":
            theirs.bias_hh_l0[2 * size :] = cell.bias_h
    x, state, _ = data(memory)
    parts = [part.contiguous() for part in state.split(size, 1)]
    own = memory.sequence(x, state, torch.zeros(7, 6, dtype=torch.bool))
    torch.testing.assert_close(own, theirs(x, parts[0][None] if kind == "gru" else tuple(p[None] for p in parts))[0])


@SHAPES
def test_a_sequence_is_its_steps(kind, layers):
    memory = make(kind, layers)
    x, state, start = data(memory)
    with torch.no_grad():
        whole, states = memory.trace(x, state, start)
        for t in range(len(x)):
            before = torch.where(start[t, :, None], 0.0, state)
            y, state = memory.step(x[t], before)
            torch.testing.assert_close(whole[t], y)
            torch.testing.assert_close(states[t], state)
            plain, after = memory.plain_step(x[t], before)
            torch.testing.assert_close(plain, y)
            torch.testing.assert_close(after, state)


@SHAPES
@pytest.mark.parametrize("rows", [4, 100])
def test_gradients_are_those_of_autograd(kind, layers, rows):
    """In blocks of 4 worlds, which 6 do not divide by, and all at once; of inputs, state and every weight."""
    memory = make(kind, layers, dtype=torch.float64)
    for cell in memory.cells:
        cell.space.rows = rows
    x, state, start = data(memory, dtype=torch.float64)
    x.requires_grad_()
    state.requires_grad_()
    inputs = [x, state, *(p for p in memory.parameters() if p.numel())]
    found = torch.autograd.grad(memory.sequence(x, state, start).square().sum(), inputs)
    expected = torch.autograd.grad(plainly(memory, x, state, start).square().sum(), inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@SHAPES
def test_nothing_passes_the_start_of_an_episode(kind, layers):
    """Neither what was remembered nor a gradient; within an episode both do."""
    memory = make(kind, layers)
    x, state, _ = data(memory, worlds=2)
    start = torch.zeros(7, 2, dtype=torch.bool)
    start[4, 0] = True
    x.requires_grad_()
    state.requires_grad_()
    out = memory.sequence(x, state, start)
    grad_x, grad_state = torch.autograd.grad(out[5:].square().sum(), (x, state))
    assert bool((grad_x[:4, 0] == 0.0).all())
    assert bool((grad_state[0] == 0.0).all())
    assert bool((grad_x[4:6].abs().amax(-1) > 0.0).all())
    assert bool((grad_x[:4, 1].abs().amax(-1) > 0.0).all())
    assert bool((grad_state[1] != 0.0).all())
    with torch.no_grad():
        fresh = memory.sequence(x[4:], torch.zeros_like(state), start[4:])
    torch.testing.assert_close(out[4:, 0], fresh[:, 0])
    assert float((out[4:, 1] - fresh[:, 1]).detach().abs().max()) > 1e-3


def test_a_second_forward_pass_before_the_first_ones_backward_is_refused():
    memory = make("gru")
    first = memory.sequence(*data(memory)).sum()
    second = memory.sequence(*data(memory)).sum()
    with pytest.raises(RuntimeError, match="ran forward again"):
        first.backward()
    second.backward()
    with pytest.raises(RuntimeError):
        second.backward()


def test_arrays_are_kept_and_not_shared_with_copies():
    memory = make("lstm")
    memory.sequence(*data(memory)).sum().backward()
    space = memory.cells[0].space
    first = space._blocks[next(iter(space._blocks))][0].whole.gates.data_ptr()
    memory.sequence(*data(memory)).sum().backward()
    assert space._blocks[next(iter(space._blocks))][0].whole.gates.data_ptr() == first
    assert copy.deepcopy(memory).cells[0].space._blocks == {}
    for worlds in range(1, 8):
        memory.sequence(*data(memory, worlds=worlds)).sum().backward()
    assert len(space._blocks) == 4


@KINDS
def test_weights_come_only_from_the_generator(kind):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, other = (Recurrent(kind, 12, 8, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    for gate in one.weight_h.split(8):
        torch.testing.assert_close(gate @ gate.T, torch.eye(8))
    assert one.bias.sum() == (8.0 if kind == "lstm" else 0.0)


MIRROR = (torch.tensor([1, 0, 2, 3, 4]), torch.tensor([1.0, 1.0, -1.0, 1.0, -1.0]))


def make_mirrored(kind, layers=1):
    memory = Memory(5, MemoryCfg(kind=kind, hidden=8, layers=layers), torch.Generator().manual_seed(0), MIRROR)
    with torch.no_grad():
        for name, parameter in memory.named_parameters():
            if "bias" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(1))
    return memory


def swapped(states):
    """What is remembered of mirror images: the halves of each part in each other's place."""
    return torch.cat([part.roll(4, -1) for part in states.split(8, -1)], -1)


@SHAPES
def test_mirror_images_are_remembered_as_mirror_images(kind, layers):
    memory = make_mirrored(kind, layers)
    x, state, start = data(memory)
    image = x[..., MIRROR[0]] * MIRROR[1]
    with torch.no_grad():
        out, states = memory.trace(x, state, start)
        other, other_states = memory.trace(image, swapped(state), start)
        torch.testing.assert_close(other, swapped(out))
        torch.testing.assert_close(other_states, swapped(states))
        torch.testing.assert_close(other, out[..., memory.mirror[0]] * memory.mirror[1])
        assert float((memory.trace(x, swapped(state), start)[0] - other).abs().max()) > 1e-2
        torch.testing.assert_close(memory.plain_step(x[0], state)[0], memory.step(x[0], state)[0])
    for cell in memory.cells:
        for gate in cell.weights()[1].split(8):
            torch.testing.assert_close(gate @ gate.T, torch.eye(8))


@KINDS
def test_gradients_reach_both_halves(kind):
    memory = make_mirrored(kind, 2)
    x, state, start = data(memory)
    inputs = [p for p in memory.parameters() if p.numel()]
    found = torch.autograd.grad(memory.sequence(x, state, start).square().sum(), inputs)
    expected = torch.autograd.grad(plainly(memory, x, state, start).square().sum(), inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_an_odd_number_of_units_has_no_mirror():
    with pytest.raises(UserError, match=r"^memory\.hidden: 7 is odd, a symmetric network needs an even one such as 8$"):
        Memory(5, MemoryCfg(kind="gru", hidden=7), mirror=MIRROR)
