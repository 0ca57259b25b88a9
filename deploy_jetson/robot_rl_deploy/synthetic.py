"""A bundle of a made-up robot with an untrained network of any size, for benchmarks and tests.

The robot stays upright with small random motions around its default pose, so every signal stays inside the limits.
"""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl_deploy.contract import TrainingSpec
from robot_rl_deploy.export import export_policy
from robot_rl_deploy.record import ExportableActor
from robot_rl_deploy.verify import BundleReport

if TYPE_CHECKING:
    import torch

TRAINING = TrainingSpec(run_id="synthetic", task="synthetic", git_commit="unknown", iteration=0)


def write_synthetic_bundle(
    out: Path,
    *,
    robot: str = "synthetic",
    joints: int | Sequence[str] = 29,
    hidden: Sequence[int] = (512, 512, 512),
    memory: int = 0,
    measured: int = 0,
    seed: int = 0,
    actor: ExportableActor | None = None,
) -> BundleReport:
    """Write a bundle that every check accepts.

    The observation has 11 + 3 * joints + measured elements: 98 of them for 29 joints.

    Args:
        out: Directory of the bundle.
        robot: Its name, for transports that need it.
        joints: Number of joints, or their names; each is driven by one action.
        hidden: Widths of the hidden layers.
        memory: Width of a GRU before the layers; 0 for a policy without a memory.
        measured: Width of a signal "measured/object" [m].
        seed: Seed of weights and signals.
        actor: A network for these sizes, in place of the untrained one.

    Returns:
        The report of the check.

    Raises:
        OSError: It cannot be written.
        ValueError: A size is less than 1.
    """
    names = [f"joint_{i:02d}" for i in range(joints)] if isinstance(joints, int) else list(joints)
    if not names or min(hidden, default=1) < 1 or min(memory, measured) < 0:
        raise ValueError(f"joints is {joints}, hidden {tuple(hidden)}, memory {memory}; sizes of at least 1 are needed")
    actor = actor or _Actor(11 + 3 * len(names) + measured, tuple(hidden), len(names), memory, seed)
    return export_policy(_Env(robot, names, measured, seed), actor, Path(out), run=TRAINING)


def describe(robot: str, names: Sequence[str], measured: int = 0) -> dict[str, Any]:
    """Describe the robot as an environment's `describe_policy()` does.

    Args:
        robot: Its name.
        names: Of its joints.
        measured: Width of a signal "measured/object"; 0 for none.

    Returns:
        The description.
    """
    joints = len(names)
    joint = {"default_pos": 0.1, "kp": 40.0, "kd": 1.0, "effort_limit": 60.0, "velocity_limit": 20.0}

    def term(name: str, signal: str, unit: str, frame: str, size: int, **more: Any) -> dict[str, Any]:
        fields = {"name": name, "signal": signal, "transform": "identity", "unit": unit, "frame": frame, "size": size}
        return fields | more

    return {
        "robot": robot,
        "joints": [{"name": name, "lower": -2.0, "upper": 2.0} | joint for name in names],
        "actions": [{"joint": name, "scale": 0.25, "offset": 0.1, "clip": 10.0} for name in names],
        "observations": [
            term("gyro", "imu_gyro", "rad/s", "base", 3, scale=0.25),
            term("gravity", "imu_quat_wxyz", "1", "base", 3, transform="projected_gravity"),
            term("command", "command", "m/s, m/s, rad/s", "base", 3),
            term("joint_pos", "joint_pos", "rad", "joint", joints, transform="minus_default"),
            term("joint_vel", "joint_vel", "rad/s", "joint", joints, scale=0.05),
            term("last_action", "last_action", "1", "none", joints),
            term("clock", "clock", "1", "none", 2, transform="sin_cos_phase", params={"frequency_hz": 1.5}),
            *([term("object", "measured/object", "m", "base", measured)] if measured else []),
        ],
        "control_period_s": 0.02,
        "physics_timestep_s": 0.005,
        "command": {"name": "velocity", "ranges": {"vx": [-1.0, 1.0], "vy": [-0.5, 0.5], "yaw": [-1.0, 1.0]}},
    }


class _Env:
    """One world of this robot, with the methods that the recording of a golden sequence needs."""

    num_envs, device = 1, "cpu"

    def __init__(self, robot: str, names: Sequence[str], measured: int, seed: int):
        import torch

        self._robot, self._names, self._joints, self._measured = robot, names, len(names), measured
        self._random = torch.Generator().manual_seed(seed)
        self._signals: dict[str, torch.Tensor] = {}

    def describe_policy(self) -> dict[str, Any]:
        return describe(self._robot, self._names, self._measured)

    def reset(self) -> None:
        self._draw()

    def robot_state(self) -> dict[str, "torch.Tensor"]:
        return self._signals

    def step(self, actions: "torch.Tensor") -> tuple["torch.Tensor", "torch.Tensor", "torch.Tensor", dict[str, Any]]:
        import torch

        self._draw()
        return actions, torch.zeros(1), torch.zeros(1, dtype=torch.bool), {}

    def _normal(self, size: int) -> "torch.Tensor":
        import torch

        return torch.randn(1, size, generator=self._random)

    def _draw(self) -> None:
        import torch

        upright = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
        self._signals = {
            "joint_pos": 0.1 + 0.05 * self._normal(self._joints),
            "joint_vel": 0.5 * self._normal(self._joints),
            "imu_gyro": 0.3 * self._normal(3),
            "imu_quat_wxyz": torch.nn.functional.normalize(upright + 0.05 * self._normal(4)),
            "command": 0.3 * self._normal(3),
            "measured/object": 0.5 * self._normal(self._measured),
        }


class _Actor:
    """A network of linear layers and ELUs, after a GRU if there is a memory."""

    def __init__(self, inputs: int, hidden: tuple[int, ...], outputs: int, memory: int, seed: int):
        import torch

        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.cell = torch.nn.GRUCell(inputs, memory) if memory else None
            layers: list[torch.nn.Module] = []
            widths = (memory or inputs, *hidden)
            for before, after in itertools.pairwise(widths):
                linear = torch.nn.Linear(before, after)
                torch.nn.init.orthogonal_(linear.weight, math.sqrt(2.0))
                layers += [linear, torch.nn.ELU()]
            last = torch.nn.Linear(widths[-1], outputs)
            torch.nn.init.orthogonal_(last.weight, 0.1)
            self.layers = torch.nn.Sequential(*layers, last)
            self.memory = memory

    def export_module(self) -> "torch.nn.Module":
        import torch

        cell, layers = self.cell, self.layers
        if cell is None:
            return layers.eval()

        class Remembering(torch.nn.Module):
            state_size = self.memory

            def __init__(self) -> None:
                super().__init__()
                self.cell, self.layers = cell, layers

            def forward(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                assert self.cell is not None
                after = self.cell(obs, state)
                return self.layers(after), after

        return Remembering().eval()
