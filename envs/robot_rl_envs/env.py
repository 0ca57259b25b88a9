"""The vectorized environment: a control step is three main kernels and the engine's substeps, without a device sync."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import warp as wp
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from robot_rl_envs import buffers
from robot_rl_envs.engines import make_engine
from robot_rl_envs.entity.scene import make_scene
from robot_rl_envs.headers import start_warp
from robot_rl_envs.rows import RobotRows
from robot_rl_envs.task import Task
from robot_rl_envs.team.stage import TeamStage
from robot_rl_envs.terms.checks import nearest

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class _OfRows:
    """A member of :class:`.rows.RobotRows`, of the only rows that an environment has; see :attr:`Env.only`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self.__doc__ = name, getattr(RobotRows, name, self).__doc__

    def __get__(self, env: Any, owner: type | None = None) -> Any:
        return self if env is None else getattr(env.only, self._name)


class Env(VecEnv):
    """``num_worlds`` worlds of one task, for any learner that takes ``rsl_rl.env.VecEnv``.

    A world of a task with T robots has T rows: row ``w T + a`` is robot ``a`` in world ``w``, for observations,
    actions, rewards and ends alike, so that any learner of one robot can train them. The facts of the team are in the
    group "team" for the critic, and in ``extras["valid"]``: false for robots that take no part.

    Attributes:
        num_worlds: worlds N.
        num_envs: rows, N T.
        agents: names of the robots of a team; empty for a task of one robot.
        crews: the rows of each role of a team, by its name; those of one robot are "".
        scene: the scene of all robots.
        engine: the worlds' physics.
        num_actions: width of an action: the widest role's.
        max_episode_length: largest number of control steps of an episode.
        device: torch device of everything returned.
        step_dt: control period [s].
        seed: seed of all random streams.
    """

    cfg: Task
    device: str

    def __init__(
        self,
        task: Task,
        *,
        num_envs: int,
        device: str = "cpu",
        engine: str | Callable[[Any], Any] = "auto",
        seed: int = 0,
        num_threads: int = 0,
        world_offset: int = 0,
    ):
        start_warp()
        self.cfg, self.num_worlds, self.device, self.seed = task, num_envs, device, seed
        self.agents, self.step_dt = tuple(task.robots), task.sim.step_dt
        self.num_envs = num_envs * self.team_size
        self.max_episode_length = round(task.episode_length_s / self.step_dt)
        self._team = TeamStage(task, num_envs, device) if task.robots else None
        self.scene: Any = make_scene(task) if self._team is None else self._team.scene
        self.engine: Any = make_engine(engine, self.scene, num_envs=num_envs, device=device, num_threads=num_threads)
        options: dict[str, Any] = {"device": device, "seed": seed, "world_offset": world_offset}
        if self._team is None:
            rows = RobotRows(task, self.scene, self.engine, num_envs=num_envs, **options)
            self.crews = {"": rows}
            self._written, self._final, self._flags, self._actions = rows.written, rows.final, rows.state, rows.actions
        else:
            team = self._team
            self.crews = team.make_crews(self.engine, **options)
            self._written, self._final, self._flags, self._actions = team.out, team.final, team.flags, team.actions
        self._all = list(self.crews.values())
        self._stage: TeamStage | RobotRows = self._team or self._all[0]
        self._driven = [rows.actuate for rows in self._all if rows.actuate]
        self.num_actions = self._actions.shape[1]
        self._actions_torch = wp.to_torch(self._actions)
        self._results = buffers.StepResults(
            self._written, self._final, len(self.reward_groups), device, is_team=bool(self.agents)
        )
        self._graph: Any = None
        self._is_recording = False
        self._recorded: list[Any] = []
        for rows in self._all:
            rows.begin()
        self.reset()

    def __repr__(self) -> str:
        worlds = f"{self.num_worlds} world" + "s" * (self.num_worlds != 1)
        worlds += f" of {len(self.agents)} robots" * bool(self.agents)
        groups = ", ".join(f"{name} {tuple(array.shape)}" for name, array in self._written.items())
        actions = tuple(self._actions.shape)
        return f"<{self.cfg.name}: {worlds}, {self.device}; actions {actions}; observations {groups}>"

    @property
    def only(self) -> RobotRows:
        """The rows of an environment of which all robots have one role.

        Raises:
            ValueError: they have several; each is one of :attr:`crews`.
        """
        if len(self.crews) > 1:
            line = f"its robots have the roles {', '.join(self.crews)}; take one of env.crews"
            raise ValueError(f"task={self.cfg.name!r}: {line}")
        return self._all[0]

    state = _OfRows()
    kernels = _OfRows()
    action_bounds = _OfRows()
    robot_state = _OfRows()
    components = _OfRows()
    describe_command = _OfRows()
    describe_metrics = _OfRows()
    operands = _OfRows()
    write_back = _OfRows()

    # -- stepping ----------------------------------------------------------------------------------------------------

    def reset(self) -> TensorDict:
        """Reset every world; return the first observations."""
        self._stage.reset()
        self._results.restart()
        self._results.fill(self._flags)
        return self.get_observations()

    def restart(self, mask: torch.Tensor) -> TensorDict:
        """Reset the worlds of a mask (N,) bool; return the observation groups, those of the other worlds unchanged.

        Raises:
            ValueError: the worlds have several robots.
        """
        if self.agents:
            raise ValueError(f"task={self.cfg.name!r}: some worlds of a team cannot be reset alone; reset all of them")
        self.only.restart(mask)
        self._results.fill(self._flags)
        return self.get_observations()

    def step(self, actions: torch.Tensor | ArrayLike) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Apply ``actions`` (rows, num_actions) for one control period; a role with fewer takes the first ones.

        Args:
            actions: a tensor, or a NumPy array or lists, which are copied to the device.

        Returns:
            observations: TensorDict of groups; valid until the step after the next. ``final_obs`` is until the next.
            rewards: (rows,).
            dones: (rows,) bool.
            extras: ``time_outs`` (rows,) bool, ``final_obs`` TensorDict (rows valid where done: the observation of the
                state the episode ended in, before the reset), ``valid`` (rows,) bool (False if a world was
                quarantined in this step), ``log`` (empty; see :meth:`pop_metrics`), and, if the reward terms have
                several groups, ``rewards`` (rows, K), the sum of each, never floored. Of a team also ``acted`` (rows,)
                bool, False if a robot took no part in the step, which is not valid then, and ``ended`` (rows,) bool,
                True if its world's episode ended.

        Raises:
            ValueError: ``actions`` are of another shape, or not numbers.
        """
        if not isinstance(actions, torch.Tensor):
            try:
                actions = torch.as_tensor(actions)
            except (TypeError, ValueError, RuntimeError) as error:
                wanted = tuple(self._actions_torch.shape)
                raise ValueError(f"actions: are not numbers of shape {wanted} ({error})") from None
        if actions.shape != self._actions_torch.shape:
            raise ValueError(f"actions have shape {tuple(actions.shape)}, wants {tuple(self._actions_torch.shape)}")
        self._actions_torch.copy_(actions)
        if self._is_recording:
            self._advance()
        elif self._graph is not None:
            wp.capture_launch(self._graph)
        else:
            self._advance()
            if not self._why_no_graph:
                self._capture()
        return self._results.fill(self._flags)

    def _advance(self) -> None:
        """Queue every launch of a step: one CUDA graph if the engine allows it."""
        if self._team is not None:
            self._team.begin()
        for rows in self._all:
            rows.act()
        self._simulate()
        self._stage.finish()

    def _simulate(self) -> None:
        step = self.engine.step if self._team is None else self._team.step
        if not self._driven:
            step(self.cfg.sim.decimation)
            return
        for stages in zip(*self._driven, strict=True):
            for stage in stages:
                stage.launch()
            step(1)

    def _capture(self) -> None:
        with wp.ScopedDevice(self.device), wp.ScopedCapture(force_module_load=False) as capture:
            self._advance()
        self._graph = capture.graph

    def get_observations(self) -> TensorDict:
        """The current observation groups, each (rows, width)."""
        return self._results.current

    # -- steps in a graph of the learner -----------------------------------------------------------------------------

    @property
    def why_not_recorded(self) -> str:
        """Why steps cannot be recorded in a CUDA graph of the learner, in words; empty if they can."""
        return "a team's step is a separate graph" if self.agents else self._why_no_graph

    @property
    def _why_no_graph(self) -> str:
        if not self.engine.capturable:
            return f"engine={self.engine.name} on {self.device} has none"
        return "the task has terms that are torch functions" if any(rows.torch_terms for rows in self._all) else ""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Queue steps on torch's current stream, which a graph of the caller records, instead of running them.

        Call :meth:`rewind` before, and before every replay of that graph, and :meth:`skip` after it. Kernels must be
        loaded: at least one step must have run.
        """
        self._is_recording = True
        try:
            if not self.device.startswith("cuda"):
                yield
                return
            stream = wp.stream_from_torch(torch.cuda.current_stream(torch.device(self.device)))
            # An event of the stream that Warp used until now would belong to another recording.
            with (
                wp.ScopedStream(stream, sync_enter=False),
                wp.ScopedCapture(stream=stream, external=True, force_module_load=False) as capture,
            ):
                yield
            self._recorded.append(capture.graph)  # It keeps the arrays of the recorded launches alive.
        finally:
            self._is_recording = False

    def rewind(self) -> TensorDict:
        """Return the current observations, in the buffers that a recording of steps begins with."""
        return self._results.rewind()

    def skip(self, steps: int) -> TensorDict:
        """Return the observations after the ``steps`` recorded steps that were replayed."""
        return self._results.skip(steps)

    # -- the robots of a world ---------------------------------------------------------------------------------------

    @property
    def team_size(self) -> int:
        """Number T of robots in a world."""
        return max(len(self.agents), 1)

    @property
    def roles(self) -> tuple[str, ...]:
        """The role of each robot of a team."""
        return tuple(agent.group for agent in self.cfg.robots.values())

    @property
    def role_sizes(self) -> dict[str, tuple[int, int]]:
        """Components of a robot's group "actor" and of its action, by the role in a team."""
        crews = self.crews if self.agents else {}
        return {role: (rows.out["actor"].shape[1], rows.num_actions) for role, rows in crews.items()}

    @property
    def is_alike(self) -> bool:
        """Whether all robots have one role."""
        return len(self.crews) == 1

    def parts(self) -> dict[str, tuple[RobotRows, torch.Tensor]]:
        """Return the rows of each role, and which of the environment's (n,) these are."""
        at = torch.arange(self.num_envs, device=self.device).view(self.num_worlds, -1)
        return {role: (rows, at[:, list(rows.agents)].flatten()) for role, rows in self.crews.items()}

    @property
    def taking_part(self) -> torch.Tensor:
        """Which robots take part in the state that was observed last, (rows,) bool; others are parked or are out."""
        found = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        for rows, at in self.parts().values() if self.agents else ():
            found[at] = rows.state.active != 0
        return found

    def drop(self, agent: str, worlds: torch.Tensor | None = None) -> None:
        """Let a robot drop out of the running episodes of worlds (n,) (None: all): its motors only damp from now on.

        Raises:
            ValueError: the robot does not exist.
        """
        if agent not in self.agents:
            raise ValueError(f"agent={agent!r}: {nearest(agent, self.agents)}")
        place = self.agents.index(agent)
        where = slice(None) if worlds is None else worlds
        for rows in self._all:
            if place in rows.agents:
                active = rows.state.active.view(self.num_worlds, -1)
                active[where, rows.agents.index(place)] = 0

    @property
    def world_qpos(self) -> torch.Tensor:
        """(N, nq) positions of every world in MuJoCo's order."""
        return wp.to_torch(self.engine.data.qpos)

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """(rows,) control steps towards the time limit, a copy if there are several roles; set it to change it.

        The robots of a team end with the first one.
        """
        if self.is_alike:
            return self.only.state.episode_length
        found = torch.zeros(self.num_envs, dtype=torch.int32, device=self.device)
        for rows, at in self.parts().values():
            found[at] = rows.state.episode_length
        return found

    @episode_length_buf.setter
    def episode_length_buf(self, value: torch.Tensor) -> None:
        for rows, at in self.parts().values():
            rows.state.episode_length.copy_(value[at])

    # -- commands, parameters, metrics -------------------------------------------------------------------------------

    def set_command(self, value: tuple[float, ...] | torch.Tensor | None, env_ids: torch.Tensor | None = None) -> None:
        """Hold the command at ``value`` (width,) or (n, width) in the worlds ``env_ids`` (None: all); None ends it.

        All robots of a world get it. A position (width,) for robots that are bolted down is one point for all, in the
        frame of the first one.
        """
        worlds = self.num_worlds if env_ids is None else len(env_ids)
        for rows in self._all:
            own = value if self._team is None else self._team.in_own_frames(rows, value, worlds)
            rows.set_command(own, rows.of_worlds(env_ids))

    def push(self, delta_v: tuple[float, float, float], env_ids: torch.Tensor | None = None) -> None:
        """Add a velocity step [m/s], world frame, to the base of every robot, in the rows ``env_ids`` (None: all).

        Robots of a team with a fixed base are not moved.
        """
        for rows in self._all if env_ids is None else [self.only]:
            if rows.scene.base or not self.agents or env_ids is not None:
                rows.push(delta_v, env_ids)

    def place_object(
        self,
        name: str,
        pos: Sequence[float],
        quat_wxyz: Sequence[float] = (1.0, 0.0, 0.0, 0.0),
        env_ids: torch.Tensor | None = None,
    ) -> None:
        """Put a free object at a pose in the world [m], at rest, in the worlds ``env_ids`` (None: all).

        Raises:
            ValueError: the object does not exist, or it is fixed.
        """
        for rows in self._all:
            rows.place_object(name, pos, quat_wxyz, rows.of_worlds(env_ids))

    def params(self) -> dict[str, float]:
        """Return all live parameters by path, e.g. ``rewards.track.weight``; of several roles ``<role>.<path>``."""
        if self.is_alike:
            return self.only.params()
        return {f"{role}.{path}": value for role, rows in self.crews.items() for path, value in rows.params().items()}

    def set_param(self, path: str, value: float) -> None:
        """Change a weight, parameter, scale or range while running, by its path in :meth:`params`.

        Raises:
            ValueError: no such parameter.
        """
        if self.is_alike:
            self.only.set_param(path, value)
            return
        role, _, own = path.partition(".")
        if role not in self.crews:
            raise ValueError(f"no parameter {path!r} in task {self.cfg.name!r}: role {nearest(role, self.crews)}")
        self.crews[role].set_param(own, value)

    def pop_metrics(self) -> dict[str, float]:
        """Return averages over the robots since the last call; see :meth:`.rows.RobotRows.pop_metrics`.

        Of several roles each has its own, ``<kind>/<role>.<name>``; episodes and returns are those of all robots.
        """
        found = {role: rows.pop_metrics() for role, rows in self.crews.items()}
        if self.is_alike:
            return next(iter(found.values()))
        names = {name: None for row in found.values() for name in row if name.startswith(("episodes", "quarantined"))}
        total = {name: sum(row.get(name, 0.0) for row in found.values()) for name in names}
        for name in ("episode/return", "episode/length_s"):
            several = [(row[name], row["episodes"]) for row in found.values() if name in row]
            if several:
                total[name] = sum(value * count for value, count in several) / sum(count for _, count in several)
        for role, row in found.items():
            own = {name: value for name, value in row.items() if name not in total}
            total |= {f"{kind}/{role}.{rest}": v for name, v in own.items() for kind, _, rest in [name.partition("/")]}
        return total

    @property
    def quarantine_dir(self) -> Any:
        """Folder for files about quarantined worlds, written at each :meth:`pop_metrics`; None writes none."""
        return self._all[0].quarantine_dir

    @quarantine_dir.setter
    def quarantine_dir(self, path: Any) -> None:
        for rows in self._all:
            rows.quarantine_dir = path

    def pop_notices(self) -> list[str]:
        """Return the new lines for the user: about the actor's terms, and the first bad world of each reason."""
        return [line for rows in self._all for line in rows.pop_notices()]

    def imagine(self, rows: int, steps: int) -> Any:
        """Return imagined steps of this task; arguments and errors are those of :class:`.Imagination`."""
        from robot_rl_envs.imagination.imagine import Imagination

        return Imagination(self, rows, steps)

    # -- descriptions for others -------------------------------------------------------------------------------------

    @property
    def policy_groups(self) -> tuple[str, ...]:
        """Observation groups of the policy that `describe_policy` describes: "actor", groups of images."""
        return self._all[0].policy_groups

    @policy_groups.setter
    def policy_groups(self, groups: tuple[str, ...]) -> None:
        for rows in self._all:
            rows.policy_groups = groups

    def describe_policy(self) -> dict[str, Any]:
        """Return the description of the policy; see :meth:`.rows.RobotRows.describe_policy`."""
        return self.only.describe_policy() | {"task": self.cfg.name}

    @property
    def mirror(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]] | None:
        """Left-right mirror, see :attr:`.rows.RobotRows.mirror`; None of a team: it would be of all robots."""
        return None if self.agents else self.only.mirror

    @property
    def reward_groups(self) -> tuple[str, ...]:
        """Groups of the reward terms, in the order of ``extras["rewards"]``; empty if there is one, and of a team."""
        return () if self.agents else self.only.reward_groups

    @property
    def observation_terms(self) -> dict[str, tuple[int, ...]]:
        """Position of each term in its group, by "group.term": its first component, then its shape; none of roles."""
        return self.only.observation_terms if self.is_alike else {}

    # -- saving ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return everything needed to continue from here, bit for bit on the CPU."""
        if self._team is None:
            return self.only.state_dict()
        tensors = {"worlds.engine": torch.from_numpy(self.engine.get_state())}
        for role, rows in self.crews.items():
            tensors |= {f"{role}.{name}": tensor for name, tensor in rows.state_dict().items()}
        return tensors | {f"obs.{name}": wp.to_torch(array).clone() for name, array in self._written.items()}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore :meth:`state_dict`; a parameter that this task was built with another value of keeps this task's.

        Raises:
            ValueError: another number of worlds or another task.
        """
        if self._team is None:
            self.only.load_state_dict(tensors)
            self._results.fill(self._flags)
            return
        lacking = next((name for name in self.state_dict() if name not in tensors), None)
        if lacking is not None:
            raise ValueError(f"environment state {lacking!r}: checkpoint has nothing")
        for role, rows in self.crews.items():
            own = {name.removeprefix(f"{role}."): t for name, t in tensors.items() if name.startswith(f"{role}.")}
            rows.load_state_dict(own)
        self.engine.set_state(tensors["worlds.engine"].cpu().numpy())
        self._team.dirty.zero_()
        for name, array in self._written.items():
            wp.to_torch(array).copy_(tensors[f"obs.{name}"])
        self._results.fill(self._flags)

    def close(self) -> None:
        """Write the last quarantined worlds and end the threads."""
        self._graph = None
        self._recorded.clear()
        for rows in self._all:
            rows.close()
        self.engine.close()
