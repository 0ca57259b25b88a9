"""Writes the words of a drafted robot's robot.py, and draws the robot and its source side by side."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.robots.parts import Draft

if TYPE_CHECKING:
    from robot_rl_assets.robot import Robot

SIZE = (640, 480)
"""Width and height of each half of an image [pixels]."""
WIDTH = 120
"""Longest line of robot.py."""
COLUMNS = ("default_pos", "effort_limit", "velocity_limit", "kp", "kd", "action_scale", "mirror", "mirror_sign")


def robot_words(draft: Draft, name: str, path: Path) -> dict[str, str]:
    """Return the words for the template of a drafted robot.py."""
    has_mirror = any("mirror" in joint for joint in draft.joints.values())
    columns = COLUMNS if has_mirror else COLUMNS[:-2]
    rows = []
    for joint, fields in draft.joints.items():
        row = [_plain(fields.get(key, 1.0 if key == "mirror_sign" else None)) for key in columns]
        line = f"    {quoted(joint)}: ({', '.join(row)}),"
        tall = f"    {quoted(joint)}: (\n        " + ",\n        ".join(row) + ",\n    ),"
        rows.append(line if len(line) <= WIDTH else tall)
    facts: dict[str, str] = {}
    if draft.base:
        facts |= {"base_body": quoted(draft.base), "base_height": f"{draft.height:g}"}
    if draft.feet:
        facts |= {"feet": _tuple(draft.feet), "foot_radius": f"{draft.radius:g}"}
        facts["foot_mirror"] = _tuple(draft.foot_mirror)
    if draft.imu:
        facts["imu_site"] = quoted(draft.imu)
    return {
        "name": name,
        "notes": "\n".join(map(comment, (f"drafted from {path.name}", *draft.notes))),
        "fields": _tuple(columns),
        "rows": "\n".join(rows),
        "facts": "".join(f"    {key}={value},\n" for key, value in facts.items()),
    }


def _tuple(values: Sequence[Any]) -> str:
    return "(" + ", ".join(map(_plain, values)) + ("," if len(values) == 1 else "") + ")"


def _plain(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else repr(value)


def quoted(text: str) -> str:
    """Return a text as Python's source has it, in double quotes; strings of JSON are strings of Python."""
    return json.dumps(text, ensure_ascii=False)


def comment(line: str) -> str:
    """Return a line, which may contain any text of a file, as a Python comment."""
    plain = "".join(c if c.isprintable() else " " for c in line)
    return textwrap.fill(plain, 118, initial_indent="# - ", subsequent_indent="#   ", break_on_hyphens=False)


def draw(path: Path, robot: Robot, draft: Draft, source: Path) -> str:
    """Draw the source on the left, if it compiles, and the robot on the right, as PNG; return why a part is missing."""
    import mujoco
    import numpy as np
    from PIL import Image
    from robot_rl_envs.entity.scene import Scene, add_surroundings
    from robot_rl_envs.render import NoGLError, Renderer
    from robot_rl_envs.task import Actions, Sim

    from robot_rl.runs.outputs import save_image

    scene = Scene(robot, Sim(), Actions())
    views, missing = [(scene.render_model, scene.default_qpos)], ""
    try:
        spec = mujoco.MjSpec.from_file(str(source))
        add_surroundings(spec)
        model = spec.compile()
        data = mujoco.MjData(model)
        for name, joint in draft.joints.items():
            data.joint(name).qpos[0] = joint["default_pos"]
        if draft.base is not None and model.jnt_type[0] == int(mujoco.mjtJoint.mjJNT_FREE):
            data.qpos[:7] = [0.0, 0.0, draft.height, *draft.turn]
        views.insert(0, (model, data.qpos.copy()))
    except (ValueError, KeyError) as error:
        missing = f"the source is not in the image: {' '.join(str(error).split())}"
    images = []
    try:
        for model, qpos in views:
            with Renderer(model, *SIZE) as renderer:
                images.append(renderer.frame(qpos))
    except NoGLError as error:  # The robot is written already, and needs no image.
        return f"not drawn: {error}"
    save_image(Image.fromarray(np.concatenate(images, axis=1)), path)
    return missing
