"""Quarantined worlds on the host: a description of the fault, and the file that ``robot-rl inspect`` replays.

The device keeps the last moments of such a world (:mod:`.flight`); here they are collected at the one sync of an
iteration. A file is an .npz without pickled objects: arrays, and one JSON string that names everything.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp

from robot_rl_envs.engine import FAULT_OBSERVATION, FAULT_REWARD, FAULT_STATE, MAX_SPEED, Engine
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.recorder.flight import COMMAND, MARKS, REASONS, REWARD, STEP, WRITTEN, Flight
from robot_rl_envs.task import Task

if TYPE_CHECKING:
    import mujoco


FORMAT = "robot-rl quarantine 1"
RECORDED_S = 0.2
"""Time before the quarantine that is kept [s]."""
MAX_FILES = 20
"""Largest number of files of a run: the hundredth world with the same failure is not informative."""
SLOTS = {"cpu": 4, "cuda": 16}
"""Worlds of a chunk of launches that can be kept between two syncs."""

WORDS = {
    "raised": "the engine raised an error",
    "action": "the action was not finite",
    "overflow": "a buffer of the engine was full",
    "state": "the state was not finite, or absurdly fast",
    "reward": "a reward was not finite",
    "observation": "an observation was not finite",
}


def ring_length(step_dt: float) -> int:
    """Return the rows of a ring: RECORDED_S of control steps, the bad one, and the state that it ended in."""
    return math.ceil(RECORDED_S / step_dt - 1e-9) + 2


def qpos_names(model: mujoco.MjModel) -> list[str]:
    """Name each component of qpos: the joint's name, with x y z qw qx qy qz for a free joint."""
    return _components(model, {0: ("x", "y", "z", "qw", "qx", "qy", "qz"), 1: ("qw", "qx", "qy", "qz")})


def dof_names(model: mujoco.MjModel) -> list[str]:
    """Name each component of qvel: the joint's name, with vx vy vz wx wy wz for a free joint."""
    return _components(model, {0: ("vx", "vy", "vz", "wx", "wy", "wz"), 1: ("wx", "wy", "wz")})


def _components(model: mujoco.MjModel, parts: dict[int, tuple[str, ...]]) -> list[str]:
    names = []
    for j in range(model.njnt):
        joint = model.joint(j).name or f"joint{j}"
        suffixes = parts.get(int(model.jnt_type[j]), ("",))
        names += [f"{joint}.{suffix}" if suffix else joint for suffix in suffixes]
    return names


def patch_model(model: mujoco.MjModel, fields: dict[str, np.ndarray], *, set_const: bool) -> mujoco.MjModel:
    """Copy a model with one world's values of some fields, such as "body_mass" or "opt.gravity".

    With ``set_const`` the constants that derive from them are recomputed, as the environment did.
    """
    import mujoco

    own = copy.copy(model)
    for name, values in fields.items():
        owner, _, field = name.rpartition(".")
        target = getattr(own.opt if owner == "opt" else own, field)
        target[...] = np.asarray(values, dtype=np.float64).reshape(target.shape)
    if set_const:
        mujoco.mj_setConst(own, mujoco.MjData(own))
    return own


