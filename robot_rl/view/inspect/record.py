"""Reading of the file of a quarantined world: arrays and one JSON string, nothing that is executed."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.errors import UserError

if TYPE_CHECKING:
    import mujoco

FORMAT = "robot-rl quarantine 1"
MAX_SPEED = 1.0e4
"""Generalized velocity from which the environment quarantines a world [m/s, rad/s]."""

MAX_BYTES = 2**30
"""Maximum size of an unpacked file; that of a Go2 on rough ground has some 30 million bytes."""
MAX_SUBSTEPS = 1000
DAMAGE = (
    *(OSError, ValueError, KeyError, EOFError, NotImplementedError, RecursionError, MemoryError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)
"""Errors of NumPy, zip and JSON for invalid bytes."""

ARRAYS = ("step", "written", "command", "qpos", "qvel", "action", "ctrl", "reward", "model")
NAMES = ("qpos_names", "dof_names", "action_names", "joint_names")
TEXTS = ("task", "robot", "engine", "mujoco", "reason", "actuator", "created")
NUMBERS = ("world", "seed", "counter", "time_s", "timestep", "decimation")


@dataclass(kw_only=True, slots=True)
class Record:
    """The last control steps of one world: T steps between T + 1 states, of which the last is the bad one.

    Attributes:
        path: the file.
        about: the description; see docs/quarantine.md.
        step: (T + 1,) control steps since the reset.
        written: (T + 1,) nonzero if an event changed the state after the previous step.
        command: (T + 1, width).
        qpos, qvel: (T + 1, nq), (T + 1, nv).
        action: (T, na).
        ctrl: (T, S, nu); S is 1, or the number of substeps if each has its own.
        reward: (T,) of each step; 0 in the bad one.
        model: bytes of an MJB file.
    """

    path: Path
    about: dict[str, Any]
    step: np.ndarray
    written: np.ndarray
    command: np.ndarray
    qpos: np.ndarray
    qvel: np.ndarray
    action: np.ndarray
    ctrl: np.ndarray
    reward: np.ndarray
    model: bytes

    @property
    def step_dt(self) -> float:
        """Control period [s]."""
        return self.about["timestep"] * self.about["decimation"]

    @property
    def times(self) -> np.ndarray:
        """(T + 1,) time of each state relative to the last one [s]."""
        return (np.arange(len(self.step)) - len(self.step) + 1) * self.step_dt

    def suspects(self, words: str = "") -> set[str]:
        """Return the names of joints and actions that the reasons, or other words, mention."""
        text = " ".join([*self.about["why"], words])
        names = [*self.about["joint_names"], *self.about["action_names"]]
        return {name for name in names if f" {name} " in f" {text.replace(';', ' ').replace(')', ' ')} "}


def read_record(path: Path | str) -> Record:
    """Read a file.

    Raises:
        UserError: the file does not exist, is not a file of a quarantined world, or is damaged.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; a run keeps them in runs/<task>/<run id>/quarantine/")
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile) or "about" not in archive.files:
            raise UserError(f"{path}: no file of a quarantined world")
        with archive:
            members = archive.zip.infolist() if archive.zip else []
            if sum(member.file_size for member in members) > MAX_BYTES:
                raise UserError(f"{path}: damaged, unpacked it has more than {MAX_BYTES} bytes")
            about = json.loads(str(archive["about"]))
            arrays = {name: _array(archive, name) for name in ARRAYS if name in archive.files}
    except UserError:
        raise
    except DAMAGE as error:
        # NumPy takes any other file for a pickle and suggests to load it, which nobody should do.
        why = "no zip archive" if "pickle" in str(error) else _first_line(error)
        raise UserError(f"{path}: damaged, or no file of a quarantined world ({why})") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        version = about.get("format") if isinstance(about, dict) else None
        raise UserError(f"{path}: format {version!r}, this robot-rl reads {FORMAT!r}")
    _check(path, about, arrays)
    model = arrays.pop("model").tobytes()
    if hashlib.sha256(model).hexdigest() != about.get("model_sha256"):
        raise UserError(f"{path}: damaged, the model in it is not the one that was written")
    return Record(path=path, about=about, model=model, **arrays)


def load_model(record: Record) -> mujoco.MjModel | str:
    """Return the world's model, or the reason why it cannot be loaded."""
    import mujoco

    made = record.about["mujoco"]
    if made != mujoco.__version__:
        return f"it was made by MuJoCo {made}, here is {mujoco.__version__}, and only the same version can read a model"
    try:
        model = mujoco.MjModel.from_binary_path("world.mjb", {"world.mjb": record.model})
    except (ValueError, RuntimeError) as error:
        return f"MuJoCo cannot read the model ({_first_line(error)})"
    if (model.nq, model.nv, model.nu) != (record.qpos.shape[1], record.qvel.shape[1], record.ctrl.shape[2]):
        return "the model in it has other sizes than the states"
    return model


def _array(archive: Any, name: str) -> np.ndarray:
    array = archive[name]
    if not isinstance(array, np.ndarray):  # NumPy returns other members as bytes.
        raise ValueError(f"{name} is not an array")
    return array


def _check(path: Path, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Raise a UserError if the parts of the file do not fit together."""
    missing = [name for name in ARRAYS if name not in arrays]
    missing += [name for name in (*NAMES, *TEXTS, *NUMBERS, "why") if name not in about]
    if missing:
        raise UserError(f"{path}: damaged, it lacks {', '.join(missing)}")
    texts = all(_text(about[name]) for name in TEXTS)
    numbers = all(_number(about[name]) for name in NUMBERS) and about["timestep"] > 0
    numbers = numbers and about["decimation"] in range(1, MAX_SUBSTEPS + 1)
    lists = all(isinstance(about[name], list) and all(_text(n) for n in about[name]) for name in (*NAMES, "why"))
    if not (texts and numbers and lists):
        raise UserError(f"{path}: damaged, a value of its description has the wrong type")
    steps = len(arrays["action"]) if arrays["action"].ndim == 2 else 0
    ndim = {"step": 1, "written": 1, "reward": 1, "model": 1, "ctrl": 3}
    shaped = all(array.ndim == ndim.get(name, 2) and array.dtype.kind in "iuf" for name, array in arrays.items())
    lengths = {"ctrl": steps, "reward": steps, "action": steps, "model": arrays["model"].size}
    fits = shaped and all(len(array) == lengths.get(name, steps + 1) for name, array in arrays.items())
    widths = {"qpos": "qpos_names", "qvel": "dof_names", "action": "action_names"}
    fits = fits and all(arrays[name].shape[1] == len(about[names]) for name, names in widths.items())
    if steps < 1 or not fits or arrays["ctrl"].shape[1] not in (1, about["decimation"]):
        raise UserError(f"{path}: damaged, its arrays do not fit together")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e15 < value < 1e15


def _text(value: Any) -> bool:
    """Return whether a value is a text that is not empty and can be written: without surrogates."""
    return isinstance(value, str) and value != "" and not re.search("[\ud800-\udfff]", value)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:120]
