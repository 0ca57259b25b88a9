"""The scene of a team: all its robots and the task's objects in one compiled model, and the place of each robot's part.

Each robot also has its own scene (:class:`.entity.scene.Scene`): itself and the objects, as if it were the only
one. Terms and kernels work on rows in that scene's layout; :class:`RowMap` says which elements of the team's model they
are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import mujoco
import numpy as np

from robot_rl_envs.agents import Crew
from robot_rl_envs.entity.objects import SceneElements
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.objects import CONTACT_SIZE, OTHERS, ROBOT, Contact, add_contact

FIRST_BIT = 8
"""Contact bit of a team's first robot; the ones before are the models' own."""

_KINDS = ("body", "geom", "joint", "site", "actuator", "sensor", "qpos", "dof", "sensordata", "history")
"""Kinds of elements that a row shares with the team's model."""
_ROWS = {
    "body": "body",
    "geom": "geom",
    "jnt": "joint",
    "site": "site",
    "actuator": "actuator",
    "sensor": "sensor",
    "dof": "dof",
    "qpos": "qpos",
}
"""Beginning of a model field's name -> the kind of element that it has a row for."""
_WIDTHS = {int(mujoco.mjtJoint.mjJNT_FREE): (7, 6), int(mujoco.mjtJoint.mjJNT_BALL): (4, 3)}


