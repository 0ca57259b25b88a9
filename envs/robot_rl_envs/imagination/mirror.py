"""The left-right mirror of predicted changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robot_rl_envs.entity.mirrors import AXIAL, INERTIA, POLAR, SPATIAL, Mirror, bodies, velocities

BODIES = {"engine_cinert": INERTIA, "engine_cvel": SPATIAL, "engine_cfrc_ext": SPATIAL}
BODIES |= dict.fromkeys(("engine_xpos", "engine_xipos"), POLAR)
BASE = {"base velocity": POLAR, "base rate": AXIAL, "base position": POLAR, "base rotation": AXIAL}


def mirror_changes(scene: Any, parts: Mapping[str, slice]) -> Mirror | None:
    """Return permutation and sign of the columns of changes under the mirror y -> -y; None for a part without one.

    Args:
        scene: Of a robot that has a mirror.
        parts: Columns by quantity, in order.
    """
    robot = scene.robot
    joints = robot.joint_mirror()
    feet = list(robot.foot_mirror), [1.0] * len(robot.foot_mirror)
    known = {name: (list(range(3)), list(signs)) for name, signs in BASE.items()}
    known |= dict.fromkeys(("joint velocities", "joint positions"), joints)
    known |= dict.fromkeys(("contacts", "contact forces"), feet)
    if (forces := mirror_actuators(scene.model, robot.joint_names, joints)) is not None:
        known["forces"] = forces
    known |= {name: bodies(scene, signs) for name, signs in BODIES.items() if name in parts}
    if "engine_subtree_com" in parts:  # The first row is the world's: the center of mass of all.
        perm, sign = bodies(scene, POLAR)
        known["engine_subtree_com"] = [0, 1, 2, *(k + 3 for k in perm)], [*POLAR, *sign]
    known |= dict.fromkeys(("engine_qfrc_actuator", "engine_qacc"), velocities(scene))
    perm, sign = [], []
    for name, columns in parts.items():
        if name not in known or len(known[name][0]) != columns.stop - columns.start:
            return None
        perm += [columns.start + k for k in known[name][0]]
        sign += known[name][1]
    return perm, sign


def mirror_actuators(model: Any, names: Any, joints: Mirror) -> Mirror | None:
    """Return the mirror of the actuators, each of which drives its own joint; None if a partner is not driven."""
    driven = [model.joint(int(model.actuator_trnid[u, 0])).name for u in range(model.nu)]
    perm, sign = [], []
    for name in driven:
        k = list(names).index(name) if name in names else -1
        partner = names[joints[0][k]]
        if k < 0 or partner not in driven:
            return None
        perm.append(driven.index(partner))
        sign.append(joints[1][k])
    return perm, sign
