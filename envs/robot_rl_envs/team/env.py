"""The environment of a team: worlds with several robots, a row for each robot of each world.

Row ``w T + a`` is robot ``a`` of T in world ``w``, for observations, actions, rewards and ends alike, so that any
learner of one robot can train them; the facts of the team are in the group "team" for the critic, and in
``extras["valid"]``: false for robots that take no part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import warp as wp
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from robot_rl_envs import buffers
from robot_rl_envs.agents import Crew
from robot_rl_envs.engines import make_engine
from robot_rl_envs.entity.crews import team_fields
from robot_rl_envs.entity.scene import Scene, make_scene
from robot_rl_envs.env import Env
from robot_rl_envs.headers import start_warp
from robot_rl_envs.launch import BLOCK_THREADS
from robot_rl_envs.task import Task
from robot_rl_envs.team.rows import RowEngine, make_row_engine
from robot_rl_envs.team.scene import TeamScene
from robot_rl_envs.team.termination import WorldCounts, count_agents, end_episodes, make_rows
from robot_rl_envs.team.views import SHOWN, TEAM, merge_flags, merge_rows, see, seen_width, show, split_rows
from robot_rl_envs.terms.checks import nearest

_FLAGS = ("terminated", "time_out", "quarantined", "acted", "restart")


class CrewEnv(Env):
    """The rows of one role; the team's environment steps it."""

    engine: RowEngine

    def _start(self) -> None:
        """Do nothing: the team's environment begins all crews together."""


