"""Makes a robot of this project from one that was read: calls every guess, and collects the reasons as notes."""

from __future__ import annotations

import contextlib
import math
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr, unescape

from robot_rl.errors import UserError
from robot_rl.robots import guess, motors
from robot_rl.robots.parts import Draft, Gains, Reasons, Source, free_file, free_name, remove_all
from robot_rl.robots.shapes import COLLISION, compile_source, replace_shapes, state_inertias
from robot_rl.robots.source import COLLISIONS, SCALARS, read_source
from robot_rl.robots.standing import settle, turn_base
from robot_rl.settings.checks import check_choice

if TYPE_CHECKING:
    from robot_rl_assets.robot import Robot


def draft_robot(name: str, path: Path, *, base: str, collision: str, gains: Gains) -> tuple[Draft, dict[str, bytes]]:
    """Draft a robot from its own model; return the draft, and the files of its model by relative path.

    A mirror by names that is none by geometry, such as that of a gripper's fingers, is omitted.

    Raises:
        UserError: the source cannot be read, or no robot can be made of it.
    """
    check_choice("collision", collision, COLLISIONS)

    def attempt(*, mirrored: bool) -> tuple[Draft, dict[str, bytes], list[str]]:
        draft = make_draft(read_source(path, base, collision), collision, gains, mirrored=mirrored)
        files = write_model(draft, name)
        return draft, files, _find_problems(draft, name, path, files)

    with listening() as heard:
        draft, files, wrong = attempt(mirrored=True)
        if wrong and any(joint.get("mirror") for joint in draft.joints.values()):
            other, other_files, fewer = attempt(mirrored=False)
            if len(fewer) < len(wrong):
                draft, files = other, other_files
                why = re.sub("; check its mirror and mirror_sign$|, or leave the mirror out$", "", wrong[0])
                draft.notes.append(f"mirror: none; names of two sides are not mirror images of each other: {why}")
    draft.notes += [f"MuJoCo: {line}" for line in heard[:3]]
    if len(heard) > 3:
        draft.notes.append(f"MuJoCo: {len(heard) - 3} lines more of this kind")
    return draft, files


def make_draft(source: Source, collision: str, gains: Gains, *, mirrored: bool = True) -> Draft:
    """Make a robot of this project.

    Args:
        source: the robot that was read; it is changed.
        collision: "meshes", "primitives" or "boxes".
        gains: of every joint.
        mirrored: whether joints and feet of two sides by their names are each other's mirror.

    Raises:
        UserError: the model does not compile, such as for a body without inertia.
    """
    spec, notes = source.spec, source.notes
    model = compile_source(source, without_meshes=collision == "boxes")
    state_inertias(spec, model)
    replace_shapes(source, model, collision)
    draft = Draft(spec, {}, source.base, turn=turn_base(source, model), notes=notes)
    names = [joint.name for joint in spec.joints if int(joint.type) in SCALARS]
    model = compile_source(source)

    def take(guessed: tuple[Any, Reasons]) -> Any:
        notes.extend(guessed[1])
        return guessed[0]

    ranges, narrowed = take(guess.guess_ranges(source, model, names))
    for name in narrowed:
        joint = spec.joint(name)
        unit = math.degrees(1.0) if joint.compiler.degree and int(joint.type) == 3 else 1.0
        joint.limited, joint.range = True, [end * unit for end in ranges[name]]
    default = take(guess.guess_pose(source, model, ranges))
    if mirrored:
        guess.match_sides(default)
    draft.joints = {name: {} for name in names}
    pose = guess.Pose(model, source.base, default)
    draft.wheels, rolling = take(guess.guess_wheels(source, pose, names))
    pose = take(guess.bend_legs(source, pose, rolling, default, mirrored=mirrored))
    _add_feet(draft, model, *take(guess.guess_feet(pose, rolling)))
    model = compile_source(source)
    if mirrored:
        mirror, ranges = take(guess.guess_mirror(draft, model, default))
        for name, (partner, sign) in mirror.items():
            draft.joints[name] |= {"mirror": partner, "mirror_sign": sign}
        for name, own in ranges.items():
            spec.joint(name).range = own
    if not any(joint.get("mirror") for joint in draft.joints.values()):
        draft.foot_mirror = list(range(len(draft.feet)))
    guess.follow(source, model, default)
    pose = guess.Pose(model, source.base, default)
    draft.height = guess.guess_height(source, pose)
    limits = take(motors.guess_limits(draft, source, pose))
    for name, fields in take(motors.guess_gains(draft, pose, limits, gains)).items():
        draft.joints[name] |= {"default_pos": default[name], **fields}
    _mount_imu(draft, model)
    for site, owner, place in take(guess.guess_hands(source, pose)):
        if not any(one.name == site for one in spec.sites):
            spec.body(owner).add_site(spec.default, name=site, pos=place)
    settle(draft, source)
    return draft


