"""FlashSAC: soft actor-critic (Haarnoja et al. 2018) with few large updates (arXiv 2604.04539).

Weights, features and gradients are bounded (`layers`), the critics learn distributions of returns, rewards are divided
by the deviation of their discounted sum, exploration noise is held for several steps, and the temperature steers the
entropy of actions in (-1, 1). Departures from the paper: observations are normalized by their running mean
and deviation before the first layer, mirrored transitions take the place of every other one if the task is
symmetric, and the defaults are smaller networks and batches, for a CPU.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.errors import UserError
from robot_rl.learn.algorithm import Algorithm, Context, Snapshot, carry
from robot_rl.learn.algorithms.flashsac.config import FlashSACLearnerCfg
from robot_rl.learn.algorithms.flashsac.networks import Critics, FlashActor, project_target
from robot_rl.learn.dims import EnvSpec, Mirrors
from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.learn.networks.normalizer import Normalizer
from robot_rl.learn.networks.symmetry import Mirror, reflect
from robot_rl.learn.optim import FlatAdam
from robot_rl.learn.ranks import ProcessGroup
from robot_rl.learn.replay import Replay, make_replay
from robot_rl.learn.rollout import MOST_AGES, Rollout

DRAW, HOLD = 2, 3
"""Added to the run's seed for the streams of the replay memory and of how long noise is held."""
STATISTICS: tuple[str, ...] = (
    "loss/critic",
    "loss/policy",
    "loss/temperature",
    "policy/entropy",
    "policy/temperature",
    "value/mean",
)


class HeldNoise:
    """Exploration noise that a world keeps for k steps, with a probability of 1 / k^2.

    Attributes:
        noise: (N, A) the noise of each world.
        left: (N,) steps that it is still kept for.
    """

    def __init__(self, worlds: int, size: int, longest: int, generator: torch.Generator) -> None:
        """Begin with noise for no step.

        Args:
            worlds: worlds N.
            size: components A of an action.
            longest: most steps for which noise is kept.
            generator: source of the numbers of steps.
        """
        device, self.generator = generator.device, generator
        self.noise = torch.zeros(worlds, size, device=device)
        self.left = torch.zeros(worlds, dtype=torch.int64, device=device)
        share = 1.0 / torch.arange(1, longest + 1, dtype=torch.float64).square()
        self._bounds = (share.cumsum(0) / share.sum())[:-1].to(device, torch.float32)

    def hold(self, fresh: Tensor) -> None:
        """Replace fresh noise (T, N, A) in place by the noise that is kept."""
        drawn = torch.rand(fresh.shape[:2], generator=self.generator, device=fresh.device)
        steps = torch.bucketize(drawn, self._bounds) + 1
        for t in range(len(fresh)):
            ended = self.left <= 0
            self.noise.copy_(torch.where(ended[:, None], fresh[t], self.noise))
            self.left.copy_(torch.where(ended, steps[t], self.left) - 1)
            fresh[t].copy_(self.noise)

    def forget(self, ended: Tensor) -> None:
        """Hold no noise in worlds (N,) bool whose episode ended."""
        self.noise.masked_fill_(ended[:, None], 0.0)
        self.left.masked_fill_(ended, 0)