class TeamEnv(VecEnv):
    """``num_worlds`` worlds of a task with several robots, for any learner that takes ``rsl_rl.env.VecEnv``.

    Attributes:
        num_worlds: worlds N.
        num_envs: rows N T.
        agents: names of the T robots.
        crews: the rows of each role, by its name.
        num_actions: width of an action: the widest role's.
        max_episode_length, device, step_dt, seed, cfg: as of :class:`robot_rl_envs.env.Env`.
        scene: the scene of all robots.
    """

    cfg: Task
    device: str

    def __init__(
        self,
        task: Task,
        *,
        num_envs: int,
        device: str = "cpu",
        engine: str = "auto",
        seed: int = 0,
        num_threads: int = 0,
        world_offset: int = 0,
    ):
        start_warp()
        self.cfg, self.num_worlds, self.device, self.seed = task, num_envs, device, seed
        self.agents, self.step_dt = tuple(task.robots), task.sim.step_dt
        self.num_envs = num_envs * len(self.agents)
        self.max_episode_length = round(task.episode_length_s / self.step_dt)
        roles = {crew.role: (crew, task.of_role(crew)) for crew in task.crews}
        scenes = {role: make_scene(own, crew) for role, (crew, own) in roles.items()}
        self.scene = TeamScene(list(scenes.values()))
        whole: Any = self.scene  # It has all that an engine reads of a scene.
        self.engine: Any = make_engine(engine, whole, num_envs=num_envs, device=device, num_threads=num_threads)
        self._dirty = wp.zeros(num_envs, dtype=wp.int32, device=device)
        first = next(iter(roles.values()))[0]
        shared = {
            name: wp.zeros(shape, dtype=dtype, device=device)
            for name, (dtype, _, shape) in team_fields(first, num_envs).items()
        }
        self._shared = shared
        self.crews: dict[str, CrewEnv] = {}
        for (role, (crew, own)), where in zip(roles.items(), self.scene.maps, strict=True):
            self.crews[role] = CrewEnv(
                own,
                num_envs=num_envs * crew.size,
                device=device,
                engine=make_row_engine(self.engine, where, self._dirty, shared),
                seed=seed,
                world_offset=world_offset * crew.size,
                scene=scenes[role],
            )
        self._rows = [make_rows(crew._arrays) for crew in self._crews]
        self.num_actions = max(crew.num_actions for crew in self._crews)
        self._placed = [
            crew._arrays[name].numpy()
            for crew in self._crews
            for name in ("restart", "joining")
            if not self.engine.capturable
        ]
        self._end_episodes = self._record_termination(task)
        self._build_views()
        self._graph: Any = None
        self._start()

    @property
    def _crews(self) -> list[CrewEnv]:
        return list(self.crews.values())

    @property
    def roles(self) -> tuple[str, ...]:
        """The role of each robot."""
        return tuple(agent.group for agent in self.cfg.robots.values())

    @property
    def role_sizes(self) -> dict[str, tuple[int, int]]:
        """Components of a robot's group "actor" and of its action, by role."""
        return {role: (crew._out["actor"].shape[1], crew.num_actions) for role, crew in self.crews.items()}

    @property
    def team_size(self) -> int:
        """Number T of robots in a world."""
        return len(self.agents)

    @property
    def is_alike(self) -> bool:
        """Whether all robots have one role."""
        return len(self.crews) == 1

    def _launch(self, kernel: Any, dim: int, inputs: list[Any], outputs: list[Any]) -> Any:
        return wp.launch(
            kernel,
            dim=dim,
            inputs=inputs,
            outputs=outputs,
            device=self.device,
            record_cmd=True,
            block_dim=BLOCK_THREADS,
        )

    def _record_termination(self, task: Task) -> list[Any]:
        n, known = self.num_worlds, WorldCounts()
        for name in ("fault", "ends", "left", "count", "age"):
            setattr(known, name, wp.zeros(n, dtype=wp.int32, device=self.device))
        known.reward = wp.zeros(n, dtype=wp.float32, device=self.device)
        floors = int(task.only_positive_rewards)
        counts = [self._launch(count_agents, n, [rows, k, known], []) for k, rows in enumerate(self._rows)]
        active = self._shared["team_active"]
        settles = [
            self._launch(end_episodes, n, [rows, task.team.least, floors, known], [active]) for rows in self._rows
        ]
        return counts + settles

    # -- results -----------------------------------------------------------------------------------------------------

    def _build_views(self) -> None:
        """Allocate the rows of all robots, and record the launches that fill them."""
        crews, rows, device = self._crews, self.num_envs, self.device
        groups = [group for group in crews[0]._out if all(group in crew._out for crew in crews)]
        widths = {group: max(crew._out[group].shape[1] for crew in crews) for group in groups}

        def zeros(width: int) -> wp.array:
            return wp.zeros((rows, width), dtype=wp.float32, device=device)

        self._merges: list[Any] = []
        self._splits: list[Any] = []
        self._seeing: list[Any] = []
        self._actions = crews[0]._actions
        if self.is_alike:
            self._out, self._final, state = dict(crews[0]._out), dict(crews[0]._final), crews[0].state
        else:
            self._out, self._final = ({group: zeros(width) for group, width in widths.items()} for _ in range(2))
            state = self._merge(groups)
        self._state = state
        self._see(zeros)
        self._actions_torch = wp.to_torch(self._actions)
        self._results = buffers.StepResults(self._out, self._final, 0, device, is_team=True)

    def _merge(self, groups: list[str]) -> Any:
        """Record how the rows of several crews become those of all robots; return their common flags."""
        count = len(self.agents)
        self._actions = wp.zeros((self.num_envs, self.num_actions), dtype=wp.float32, device=self.device)
        flags = {name: wp.zeros(self.num_envs, dtype=wp.int32, device=self.device) for name in _FLAGS}
        reward = wp.zeros(self.num_envs, dtype=wp.float32, device=self.device)
        for crew, rows in zip(self._crews, self._rows, strict=True):
            n = crew.num_envs
            for group in groups:
                for mine, all_rows in ((crew._out, self._out), (crew._final, self._final)):
                    self._merges.append(
                        self._launch(merge_rows, n, [mine[group], rows.agents, count], [all_rows[group]])
                    )
            self._merges.append(self._launch(merge_flags, n, [rows, count], [reward, *flags.values()]))
            self._splits.append(self._launch(split_rows, n, [self._actions, rows.agents, count], [crew._actions]))
        return SimpleNamespace(reward=wp.to_torch(reward), **{name: wp.to_torch(flag) for name, flag in flags.items()})

    def _see(self, zeros: Any) -> None:
        """Record the launches that fill the group "team", if the robots show something."""
        crews = self._crews
        group = SHOWN if all(SHOWN in crew._out for crew in crews) else "critic"
        if not all(group in crew._out for crew in crews):
            return
        count, width = len(self.agents), max(crew._out[group].shape[1] for crew in crews)
        shape = (self.num_worlds, count, width)
        for final in (0, 1):
            shown = wp.zeros(shape, dtype=wp.float32, device=self.device)
            present = wp.zeros(shape[:2], dtype=wp.float32, device=self.device)
            target = self._final if final else self._out
            target[TEAM] = zeros(seen_width(width, count))
            for crew, rows in zip(crews, self._rows, strict=True):
                inputs = [crew._out[group], crew._final[group], rows, final]
                self._seeing.append(self._launch(show, crew.num_envs, inputs, [shown, present]))
            if self.is_alike:
                inputs = [shown, present, self._rows[0], final]
                self._seeing.append(self._launch(see, self.num_envs, inputs, [target[TEAM]]))
                continue
            for crew, rows in zip(crews, self._rows, strict=True):
                own = wp.zeros((crew.num_envs, target[TEAM].shape[1]), dtype=wp.float32, device=self.device)
                self._seeing.append(self._launch(see, crew.num_envs, [shown, present, rows, final], [own]))
                self._seeing.append(self._launch(merge_rows, crew.num_envs, [own, rows.agents, count], [target[TEAM]]))

    # -- stepping ----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        for crew in self._crews:
            crew.begin()
        self.reset()

    def reset(self) -> TensorDict:
        """Reset every world; return the first observations."""
        for crew in self._crews:
            state = crew.state
            for name, value in (("terminated", 1), ("restart", 1), ("time_out", 0), ("joining", 0), ("acted", 0)):
                getattr(state, name).fill_(value)
            state.counter.add_(1)
            crew._observe_first.launch()
        self._place()
        for crew in self._crews:
            crew.state.terminated.zero_()
        self._show()
        self._results.restart()
        self._results.fill(self._state)
        return self.get_observations()

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Apply ``actions`` (N T, num_actions) for one control period; the results are those of :meth:`.env.Env.step`.

        A role with fewer actions takes the first ones of its rows. ``extras["acted"]`` (N T,) is False if a robot
        took no part in the step, which is not valid then, and ``extras["ended"]`` True if its world's episode ended.
        """
        if actions.shape != self._actions_torch.shape:
            raise ValueError(f"actions have shape {tuple(actions.shape)}, wants {tuple(self._actions_torch.shape)}")
        self._actions_torch.copy_(actions)
        if self._graph is not None:
            wp.capture_launch(self._graph)
        else:
            self._advance()
            if self.engine.capturable:
                self._capture()
        return self._results.fill(self._state)

    def _capture(self) -> None:
        with wp.ScopedDevice(self.device), wp.ScopedCapture(force_module_load=False) as capture:
            self._advance()
        self._graph = capture.graph

    def _advance(self) -> None:
        """Queue every launch of a step: one CUDA graph if the engine allows it."""
        crews = self._crews
        self._dirty.zero_()
        self.engine.data.overflow.zero_()
        for command in self._splits:
            command.launch()
        for crew in crews:
            crew._act.launch()
        self._simulate()
        for crew in crews:
            if crew._scan:
                crew._scan.look()
            crew._sense.launch()
        for crew in crews:
            crew._after.launch()
        for command in self._end_episodes:
            command.launch()
        for crew in crews:
            crew._observe.launch()
        self._place()
        self._show()

    def _simulate(self) -> None:
        crews = self._crews
        driven = [crew for crew in crews if crew._actuate]
        if not driven:
            self._step_worlds(self.cfg.sim.decimation)
            return
        for substep in range(self.cfg.sim.decimation):
            for crew in driven:
                crew._actuate[substep].launch()
            self._step_worlds(1)

    def _step_worlds(self, substeps: int) -> None:
        for crew in self._crews:
            crew.engine.control()
        self.engine.step(substeps)
        for crew in self._crews:
            crew.engine.gather()

    def _place(self) -> None:
        """Put the robots that a reset placed into the worlds, show them to the others, and observe them there."""
        crews = self._crews
        for crew in crews:
            crew.engine.collect(crew._arrays["dirty"])
        if self.engine.capturable or any(map(np.count_nonzero, self._placed)):
            for crew in crews:
                crew._share.launch()
            for crew in crews:
                if crew._scan:
                    crew._scan.look_again(crew._arrays["dirty"])
                crew._observe_reset.launch()
        self.engine.write_back(self._dirty)

    def _show(self) -> None:
        """Fill the rows of all robots, and their critics' view of the others."""
        for command in (*self._merges, *self._seeing):
            command.launch()

    def get_observations(self) -> TensorDict:
        """The current observation groups, each (N T, width)."""
        return self._results.current

    # -- commands, parameters, metrics -------------------------------------------------------------------------------

    @property
    def why_not_recorded(self) -> str:
        """Why steps cannot be recorded in a CUDA graph of the learner, in words."""
        return "a team's step is a separate graph"

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """(N T,) control steps towards the time limit; the first robot's is that of its world."""
        return self._crews[0].state.episode_length if self.is_alike else self._lengths()

    @episode_length_buf.setter
    def episode_length_buf(self, value: torch.Tensor) -> None:
        for crew, agents in self._agents():
            crew.state.episode_length.copy_(value.view(self.num_worlds, -1)[:, agents].reshape(-1))

    def _lengths(self) -> torch.Tensor:
        found = torch.zeros(self.num_worlds, len(self.agents), dtype=torch.int32, device=self.device)
        for crew, agents in self._agents():
            found[:, agents] = crew.state.episode_length.view(self.num_worlds, -1)
        return found.view(-1)

    def _agents(self) -> list[tuple[CrewEnv, list[int]]]:
        """Return each crew with the indices of its robots."""
        return [(crew, list(crew_of(crew.scene).agents)) for crew in self._crews]

    def parts(self) -> dict[str, tuple[CrewEnv, torch.Tensor]]:
        """Return the environment of each role, and which rows (n,) are its robots'."""
        rows = torch.arange(self.num_envs, device=self.device).view(self.num_worlds, -1)
        return {role: (crew, rows[:, list(crew_of(crew.scene).agents)].flatten()) for role, crew in self.crews.items()}

    @property
    def taking_part(self) -> torch.Tensor:
        """Which robots take part in the state that was observed last, (N,) bool; the others are parked or are out."""
        found = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        for crew, rows in self.parts().values():
            found[rows] = crew.state.active != 0
        return found

    def pop_metrics(self) -> dict[str, float]:
        """Return averages over the robots since the last call, as :meth:`.env.Env.pop_metrics`.

        Of several roles each has its own, ``<kind>/<role>.<name>``; episodes and returns are those of all robots.
        """
        found = {role: crew.pop_metrics() for role, crew in self.crews.items()}
        if self.is_alike:
            return next(iter(found.values()))
        total: dict[str, float] = {}
        for name in ("episodes", "quarantined"):
            total[name] = sum(row[name] for row in found.values())
        for name in ("episode/return", "episode/length_s"):
            rows = [(row[name], row["episodes"]) for row in found.values() if name in row]
            if rows:
                total[name] = sum(value * count for value, count in rows) / sum(count for _, count in rows)
        for role, row in found.items():
            for name, value in row.items():
                kind, _, rest = name.partition("/")
                if rest and name not in total:
                    total[f"{kind}/{rest if kind == 'quarantined' else f'{role}.{rest}'}"] = value
        return total

    # -- a team of one role as rows of one robot ---------------------------------------------------------------------

    @property
    def only(self) -> CrewEnv:
        """The rows of a team of which all robots have one role.

        Raises:
            ValueError: they have several; each is one of :attr:`crews`.
        """
        if not self.is_alike:
            line = f"its robots have the roles {', '.join(self.crews)}; take one of env.crews"
            raise ValueError(f"task={self.cfg.name!r}: {line}")
        return self._crews[0]

    @property
    def state(self) -> Any:
        """Torch views of every field of the rows, see :attr:`.env.Env.state`."""
        return self.only.state

    @property
    def policy_groups(self) -> tuple[str, ...]:
        """Observation groups of the policy that :meth:`describe_policy` describes."""
        return self._crews[0].policy_groups

    @policy_groups.setter
    def policy_groups(self, groups: tuple[str, ...]) -> None:
        for crew in self._crews:
            crew.policy_groups = groups

    def describe_policy(self) -> dict[str, Any]:
        """Return the description of the policy, see :meth:`.env.Env.describe_policy`."""
        return self.only.describe_policy() | {"task": self.cfg.name}

    def describe_command(self) -> dict[str, Any] | None:
        """Return the description of the command, see :meth:`.env.Env.describe_command`."""
        return self.only.describe_command()

    def describe_metrics(self) -> dict[str, dict[str, Any]]:
        """Return a description of the metrics, see :meth:`.env.Env.describe_metrics`."""
        return self.only.describe_metrics()

    def robot_state(self) -> dict[str, torch.Tensor]:
        """Return the robots' raw signals, one row a robot, see :meth:`.env.Env.robot_state`."""
        return self.only.robot_state()

    def components(self, group: str) -> list[str]:
        """Return the names of the components of an observation group, see :meth:`.env.Env.components`."""
        return self.only.components(group)

    @property
    def mirror(self) -> None:
        """No left-right mirror: it would be of the whole team."""
        return

    @property
    def reward_groups(self) -> tuple[str, ...]:
        """No groups of rewards."""
        return ()

    @property
    def observation_terms(self) -> dict[str, tuple[int, ...]]:
        """Position of each term in its group, see :attr:`.env.Env.observation_terms`; of several roles none."""
        return self.only.observation_terms if self.is_alike else {}

    def set_command(self, value: tuple[float, ...] | torch.Tensor | None, env_ids: torch.Tensor | None = None) -> None:
        """Hold the command of all robots in the worlds ``env_ids`` (None: all), see :meth:`.env.Env.set_command`.

        A position (width,) for robots that are bolted down is one point for all, in the frame of the first one.
        """
        worlds = self.num_worlds if env_ids is None else len(env_ids)
        for crew in self._crews:
            size = crew_of(crew.scene).size
            rows = None if env_ids is None else (env_ids[:, None] * size + torch.arange(size)).flatten()
            own = None if value is None else self._in_own_frames(crew, torch.as_tensor(value), worlds)
            crew.set_command(own, rows)

    def _in_own_frames(self, crew: CrewEnv, value: torch.Tensor, worlds: int) -> torch.Tensor:
        """Return a position of the first robot's frame in those of a crew, a row each; any other command as it is."""
        info = crew.describe_command()
        if info is None or (info["draws"], info["frame"]) != ("position", "base") or crew.scene.base or value.ndim != 1:
            return value
        if len(value) != crew.scene.sizes["command"]:
            return value  # which is refused
        first, points = next(iter(self.cfg.robots.values())), []
        for agent in (list(self.cfg.robots.values())[k] for k in crew_of(crew.scene).agents):
            x, y = _turned(value[:2].tolist(), first.yaw)
            dx, dy, dz = (a - b for a, b in zip(first.pos, agent.pos, strict=True))
            points.append([*_turned((x + dx, y + dy), -agent.yaw), value[2].item() + dz, *value[3:].tolist()])
        return torch.tensor(points).repeat(worlds, 1)

    def push(self, delta_v: tuple[float, float, float], env_ids: torch.Tensor | None = None) -> None:
        """Add a velocity step [m/s] to the base of every robot, rows ``env_ids`` (None: all) of a team of one role."""
        if env_ids is not None:
            self.only.push(delta_v, env_ids)
            return
        for crew in self._crews:
            if crew.scene.base:
                crew.push(delta_v)

    def place_object(self, name: str, pos: Any, quat_wxyz: Any = (1.0, 0.0, 0.0, 0.0)) -> None:
        """Put a free object at a pose in every world, at rest, see :meth:`.env.Env.place_object`."""
        for crew in self._crews:
            crew.place_object(name, pos, quat_wxyz)

    def drop(self, agent: str, worlds: torch.Tensor | None = None) -> None:
        """Let a robot drop out of the running episodes of worlds (n,) (None: all): its motors only damp from now on.

        Raises:
            ValueError: the robot does not exist.
        """
        if agent not in self.agents:
            raise ValueError(f"agent={agent!r}: {nearest(agent, self.agents)}")
        place = self.agents.index(agent)
        where = slice(None) if worlds is None else worlds
        for crew, agents in self._agents():
            if place in agents:
                active = crew.state.active.view(self.num_worlds, -1)
                active[where, agents.index(place)] = 0

    @property
    def world_qpos(self) -> torch.Tensor:
        """(N, nq) positions of every world in MuJoCo's order."""
        return wp.to_torch(self.engine.data.qpos)

    def params(self) -> dict[str, float]:
        """Return all live parameters by path, see :meth:`.env.Env.params`; of several roles ``<role>.<path>``."""
        if self.is_alike:
            return self.only.params()
        return {f"{role}.{path}": value for role, crew in self.crews.items() for path, value in crew.params().items()}

    def set_param(self, path: str, value: float) -> None:
        """Change a parameter while running, by its path in :meth:`params`."""
        role, _, rest = path.partition(".")
        crew, own = (self.only, path) if self.is_alike else (self.crews.get(role, self._crews[0]), rest)
        crew.set_param(own, value)

    @property
    def quarantine_dir(self) -> Any:
        """Folder for files about quarantined worlds; see :attr:`.env.Env.quarantine_dir`."""
        return self._crews[0].quarantine_dir

    @quarantine_dir.setter
    def quarantine_dir(self, path: Any) -> None:
        for crew in self._crews:
            crew.quarantine_dir = path

    def pop_notices(self) -> list[str]:
        """Return the new lines for the user."""
        return [line for crew in self._crews for line in crew.pop_notices()]

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return everything needed to continue from here, bit for bit on the CPU."""
        tensors = {"worlds.engine": torch.from_numpy(self.engine.get_state())}
        for role, crew in self.crews.items():
            tensors |= {f"{role}.{name}": tensor for name, tensor in crew.state_dict().items()}
        return tensors | {f"obs.{name}": wp.to_torch(array).clone() for name, array in self._out.items()}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore :meth:`state_dict`.

        Raises:
            ValueError: another number of worlds or another task.
        """
        lacking = next((name for name in self.state_dict() if name not in tensors), None)
        if lacking is not None:
            raise ValueError(f"environment state {lacking!r}: checkpoint has nothing")
        for role, crew in self.crews.items():
            own = {name.removeprefix(f"{role}."): t for name, t in tensors.items() if name.startswith(f"{role}.")}
            crew.load_state_dict(own)
        self.engine.set_state(tensors["worlds.engine"].cpu().numpy())
        self._dirty.zero_()
        for name, array in self._out.items():
            wp.to_torch(array).copy_(tensors[f"obs.{name}"])
        self._results.fill(self._state)

    def close(self) -> None:
        """Write the last quarantined worlds and end the threads."""
        self._graph = None
        for crew in self._crews:
            crew.close()
        self.engine.close()


def _turned(vector: Sequence[float], yaw: float) -> tuple[float, float]:
    """Return a vector along the ground, turned by yaw [rad]."""
    c, n = math.cos(yaw), math.sin(yaw)
    return c * vector[0] - n * vector[1], n * vector[0] + c * vector[1]


def crew_of(scene: Scene) -> Crew:
    """Return the crew of a robot's scene in a team."""
    assert scene.crew is not None
    return scene.crew
