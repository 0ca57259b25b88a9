"""Read motions from files: CSV, npz of retargeted motions, npz of AMASS. Nothing is ever unpickled.

======================  ==============================================================================================
file                    content
======================  ==============================================================================================
.csv without a header   a row a frame: base x, y, z [m], quaternion x, y, z, w, then all joints in the robot's order,
                        at 30 Hz; as the retargeted LAFAN1 motions have it
.csv with a header      the same columns by name in any order: ``base_x`` .. ``base_z``, ``base_qw`` .. ``base_qz``
                        (``root_...`` is the same), joints by name, and for the rate a column ``time`` [s]
.npz, retargeted        ``joint_pos`` (or ``dof_pos``) (T, joints); ``base_pos`` (or ``root_pos``, ``root_trans``) (T,
                        3); ``base_quat_wxyz``, or ``root_rot`` (x, y, z, w); ``fps`` (default 30); ``joint_names`` (or
                        ``dof_names``) if they are not the robot's own in order; ``robot``
.npz of mjlab           ``joint_pos``, ``fps``; the base is the first body of ``body_pos_w`` and ``body_quat_w``
.npz of AMASS           ``poses``, ``trans``, ``mocap_framerate``: see :mod:`.motions.smpl`
======================  ==============================================================================================

Errors are one line: the setting with the file, then the element.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from robot_rl_assets.robot import Robot

from robot_rl_envs.motions.motion import Motion
from robot_rl_envs.terms.checks import nearest

CSV_RATE_HZ = 30.0
ROOT = 7
"""Columns of the base in a CSV without a header."""
MAX_BYTES = 512 * 2**20
BASE = ("base_x", "base_y", "base_z", "base_qw", "base_qx", "base_qy", "base_qz")
POSITIONS, ANGLES = ("base_pos", "root_pos", "root_trans", "root_trans_offset"), ("joint_pos", "dof_pos", "dof")
QUATERNIONS = {"base_quat_wxyz": (0, 1, 2, 3), "root_quat_wxyz": (0, 1, 2, 3), "root_rot": (3, 0, 1, 2)}
"""Arrays with the base's orientation -> where w, x, y, z are in them."""
QUATERNIONS |= {"base_rot": (3, 0, 1, 2)}
NAMES = ("joint_names", "dof_names")


def library(robot: Robot) -> dict[str, Path]:
    """Return the motions that come with a robot, by name: the files in the folder ``motions`` next to its model."""
    return {path.stem: path for path in sorted((Path(robot.model).parent / "motions").glob("*.npz"))}


def find_motion(value: str, robot: Robot, setting: str = "motion") -> Path:
    """Return the file of a motion: of the robot's library by its name, any other by its path.

    Raises:
        ValueError: there is none.
    """
    known = library(robot)
    if value in known:
        return known[value]
    path = Path(value).expanduser()
    if path.is_file():
        return path
    if path.suffix or "/" in value:
        raise ValueError(f"{setting}={value!r}: no such file; give a .csv or .npz, or one of {', '.join(known) or '-'}")
    line = f"robot {robot.name!r} lacks a motion of that name, and the file does not exist"
    raise ValueError(f"{setting}={value!r}: {line}; {nearest(value, known)}")


def read_motion(value: str, robot: Robot, setting: str = "motion") -> Motion:
    """Read a motion for a robot, with the robot's joints in its order.

    Args:
        value: the name of a motion of the robot's library, or a file.
        robot: whom it moves.
        setting: the setting that named it, for errors.

    Raises:
        ValueError: the file does not exist, or does not fit the robot; one line with the file and the element.
    """
    path = find_motion(value, robot, setting)
    readers = {".csv": read_csv, ".npz": read_npz}
    try:
        if path.suffix.lower() not in readers:
            raise ValueError(f"suffix {path.suffix!r}: must be .csv or .npz")
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"{path.stat().st_size} bytes: {MAX_BYTES} are the most")
        return readers[path.suffix.lower()](path, robot).for_robot(robot)
    except (OSError, zipfile.BadZipFile, UnicodeDecodeError, EOFError) as error:
        line = " ".join(str(error).split())
        raise ValueError(f"{setting}={value!r}: cannot be read: {line or type(error).__name__}") from None
    except ValueError as error:
        raise ValueError(f"{setting}={value!r}: {error}") from None


