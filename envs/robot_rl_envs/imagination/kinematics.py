"""Slots of what `robot_rl_envs.entity.derive` computes of feet and sites, as sections of `imagined_step.py.txt`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.entity.state import chain_values
from robot_rl_envs.imagination.compiling import IMAGINED

HINGE, SLIDER = 1, 2
IDENTITY = (1.0, 0.0, 0.0, 0.0)


def fill_feet(scene: Scene) -> str:
    """Return the lines that fill position, velocity and clearance of row i's feet."""
    chain, radius = chain_values(scene.entity, scene.elements), float(scene.entity.robot.foot_radius)
    rows = (
        _chain_values(scene, chain, k, f"f{k}", chain["foot_pos"][k]) | {"k": k, "radius": repr(radius)}
        for k in range(scene.sizes["feet"])
    )
    return IMAGINED.fill_each("foot", rows)


def fill_sites(scene: Scene) -> str:
    """Return the lines that fill pose and velocity of row i's named sites."""
    chain, rows = chain_values(scene.entity, scene.elements), []
    for k, owner in enumerate(chain["site_object"]):
        index = scene.sizes["feet"] + k
        row = _chain_values(scene, chain, index, f"s{k}", chain["site_pos"][k], owner=int(owner))
        rows.append(row | {"k": k, "site_quat": _vector(chain["site_quat"][k])})
    return IMAGINED.fill_each("site", rows)


def _vector(values: Sequence[float] | np.ndarray) -> str:
    return f"wp.vec{len(values)}({', '.join(repr(float(value)) for value in values)})"


def _chain_values(
    scene: Scene, chain: dict[str, Any], index: int, start: str, offset: np.ndarray, *, owner: int = -1
) -> dict[str, Any]:
    """Return the slots of a chain of the robot, or of an object (``owner`` >= 0), and of a point of its last node."""
    end, nodes = start, []
    for n in range(int(chain["start"][index]), int(chain["start"][index + 1])):
        nodes.append(_node_values(chain, n, end, f"{start}_{n}"))
        end = f"{start}_{n}"
    return {
        "start": start,
        "from_base": owner < 0 and bool(scene.base),
        "from_world": owner < 0 and not scene.base,
        "from_object": owner >= 0,
        "object": owner,
        "nodes": IMAGINED.fill_each("node", nodes),
        "end": end,
        "offset": _vector(offset),
    }


def _node_values(chain: dict[str, Any], n: int, above: str, name: str) -> dict[str, Any]:
    kind = int(chain["kind"][n])
    has_pos, has_quat = bool(np.any(chain["pos"][n])), not np.array_equal(chain["quat"][n], IDENTITY)
    has_anchor = kind == HINGE and bool(np.any(chain["anchor"][n]))
    pos, vel = (f"{name if has_pos else above}_{part}{'0' * has_pos}" for part in ("pos", "vel"))
    quat = f"{name}_quat0" if has_quat else f"{above}_quat"
    is_moved = has_anchor or kind == SLIDER
    return {
        "name": name,
        "above": above,
        "has_pos": has_pos,
        "has_quat": has_quat,
        "has_anchor": has_anchor,
        "has_joint": kind != 0,
        "is_hinge": kind == HINGE,
        "is_slider": kind == SLIDER,
        "pos": _vector(chain["pos"][n]),
        "quat": _vector(chain["quat"][n]),
        "axis": _vector(chain["axis"][n]),
        "anchor": _vector(chain["anchor"][n]),
        "qpos": int(chain["qpos"][n]),
        "dof": int(chain["dof"][n]),
        "ref": repr(float(chain["ref"][n])),
        "pos0": pos,
        "vel0": vel,
        "quat0": quat,
        "pos1": f"{name}_pos1" if is_moved else pos,
        "vel1": f"{name}_vel1" if is_moved else vel,
        "quat1": f"{name}_quat1" if kind == HINGE else quat,
        "ang1": f"{name}_ang1" if kind == HINGE else f"{above}_ang",
    }
