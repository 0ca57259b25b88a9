"""Fills rollouts: a snapshot of a policy acts in the environment's worlds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.learn.algorithm import Snapshot
from robot_rl.learn.auxiliaries.auxiliary import RolloutHook
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.graphs import FIRST, CudaRecorder, RecordedRollout, why_not_recorded
from robot_rl.learn.networks.layout import ObservationLayout, make_layout
from robot_rl.learn.rollout import Rollout, RolloutSpec, make_rollout
from robot_rl.learn.timing import Stopwatch
from robot_rl.settings import LearnerCfg

OnStep = Callable[[Tensor, Tensor, Mapping[str, Any]], None]
"""Called with rewards (N,), ends (N,) and the log of each step."""


class Collector:
    """Steps the worlds of an environment and records a rollout.

    On a GPU the steps of a rollout are one CUDA graph where nothing stands against it (`why_not_recorded`).

    Attributes:
        rollout: filled by `collect`, always the same memory.
        noise: source of the actions' random numbers, on the environment's device.
        memory: (N, S) state of a recurrent policy in each world; None without one.
        recorded: the rollouts that are replayed from a graph; None if there are none.
        why_not_recorded: why there are none, in words.
    """

    def __init__(
        self,
        env: VecEnv,
        cfg: LearnerCfg,
        dims: EnvSpec,
        spec: RolloutSpec,
        *,
        noise: torch.Generator,
        on_step: OnStep | None = None,
        watch: Stopwatch | None = None,
    ) -> None:
        """Allocate the rollout; `watch` measures "infer", "simulate" and "other", and `on_step` follows each step.

        Raises UserError if the configuration requires a CUDA graph and there is none.
        """
        self.env, self.noise, self._on_step = env, noise, on_step
        self._device = torch.device(env.device)
        self._watch = watch or Stopwatch(self._device)
        self._stagger, self._num_steps = cfg.stagger_episodes, cfg.num_steps
        obs = env.get_observations()
        self._groups: dict[str, ObservationLayout] = {
            group: make_layout(obs, (group,), setting) for group, setting in spec.groups.items()
        }
        self._actor_layout, self._critic_layout = dims.actor_layout, dims.critic_layout
        self._hooks: Sequence[RolloutHook] = spec.hooks
        self.rollout: Rollout = make_rollout(
            cfg.num_steps,
            env.num_envs,
            dims,
            self._device,
            out_dim=spec.out_dim,
            groups={group: layout.size for group, layout in self._groups.items()},
            recorded={name: size for hook in self._hooks for name, size in hook.recorded.items()},
        )
        self.rollout.hold_states(cfg.sequence, spec.actor_memory, spec.critic_memory)
        self.memory: Tensor | None = None
        if spec.actor_memory:
            self.memory = torch.zeros(env.num_envs, spec.actor_memory, device=self._device)
        self._obs: TensorDict | None = None
        reason = why_not_recorded(env, self._hooks, is_tracked=on_step is not None)
        if reason and cfg.graph == "on":
            raise UserError(f"graph=on: {reason}; use graph=auto")
        self.recorded: RecordedRollout | None = None
        self.why_not_recorded = reason or ("graph=off" if cfg.graph == "off" else "")
        if not self.why_not_recorded:
            # The rollout's small kernels would wait behind the large ones of an update; FIRST lets them pass.
            recorder = CudaRecorder(self._device, with_loops=True, priority=FIRST)
            self.recorded = RecordedRollout(
                env, cfg.num_steps, self._walk_recorded, recorder, is_required=cfg.graph == "on"
            )

    @torch.no_grad()
    def collect(self, policy: Snapshot) -> Rollout:
        """Fill the rollout with steps of a policy and return it; the next call overwrites it.

        Nothing is read from the device; the environment's tensors are copied immediately.
        """
        rollout, watch = self.rollout, self._watch
        if self._obs is None:
            self.start({}, is_first=False)
        obs = self._obs
        assert obs is not None
        rollout.begin()
        policy.begin(rollout, self.noise)
        for hook in self._hooks:
            hook.begin()
        watch.lap("infer")
        after = None if self.recorded is None else self.recorded.run(policy, rollout)
        if after is None:
            after = self._walk(obs, policy, watch.lap)
        else:
            watch.lap("simulate")
        if rollout.has_invalid:
            rollout.zero_invalid()
        policy.record(rollout)
        self._obs = after
        return rollout

    def _walk(self, obs: TensorDict, policy: Snapshot, lap: Callable[[str], None]) -> TensorDict:
        """Take the steps of a rollout from observations, and return the observations after them."""
        rollout, memory = self.rollout, self.memory
        for t in range(self._num_steps):
            self._observe(obs, t)
            self._actor_layout.gather(obs, rollout.actor_obs[t])
            lap("other")
            if memory is not None and rollout.actor_state is not None and t % rollout.sequence == 0:
                rollout.actor_state[t // rollout.sequence].copy_(memory)
            action = policy.act(rollout, t, memory)
            for hook in self._hooks:
                action = hook.act(obs, t, action, rollout)
            lap("infer")
            obs, reward, done, extras = self.env.step(action)
            lap("simulate")
            self._record(t, reward, done, extras)
            if memory is not None:
                memory.masked_fill_(rollout.ended(t)[:, None], 0.0)
            for hook in self._hooks:
                hook.forget(rollout.ended(t))
            lap("other")
        self._observe(obs, self._num_steps)
        return obs

    def _walk_recorded(self, obs: TensorDict, policy: Snapshot) -> TensorDict:
        # The events of a stopwatch would be part of the graph.
        return self._walk(obs, policy, lambda name: None)

    @property
    def has_started(self) -> bool:
        """Whether the next rollout continues from the last one."""
        return self._obs is not None

    def start(self, remembered: Mapping[str, Tensor], *, is_first: bool) -> None:
        """Begin in the worlds as they are; zero the state (N, ...) `remembered` of worlds in which an episode begins.

        If `is_first`, nothing was learned yet, and the worlds are put at random times of their episode.
        """
        self._obs = self.env.get_observations()
        if is_first and self._stagger:
            ages = torch.rand(self.env.num_envs, generator=self.noise, device=self._device)
            self.env.episode_length_buf = (ages * self.env.max_episode_length).to(torch.int64)
        begins = (self.env.episode_length_buf == 0).to(self._device)
        for tensor in remembered.values():
            tensor.masked_fill_(begins.view(-1, *(1,) * (tensor.ndim - 1)), 0.0)

    def leave(self) -> None:
        """Forget the worlds of the last rollout, because others were loaded."""
        self._obs = None

    def worlds(self) -> dict[str, Tensor]:
        """Return the memories of actor and critic, (N, S) each, live."""
        memories = {"memory.actor": self.memory, "memory.critic": self.rollout.critic_after}
        return {name: memory for name, memory in memories.items() if memory is not None}

    def _observe(self, obs: TensorDict, t: int) -> None:
        """Copy all but the actor's observations into row t of the rollout."""
        self._critic_layout.gather(obs, self.rollout.critic_obs[t])
        for group, layout in self._groups.items():
            layout.gather(obs, self.rollout.groups[group][t])

    def _record(self, t: int, reward: Tensor, done: Tensor, extras: dict[str, Any]) -> None:
        """Copy the results of a step into row t of the rollout."""
        rollout = self.rollout
        if rollout.reward.ndim == 3:
            rollout.reward[t].copy_(extras["rewards"])
        else:
            rollout.reward[t].copy_(reward.view(-1))
        rollout.done[t].copy_(done.view(-1))
        if "time_outs" in extras:
            torch.logical_and(extras["time_outs"].view(-1), rollout.done[t], out=rollout.time_out[t])
        else:
            rollout.time_out[t].zero_()
        if "final_obs" in extras:
            rollout.has_final_obs = True
            final = extras["final_obs"]
            self._critic_layout.gather(final, rollout.final_obs[t])
            for group, layout in self._groups.items():
                layout.gather(final, rollout.ends[group][t])
        if "valid" in extras:
            rollout.has_invalid = True
            rollout.valid[t].copy_(extras["valid"].view(-1))
        if self._on_step is not None:
            self._on_step(reward.view(-1), rollout.done[t], extras.get("log", {}))
