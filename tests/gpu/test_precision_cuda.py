"""Quantized networks on a CUDA device: its instructions against float32, and the ratio of the first minibatch."""

from dataclasses import replace

import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.learn.precision import kernels
from robot_rl.learn.precision.formats import FP8, INT8
from robot_rl.settings import NetworkCfg, PrecisionCfg

pytestmark = [pytest.mark.gpu, pytest.mark.long]

NETWORK = NetworkCfg(hidden=(256, 128))
PPO = PPOLearnerCfg(num_steps=12, actor=NETWORK, critic=NETWORK, ppo=PPOCfg(epochs=2, minibatches=4))


@pytest.fixture
def levels():
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(rows, 512, generator=generator) for rows in (256, 128))


def test_integer_instructions_have_the_bits_of_float32(levels):
    x, weight = (INT8.levels(40.0 * part) for part in levels)
    assert kernels.has_int8("cuda")
    assert torch.equal(
        kernels.multiply(x.cuda(), weight.cuda(), INT8).cpu(), (x.double() @ weight.double().t()).float()
    )


def test_e4m3_instructions_are_within_their_accumulation(levels):
    if not kernels.has_fp8("cuda"):
        pytest.skip("e4m3 products begin with compute capability 8.9")
    x, weight = (FP8.levels(100.0 * part) for part in levels)
    exact = x.double() @ weight.double().t()
    sums = x.double().abs() @ weight.double().abs().t()
    found = kernels.multiply(x.cuda(), weight.cuda(), FP8).cpu().double()
    assert float(((found - exact).abs() / sums).max()) < 2.0**-13


@pytest.mark.parametrize("mode", ["bf16", "fp8", "int8"])
def test_the_first_ratio_and_the_graphs(mode):
    cfg = replace(PPO, precision=PrecisionCfg(mode=mode))
    env = make_env(get_task("cartpole"), num_envs=1024, device="cuda", seed=2)
    runner = make_trainer(env, cfg, seed=3)
    for _ in range(4):
        statistics = runner.algorithm.update(runner.collect(), 0.0)
        worst = float(statistics["precision/log_ratio_max"])
        # Only whole numbers are the same in every kernel that a library takes for a size.
        assert worst == 0.0 if mode == "int8" else worst < 0.1
    assert runner.algorithm.graphed is not None
    assert not runner.algorithm.graphed.problem
    env.close()
