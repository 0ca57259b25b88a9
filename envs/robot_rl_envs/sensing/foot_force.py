"""Contact forces on the feet: of the last substep, and of the substeps that MuJoCo keeps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import warp as wp

from robot_rl_envs.sensing.sensor import Fields, Sensor, SensorContext
from robot_rl_envs.terms import Source, observation
from robot_rl_envs.terms.checks import is_whole, require

MAX_FORCE_SUBSTEPS = 100


@wp.func
def read_foot_forces(s: Any, i: int):
    """Copy the magnitudes of world i's contact forces [N] in the last substeps, oldest first, from MuJoCo's buffers."""
    feet = s.foot_force.shape[1]
    count = s.foot_forces.shape[1] // feet
    for f in range(feet):
        head = s.foot_history_at[f]
        newest = int(s.history[i, head + 1])
        for n in range(count):
            k = head + 2 + count + 4 * ((newest + 1 + n) % count)
            force = wp.vec3(s.history[i, k + 1], s.history[i, k + 2], s.history[i, k + 3])
            s.foot_forces[i, n * feet + f] = wp.length(force)


@wp.func
def clear_foot_forces(s: Any, i: int):
    """Clear the contact forces from before world i's episode."""
    for k in range(s.foot_forces.shape[1]):
        s.foot_forces[i, k] = 0.0


@dataclass(kw_only=True, slots=True)
class FootForce(Sensor):
    """How many physics steps of the feet's contact forces are kept.

    Attributes:
        substeps: so that a peak between two control steps is seen; 0: those of a control step.
    """

    parts: ClassVar[tuple[str, ...]] = ("foot_forces",)

    substeps: int = 0

    def __post_init__(self) -> None:
        right = f"must be an int in [0, {MAX_FORCE_SUBSTEPS}]"
        fits = is_whole(self.substeps, 0, MAX_FORCE_SUBSTEPS)
        require(fits, "sensors.foot_force.substeps", self.substeps, right)

    def add_to(self, spec: Any, at: SensorContext) -> None:
        """Let MuJoCo keep the forces of the last substeps."""
        if "foot_forces" in at.used:
            for foot in at.robot.feet:
                spec.sensor(f"{foot}_contact").nsample = self.substeps or at.decimation

    def sizes(self, at: SensorContext) -> dict[str, tuple[int, ...]]:
        """Return the number of forces that are kept."""
        return {"foot_forces": ((self.substeps or at.decimation) * len(at.robot.feet),)}

    def fields(self, sizes: Mapping[str, int], num_envs: int, at: SensorContext) -> Fields:
        """Return the forces, and MuJoCo's buffers of them."""
        return {
            "foot_forces": (wp.float32, 2, (num_envs, sizes["foot_forces"])),
            "foot_history_at": (wp.int32, 1, (sizes["feet"],)),
            "history": (wp.float32, 2, ()),
        }

    def constants(self, at: SensorContext) -> dict[str, Any]:
        """Return where each foot's buffer begins."""
        contacts = [at.model.sensor(f"{foot}_contact").id for foot in at.robot.feet]
        return {"foot_history_at": at.model.sensor_historyadr[contacts]}

    def update(self, at: SensorContext) -> Sequence[wp.Function]:
        """Read the forces."""
        return (read_foot_forces,)

    def reset(self, at: SensorContext) -> Sequence[wp.Function]:
        """Clear them."""
        return (clear_foot_forces,)


@observation(size="feet", unit="N", frame="none", signal="foot_force", mirror="feet")
def foot_force(s: Any, i: int, j: int) -> float:
    """Magnitude of the net contact force on each foot in the last substep [N]."""
    return s.foot_force[i, j]


@observation(size="feet", unit="N", mirror="feet", source=Source(uses=("foot_forces",)))
def foot_force_peak(s: Any, i: int, j: int) -> float:
    """Largest contact force on each foot in the substeps that are kept [N]: no peak between control steps is missed."""
    peak = float(0.0)
    feet = s.foot_force.shape[1]
    for n in range(s.foot_forces.shape[1] // feet):
        peak = wp.max(peak, s.foot_forces[i, n * feet + j])
    return peak


@observation(size="foot_forces", unit="N", mirror="foot_forces", source=Source(uses=("foot_forces",)))
def foot_force_history(s: Any, i: int, j: int) -> float:
    """Contact force on each foot in each substep that is kept, oldest substep first [N]."""
    return s.foot_forces[i, j]
