"""The rows of one kind of robot: its terms, kernels, buffers, parameters and metrics, a row for each in each world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import warp as wp

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
from robot_rl_envs.entity import crews, reference_motions
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.entity.state import CONSTANTS, RECOMPUTED, Chain, State, check_indices, make_chain, make_struct
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


class RobotRows:
    """The rows of the robots of one role in all worlds; of a task of one robot a row for each world.

    Attributes:
        cfg: the robots' task.
        scene: the scene of one robot.
        engine: the worlds' engine, or for a team a :class:`.team.rows.RowEngine` with the robots' part of it.
        num_envs: rows.
        agents: indices of the robots in a world.
        num_actions: width of an action.
        step_dt: control period [s].
        state: torch views of every state field.
        kernels: the stages of a step.
        seed: seed of all random streams.
        out, final: the groups of observations and those of episodes that ended, by name, (N, width) each.
        written: ``out``, and the images.
        actions: (N, num_actions), which the next step applies.
        actuate: the stage before each substep, if actuators are computed by the environment.
        torch_terms: the terms that are torch functions.
        policy_groups: observation groups of the policy that `describe_policy` describes: "actor", groups of images.
    """

    policy_groups: tuple[str, ...] = ("actor",)

    def __init__(
        self, task: Task, scene: Scene, engine: Any, *, num_envs: int, device: str, seed: int, world_offset: int
    ):
        self.cfg, self.scene, self.engine, self.num_envs, self.seed = task, scene, engine, num_envs, seed
        self.device = device
        self.agents = (0,) if scene.crew is None else scene.crew.agents
        self.num_actions, self.step_dt = len(scene.actuated), task.sim.step_dt
        self.max_episode_length = round(task.episode_length_s / self.step_dt)
        self._layout = layout.make_layout(task, scene)
        self._model_fields = buffers.model_fields(task)
        self._build(world_offset)
        self._notices = [_NOT_MEASURED.format(", ".join(task.not_measured))] * bool(task.not_measured)

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
        self.actions = wp.zeros((self.num_envs, self.num_actions), dtype=wp.float32, device=self.device)
        self.out, self.final = (
            {k: wp.zeros((self.num_envs, width), dtype=wp.float32, device=self.device) for k, width in widths.items()}
            for _ in range(2)
        )
        self._out_torch = {name: wp.to_torch(array) for name, array in self.out.items()}
        self._final_torch = {name: wp.to_torch(array) for name, array in self.final.items()}
        self.torch_terms = TorchTerms(self.cfg, self._layout, self.state, wp.to_torch(self._log)[0])
        self._scan = SensorLaunches(self.scene.sensing, self.scene, self.engine, self._arrays)
        try:
            self.kernels.load(self.device)
            self._record_stages(self._recorder)
        except Exception as error:  # Warp has several classes for terms that it cannot compile
            raise self.blame(error) from None
        self._images = Images(
            self.cfg, self.scene, self.engine, self._arrays, seed=self.seed, world_offset=world_offset
        )
        self.written = self.out | self._images.out

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
        groups = [*self.out.values(), *self.final.values()]
        kernels, record = self.kernels, recorder.record
        self._act = record(kernels.act, lambda k, first: [s, f, numbers[k], self.actions, first])
        self._after = record(kernels.after_physics, lambda k, first: [s, f, c, numbers[k], first])
        self._observe = record(kernels.observe, lambda k, first: [s, f, c, numbers[k], first, 0, *groups])
        self._after_and_observe = self._after.then(self._observe)
        self._observe_first = record(kernels.observe, lambda k, first: [s, f, c, numbers[k], first, 1, *groups])
        self._startup = record(kernels.startup, lambda k, first: [s, numbers[k], first])
        self.actuate = self._drive.record(recorder, kernels.actuate, s, f)
        if self.scene.needs_reset_forward:
            self._observe_reset = record(
                kernels.observe_reset, lambda k, first: [s, numbers[k], first, *self.out.values()]
            )
        if self.scene.crew is not None:
            self._sense = record(kernels.sense, lambda k, first: [s, f, c, numbers[k], first])
            self._share = record(kernels.share, lambda k, first: [s, c, numbers[k], first])

    def begin(self) -> None:
        """Run the startup events."""
        self._startup.launch()
        self.write_back()
        self._set_const()
        self.state.dirty.zero_()

    def _set_const(self) -> None:
        modes = {event.mode for event in self.cfg.events.values() if event.info.set_const}
        if modes:
            self.engine.set_const(again=modes != {"startup"})

    # -- stepping ----------------------------------------------------------------------------------------------------

    def of_worlds(self, worlds: torch.Tensor | None) -> torch.Tensor | None:
        """Return the rows of worlds (n,); None for all."""
        size = len(self.agents)
        if worlds is None or size == 1:
            return worlds
        return (worlds[:, None] * size + torch.arange(size, device=worlds.device)).flatten()

    def act(self) -> None:
        """Queue the launches before the physics."""
        self._act.launch()

    def reset(self) -> None:
        """Reset every row, and observe."""
        self.state.terminated.fill_(1)
        self.state.time_out.zero_()
        self.state.counter.add_(1)
        self.observe_first()

    def observe_first(self, mask: torch.Tensor | None = None) -> None:
        """Reset the rows that are marked as terminated, and observe; torch terms only where ``mask`` (N,) is True."""
        self._observe_first.launch()
        self._observe_resets()
        self.torch_terms.observe(self._out_torch, mask)
        self.write_back()
        self._images.update()
        self.state.terminated.zero_()

    def restart(self, mask: torch.Tensor) -> None:
        """Reset the rows of a mask (N,) bool, and observe these alone.

        The stage that resets a row also observes the others, which would push their history a second time: their state
        is restored. A camera's need not be: in one step it renders the same image twice.
        """
        every = (*(getattr(self.state, name) for name in dir(self.state)), *self._out_torch.values())
        # A table of the same length is restored as it was.
        kept = [(tensor, tensor.clone()) for tensor in every if tensor.ndim and tensor.shape[0] == self.num_envs]
        self.state.terminated.copy_(mask)
        self.state.time_out.zero_()
        self.state.dirty.zero_()
        self.state.counter.add_(mask.to(self.state.counter.dtype))
        self.observe_first(mask)
        for tensor, before in kept:
            tensor.copy_(torch.where(mask.view(-1, *(1,) * (tensor.ndim - 1)), tensor, before))

    def finish(self) -> None:
        """Queue the launches after the physics: rewards, ends, resets and observations."""
        if self._scan:
            self._scan.look()
        if self.torch_terms:
            self._after.launch()
            self.torch_terms.finish(self._final_torch)
            self._observe.launch()
        else:
            self._after_and_observe.launch()
        self._observe_resets()
        if self.torch_terms:
            self.torch_terms.observe(self._out_torch)
        self.write_back()
        self._images.update()

    def write_back(self) -> None:
        """Write the rows that ``state.dirty`` marks back into the engine."""
        self.engine.write_back(self._arrays["dirty"])

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

    # -- commands, parameters, metrics -------------------------------------------------------------------------------

    @property
    def action_bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(A,) least and greatest useful actions; see `Scene.action_bounds`."""
        low, high = torch.tensor(self.scene.action_bounds(), dtype=torch.float32, device=self.device).unbind(1)
        return low, high

    def set_command(self, value: tuple[float, ...] | torch.Tensor | None, env_ids: torch.Tensor | None = None) -> None:
        """Hold the command at ``value`` (width,) or (n, width) in the worlds ``env_ids`` (None: all); None ends it."""
        where = slice(None) if env_ids is None else env_ids
        if value is not None:
            self.state.command[where] = self._vector("command", value, self.scene.sizes["command"])
        self.state.command_hold[where] = int(value is not None)

    def _vector(self, name: str, value: Any, width: int) -> torch.Tensor:
        """Return numbers of the caller as a tensor (width,) or (n, width); raise ValueError for anything else."""
        try:
            values = torch.as_tensor(value, dtype=torch.float32, device=self.device)
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(f"{name}={value!r}: must be {width} numbers") from None
        if values.ndim == 0 or values.shape[-1] != width:
            raise ValueError(f"{name}={value!r}: task {self.cfg.name!r} needs {width} components")
        if not torch.isfinite(values).all():
            raise ValueError(f"{name}={value!r}: must be finite")
        return values

    def push(self, delta_v: tuple[float, float, float], env_ids: torch.Tensor | None = None) -> None:
        """Add a velocity step [m/s], world frame, to the base of the worlds ``env_ids`` (None: all)."""
        if not self.scene.entity.base:
            raise ValueError(f"push={delta_v!r}: robot {self.scene.robot.name!r} has a fixed base, which nothing moves")
        where = slice(None) if env_ids is None else env_ids
        at = self.scene.entity.base_dof
        self.state.qvel[where, at : at + 3] += self._vector("push", delta_v, 3)
        self.state.dirty[where] = 1
        self.write_back()

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
        self.write_back()

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
            (per second, of all steps), ``termination/<name>`` (share of ended episodes), ``tracking/<metric>``,
            ``episodes``, ``quarantined`` (rows: worlds, or robots of a team), and, if there are any,
            ``quarantined/<reason>``.
        """
        self._quarantine.collect()
        self._log_rewards()
        log = self._log.numpy().sum(axis=0)
        self._log.zero_()
        episodes, length = log[layout.LOG_EPISODES], log[layout.LOG_LENGTH]
        faults = log[layout.LOG_FAULTS : layout.LOG_TERMS]
        metrics = {"episodes": float(episodes), "quarantined": float(faults.sum())}
        metrics |= {f"quarantined/{name}": float(n) for name, n in zip(REASONS, faults, strict=True) if n > 0}
        if episodes > 0:
            metrics["episode/return"] = float(log[layout.LOG_RETURN] / episodes)
            metrics["episode/length_s"] = float(length / episodes)
        steps = log[layout.LOG_STEPS]
        divisors = {"reward": steps * self.step_dt, "termination": episodes, "tracking": steps}
        for name, k in self._layout.log.items():
            if (divisor := divisors[name.split("/")[0]]) > 0:
                metrics[name] = float(log[k] / divisor)
        return metrics

    def _log_rewards(self) -> None:
        """Move the sums of the reward terms, the first terms of the log, into the log."""
        first, sums = layout.LOG_TERMS, self.state.reward_sums
        wp.to_torch(self._log)[0, first : first + sums.shape[1]] += sums.double().sum(0)
        sums.zero_()

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
        images, as they are delivered now: depth in m, 0 for a missing value, colors in [0, 1].
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
        self._log_rewards()
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
        self.write_back()
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

    def close(self) -> None:
        """Write the last quarantined worlds and end the threads, but for the engine's."""
        self._quarantine.collect()
        self._recorder.close()
        self._images.close()
