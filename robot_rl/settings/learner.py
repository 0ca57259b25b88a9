"""Settings of every learner: its loop, checkpoints, observation groups of actor and critic, and their networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from robot_rl.errors import UserError
from robot_rl.settings.networks import NetworkCfg
from robot_rl.settings.precision import PrecisionCfg
from robot_rl.settings.schema import check_fields, setting

SYMMETRIES = ("none", "augment", "network")
GRAPHS = ("auto", "on", "off")


@dataclass(kw_only=True, slots=True)
class StalenessCfg:
    """How old samples may be that are simulated apart from the learner.

    Attributes:
        max: iterations by which the policy that acted may be behind the one that learns; 0: none, which is synchronous.
    """

    max: int = setting(0, least=0, most=10_000)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)


@dataclass(kw_only=True, slots=True)
class LearnerCfg:
    """Settings of a learner that are not the task's; each algorithm's class adds its own (`robot_rl.learn.build`).

    Attributes:
        name: the learner, as in `learner=`.
        num_steps: control steps of every world in one rollout.
        max_iterations: iterations in all.
        save_interval: iterations between checkpoints, at most; one is always written at the end.
        save_interval_s: time between checkpoints [s], at most: whichever comes first; 0: only iterations count.
        keep_checkpoints: how many of the newest checkpoints stay; 0: all.
        notice_s: how long a signal waits for the iteration in progress [s]. One that would take longer is given up, and
            the state before it saved, of which a copy is made; 0: it is always finished.
        max_quarantined: share of an iteration's samples that may be quarantined; several iterations in a row above it
            end the training; 1: never.
        actor: the policy's network.
        critic: the value function's network.
        converter: "module:name" of a `robot_rl.learn.networks.arithmetic.Converter`, which replaces the arithmetic of
            the layers of actor and critic, such as fake quantization; empty: none.
        precision: the number format of actor and critic in rollouts, update, evaluation and export.
        symmetry: "none", "augment" (mirrored samples join the batch) or "network" (mirror-equivariant networks).
        normalize_obs: normalize observations by their running mean and deviation.
        graph: on a GPU record the steps of a rollout as one CUDA graph, and those of the update as others, and replay
            them: "auto" (if possible), "on" (refused if a rollout cannot be recorded), "off".
        overlap: simulate the next rollout while this one is learned from, with the policy before: one iteration stale.
        staleness: how old samples may be that are learned from, if those who act do not wait for the learner.
        stagger_episodes: start the worlds at random times of their first episode, so that time-outs do not coincide.
        actor_groups: observation groups that the actor sees.
        critic_groups: observation groups that the critic sees.
    """

    implementation: ClassVar[str] = ""
    """The module that builds from these settings (`robot_rl.learn.build`); empty: the class's own."""
    presets: ClassVar[tuple[str, ...]] = ()
    """Learners whose presets of a task (`Task.learner`: "ppo"'s) this one takes over, the first that has some."""
    supports_precision: ClassVar[bool] = False
    """Whether its networks have a form of less than float32 (`precision`)."""
    smoke_overrides: ClassVar[Mapping[str, Any]] = {"num_steps": 4}
    """Settings, by dotted name, with which an iteration does all that it ever does, but sooner."""
    needs_world_obs: ClassVar[bool] = False
    """Whether it learns from the observation group "world", on which a world's next step depends."""
    supports_stale_rollouts: ClassVar[bool] = False
    """Whether it may learn from rollouts of an older policy than the one that learns."""

    name: str = ""
    num_steps: int = setting(24, least=1, most=100_000)
    max_iterations: int = setting(1000, least=1, most=100_000_000)
    save_interval: int = setting(100, least=1, most=100_000_000)
    save_interval_s: float = setting(60.0, least=0.0, most=1e9)
    keep_checkpoints: int = setting(5, least=0, most=100_000_000)
    notice_s: float = setting(1.2, least=0.0, most=1e6)
    max_quarantined: float = setting(0.5, least=0.0, most=1.0)
    actor: NetworkCfg = field(default_factory=NetworkCfg)
    critic: NetworkCfg = field(default_factory=lambda: NetworkCfg(output_gain=1.0))
    converter: str = ""
    precision: PrecisionCfg = field(default_factory=PrecisionCfg)
    symmetry: str = setting("none", choices=SYMMETRIES)
    normalize_obs: bool = True
    graph: str = setting("auto", choices=GRAPHS)
    overlap: bool = False
    staleness: StalenessCfg = field(default_factory=StalenessCfg)
    stagger_episodes: bool = True
    actor_groups: tuple[str, ...] = setting(("actor",), at_least_one="observation group")
    critic_groups: tuple[str, ...] = setting(("critic",), at_least_one="observation group")

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)
        self._check_precision()
        for name, value in (("overlap", self.overlap), ("staleness.max", self.staleness.max)):
            if value and not self.supports_stale_rollouts:
                shown = str(value).lower()
                raise UserError(
                    f"{name}: {shown}, but learner={self.name} cannot learn from an older policy's rollouts"
                )
        self._check_memory()

    @property
    def sequence(self) -> int:
        """Control steps of the sequences that a memory learns from; the rollout's without a memory."""
        lengths = [cfg.memory.sequence for cfg in (self.actor, self.critic) if cfg.memory.kind != "none"]
        return (lengths[0] if lengths else 0) or self.num_steps

    def acting(self, worlds: int) -> LearnerCfg:
        """Return the settings of a process that acts in so many worlds and never learns, such as with less memory."""
        return self

    def num_values(self, reward_groups: tuple[str, ...]) -> int:
        """Return the number of values of a state: one, for any groups of the environment's rewards."""
        return 1

    def _check_precision(self) -> None:
        """Check that the networks can have the precision."""
        if not self.precision.is_quantized:
            return
        shown = f"precision={self.precision.mode}"
        if not self.supports_precision:
            raise UserError(f"{shown}: learner={self.name} has networks without such a form; use learner=ppo, or fp32")
        if self.converter:
            raise UserError(f"{shown} and converter={self.converter}: both replace how layers compute; omit one")

    def _check_memory(self) -> None:
        """Check the sequences of the memories."""
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
            if self.symmetry == "augment":  # The state before a mirrored sequence is unknown.
                raise UserError(
                    f"{name}.memory.kind: '{kind}' remembers no mirror images; use symmetry=network instead of augment"
                )
            lengths[name] = sequence or self.num_steps
        if len(set(lengths.values())) > 1:
            raise UserError(
                f"critic.memory.sequence: {lengths['critic']} steps, must be the actor's {lengths['actor']}"
            )
