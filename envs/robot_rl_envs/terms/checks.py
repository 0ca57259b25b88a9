"""Checks of a term's parameters when an environment is built; each error's line begins with the parameter's name."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

MAX_FLOAT = 3.4e38
"""Largest size of a number: kernels compute in float32."""
MAX_STEPS = 2**30
"""Control steps of an episode at most: kernels count them in 32 bits."""


def figure(name: str, value: Any) -> float:
    """Return ``value`` as a float that is finite in float32, or raise a ValueError that names it."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not abs(number) <= MAX_FLOAT:
        raise ValueError(f"{name}={value!r}: must be a finite number of float32")
    return number


def require(fits: bool, name: str, value: Any, right: str) -> None:
    """Raise a ValueError that names a setting, its value and the right ones, unless ``fits``."""
    if not fits:
        raise ValueError(f"{name}={value!r}: {right}")


def is_number(value: Any) -> bool:
    """Whether a value is a number that is finite in float32; flags are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_FLOAT


def is_whole(value: Any, least: int, most: float) -> bool:
    """Whether a value is an int in [least, most]; flags are none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def are_numbers(values: Any, count: int) -> bool:
    """Whether ``values`` is a tuple or list of ``count`` finite numbers."""
    return isinstance(values, tuple | list) and len(values) == count and all(map(is_number, values))


