"""Settings of the precision in which networks act, learn, are evaluated and are exported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from robot_rl.errors import UserError
from robot_rl.settings.checks import check_choice
from robot_rl.settings.schema import check_fields, setting

PRECISIONS = ("fp32", "bf16", "fp8", "int8")
NETWORKS = ("actor", "critic")


@dataclass(kw_only=True, slots=True)
class PrecisionCfg:
    """The precision of actor and critic; `precision=int8` is short for `precision.mode=int8`.

    Attributes:
        mode: number format of the weights and of the inputs of every layer, in rollouts, update, evaluation and
            export alike. "fp8" is e4m3; the parameters that the optimizer steps stay in float32.
        first: the layers that see the observations also have it; false: they compute in float32.
        last: the layers that give actions and values also have it.
        keep: layers that compute in float32, by name: "actor.2", or with all layers below a name "actor.memory".
        rollout: another precision for rollouts than for the update, to measure the cost of that; empty: the same.
    """

    SHORT: ClassVar[str] = "mode"
    """The setting that is meant if the group itself is given a value."""

    mode: str = setting("fp32", choices=PRECISIONS)
    first: bool = True
    last: bool = True
    keep: tuple[str, ...] = ()
    rollout: str = ""

    def __post_init__(self) -> None:
        """Check the choices, and that settings without an effect are not given."""
        check_fields(self)
        check_choice("rollout", self.rollout or self.mode, PRECISIONS)
        if self.rollout == self.mode:
            self.rollout = ""
        for name in self.keep:
            if name.partition(".")[0] not in NETWORKS:
                raise UserError("keep", name, "is not a layer", "its name begins with actor or critic, such as actor.2")
        if not self.is_quantized:
            given = {"keep": self.keep, "first": not self.first, "last": not self.last}
            for name, value in given.items():
                if value:
                    raise UserError(
                        name, getattr(self, name), "has no effect with mode=fp32", "give precision=int8, fp8 or bf16"
                    )

    @property
    def is_quantized(self) -> bool:
        """Whether anything computes in less than float32."""
        return (self.mode, self.rollout) not in (("fp32", ""), ("fp32", "fp32"))
