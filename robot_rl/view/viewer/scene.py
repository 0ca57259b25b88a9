"""A MuJoCo model in a viser scene: meshes sent once, then one pose per moving body and frame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.view.viewer.drive import CLEAR_M, heading
from robot_rl.view.viewer.shapes import body_meshes, height_above_base

if TYPE_CHECKING:
    import mujoco
    import viser

GRID_M = 1.0
GHOST_RGB, GHOST_OPACITY = (26, 115, 230), 0.4
WORLD = "/world"
FORCE_M, SPEED_M = 0.5, 0.4
"""Lengths of the arrows of a force as large as the robot's weight, and of 1 m/s [m]."""
ARROWS = {"command": (26, 115, 230), "measured": (46, 160, 90), "force": (224, 90, 0)}
"""Colors of the arrows by their names."""


class RobotScene:
    """One world of a model, shown on a viser server."""

    def __init__(self, server: viser.ViserServer, model: mujoco.MjModel, *, wide: float = 1.0) -> None:
        """Send the shapes of a model; the camera begins `wide` times as far away as one robot needs."""
        import mujoco
        from robot_rl_envs.render import traveling_joints

        self._mj, self._server, self._model = mujoco, server, model
        self._data = mujoco.MjData(model)
        self._free = traveling_joints(model)
        self._above_m = height_above_base(model) + CLEAR_M
        self._is_first, self._wide = True, wide
        self._set_stage()
        self._world = server.scene.add_frame(WORLD, show_axes=False)
        self._bodies, self._ghost = self._add_bodies(range(model.nbody), WORLD), {}
        self._arrows: dict[str, Any] = {}

    @property
    def travels(self) -> bool:
        """Whether the robot moves through the world, so that the view can follow it."""
        return bool(self._free.size)

    def _add_bodies(self, bodies: Iterable[int], parent: str, *, ghost: bool = False) -> dict[int, Any]:
        """Send the shapes of bodies and return their nodes; those of a ghost have one transparent color."""
        scene, nodes = self._server.scene, {}
        for body in bodies:
            meshes = body_meshes(self._model, body)
            if not meshes:
                continue
            name = f"{parent}/body_{body}"
            nodes[body] = scene.add_frame(name, show_axes=False)
            for k, (rgb, alpha, mesh) in enumerate(meshes):
                opacity = GHOST_OPACITY if ghost else None if alpha >= 1 else alpha
                color = GHOST_RGB if ghost else rgb
                shape = f"{name}/shape_{k}"
                scene.add_mesh_simple(shape, mesh.vertices, mesh.faces, color=color, opacity=opacity)
        return nodes

    def show_ghost(self, qpos: np.ndarray) -> None:
        """Show the robot once more, transparent, at generalized positions (nq,): the reference to follow."""
        if not self._ghost:
            moving = np.flatnonzero(self._model.body_weldid > 0)
            self._ghost = self._add_bodies(moving.tolist(), f"{WORLD}/ghost", ghost=True)
            self._ghost_data = self._mj.MjData(self._model)
        self._ghost_data.qpos[:] = qpos
        self._mj.mj_kinematics(self._model, self._ghost_data)
        for body, frame in self._ghost.items():
            frame.position, frame.wxyz = self._ghost_data.xpos[body], self._ghost_data.xquat[body]

    def _set_stage(self) -> None:
        """Add floor and light; nothing is loaded from the network."""
        scene, model = self._server.scene, self._model
        scene.set_up_direction("+z")
        # The default is a photograph that the page would load from the network.
        scene.configure_environment_map(None)
        scene.configure_default_lights(enabled=False)
        scene.add_light_hemisphere("/light/sky", sky_color=(255, 255, 255), ground_color=(150, 155, 165), intensity=1.6)
        # Light shines along the node's -z: here from the front left, from above.
        scene.add_light_directional("/light/sun", intensity=2.2, cast_shadow=True, wxyz=(0.90, 0.25, 0.35, 0.05))
        planes = np.flatnonzero(model.geom_type == int(self._mj.mjtGeom.mjGEOM_PLANE))
        self._floor_z = float(model.geom_pos[planes[0], 2]) if planes.size else 0.0
        self._grid = scene.add_grid(
            "/floor",
            width=40.0,
            height=40.0,
            cell_size=GRID_M / 4,
            section_size=GRID_M,
            cell_color=(222, 226, 230),
            section_color=(190, 197, 204),
            fade_distance=25.0,
            plane_color=(244, 246, 248),
            plane_opacity=1.0,
            shadow_opacity=0.5,
            position=(0.0, 0.0, self._floor_z),
            visible=bool(planes.size) or not self.has_terrain,
        )

    @property
    def has_terrain(self) -> bool:
        """Whether the ground is a height field or boxes, which a level grid would hide."""
        floor = self._mj.mj_name2id(self._model, self._mj.mjtObj.mjOBJ_GEOM, "floor")
        return floor >= 0 and int(self._model.geom_type[floor]) != int(self._mj.mjtGeom.mjGEOM_PLANE)

    def look_from(self, client: viser.ClientHandle) -> None:
        """Set the camera of a browser that has just connected to a view of the robot."""
        reach = self._wide * max(float(np.ptp(self._data.geom_xpos[self._visible()], axis=0).max()), 0.6)
        center = self._data.geom_xpos[self._visible()].mean(0) + np.asarray(self._world.position)
        offset = reach * np.array([0.2, -1.9, 0.5])
        if self._free.size:
            body = self._model.jnt_bodyid[self._free[0]]
            offset = reach * np.array([1.0, -1.3, 0.6])
            offset[:2] = heading(self._data.xquat[body]) @ offset[:2]
        # In this order: a new position also moves the point that the camera looks at.
        client.camera.position = tuple(center + offset)
        client.camera.look_at = tuple(center)

    def _visible(self) -> np.ndarray:
        moving = self._model.body_weldid[self._model.geom_bodyid] > 0
        return np.flatnonzero(moving) if moving.any() else np.arange(self._model.ngeom)

    def update(self, qpos: np.ndarray, *, follow: bool = True) -> None:
        """Move the bodies to generalized positions (nq,).

        With `follow` the world moves under a floating base, which stays in the middle; the user moves the camera.
        """
        data, model = self._data, self._model
        if np.isfinite(qpos).all():
            data.qpos[:] = qpos
        self._mj.mj_kinematics(model, data)
        for body, frame in self._bodies.items():
            if model.body_weldid[body] > 0 or self._is_first:
                frame.position, frame.wxyz = data.xpos[body], data.xquat[body]
        self._is_first = False
        shift = np.zeros(3)
        if follow and self._free.size:
            shift[:2] = -data.xpos[model.jnt_bodyid[self._free[0]], :2]
        self._world.position = shift
        # The floor's pattern repeats, so it moves within one cell only.
        self._grid.position = (float(shift[0] % GRID_M), float(shift[1] % GRID_M), self._floor_z)

    def show_forces(self, points: np.ndarray, forces: np.ndarray, *, shown: bool) -> None:
        """Draw the sizes of forces (n,) [N] as vertical arrows from the points (n, 3) [m] at which they act."""
        weight = 9.81 * float(self._model.body_subtreemass[0])
        self._show_arrows("force", points, np.outer(forces, [0.0, 0.0, FORCE_M / weight]), shown=shown)

    def _show_arrows(self, name: str, starts: np.ndarray, vectors: np.ndarray, *, shown: bool) -> None:
        """Draw arrows (n, 3) [m] of one of the kinds in ARROWS, or hide them."""
        ends = np.stack([starts, starts + vectors], axis=1).astype(np.float32)
        if name not in self._arrows:
            sizes: Any = {"shaft_radius": 0.006, "head_radius": 0.016, "head_length": 0.04}
            self._arrows[name] = self._server.scene.add_arrows(f"{WORLD}/{name}", ends, ARROWS[name], **sizes)
        self._arrows[name].visible = shown
        if shown:
            self._arrows[name].points = ends

    def show_velocity(self, command: np.ndarray, measured: np.ndarray, rotation: np.ndarray) -> None:
        """Draw planar velocities as arrows above the robot.

        Args:
            command: (2,) commanded velocity in the heading frame [m/s].
            measured: (2,) measured velocity in the heading frame [m/s].
            rotation: (2, 2) heading frame to world.
        """
        if not self._free.size:
            return
        base = self._data.xpos[self._model.jnt_bodyid[self._free[0]]]
        for height, name, vector in ((0.03, "command", command), (0.0, "measured", measured)):
            start = base + np.array([0.0, 0.0, self._above_m + height])
            along = np.array([*(SPEED_M * rotation @ vector[:2]), 0.0])
            self._show_arrows(name, start[None], along[None], shown=bool(np.linalg.norm(vector[:2]) > 0.03))
