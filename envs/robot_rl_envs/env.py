"""The vectorized environment: one control step is three kernels and the engine's substeps, without a device sync."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import warp as wp
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from robot_rl_envs import buffers, codegen
from robot_rl_envs.cameras.group import Images
from robot_rl_envs.codegen import layout
from robot_rl_envs.codegen.torch_terms import TorchTerms
from robot_rl_envs.describe import (
    describe_command,
    describe_metrics,
    describe_policy,
    mirror_maps,
    observation_terms,
)
from robot_rl_envs.engine import DIRTY_MODEL, DIRTY_STATE
from robot_rl_envs.engines import make_engine
from robot_rl_envs.entity import crews, reference_motions
from robot_rl_envs.entity.scene import Scene, make_scene
from robot_rl_envs.entity.state import CONSTANTS, RECOMPUTED, Chain, State, check_indices, make_chain, make_struct
from robot_rl_envs.headers import start_warp
from robot_rl_envs.launch import Recorder
from robot_rl_envs.motion import component_names
from robot_rl_envs.recorder.flight import REASONS
from robot_rl_envs.recorder.quarantine import Quarantine
from robot_rl_envs.sensing.sensors import SensorLaunches
from robot_rl_envs.task import Task

_NOT_MEASURED = (
    "observations.actor: only a simulator knows {}, so the policy cannot be exported; give it to the critic only, or "
    "declare the sensor that measures it on the robot: Observation(..., measured=<name>)"
)


@dataclass(frozen=True, slots=True)
class Operands:
    """What the kernels of an environment run on, live.

    Attributes:
        layout: indices of everything of the task.
        struct: ``s``, which terms read and write.
        arrays: the arrays of ``s`` by name.
        chain: the joints between the base and the feet.
        numbers: weights and parameters, and the log.
    """

    layout: layout.TaskLayout
    struct: Any
    arrays: dict[str, Any]
    chain: Any
    numbers: Any


class Env(VecEnv):
    """``num_envs`` worlds of one task, for any learner that takes ``rsl_rl.env.VecEnv``.

    Attributes:
        num_actions: width of an action.
        max_episode_length: largest number of control steps of an episode.
        device: torch device of everything returned.
        step_dt: control period [s].
        state: torch views of every state field.
        kernels: the stages of a step.
        seed: seed of all random streams.
        policy_groups: observation groups of the policy that `describe_policy` describes: "actor", groups of images.
    """

    cfg: Task
    device: str
    policy_groups: tuple[str, ...] = ("actor",)

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
        scene: Scene | None = None,
    ):
        start_warp()
        self.cfg, self.num_envs, self.device, self.seed = task, num_envs, device, seed
        self.scene = scene or make_scene(task)
        self.engine = make_engine(engine, self.scene, num_envs=num_envs, device=device, num_threads=num_threads)
        self.num_actions = len(self.scene.actuated)
        self.step_dt = task.sim.step_dt
        self.max_episode_length = round(task.episode_length_s / self.step_dt)
        self._layout = layout.make_layout(task, self.scene)
        self._model_fields = buffers.model_fields(task)
        self._build(world_offset)
        self._graph: Any = None
        self._is_recording = False
        self._recorded: list[Any] = []
        self._notices = [_NOT_MEASURED.format(", ".join(task.not_measured))] * bool(task.not_measured)
        self._start()

    # -- building ----------------------------------------------------------------------------------------------------

    def _build(self, world_offset: int) -> None:
        extra = buffers.extra_fields(self.cfg, self.scene, self._layout, self.num_envs)
        mujoco_fields = {f"engine_{name}": self.engine.watch(name) for name in self.scene.mujoco_fields}
        kinds = {name: (dtype, ndim) for name, (dtype, ndim, _) in extra.items()}
        struct = make_struct(kinds | {name: (array.dtype, array.ndim) for name, array in mujoco_fields.items()})
        self._drive = codegen.Drive(self.cfg, self.scene, self.num_envs, self.device)
        names = [buffers.struct_name(name) for name in self._model_fields]
        self.kernels = codegen.make_kernels(
            self.cfg, self.scene, self._layout, struct, Chain, drive=self._drive, fields=names
        )
        self._chain = make_chain(self.scene.entity, self.scene.elements, self.device)
        self._arrays = (
            buffers.allocate(self.engine, self.scene, self._layout, extra, self._model_fields) | mujoco_fields
        )
        self._drive.fill(self._arrays)
        self._s = self._fill(struct(), world_offset)
        self._arrays |= self._drive.state
        self.state = State(self._arrays)
        self._params = wp.array(np.array(self._layout.values, dtype=np.float32), dtype=wp.float32, device=self.device)
        self._recorder = Recorder(self.num_envs, self.device, getattr(self.engine, "num_threads", 1))
        self._quarantine = Quarantine(
            self.cfg,
            self.scene,
            self.engine,
            terms={"reward": self._layout.rewards, "observation": self._layout.observations},
            fields={name: self._arrays[buffers.struct_name(name)].shape[1:] for name in self._model_fields},
            starts=self._recorder.starts,
            seed=self.seed,
            world_offset=world_offset,
        )
        widths, width = self._layout.widths, layout.LOG_TERMS + len(self._layout.log)
        self._log = wp.zeros((len(self._recorder.starts), width), dtype=wp.float64, device=self.device)
        self._actions = wp.zeros((self.num_envs, self.num_actions), dtype=wp.float32, device=self.device)
        self._actions_torch = wp.to_torch(self._actions)
        self._out, self._final = (
            {k: wp.zeros((self.num_envs, width), dtype=wp.float32, device=self.device) for k, width in widths.items()}
            for _ in range(2)
        )
        self._out_torch = {name: wp.to_torch(array) for name, array in self._out.items()}
        self._final_torch = {name: wp.to_torch(array) for name, array in self._final.items()}
        self._torch_terms = TorchTerms(self.cfg, self._layout, self.state, wp.to_torch(self._log)[0])
        self._scan = SensorLaunches(self.scene.sensing, self.scene, self.engine, self._arrays)
        try:
            self.kernels.load(self.device)
            self._record_stages(self._recorder)
        except Exception as error:  # Warp has several classes for terms that it cannot compile
            raise self.blame(error) from None
        self._images = Images(
            self.cfg, self.scene, self.engine, self._arrays, seed=self.seed, world_offset=world_offset
        )
        groups = len(self._layout.reward_groups)
        self._results = buffers.StepResults(self._out | self._images.out, self._final, groups, self.device)

    def blame(self, error: Exception) -> Exception:
        """Return a line for Warp's error about a term that it cannot compile; ``error`` itself if it is another."""
        return self.kernels.blame(error, dir(self.state), dir(self.scene.model))

    def _fill(self, s: Any, world_offset: int) -> Any:
        """Set the arrays and numbers of the struct that terms read."""
        for name, array in self._arrays.items():
            setattr(s, name, array)
        s.seed, s.world_offset = self.seed & 0x3FFFFFFF, world_offset
        s.step_dt, s.step_dt64 = self.step_dt, self.step_dt
        s.episode_steps = self.max_episode_length
        s.base_qpos, s.base_dof = self.scene.entity.base_qpos, self.scene.entity.base_dof
        if self.scene.terrain is not None:
            s.terrain_grid = wp.vec3(*self.scene.terrain.grid)
            s.terrain_stepped = int(self.scene.terrain.stepped)
            s.terrain_tile_size = self.scene.terrain.cfg.tile_size
        return s

    def _record_stages(self, recorder: Recorder) -> None:
        """Record each launch once; replaying a recorded launch skips packing its arguments."""
        s, f, c = self._s, self._quarantine.flight, self._chain
        numbers = [codegen.Numbers() for _ in recorder.starts]
        for k, chunk in enumerate(numbers):
            chunk.params, chunk.log = self._params, self._log[k]
        groups = [*self._out.values(), *self._final.values()]
        kernels, record = self.kernels, recorder.record
        self._act = record(kernels.act, lambda k, first: [s, f, numbers[k], self._actions, first])
        self._after = record(kernels.after_physics, lambda k, first: [s, f, c, numbers[k], first])
        self._observe = record(kernels.observe, lambda k, first: [s, f, c, numbers[k], first, 0, *groups])
        self._after_and_observe = self._after.then(self._observe)
        self._observe_first = record(kernels.observe, lambda k, first: [s, f, c, numbers[k], first, 1, *groups])
        self._startup = record(kernels.startup, lambda k, first: [s, numbers[k], first])
        self._actuate = self._drive.record(recorder, kernels.actuate, s, f)
        if self.scene.needs_reset_forward:
            self._observe_reset = record(
                kernels.observe_reset, lambda k, first: [s, numbers[k], first, *self._out.values()]
            )
        if self.scene.crew is not None:
            self._sense = record(kernels.sense, lambda k, first: [s, f, c, numbers[k], first])
            self._share = record(kernels.share, lambda k, first: [s, c, numbers[k], first])

    def _start(self) -> None:
        self.begin()
        self.reset()

    def begin(self) -> None:
        """Run the startup events."""
        self._startup.launch()
        self.engine.write_back(self._arrays["dirty"])
        self._set_const()
        self.state.dirty.zero_()

    def _set_const(self) -> None:
        modes = {event.mode for event in self.cfg.events.values() if event.info.set_const}
        if modes:
            self.engine.set_const(again=modes != {"startup"})

    # -- stepping ----------------------------------------------------------------------------------------------------

    def reset(self) -> TensorDict:
        """Reset every world; return the first observations."""
        self.state.terminated.fill_(1)
        self.state.time_out.zero_()
        self.state.counter.add_(1)
        self._observe_first.launch()
        self._observe_resets()
        self._torch_terms.observe(self._out_torch)
        self.engine.write_back(self._arrays["dirty"])
        self._images.update()
        self.state.terminated.zero_()
        self._results.restart()
        self._results.fill(self.state)
        return self.get_observations()

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Apply ``actions`` (N, num_actions) for one control period.

        Returns:
            observations: TensorDict of groups; valid until the step after the next. ``final_obs`` is until the next.
            rewards: (N,).
            dones: (N,) bool.
            extras: ``time_outs`` (N,) bool, ``final_obs`` TensorDict (rows valid where done: the observation of the
                state the episode ended in, before the reset), ``valid`` (N,) bool (False if a world was
                quarantined in this step), ``log`` (empty; see :meth:`pop_metrics`), and, if the reward terms have
                several groups, ``rewards`` (N, K), the sum of each, never floored.
        """
        if actions.shape != self._actions_torch.shape:
            raise ValueError(f"actions have shape {tuple(actions.shape)}, wants {tuple(self._actions_torch.shape)}")
        self._actions_torch.copy_(actions)
        if self._is_recording:
            self._advance()
        elif self._graph is not None:
            wp.capture_launch(self._graph)
        else:
            self._advance()
            if not self.why_not_recorded:
                self._capture()
        return self._results.fill(self.state)

    def _advance(self) -> None:
        """Queue every launch of a step: one CUDA graph if the engine allows it."""
        self._act.launch()
        if self._actuate:
            for stage in self._actuate:
                stage.launch()
                self.engine.step(1)
        else:
            self.engine.step(self.cfg.sim.decimation)
        if self._scan:
            self._scan.look()
        if self._torch_terms:
            self._after.launch()
            self._torch_terms.finish(self._final_torch)
            self._observe.launch()
        else:
            self._after_and_observe.launch()
        self._observe_resets()
        if self._torch_terms:
            self._torch_terms.observe(self._out_torch)
        self.engine.write_back(self._arrays["dirty"])
        self._images.update()

    def _observe_resets(self) -> None:
        """Observe worlds that were reset again once the engine has computed their new state, where terms need that."""
        if not self.scene.needs_reset_forward:
            return
        dirty = self._arrays["dirty"]
        looked = bool(self._scan) and self._scan.look_again(dirty)
        if self.scene.mujoco_fields:
            looked = self.engine.look(dirty) or looked
        if looked:
            self._observe_reset.launch()

    def _capture(self) -> None:
        with wp.ScopedDevice(self.device), wp.ScopedCapture(force_module_load=False) as capture:
            self._advance()
        self._graph = capture.graph

    def get_observations(self) -> TensorDict:
        """The current observation groups, each (N, width)."""
        return self._results.current

    # -- steps in a graph of the learner -----------------------------------------------------------------------------

    @property
    def why_not_recorded(self) -> str:
        """Why steps cannot be recorded in a CUDA graph, in words; empty if they can."""
        if not self.engine.capturable:
            return f"engine={self.engine.name} on {self.device} has none"
        return "the task has terms that are torch functions" if self._torch_terms else ""

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

    # -- commands, parameters, metrics -------------------------------------------------------------------------------

    @property
    def action_bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(A,) least and greatest useful actions; see `Scene.action_bounds`."""
        low, high = torch.tensor(self.scene.action_bounds(), dtype=torch.float32, device=self.device).unbind(1)
        return low, high

    @property
    def num_worlds(self) -> int:
        """Number of worlds: with one robot in each there are as many rows."""
        return self.num_envs

    @property
    def world_qpos(self) -> torch.Tensor:
        """(N, nq) positions of every world in MuJoCo's order."""
        return self.state.qpos

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """(N,) control steps towards the time limit."""
        return self.state.episode_length

    @episode_length_buf.setter
    def episode_length_buf(self, value: torch.Tensor) -> None:
        self.state.episode_length.copy_(value)

    def set_command(self, value: tuple[float, ...] | torch.Tensor | None, env_ids: torch.Tensor | None = None) -> None:
        """Hold the command at ``value`` (width,) or (n, width) in the worlds ``env_ids`` (None: all); None ends it."""
        where = slice(None) if env_ids is None else env_ids
        self.state.command_hold[where] = int(value is not None)
        if value is not None:
            values = torch.as_tensor(value, dtype=torch.float32, device=self.device)
            width = self.scene.sizes["command"]
            if values.ndim == 0 or values.shape[-1] != width:
                raise ValueError(f"command={value!r}: the command of task {self.cfg.name!r} has {width} components")
            self.state.command[where] = values

    def push(self, delta_v: tuple[float, float, float], env_ids: torch.Tensor | None = None) -> None:
        """Add a velocity step [m/s], world frame, to the base of the worlds ``env_ids`` (None: all)."""
        if not self.scene.entity.base:
            raise ValueError(f"push={delta_v!r}: robot {self.scene.robot.name!r} has a fixed base, which nothing moves")
        where = slice(None) if env_ids is None else env_ids
        at = self.scene.entity.base_dof
        self.state.qvel[where, at : at + 3] += torch.tensor(delta_v, device=self.device)
        self.state.dirty[where] = 1
        self.engine.write_back(self._arrays["dirty"])

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
        things = {key: thing for key, thing in self.scene.elements.objects.items() if not thing.fixed}
        if name not in things:
            raise ValueError(f"object={name!r}: must be a free object of task {self.cfg.name!r}: {', '.join(things)}")
        where = slice(None) if env_ids is None else env_ids
        at, dof = things[name].qpos, things[name].dof
        pose = torch.tensor([*pos, *quat_wxyz], dtype=torch.float32, device=self.device)
        pose[3:] /= pose[3:].norm()
        self.state.qpos[where, at : at + 7] = pose
        self.state.qvel[where, dof : dof + 6] = 0.0
        self.state.dirty[where] = DIRTY_STATE
        self.engine.write_back(self._arrays["dirty"])

    def params(self) -> dict[str, float]:
        """Return all live parameters by path, e.g. ``rewards.track.weight``."""
        values = self._params.numpy()
        return {path: float(values[k]) for path, k in self._layout.params.items()}

    def set_param(self, path: str, value: float) -> None:
        """Change a weight, parameter, scale or range while running; nothing is recompiled.

        Raises:
            ValueError: no such parameter.
        """
        if path not in self._layout.params:
            raise ValueError(f"no parameter {path!r} in task {self.cfg.name!r}")
        wp.to_torch(self._params)[self._layout.params[path]] = value

    def pop_metrics(self) -> dict[str, float]:
        """Return averages since the last call; the one device sync of an iteration.

        Returns:
            ``episode/return``, ``episode/length_s`` (of episodes that ended; absent when none did), ``reward/<term>``
            (per second), ``termination/<name>`` (share of ended episodes), ``tracking/<metric>``, ``episodes``,
            ``quarantined`` (worlds), and, if there are any, ``quarantined/<reason>``.
        """
        self._quarantine.collect()
        log = self._log.numpy().sum(axis=0)
        self._log.zero_()
        episodes, length = log[layout.LOG_EPISODES], log[layout.LOG_LENGTH]
        faults = log[layout.LOG_FAULTS : layout.LOG_TERMS]
        metrics = {"episodes": float(episodes), "quarantined": float(faults.sum())}
        metrics |= {f"quarantined/{name}": float(n) for name, n in zip(REASONS, faults, strict=True) if n > 0}
        if episodes > 0:
            metrics["episode/return"] = float(log[layout.LOG_RETURN] / episodes)
            metrics["episode/length_s"] = float(length / episodes)
        divisors = {"reward": length, "termination": episodes, "tracking": log[layout.LOG_STEPS]}
        for name, k in self._layout.log.items():
            if (divisor := divisors[name.split("/")[0]]) > 0:
                metrics[name] = float(log[k] / divisor)
        return metrics

    @property
    def quarantine_dir(self) -> Path | None:
        """Folder for files about quarantined worlds, written at each :meth:`pop_metrics`; None writes none."""
        return self._quarantine.directory

    @quarantine_dir.setter
    def quarantine_dir(self, path: Path | str | None) -> None:
        self._quarantine.set_directory(path)

    def pop_notices(self) -> list[str]:
        """Return the new lines for the user: about the actor's terms, and the first bad world of each reason."""
        lines, self._notices = self._notices, []
        return lines + self._quarantine.pop_notices()

    def operands(self) -> Operands:
        """Return what the kernels of a step run on, for kernels of others that call the same terms."""
        numbers = codegen.Numbers()
        numbers.params, numbers.log = self._params, self._log[0]
        return Operands(self._layout, self._s, self._arrays, self._chain, numbers)

    def imagine(self, rows: int, steps: int) -> Any:
        """Return imagined steps of this task; arguments and errors are those of :class:`.Imagination`."""
        from robot_rl_envs.imagination.imagine import Imagination

        return Imagination(self, rows, steps)

    # -- descriptions for others -------------------------------------------------------------------------------------

    @property
    def mirror(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]] | None:
        """Left-right mirror of each observation group and of "action": ``mirrored = x[..., perm] * sign``; or None."""
        return mirror_maps(self.cfg, self.scene, self._layout, self.device) if self.cfg.mirror else None

    @property
    def reward_groups(self) -> tuple[str, ...]:
        """Groups of the reward terms, in the order of ``extras["rewards"]``; empty if there is only one."""
        return tuple(self._layout.reward_groups)

    @property
    def observation_terms(self) -> dict[str, tuple[int, ...]]:
        """Position of each term in its group, by "group.term": its first component, then its shape."""
        return observation_terms(self.scene, self._layout)

    def robot_state(self) -> dict[str, torch.Tensor]:
        """Return the robot's raw signals without noise, one row a world; see :meth:`.Sensing.signals`.

        Declared measurements are ``measured/<name>``, each (N, size) in the unit and frame of its term, and so are
        images, as they are delivered now: depth in m, 0 for a missing value, colours in [0, 1].
        """
        found = self.scene.entity.sensing.signals(self.state)
        for name, (at, size) in self._layout.measured.items():
            found[f"measured/{name}"] = self.state.measured[:, at : at + size].clone()
        return found | {f"measured/{name}": image for name, image in self._images.signals().items()}

    def components(self, group: str) -> list[str]:
        """Return the names of the components of an observation group; see :func:`.motion.component_names`."""
        return component_names(self._layout, group, self.scene)

    def describe_command(self) -> dict[str, Any] | None:
        """Return the command's components with units and ranges, its frame and how to draw it; None without one."""
        return describe_command(self.cfg)

    def describe_policy(self) -> dict[str, Any]:
        """Return a JSON-able description of a policy's inputs and outputs, for the exported contract.

        Raises:
            ValueError: one of `policy_groups` is neither "actor" nor a group of images.
        """
        return describe_policy(self.cfg, self.scene, self._layout, self.policy_groups, self._images.describe())

    def describe_metrics(self) -> dict[str, dict[str, Any]]:
        """Return a description of the task's metrics, JSON-able, in the order of ``state.metric_values``.

        Returns:
            name -> "unit", "meaning", "over" and "after_s" (see :class:`.task.Metric`), and "better": "smaller",
            "larger" or "" for neither.
        """
        return describe_metrics(self.cfg)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return everything needed to continue from here, bit for bit on the CPU."""
        shared = {
            *CONSTANTS,
            *RECOMPUTED,
            *reference_motions.FIELDS,
            *crews.CONSTANTS,
            *(f"{buffers.struct_name(name)}_nominal" for name in self._model_fields),
        }
        tensors = {f"state.{n}": wp.to_torch(a).clone() for n, a in self._arrays.items() if n not in shared}
        tensors["engine"] = torch.from_numpy(self.engine.get_state())
        tensors["params"] = wp.to_torch(self._params).clone()
        tensors["params_built"] = torch.tensor(self._layout.values, dtype=torch.float32)
        tensors["log"] = wp.to_torch(self._log).clone()
        tensors |= {f"obs.{name}": tensor.clone() for name, tensor in self._out_torch.items()}
        return tensors | self._images.state_dict()

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore :meth:`state_dict`; a parameter that this task was built with another value of keeps this task's.

        Raises:
            ValueError: another number of worlds or another task.
        """
        mine = self.state_dict()
        for name, value in mine.items():
            if name not in tensors or tensors[name].shape != value.shape:
                got = tuple(tensors[name].shape) if name in tensors else "nothing"
                raise ValueError(f"environment state {name!r}: checkpoint has {got}, wants {tuple(value.shape)}")
            if tensors[name].dtype != value.dtype:
                raise ValueError(f"environment state {name!r}: is of {tensors[name].dtype}, must be {value.dtype}")
        check_indices(tensors, self._arrays["terrain_origins"].shape)
        self.scene.reference_motions.check_state(tensors)
        for name in self._arrays:
            if f"state.{name}" in tensors and f"state.{name}" in mine:
                wp.to_torch(self._arrays[name]).copy_(tensors[f"state.{name}"])
        self.state.dirty.fill_(DIRTY_MODEL)
        self.engine.write_back(self._arrays["dirty"])
        self.engine.set_state(tensors["engine"].cpu().numpy())
        self._set_const()
        self.state.dirty.zero_()
        built = mine["params_built"]
        as_before = tensors["params_built"].cpu() == built
        wp.to_torch(self._params).copy_(torch.where(as_before, tensors["params"].cpu(), built))
        wp.to_torch(self._log).copy_(tensors["log"])
        for name, tensor in self._out_torch.items():
            tensor.copy_(tensors[f"obs.{name}"])
        self._images.load_state_dict(tensors)
        self._quarantine.forget()
        self._results.fill(self.state)

    def close(self) -> None:
        """Write the last quarantined worlds and end the threads."""
        self._quarantine.collect()
        self._graph = None
        self._recorded.clear()
        self._recorder.close()
        self._images.close()
        self.engine.close()
