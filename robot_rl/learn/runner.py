"""The training loop: collect a rollout, learn from it, write what happened, keep checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from robot_rl.config import LearnerCfg, to_dict
from robot_rl.errors import Interrupted
from robot_rl.learn.build import checked_mirrors, group_dim, make_augmentation, make_networks, mirrors_to_meta
from robot_rl.learn.checkpoint import check_shapes, load_checkpoint, save_checkpoint
from robot_rl.learn.episodes import EpisodeTracker
from robot_rl.learn.interrupt import StopRequest
from robot_rl.learn.ppo import PPO
from robot_rl.learn.storage import Dims, Rollout, make_rollout
from robot_rl.learn.timing import Stopwatch
from robot_rl.metrics.writers import MetricsWriter

Observer = Callable[[dict[str, float]], bool | None]
"""Called once an iteration with the row of metrics; returning True ends the training."""


class Runner:
    """Trains a policy in an environment.

    Attributes:
        env: the environment.
        cfg: the learner's configuration.
        actor: the policy.
        critic: the value function.
        algorithm: improves both.
        iteration: iterations finished.
        env_steps: control steps finished, over all worlds.
        time_s: time spent in training [s].
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
    ) -> None:
        """Build the networks and allocate the rollout.

        Args:
            env: any rsl_rl environment. Used where there: `mirror`, `pop_metrics()`, `step_dt`, and in the extras of a
                step "time_outs" (N,), "final_obs" (observations at which episodes ended) and "valid" (N,).
            cfg: the learner's configuration.
            run_dir: where metrics and checkpoints go; None keeps nothing.
            seed: of weights, actions and minibatches; the environment has its own.
            observer: called once an iteration, or several of them; one that returns True ends the training.
            writer: takes the metrics; made for `run_dir` where None.
        """
        self.env, self.cfg, self.seed = env, cfg, seed
        self.run_dir = None if run_dir is None else Path(run_dir)
        self.device = torch.device(env.device)
        self._observers = [observer] if callable(observer) else list(observer or [])
        self._writer = writer
        self._obs: TensorDict | None = None
        obs = env.get_observations()
        self.dims = Dims(
            actor=group_dim(obs, cfg.actor_groups, "actor_groups"),
            critic=group_dim(obs, cfg.critic_groups, "critic_groups"),
            action=env.num_actions,
        )
        mirrors = getattr(env, "mirror", None)
        self._mirrors = checked_mirrors(cfg, self.dims, mirrors)
        actor, critic = make_networks(cfg, self.dims, mirrors, torch.Generator().manual_seed(seed))
        self.actor, self.critic = actor.to(self.device), critic.to(self.device)
        self._noise_source = torch.Generator(self.device).manual_seed(seed + 1)
        self._order_source = torch.Generator(self.device).manual_seed(seed + 2)
        augmentation = make_augmentation(cfg, self.dims, mirrors, self.device)
        self.algorithm = PPO(self.actor, self.critic, cfg.ppo, symmetry=augmentation, generator=self._order_source)
        self._rollout = make_rollout(cfg.num_steps, env.num_envs, self.dims, self.device)
        own_metrics = getattr(env, "pop_metrics", None)
        tracker = EpisodeTracker(env.num_envs, float(getattr(env, "step_dt", 1.0)), self.device)
        self._tracker = None if own_metrics else tracker
        self._pop_metrics: Callable[[], dict[str, float]] = own_metrics or tracker.pop
        self._watch = Stopwatch(self.device)
        self.iteration, self.env_steps, self.time_s = 0, 0, 0.0
        self.checkpoint: Path | None = None

    def learn(self, max_iterations: int | None = None) -> dict[str, float]:
        """Train until so many iterations are done in all, an observer says stop, or the user interrupts.

        Args:
            max_iterations: iterations in all, those of a loaded checkpoint among them; cfg.max_iterations where None.

        Returns:
            The last row of metrics.

        Raises:
            Interrupted: the user pressed Ctrl-C; the iteration was finished and a checkpoint written before.
            FloatingPointError: the loss is no longer finite.
        """
        last = self.cfg.max_iterations if max_iterations is None else max_iterations
        writer = self._writer
        if writer is None and self.run_dir is not None:
            writer = MetricsWriter(self.run_dir)
        row: dict[str, float] = {}
        try:
            with StopRequest() as stop:
                while self.iteration < last and not stop.requested:
                    row = self._iterate(last)
                    if writer is not None:
                        writer.write(self.iteration, row)
                    is_enough = [observer(row) for observer in self._observers]
                    if self.iteration % self.cfg.save_interval == 0:
                        self.save()
                    if any(is_enough):
                        break
                if self.checkpoint is None or self.checkpoint.name != self._checkpoint_name():
                    self.save()
                if stop.requested:
                    raise Interrupted(self.checkpoint, self.iteration)
        finally:
            if writer is not None and writer is not self._writer:
                writer.close()
        return row

    def save(self) -> Path | None:
        """Write a checkpoint into the run's directory and return it; None where the run has no directory."""
        if self.run_dir is None:
            return None
        meta = {
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            "time_s": self.time_s,
            "seed": self.seed,
            "learner": to_dict(self.cfg),
            "dims": to_dict(self.dims),
            "mirror": mirrors_to_meta(self._mirrors),
            "torch": torch.__version__,
        }
        path = self.run_dir / "checkpoints" / self._checkpoint_name()
        self.checkpoint = save_checkpoint(path, self._tensors(), meta)
        return self.checkpoint

    def load(self, path: Path, *, weights_only: bool = False) -> None:
        """Take over a checkpoint.

        Args:
            path: the checkpoint.
            weights_only: take networks and normalizers alone, to begin a new training from them.

        Raises:
            UserError: it is missing, damaged, or of another architecture (with both shapes).
        """
        tensors, meta = load_checkpoint(path)
        wanted = self._tensors()
        if weights_only:
            wanted = {name: t for name, t in wanted.items() if name.startswith(("actor.", "critic."))}
        check_shapes(path, tensors, wanted)
        for prefix, network in (("actor.", self.actor), ("critic.", self.critic)):
            network.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
        if weights_only:
            return
        prefix = "optimizer."
        self.algorithm.optimizer.load_state_dict(
            {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        )
        self._noise_source.set_state(tensors["random.noise"])
        self._order_source.set_state(tensors["random.order"])
        self.iteration, self.env_steps, self.time_s = meta["iteration"], meta["env_steps"], meta["time_s"]

    def _tensors(self) -> dict[str, Tensor]:
        """Return everything that a checkpoint keeps."""
        parts = {"actor": self.actor, "critic": self.critic, "optimizer": self.algorithm.optimizer}
        tensors = {f"{part}.{k}": v for part, source in parts.items() for k, v in source.state_dict().items()}
        return tensors | {
            "random.noise": self._noise_source.get_state(),
            "random.order": self._order_source.get_state(),
        }

    def _checkpoint_name(self) -> str:
        return f"{self.iteration:06d}"

    def _start(self) -> TensorDict:
        """Return the first observations; at the very start the worlds are put at random times of their episode."""
        obs = self.env.get_observations()
        if self.cfg.stagger_episodes and self.iteration == 0:
            ages = torch.rand(self.env.num_envs, generator=self._noise_source, device=self.device)
            self.env.episode_length_buf.copy_((ages * self.env.max_episode_length).to(torch.int64))
        return obs

    def _iterate(self, last: int) -> dict[str, float]:
        """Run one iteration and return its metrics."""
        begin = time.perf_counter()
        self._watch.start()
        self._collect()
        self._watch.lap("other")
        statistics = self.algorithm.update(self._rollout, self.iteration / max(last, 1))
        self._watch.lap("learn")
        names = [*statistics, "policy/learning_rate", "policy/std"]
        std = self.actor.current_log_std().detach().exp().mean()
        values = torch.stack([*statistics.values(), self.algorithm.optimizer.learning_rate, std]).tolist()
        metrics = self._pop_metrics()
        seconds, elapsed = self._watch.read(), time.perf_counter() - begin
        self.iteration += 1
        self.env_steps += self.cfg.num_steps * self.env.num_envs
        self.time_s += elapsed
        row: dict[str, Any] = {"iteration": self.iteration, "env_steps": self.env_steps, "time_s": self.time_s}
        row["perf/steps_per_s"] = self.cfg.num_steps * self.env.num_envs / elapsed
        parts = {part: seconds.get(part, 0.0) for part in ("simulate", "infer", "learn")}
        row |= {f"perf/{part}_s": value for part, value in parts.items()}
        row["perf/other_s"] = max(0.0, elapsed - sum(parts.values()))
        row |= dict(zip(names, values, strict=True)) | metrics
        if not math.isfinite(row["loss/value"]) or not math.isfinite(row["loss/surrogate"]):
            raise FloatingPointError(f"the loss is not finite at iteration {self.iteration}: value {row['loss/value']}")
        return row

    @torch.no_grad()
    def _collect(self) -> None:
        """Fill the rollout. Nothing is read from the device; the environment's tensors are copied at once."""
        rollout, watch = self._rollout, self._watch
        obs = self._start() if self._obs is None else self._obs
        rollout.noise.normal_(generator=self._noise_source)
        rollout.has_final_obs = rollout.has_invalid = False
        std = self.actor.current_log_std().exp()
        watch.lap("infer")
        for t in range(self.cfg.num_steps):
            torch.cat([obs[group] for group in self.cfg.actor_groups], dim=-1, out=rollout.actor_obs[t])
            torch.cat([obs[group] for group in self.cfg.critic_groups], dim=-1, out=rollout.critic_obs[t])
            watch.lap("other")
            mean = rollout.mean[t].copy_(self.actor.mean(rollout.actor_obs[t]))
            action = torch.addcmul(mean, std, rollout.noise[t], out=rollout.action[t])
            watch.lap("infer")
            obs, reward, done, extras = self.env.step(action)
            watch.lap("simulate")
            self._record(rollout, t, reward, done, extras)
            watch.lap("other")
        torch.cat([obs[group] for group in self.cfg.critic_groups], dim=-1, out=rollout.critic_obs[-1])
        if rollout.has_invalid:
            _blank_invalid(rollout)
        self._obs = obs

    def _record(self, rollout: Rollout, t: int, reward: Tensor, done: Tensor, extras: dict[str, Any]) -> None:
        """Copy what a step returned into row t of the rollout."""
        rollout.reward[t].copy_(reward.view(-1))
        rollout.done[t].copy_(done.view(-1))
        if "time_outs" in extras:
            torch.logical_and(extras["time_outs"].view(-1), rollout.done[t], out=rollout.time_out[t])
        else:
            rollout.time_out[t].zero_()
        if "final_obs" in extras:
            rollout.has_final_obs = True
            final = extras["final_obs"]
            torch.cat([final[group] for group in self.cfg.critic_groups], dim=-1, out=rollout.final_obs[t])
        if "valid" in extras:
            rollout.has_invalid = True
            rollout.valid[t].copy_(extras["valid"].view(-1))
        if self._tracker is not None:
            self._tracker.add(rollout.reward[t], rollout.done[t], extras.get("log", {}))


def _blank_invalid(rollout: Rollout) -> None:
    """Replace what a quarantined world left in the rollout, which need not be finite, by zeros."""
    bad = ~rollout.valid
    for tensor in (rollout.actor_obs, rollout.critic_obs[:-1], rollout.final_obs, rollout.action, rollout.mean):
        tensor.masked_fill_(bad[..., None], 0.0)
    rollout.reward.masked_fill_(bad, 0.0)
