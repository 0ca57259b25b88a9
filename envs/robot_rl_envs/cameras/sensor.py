"""One observation group of images, updated once a step after the worlds' other observations."""

from __future__ import annotations

import math
from typing import Any

import torch
import warp as wp

from robot_rl_envs.cameras.kernels import Lens, Shots, aim, deliver, take_depth, take_rgb
from robot_rl_envs.cameras.views import View, Views
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.rng import salt_of
from robot_rl_envs.sensing.camera import ImageGroup

_OWN = [name for name in Shots.vars if name not in ("step_count", "counter", "taken")]
"""What a world drew, one number or vector each."""


class CameraSensor:
    """The images of one :class:`~robot_rl_envs.cameras.ImageGroup` in all worlds.

    Every step is the same launches with masks, so that a CUDA graph can record it. A world without a new image looks
    into the empty sky, which costs little.

    Attributes:
        out: (num_envs, channels, height, width) float32 in [0, 1], the images delivered now.
    """

    def __init__(
        self,
        name: str,
        group: ImageGroup,
        scene: Scene,
        state: dict[str, wp.array],
        *,
        device: str,
        seed: int = 0,
        world_offset: int = 0,
        num_threads: int = 1,
    ):
        """Build the sensor; raise a ValueError if the camera does not fit the robot's model.

        ``state`` are live arrays of the worlds: "qpos" (num_envs, nq), "step_count" (num_envs,) control steps since the
        reset, "counter" (num_envs,) control steps ever; "object_tint" (num_envs, objects, 4), if colors are drawn.
        """
        self.name, self.group, self._device = name, group, device
        self._qpos = state["qpos"]
        worlds = self._qpos.shape[0]
        self._views = Views(
            scene, group, num_envs=worlds, device=device, num_threads=num_threads, tint=state.get("object_tint")
        )
        camera = group.camera
        slots = math.ceil(camera.delay_steps[1] / camera.every) + 2 if camera.delay_steps[1] else 0
        channels, height, width = group.shape
        self.out = wp.zeros((worlds, *group.shape), dtype=wp.float32, device=device)
        flat = self.out.reshape((worlds, 1, channels, height * width))
        self._kept = wp.zeros((worlds, slots, channels, height * width), dtype=wp.float32, device=device)
        self._lens = self._make_lens(seed, world_offset)
        self._shots = Shots()
        self._shots.step_count, self._shots.counter = state["step_count"], state["counter"]
        for field in _OWN:
            dtype = Shots.vars[field].type.dtype
            setattr(self._shots, field, wp.zeros(worlds, dtype=dtype, device=device))
        self._shots.taken = wp.zeros((worlds, slots), dtype=wp.int32, device=device)
        target = self._kept if slots else flat
        self._delays = slots > 0
        # A CPU can check: without a new image in any world nothing has to be rendered.
        self._slots = None if device.startswith("cuda") else self._shots.slot.numpy()
        self._commands = {part.first: self._record(part, target, flat) for part in self._views.parts}
        with wp.ScopedDevice(device):  # Warp's default device may be another one.
            self._views.parts[0].render()  # compiled here, once, before threads or a graph need it

    def _make_lens(self, seed: int, world_offset: int) -> Any:
        camera, model, lens = self.group.camera, self._views.model, Lens()
        k = self._views.camera
        lens.seed, lens.world_offset = seed & 0x3FFFFFFF, world_offset
        # Groups with one camera share its mount and delay; the pixels' noise is each group's own.
        lens.salt, lens.pixel_salt = salt_of(f"camera {camera.name}"), salt_of(f"pixels {self.name}")
        lens.camera, lens.body = k, int(model.cam_bodyid[k])
        lens.pos, lens.quat = wp.vec3(*model.cam_pos[k]), wp.vec4(*model.cam_quat[k])
        lens.pos_jitter, lens.angle_jitter = camera.pos_jitter, math.radians(camera.angle_jitter_deg)
        lens.every = camera.every
        lens.delay_lo, lens.delay_hi = camera.delay_steps
        lens.dropout_lo, lens.dropout_hi = camera.dropout
        lens.near, lens.far, lens.noise, lens.missing = camera.near, camera.far, camera.noise, camera.missing
        return lens

    def _record(self, part: View, target: wp.array, out: wp.array) -> tuple[Any, list[Any]]:
        """Record the launches before and after a part's rendering."""
        data, lens, shots, first = part.data, self._lens, self._shots, part.first
        poses = [data.xpos, data.xmat, data.cam_xpos, data.cam_xmat]
        pixels = (part.count, part.image.shape[1])
        kernel = take_rgb if self.group.kind == "rgb" else take_depth

        def record(kernel: Any, dim: Any, inputs: list[Any]) -> Any:
            return wp.launch(kernel, dim=dim, inputs=inputs, device=self._device, record_cmd=True)

        before = record(aim, part.count, [lens, shots, first, *poses])
        after = [record(kernel, pixels, [lens, shots, first, part.image, target])]
        if target is not out:
            after.append(record(deliver, pixels, [first, shots.show, target, out]))
        return before, after

    def update(self) -> None:
        """Take and deliver the images of this step; call it when the worlds' states and resets are done."""
        self._views.run(self._update)

    def _update(self, part: View) -> None:
        before, after = self._commands[part.first]
        part.place(self._qpos)
        before.launch()
        if self._slots is not None and (self._slots[part.first : part.first + part.count] < 0).all():
            if self._delays:
                after[-1].launch()
            return
        part.render()
        for command in after:
            command.launch()

    def describe(self) -> dict[str, Any]:
        """Return the camera and its images, JSON-able, for a robot's driver."""
        camera, model, k = self.group.camera, self._views.model, self._views.camera
        focal = 0.5 * camera.height / math.tan(math.radians(0.5 * float(model.cam_fovy[k])))
        return {
            "name": self.name,
            "camera": camera.name,
            "kind": self.group.kind,
            "shape": list(self.group.shape),
            "layout": "channels, rows from the top, columns from the left; float32 in [0, 1]",
            "intrinsics": {"fx": focal, "fy": focal, "cx": 0.5 * camera.width, "cy": 0.5 * camera.height},
            "fovy_deg": float(model.cam_fovy[k]),
            "body": model.body(int(model.cam_bodyid[k])).name,
            "pos": model.cam_pos[k].tolist(),
            "quat_wxyz": model.cam_quat[k].tolist(),
            "near": camera.near,
            "far": camera.far,
            "every": camera.every,
            "delay_steps": list(camera.delay_steps),
        }

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return delayed images and the draws of the worlds."""
        return {name: tensor.clone() for name, tensor in self._tensors().items()}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore :meth:`state_dict`."""
        for name, tensor in self._tensors().items():
            tensor.copy_(tensors[name])

    def _tensors(self) -> dict[str, torch.Tensor]:
        drawn = ("mount_pos", "mount_quat", "phase", "delay", "dropout", "taken")
        arrays = {name: getattr(self._shots, name) for name in drawn}
        arrays |= {"told": self._shots.current, "kept": self._kept, "out": self.out}  # names in checkpoints
        return {name: wp.to_torch(array) for name, array in arrays.items() if array.size}

    def close(self) -> None:
        """End the threads."""
        self._views.close()
