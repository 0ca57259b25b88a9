"""Writes a drafted robot as the files of its folder, with a test, and draws it beside its source."""

from __future__ import annotations

import contextlib
import json
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.errors import UserError
from robot_rl.robots.draft import make_draft, write_model
from robot_rl.robots.parts import Draft, Gains
from robot_rl.robots.source import COLLISIONS, read_source, require_choice

if TYPE_CHECKING:
    from robot_rl_assets.robot import Robot

SIZE = (640, 480)
"""Width and height of each half of an image [pixels]."""
WIDTH = 120
"""Longest line of robot.py."""
COLUMNS = ("default_pos", "effort_limit", "velocity_limit", "kp", "kd", "action_scale", "mirror", "mirror_sign")


def draft_robot(name: str, path: Path, *, base: str, collision: str, gains: Gains) -> tuple[Draft, dict[str, bytes]]:
    """Read a model and make a robot of ours of it; return the draft, and the files of its model by relative path.

    A mirror by names that is none by geometry, such as that of a gripper's fingers, is left out.

    Raises:
        UserError: the source cannot be read, or no robot can be made of it.
    """
    require_choice("collision", collision, COLLISIONS)
    with listening() as heard:
        draft = make_draft(read_source(path, base, collision), collision, gains)
        text, files = write_model(draft, name)
        wrong = _problems(draft, name, path, text, files)
        if wrong and any(joint.get("mirror") for joint in draft.joints.values()):
            other = make_draft(read_source(path, base, collision), collision, gains, mirrored=False)
            text, files = write_model(other, name)
            if len(_problems(other, name, path, text, files)) < len(wrong):
                why = (
                    wrong[0]
                    .removesuffix("; check its mirror and mirror_sign")
                    .removesuffix(", or leave the mirror out")
                )
                other.said.append(f"mirror: none; names of two sides are no mirror images of each other: {why}")
                draft = other
            else:
                text, files = write_model(draft, name)
    draft.said += [f"MuJoCo: {line}" for line in heard[:3]]
    if len(heard) > 3:
        draft.said.append(f"MuJoCo: {len(heard) - 3} lines more of this kind")
    return draft, {"model.xml": text.encode(), **files}


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Collect what MuJoCo warns of a model, each line once, instead of writing it to stderr and MUJOCO_LOG.TXT."""
    import mujoco

    heard: list[str] = []
    found: dict[str, None] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mujoco.set_mju_user_warning(lambda line: found.setdefault(str(line)))
        try:
            yield heard
        finally:
            mujoco.set_mju_user_warning(None)
    lines = [" ".join(str(line).split()) for line in (*found, *(warning.message for warning in caught))]
    heard += dict.fromkeys(line for line in lines if "Time = " not in line)  # Of a simulation, not of the model.


def _problems(draft: Draft, name: str, path: Path, text: str, files: Mapping[str, bytes]) -> list[str]:
    import tempfile

    from robot_rl_envs.entity.robot_checks import check_robot

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_files(folder, {"model.xml": text.encode(), **files})
        try:
            robot = make_robot(draft, name, folder / "model.xml")
            return [finding.text for finding in check_robot(robot) if finding.is_problem]
        except ValueError as error:
            raise UserError(f"from={path}: {' '.join(str(error).split())}") from error


def make_robot(draft: Draft, name: str, model: Path) -> Robot:
    """Return a draft as a robot with its model at a path."""
    from robot_rl_assets.robot import Joint, Robot

    return Robot(
        name=name,
        model=model,
        joints=tuple(Joint(name=joint, **fields) for joint, fields in draft.joints.items()),
        base_body=draft.base,
        base_height=draft.height,
        feet=tuple(draft.feet),
        foot_radius=draft.radius,
        foot_mirror=tuple(draft.foot_mirror),
        imu_site=draft.imu,
    )


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a folder."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def robot_text(draft: Draft, name: str, path: Path) -> str:
    """Return the text of robot.py."""
    said = "\n".join(comment(line) for line in (f"drafted from {path.name}", *draft.said))
    has_mirror = any("mirror" in joint for joint in draft.joints.values())
    columns = COLUMNS if has_mirror else COLUMNS[:-2]
    rows = "\n".join(_entry(joint, _row(fields, columns)) for joint, fields in draft.joints.items())
    base = f"    base_body={quoted(draft.base)},\n    base_height={draft.height:g},\n" if draft.base else ""
    feet = (
        f"    feet={_tuple(draft.feet)},\n    foot_radius={draft.radius:g},\n"
        f"    foot_mirror={_tuple(draft.foot_mirror)},\n"
        if draft.feet
        else ""
    )
    imu = f"    imu_site={quoted(draft.imu)},\n" if draft.imu else ""
    return (
        f'"""Facts of {name}, drafted from a file. Put the data sheet\'s figures where a line says guess."""\n\n'
        f"{said}\n\n"
        "from pathlib import Path\n\nfrom robot_rl_assets.robot import Joint, Robot\n\n"
        f"FIELDS = {_tuple(columns)}\n# joint: the fields in this order; rad, N m and rad/s, of a slider m, N and m/s\n"
        f"JOINTS = {{\n{rows}\n}}\n\n"
        f'ROBOT = Robot(\n    name="{name}",\n    model=Path(__file__).parent / "model.xml",\n'
        "    joints=tuple(Joint(name=name, **dict(zip(FIELDS, row, strict=True))) for name, row in JOINTS.items()),\n"
        f"{base}{feet}{imu})\n"
    )


def _entry(joint: str, row: Sequence[str]) -> str:
    line = f"    {quoted(joint)}: ({', '.join(row)}),"
    if len(line) <= WIDTH:
        return line
    return f"    {quoted(joint)}: (\n        " + ",\n        ".join(row) + ",\n    ),"


def _row(fields: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    return [_plain(fields.get(key, 1.0 if key == "mirror_sign" else None)) for key in columns]


def _tuple(values: Sequence[Any]) -> str:
    return "(" + ", ".join(map(_plain, values)) + ("," if len(values) == 1 else "") + ")"


def _plain(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else repr(value)


def quoted(text: str) -> str:
    """Return a text as Python's source has it, in double quotes: JSON's strings are Python's, too."""
    return json.dumps(text, ensure_ascii=False)


def comment(line: str) -> str:
    """Return a line as a comment of Python's, whatever text of a file it has."""
    plain = "".join(c if c.isprintable() else " " for c in line)
    return textwrap.fill(plain, 118, initial_indent="# - ", subsequent_indent="#   ", break_on_hyphens=False)


def draw(path: Path, robot: Robot, draft: Draft, source: Path) -> str:
    """Draw the source on the left, where it compiles, and the robot on the right, as PNG; return what is missing."""
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
