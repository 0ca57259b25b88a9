"""Settings of auxiliary objectives: curiosity, a motion prior, a reference policy; off by default."""

from __future__ import annotations

from dataclasses import dataclass

from robot_rl.errors import UserError
from robot_rl.settings.schema import check_fields, setting


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

    weight: float = setting(0.0, least=0.0, most=1e6)
    groups: tuple[str, ...] = ("critic",)
    hidden: tuple[int, ...] = setting((128, 128), least=1, most=65536, at_least_one="layer")
    features: int = setting(32, least=1, most=65536)
    learning_rate: float = setting(1e-3, above=0.0, most=1.0)
    epochs: int = setting(1, least=1, most=1000)
    minibatches: int = setting(4, least=1, most=65536)
    decay: float = setting(0.0, least=0.0, most=1.0)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)
        if self.weight > 0 and not self.groups:
            raise UserError("groups", self.groups, "must name at least one observation group")


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

    weight: float = setting(0.0, least=0.0, most=1.0)
    scale: float = setting(1.0, above=0.0, most=1e6)
    group: str = "motion"
    motions: str = ""
    hidden: tuple[int, ...] = setting((256, 128), least=1, most=65536, at_least_one="layer")
    learning_rate: float = setting(5e-5, above=0.0, most=1.0)
    gradient_penalty: float = setting(10.0, least=0.0, most=1e6)
    steps: int = setting(5, least=1, most=100_000)
    batch: int = setting(1024, least=1, most=10**9)
    replay: int = setting(100_000, least=1, most=10**9)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)
        if self.weight > 0 and not self.motions:
            raise UserError("motions: '' is not a file, must name recorded motion (robot-rl record writes some)")


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
    weight: float = setting(0.1, least=0.0, most=1e6)
    decay: float = setting(0.0, least=0.0, most=1.0)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)
