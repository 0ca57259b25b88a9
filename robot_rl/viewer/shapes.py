"""Triangles of MuJoCo's primitive shapes. Corners that should look sharp have vertices of their own on either side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(slots=True)
class Mesh:
    """Triangles: `vertices` (V, 3) float32 [m] and `faces` (F, 3) int32, counter-clockwise seen from outside."""

    vertices: np.ndarray
    faces: np.ndarray

    def moved(self, position: np.ndarray, rotation: np.ndarray) -> Mesh:
        """The mesh turned by `rotation` (3, 3) and shifted by `position` (3,)."""
        return Mesh((self.vertices @ rotation.T + position).astype(np.float32), self.faces)


def join(meshes: list[Mesh]) -> Mesh:
    """Several meshes as one."""
    starts = np.cumsum([0] + [len(mesh.vertices) for mesh in meshes[:-1]])
    vertices = np.concatenate([mesh.vertices for mesh in meshes])
    faces = np.concatenate([mesh.faces + start for mesh, start in zip(meshes, starts, strict=True)])
    return Mesh(vertices.astype(np.float32), faces.astype(np.int32))


def box(size: np.ndarray) -> Mesh:
    """A box of half lengths `size` (3,) [m]."""
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
    """An ellipsoid of half axes `size` (3,) [m]."""
    profile = [(np.sin(a), np.cos(a)) for a in np.linspace(np.pi, 0, rings + 1)]
    ball = _turned(profile, slices)
    return Mesh((ball.vertices * np.asarray(size)[:3]).astype(np.float32), ball.faces)


def sphere(size: np.ndarray) -> Mesh:
    """A sphere of radius `size[0]` [m]."""
    return ellipsoid(np.repeat(size[0], 3))


def capsule(size: np.ndarray, rings: int = 6, slices: int = 20) -> Mesh:
    """A cylinder along z of radius `size[0]` and half length `size[1]` [m] with a half sphere at either end."""
    radius, half = float(size[0]), float(size[1])
    quarter = np.linspace(0, np.pi / 2, rings + 1)
    lower = [(radius * np.sin(a), -half - radius * np.cos(a)) for a in quarter]
    upper = [(radius * np.cos(a), half + radius * np.sin(a)) for a in quarter]
    return _turned(lower + upper, slices)


def cylinder(size: np.ndarray, slices: int = 28) -> Mesh:
    """A cylinder along z of radius `size[0]` and half length `size[1]` [m]."""
    radius, half = float(size[0]), float(size[1])
    side = _turned([(radius, -half), (radius, half)], slices)
    caps = [_turned([(0.0, -half), (radius, -half)], slices), _turned([(radius, half), (0.0, half)], slices)]
    return join([side, *caps])


def height_field(heights: np.ndarray, size: np.ndarray, limit: int = 400_000) -> Mesh:
    """The upper side of a height field, its cells divided as MuJoCo does.

    Args:
        heights: (ny, nx) heights [m], rows along y.
        size: half lengths along x and y [m]; further numbers are not used.
        limit: vertices at most; of a larger field every second, third, ... point is taken.
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
    """The surface that a profile of (radius, z), from low to high, sweeps about the z axis."""
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
