"""A learner on a CUDA device with simulators on the CPU, and a simulator on the device."""

import contextlib
from dataclasses import replace

import pytest
import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from benchmarks.thread_pool import ThreadPool
from robot_rl.learn.algorithms.flashsac.config import FlashSACCfg, FlashSACLearnerCfg
from robot_rl.learn.algorithms.ppo.config import PPOCfg, PPOLearnerCfg
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.learn.simulators.remote import RemoteWorlds
from robot_rl.learn.simulators.simulator import Simulator
from robot_rl.learn.simulators.weights import pack
from robot_rl.settings import NetworkCfg
from robot_rl.settings.learner import StalenessCfg

pytestmark = pytest.mark.gpu

N = 32
NETWORK = NetworkCfg(hidden=(32, 32))
CASES = {
    "ppo": PPOLearnerCfg(num_steps=6, actor=NETWORK, critic=NETWORK, ppo=PPOCfg(epochs=2, minibatches=2)),
    "flashsac": FlashSACLearnerCfg(num_steps=3, flashsac=FlashSACCfg(batch=64, replay=2000, warm_up=0, bins=11)),
}


def worlds(device, seed=2):
    return make_env(get_task("cartpole"), num_envs=N, device=device, seed=seed)


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("staleness", [0, 1])
def test_learning_on_the_device_from_simulators_on_the_cpu(case, staleness):
    cfg, rows = replace(CASES[case], staleness=StalenessCfg(max=staleness)), []

    def simulator(index):
        return Simulator(worlds("cpu", index), cfg, seed=1, index=index, count=2, staleness=staleness)

    pool = ThreadPool([lambda index=index: simulator(index) for index in range(2)])
    with contextlib.closing(RemoteWorlds(worlds("cuda"), 2 * N, pool)) as env:
        session = make_trainer(env, cfg, seed=1, observer=rows.append)
        before = {name: tensor.clone() for name, tensor in session.networks().items()}
        session.train(5)
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4, 5]
    assert all(row["staleness/dropped"] == 0.0 for row in rows)
    assert {tensor.device.type for tensor in session.networks().values()} == {"cuda"}
    assert any(not torch.equal(tensor, before[name]) for name, tensor in session.networks().items())
    assert all(bool(tensor.isfinite().all()) for tensor in session.networks().values())


def test_a_simulator_on_the_device_goes_on_from_its_state():
    """The weights come from a learner on the CPU; the state and the segment are the CPU's, too."""
    cfg = CASES["ppo"]
    simulator = Simulator(worlds("cuda"), cfg, seed=1, index=0, count=1, staleness=0)
    actor = make_trainer(worlds("cpu"), cfg, seed=1).actor
    simulator.mailbox.put(0, pack(actor))
    first = simulator.segment(0, is_first=True)
    simulator.mailbox.put(1, pack(actor))
    expected = simulator.segment(1)
    simulator.load(first.state)
    found = simulator.segment(1)
    assert {tensor.device.type for tensor in (*first.tensors.values(), *first.state.values())} == {"cpu"}
    for name, tensor in expected.tensors.items():
        if name == "final_obs":  # It holds something only where an episode ended.
            continue
        torch.testing.assert_close(found.tensors[name], tensor, rtol=1e-4, atol=1e-5, msg=name)
    assert not torch.equal(first.tensors["actor_obs"], expected.tensors["actor_obs"])
