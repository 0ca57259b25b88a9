"""Actuators on a CUDA device: the substeps' kernels are in the graph of a step, and drive as on the CPU."""

import numpy as np
import pytest
import torch
from robot_rl_assets.registry import get_robot
from robot_rl_envs.actuation.actuator_net import save_actuator_net
from robot_rl_envs.actuation.actuators import ActuatorNet, DcMotor, ExplicitPd, PositionPd
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import observations, rewards
from robot_rl_envs.task import Actions, Observation, ObservationGroup, Reward, Sim, Task

pytestmark = [pytest.mark.gpu, pytest.mark.long]

N = 64


@pytest.fixture
def actuators(tmp_path):
    rng = np.random.default_rng(0)
    layers = [(rng.normal(size=(16, 4)), rng.normal(size=16)), (rng.normal(size=(1, 16)), rng.normal(size=1))]
    save_actuator_net(tmp_path / "net.safetensors", layers, lags_s=(0.0, 0.005), velocity_scale=0.1, output_scale=2.0)
    delay = {"delay_s": (0.0, 0.04)}
    return {
        "position_pd": PositionPd(**delay),
        "dc_motor": DcMotor(**delay),
        "explicit_pd": ExplicitPd(saturation_effort=1.5, **delay),
        "actuator_net": ActuatorNet(file=str(tmp_path / "net.safetensors"), **delay),
    }


@pytest.mark.parametrize("kind", ["position_pd", "dc_motor", "explicit_pd", "actuator_net"])
def test_an_actuator_on_the_gpu_is_that_of_the_cpu(kind, actuators):
    """Eight control steps from the default pose, one graph a step, nothing synchronized; feet may land otherwise."""
    task = Task(
        name="actuated",
        robot=get_robot("unitree_go2"),
        sim=Sim(timestep=0.005, decimation=4, iterations=20, ls_iterations=20),
        actions=Actions(actuator=actuators[kind], scale=2.0),
        observations={"actor": ObservationGroup(terms={"joint_pos": Observation(observations.joint_pos_rel)})},
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
    )
    gpu = make_env(task, num_envs=N, device="cuda", seed=3)
    cpu = make_env(task, num_envs=N, engine="mujoco", seed=3)
    assert torch.equal(gpu.state.delay_steps.cpu(), cpu.state.delay_steps)
    for step in range(8):
        actions = 0.3 * torch.randn(N, 12, generator=torch.Generator().manual_seed(step))
        on_gpu = actions.cuda()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error" if step > 1 else "default")
        try:
            gpu.step(on_gpu)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        cpu.step(actions)
    assert gpu._graph is not None
    apart = (gpu.state.joint_torque.cpu() - cpu.state.joint_torque).abs().amax(dim=1)
    assert (apart < 0.1).float().mean() > 0.9