class HeldSnapshot(Snapshot):
    """The policy with exploration noise that is held; random actions while nothing was learned.

    The noise, and for how long it is held, belong to the worlds: they continue when the weights are replaced.
    """

    def __init__(self, actor: Actor, version: int, held: HeldNoise, *, is_random: bool) -> None:
        """Take the policy as it is.

        Args:
            actor: the policy; it carries "is_random", which counts for weights that are followed later.
            version: iterations that it has learned for.
            held: the noise.
            is_random: act without the policy.
        """
        super().__init__(actor, version)
        self._held, self._is_random, self.capturable = held, is_random, not is_random

    def follow(self, actor: Actor, version: int) -> None:
        """Act with the weights that an actor has now, and without it if it carries that."""
        super().follow(actor, version)
        self._is_random = bool(actor.carried_is_random)
        self.capturable = not self._is_random

    def begin(self, rollout: Rollout, generator: torch.Generator) -> None:
        """Draw the random numbers of a rollout's actions, and note who acts."""
        super().begin(rollout, generator)
        self._held.hold(rollout.noise)

    def act(self, rollout: Rollout, t: int, memory: Tensor | None) -> Tensor:
        """Act at the observations in row t of a rollout, and note the actions there."""
        action = super().act(rollout, t, memory)
        if not self._is_random:
            return action
        rollout.action[t].copy_(rollout.noise[t])
        return self.actor.distribution.to_env(rollout.action[t])

    def record(self, rollout: Rollout) -> None:
        """Record the distribution that acted, and hold no noise over the end of an episode."""
        super().record(rollout)
        self._held.forget(rollout.ended(-1))


class ReturnScale(nn.Module):
    """What rewards are divided by: the deviation of their discounted sum, and at least its maximum over a bound.

    Attributes:
        running: (N,) discounted sum of each world's rewards.
        largest: () largest magnitude of such a sum so far.
        statistics: mean and deviation of the sums.
    """

    running: Tensor
    largest: Tensor

    def __init__(self, worlds: int, gamma: float, bound: float) -> None:
        """Begin with nothing seen.

        Args:
            worlds: worlds N.
            gamma: discount a step.
            bound: largest magnitude that a scaled sum may have.
        """
        super().__init__()
        self.gamma, self.bound = gamma, bound
        self.register_buffer("running", torch.zeros(worlds), persistent=False)
        self.register_buffer("largest", torch.zeros(()))
        self.statistics = Normalizer(1)

    def update(self, rollout: Rollout, ranks: ProcessGroup) -> None:
        """Take in the rewards of a rollout."""
        sums = torch.empty_like(rollout.reward)
        ended = rollout.done | ~rollout.valid
        for columns, worlds in rollout.by_world():
            running = self.running[worlds]
            for t in range(len(sums)):
                running.mul_(self.gamma).add_(rollout.reward[t, columns])
                sums[t, columns] = running
                running.masked_fill_(ended[t, columns], 0.0)
        torch.maximum(self.largest, ranks.max_(sums.abs().max()), out=self.largest)
        self.statistics.update(sums.reshape(-1, 1), rollout.valid.reshape(-1) if rollout.has_invalid else None, ranks)

    def forward(self) -> Tensor:
        """Return the divisor ()."""
        return torch.maximum((self.statistics.var[0] + 1e-8).sqrt(), self.largest / self.bound)


class Temperature(nn.Module):
    """The weight of the entropy, by its logarithm."""

    def __init__(self, start: float) -> None:
        """Begin at a temperature."""
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(start)))


