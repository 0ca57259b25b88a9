"""A task's objects and named sites in a compiled scene, and their fields of ``s``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import warp as wp

from robot_rl_envs.terms.checks import nearest

_ADDRESSES = ("object_qpos", "object_dof", "object_body", "object_geom", "object_geom_count")
WORLD = -1
"""Instead of an address in qpos: the thing is fixed in the world; instead of an object: the robot."""


class ObjectEntity:
    """One object of a task in a compiled model.

    Attributes:
        body: its topmost body.
        geoms: ids of its geoms.
        qpos, dof: addresses of its free joint; :data:`WORLD` if it is fixed.
        joints: names of its joints, as the task calls them.
        joint_qpos, joint_dof: their addresses.
    """

    def __init__(self, name: str, model: mujoco.MjModel):
        self.body = int(model.body(name).id)
        self.fixed = int(model.body_weldid[self.body]) == 0
        first = int(model.body_jntadr[self.body])
        addresses = (model.jnt_qposadr, model.jnt_dofadr)
        self.qpos, self.dof = (WORLD, WORLD) if self.fixed else (int(column[first]) for column in addresses)
        bodies = np.flatnonzero(model.body_rootid == self.body)
        self.geoms = np.flatnonzero(np.isin(model.geom_bodyid, bodies))
        ids = [k for k in range(model.njnt) if model.jnt_bodyid[k] in bodies] if self.fixed else []
        self.joints = [model.joint(k).name for k in ids]
        self.joint_qpos, self.joint_dof = ([int(column[k]) for k in ids] for column in addresses)


class SceneElements:
    """The objects, sites and contact sensors of a task in one compiled model, as arrays for the kernels.

    Attributes:
        objects: the objects by name.
        joints: names of all objects' joints.
        sites: names of the sites (or bodies) that terms read.
        contacts: names of the contact sensors.
        sizes: widths that terms and state fields name.
    """

    def __init__(self, model: mujoco.MjModel, objects: list[str], sites: Mapping[str, str], contacts: list[str]):
        self._model = model
        self.objects = {name: ObjectEntity(name, model) for name in objects}
        self.joints = [joint for thing in self.objects.values() for joint in thing.joints]
        self.sites = {name: _frame_of(model, name, path) for name, path in sites.items()}
        self.contacts = contacts
        self.sizes = {"objects": len(objects), "object_joints": len(self.joints), "contacts": len(contacts)}

    def set_default_qpos(self, qpos: np.ndarray) -> None:
        """Write the objects' poses at an episode's start into ``qpos`` (nq,) of the whole scene."""
        for thing in self.objects.values():
            if not thing.fixed:
                body = thing.body
                pose = [*self._model.body_pos[body], *self._model.body_quat[body]]
                qpos[thing.qpos : thing.qpos + 7] = pose

    def fields(self, num_envs: int) -> dict[str, tuple[Any, int, tuple[int, ...]]]:
        """Return fields of ``s``: name -> dtype, number of dimensions, shape.

        ``object_pos_w`` [m], ``object_quat_wxyz``, ``object_lin_vel_w`` [m/s] and ``object_ang_vel_w`` [rad/s] (N, no);
        ``object_joint_pos`` [rad or m] and ``object_joint_vel`` (N, noj); the same of the named sites, ``site_pos_w``
        and so on (N, ns); ``contact_force`` [N] (N, nc). ``object_qpos``, ``object_dof`` (no,) are addresses, -1 of a
        fixed object; ``object_body``, ``object_geom`` and ``object_geom_count`` (no,) are its topmost body, its first
        geom and their number.
        """
        n, found = num_envs, {}
        if self.objects:
            count, joints = len(self.objects), len(self.joints)
            found |= _pose_fields("object", n, count)
            found |= dict.fromkeys(_ADDRESSES, (wp.int32, 1, (count,)))
            if joints:
                found |= dict.fromkeys(("object_joint_pos", "object_joint_vel"), (wp.float32, 2, (n, joints)))
                found |= dict.fromkeys(("object_joint_qpos", "object_joint_dof"), (wp.int32, 1, (joints,)))
        if self.sites:
            found |= _pose_fields("site", n, len(self.sites))
        if self.contacts:
            found["contact_force"] = (wp.float32, 2, (n, len(self.contacts)))
            found["contact_at"] = (wp.int32, 1, (len(self.contacts),))
        return found

    def fill(self, arrays: dict[str, wp.array]) -> None:
        """Set the arrays that do not change, and the poses of fixed objects."""
        things = list(self.objects.values())
        values = {
            "object_qpos": [thing.qpos for thing in things],
            "object_dof": [thing.dof for thing in things],
            "object_body": [thing.body for thing in things],
            "object_geom": [int(thing.geoms[0]) for thing in things],
            "object_geom_count": [len(thing.geoms) for thing in things],
            "object_joint_qpos": [at for thing in things for at in thing.joint_qpos],
            "object_joint_dof": [at for thing in things for at in thing.joint_dof],
            "contact_at": [int(self._model.sensor_adr[self._model.sensor(f"contact/{k}").id]) for k in self.contacts],
        }
        for name, value in values.items():
            if name in arrays:
                arrays[name].assign(np.asarray(value, dtype=np.int32))
        if things:
            bodies = [thing.body for thing in things]
            for name, pose in (("object_pos_w", "body_pos"), ("object_quat_wxyz", "body_quat")):
                array = arrays[name]
                array.assign(np.tile(getattr(self._model, pose)[bodies].astype(np.float32), (array.shape[0], 1, 1)))

    def chain(self, base_body: int) -> dict[str, np.ndarray]:
        """Return the nodes from the robot's base (0: the world) or an object down to each site.

        The arrays are fields of :class:`.state.Chain`; ``count`` are the nodes of each site.
        """
        owners = {thing.body: k for k, thing in enumerate(self.objects.values())}
        nodes, counts, objects = [], [], []
        for body, _, _ in self.sites.values():
            path, root = chain_path(self._model, body, {base_body, *owners})
            nodes += path
            counts.append(len(path))
            objects.append(owners.get(root, WORLD))
        found = columns(nodes) | {"count": np.array(counts, dtype=np.int32)}
        if self.sites:
            found["site_pos"], found["site_quat"] = (
                np.array([site[k] for site in self.sites.values()]) for k in (1, 2)
            )
            found["site_object"] = np.array(objects, dtype=np.int32)
        return found

    @property
    def has_object_sites(self) -> bool:
        """Whether a named site belongs to an object."""
        bodies = [thing.body for thing in self.objects.values()]
        return any(int(self._model.body_rootid[body]) in bodies for body, _, _ in self.sites.values())


def _pose_fields(kind: str, num_envs: int, count: int) -> dict[str, tuple[Any, int, tuple[int, ...]]]:
    vectors: dict[str, Any] = dict.fromkeys(
        (f"{kind}_pos_w", f"{kind}_lin_vel_w", f"{kind}_ang_vel_w"), (wp.vec3, 2, (num_envs, count))
    )
    return vectors | {f"{kind}_quat_wxyz": (wp.vec4, 2, (num_envs, count))}


def _frame_of(model: mujoco.MjModel, name: str, path: str) -> tuple[int, np.ndarray, np.ndarray]:
    """Return body, position and orientation in it of a site, or of a body's own frame."""
    kind = mujoco.mjtObj
    site = mujoco.mj_name2id(model, kind.mjOBJ_SITE, name)
    if site >= 0:
        return int(model.site_bodyid[site]), model.site_pos[site].copy(), model.site_quat[site].copy()
    body = mujoco.mj_name2id(model, kind.mjOBJ_BODY, name)
    if body < 0:
        names = [model.site(k).name for k in range(model.nsite)] + [model.body(k).name for k in range(1, model.nbody)]
        line = "the scene lacks a site or body of that name"
        raise ValueError(f"{path}={name!r}: {line}; {nearest(name, [known for known in names if known])}")
    return body, np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0])


