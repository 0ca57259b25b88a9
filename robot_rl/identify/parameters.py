"""The parameters that are identified: their order in a vector, their nominal values, priors and bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import UserError, one_of

FIELDS = {
    "gain": "",
    "armature": "kg m^2",
    "damping": "N m s/rad",
    "friction": "N m",
    "offset": "rad",
    "load_friction": "",
}
"""The parameters of a joint, with their units, in the vector's order: each has one value per joint; then the delay [s].

``gain`` multiplies kp: a motor's strength and an error of kp are one number. ``damping`` includes an error of kd.
``friction`` is dry, and grows by ``load_friction`` for each N m that the gear transmits. The encoder reads the joint's
position plus ``offset``.
"""
DELAY = "delay"
BODY = {"mass": "kg", "com_x": "m", "com_y": "m", "com_z": "m", "floor": ""}
"""After the delay, of a robot on its feet: mass added to its base, shift of the base's center of mass, friction."""
TAIL = (DELAY, *BODY)
WALKING_FIT = ("gain", "armature", "damping", "friction", DELAY, "mass")
"""Of a robot on its feet: offsets, the center of mass and the floor's friction take up the error of its base."""
DEFAULT_FIT = ("gain", "armature", "damping", "friction", "offset", DELAY)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameters:
    """The vector of parameters of a robot with J joints, (6 J + 1,), with a free base (6 J + 6,).

    Attributes:
        joints: Names of the joints.
        nominal: The model's values.
        prior: Standard deviations of the priors around them.
        lower: Least values.
    """

    joints: tuple[str, ...]
    nominal: NDArray[np.float64]
    prior: NDArray[np.float64]
    lower: NDArray[np.float64]

    @property
    def delay(self) -> int:
        """Return the index of the delay."""
        return len(FIELDS) * len(self.joints)

    def indices(self, field: str) -> NDArray[np.int64]:
        """Return the indices of one parameter of all joints."""
        count = len(self.joints)
        if field in TAIL:
            return np.array([self.delay + TAIL.index(field)])
        return list(FIELDS).index(field) * count + np.arange(count)

    def free(self, fit: tuple[str, ...], omit: tuple[str, ...] = ()) -> NDArray[np.int64]:
        """Return the indices that a fit may change, of all joints but `omit`.

        Raises:
            UserError: An unknown parameter or joint.
        """
        for name in fit:
            if name not in FIELDS and int(self.indices(name)[0] if name in TAIL else -1) not in range(
                len(self.nominal)
            ):
                raise UserError("fit", name, one_of(name, (*FIELDS, *TAIL[: len(self.nominal) - self.delay])))
        for name in omit:
            if name not in self.joints:
                raise UserError("omit", name, one_of(name, self.joints))
        kept = np.array([n for n, name in enumerate(self.joints) if name not in omit], dtype=np.int64)
        parts = [
            self.indices(name) if name in TAIL else self.indices(name)[kept] for name in (*FIELDS, *TAIL) if name in fit
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def name(self, index: int) -> tuple[str, str]:
        """Return the joint ("" for the delay and the base) and the parameter of an index."""
        if index >= self.delay:
            return "", TAIL[int(index) - self.delay]
        field, joint = divmod(int(index), len(self.joints))
        return self.joints[joint], list(FIELDS)[field]
