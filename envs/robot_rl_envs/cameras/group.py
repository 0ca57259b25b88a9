"""All image groups of an environment behind one object, which costs nothing where a task has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import warp as wp

if TYPE_CHECKING:
    from tensordict import TensorDict

    from robot_rl_envs.cameras.sensor import CameraSensor
    from robot_rl_envs.engines import Engine
    from robot_rl_envs.entity.scene import Scene
    from robot_rl_envs.task import Task


class Images:
    """The cameras of a task.

    Attributes:
        sensors: group -> its sensor.
    """

    def __init__(
        self, task: Task, scene: Scene, engine: Engine, state: dict[str, wp.array], *, seed: int, world_offset: int
    ):
        """Build the sensor of each image group; see :class:`~robot_rl_envs.cameras.sensor.CameraSensor`.

        Raises:
            ValueError: a camera does not fit the robot's model; the line names the group.
        """
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

    def attach(
        self,
        out: dict[str, wp.array],
        returned: list[dict[str, wp.array]],
        observations: list[TensorDict],
        final_obs: list[TensorDict],
    ) -> None:
        """Put the groups beside the others.

        Args:
            out: group -> the array that is copied from when results are handed out.
            returned: for each of the two turns, group -> the array that is copied to.
            observations: for each turn, the TensorDict over it.
            final_obs: for each turn, the observations at which episodes ended. A picture of the state before the reset
                would be a second one a step, so an episode's last image is the one told in the step before it ended,
                which the other turn still holds.
        """
        for name, sensor in self.sensors.items():
            out[name] = sensor.out
            for turn in range(2):
                returned[turn][name] = wp.zeros_like(sensor.out)
                observations[turn][name] = wp.to_torch(returned[turn][name])
            for turn in range(2):
                final_obs[turn][name] = observations[1 - turn][name]

    def update(self) -> None:
        """Take this step's pictures; to be called when the worlds' states and resets are done."""
        for sensor in self.sensors.values():
            sensor.update()

    def describe(self) -> dict[str, Any]:
        """``{"images": [...]}`` for the policy's description, empty without cameras."""
        rows = [sensor.describe() for sensor in self.sensors.values()]
        return {"images": rows} if rows else {}

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What goes on from here: images on their way, and what each world drew."""
        return {
            f"image.{group}.{name}": tensor
            for group, sensor in self.sensors.items()
            for name, tensor in sensor.state_dict().items()
        }

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore :meth:`state_dict` out of a larger one."""
        for group, sensor in self.sensors.items():
            head = f"image.{group}."
            sensor.load_state_dict({name.removeprefix(head): t for name, t in tensors.items() if name.startswith(head)})

    def close(self) -> None:
        """End the threads."""
        for sensor in self.sensors.values():
            sensor.close()
