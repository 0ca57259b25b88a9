"""What a learner can be told: PPO, rollout length, normalization and symmetry."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from robot_rl.config.checks import check_choice, check_range
from robot_rl.config.extras import AmpCfg, ReferenceCfg, RndCfg, TeacherCfg
from robot_rl.config.networks import NetworkCfg
from robot_rl.errors import UserError

SCHEDULES = ("adaptive", "fixed", "linear")
SYMMETRIES = ("none", "augment", "network")
BOOTSTRAPS = ("final", "state")
LEARNERS = ("ppo", "rsl_rl", "distill")


@dataclass(kw_only=True, slots=True)
class PPOCfg:
    """Proximal policy optimization.

    Attributes:
        gamma: discount a step.
        lam: decay of the generalized advantage estimate.
        clip: the ratio is clipped to [1 - clip, 1 + clip].
        epochs: passes over a rollout.
        minibatches: parts that a rollout is cut into, drawn anew in each epoch.
        learning_rate: Adam's step size at the start.
        schedule: "adaptive" (by the policy's divergence), "fixed", or "linear" to zero at the last iteration.
        desired_kl: divergence that the adaptive schedule steers to [nat].
        min_learning_rate: least step size of the adaptive schedule.
        max_learning_rate: greatest step size of the adaptive schedule.
        entropy_coef: weight of the entropy bonus.
        value_coef: weight of the value loss.
        max_grad_norm: gradient norm that each network is clipped to.
        clip_value_loss: keep the new value within `clip` of the old one (Schulman's variant).
        bootstrap: value added at a time-out: "final" is V(final observation), "state" is V(s_t) as in rsl_rl.
        cuda_graph: on a GPU record the step over a minibatch as a CUDA graph, and replay it.
    """

    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.2
    epochs: int = 5
    minibatches: int = 4
    learning_rate: float = 1e-3
    schedule: str = "adaptive"
    desired_kl: float = 0.01
    min_learning_rate: float = 1e-5
    max_learning_rate: float = 1e-2
    entropy_coef: float = 0.005
    value_coef: float = 1.0
    max_grad_norm: float = 1.0
    clip_value_loss: bool = True
    bootstrap: str = "final"
    cuda_graph: bool = True

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("gamma", self.gamma, 0.0, 1.0)
        check_range("lam", self.lam, 0.0, 1.0)
        check_range("clip", self.clip, 0.0, 10.0, open_low=True)
        check_range("epochs", self.epochs, 1, 1000)
        check_range("minibatches", self.minibatches, 1, 65536)
        check_range("learning_rate", self.learning_rate, 0.0, 1.0, open_low=True)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_range("desired_kl", self.desired_kl, 0.0, 10.0, open_low=True)
        check_range("min_learning_rate", self.min_learning_rate, 0.0, 1.0, open_low=True)
        check_range("max_learning_rate", self.max_learning_rate, self.min_learning_rate, 1.0)
        if self.schedule == "adaptive":
            check_range("learning_rate", self.learning_rate, self.min_learning_rate, self.max_learning_rate)
        check_range("entropy_coef", self.entropy_coef, 0.0, 10.0)
        check_range("value_coef", self.value_coef, 0.0, 1000.0)
        check_range("max_grad_norm", self.max_grad_norm, 0.0, math.inf, open_low=True)
        check_choice("bootstrap", self.bootstrap, BOOTSTRAPS)


@dataclass(kw_only=True, slots=True)
class LearnerCfg:
    """Everything about learning that is not the task.

    Attributes:
        name: "ppo" (ours), "rsl_rl" (its own runner on the same environment) or "distill" (imitate a teacher).
        num_steps: control steps of every world in one rollout.
        max_iterations: iterations in all.
        save_interval: iterations between checkpoints, at most; one is always written at the end.
        save_interval_s: time between checkpoints [s], at most: whichever comes first; 0: only iterations count.
        keep_checkpoints: how many of the newest checkpoints stay; 0: all.
        notice_s: how long a signal waits for the iteration in hand [s]. One that would take longer is given up, and the
            state before it saved, of which a copy is made; 0: it is always finished.
        max_quarantined: share of an iteration's samples that may be quarantined; several iterations in a row above it
            end the training; 1: never.
        actor: the policy's network.
        critic: the value function's network.
        ppo: the algorithm.
        symmetry: "none", "augment" (mirrored samples join the batch) or "network" (mirror-equivariant networks).
        normalize_obs: normalize observations by their running mean and deviation.
        normalize_values: the critic works in deviations of the returns from their running mean, so that neither its
            step size nor `ppo.clip_value_loss` depends on how large the rewards are.
        stagger_episodes: start the worlds at random times of their first episode, so that time-outs do not coincide.
        actor_groups: observation groups that the actor sees.
        critic_groups: observation groups that the critic sees.
        several_critics: one critic for each group of rewards that the task names, its advantages normalized by
            themselves (where the environment tells rewards by group).
        reward_weights: weight of each of these groups' advantages, in the environment's order; empty: all 1.
        teacher: whom "distill" imitates.
        rnd: random network distillation, a reward for what is new.
        amp: an adversarial motion prior, a reward for moving as recorded motion does.
        reference: a penalty for leaving a frozen policy.
    """

    name: str = "ppo"
    num_steps: int = 24
    max_iterations: int = 1000
    save_interval: int = 100
    save_interval_s: float = 60.0
    keep_checkpoints: int = 5
    notice_s: float = 1.2
    max_quarantined: float = 0.5
    actor: NetworkCfg = field(default_factory=NetworkCfg)
    critic: NetworkCfg = field(default_factory=lambda: NetworkCfg(output_gain=1.0))
    ppo: PPOCfg = field(default_factory=PPOCfg)
    symmetry: str = "none"
    normalize_obs: bool = True
    normalize_values: bool = False
    stagger_episodes: bool = True
    actor_groups: tuple[str, ...] = ("actor",)
    critic_groups: tuple[str, ...] = ("critic",)
    several_critics: bool = False
    reward_weights: tuple[float, ...] = ()
    teacher: TeacherCfg = field(default_factory=TeacherCfg)
    rnd: RndCfg = field(default_factory=RndCfg)
    amp: AmpCfg = field(default_factory=AmpCfg)
    reference: ReferenceCfg = field(default_factory=ReferenceCfg)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_choice("name", self.name, LEARNERS)
        check_range("num_steps", self.num_steps, 1, 100_000)
        check_range("max_iterations", self.max_iterations, 1, 100_000_000)
        check_range("save_interval", self.save_interval, 1, 100_000_000)
        check_range("save_interval_s", self.save_interval_s, 0.0, 1e9)
        check_range("keep_checkpoints", self.keep_checkpoints, 0, 100_000_000)
        check_range("notice_s", self.notice_s, 0.0, 1e6)
        check_range("max_quarantined", self.max_quarantined, 0.0, 1.0)
        check_choice("symmetry", self.symmetry, SYMMETRIES)
        for name in ("actor_groups", "critic_groups"):
            groups = tuple(getattr(self, name))
            setattr(self, name, groups)
            if not groups:
                raise UserError(f"{name}: () is out of range, must name at least one observation group")
        for weight in self.reward_weights:
            check_range("reward_weights", weight, 0.0, 1e6)
        if self.reward_weights and not any(self.reward_weights):
            raise UserError("reward_weights: all are 0, one must be larger")
        self._check_memory()

    @property
    def sequence(self) -> int:
        """Control steps of the sequences that a memory learns from; the rollout's where there is no memory."""
        lengths = [cfg.memory.sequence for cfg in (self.actor, self.critic) if cfg.memory.kind != "none"]
        return (lengths[0] if lengths else 0) or self.num_steps

    def _check_memory(self) -> None:
        """Check what memories are told to learn from."""
        lengths = {}
        for name, cfg in (("actor", self.actor), ("critic", self.critic)):
            kind, sequence = cfg.memory.kind, cfg.memory.sequence
            if kind == "none":
                continue
            if sequence > self.num_steps:
                raise UserError(
                    f"{name}.memory.sequence: {sequence} is longer than the rollout of num_steps={self.num_steps}"
                )
            if sequence and self.num_steps % sequence:
                near = max(n for n in range(1, sequence) if self.num_steps % n == 0)
                raise UserError(
                    f"{name}.memory.sequence: {sequence} does not divide the rollout of num_steps={self.num_steps}, "
                    f"{near} does"
                )
            if self.symmetry == "augment":  # A mirrored sequence begins with what a mirrored past would have left.
                raise UserError(
                    f"{name}.memory.kind: '{kind}' remembers no mirror images; use symmetry=network instead of augment"
                )
            lengths[name] = sequence or self.num_steps
        if len(set(lengths.values())) > 1:
            raise UserError(
                f"critic.memory.sequence: {lengths['critic']} steps, must be the actor's {lengths['actor']}"
            )
