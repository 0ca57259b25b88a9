"""An adversarial motion prior (Peng et al. 2021): a reward for pairs of poses like those of a recorded motion.

A discriminator learns to distinguish pairs of successive poses of the recording from those of the policy; pairs that it
takes for recorded are rewarded. Departures from the paper: the gradient of the penalty is written out, which saves the
second backward pass, and the steps are taken once an iteration after the policy's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rsl_rl.env import VecEnv
from torch import Tensor, nn

from robot_rl.errors import UserError
from robot_rl.learn.auxiliaries.auxiliary import Auxiliary
from robot_rl.learn.auxiliaries.config import AmpCfg
from robot_rl.learn.auxiliaries.motions import Motion, read_motion
from robot_rl.learn.networks.layout import make_layout
from robot_rl.learn.networks.mlp import Affine, affines, make_weights
from robot_rl.learn.networks.normalizer import Normalizer
from robot_rl.learn.optim import Trainer
from robot_rl.learn.ranks import SINGLE_PROCESS, ProcessGroup
from robot_rl.learn.rollout import Rollout

CLIP = 10.0
"""Greatest magnitude of a normalized component."""
SEED_OFFSET = 200
"""Added to the run's seed, so that no other stream has the same numbers."""
STATISTICS = ("amp/loss", "amp/expert", "amp/policy", "amp/penalty")


