"""The target of a command in the browser's scene: a sphere or axes, and a gizmo to drag it with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robot_rl.view.viewer.command import POSE, CommandInfo

if TYPE_CHECKING:
    import viser

BLUE, RADIUS_M, AXES_M, GIZMO_M = (26, 115, 230), 0.03, 0.12, 0.2
SAME = 1e-5


class Target:
    """The point or pose of a command; dragging leaves a request that `take` collects."""

    def __init__(self, server: viser.ViserServer, parent: str, info: CommandInfo) -> None:
        """Add it to the scene below the node of the world."""
        scene, name = server.scene, f"{parent}/command_frame"
        self._turns = info.draws == POSE
        self._dragged: np.ndarray | None = None
        self._is_held = False
        self._frame = scene.add_frame(name, show_axes=False)
        self._ball = scene.add_icosphere(f"{name}/ball", RADIUS_M, BLUE, opacity=0.5, cast_shadow=False)
        self._gizmo = scene.add_transform_controls(
            f"{name}/gizmo", scale=GIZMO_M, disable_rotations=not self._turns, depth_test=False
        )
        self._nodes: list[viser.SceneNodeHandle] = [self._ball]
        if self._turns:
            axes = scene.add_frame(f"{name}/axes", axes_length=AXES_M, axes_radius=AXES_M / 25)
            self._nodes.append(axes)
        scene.add_label(f"{name}/gizmo/label", "target", position=(0.0, 0.0, 1.2 * GIZMO_M), anchor="bottom-center")
        self._gizmo.on_update(self._drag)

    async def _drag(self, event: viser.TransformControlsEvent) -> None:
        # Not in a separate thread: the end of a drag would overtake its last move.
        parts = (event.target.position, event.target.wxyz) if self._turns else (event.target.position,)
        self._dragged, self._is_held = np.concatenate(parts), event.phase != "end"

    def take(self) -> np.ndarray | None:
        """Return the values that the first components were dragged to since the last call; None if they were not."""
        dragged, self._dragged = self._dragged, None
        return dragged

    def place(self, position: np.ndarray, quat_wxyz: np.ndarray) -> None:
        """Move the frame of the command: position (3,) [m] and orientation (4,) in the world."""
        if np.any(np.abs(self._frame.position - position) > SAME) or np.any(
            np.abs(self._frame.wxyz - quat_wxyz) > SAME
        ):
            self._frame.position, self._frame.wxyz = position, quat_wxyz

    def show(self, command: np.ndarray) -> None:
        """Draw a command (width,); the gizmo goes there once it is released."""
        for node in self._nodes if self._is_held else [*self._nodes, self._gizmo]:
            if np.any(np.abs(node.position - command[:3]) > SAME):
                node.position = command[:3]
            if self._turns and np.any(np.abs(node.wxyz - command[3:7]) > SAME):
                node.wxyz = command[3:7]
