"""The parts of a change: the quantities of a scene that a model predicts, and the functions that apply them."""

from __future__ import annotations

from typing import Any

from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.imagination import advance
from robot_rl_envs.imagination.mujoco_fields import watched_parts

FIXED_POSE = ("object_pos_w", "object_quat_wxyz")
"""Pose of an object, which is part of a world where events move fixed ones."""


def fixed_objects(scene: Scene) -> list[int]:
    """Return the indices of the objects that are fixed in the world."""
    return [k for k, thing in enumerate(scene.elements.objects.values()) if thing.fixed]


def frame_of(scene: Scene) -> str:
    """Return the text of the frame that changes are in, row i's base before the step: a quaternion."""
    if not scene.base:
        return "wp.vec4(1.0, 0.0, 0.0, 0.0)"
    values = ", ".join(f"a.qpos[i, a.base_qpos + {n}]" for n in range(3, 7))
    return f"wp.normalize(wp.vec4({values}))"


def moved(scene: Scene, parts: dict[str, slice]) -> list[tuple[str, str]]:
    """Return which functions of `advance`, without their first word, move the state on, and their arguments."""
    row, found = "a, s, change, i", []
    if scene.base:
        found.append(("free", f"{row}, s.base_qpos, s.base_dof, frame, {parts['base velocity'].start}"))
    found.append(("joints", f"{row}, s.joint_qpos, s.joint_dof, {parts['joint velocities'].start}"))
    if "forces" in parts:
        found.append(("forces", f"s, change, i, {parts['forces'].start}"))
    for name, thing in free_objects(scene).items():
        found.append(("free", f"{row}, {thing.qpos}, {thing.dof}, frame, {parts[name].start}"))
    if scene.elements.joints:
        first = parts["object joint velocities"].start
        found.append(("joints", f"{row}, s.object_joint_qpos, s.object_joint_dof, {first}"))
    if scene.contacts:
        found.append(("touches", f"s, change, i, {parts['touches'].start}"))
    return found


def free_objects(scene: Scene) -> dict[str, Any]:
    """Return the objects that have a free joint, by the name of their part of a change."""
    return {f"object {name}": thing for name, thing in scene.elements.objects.items() if not thing.fixed}


def change_parts(scene: Scene) -> dict[str, slice]:
    """Return the columns of the changes that a model predicts, by quantity."""
    sizes = {"base velocity": 3, "base rate": 3, "base position": 3, "base rotation": 3} if scene.base else {}
    sizes |= dict.fromkeys(("joint velocities", "joint positions"), scene.sizes["joints"])
    sizes |= {"forces": scene.model.nu} if scene.model.nu else {}
    sizes |= dict.fromkeys(("contacts", "contact forces"), scene.sizes["feet"]) if scene.sizes["feet"] else {}
    sizes |= dict.fromkeys(free_objects(scene), advance.FREE_CHANGES)
    of_joints = "object joint velocities", "object joint positions"
    sizes |= dict.fromkeys(of_joints, len(scene.elements.joints)) if scene.elements.joints else {}
    sizes |= {"touches": len(scene.contacts)} if scene.contacts else {}
    sizes |= {name: of.size for name, of in watched_parts(scene).items()}
    found, end = {}, 0
    for name, size in sizes.items():
        found[name], end = slice(end, end + size), end + size
    return found


def gates_of(scene: Scene, parts: dict[str, slice]) -> list[list[int]]:
    """Return the columns that change only together: of each object and drawer, and of each contact sensor."""
    spans = [parts[name] for name in free_objects(scene)]
    found = [list(range(span.start, span.stop)) for span in spans]
    for k in range(len(scene.elements.joints)):
        found.append([parts[f"object joint {what}"].start + k for what in ("velocities", "positions")])
    return found + ([[k] for k in range(parts["touches"].start, parts["touches"].stop)] if scene.contacts else [])


def first_of_objects(scene: Scene) -> int:
    """Return the first column of qvel that is an object's; the number of columns if none is."""
    free = [thing.dof for thing in free_objects(scene).values()]
    return min(
        [*free, *(at for thing in scene.elements.objects.values() for at in thing.joint_dof)], default=scene.model.nv
    )
