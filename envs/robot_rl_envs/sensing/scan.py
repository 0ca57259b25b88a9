"""The height scan by rays: the engine's own rays, straight down onto the ground, before the observation.

The terrain's map gives the same numbers at a fraction of the cost; rays are its check, and the method for ground
without a map.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp

from robot_rl_envs.engine import DIRTY_STATE, Engine
from robot_rl_envs.sensing.measure import aim_scan, measure_scan

ABOVE = 0.5
"""Rays start this far above the highest ground [m]."""


class RayScan:
    """Fills ``s.height_scan`` by rays; false where no scan is cast.

    ``arrays`` are those of ``s``.
    """

    def __init__(self, scene: Any, engine: Engine, arrays: dict[str, wp.array]):
        self._active, self._blind = scene.sensing.rays, engine.capturable
        if not self._active:
            return
        scan, base = scene.sensing.sensors.height_scan, scene.entity.base_qpos
        points = arrays["scan_points"]
        dim = (engine.num_envs, points.shape[0])
        top = max(0.0 if scene.terrain is None else float(np.max(scene.terrain.heights)), 0.0) + ABOVE
        self._rays = engine.make_rays(points.shape[0], ground_only=True)
        self._rays.directions.fill_(wp.vec3(0.0, 0.0, -1.0))
        options: dict[str, Any] = {"dim": dim, "device": engine.device, "record_cmd": True}
        qpos = arrays["qpos"]
        self._aim: Any = wp.launch(aim_scan, inputs=[qpos, base, points, top, self._rays.origins], **options)
        inputs = [qpos, base, self._rays.distances, top, scan.max_distance, arrays["height_scan"]]
        self._measure: Any = wp.launch(measure_scan, inputs=inputs, **options)

    def __bool__(self) -> bool:
        return self._active

    def look(self) -> None:
        """Scan the ground around every world's base at its current position; capturable where the engine is."""
        self._aim.launch()
        self._rays.cast()
        self._measure.launch()

    def look_again(self, dirty: wp.array) -> bool:
        """Scan the start of worlds that were reset; return whether there were any, or may have been.

        A CPU may read ``dirty`` (N,) and skip the rays; a graph holds the launches in any case.
        """
        if not self._blind and not (dirty.numpy() & DIRTY_STATE).any():
            return False
        self.look()
        return True
