"""An excitation as a policy: the robot's binary plays it behind its safety layer, and logs it.

A periodic target is a Fourier series. The policy observes the sine and cosine of a clock at each frequency, and is one
linear layer; it starts in the default pose, at rest, and repeats until the operator ends it.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from robot_rl_assets.robot import Robot

from robot_rl.errors import UserError, as_user_error
from robot_rl.files import write_atomic

if TYPE_CHECKING:
    import torch
    from robot_rl_envs.task import Task

PERIOD_S = 0.005
"""Control period of the policy [s]."""
HIGHEST_HZ = 8.0
"""Frequencies above this hardly occur in an excitation."""
LONGEST_S = 60.0
WRITER_S = 0.0005
"""Period of the binary's commands in a rehearsal [s]; two of them follow each state."""
CLIP = 10.0
"""Bound of the actions, which are offsets from the default pose [rad or m]."""
STEPS = 256
"""Of the recorded sequence that each computer compares with its own."""


def write_excitation_bundle(out: Path, robot: Robot, arrays: Mapping[str, Any]) -> float:
    """Write a bundle that plays an excitation; return how far its targets are from it at most [rad or m].

    Args:
        out: Directory of the bundle.
        robot: The robot.
        arrays: The excitation, as `robot_rl.identify.excite.excite` returns it.

    Raises:
        UserError: It is longer than a minute, or the bundle cannot be written.
    """
    from robot_rl_deploy.contract import TrainingSpec
    from robot_rl_deploy.export import export_policy

    time, target = arrays["time"], arrays["target"]
    seconds = len(time) * float(time[1] - time[0])
    if seconds > LONGEST_S:
        raise UserError("seconds", f"{seconds:g}", "a bundle has at most 60 s", "write an .npz, or a shorter one")
    driven = [n for n, joint in enumerate(robot.joints) if not joint.passive]
    series = _Series((target - np.array(robot.default_pos()))[:, driven], seconds)
    with as_user_error():
        run = TrainingSpec(run_id="excitation", task=f"excite_{robot.name}", git_commit="unknown", iteration=0)
        export_policy(_Clock(describe(robot, series.frequencies)), series, out, run=run, steps=STEPS)
    return series.error


def describe(robot: Robot, frequencies: NDArray[np.float64]) -> dict[str, Any]:
    """Describe the policy as an environment's `describe_policy()` does."""
    from robot_rl.identify.plant_model import joint_limits

    limits, facts = joint_limits(robot)[0], ("default_pos", "kp", "kd", "effort_limit", "velocity_limit")
    ends = [[float(end) if np.isfinite(end) else None for end in row] for row in limits]
    driven = [joint for joint in robot.joints if not joint.passive]
    return {
        "robot": robot.name,
        "joints": [
            {"name": joint.name, "lower": low, "upper": high, **{name: getattr(joint, name) for name in facts}}
            for joint, (low, high) in zip(robot.joints, ends, strict=True)
        ],
        "actions": [
            {
                "joint": joint.name,
                "kind": "velocity" if joint.by_speed else "position",
                "scale": 1.0,
                "offset": 0.0 if joint.by_speed else joint.default_pos,
                "clip": CLIP,
            }
            for joint in driven
        ],
        "observations": [
            {
                "name": f"harmonic_{k}",
                "signal": "clock",
                "transform": "sin_cos_phase",
                "unit": "1",
                "frame": "none",
                "size": 2,
                "params": {"frequency_hz": float(frequency), "gate": "none", "gate_norm": 0.0},
            }
            for k, frequency in enumerate(frequencies)
        ],
        "control_period_s": PERIOD_S,
        "physics_timestep_s": PERIOD_S,
        "command": None,
    }


class _Series:
    """Fourier series of offsets (N, J) over one period: the network.

    Attributes:
        frequencies: Of its harmonics [Hz].
        error: How far it is from the offsets at most.
    """

    def __init__(self, offsets: NDArray[np.float64], seconds: float) -> None:
        waves = np.fft.rfft(offsets, axis=0) / len(offsets)
        count = min(int(HIGHEST_HZ * seconds), len(waves) - 1)
        self.frequencies = np.arange(1, count + 1) / seconds
        self._mean = waves[0].real
        self._weights = np.empty((offsets.shape[1], 2 * count))
        self._weights[:, 0::2], self._weights[:, 1::2] = (
            -2.0 * waves[1 : count + 1].imag.T,
            2.0 * waves[1 : count + 1].real.T,
        )
        kept = np.zeros_like(waves)
        kept[: count + 1] = waves[: count + 1]
        again = np.fft.irfft(kept * len(offsets), len(offsets), axis=0)
        self.error = float(np.abs(again - offsets).max())

    def export_module(self) -> torch.nn.Module:
        import torch

        layer = torch.nn.Linear(self._weights.shape[1], self._weights.shape[0])
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(self._weights))
            layer.bias.copy_(torch.from_numpy(self._mean))
        return layer.eval()


class _Clock:
    """A world of which only the clock is observed, with the methods that the recording of a sequence needs."""

    num_envs, device = 1, "cpu"

    def __init__(self, description: dict[str, Any]) -> None:
        self._description = description

    def describe_policy(self) -> dict[str, Any]:
        return self._description

    def reset(self) -> None:
        pass

    def robot_state(self) -> dict[str, torch.Tensor]:
        return {}

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        import torch

        return actions, torch.zeros(1), torch.zeros(1, dtype=torch.bool), {}


def rehearse(bundle: Path, robot: Robot, seconds: float, log: Path, say: Callable[[str], None] = print) -> None:
    """Play a bundle on the simulated robot that hangs, through the robot's binary in lockstep, and write its log.

    Args:
        bundle: The bundle.
        robot: The robot, which may have other dynamics than the bundle knows.
        seconds: Length [s].
        log: The log, *.mcap.
        say: Called with lines for the user.

    Raises:
        UserError: The runtime is not installed, or the safety layer stopped the robot; the line gives its fault.
    """
    from robot_rl.sim2sim.parity import BinaryController, ParityCfg, Responder
    from robot_rl.sim2sim.plant import LONE, Plant
    from robot_rl.sim2sim.session import for_session

    cfg = ParityCfg(all_states=True, settings={"writer_period_s": WRITER_S})
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder, "log.mcap")
        with contextlib.ExitStack() as stack:
            plant = stack.enter_context(contextlib.closing(Plant(for_session(hanging_task(robot)), seed=0)))
            player = Responder(plant.robot, bundle, cfg, Path(folder), stack, arguments=["--log", str(part)])
            controller = BinaryController(plant, {LONE: player})
            say(f"{seconds:g} s on the simulated {robot.name}")
            obs = plant.env.reset()
            controller.reset()
            plant.robot.hold(True, lift=robot.base_height)
            for step in range(round(seconds / plant.env.step_dt)):
                obs = plant.env.step(controller(obs))[0]
                if controller.faults:
                    at = step * plant.env.step_dt
                    raise UserError(f"the safety layer stopped the robot after {at:.1f} s: {controller.faults[0]}")
        write_atomic(log, part.read_bytes())


def hanging_task(robot: Robot) -> Task:
    """Return a task in which a robot only hangs."""
    from robot_rl_envs.mdp import observations, rewards
    from robot_rl_envs.task import Observation, ObservationGroup, Reward, Sim, Task

    return Task(
        name=f"excite_{robot.name}",
        robot=robot,
        sim=Sim(timestep=PERIOD_S / 2, decimation=2),
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
        observations={"actor": ObservationGroup(terms={"joint_vel": Observation(observations.joint_vel)})},
    )
