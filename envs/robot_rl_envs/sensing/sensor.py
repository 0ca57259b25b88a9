"""The protocol of a sensor: its settings, fields of ``s``, functions of a step, terms and the signal of a real robot.

A sensor is one file, of this package or of any other: a dataclass of settings that derives from :class:`Sensor`, its
Warp functions, and its observation terms, which name it in ``Source(uses=...)``. A task has it in ``Task.sensors`` by
that name; see docs/sensors.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import mujoco
    import torch
    import warp as wp
    from robot_rl_assets.robot import Robot

Fields = dict[str, tuple[Any, int, tuple[int, ...]]]
"""Fields of ``s``: name -> dtype, number of dimensions, shape; an empty shape is the engine's array."""


@dataclass(kw_only=True, slots=True)
class SensorContext:
    """The robot and the task for which a sensor computes its additions.

    Attributes:
        used: names of sensors and of their parts that the task's terms read.
        decimation: physics steps in a control step.
        in_base: paths of terms that read the inertial measurement unit in the base's frame.
        timestep: of the physics [s].
        robot: the facts of its model; None before there is a scene.
        model: the compiled model, in which the robot's elements have their own names.
        base_body: id of the robot's base.
    """

    used: frozenset[str] = frozenset()
    decimation: int = 1
    in_base: tuple[str, ...] = ()
    timestep: float = 0.0
    robot: Robot = None  # pyright: ignore[reportAssignmentType]  (set with the scene)
    model: mujoco.MjModel = None  # pyright: ignore[reportAssignmentType]  (set when it is compiled)
    base_body: int = 0


@dataclass(kw_only=True, slots=True)
class Sensor:
    """A sensor's settings, and its additions to a scene, a kernel and a contract; a sensor overrides those it has.

    Methods are called only if a term reads the sensor, apart from :meth:`add_to`, :meth:`bind` and :meth:`sizes`.

    Attributes:
        parts: further names that terms may use: values which are computed only if a term reads them.
        derives: :meth:`update` reads nothing but the derived state, so that predicted states have its values also.
    """

    parts: ClassVar[tuple[str, ...]] = ()
    derives: ClassVar[bool] = False

    # -- the model ---------------------------------------------------------------------------------------------------

    def add_to(self, spec: Any, at: SensorContext) -> None:
        """Add sites and MuJoCo's sensors to a ``mujoco.MjSpec`` that already has the feet's contact sensors."""

    def bind(self, at: SensorContext) -> None:
        """Check the sensor in the compiled model; raise a ValueError that names the setting."""

    def fill_history(self, data: mujoco.MjData, at: SensorContext) -> None:
        """Fill the sensor's delay buffers of ``data`` with its value at rest."""

    def model_fields(self, at: SensorContext) -> list[str]:
        """Return the model fields that need per-world values."""
        return []

    # -- the state and the step --------------------------------------------------------------------------------------

    def sizes(self, at: SensorContext) -> dict[str, tuple[int, ...]]:
        """Return the shapes of terms' values by the name of their ``size``; (rows, columns) is a grid."""
        return {}

    def fields(self, sizes: Mapping[str, int], num_envs: int, at: SensorContext) -> Fields:
        """Return the fields of ``s`` that it needs; ``sizes`` are widths by name."""
        return {}

    def constants(self, at: SensorContext) -> dict[str, Any]:
        """Return the values of its fields that are not zeros, of one row or of all."""
        return {}

    def before(self, at: SensorContext) -> Sequence[wp.Function]:
        """Return the functions ``(s, i)`` that a step runs before the new state is derived."""
        return ()

    def update(self, at: SensorContext) -> Sequence[wp.Function]:
        """Return the functions ``(s, i)`` that a step runs when the state has been derived."""
        return ()

    def reset(self, at: SensorContext) -> Sequence[wp.Function]:
        """Return the functions ``(s, i)`` that run at an episode's start, when its state has been derived."""
        return ()

    def draws(self, w: Any, at: SensorContext) -> str:
        """Return the lines of a world's draws at its reset; ``w`` is a `robot_rl_envs.codegen.writer.KernelWriter`."""
        return ""

    @property
    def is_launched(self) -> bool:
        """Whether the sensor is read by its own launches."""
        return False

    def make_launches(self, scene: Any, engine: Any, arrays: dict[str, wp.array]) -> Any:
        """Return an object whose ``look()`` reads every world by its own launches; ``arrays`` are those of ``s``."""
        raise NotImplementedError

    # -- the robot ---------------------------------------------------------------------------------------------------

    def signals(self, state: Any, at: SensorContext) -> dict[str, torch.Tensor]:
        """Return the signals of a real robot, without noise, from ``Env.state``: (N, n) by name."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Return the contract's entries of the signal, in addition to the term's parameters."""
        return {}

    def mirror(self, rule: str, at: SensorContext) -> tuple[list[int], list[float]] | None:
        """Return permutation and sign of values under the left-right mirror ``rule``; None if it is not the sensor's.

        Raises:
            ValueError: the sensor cannot be mirrored as it is mounted.
        """
        return None
