"""Settings of a student that imitates a teacher."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.settings.schema import check_fields, setting


@dataclass(kw_only=True, slots=True)
class TeacherCfg:
    """The policy that a student imitates (Ross et al. 2011, DAgger: in the states that the student visits).

    Attributes:
        run: run directory or checkpoint of the teacher.
        policy: name or directory of a policy's bundle, the teacher where `run` is empty.
        groups: observation groups that the teacher sees; empty: those it was trained with.
        mix: share of the worlds that follow the teacher's actions at the start; falls linearly to zero.
        mix_until: share of the training after which none does.
        takeover: difference of an action from the teacher's, in its units, from which on the teacher acts in that step
            (SafeDAgger, Zhang and Cho 2017), so that a student stays in states that the teacher knows; 0: never.
    """

    run: str = ""
    policy: str = ""
    groups: tuple[str, ...] = ()
    mix: float = setting(0.5, least=0.0, most=1.0)
    mix_until: float = setting(0.3, least=0.0, most=1.0)
    takeover: float = setting(0.0, least=0.0, most=1e6)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)


@dataclass(kw_only=True, slots=True)
class DistillLearnerCfg(PPOLearnerCfg):
    """Imitation of a teacher, with the other features of PPO: `learner=distill`.

    Attributes:
        teacher: the policy to imitate.
    """

    implementation: ClassVar[str] = "robot_rl.learn.algorithms.distill.distill"
    supports_stale_rollouts: ClassVar[bool] = True

    name: str = "distill"
    teacher: TeacherCfg = field(default_factory=TeacherCfg)
