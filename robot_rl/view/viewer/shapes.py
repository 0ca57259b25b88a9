"""Triangles of MuJoCo's geoms, by trimesh, which viser needs. Sharp edges have separate vertices on either side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import mujoco
    from trimesh import Trimesh

GROUPS = (0, 1, 2)
"""Geom groups that are drawn; by MuJoCo's convention collision shapes are in 3 and above."""


def primitive(kind: str, size: np.ndarray) -> Trimesh | None:
    """Return a primitive of MuJoCo by the name of its type and its size (3,) [m]; None for a plane."""
    from trimesh import creation

    radius, half = float(size[0]), float(size[1])
    if kind == "BOX":
        mesh = creation.box(extents=2 * size)
        mesh.unmerge_vertices()
        return mesh
    if kind in ("SPHERE", "ELLIPSOID"):
        ball = creation.uv_sphere(count=[11, 20])
        ball.apply_scale(size if kind == "ELLIPSOID" else radius)
        return ball
    if kind == "CAPSULE":
        mesh = creation.capsule(height=2 * half, radius=radius, count=[14, 20])
        return mesh.apply_translation(-mesh.bounds.mean(axis=0))
    if kind == "CYLINDER":
        profiles = [[0, -half], [radius, -half]], [[radius, -half], [radius, half]], [[radius, half], [0, half]]
        return _join([creation.revolve(profile, sections=28) for profile in profiles])
    return None


def height_field(heights: np.ndarray, size: np.ndarray, limit: int = 400_000) -> Trimesh:
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
    return _mesh(points.reshape(-1, 3), faces)


def body_meshes(model: mujoco.MjModel, body: int) -> list[tuple[tuple[int, int, int], float, Trimesh]]:
    """Return the visible shapes of a body, joined by color.

    Returns:
        (red, green, blue in 0..255, opacity in [0, 1], triangles in the body's frame) for every color.
    """
    import trimesh

    shapes: dict[tuple[tuple[int, int, int], float], list[Any]] = {}
    for geom in np.flatnonzero(model.geom_bodyid == body):
        rgba = geom_color(model, int(geom))
        mesh = geom_mesh(model, int(geom))
        if mesh is None or rgba[3] == 0 or model.geom_group[geom] not in GROUPS:
            continue
        pose = trimesh.transformations.quaternion_matrix(model.geom_quat[geom])
        pose[:3, 3] = model.geom_pos[geom]
        rgb = tuple(round(255 * float(c)) for c in rgba[:3])
        key = ((rgb[0], rgb[1], rgb[2]), float(rgba[3]))
        shapes.setdefault(key, []).append(mesh.apply_transform(pose))
    return [(rgb, opacity, _join(meshes)) for (rgb, opacity), meshes in shapes.items()]


def height_above_base(model: mujoco.MjModel) -> float:
    """Return how far a robot reaches above its base [m], in the model's initial configuration; 0 for a fixed base."""
    import mujoco
    from robot_rl_envs.render import is_robots, traveling_joints

    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    free = traveling_joints(model)
    geoms = np.flatnonzero(is_robots(model, model.geom_bodyid) & np.isin(model.geom_group, GROUPS))
    if not free.size or not geoms.size:
        return 0.0
    up = data.geom_xmat[geoms].reshape(-1, 3, 3)[:, 2]  # the vertical in the geoms' frames
    center, half = model.geom_aabb[geoms, :3], model.geom_aabb[geoms, 3:]
    tops = data.geom_xpos[geoms, 2] + (up * center).sum(1) + (np.abs(up) * half).sum(1)
    return float(tops.max() - data.xpos[model.jnt_bodyid[free[0]], 2])


def geom_color(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """Return the color (4,) of a geom in [0, 1]: its material's if it has one and does not have its own color."""
    own, material = model.geom_rgba[geom], int(model.geom_matid[geom])
    gray = np.array([0.5, 0.5, 0.5, 1.0])
    return model.mat_rgba[material] if material >= 0 and np.allclose(own, gray) else own


def geom_mesh(model: mujoco.MjModel, geom: int) -> Trimesh | None:
    """Return the triangles of a geom in its own frame; None for planes."""
    import mujoco

    kind = mujoco.mjtGeom(int(model.geom_type[geom])).name.removeprefix("mjGEOM_")
    if kind == "MESH":
        data = int(model.geom_dataid[geom])
        first, count = int(model.mesh_vertadr[data]), int(model.mesh_vertnum[data])
        vertices = model.mesh_vert[first : first + count]
        first, count = int(model.mesh_faceadr[data]), int(model.mesh_facenum[data])
        return _mesh(vertices, model.mesh_face[first : first + count])
    if kind == "HFIELD":
        data = int(model.geom_dataid[geom])
        rows, columns, first = (
            int(values[data]) for values in (model.hfield_nrow, model.hfield_ncol, model.hfield_adr)
        )
        size = model.hfield_size[data]
        heights = model.hfield_data[first : first + rows * columns].reshape(rows, columns) * size[2]
        return height_field(heights, size)
    return primitive(kind, model.geom_size[geom])


def _mesh(vertices: np.ndarray, faces: np.ndarray) -> Trimesh:
    from trimesh import Trimesh

    return Trimesh(vertices, faces, process=False)


def _join(meshes: list[Any]) -> Any:
    from trimesh.util import concatenate

    return concatenate(meshes)
