"""A gizmo on each free object of the browser's scene, by which it is held, moved and let go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import viser

GIZMO_M = 0.15
SAME = 1e-5


class Handles:
    """The gizmos; an object that is held stays at its gizmo, at rest, until it is released."""

    def __init__(self, server: viser.ViserServer, parent: str, names: list[str]) -> None:
        """Add one for each object below the node of the world."""
        self._held: dict[str, np.ndarray] = {}
        self._ended: set[str] = set()
        self._gizmos: dict[str, Any] = {}
        for name in names:
            node = f"{parent}/objects/{name}"
            gizmo = server.scene.add_transform_controls(node, scale=GIZMO_M, depth_test=False)
            server.scene.add_label(f"{node}/label", name, position=(0.0, 0.0, 1.2 * GIZMO_M), anchor="bottom-center")
            gizmo.on_update(self._follow(name))
            self._gizmos[name] = gizmo

    def _follow(self, name: str) -> Any:
        async def drag(event: viser.TransformControlsEvent) -> None:
            # Not in a separate thread: the end of a drag would overtake its last move.
            self._held[name] = np.concatenate([event.target.position, event.target.wxyz])
            if event.phase == "end":
                self._ended.add(name)
            else:
                self._ended.discard(name)

        return drag

    def take(self) -> dict[str, np.ndarray]:
        """Return the poses (7,) of the objects that are held, or were until now: position [m] and w, x, y, z."""
        poses = dict(self._held)
        for name in [name for name in self._ended if name in poses]:
            self._ended.discard(name)
            del self._held[name]
        return poses

    def show(self, poses: dict[str, np.ndarray]) -> None:
        """Move the gizmos that nobody holds to the objects' poses (7,)."""
        for name, pose in poses.items():
            gizmo = self._gizmos[name]
            if name not in self._held and np.any(np.abs(np.r_[gizmo.position, gizmo.wxyz] - pose) > SAME):
                gizmo.position, gizmo.wxyz = pose[:3], pose[3:]
