"""Learning through a learned world: backpropagation through imagined steps, with a critic at their end.

A model learns the changes of a control step from transitions (`dynamics`). From states of the replay memory the policy
acts in imagined steps, with the observations and rewards of the task itself (`Env.imagine`), and follows the gradient
of their discounted sum and of the critic's value after the last one (SVG, Heess et al. 2015; SHAC, arXiv 2204.07137).
The critic learns from the same steps, by TD(lambda).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.errors import UserError
from robot_rl.learn.algorithm import Algorithm, Context
from robot_rl.learn.algorithms.world_model.config import WorldModelLearnerCfg
from robot_rl.learn.algorithms.world_model.dynamics import Dynamics, Prediction, Sizes
from robot_rl.learn.algorithms.world_model.steps import Steps, Views
from robot_rl.learn.networks.actor_critic import make_actor, make_critic
from robot_rl.learn.networks.layout import Mirror, join_mirrors
from robot_rl.learn.optim import FlatAdam
from robot_rl.learn.replay import make_replay
from robot_rl.learn.rollout import Rollout

DRAW, MODEL_DRAW = 2, 3
"""Added to the run's seed for the streams of the policy's states and imagined noise, and of the model's transitions."""
WORLD = "world"
STATISTICS = ("loss/policy", "loss/critic", "policy/imagined_return", "policy/gradient_norm", "value/mean")
STATISTICS += ("model/left",)
GAP_RATE = 0.2
"""Share of the newest measurement in the gap that the horizon follows."""


