"""Rounding to the grids of formats, and the steps of grids."""

import pytest
import torch

from robot_rl.learn.precision.formats import FP8, INT8, fit_step
from robot_rl.learn.precision.kernels import EXACT_INPUTS, linear_bf16, multiply


def test_int8_rounds_ties_to_even_and_saturates():
    found = INT8.levels(torch.tensor([0.5, 1.5, -2.5, 126.6, 300.0, -300.0]))
    assert found.tolist() == [0.0, 2.0, -2.0, 127.0, 127.0, -128.0]


def test_e4m3_has_four_significant_bits_and_saturates():
    found = FP8.levels(torch.tensor([17.0, 19.0, 2.0**-9, 1e4, -1e4]))
    assert found.tolist() == [16.0, 20.0, 2.0**-9, 448.0, -448.0]


@pytest.mark.parametrize("format", [FP8, INT8])
def test_the_largest_weight_of_each_output_is_the_largest_level(format):
    weight = torch.randn(5, 7)
    weight[2] = 0.0
    step = format.weight_step(weight)
    levels = format.levels(weight / step[:, None])
    assert levels.abs().amax(1)[[0, 1, 3, 4]].tolist() == [format.largest] * 4
    assert not levels[2].any()


@pytest.mark.parametrize("format", [FP8, INT8])
def test_a_step_has_no_greater_error_than_that_of_the_widest_grid(format):
    values = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    step, widest = fit_step(values, format), values.abs().max() / format.largest
    assert step < 0.95 * widest or format is FP8  # Of int8 it pays to let a few values of a bell curve saturate.
    errors = [
        float((format.levels((values / s).clamp(format.lowest, format.largest)) * s - values).square().mean())
        for s in (step, widest)
    ]
    assert errors[0] <= errors[1]
    even = torch.linspace(-1.0, 1.0, 1000)
    assert float(fit_step(even, INT8)) * INT8.largest == pytest.approx(1.0)


def test_a_step_for_values_of_zero_is_positive():
    assert float(fit_step(torch.zeros(10), INT8)) > 0.0


@pytest.mark.parametrize("inputs", [1, 47, EXACT_INPUTS, EXACT_INPUTS + 500])
def test_sums_of_int8_products_are_whole_numbers_by_any_instructions(inputs):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-127, 128, (n, inputs), generator=generator).float() for n in (96, 64))
    a[0], b[0] = 127.0, 127.0
    exact = a.double() @ b.double().t()
    found = multiply(a.repeat(32, 1), b, INT8)  # enough for integer instructions, where there are any
    assert torch.equal(found[:96].double(), exact.float().double())
    assert torch.equal(multiply(a[:3], b, INT8), found[:3])


def test_bf16_instructions_and_their_emulation_are_within_one_rounding(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(n, 300, generator=generator).bfloat16() for n in (64, 48))
    bias = torch.randn(48, generator=generator).bfloat16()
    found = linear_bf16(x, weight, bias).float()
    monkeypatch.setattr("robot_rl.learn.precision.kernels.has_bf16", lambda kind: False)
    emulated = linear_bf16(x, weight, bias).float()
    sums = x.float().abs() @ weight.float().abs().t()
    assert bool(((found - emulated).abs() <= 2.0**-7 * emulated.abs() + 1e-5 * sums).all())
    assert float((found != emulated).float().mean()) < 0.02
