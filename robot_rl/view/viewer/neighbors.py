"""The worlds around the one that is followed, side by side: the same shapes, one instance for each world."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from robot_rl_envs.render import traveling_joints

from robot_rl.view.viewer.shapes import body_meshes

if TYPE_CHECKING:
    import mujoco
    import viser


class Neighbors:
    """All worlds but the one that is followed, which `robot_rl.view.viewer.scene.RobotScene` shows."""

    def __init__(self, server: viser.ViserServer, model: mujoco.MjModel, count: int, *, shares_ground: bool) -> None:
        """Send the shapes of a model for `count` worlds besides the one that is followed.

        On a terrain (`shares_ground`) all worlds have their own places; else each has its cell of a grid.
        """
        import mujoco

        self._model, self._data, self._move = model, mujoco.MjData(model), mujoco.mj_kinematics
        self._free, self._is_alone, self._spacing = traveling_joints(model), not shares_ground, 0
        poses = np.tile([1.0, 0.0, 0.0, 0.0], (count, 1)), np.zeros((count, 3))
        self._batches: list[tuple[int, Any]] = []
        for body in range(model.nbody) if self._is_alone else np.flatnonzero(model.body_weldid > 0).tolist():
            for k, (rgb, alpha, mesh) in enumerate(body_meshes(model, body)):
                more = {"batched_colors": rgb, "opacity": None if alpha >= 1 else alpha}
                name = f"/neighbors/body_{body}/shape_{k}"
                batch = server.scene.add_batched_meshes_simple(name, mesh.vertices, mesh.faces, *poses, **more)
                self._batches.append((body, batch))

    def update(self, qpos: np.ndarray, world: int, *, follow: bool) -> None:
        """Move them to the positions (N, nq) of all worlds; `world` is the one that is followed."""
        positions, quats = (np.zeros((len(qpos), self._model.nbody, width)) for width in (3, 4))
        for k, values in enumerate(qpos):
            if np.isfinite(values).all():
                self._data.qpos[:] = values
            self._move(self._model, self._data)
            positions[k], quats[k] = self._data.xpos, self._data.xquat
            size = float(np.ptp(self._data.geom_xpos, axis=0).max())
            self._spacing = self._spacing or math.ceil(1.6 * max(size, 0.6))
        bases = positions[:, self._model.jnt_bodyid[self._free[0]], :2] if self._free.size else np.zeros((len(qpos), 2))
        if self._is_alone:
            moved = shifts(bases, world, self._spacing, follow=follow and bool(self._free.size))
        else:
            moved = np.tile(-bases[world] if follow else np.zeros(2), (len(qpos), 1))
        positions[..., :2] += moved[:, None]
        others = [k for k in range(len(qpos)) if k != world]
        for body, batch in self._batches:
            batch.batched_positions = positions[others, body].astype(np.float32)
            batch.batched_wxyzs = quats[others, body].astype(np.float32)


def shifts(bases: np.ndarray, world: int, spacing: int, *, follow: bool) -> np.ndarray:
    """Return by how much each world is moved (N, 2) [m], so that all are side by side around one of them.

    With `follow` that one's base stays in the middle. A robot that leaves the plane around it on one side comes in
    again on the other, by a whole number of meters, so that it walks on the same pattern of the floor.

    Args:
        bases: (N, 2) positions of the robots [m].
        world: the one in the middle.
        spacing: between cells of the grid [m].
        follow: whether its robot is followed.
    """
    columns = math.ceil(math.sqrt(len(bases)))
    cells = spacing * np.stack(np.divmod(np.arange(len(bases)), columns), axis=1)
    if not follow:
        return (cells - cells[world]).astype(np.float64)
    half = columns * spacing
    away = cells + bases - (cells + bases)[world]
    return (away + half) % (2 * half) - half - bases
