"""Triangles of MuJoCo's geoms. Sharp edges have separate vertices on either side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import mujoco

GROUPS = (0, 1, 2)
"""Geom groups that are drawn; by MuJoCo's convention collision shapes are in 3 and above."""


@dataclass(slots=True)
class Mesh:
    """Triangles: `vertices` (V, 3) float32 [m] and `faces` (F, 3) int32, counter-clockwise seen from outside."""

    vertices: np.ndarray
    faces: np.ndarray

    def moved(self, position: np.ndarray, rotation: np.ndarray) -> Mesh:
        """Return the mesh rotated by `rotation` (3, 3) and moved by `position` (3,)."""
        return Mesh((self.vertices @ rotation.T + position).astype(np.float32), self.faces)


def join(meshes: list[Mesh]) -> Mesh:
    """Return several meshes as one."""
    starts = np.cumsum([0] + [len(mesh.vertices) for mesh in meshes[:-1]])
    vertices = np.concatenate([mesh.vertices for mesh in meshes])
    faces = np.concatenate([mesh.faces + start for mesh, start in zip(meshes, starts, strict=True)])
    return Mesh(vertices.astype(np.float32), faces.astype(np.int32))


def box(size: np.ndarray) -> Mesh:
    """Return a box with half lengths `size` (3,) [m]."""
    vertices, faces = [], []
    for axis in range(3):
        for sign in (-1.0, 1.0):
            corners = np.zeros((4, 3))
            corners[:, axis] = sign
            corners[:, (axis + 1) % 3] = [-1, 1, 1, -1]
            corners[:, (axis + 2) % 3] = [-1, -1, 1, 1]
            order = (0, 1, 2, 3) if sign > 0 else (3, 2, 1, 0)
            start = len(vertices) * 4
            vertices.append(corners)
            faces += [[start + order[0], start + order[1], start + order[2]]]
            faces += [[start + order[0], start + order[2], start + order[3]]]
    return Mesh((np.concatenate(vertices) * np.asarray(size)[:3]).astype(np.float32), np.array(faces, dtype=np.int32))


def ellipsoid(size: np.ndarray, rings: int = 10, slices: int = 20) -> Mesh:
    """Return an ellipsoid with half axes `size` (3,) [m]."""
    profile = [(np.sin(a), np.cos(a)) for a in np.linspace(np.pi, 0, rings + 1)]
    ball = _turned(profile, slices)
    return Mesh((ball.vertices * np.asarray(size)[:3]).astype(np.float32), ball.faces)


def sphere(size: np.ndarray) -> Mesh:
    """Return a sphere with radius `size[0]` [m]."""
    return ellipsoid(np.repeat(size[0], 3))


def capsule(size: np.ndarray, rings: int = 6, slices: int = 20) -> Mesh:
    """Return a capsule along z with radius `size[0]` and half length `size[1]` [m] of its cylinder."""
    radius, half = float(size[0]), float(size[1])
    quarter = np.linspace(0, np.pi / 2, rings + 1)
    lower = [(radius * np.sin(a), -half - radius * np.cos(a)) for a in quarter]
    upper = [(radius * np.cos(a), half + radius * np.sin(a)) for a in quarter]
    return _turned(lower + upper, slices)


def cylinder(size: np.ndarray, slices: int = 28) -> Mesh:
    """Return a cylinder along z with radius `size[0]` and half length `size[1]` [m]."""
    radius, half = float(size[0]), float(size[1])
    side = _turned([(radius, -half), (radius, half)], slices)
    caps = [_turned([(0.0, -half), (radius, -half)], slices), _turned([(radius, half), (0.0, half)], slices)]
    return join([side, *caps])