class WorldModel(Algorithm):
    """Improves a policy by the gradient of imagined steps.

    Attributes:
        actor: the policy.
        critic: values of privileged observations, and `target` its slow copy.
        model: the dynamics, and `frozen` their copy that an update imagines with.
        replay: the transitions.
        gaps: (H,) running model gap after each number of steps.
        horizon: steps that are imagined on end, as far as the gap allows.
    """

    groups = (WORLD,)
    indexed_by_world = True

    def __init__(self, cfg: WorldModelLearnerCfg, context: Context) -> None:
        """Build networks, imagination and replay memory.

        Args:
            cfg: the settings.
            context: its environment and processes.

        Raises:
            UserError: discrete actions, a task with steps that cannot be imagined, or a rollout larger than memory.
        """
        dims, device, own = context.dims, context.device, cfg.world_model
        if dims.choices:
            raise UserError("learner=world_model: actions are choices, without a gradient; use learner=ppo")
        self.cfg, self.ranks = own, context.ranks
        generator = torch.Generator().manual_seed(context.seed)
        self.actor = make_actor(cfg, dims, context.mirrors, generator).to(device)
        self.critic = make_critic(cfg, dims, context.mirrors, generator).to(device)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.imagination = _imagine(context.env, own.rows, own.horizon)
        # Of its own, since policy and model learn at once.
        self._ahead = _imagine(context.env, own.rows, own.model_horizon) if own.model_horizon > 1 else None
        self.gaps, self.horizon = torch.zeros(own.horizon, device=device), own.horizon
        self.views = Views(cfg, self.imagination.widths)
        self._speeds, around = self.imagination.speeds, self.imagination.context
        width = dims.critic + self._speeds.stop - self._speeds.start
        imagined, count = self.imagination, around.stop - around.start
        modelled = Sizes(width, dims.action, imagined.parts, context=count, gates=imagined.gates)
        self.model = Dynamics(modelled, own.hidden, context.seed, self._mirrors(context.mirrors)).to(device)
        self._rates = {
            "policy": own.learning_rate,
            "critic": own.critic_learning_rate,
            "model": own.model_learning_rate,
        }
        networks = {"policy": self.actor, "critic": self.critic, "model": self.model}
        self._optimizers = {
            name: FlatAdam((network,), self._rates[name], own.max_grad_norm, ranks=context.ranks)
            for name, network in networks.items()
        }
        self.frozen = copy.deepcopy(self.model).requires_grad_(False)
        self._pool, self._told = ThreadPoolExecutor(1, "model"), False
        self.draws, self.model_draws = context.generator(DRAW), context.generator(MODEL_DRAW)
        sizes = {"actor": dims.actor, "critic": dims.critic, "action": dims.action}
        sizes |= {WORLD: self.imagination.width, "change": self.imagination.change_width + 1}
        self.replay = make_replay("world_model.replay", own.replay, cfg.num_steps, context, sizes)

    def _mirrors(self, known: Mapping[str, Mirror] | None) -> dict[str, Mirror] | None:
        """Return the mirrors for the model; None if a part of it has none."""
        change, context = self.imagination.mirror, self.imagination.context_mirror
        if known is None or change is None or context is None:
            return None
        seen = join_mirrors([known["critic"], self.imagination.speeds_mirror, context])
        return {**known, "change": change, "seen": seen}

    def _see(self, critic_obs: Tensor, worlds: Tensor) -> Tensor:
        """Return the model's input (..., D + S + C) for observations (..., D) in worlds (..., width)."""
        imagination = self.imagination
        speeds = worlds[..., imagination.carried["qvel"]][..., self._speeds]
        return torch.cat((critic_obs, speeds, worlds[..., imagination.context]), -1)

    def modules(self) -> dict[str, nn.Module]:
        """Return policy, critic, its target and the model."""
        return {"actor": self.actor, "critic": self.critic, "target": self.target, "model": self.model}

    def stateful(self) -> dict[str, Any]:
        """Return the replay memory and the optimizers."""
        return {"replay": self.replay} | {f"optimizer.{name}": each for name, each in self._optimizers.items()}

    def state(self) -> dict[str, Tensor]:
        """Return optimizers, random streams, the model's gaps and the replay memory."""
        return super().state() | {"gaps": self.gaps}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Load the output of `state`."""
        super().load_state(state)
        self.gaps.copy_(state["gaps"])
        self._set_horizon()

    def streams(self) -> dict[str, torch.Generator]:
        """Return the streams that states with imagined noise are drawn from, and the model's transitions."""
        return {"random.replay": self.draws, "random.model": self.model_draws}

    def update(self, rollout: Rollout, progress: float) -> dict[str, Tensor]:
        """Keep a rollout, learn the model from all that is kept, and the policy through the model."""
        cfg = self.cfg
        self._keep(rollout)
        gap = self.measure_gap()
        for name, rate in self._rates.items():
            self._optimizers[name].learning_rate.fill_(rate * (1.0 - (1.0 - cfg.final_share) * progress))
        with torch.no_grad():
            for frozen, learned in zip(
                self.frozen.state_dict().values(), self.model.state_dict().values(), strict=True
            ):
                frozen.copy_(learned)
        self.frozen.refresh()
        # The policy goes through the model as it was: both learn at once, on a core each. Processes, which average the
        # gradients of both, would meet in different orders.
        is_apart = rollout.reward.device.type == "cpu" and self.ranks.size == 1
        learning = self._pool.submit(self._learn_model) if is_apart else None
        found: dict[str, Tensor] = dict.fromkeys(STATISTICS, torch.zeros((), device=rollout.reward.device))
        if int(self.replay.counts.sum()) >= cfg.warm_up:
            self._set_horizon()
            rows = torch.stack([self.improve_policy() for _ in range(cfg.policy_steps)])
            found |= dict(zip(STATISTICS, rows.mean(0).unbind(), strict=True))
        found["model/loss"] = self._learn_model() if learning is None else learning.result()
        if (spread := self.actor.distribution.spread(rollout.out)) is not None:
            found["policy/std"] = spread
        return gap | found

    def _learn_model(self) -> Tensor:
        return torch.stack([self.improve_model() for _ in range(self.cfg.model_steps)]).mean()

    def _keep(self, rollout: Rollout) -> None:
        """Put a rollout into the memory, with the changes of each step, and let the normalizers see it."""
        worlds, (after, useful) = rollout.groups[WORLD], rollout.next_observations(WORLD)
        change = self._measure(worlds[:-1].flatten(0, 1), after.flatten(0, 1)).view(*useful.shape, -1)
        useful = useful & torch.isfinite(change).all(-1)
        change = torch.where(useful[..., None], change, torch.zeros_like(change))
        action = self.actor.distribution.to_env(rollout.action)
        kept = {"actor": rollout.actor_obs, "critic": rollout.critic_obs[:-1], "action": action}
        ends = (rollout.done & ~rollout.time_out).to(change.dtype)[..., None]
        kept |= {WORLD: worlds[:-1], "change": torch.cat((change, ends), -1)}
        self.replay.add(rollout, kept, useful)
        flat = useful.reshape(-1)
        if self.actor.normalizer is not None:
            self.actor.normalizer.update(rollout.actor_obs.flatten(0, 1), flat, self.ranks)
        for network in (self.critic, self.target):
            if network.normalizer is not None:
                network.normalizer.update(rollout.critic_obs[:-1].flatten(0, 1), flat, self.ranks)
        seen = self._see(rollout.critic_obs[:-1], worlds[:-1]).flatten(0, 1)
        self.model.inputs.update(seen, flat, self.ranks)
        self.model.known.update(seen[:, : self.model.size], flat, self.ranks)
        obs_after = torch.where(rollout.done[..., None], rollout.final_obs, rollout.critic_obs[1:])
        seen_after = self._see(obs_after, after).flatten(0, 1)
        for reached in (seen, seen_after):
            self.model.reached.update(reached[:, : self.model.size], flat, self.ranks)
        self.model.possible.update(change.flatten(0, 1), flat, self.ranks)
        self.model.outputs.update(kept["change"].flatten(0, 1), flat, self.ranks)

    @torch.no_grad()
    def measure_gap(self) -> dict[str, Tensor]:
        """Imagine the steps of worlds in the memory, and return how much the sum of rewards differs from the real one.

        "model/gap" is the mean magnitude of the difference over that of the sum, "model/bias" the mean difference over
        it: above 0 the model promises too much. A world counts until its episode ends. Both are NaN, and do not affect
        the horizon, if all real rewards are 0: a task with only_positive_rewards gives no more to a robot that falls.
        """
        windows = self.replay.draw_windows(self.cfg.rows, self.cfg.horizon, self.draws)
        seen, goes_on = self._see(windows["critic"][0], windows[WORLD][0])[:, : self.model.size], windows["goes_on"]
        self.imagination.begin(windows[WORLD][0], self.views.groups({who: windows[who][0] for who in self.views.spans}))
        prediction, wrong = Prediction(self.model, windows[WORLD][0][:, self.imagination.context]), []
        for t, action in enumerate(windows["action"]):
            reward, _, speeds, *groups = self.imagination.run(t, action, prediction.forward(seen, action))
            seen = torch.cat((self.views.of("critic", groups), speeds), 1)
            wrong.append(reward - windows["reward"][t])
        missed = torch.where(goes_on > 0.0, torch.stack(wrong), 0.0).cumsum(0)
        size = (windows["reward"] * goes_on).cumsum(0).abs().sum(1)
        size = torch.where(size > 0.0, size, torch.nan)
        gaps, kept = self.ranks.mean_(missed.abs().sum(1) / size), self.gaps[: len(size)]
        kept.lerp_(torch.where(gaps.isfinite(), gaps, kept), GAP_RATE)
        if not self._told and bool(gaps[-1].isnan()):
            self._told = True
            line = "all rewards are 0 so far, so that model/gap is undefined and nothing can be improved"
            warnings.warn(f"learner=world_model: {line}; if this lasts, train with learner=ppo first", stacklevel=2)
        return {
            "model/gap": gaps[-1],
            "model/bias": missed[-1].sum() / size[-1],
            "model/horizon": torch.full_like(gaps[-1], self.horizon),
        }

    def _set_horizon(self) -> None:
        """Imagine as many steps as the running gap stays below its bound for, and at least a few."""
        cfg = self.cfg
        self.horizon = max(int((self.gaps <= cfg.max_gap).cumprod(0).sum()), min(cfg.least_horizon, cfg.horizon))

    def _measure(self, before: Tensor, after: Tensor) -> Tensor:
        """Return the changes (M, P) between worlds (M, W), in portions of the imagination's rows."""
        rows, found = self.cfg.rows, []
        for first in range(0, len(before), rows):
            pair = [part[first : first + rows] for part in (before, after)]
            count = len(pair[0])
            if count < rows:
                pair = [torch.cat((part, part[:1].expand(rows - count, -1))) for part in pair]
            found.append(self.imagination.measure_changes(*pair)[:count])
        return torch.cat(found)

    def improve_model(self) -> Tensor:
        """Step the model; return its loss ()."""
        batch = self.replay.draw_steps(self.cfg.batch, self.model_draws)
        optimizer = self._optimizers["model"]
        optimizer.zero_grad()
        loss = self.model.loss(
            self._see(batch["critic"], batch[WORLD]), batch["action"], batch["change"], batch["weight"]
        )
        if self._ahead is not None:
            loss = loss + self._lose_ahead(self._ahead)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def _lose_ahead(self, imagination: Any) -> Tensor:
        """Return the loss () of the model's input after several of the model's steps, in deviations; until an end."""
        cfg, size = self.cfg, self.model.size
        windows = self.replay.draw_windows(cfg.rows, cfg.model_horizon + 1, self.model_draws)
        real, goes_on, actions = self._see(windows["critic"], windows[WORLD]), windows["goes_on"], windows["action"]
        token = imagination.begin(
            windows[WORLD][0], self.views.groups({who: windows[who][0] for who in self.views.spans})
        )
        seen, context, scale = real[0][:, :size], real[0][:, size:], self.model.inputs.scale[:size]
        loss = torch.zeros((), device=seen.device)
        for t in range(len(actions) - 1):
            step = imagination.step(t, actions[t], self.model(torch.cat((seen, context), 1), actions[t]), token)
            groups = [step.obs[name] for name in self.views.names]
            token, seen = step.token, torch.cat((self.views.of("critic", groups), step.speeds), 1)
            off = nn.functional.smooth_l1_loss(seen * scale, real[t + 1][:, :size] * scale, reduction="none")
            loss = loss + (off.mean(1) * goes_on[t]).sum() / goes_on[t].sum().clamp(min=1.0)
        return loss / max(len(actions) - 1, 1)

    def improve_policy(self) -> Tensor:
        """Step policy and critic through imagined steps; return STATISTICS."""
        cfg, optimizer = self.cfg, self._optimizers["policy"]
        start = self.replay.draw_steps(cfg.rows, self.draws)
        optimizer.zero_grad()
        steps = Steps(self.actor, self.frozen, self.imagination, self.views, self.draws)
        steps.forward(start, self.horizon)
        seen = torch.stack(steps.seen)
        known = 1.0 - self.frozen.leaves(seen[1:]).to(seen.dtype)
        seen = seen[..., : start["critic"].shape[1]]
        rewards = steps.rewards * known
        alive = torch.cumprod(torch.cat((start["weight"][None], (1.0 - steps.ended) * known)), 0)
        weight = start["weight"].sum().clamp(min=1.0)
        worth = alive * cfg.gamma ** torch.arange(len(alive), device=alive.device)[:, None] / weight
        last = seen[-1].clone().requires_grad_()
        value = self.target.value(last)
        (at_last,) = torch.autograd.grad(value, last, -worth[-1])
        with torch.no_grad():
            before = self.target.value(seen[:-1].flatten(0, 1)).view(rewards.shape)
        values = torch.cat((before, value.detach()[None]))
        total = (worth[:-1] * rewards).sum() + (worth[-1] * values[-1]).sum()
        # An end costs the value that would follow: that of the state after it, or else before it.
        lost = cfg.gamma * torch.where(steps.ended > 0.0, values[:-1], values[1:])
        entropy = steps.back(-worth[:-1] * known, worth[:-1] * known * lost, at_last, cfg.entropy_coef)
        norm = optimizer.grads.norm()
        optimizer.step()
        critic_loss, mean = self._improve_critic(seen, values, rewards, alive, known)
        loss = -total - cfg.entropy_coef * entropy
        before_end = torch.cumprod(1.0 - steps.ended, 0)
        left = ((1.0 - known) * before_end).amax(0).mean()
        return torch.stack((loss, critic_loss, total, norm, mean, left))

    def _improve_critic(
        self, obs: Tensor, values: Tensor, rewards: Tensor, alive: Tensor, known: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Step the critic towards TD(lambda) targets of imagined steps; return its last loss and the mean value.

        Args:
            obs: (T + 1, B, D) observations before each step and after the last one.
            values: (T + 1, B) the target's of them.
            rewards: (T, B).
            alive: (T + 1, B) the weight of each observation.
            known: (T, B) 0 if a step leaves the model's known range: the value before it stays as it is.
        """
        cfg, loss, mean = self.cfg, rewards.new_zeros(()), rewards.new_zeros(())
        with torch.no_grad():
            goes_on = cfg.gamma * alive[1:] / alive[:-1].clamp(min=1e-8)
            target = torch.addcmul(rewards, goes_on * (1.0 - cfg.lam), values[1:])
            target = torch.where(known > 0.0, target, values[:-1])
            goes_on *= cfg.lam
            after = values[-1]
            for t in reversed(range(len(rewards))):
                after = target[t].addcmul_(goes_on[t], after)
        # Steps that follow one another are alike: every second one has the same information at half the arithmetic.
        for k in range(cfg.critic_steps):
            every = slice(k % min(2, len(target)), None, 2)
            loss, mean = self._step_critic(obs[:-1][every], target[every], alive[:-1][every])
        return loss, mean

    def _step_critic(self, obs: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Step the critic at observations (..., D) towards targets (...); return its loss and the mean value."""
        optimizer = self._optimizers["critic"]
        optimizer.zero_grad()
        found = self.critic.value(obs.flatten(0, 1)).view(target.shape)
        size = weight.sum().clamp(min=1.0)
        loss = ((found - target).square() * weight).sum() / size
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                slow.lerp_(fast, self.cfg.tau)
        return loss.detach(), (found.detach() * weight).sum() / size


def _imagine(env: Any, rows: int, steps: int) -> Any:
    """Return the imagined steps of an environment; raise UserError for one that has none."""
    if not hasattr(env, "imagine"):
        raise UserError("learner=world_model: this environment lacks a state to imagine from; use learner=ppo")
    try:
        return env.imagine(rows, steps)
    except ValueError as error:
        raise UserError(f"learner=world_model: {error}; use learner=ppo or flashsac") from None


def make_algorithm(cfg: WorldModelLearnerCfg, context: Context) -> WorldModel:
    """Build networks, the learned world and the algorithm."""
    return WorldModel(cfg, context)