class Discriminator(nn.Module):
    """A perceptron of rectified units from a pair to a score: 1 for a recorded one, -1 for another.

    Attributes:
        layers: the linear layers in order.
    """

    def __init__(self, in_dim: int, hidden: tuple[int, ...], generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(Affine, make_weights((in_dim, *hidden, 1), 1.0, generator)))

    def forward(self, pairs: Tensor) -> Tensor:
        """Return the scores (B,) of normalized pairs (B, in_dim)."""
        *hidden, last = self.layers
        for layer in hidden:
            pairs = torch.relu(layer(pairs))
        return last(pairs).squeeze(-1)

    def with_gradient(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores (B,) and their gradients (B, in_dim) by the pairs, both differentiable by the weights.

        The chain rule from the last layer back; a rectified unit's derivative is 1 or 0 and has none itself.
        """
        *hidden, last = affines(self.layers)
        active = []
        for layer in hidden:
            pairs = torch.relu(layer(pairs))
            active.append((pairs > 0).to(pairs.dtype))
        gradient = last.weight
        for layer, mask in zip(reversed(hidden), reversed(active), strict=True):
            gradient = (gradient * mask) @ layer.weight
        return last(pairs).squeeze(-1), gradient.expand(len(pairs), -1)


class Amp(Auxiliary):
    """The style reward max(0, 1 - (d - 1)^2 / 4) of a pair of score d (equation 7), mixed with the task's.

    A step that ends an episode counts with its final pose; without final observations, and for quarantined worlds,
    neither a pair nor a reward exists.

    Attributes:
        normalizer: of single poses; frozen while a rollout is rewarded and learned from.
        discriminator: scores pairs.
        trainer: steps the discriminator.
        expert: (P, 2 D) the recorded pairs.
        replay: (R, 2 D) pairs of the policy.
        weights: (R,) 1 if the replay buffer holds a pair, else 0.
        stored: () pairs that were put into the replay buffer in all.
    """

    name = "amp"
    expert: Tensor
    replay: Tensor
    weights: Tensor
    stored: Tensor

    def __init__(
        self,
        cfg: AmpCfg,
        motion: Motion,
        *,
        device: torch.device | str = "cpu",
        seed: int = 0,
        ranks: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        super().__init__()
        self.cfg, self.motion, self.ranks = cfg, motion, ranks
        self.groups, self.reward_weight = (cfg.group,), 1.0 - cfg.weight
        width = 2 * motion.pairs.shape[2]
        generator = torch.Generator().manual_seed(seed + SEED_OFFSET)
        self.normalizer = Normalizer(width // 2)
        self.discriminator = Discriminator(width, cfg.hidden, generator)
        self.register_buffer("expert", motion.pairs.flatten(1), persistent=False)
        self.register_buffer("replay", torch.zeros(cfg.replay, width))
        self.register_buffer("weights", torch.zeros(cfg.replay))
        self.register_buffer("stored", torch.zeros((), dtype=torch.int64))
        self.normalizer.update(motion.pairs.flatten(0, 1))
        self.to(device)
        self.trainer = Trainer((self.discriminator,), cfg.learning_rate, seed + SEED_OFFSET + 1, ranks=ranks)
        self._stored = 0  # The same number as `stored`, known without a look at the device.
        self._style = torch.zeros((), device=device)

    @torch.no_grad()
    def reward(self, rollout: Rollout) -> Tensor:
        """Return the style reward (T, N) with its weight."""
        pairs, known = self._pairs(rollout)
        style = torch.where(known, style_reward(self.discriminator(self._normalized(pairs))), 0.0)
        self._style = style.sum() / known.sum().clamp(min=1)
        return (self.cfg.weight * self.cfg.scale) * style.view(rollout.done.shape)

    def update(self, rollout: Rollout, progress: float) -> dict[str, Tensor]:
        """Put a rollout's pairs into the replay buffer, step the discriminator, let the normalizer see both sides."""
        pairs, known = self._pairs(rollout)
        self._keep(pairs, known)
        total = torch.zeros(len(STATISTICS), device=pairs.device)
        for _ in range(self.cfg.steps):
            rows = self.trainer.draw(self.cfg.batch, min(self._stored, self.cfg.replay))
            recorded = self.expert[self.trainer.draw(self.cfg.batch, len(self.expert))]
            loss, statistics = self.loss_of(self.replay[rows], self.weights[rows], recorded)
            self.trainer.step(loss)
            total += statistics
        half = pairs.shape[1] // 2
        poses = torch.cat((pairs, self.expert[self.trainer.draw(len(pairs), len(self.expert))]))[:, :half]
        self.normalizer.update(poses, torch.cat((known, torch.ones_like(known))), self.ranks)
        return {"amp/reward": self._style, **dict(zip(STATISTICS, (total / self.cfg.steps).unbind(), strict=True))}

    def loss_of(self, pairs: Tensor, weights: Tensor, recorded: Tensor) -> tuple[Tensor, Tensor]:
        """Return the discriminator's loss () (equations 6 and 8), and STATISTICS.

        `pairs` and `recorded` are (B, 2 D); `weights` (B,) are 0 for an empty row of `pairs`, else 1.
        """
        expert, gradient = self.discriminator.with_gradient(self._normalized(recorded))
        policy = self.discriminator(self._normalized(pairs))
        penalty = gradient.square().sum(-1).mean()
        share = weights / weights.sum().clamp(min=1)
        loss = (expert - 1.0).square().mean() + ((policy + 1.0).square() * share).sum()
        loss = loss + 0.5 * self.cfg.gradient_penalty * penalty
        return loss, torch.stack((loss, expert.mean(), (policy * share).sum(), penalty)).detach()

    def described(self) -> dict[str, Any]:
        """Return the fingerprint of the recorded motion."""
        return {"motions": self.motion.digest}

    def check(self, described: Mapping[str, Any]) -> None:
        """Raise UserError if the file's content is not the one that the run was trained with."""
        now = self.motion.digest
        before = described.get("motions", now)  # A run without a prior also lacks its tensors, and is refused for that.
        if before != now:
            raise UserError(
                f"amp.motions: {self.motion.path} holds another motion than the run was trained with "
                f"(sha256 {now[:12]}, was {str(before)[:12]}); start a new run with init_from="
            )

    def _pairs(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Return the pairs (T N, 2 D) of a rollout, and which of them are known (T N,); the others are zeros."""
        after, known = rollout.next_observations(self.cfg.group)
        before = torch.where(known[..., None], rollout.groups[self.cfg.group][:-1], 0.0)
        return torch.cat((before, after), dim=-1).flatten(0, 1), known.reshape(-1)

    def _normalized(self, pairs: Tensor) -> Tensor:
        """Return normalized pairs (B, 2 D)."""
        poses = self.normalizer(pairs.view(len(pairs), 2, -1)).clamp_(-CLIP, CLIP)
        return poses.flatten(1)

    def _keep(self, pairs: Tensor, known: Tensor) -> None:
        """Put pairs (B, 2 D) into the replay buffer, in place of the oldest; a random part if they are too many."""
        size = min(len(pairs), self.cfg.replay)
        order = self.trainer.shuffle(len(pairs))[:size]
        slots = (self.stored + torch.arange(size, device=pairs.device)) % self.cfg.replay
        self.replay.index_copy_(0, slots, pairs[order])
        self.weights.index_copy_(0, slots, known[order].to(self.weights.dtype))
        self.stored += size
        self._stored += size

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._stored = int(self.stored)


def make_amp(
    cfg: AmpCfg, env: VecEnv, device: torch.device | str, seed: int, ranks: ProcessGroup = SINGLE_PROCESS
) -> Amp:
    """Read the recorded motion, check it against the environment, and build the prior.

    Of the environment it uses, where present: `components(group)` (names of a group's components) and `step_dt`. Raises
    UserError if the file is missing or damaged, or does not fit the environment.
    """
    size = make_layout(env.get_observations(), (cfg.group,), "amp.group").size
    motion, tell = read_motion(Path(cfg.motions)), getattr(env, "components", None)
    motion.check(cfg.group, tell and tell(cfg.group), size, getattr(env, "step_dt", None))
    return Amp(cfg, motion, device=device, seed=seed, ranks=ranks)


def style_reward(score: Tensor) -> Tensor:
    """Return the style reward max(0, 1 - (d - 1)^2 / 4) of scores d, in [0, 1]."""
    return (1.0 - 0.25 * (score - 1.0).square()).clamp(min=0.0)