@dataclass(slots=True)
class RowMap:
    """Where the elements of a robot's own scene are in the team's model.

    Attributes:
        at: kind of element -> (A, n) index in the team's model, for each of the A robots of a crew.
        own: kind of element -> (n,) bool: the robot's own, not an object's or the ground's.
        more: further places of sensor values, which are added: (robot, value, place) each.
    """

    at: dict[str, np.ndarray]
    own: dict[str, np.ndarray]
    more: list[tuple[int, int, int]]

    def of_field(self, field: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Return ``at`` and ``own`` of the rows of a model field; None for an option, which all robots share.

        Raises:
            ValueError: the field lacks a row for one of a robot's elements.
        """
        if field.startswith("opt."):
            return None
        kind = _ROWS.get(field.partition("_")[0])
        if kind is None:
            raise ValueError(f"model_fields={field!r}: cannot be drawn for each robot of a team; leave its event out")
        return self.at[kind], self.own[kind]


class TeamScene:
    """The robots of a team and the task's objects on one floor, compiled.

    Attributes:
        model: the model to simulate.
        names: the robots in order.
        crews: the scene of each crew's robots, in the order of the crews.
        maps: their places in the model, in the same order.
        sim: physics options.
        things: the objects.
    """

    mujoco_fields: tuple[str, ...] = ()

    def __init__(self, crews: Sequence[Scene]):
        self.crews = list(crews)
        first = self.crews[0]
        assert first.crew is not None
        self.names, self.sim, self.objects = first.crew.names, first.sim, first.objects
        owners = [(scene, k, agent) for scene in self.crews for k, agent in enumerate(_crew(scene).agents)]
        self._members = [(scene, k) for scene, k, _ in sorted(owners, key=lambda owner: owner[2])]
        self.model = self._compile(visual=False)
        self.model.geom_group[self._is_ground()] = first.model.geom_group[first.model.geom("floor").id]
        self.maps = [self._map(scene) for scene in self.crews]
        self.elements = SceneElements(self.model, list(self.objects), {}, [])

    @property
    def robot_bodies(self) -> list[int]:
        """The topmost body of each robot."""
        return [int(where.at["body"][k, 1]) for scene, k in self._members for where in [self.maps[self._crew(scene)]]]

    def _crew(self, scene: Scene) -> int:
        return next(n for n, own in enumerate(self.crews) if own is scene)

    @property
    def base(self) -> bool:
        """Whether a robot has a floating base."""
        return any(scene.base for scene in self.crews)

    @cached_property
    def render_model(self) -> mujoco.MjModel:
        """The same scene with visual geoms, for images; its qpos is the simulated model's."""
        return self._compile(visual=True)

    def _is_ground(self) -> np.ndarray:
        fixed = [self.model.body(name).id for name, thing in self.objects.items() if thing.fixed]
        static = (self.model.body_weldid == 0) & np.isin(self.model.body_rootid, [0, *fixed])
        return static[self.model.geom_bodyid]

    def _compile(self, *, visual: bool) -> mujoco.MjModel:
        first = self.crews[0]
        spec = mujoco.MjSpec()
        tops = {}
        for agent, (scene, k) in enumerate(self._members):
            own, name = scene.robot_spec(visual=visual), self.names[agent]
            scene.set_options(own)
            if agent == 0:
                _copy_options(own, spec)
            scene.equip(own)
            tops[name] = f"{name}/{scene.top_body(own)}"
            for geom in own.geoms:
                if geom.contype or geom.conaffinity:
                    geom.contype |= 1 << (FIRST_BIT + agent)
                    geom.conaffinity |= ((1 << len(self.names)) - 1 & ~(1 << agent)) << FIRST_BIT
            frame = spec.worldbody.add_frame()
            if not scene.base:
                crew, yaw = _crew(scene), _crew(scene).yaw[k]
                frame.pos, frame.quat = list(crew.pos[k]), [math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)]
            spec.attach(own, prefix=f"{name}/", frame=frame)
        first.furnish(spec, visual=visual, textured=visual)
        for agent, (scene, _) in enumerate(self._members):
            self._add_contacts(spec, scene, self.names[agent], tops)
        first.set_options(spec)
        return first.compiled(spec)

    def _add_contacts(self, spec: mujoco.MjSpec, scene: Scene, name: str, tops: dict[str, str]) -> None:
        """Add the contact sensors of one robot; one that names the others is a sensor for each of them."""
        roots = {ROBOT: tops[name]} | {thing: thing for thing in self.objects}
        roots |= {other: top for other, top in tops.items() if other != name}
        parts = {element.name for element in (*spec.bodies, *spec.geoms)}
        for contact, sensor in scene.contacts.items():
            ends = [
                part if f"{name}/{part}" not in parts else f"{name}/{part}" for part in (sensor.first, sensor.second)
            ]
            if OTHERS not in ends:
                add_contact(spec, f"{name}/{contact}", Contact(first=ends[0], second=ends[1]), roots)
                continue
            for other in self.names:
                if other != name:
                    pair = [other if end == OTHERS else end for end in ends]
                    add_contact(spec, f"{name}/{contact}/{other}", Contact(first=pair[0], second=pair[1]), roots)

    # -- places of elements ------------------------------------------------------------------------------------------

    def _map(self, scene: Scene) -> RowMap:
        crew, row = _crew(scene), scene.model
        found = [self._places(scene, agent) for agent in crew.agents]
        more = [
            (k, int(row.sensor_adr[row.sensor(f"contact/{contact}").id]) + n, place + n)
            for k, agent in enumerate(crew.agents)
            for contact, sensor in scene.contacts.items()
            for place in self._others(scene, agent, contact, sensor)[1:]
            for n in range(CONTACT_SIZE)
        ]
        at = {kind: np.array([places[kind] for places in found], dtype=np.int32) for kind in _KINDS}
        own = {kind: np.zeros(at[kind].shape[1], dtype=bool) for kind in _KINDS}
        own["body"][1 : row.nbody - self._object_bodies()] = True
        own["geom"][:] = own["body"][row.geom_bodyid]
        own["joint"][:] = own["body"][row.jnt_bodyid]
        own["site"][:] = own["body"][row.site_bodyid]
        own["dof"][:] = own["joint"][row.dof_jntid]
        own["qpos"][:] = np.repeat(own["joint"], _sizes(row, 0))
        for kind in ("actuator", "sensor", "sensordata", "history"):
            own[kind][:] = True
        return RowMap(at, own, more)

    def _object_bodies(self) -> int:
        model = self.crews[0].model
        roots = [model.body(name).id for name in self.objects]
        return int(np.isin(model.body_rootid, roots).sum())

    def _others(self, scene: Scene, agent: int, contact: str, sensor: Contact) -> list[int]:
        """Return the places at which one robot's contact sensor begins; several if it names the others."""
        name = self.names[agent]
        if OTHERS not in (sensor.first, sensor.second):
            found = [f"contact/{name}/{contact}"]
        else:
            found = [f"contact/{name}/{contact}/{other}" for other in self.names if other != name]
        return [int(self.model.sensor_adr[self.model.sensor(sensor_name).id]) for sensor_name in found]

    def _places(self, scene: Scene, agent: int) -> dict[str, list[int]]:
        """Return the index in the team's model of every element of one robot's scene, by kind."""
        row, model, before = scene.model, self.model, self._members[:agent]
        shared = self._object_bodies()
        robots = [other.model.nbody - 1 - shared for other, _ in before]
        first, last = 1 + sum(robots), model.nbody - shared
        bodies = [0, *range(first, first + row.nbody - 1 - shared), *range(last, model.nbody)]
        places: dict[str, list[int]] = {"body": bodies}
        for kind, owner in (("geom", "geom_bodyid"), ("joint", "jnt_bodyid"), ("site", "site_bodyid")):
            groups = [np.flatnonzero(getattr(model, owner) == body).tolist() for body in bodies]
            counts = np.bincount(getattr(row, owner), minlength=row.nbody)
            if kind == "site":  # Those on the world's body are of all robots, in their order.
                ahead = sum(int((other.model.site_bodyid == 0).sum()) for other, _ in before)
                groups[0] = groups[0][ahead : ahead + int(counts[0])]
            if [len(group) for group in groups] != counts.tolist():
                line = f"robot {scene.robot.name!r}: {scene.robot.model} has {kind}s on the world's body"
                raise ValueError(f"{line}; give them their own body")
            places[kind] = [element for group in groups for element in group]
        joints = places["joint"]
        for n, (kind, address) in enumerate((("qpos", model.jnt_qposadr), ("dof", model.jnt_dofadr))):
            widths = _sizes(row, n)
            places[kind] = [int(address[j]) + k for j, w in zip(joints, widths, strict=True) for k in range(w)]
        name = self.names[agent]
        places["actuator"] = [int(model.actuator(f"{name}/{row.actuator(k).name}").id) for k in range(row.nu)]
        ahead = sum(other.model.nsensor - len(other.contacts) for other, _ in before)
        own = row.nsensor - len(scene.contacts)
        places["sensor"] = list(range(ahead, ahead + own))
        data = [int(model.sensor_adr[s]) + k for s in places["sensor"] for k in range(model.sensor_dim[s])]
        for contact, sensor in scene.contacts.items():
            place = self._others(scene, agent, contact, sensor)[0]
            places["sensor"].append(int(np.flatnonzero(model.sensor_adr == place)[0]))
            data += range(place, place + CONTACT_SIZE)
        places["sensordata"] = data
        places["history"] = self._history_places(row, places)
        return places

    def _history_places(self, row: mujoco.MjModel, places: dict[str, list[int]]) -> list[int]:
        """Return where each value of a row's delay buffers is in the team's."""
        starts = {}
        for kind in ("actuator", "sensor"):
            mine, theirs = getattr(row, f"{kind}_historyadr"), getattr(self.model, f"{kind}_historyadr")
            starts |= {int(mine[k]): int(theirs[place]) for k, place in enumerate(places[kind]) if mine[k] >= 0}
        bounds = [*sorted(starts), row.nhistory]
        return [starts[a] + k for a, b in pairwise(bounds) for k in range(b - a)]

    def initial_history(self) -> np.ndarray:
        """Return (nhistory,) the delay buffers at an episode's start."""
        found = np.zeros(self.model.nhistory)
        for scene, where in zip(self.crews, self.maps, strict=True):
            for places in where.at["history"]:
                found[places] = scene.initial_history()
        return found


def _crew(scene: Scene) -> Crew:
    assert scene.crew is not None
    return scene.crew


def _sizes(model: mujoco.MjModel, n: int) -> list[int]:
    """Return the number of positions (``n`` 0) or velocities (1) of each joint."""
    return [_WIDTHS.get(int(kind), (1, 1))[n] for kind in model.jnt_type]


def _copy_options(source: mujoco.MjSpec, target: mujoco.MjSpec) -> None:
    """Copy the physics options of a robot's file, which attaching leaves behind."""
    for name in dir(source.option):
        if not name.startswith("_") and not callable(value := getattr(source.option, name)):
            current: Any = getattr(target.option, name)
            if isinstance(current, np.ndarray):
                current[:] = value
            else:
                setattr(target.option, name, value)
