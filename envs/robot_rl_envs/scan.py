"""The height scan by rays: the engine's own rays, straight down onto the ground, before the state is looked at.

The terrain's map gives the same numbers at a fraction of the cost; rays are what it is checked against, and the way
for ground that no map describes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp

from robot_rl_envs.engines.base import DIRTY_STATE
from robot_rl_envs.measure import aim_scan, measure_scan

if TYPE_CHECKING:
    from robot_rl_envs.engines import Engine
    from robot_rl_envs.scene import Scene

ABOVE = 0.5
"""Rays start this far above the highest ground [m]."""


class RayScan:
    """Fills ``s.height_scan`` by rays; false where no scan is cast.

    Args:
        scene: the scene, with its sensors.
        engine: the physics.
        arrays: the arrays of ``s``.
    """

    def __init__(self, scene: Scene, engine: Engine, arrays: dict[str, wp.array]):
        self._active, self._blind = scene.sensing.rays, engine.capturable
        if not self._active:
            return
        points = arrays["scan_points"]
        dim = (engine.num_envs, points.shape[0])
        highest = 0.0 if scene.terrain is None else float(np.max(scene.terrain.heights))
        top = max(highest, 0.0) + ABOVE
        reach = scene.sensing.sensors.height_scan.max_distance
        self._rays = engine.make_rays(points.shape[0], ground_only=True)
        self._rays.directions.fill_(wp.vec3(0.0, 0.0, -1.0))
        options: dict[str, Any] = {"dim": dim, "device": engine.device, "record_cmd": True}
        qpos = arrays["qpos"]
        self._aim: Any = wp.launch(aim_scan, inputs=[qpos, points, top, self._rays.origins], **options)
        self._measure: Any = wp.launch(
            measure_scan, inputs=[qpos, self._rays.distances, top, reach, arrays["height_scan"]], **options
        )

    def __bool__(self) -> bool:
        return self._active

    def look(self) -> None:
        """Scan the ground around every world's base where it is now; capturable where the engine is."""
        self._aim.launch()
        self._rays.cast()
        self._measure.launch()

    def look_again(self, dirty: wp.array) -> bool:
        """Scan where worlds that were reset start; whether there were any, or may have been.

        A CPU may look at ``dirty`` (N,) and spare the rays; a graph holds the launches in any case.
        """
        if not self._blind and not (dirty.numpy() & DIRTY_STATE).any():
            return False
        self.look()
        return True
