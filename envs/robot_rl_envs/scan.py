"""The height scan by rays: the engine's own rays, straight down onto the ground, before the state is looked at.

The terrain's map gives the same numbers at a fraction of the cost; rays are what it is checked against, and the way
for ground that no map describes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import warp as wp

from robot_rl_envs.engines.base import DIRTY_STATE
from robot_rl_envs.measure import heading_of

if TYPE_CHECKING:
    from robot_rl_envs.engines import Engine
    from robot_rl_envs.scene import Scene

ABOVE = 0.5
"""Rays start this far above the highest ground [m]."""


@wp.kernel(enable_backward=False)
def _aim(
    qpos: wp.array2d(dtype=wp.float32),
    points: wp.array(dtype=wp.vec2),
    top: float,
    # outputs
    origins_out: wp.array2d(dtype=wp.vec3),
):
    i, j = wp.tid()
    turn = heading_of(wp.normalize(wp.vec4(qpos[i, 3], qpos[i, 4], qpos[i, 5], qpos[i, 6])))
    point = points[j]
    x = qpos[i, 0] + turn[0] * point[0] - turn[1] * point[1]
    y = qpos[i, 1] + turn[1] * point[0] + turn[0] * point[1]
    if wp.isfinite(x) and wp.isfinite(y):
        origins_out[i, j] = wp.vec3(x, y, top)
    else:
        origins_out[i, j] = wp.vec3(0.0, 0.0, top)  # of a world that is to be quarantined


@wp.kernel(enable_backward=False)
def _measure(
    qpos: wp.array2d(dtype=wp.float32),
    distances: wp.array2d(dtype=wp.float32),
    top: float,
    reach: float,
    # outputs
    scan_out: wp.array2d(dtype=wp.float32),
):
    i, j = wp.tid()
    height = reach
    if distances[i, j] >= 0.0:
        height = wp.clamp(qpos[i, 2] - (top - distances[i, j]), -reach, reach)
    scan_out[i, j] = height


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
        options = {"dim": dim, "device": engine.device, "record_cmd": True}
        qpos = arrays["qpos"]
        self._aim = wp.launch(_aim, inputs=[qpos, points, top, self._rays.origins], **options)
        self._measure = wp.launch(
            _measure, inputs=[qpos, self._rays.distances, top, reach, arrays["height_scan"]], **options
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