def height_field(heights: np.ndarray, size: np.ndarray, limit: int = 400_000) -> Mesh:
    """Return the upper side of a height field, with its cells divided as in MuJoCo.

    Args:
        heights: (ny, nx) heights [m], rows along y.
        size: half lengths along x and y [m]; further numbers are not used.
        limit: maximum number of vertices; a larger field is subsampled.
    """
    step = 1
    while -(-heights.shape[0] // step) * -(-heights.shape[1] // step) > limit:
        step += 1
    rows, columns = (np.unique([*range(0, count, step), count - 1]) for count in heights.shape)
    y = -size[1] + rows * 2 * size[1] / (heights.shape[0] - 1)
    x = -size[0] + columns * 2 * size[0] / (heights.shape[1] - 1)
    points = np.stack([*np.meshgrid(x, y), heights[np.ix_(rows, columns)]], axis=-1)
    corner = (np.arange(len(rows) - 1)[:, None] * len(columns) + np.arange(len(columns) - 1)).ravel()
    across, along = corner + 1, corner + len(columns)
    lower, upper = (corner, across, along + 1), (corner, along + 1, along)
    faces = np.concatenate([np.stack(lower, axis=1), np.stack(upper, axis=1)])
    return Mesh(points.reshape(-1, 3).astype(np.float32), faces.astype(np.int32))


def _turned(profile: list[tuple[float, float]], slices: int) -> Mesh:
    """Return the surface of revolution about z of a profile of (radius, z), from low to high."""
    angle = np.linspace(0, 2 * np.pi, slices, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    vertices = np.concatenate([np.column_stack([r * circle, np.full(slices, z)]) for r, z in profile])
    faces = []
    for ring in range(len(profile) - 1):
        for k in range(slices):
            a, b = ring * slices + k, ring * slices + (k + 1) % slices
            faces += [[a, b, b + slices], [a, b + slices, a + slices]]
    return Mesh(vertices.astype(np.float32), np.array(faces, dtype=np.int32))


SHAPES: dict[str, Callable[[np.ndarray], Mesh]] = {
    "BOX": box,
    "SPHERE": sphere,
    "ELLIPSOID": ellipsoid,
    "CAPSULE": capsule,
    "CYLINDER": cylinder,
}
"""Builders by the name of MuJoCo's geom type; each takes the geom's size (3,)."""


def body_meshes(model: mujoco.MjModel, body: int) -> list[tuple[tuple[int, int, int], float, Mesh]]:
    """Return the visible shapes of a body, joined by colour.

    Returns:
        (red, green, blue in 0..255, opacity in [0, 1], triangles in the body's frame) for every colour.
    """
    import mujoco

    found: dict[tuple[tuple[int, int, int], float], list[Mesh]] = {}
    for geom in np.flatnonzero(model.geom_bodyid == body):
        rgba = geom_colour(model, int(geom))
        mesh = geom_mesh(model, int(geom))
        if mesh is None or rgba[3] == 0 or model.geom_group[geom] not in GROUPS:
            continue
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, model.geom_quat[geom])
        rgb = tuple(round(255 * float(c)) for c in rgba[:3])
        key = ((rgb[0], rgb[1], rgb[2]), float(rgba[3]))
        found.setdefault(key, []).append(mesh.moved(model.geom_pos[geom], rotation.reshape(3, 3)))
    return [(rgb, opacity, join(meshes)) for (rgb, opacity), meshes in found.items()]


def height_above_base(model: mujoco.MjModel) -> float:
    """Return how far a robot reaches above its base [m], in the model's initial configuration; 0 for a fixed base."""
    import mujoco
    from robot_rl_envs.render import is_robots, travelling_joints

    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    free = travelling_joints(model)
    geoms = np.flatnonzero(is_robots(model, model.geom_bodyid) & np.isin(model.geom_group, GROUPS))
    if not free.size or not geoms.size:
        return 0.0
    up = data.geom_xmat[geoms].reshape(-1, 3, 3)[:, 2]  # the vertical in the geoms' frames
    centre, half = model.geom_aabb[geoms, :3], model.geom_aabb[geoms, 3:]
    tops = data.geom_xpos[geoms, 2] + (up * centre).sum(1) + (np.abs(up) * half).sum(1)
    return float(tops.max() - data.xpos[model.jnt_bodyid[free[0]], 2])


def geom_colour(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """Return the colour (4,) of a geom in [0, 1]: its material's if it has one and does not have its own colour."""
    own, material = model.geom_rgba[geom], int(model.geom_matid[geom])
    grey = np.array([0.5, 0.5, 0.5, 1.0])
    return model.mat_rgba[material] if material >= 0 and np.allclose(own, grey) else own


def geom_mesh(model: mujoco.MjModel, geom: int) -> Mesh | None:
    """Return the triangles of a geom in its own frame; None for planes."""
    import mujoco

    kind = mujoco.mjtGeom(int(model.geom_type[geom])).name.removeprefix("mjGEOM_")
    if kind == "MESH":
        data = int(model.geom_dataid[geom])
        first, count = int(model.mesh_vertadr[data]), int(model.mesh_vertnum[data])
        vertices = model.mesh_vert[first : first + count]
        first, count = int(model.mesh_faceadr[data]), int(model.mesh_facenum[data])
        return Mesh(vertices.astype(np.float32), model.mesh_face[first : first + count].astype(np.int32))
    if kind == "HFIELD":
        data = int(model.geom_dataid[geom])
        rows, columns, first = (
            int(values[data]) for values in (model.hfield_nrow, model.hfield_ncol, model.hfield_adr)
        )
        size = model.hfield_size[data]
        heights = model.hfield_data[first : first + rows * columns].reshape(rows, columns) * size[2]
        return height_field(heights, size)
    return SHAPES[kind](model.geom_size[geom]) if kind in SHAPES else None
