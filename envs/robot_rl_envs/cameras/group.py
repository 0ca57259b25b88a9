"""All image groups of an environment behind one object, at no cost for a task without any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import warp as wp

from robot_rl_envs.engines import Engine
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.task import Task

if TYPE_CHECKING:
    from robot_rl_envs.cameras.sensor import CameraSensor


class Images:
    """The cameras of a task.

    Attributes:
        sensors: group -> its sensor.

    Raises:
        ValueError: a camera does not fit the robot's model; the line names the group.
    """

    def __init__(
        self, task: Task, scene: Scene, engine: Engine, state: dict[str, wp.array], *, seed: int, world_offset: int
    ):
        self.sensors: dict[str, CameraSensor] = {}
        for name, group in task.images.items():
            # Here, since the renderer is MuJoCo Warp's, which the CPU engine needs for nothing else.
            from robot_rl_envs.cameras.sensor import CameraSensor

            try:
                self.sensors[name] = CameraSensor(
                    name,
                    group,
                    scene,
                    state,
                    device=engine.device,
                    seed=seed,
                    world_offset=world_offset,
                    num_threads=getattr(engine, "num_threads", 1),
                )
            except ValueError as error:
                raise ValueError(f"observations.{name}: {error}") from error

    @property
    def out(self) -> dict[str, wp.array]:
        """The current images (num_envs, channels, height, width) of each group."""
        return {name: sensor.out for name, sensor in self.sensors.items()}

    def update(self) -> None:
        """Render this step's images; call it when the worlds' states and resets are done."""
        for sensor in self.sensors.values():
            sensor.update()

    def describe(self) -> list[dict[str, Any]]:
        """Return a description of each group's camera and images."""
        return [sensor.describe() for sensor in self.sensors.values()]

    def signals(self) -> dict[str, torch.Tensor]:
        """Return the current images as a device delivers them (num_envs, size): depth [m], colors in [0, 1]."""
        units = {name: s.group.camera.far if s.group.kind == "depth" else 1.0 for name, s in self.sensors.items()}
        return {name: wp.to_torch(s.out).flatten(1) * units[name] for name, s in self.sensors.items()}

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return delayed images and the draws of each world."""
        return {
            f"image.{group}.{name}": tensor
            for group, sensor in self.sensors.items()
            for name, tensor in sensor.state_dict().items()
        }

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore :meth:`state_dict` from a larger one."""
        for group, sensor in self.sensors.items():
            head = f"image.{group}."
            sensor.load_state_dict({name.removeprefix(head): t for name, t in tensors.items() if name.startswith(head)})

    def close(self) -> None:
        """End the threads."""
        for sensor in self.sensors.values():
            sensor.close()
