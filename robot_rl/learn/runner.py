"""The training loop: collect a rollout, learn from it, write what happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from robot_rl.config import LearnerCfg
from robot_rl.learn.build import make_augmentation, make_extras
from robot_rl.learn.distill import Distill
from robot_rl.learn.interrupt import StopRequest
from robot_rl.learn.layout import make_layout
from robot_rl.learn.ppo import PPO
from robot_rl.learn.ranks import ALONE, Ranks
from robot_rl.learn.session import Observer, Session
from robot_rl.learn.storage import Rollout, make_rollout
from robot_rl.learn.timing import Stopwatch
from robot_rl.learn.worlds import under
from robot_rl.metrics.writers import MetricsWriter


class Runner(Session):
    """Trains a policy in an environment by proximal policy optimization, or by imitating a teacher.

    Attributes:
        algorithm: improves actor and critic.
    """

    def __init__(
        self,
        env: VecEnv,
        cfg: LearnerCfg,
        *,
        run_dir: Path | None = None,
        seed: int = 1,
        observer: Observer | Iterable[Observer] | None = None,
        writer: MetricsWriter | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        """Build the networks and allocate the rollout; the arguments are those of `Session`."""
        super().__init__(env, cfg, run_dir=run_dir, seed=seed, observer=observer, writer=writer, ranks=ranks)
        self._noise_source = torch.Generator(self.device).manual_seed(ranks.seed(seed + 1))
        self._order_source = torch.Generator(self.device).manual_seed(ranks.seed(seed + 2))
        augmentation = make_augmentation(cfg, self.dims, self.mirrors, self.device)
        self.extras = make_extras(cfg, env, self.dims, self.device, seed=seed, ranks=ranks)
        algorithm = Distill if cfg.name == "distill" else PPO
        self.algorithm = algorithm(
            self.actor,
            self.critic,
            cfg.ppo,
            symmetry=augmentation,
            generator=self._order_source,
            extras=self.extras,
            reward_weights=cfg.reward_weights,
            ranks=ranks,
        )
        ranks.broadcast_(weight for extra in self.extras for weight in extra.parameters())
        obs = env.get_observations()
        self._kept = {group: make_layout(obs, (group,), extra.name) for extra in self.extras for group in extra.groups}
        self._rollout = make_rollout(
            cfg.num_steps,
            env.num_envs,
            self.dims,
            self.device,
            out_dim=self.actor.distribution.out_dim,
            groups={group: layout.size for group, layout in self._kept.items()},
        )
        self._rollout.hold_states(cfg.sequence, self.actor.state_size, self.critic.state_size)
        self._memory = self._make_memory()
        self._watch = Stopwatch(self.device)
        self._obs: TensorDict | None = None

    def _run(self, last: int, stop: StopRequest) -> dict[str, float]:
        row: dict[str, float] = {}
        while self.iteration < last:
            row = self._iterate(last)
            if self._is_enough(row):
                break
        return row

    def _state(self) -> dict[str, Tensor]:
        state = {f"optimizer.{name}": tensor for name, tensor in self.algorithm.optimizer.state_dict().items()}
        for extra in self.extras:
            state |= {f"extra.{extra.name}.{name}": tensor for name, tensor in extra.state_dict().items()}
        return state | {name: stream.get_state() for name, stream in self._streams().items()}

    def _loaded(self, state: Mapping[str, Tensor]) -> None:
        if state:
            self._obs = None  # Those of the worlds that were left.
            self.algorithm.optimizer.load_state_dict(under(state, "optimizer."))
            for extra in self.extras:
                extra.load_state_dict(under(state, f"extra.{extra.name}."))
            for name, stream in self._streams().items():
                stream.set_state(state[name])

    def _worlds(self) -> dict[str, Tensor]:
        state = super()._worlds() | {f"memory.{name}": tensor for name, tensor in self._memory.items()}
        for extra in self.extras:
            state |= {f"extra.{extra.name}.{name}": tensor for name, tensor in extra.worlds().items()}
        return state

    def _streams(self) -> dict[str, torch.Generator]:
        return {"random.noise": self._noise_source, "random.order": self._order_source}

    def _unsound(self) -> list[str]:
        seen = self._rollout
        parts = {"observations": (seen.actor_obs, seen.critic_obs), "actions": (seen.out,), "rewards": (seen.reward,)}
        return [name for name, tensors in parts.items() if not all(bool(t.isfinite().all()) for t in tensors)]

    def _described(self) -> dict[str, Any]:
        return {"extras": {extra.name: extra.described() for extra in self.extras}}

    def _check(self, meta: Mapping[str, Any]) -> None:
        for extra in self.extras:
            extra.check(meta.get("extras", {}).get(extra.name, {}))

    def _start(self) -> TensorDict:
        """Return the first observations; at the very start the worlds are put at random times of their episode."""
        obs = self.env.get_observations()
        if self.cfg.stagger_episodes and self.iteration == 0:
            ages = torch.rand(self.env.num_envs, generator=self._noise_source, device=self.device)
            self.env.episode_length_buf.copy_((ages * self.env.max_episode_length).to(torch.int64))
        anew = (self.env.episode_length_buf == 0).to(self.device)  # A resumed run may go on in worlds that begin anew.
        for tensor in self._worlds().values():
            tensor.masked_fill_(anew.view(-1, *(1,) * (tensor.ndim - 1)), 0.0)
        return obs

    def _make_memory(self) -> dict[str, Tensor]:
        """Return what is remembered from rollout to rollout, (N, S) each: "actor", "critic"; empty without a memory."""
        memory = {}
        if self.actor.state_size:
            memory["actor"] = torch.zeros(self.env.num_envs, self.actor.state_size, device=self.device)
        if self._rollout.critic_after is not None:
            memory["critic"] = self._rollout.critic_after
        return memory

    def _iterate(self, last: int) -> dict[str, float]:
        """Run one iteration and return its row of metrics. The device is read once, at the end."""
        self._guard()
        self._watch.start()
        self._collect()
        self._watch.lap("other")
        statistics = self.algorithm.update(self._rollout, self.iteration / max(last, 1))
        statistics["policy/learning_rate"] = self.algorithm.optimizer.learning_rate
        if (spread := self.actor.distribution.spread(self._rollout.out)) is not None:
            statistics["policy/std"] = spread
        self._watch.lap("learn")
        values = torch.stack(list(statistics.values())).tolist()
        metrics = dict(zip(statistics, values, strict=True))
        metrics |= self._pop_metrics()
        return self._finish_iteration(metrics, self._watch.read())

    @torch.no_grad()
    def _collect(self) -> None:
        """Fill the rollout. Nothing is read from the device; the environment's tensors are copied at once."""
        rollout, watch, memory = self._rollout, self._watch, self._memory.get("actor")
        obs = self._start() if self._obs is None else self._obs
        distribution = self.actor.distribution
        distribution.draw_noise(rollout.noise, self._noise_source)
        rollout.begin()
        frozen = distribution.snapshot()
        watch.lap("infer")
        for t in range(self.cfg.num_steps):
            self._observe(obs, t)
            self.actor.layout.gather(obs, rollout.actor_obs[t])
            watch.lap("other")
            if memory is not None and rollout.actor_state is not None and t % rollout.sequence == 0:
                rollout.actor_state[t // rollout.sequence].copy_(memory)
            action, out = self.actor.act(rollout.actor_obs[t], rollout.noise[t], frozen, memory)
            rollout.action[t].copy_(action)
            rollout.out[t].copy_(out)
            env_action = distribution.to_env(action)
            for extra in self.extras:
                env_action = extra.act(obs, t, env_action)
            watch.lap("infer")
            obs, reward, done, extras = self.env.step(env_action)
            watch.lap("simulate")
            self._record(rollout, t, reward, done, extras)
            if memory is not None:
                memory.masked_fill_(rollout.ended(t)[:, None], 0.0)
            for extra in self.extras:
                extra.forget(rollout.ended(t))
            watch.lap("other")
        self._observe(obs, self.cfg.num_steps)
        if rollout.has_invalid:
            rollout.blank_invalid()
        self._obs = obs

    def _observe(self, obs: TensorDict, t: int) -> None:
        """Copy what others than the actor see into row t of the rollout."""
        self.critic.layout.gather(obs, self._rollout.critic_obs[t])
        for group, layout in self._kept.items():
            layout.gather(obs, self._rollout.groups[group][t])

    def _record(self, rollout: Rollout, t: int, reward: Tensor, done: Tensor, extras: dict[str, Any]) -> None:
        """Copy what a step returned into row t of the rollout."""
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
            self.critic.layout.gather(final, rollout.final_obs[t])
            for group, layout in self._kept.items():
                layout.gather(final, rollout.ends[group][t])
        if "valid" in extras:
            rollout.has_invalid = True
            rollout.valid[t].copy_(extras["valid"].view(-1))
        if self._tracker is not None:
            self._tracker.add(reward.view(-1), rollout.done[t], extras.get("log", {}))