def nearest(value: str, names: Iterable[str]) -> str:
    """Return the end of an error line about an unknown name: similar names, or all of them."""
    names = list(names)
    close = difflib.get_close_matches(value, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"there are {', '.join(names)}" if names else "there are none"


def check_range(
    params: dict[str, float], lo: str, hi: str, *, least: float = -math.inf, most: float = math.inf
) -> None:
    """Check that ``lo <= hi`` and that both are in [least, most]."""
    check_least(params, lo, least)
    if params[lo] > params[hi]:
        raise ValueError(f"{lo}={params[lo]:g}: must be at most {hi}={params[hi]:g}")
    if params[hi] > most:
        raise ValueError(f"{hi}={params[hi]:g}: must be at most {most:g}")


def check_ranges(params: dict[str, Any]) -> None:
    """Check parameters common to all terms: lo and hi, or <name>_lo and <name>_hi, are a range; a std divides."""
    if "std" in params:
        check_above(params, "std", 0.0)
    for lo in params:
        hi = lo[:-2] + "hi"
        if (lo == "lo" or lo.endswith("_lo")) and hi in params:
            check_range(params, lo, hi)


def check_length(length_s: float, step_dt: float) -> None:
    """Check the length of an episode [s] against the control period [s]."""
    if not 0.5 < length_s / step_dt <= MAX_STEPS:
        right = f"must last at least a control step of {step_dt:g} s and at most {MAX_STEPS} of them"
        raise ValueError(f"episode_length_s={length_s}: {right}")


def check_least(params: dict[str, float], name: str, least: float, why: str = "") -> None:
    """Check that a parameter is at least ``least``; ``why`` goes into the line."""
    if params[name] < least:
        raise ValueError(f"{name}={params[name]:g}: must be at least {least:g}{why}")


def check_above(params: dict[str, float], name: str, bound: float, why: str = "") -> None:
    """Check that a parameter is greater than ``bound``; ``why`` goes into the line."""
    if params[name] <= bound:
        raise ValueError(f"{name}={params[name]:g}: must be greater than {bound:g}{why}")


def at_least(least: float, *names: str) -> Callable[[dict[str, float], Any], None]:
    """Return a check that these parameters are at least ``least``."""

    def check(params: dict[str, float], scene: Any) -> None:
        for name in names:
            check_least(params, name, least)

    return check


def above(bound: float, *names: str, why: str = "") -> Callable[[dict[str, float], Any], None]:
    """Return a check that these parameters are greater than ``bound``; ``why`` goes into the line."""

    def check(params: dict[str, float], scene: Any) -> None:
        for name in names:
            check_above(params, name, bound, why)

    return check


def check_share(params: dict[str, float], name: str) -> None:
    """Check that a parameter is in [0, 1]."""
    if not 0 <= params[name] <= 1:
        raise ValueError(f"{name}={params[name]:g}: must be in [0, 1]")


def moving_body(params: dict[str, float], scene: Any) -> int:
    """Return the body that the parameter names; refuse the world and bodies without mass."""
    body = int(params["body"])
    mass = float(scene.model.body_mass[body])
    if body == 0 or mass <= 0:
        label = scene.model.body(body).name
        raise ValueError(f"body={body}: {label!r} is without mass; take a body of {scene.robot.name!r} with mass")
    return body


def longest_reach(model: Any, body: int, pos: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the place of the first joint that moves a point of a body, and how far from there the point can get.

    The first is (3,) [m] in the world frame, the second a distance [m]: the sum of those between the anchors of
    successive joints and the point, which hinges do not change, and of the travel of slides; 0 if it cannot move.
    Bends of the links and the joints' limits can make the true reach shorter, never longer.
    """
    import mujoco

    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    point = data.xpos[body] + data.xmat[body].reshape(3, 3) @ pos
    joints: list[int] = []
    while body:
        first = int(model.body_jntadr[body])
        joints[:0] = range(first, first + int(model.body_jntnum[body]))
        body = int(model.body_parentid[body])
    points = np.array([*data.xanchor[joints], point])
    reach = float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())
    for joint in joints:
        if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE:
            limits = model.jnt_range[joint] - model.qpos0[model.jnt_qposadr[joint]]
            reach += float(np.abs(limits).max()) if model.jnt_limited[joint] else math.inf
    return points[0], reach


def check_reach(params: dict[str, float], scene: Any) -> None:
    """Refuse a box with a corner that a robot with a fixed base cannot reach with its ``site``.

    Args:
        params: x_lo, x_hi, y_lo, y_hi, z_lo, z_hi [m] of the box in the base frame, and site.
        scene: the scene.
    """
    if scene.base:
        return
    (name, (body, pos, _)), robot = list(scene.elements.sites.items())[int(params["site"])], scene.robot.name
    start, reach = longest_reach(scene.model, body, pos)
    if not reach:
        raise ValueError(f"site={name!r}: no joint of robot {robot!r} moves it; take a site of the arm")
    names = [(f"{axis}_lo", f"{axis}_hi") for axis in "xyz"]
    field = [max(ends, key=lambda end, k=k: abs(params[end] - start[k])) for k, ends in enumerate(names)]
    corner = np.array([params[end] for end in field])
    distance = float(np.linalg.norm(corner - start))
    if distance > reach:
        worst = field[int(np.abs(corner - start).argmax())]
        at = ", ".join(f"{value:g}" for value in corner)
        raise ValueError(
            f"{worst}={params[worst]:g}: the corner ({at}) is {distance:.3f} m from the first joint of robot "
            f"{robot!r}; its site {name!r} reaches {reach:.3f} m at most"
        )


def movable_com(body: int, scene: Any) -> None:
    """Refuse a body with its center of mass in its origin: MuJoCo's compiler notes that and ignores the position."""
    if scene.model.body_sameframe[body] == 1 or scene.model.body_simple[body] != 0:
        raise ValueError(
            f"body={body}: the model of {scene.robot.name!r} has the center of mass of "
            f"{scene.model.body(body).name!r} in its origin, and MuJoCo then reads no other; give its <inertial> a pos"
        )


def check_feet(params: dict[str, float], scene: Any, name: str) -> None:
    """Refuse a robot without feet."""
    if not scene.robot.feet:
        raise ValueError(f"{name}={params[name]:g}: robot {scene.robot.name!r} is without feet; remove the event")


def contact_dimensions(scene: Any) -> list[int]:
    """Return each foot's contact dimension with the ground: of the geom of higher priority, else the larger one."""
    model, floor = scene.model, 0
    found = []
    for foot in scene.foot_geoms:
        higher = int(model.geom_priority[foot]) - int(model.geom_priority[floor])
        pair = (int(model.geom_condim[foot]), int(model.geom_condim[floor]))
        found.append(pair[0] if higher > 0 else pair[1] if higher < 0 else max(pair))
    return found