def read_csv(path: Path, robot: Robot) -> Motion:
    """Read a CSV with or without a header; see the module."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if row and any(cell.strip() for cell in row)]
    if not rows:
        raise ValueError("rows: the file is empty")
    if _number(rows[0][0]) is not None:
        return _without_header(path.stem, rows, robot)
    return _with_header(path.stem, rows)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _table(rows: list[list[str]], width: int, first: int, why: str) -> np.ndarray:
    """Return rows of numbers (T, width); ``first`` is the line of the first row in the file."""
    for k, row in enumerate(rows):
        if len(row) != width:
            raise ValueError(f"line {first + k}: has {len(row)} columns; must have {width}{why}")
    try:
        return np.array(rows, dtype=np.float64)
    except ValueError:
        for k, row in enumerate(rows):
            for j, cell in enumerate(row):
                if _number(cell) is None:
                    raise ValueError(f"line {first + k}, column {j + 1}: {cell!r} is not a number") from None
        raise


def _without_header(name: str, rows: list[list[str]], robot: Robot) -> Motion:
    joints = tuple(robot.joint_names)
    why = f": {ROOT} of the base and {len(joints)} joints of robot {robot.name!r}"
    table = _table(rows, ROOT + len(joints), 1, why)
    return Motion(
        name=name,
        rate_hz=CSV_RATE_HZ,
        joint_names=joints,
        joint_pos=table[:, ROOT:],
        base_pos=table[:, :3],
        base_quat_wxyz=table[:, [6, 3, 4, 5]],
    )


def _with_header(name: str, rows: list[list[str]]) -> Motion:
    columns = [cell.strip() for cell in rows[0]]
    columns = [f"base_{column.removeprefix('root_')}" if column.startswith("root_") else column for column in columns]
    missing = [column for column in BASE if column not in columns]
    if missing:
        raise ValueError(f"column {missing[0]!r}: is missing in the header; it needs {', '.join(BASE)} and joints")
    table = _table(rows[1:], len(columns), 2, ", as the header has")
    joints = [column for column in columns if column not in (*BASE, "time")]
    at = {column: k for k, column in enumerate(columns)}
    rate = CSV_RATE_HZ
    if "time" in at:
        steps = np.diff(table[:, at["time"]])
        if not len(steps) or steps.min() <= 0 or steps.max() - steps.min() > 0.05 * steps.mean():
            raise ValueError("column 'time': must increase by equal steps [s]")
        rate = float(1.0 / steps.mean())
    return Motion(
        name=name,
        rate_hz=rate,
        joint_names=tuple(joints),
        joint_pos=table[:, [at[joint] for joint in joints]].reshape(len(table), len(joints)),
        base_pos=table[:, [at[column] for column in BASE[:3]]],
        base_quat_wxyz=table[:, [at[column] for column in BASE[3:]]],
    )


def read_npz(path: Path, robot: Robot) -> Motion:
    """Read an npz of a retargeted motion, of mjlab, or of AMASS; see the module."""
    with zipfile.ZipFile(path) as parts:
        if (size := sum(part.file_size for part in parts.infolist())) > MAX_BYTES:
            raise ValueError(f"{size} bytes unpacked: {MAX_BYTES} are the most")
    with np.load(path, allow_pickle=False) as archive:
        arrays: dict[str, Any] = {}
        for name in archive.files:
            try:
                arrays[name] = archive[name]
            except ValueError:
                continue  # an object that only unpickling could read, such as a comment
    if "poses" in arrays and "trans" in arrays:
        from robot_rl_envs.motions.smpl import retarget

        return retarget(path.stem, arrays, robot)
    joint_pos = _floats(arrays, _first(arrays, ANGLES), 2)
    base_pos, quat = _base(arrays)
    names = next((name for name in NAMES if name in arrays), "")
    joints = tuple(str(joint) for joint in arrays[names].ravel()) if names else tuple(robot.joint_names)
    if joint_pos.shape[1] != len(joints):
        owner = f"{names!r} has" if names else f"robot {robot.name!r} has joints, and the file names none"
        raise ValueError(f"joint_pos: has {joint_pos.shape[1]} columns; must have {len(joints)}, as {owner}")
    robot_name = str(arrays["robot"]) if "robot" in arrays and arrays["robot"].ndim == 0 else ""
    rate = _floats(arrays, "fps", None).ravel() if "fps" in arrays else np.array([CSV_RATE_HZ])
    if rate.size != 1:
        raise ValueError(f"fps: has shape {rate.shape}; must be one number")
    return Motion(
        name=path.stem,
        rate_hz=float(rate[0]),
        joint_names=joints,
        joint_pos=joint_pos,
        base_pos=base_pos,
        base_quat_wxyz=quat,
        robot=robot_name,
    )


def _base(arrays: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return position and orientation (w, x, y, z) of the base."""
    if "body_pos_w" in arrays and "body_quat_w" in arrays:
        return _floats(arrays, "body_pos_w", 3)[:, 0], _floats(arrays, "body_quat_w", 3)[:, 0]
    position = _floats(arrays, _first(arrays, POSITIONS), 2)
    name = _first(arrays, tuple(QUATERNIONS))
    quat = _floats(arrays, name, 2)
    if quat.shape[1] != 4:
        raise ValueError(f"{name}: has {quat.shape[1]} columns; must have 4")
    return position, quat[:, QUATERNIONS[name]]


def _first(arrays: Mapping[str, Any], names: tuple[str, ...]) -> str:
    found = next((name for name in names if name in arrays), "")
    if not found:
        there = ", ".join(sorted(arrays)) or "none"
        raise ValueError(f"array {names[0]!r}: is missing (or {', '.join(names[1:])}); the file has {there}")
    return found


def _floats(arrays: Mapping[str, Any], name: str, ndim: int | None) -> np.ndarray:
    value = arrays[name]
    if value.dtype.kind not in "fiu" or (ndim is not None and value.ndim != ndim):
        raise ValueError(f"{name}: is {value.dtype} of shape {value.shape}; must be {ndim or 1}-dimensional numbers")
    return value.astype(np.float64)