class FlashSAC(Algorithm):
    """Improves a policy from everything that the last policies did.

    Attributes:
        actor: the policy.
        critics: two distributions of returns.
        target: their slow copies.
        temperature: weight of the entropy.
        replay: the transitions.
        max_age: versions by which rollouts may be older, each with its own statistic.
    """

    actor: FlashActor
    indexed_by_world = True

    def __init__(self, cfg: FlashSACLearnerCfg, context: Context) -> None:
        """Build networks and replay memory.

        Args:
            cfg: the settings.
            context: its environment and processes.

        Raises:
            UserError: discrete actions, an action without a range, or a rollout larger than the replay memory.
        """
        dims, device, flash = context.dims, context.device, cfg.flashsac
        generator = torch.Generator().manual_seed(context.seed)
        self.cfg, self.ranks = flash, context.ranks
        self.actor = FlashActor(cfg, dims, generator)
        self._bound_actions(context.env)
        self.actor.to(device)
        self.critics = Critics(dims.critic, dims.action, flash, generator).to(device)
        self.target = copy.deepcopy(self.critics).requires_grad_(False)
        self.temperature = Temperature(flash.temperature).to(device)
        self.normalizer = Normalizer(dims.critic).to(device)
        self.scale = ReturnScale(context.env.num_envs, flash.gamma, flash.value_bound).to(device)
        parts = (self.actor, self.critics, self.temperature)
        self._optimizers = {
            name: FlatAdam((part,), flash.learning_rate, flash.max_grad_norm, ranks=context.ranks)
            for name, part in zip(("policy", "critics", "temperature"), parts, strict=True)
        }
        self._mirrors = _moved(context) if cfg.symmetry == "augment" else None
        self.draws = context.generator(DRAW)
        self.held = HeldNoise(context.env.num_envs, dims.action, flash.noise_repeat, context.generator(HOLD))
        sizes = {"actor": dims.actor, "critic": dims.critic, "action": dims.action}
        self.replay = make_replay("flashsac.replay", flash.replay, cfg.num_steps, context, sizes)
        self._entropy = dims.action * (0.5 + 0.5 * math.log(2.0 * math.pi * flash.target_std**2))
        self.steps = torch.zeros((), dtype=torch.int64)
        self._due = torch.zeros((), dtype=torch.float64)
        self.max_age = min(max(1, cfg.staleness.max), MOST_AGES)
        carry(self.actor, "is_random", torch.tensor(float(not self._is_warm), device=device))

    def modules(self) -> dict[str, nn.Module]:
        """Return policy, critics, their targets, temperature, and the scales of observations and rewards."""
        return {
            "actor": self.actor,
            "critic": self.critics,
            "target": self.target,
            "temperature": self.temperature,
            "observations": self.normalizer,
            "returns": self.scale,
        }

    def stateful(self) -> dict[str, Any]:
        """Return the replay memory and the optimizers."""
        return {"replay": self.replay} | {f"optimizer.{name}": each for name, each in self._optimizers.items()}

    def state(self) -> dict[str, Tensor]:
        """Return optimizers, random streams, counters and the replay memory."""
        return super().state() | {"flashsac.steps": self.steps, "flashsac.due": self._due}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Load the output of `state`."""
        super().load_state(state)
        self.steps.copy_(state["flashsac.steps"])
        self._due.copy_(state["flashsac.due"])
        self.actor.carried_is_random.fill_(not self._is_warm)

    def streams(self) -> dict[str, torch.Generator]:
        """Return the stream that transitions are drawn from."""
        return {"random.replay": self.draws}

    def acting_streams(self) -> dict[str, torch.Generator]:
        """Return the stream that decides how long noise is held."""
        return {"random.hold": self.held.generator}

    def worlds(self) -> dict[str, Tensor]:
        """Return each world's discounted sum of rewards."""
        return {"return": self.scale.running}

    def acting_worlds(self) -> dict[str, Tensor]:
        """Return the noise that each world holds."""
        return {"noise": self.held.noise, "noise_left": self.held.left}

    def snapshot(self, version: int) -> Snapshot:
        """Return the policy as it is, with noise that is held."""
        return HeldSnapshot(self.actor, version, self.held, is_random=not self._is_warm)

    def update(self, rollout: Rollout, progress: float) -> dict[str, Tensor]:
        """Keep a rollout, and learn from all that is kept.

        Args:
            rollout: the rollout.
            progress: share of the training that is done, in [0, 1].

        Returns:
            Means of STATISTICS over the gradient steps, and by how much the rollout is older than the learning policy.
        """
        cfg = self.cfg
        keep_transitions(self.replay, rollout, torch.tanh(rollout.action))
        self.actor.carried_is_random.fill_(not self._is_warm)
        self._see(rollout)
        rate = cfg.learning_rate + progress * (cfg.final_learning_rate - cfg.learning_rate)
        for optimizer in self._optimizers.values():
            optimizer.learning_rate.fill_(rate)
        total = torch.zeros(len(STATISTICS), device=rollout.reward.device)
        count = self._count_steps(len(rollout.reward))
        for _ in range(count):
            batch = self._draw()
            critic_loss, value = self.improve_critics(batch)
            total[0] += critic_loss
            total[5] += value
            if int(self.steps) % cfg.policy_period == 0:
                total[1:5] += self.improve_policy(batch)
            self.steps += 1
        policy_steps = max(count // cfg.policy_period, 1)
        means = total / torch.tensor([max(count, 1), *[policy_steps] * 4, max(count, 1)], device=total.device)
        statistics: dict[str, Tensor] = dict(zip(STATISTICS, means.unbind(), strict=True))
        if count == 0:
            statistics["policy/temperature"] = self.temperature.log.detach().exp()
        statistics["policy/learning_rate"] = self._optimizers["policy"].learning_rate
        if (spread := self.actor.distribution.spread(rollout.out)) is not None:
            statistics["policy/std"] = spread
        return statistics | rollout.ages(self.max_age)

    def improve_critics(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Step the critics along their cross-entropy to the projected target, and the targets after them.

        Args:
            batch: transitions (`Replay.draw`), observations normalized and rewards scaled.

        Returns:
            The loss () and the mean value ().
        """
        obs = torch.cat((batch["critic"], batch["next_critic"]))
        with torch.no_grad():
            params = self._params(batch["next_actor"])
            raw = self.actor.distribution.sample(params, self._normal(batch["action"]))
            next_action, log_prob = torch.tanh(raw), self.actor.distribution.log_prob(raw, params)
            actions = torch.cat((batch["action"], next_action))
            self.target.train()  # Both halves are one batch, for the critics and for their targets.
            after = self.target(obs, actions, slice(len(next_action), None))
            less = self.target.mean(after).argmin(0)
            probs = after.gather(0, less[None, :, None].expand(1, -1, after.shape[2]))[0].exp()
            gamma = batch["discount"]
            shift = batch["reward"] - gamma * self.temperature.log.exp() * log_prob
            wanted = project_target(probs, self.target.values, shift, gamma)
        optimizer = self._optimizers["critics"]
        optimizer.zero_grad()
        found = self.critics.train()(obs, actions, slice(len(next_action)))
        loss = (-(wanted * found).sum(-1) * batch["weight"]).mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            self.critics.trunk.project()
            self._follow()
            value = self.critics.mean(found.detach()).mean()
        return loss.detach(), value

    def improve_policy(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Step policy and temperature; return losses, entropy and temperature (4,)."""
        optimizer, temperature = self._optimizers["policy"], self.temperature.log.detach().exp()
        optimizer.zero_grad()
        self.actor.train()
        both = torch.cat((batch["actor"], batch["next_actor"]))
        params = self.actor.distribution.params(self.actor.body(both, slice(len(both) // 2)))
        self.actor.eval()
        raw = self.actor.distribution.sample(params, self._normal(batch["action"]))
        log_prob = self.actor.distribution.log_prob(raw, params)
        self.critics.eval().requires_grad_(False)
        value = self.critics.mean(self.critics(batch["critic"], torch.tanh(raw))).min(0).values
        self.critics.requires_grad_(True)
        loss = ((temperature * log_prob - value) * batch["weight"]).mean()
        loss.backward()
        optimizer.step()
        self.actor.body.trunk.project()
        entropy = -log_prob.detach().mean()
        optimizer = self._optimizers["temperature"]
        optimizer.zero_grad()
        temperature_loss = self.temperature.log.exp() * (entropy - self._entropy)
        temperature_loss.backward()
        optimizer.step()
        return torch.stack((loss.detach(), temperature_loss.detach(), entropy, temperature))

    def _bound_actions(self, env: Any) -> None:
        """Set the ranges of the actions to the environment's bounds, within `max_action`."""
        if not hasattr(type(env), "action_bounds") or env.action_bounds is None:
            return
        limit = self.cfg.max_action
        low, high = (bound.cpu() for bound in env.action_bounds)
        if bool((low >= limit).any() or (high <= -limit).any()):
            least = float(torch.maximum(low, -high).max())
            raise UserError("flashsac.max_action", limit, "leaves an action no range", f"give more than {least:.3g}")
        self.actor.distribution.set_range(low.clamp(min=-limit), high.clamp(max=limit))

    @property
    def _is_warm(self) -> bool:
        return int(self.replay.counts.sum()) >= self.cfg.warm_up

    def _count_steps(self, control_steps: int) -> int:
        """Return the gradient steps that are due after so many control steps."""
        if not self._is_warm or self.replay.size < self.cfg.horizon:
            return 0
        self._due += self.cfg.updates * control_steps
        count = int(self._due)
        self._due -= count
        return count

    def _see(self, rollout: Rollout) -> None:
        """Let the normalizers see a rollout."""
        valid = rollout.valid.reshape(-1) if rollout.has_invalid else None
        if self.actor.normalizer is not None:
            self.actor.normalizer.update(rollout.actor_obs.flatten(0, 1), valid, self.ranks)
        self.normalizer.update(rollout.critic_obs[:-1].flatten(0, 1), valid, self.ranks)
        self.scale.update(rollout, self.ranks)

    def _draw(self) -> dict[str, Tensor]:
        """Return transitions with normalized observations and scaled rewards, every other one mirrored."""
        batch = self.replay.draw(self.cfg.batch, self.draws, self.cfg.gamma, self.cfg.horizon)
        if self._mirrors is not None:
            half = self.cfg.batch // 2
            for name, mirror in self._mirrors.items():
                for key in (name, f"next_{name}"):
                    if key in batch:
                        batch[key][:half] = reflect(batch[key][:half], mirror)
        for key in ("critic", "next_critic"):
            batch[key] = self.normalizer(batch[key])
        if (normalizer := self.actor.normalizer) is not None:
            for key in ("actor", "next_actor"):
                batch[key] = normalizer(batch[key])
        batch["reward"] = batch["reward"] / self.scale()
        return batch

    def _params(self, obs: Tensor) -> Any:
        """Return the policy's parameters at normalized observations (B, D)."""
        return self.actor.distribution.params(self.actor.body(obs))

    def _normal(self, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=self.draws, device=like.device)

    def _follow(self) -> None:
        """Let the targets take over a share of the critics."""
        tau = self.cfg.tau
        for slow, fast in zip(self.target.parameters(), self.critics.parameters(), strict=True):
            slow.lerp_(fast, tau)
        self.target.trunk.project()


def keep_transitions(replay: Replay, rollout: Rollout, action: Tensor) -> None:
    """Put a rollout into a replay memory, with actions (T, N, A) in (-1, 1)."""
    kept = {"actor": rollout.actor_obs, "critic": rollout.critic_obs[:-1], "action": action}
    replay.add(rollout, kept, rollout.valid & ~rollout.time_out)


def _moved(context: Context) -> dict[str, Mirror] | None:
    """Return the mirrors on the learner's device; None if there are none."""
    if context.mirrors is None:
        return None
    return {name: (perm.to(context.device), sign.to(context.device)) for name, (perm, sign) in context.mirrors.items()}


def make_actor(
    cfg: FlashSACLearnerCfg, dims: EnvSpec, mirrors: Mirrors | None, generator: torch.Generator | None = None
) -> FlashActor:
    """Build the policy's network on the CPU."""
    return FlashActor(cfg, dims, generator)


def make_algorithm(cfg: FlashSACLearnerCfg, context: Context) -> FlashSAC:
    """Build networks, replay memory and the algorithm."""
    return FlashSAC(cfg, context)
