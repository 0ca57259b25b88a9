"""What can be added to the algorithm: curiosity, a motion prior, a reference policy, a teacher. All off by default."""

from __future__ import annotations

from dataclasses import dataclass

from robot_rl.config.checks import check_range


@dataclass(kw_only=True, slots=True)
class RndCfg:
    """Random network distillation (Burda et al. 2019): reward where a predictor still errs.

    Attributes:
        weight: factor of the reward; 0: off.
        groups: observation groups that it looks at.
        hidden: units of the hidden layers of both networks.
        features: their outputs.
        learning_rate: Adam's step size of the predictor.
    """

    weight: float = 0.0
    groups: tuple[str, ...] = ("critic",)
    hidden: tuple[int, ...] = (128, 128)
    features: int = 32
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        """Check the ranges."""
        self.groups, self.hidden = tuple(self.groups), tuple(self.hidden)
        check_range("weight", self.weight, 0.0, 1e6)
        check_range("features", self.features, 1, 65536)
        check_range("learning_rate", self.learning_rate, 0.0, 1.0, open_low=True)


@dataclass(kw_only=True, slots=True)
class AmpCfg:
    """An adversarial motion prior (Peng et al. 2021): reward where a discriminator takes a motion for a recorded one.

    Attributes:
        weight: share of this reward; the task's has 1 - weight. 0: off.
        group: observation group that describes a pose; pairs of successive ones are judged.
        motions: file of recorded pairs (docs/learner.md says how it is made).
        hidden: units of the discriminator's hidden layers.
        learning_rate: Adam's step size of the discriminator.
        gradient_penalty: weight of the penalty on its gradient at recorded pairs.
        batch: pairs in a step of the discriminator.
        replay: pairs of the policy that are kept to learn from.
    """

    weight: float = 0.0
    group: str = "motion"
    motions: str = ""
    hidden: tuple[int, ...] = (256, 128)
    learning_rate: float = 1e-4
    gradient_penalty: float = 10.0
    batch: int = 4096
    replay: int = 100_000

    def __post_init__(self) -> None:
        """Check the ranges."""
        self.hidden = tuple(self.hidden)
        check_range("weight", self.weight, 0.0, 1.0)
        check_range("learning_rate", self.learning_rate, 0.0, 1.0, open_low=True)
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


@dataclass(kw_only=True, slots=True)
class TeacherCfg:
    """Whom a student imitates (Ross et al. 2011, DAgger: in the states the student itself gets into).

    Attributes:
        run: run directory or checkpoint of the teacher.
        groups: observation groups that the teacher sees; empty: those it was trained with.
        mix: share of the worlds that follow the teacher's actions at the start; falls linearly to zero.
        mix_until: share of the training after which none does.
    """

    run: str = ""
    groups: tuple[str, ...] = ()
    mix: float = 0.5
    mix_until: float = 0.3

    def __post_init__(self) -> None:
        """Check the ranges."""
        self.groups = tuple(self.groups)
        check_range("mix", self.mix, 0.0, 1.0)
        check_range("mix_until", self.mix_until, 0.0, 1.0)
