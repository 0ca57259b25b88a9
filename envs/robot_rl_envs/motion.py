"""The observation group "motion": a pose and its rates in robot coordinates, for recordings and for a motion prior.

:func:`with_motion` adds it on demand; no task lists it and no other run pays for it.
"""

from __future__ import annotations

import dataclasses

from robot_rl_envs.codegen.layout import ObservationSlot, TaskLayout
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.mdp import observations, sensing
from robot_rl_envs.task import Observation, ObservationGroup, Task, TorchTerm

MOTION = "motion"
AXES = ("x", "y", "z")


def with_motion(task: Task) -> Task:
    """Return a copy of a task that has the group; the task itself if it has one of that name."""
    if MOTION in task.observations:
        return task
    terms = {
        "joint_pos": Observation(observations.joint_pos_rel),
        "joint_vel": Observation(observations.joint_vel),
        "base_lin_vel": Observation(observations.base_lin_vel),
        "base_ang_vel": Observation(observations.base_ang_vel),
        "height": Observation(sensing.base_clearance),
        "gravity": Observation(observations.projected_gravity),
    }
    group = ObservationGroup(terms=terms, noise=False)
    return dataclasses.replace(task, observations={**task.observations, MOTION: group})


def component_names(layout: TaskLayout, group: str, scene: Scene) -> list[str]:
    """Name each component of a group, such as "joint_vel.FL_hip_joint", "gravity.z" or "height".

    A scale other than 1 is part of the name ("joint_vel.FL_hip_joint*0.05"), and so is the place in a history, the
    oldest first ("height[0]").

    Raises:
        ValueError: the group does not exist, or is of pixels, which are not named.
    """
    if group not in layout.groups:
        raise ValueError(f"group={group!r}: is without component names; {', '.join(layout.groups)} have them")
    names = []
    for slot in layout.groups[group]:
        scale = "" if isinstance(slot.term, TorchTerm) or slot.term.scale == 1.0 else f"*{slot.term.scale:g}"
        for step in range(slot.history):
            past = f"[{step}]" if slot.history > 1 else ""
            names += [f"{slot.name}{part}{past}{scale}" for part in _parts(slot, scene)]
    return names


def _parts(slot: ObservationSlot, scene: Scene) -> list[str]:
    """Return the suffixes that distinguish the components of one value of a term."""
    size = None if isinstance(slot.term, TorchTerm) else slot.term.info.size
    known = {"joints": scene.robot.joint_names, "actions": scene.actuated, "feet": scene.robot.feet}
    known["limited_joints"] = scene.entity.limited
    if isinstance(size, str) and size in known:
        return [f".{name}" for name in known[size]]
    if slot.size == 1:
        return [""]
    return [f".{axis}" for axis in (AXES if slot.size == len(AXES) else range(slot.size))]
