"""Text of what `robot_rl_envs.entity.derive` computes of feet and sites, in a form with a quick adjoint.

Warp's adjoint of a function computes it again, and that of a loop needs what each iteration read in an array. The
chains of a task are known, so each node is a few lines here with its own numbers, and what is zero has no line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.entity.state import chain_values
from robot_rl_envs.imagination.compiling import LineWriter
from robot_rl_envs.quat import quat_from_axis_angle, quat_multiply, quat_rotate
from robot_rl_envs.terrain.lookup import terrain_height

HINGE, SLIDER = 1, 2
IDENTITY = (1.0, 0.0, 0.0, 0.0)


def write_feet(w: LineWriter, scene: Scene) -> None:
    """Write the lines that fill position, velocity and clearance of row i's feet."""
    chain = _begin(w, scene)
    for f in range(scene.sizes["feet"]):
        end = _write_walk(w, chain, f, _robot(w, scene, f"f{f}"))
        _write_end(w, chain["foot_pos"][f], end)
        w.functions[terrain_height.key] = terrain_height
        radius = float(scene.entity.robot.foot_radius)
        w.add(1, f"s.foot_pos_w[i, {f}] = {end}_at", f"s.foot_vel_w[i, {f}] = {end}_going")
        ground = f"{terrain_height.key}(s, {end}_at[0], {end}_at[1])"
        w.add(1, f"s.foot_height_w[i, {f}] = {end}_at[2] - {radius!r} - {ground}")


def write_sites(w: LineWriter, scene: Scene) -> None:
    """Write the lines that fill pose and velocity of row i's named sites."""
    chain = _begin(w, scene)
    for site, of in enumerate(chain["site_object"]):
        name = f"s{site}"
        start = _robot(w, scene, name) if of < 0 else _object(w, name, int(of))
        end = _write_walk(w, chain, scene.sizes["feet"] + site, start)
        _write_end(w, chain["site_pos"][site], end)
        turned = f"quat_multiply({end}_quat, {_vector(chain['site_quat'][site])})"
        w.add(1, f"s.site_pos_w[i, {site}] = {end}_at", f"s.site_quat_wxyz[i, {site}] = {turned}")
        w.add(1, f"s.site_lin_vel_w[i, {site}] = {end}_going", f"s.site_ang_vel_w[i, {site}] = {end}_ang")


def _begin(w: LineWriter, scene: Scene) -> dict[str, Any]:
    w.functions |= {fn.key: fn for fn in (quat_rotate, quat_multiply, quat_from_axis_angle)}
    return chain_values(scene.entity, scene.things)


def _vector(values: Sequence[float] | np.ndarray) -> str:
    return f"wp.vec{len(values)}({', '.join(repr(float(value)) for value in values)})"


def _robot(w: LineWriter, scene: Scene, name: str) -> str:
    """Write pose and velocities of what a chain of the robot begins at; return the prefix of their names."""
    if scene.base:
        w.add(1, f"{name}_pos = s.base_pos_w[i]", f"{name}_quat = s.base_quat_wxyz[i]")
        w.add(1, f"{name}_vel = s.base_lin_vel_w[i]")
        w.add(1, f"{name}_ang = quat_rotate({name}_quat, s.base_ang_vel_b[i])")
        return name
    for part, value in (("pos", (0.0,) * 3), ("quat", IDENTITY), ("vel", (0.0,) * 3), ("ang", (0.0,) * 3)):
        w.add(1, f"{name}_{part} = {_vector(value)}")
    return name


def _object(w: LineWriter, name: str, index: int) -> str:
    """Write pose and velocities of an object as `_robot` does those of the base."""
    fields = {"pos": "pos_w", "quat": "quat_wxyz", "vel": "lin_vel_w", "ang": "ang_vel_w"}
    w.add(1, *(f"{name}_{part} = s.object_{field}[i, {index}]" for part, field in fields.items()))
    return name


def _write_walk(w: LineWriter, chain: dict[str, Any], index: int, start: str) -> str:
    """Write the walk down a chain; return the prefix of the names of its last node's pose and velocities.

    The lines are those of `robot_rl_envs.entity.derive.pass_node`.
    """
    above = start
    for n in range(int(chain["start"][index]), int(chain["start"][index + 1])):
        above = _write_node(w, chain, n, above, f"{start}_{n}")
    return above


def _write_node(w: LineWriter, chain: dict[str, Any], n: int, above: str, name: str) -> str:
    pos, quat, vel, ang = (f"{above}_{part}" for part in ("pos", "quat", "vel", "ang"))
    if np.any(chain["pos"][n]):
        w.add(1, f"{name}_arm = quat_rotate({quat}, {_vector(chain['pos'][n])})")
        w.add(1, f"{name}_pos0 = {pos} + {name}_arm", f"{name}_vel0 = {vel} + wp.cross({ang}, {name}_arm)")
        pos, vel = f"{name}_pos0", f"{name}_vel0"
    if not np.array_equal(chain["quat"][n], IDENTITY):
        w.add(1, f"{name}_quat0 = quat_multiply({quat}, {_vector(chain['quat'][n])})")
        quat = f"{name}_quat0"
    kind = int(chain["kind"][n])
    if kind:
        w.add(1, f"{name}_axis = quat_rotate({quat}, {_vector(chain['axis'][n])})")
        w.add(1, f"{name}_by = s.qpos[i, {int(chain['qpos'][n])}] - {float(chain['ref'][n])!r}")
        rate = f"s.qvel[i, {int(chain['dof'][n])}] * {name}_axis"
    if kind == HINGE:
        axis, anchor = _vector(chain["axis"][n]), chain["anchor"][n]
        w.add(1, f"{name}_rate = {rate}")
        w.add(1, f"{name}_quat1 = quat_multiply({quat}, quat_from_axis_angle({axis}, {name}_by))")
        if np.any(anchor):  # The body's origin turns about it.
            w.add(1, f"{name}_old = quat_rotate({quat}, {_vector(anchor)})")
            w.add(1, f"{name}_lever = {name}_old - quat_rotate({name}_quat1, {_vector(anchor)})")
            w.add(1, f"{name}_pos1 = {pos} + {name}_lever")
            turning = f"wp.cross({ang}, {name}_lever) + wp.cross({name}_rate, {name}_lever - {name}_old)"
            w.add(1, f"{name}_vel1 = {vel} + {turning}")
            pos, vel = f"{name}_pos1", f"{name}_vel1"
        w.add(1, f"{name}_ang1 = {ang} + {name}_rate")
        quat, ang = f"{name}_quat1", f"{name}_ang1"
    if kind == SLIDER:
        w.add(1, f"{name}_slide = {name}_by * {name}_axis", f"{name}_pos1 = {pos} + {name}_slide")
        w.add(1, f"{name}_vel1 = {vel} + wp.cross({ang}, {name}_slide) + {rate}")
        pos, vel = f"{name}_pos1", f"{name}_vel1"
    for part, value in zip(("pos", "quat", "vel", "ang"), (pos, quat, vel, ang), strict=True):
        w.add(1, f"{name}_{part} = {value}")
    return name


def _write_end(w: LineWriter, offset: Sequence[float], end: str) -> None:
    """Write the place and the velocity of a point of a chain's last node."""
    w.add(1, f"{end}_point = quat_rotate({end}_quat, {_vector(offset)})", f"{end}_at = {end}_pos + {end}_point")
    w.add(1, f"{end}_going = {end}_vel + wp.cross({end}_ang, {end}_point)")