def model_bytes(model: mujoco.MjModel) -> np.ndarray:
    """Return a model as the bytes of an MJB file, uint8."""
    import mujoco

    buffer = np.zeros(mujoco.mj_sizeModel(model), dtype=np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer


class Quarantine:
    """The flight recorder of an environment on the host, and the writer of its files.

    Attributes:
        flight: the recorder's arrays, for the kernels.
        directory: folder of the files; None writes none.
        notices: lines for the user, about the first world of each reason; take them with :meth:`pop_notices`.
    """

    def __init__(
        self,
        task: Task,
        scene: Scene,
        engine: Engine,
        *,
        terms: dict[str, list[str]],
        fields: dict[str, tuple[int, ...]],
        starts: list[int],
        seed: int,
        world_offset: int,
    ):
        """Allocate the recorder.

        ``terms`` are the names of the "reward" and "observation" terms in the order of the device's indices, ``fields``
        the shape in one world of each randomized model field, ``starts`` the first worlds of the chunks of launches.
        """
        self._task, self._scene, self._engine, self._terms, self._fields = task, scene, engine, terms, fields
        self._seed, self._world_offset = seed, world_offset
        model, device, num_envs = scene.model, engine.device, engine.num_envs
        substeps = task.sim.decimation if task.actions.actuator.explicit else 1
        self._ctrl = (substeps, model.nu)
        self._qpos = COMMAND + scene.sizes["command"]
        self._bounds = np.cumsum([self._qpos, model.nq, model.nv, scene.sizes["actions"]])
        shape = (ring_length(task.sim.step_dt), int(self._bounds[-1]) + substeps * model.nu)
        chunk = starts[1] if len(starts) > 1 else num_envs
        per_chunk = min(SLOTS["cuda" if device.startswith("cuda") else "cpu"], chunk)
        slots = len(starts) * per_chunk
        size = max(1, sum(math.prod(shape) for shape in self._fields.values()))
        f = self.flight = Flight()
        f.rows = wp.full((shape[0], num_envs, shape[1]), float("nan"), dtype=wp.float32, device=device)
        f.slots = wp.zeros((slots, *shape), dtype=wp.float32, device=device)
        f.marks = wp.zeros((slots, len(MARKS)), dtype=wp.int32, device=device)
        f.models = wp.zeros((slots, size), dtype=wp.float32, device=device)
        f.claimed = wp.zeros(len(starts), dtype=wp.int32, device=device)
        f.needed = engine.data.needed
        f.qpos, f.chunk, f.slots_per_chunk = self._qpos, chunk, per_chunk
        self.directory: Path | None = None
        self._written = 0
        self._notified: set[str] = set()
        self.notices: list[str] = []

    def set_directory(self, path: Path | str | None) -> None:
        """Set the folder of the files; None writes none."""
        self.directory = None if path is None else Path(path)
        self._written = 0 if self.directory is None else len(list(self.directory.glob("*.npz")))
        self.flight.claimed.zero_()

    def forget(self) -> None:
        """Empty the rings: their content did not lead to the state that was just loaded."""
        self.flight.rows.fill_(float("nan"))
        self.flight.claimed.zero_()

    def pop_notices(self) -> list[str]:
        """Return and clear the lines."""
        lines, self.notices = self.notices, []
        return lines

    def collect(self) -> list[Path]:
        """Write the worlds recorded since the last call; return their files. One device sync.

        Raises:
            OSError: a file cannot be written.
        """
        f = self.flight
        if self.directory is None:
            f.claimed.zero_()
            return []
        claimed = f.claimed.numpy()
        if not claimed.any():
            return []
        marks, slots, models = f.marks.numpy(), f.slots.numpy(), f.models.numpy()
        used = [c * f.slots_per_chunk + k for c, n in enumerate(claimed) for k in range(min(n, f.slots_per_chunk))]
        f.claimed.zero_()
        paths = []
        for slot in used:
            mark: dict[str, int] = dict(zip(MARKS, (int(value) for value in marks[slot]), strict=True))
            if self._written >= MAX_FILES:
                self._notify("files", f"{self.directory} holds {MAX_FILES} files: further worlds are only counted")
                break
            paths.append(self._write(mark, slots[slot], models[slot]))
        return paths

    def _write(self, mark: dict[str, int], ring: np.ndarray, fields: np.ndarray) -> Path:
        assert self.directory is not None
        rows = self._unroll(ring, mark)
        arrays, end = self._arrays(rows), rows[-1]
        about = self._about(mark, end)
        values, at = {}, 0
        for name, shape in self._fields.items():
            size = math.prod(shape)
            values[name], at = fields[at : at + size].reshape(shape), at + size
        constants = any(event.info.set_const for event in self._task.events.values())
        arrays["model"] = model_bytes(patch_model(self._scene.model, values, set_const=constants))
        about["model_sha256"] = hashlib.sha256(arrays["model"].tobytes()).hexdigest()
        name = f"{about['reason']}-world{about['world']}-step{mark['counter']}.npz"
        path = self.directory / name
        self.directory.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{name}.tmp")
        with temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, about=np.array(json.dumps(about)), **arrays)
        os.replace(temporary, path)
        self._written += 1
        self._notify(about["reason"], f"quarantined world {about['world']}: {about['why'][0]}; robot-rl inspect {path}")
        return path

    def _notify(self, key: str, line: str) -> None:
        if key not in self._notified:
            self._notified.add(key)
            self.notices.append(line)

    def _unroll(self, ring: np.ndarray, mark: dict[str, int]) -> np.ndarray:
        """Return the rows of the running episode in order; the last is the state that the bad step ended in."""
        length = len(ring)
        kept = []
        for age in range(length):
            row = ring[(mark["counter"] - age) % length]
            if row[STEP] != mark["step"] - age:
                break
            kept.append(row)
        return np.array(kept[::-1]) if kept else ring[[mark["counter"] % length]]

    def _arrays(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Split the rows into named arrays: states of T + 1 times, and the actions of the T steps between."""
        steps, bounds = len(rows) - 1, self._bounds
        ctrl = rows[:steps, bounds[3] :].reshape(steps, *self._ctrl)
        return {
            "step": rows[:, STEP].astype(np.int32),
            "written": rows[:, WRITTEN].astype(np.int32),
            "command": rows[:, COMMAND : bounds[0]],
            "qpos": rows[:, bounds[0] : bounds[1]],
            "qvel": rows[:, bounds[1] : bounds[2]],
            "action": rows[:steps, bounds[2] : bounds[3]],
            "ctrl": ctrl,
            "reward": rows[1:, REWARD],
        }

    def _about(self, mark: dict[str, int], end: np.ndarray) -> dict[str, Any]:
        """Return the JSON part of a file."""
        import mujoco

        task, scene, engine = self._task, self._scene, self._engine
        faults = mark["faults"]
        reasons = [name for name, bit in REASONS.items() if faults & bit]
        where = self._where(mark, end)
        words = [WORDS[name] for name in reasons]
        why = [
            f"{word} ({'; '.join(where[name])})" if name in where else word
            for name, word in zip(reasons, words, strict=True)
        ]
        return {
            "format": FORMAT,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "task": task.name,
            "robot": task.robot.name,
            "engine": engine.name,
            "mujoco": mujoco.__version__,
            "seed": self._seed,
            "world": mark["world"] + self._world_offset,
            "counter": mark["counter"],
            "step": mark["step"],
            "time_s": mark["step"] * task.sim.step_dt,
            "timestep": task.sim.timestep,
            "decimation": task.sim.decimation,
            "actuator": type(task.actions.actuator).__name__,
            "speed_targets": [joint.name for joint in scene.robot.joints if joint.by_speed],
            "reason": reasons[0],
            "reasons": reasons,
            "why": why,
            "where": where,
            "qpos_names": qpos_names(scene.model),
            "dof_names": dof_names(scene.model),
            "action_names": scene.entity.actuated,
            "joint_qpos": scene.entity.joint_qpos.tolist(),
            "joint_dof": scene.entity.joint_dof.tolist(),
            "joint_names": [joint.name for joint in scene.robot.joints],
            "floating": bool(scene.entity.base),
        }

    def _where(self, mark: dict[str, int], end: np.ndarray) -> dict[str, list[str]]:
        """Return the joints, actions, terms or buffers that failed first, by reason."""
        where = {}
        model, faults = self._scene.model, mark["faults"]
        parts = np.split(end, self._bounds)[1:]
        if faults & FAULT_STATE:
            where["state"] = _bad("position", qpos_names(model), parts[0])
            where["state"] += _bad("velocity", dof_names(model), parts[1], limit=MAX_SPEED)
        where["action"] = _bad("action", self._scene.entity.actuated, parts[2])
        needed = (mark["rows_needed"], mark["contacts_needed"])
        engine = [self._engine.explain(mark["world"], mark["overflow"], needed)]
        where |= {name: engine for name in ("raised", "overflow") if faults & REASONS[name]}
        for kind, bit in (("reward", FAULT_REWARD), ("observation", FAULT_OBSERVATION)):
            if faults & bit and mark["term"] >= 0:
                where[kind] = [f"term {self._terms[kind][mark['term']]}"]
        return {name: found for name, found in where.items() if found and faults & REASONS[name]}


def _bad(what: str, names: list[str], values: np.ndarray, limit: float = math.inf) -> list[str]:
    """Describe the components that are not finite or beyond a limit; one phrase if it is all of them."""
    found = [k for k, value in enumerate(values) if not math.isfinite(value) or abs(value) > limit]
    if len(found) == len(values) > 1:
        return [f"every {what}, the first is {values[0]:g}"]
    rest = [f"and {len(found) - 4} more"] if len(found) > 4 else []
    return [f"{what} of {names[k]} is {values[k]:g}" for k in found[:4]] + rest
