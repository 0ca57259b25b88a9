"""Settings of auxiliary objectives: curiosity, a motion prior, a reference policy; off by default."""

from __future__ import annotations

from dataclasses import dataclass

from robot_rl.errors import UserError
from robot_rl.settings.checks import check_hidden, check_range


@dataclass(kw_only=True, slots=True)
class RndCfg:
    """Random network distillation (Burda et al. 2019): a reward in states in which a predictor still errs.

    Attributes:
        weight: factor of the reward; 0: off.
        groups: observation groups of its states.
        hidden: units of the hidden layers of both networks.
        features: their outputs.
        learning_rate: Adam's step size of the predictor.
        epochs: passes of the predictor over a rollout.
        minibatches: parts of a rollout for it.
        decay: share of the training after which the weight has fallen linearly to zero; 0: it stays.
    """

    weight: float = 0.0
    groups: tuple[str, ...] = ("critic",)
    hidden: tuple[int, ...] = (128, 128)
    features: int = 32
    learning_rate: float = 1e-3
    epochs: int = 1
    minibatches: int = 4
    decay: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        self.groups, self.hidden = tuple(self.groups), tuple(self.hidden)
        check_range("weight", self.weight, 0.0, 1e6)
        check_hidden(self.hidden)
        if self.weight > 0 and not self.groups:
            raise UserError("groups", self.groups, "must name at least one observation group")
        check_range("features", self.features, 1, 65536)
        check_range("learning_rate", self.learning_rate, 0.0, 1.0, open_low=True)
        check_range("epochs", self.epochs, 1, 1000)
        check_range("minibatches", self.minibatches, 1, 65536)
        check_range("decay", self.decay, 0.0, 1.0)


@dataclass(kw_only=True, slots=True)
class AmpCfg:
    """An adversarial motion prior (Peng et al. 2021): a reward if a discriminator takes a motion for a recorded one.

    Attributes:
        weight: share of this reward; the task's has 1 - weight. 0: off.
        scale: the style reward of a step like the recording; the default is that of the paper, whose tasks also have
            rewards of about 1 a step.
        group: observation group that describes a pose; pairs of successive poses are scored.
        motions: file of recorded motion (docs/learner.md describes how to make it).
        hidden: units of the discriminator's hidden layers.
        learning_rate: Adam's step size of the discriminator.
        gradient_penalty: weight of the penalty on its gradient at recorded pairs.
        steps: steps of the discriminator in an iteration.
        batch: pairs of each kind in a step of the discriminator.
        replay: pairs of the policy that are kept.
    """

    weight: float = 0.0
    scale: float = 1.0
    group: str = "motion"
    motions: str = ""
    hidden: tuple[int, ...] = (256, 128)
    learning_rate: float = 5e-5
    gradient_penalty: float = 10.0
    steps: int = 5
    batch: int = 1024
    replay: int = 100_000

    def __post_init__(self) -> None:
        """Check the ranges."""
        self.hidden = tuple(self.hidden)
        check_range("weight", self.weight, 0.0, 1.0)
        check_range("scale", self.scale, 0.0, 1e6, open_low=True)
        if self.weight > 0 and not self.motions:
            raise UserError("motions: '' is no file, must name recorded motion (robot-rl record writes some)")
        check_hidden(self.hidden)
        check_range("learning_rate", self.learning_rate, 0.0, 1.0, open_low=True)
        check_range("steps", self.steps, 1, 100_000)
        check_range("gradient_penalty", self.gradient_penalty, 0.0, 1e6)
        check_range("batch", self.batch, 1, 10**9)
        check_range("replay", self.replay, 1, 10**9)


@dataclass(kw_only=True, slots=True)
class ReferenceCfg:
    """A penalty toward a frozen policy: weight times the divergence KL(reference || policy).

    Attributes:
        run: run directory or checkpoint of the frozen policy; empty: off.
        groups: observation groups that it sees; empty: those it was trained with.
        weight: factor of the penalty at the start.
        decay: share of the training after which it has fallen linearly to zero; 0: it stays.
    """

    run: str = ""
    groups: tuple[str, ...] = ()
    weight: float = 0.1
    decay: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        self.groups = tuple(self.groups)
        check_range("weight", self.weight, 0.0, 1e6)
        check_range("decay", self.decay, 0.0, 1.0)