_KINDS = {int(mujoco.mjtJoint.mjJNT_HINGE): 1, int(mujoco.mjtJoint.mjJNT_SLIDE): 2}
_COLUMNS = ("pos", "quat", "kind", "axis", "anchor", "qpos", "dof", "ref")


def columns(nodes: list[tuple]) -> dict[str, np.ndarray]:
    """Return nodes of :func:`chain_path` as the arrays of :class:`.state.Chain`."""
    return {name: np.array(column) for name, column in zip(_COLUMNS, zip(*nodes, strict=True), strict=False)}


def chain_path(model: mujoco.MjModel, body: int, roots: set[int]) -> tuple[list[tuple], int]:
    """List the nodes from the nearest of ``roots``, or the world, down to ``body``; return them and that root.

    Raises:
        ValueError: a joint on the way is not a hinge or slide.
    """
    if body == 0 or body in roots:
        return [], body
    nodes, root = chain_path(model, int(model.body_parentid[body]), roots)
    pose = (model.body_pos[body], model.body_quat[body])
    first, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
    if count == 0:
        nodes.append((*pose, 0, np.array([0.0, 0.0, 1.0]), np.zeros(3), 0, 0, 0.0))
    for joint in range(first, first + count):
        kind = _KINDS.get(int(model.jnt_type[joint]))
        if kind is None:
            raise ValueError(f"joint {model.joint(joint).name!r} of its model must be a hinge or a slide")
        address = (int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint]))
        ref = float(model.qpos0[address[0]])
        nodes.append((*pose, kind, model.jnt_axis[joint], model.jnt_pos[joint], *address, ref))
        pose = (np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))
    return nodes, root