def _add_feet(draft: Draft, model: Any, radius: float, feet: list[tuple[str, int, Any, int | None]]) -> None:
    """Name the geoms of feet, or add spheres, with a site in the center of each."""
    import mujoco
    from robot_rl_envs.entity.robot_checks import other_side

    spec, shape = draft.spec, {"type": mujoco.mjtGeom.mjGEOM_SPHERE, "size": [radius, 0, 0], "group": COLLISION}
    for name, body, place, geom in feet:
        owner = spec.body(model.body(body).name)
        _free(spec.geoms, name)
        if geom is not None:
            list(spec.geoms)[geom].name = name
        else:
            owner.add_geom(spec.default, name=name, pos=place, contype=0, conaffinity=1, condim=3, **shape)
        remove_all(spec, [site for site in spec.sites if site.name == f"{name}_foot"])
        owner.add_site(spec.default, name=f"{name}_foot", pos=place)
    draft.feet, draft.radius = [name for name, *_ in feet], radius
    draft.foot_mirror = [draft.feet.index(other_side(name, draft.feet)) for name in draft.feet]


def _free(elements: Sequence[Any], name: str) -> None:
    """Rename the element that has a name, so that another can take it."""
    taken = {element.name: element for element in elements}
    if name in taken:
        taken[name].name = free_name(name, taken)


def _mount_imu(draft: Draft, model: Any) -> None:
    """Use the first site of the base with `imu` in its name, not turned, else add one at the base's origin."""
    import mujoco

    if draft.base is None:
        return
    body = draft.spec.body(draft.base)
    own = next((site for site in body.sites if "imu" in site.name.lower()), None)
    if own is not None:
        own.set_frame(body.add_frame())  # It keeps its place in the body and is not turned, also if it was in a frame.
        own.pos, own.quat = model.site(own.name).pos, [1, 0, 0, 0]
        own.alt.type, draft.imu = mujoco.mjtOrientation.mjORIENTATION_QUAT, own.name
        return
    draft.imu = "imu"
    _free(draft.spec.sites, "imu")
    body.add_site(draft.spec.default, name="imu")
    draft.notes.append(f"IMU: at the origin of {draft.base}; move the site to its real place")


def write_model(draft: Draft, name: str) -> dict[str, bytes]:
    """Return model.xml and the files of its meshes by their path in the robot's folder."""
    spec, meshes, moved = draft.spec, {}, {}
    spec.modelname = name
    for mesh in spec.meshes:
        if mesh.file and mesh.file not in moved:
            own = Path(mesh.file)
            moved[mesh.file] = free_file(own, moved.values())
            meshes[f"meshes/{moved[mesh.file]}"] = own.read_bytes()

    def in_folder(found: re.Match[str]) -> str:
        file = unescape(found[1], {"&quot;": '"', "&apos;": "'"})
        return f" file={quoteattr(moved.get(file, file))}"

    text = re.sub(r' file="([^"]*)"', in_folder, spec.to_xml())
    text = text.replace("<compiler ", '<compiler meshdir="meshes" ', 1) if meshes else text
    return {"model.xml": text.encode(), **meshes}


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Collect MuJoCo's warnings of a model, each line once, instead of writing them to stderr and MUJOCO_LOG.TXT."""
    from robot_rl_envs.engines.mujoco_warnings import take_warnings

    heard: list[str] = []
    found: dict[str, None] = {}
    with warnings.catch_warnings(record=True) as caught, take_warnings(lambda line: found.setdefault(str(line))):
        warnings.simplefilter("always")
        yield heard
    lines = [" ".join(str(line).split()) for line in (*found, *(warning.message for warning in caught))]
    heard += dict.fromkeys(line for line in lines if "Time = " not in line)  # Of a simulation, not of the model.


def _find_problems(draft: Draft, name: str, path: Path, files: Mapping[str, bytes]) -> list[str]:
    from robot_rl_envs.entity.robot_checks import check_robot

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_files(folder, files)
        try:
            robot = make_robot(draft, name, folder / "model.xml")
            return [finding.text for finding in check_robot(robot) if finding.is_problem]
        except ValueError as error:
            raise UserError("from", path, " ".join(str(error).split())) from error


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
