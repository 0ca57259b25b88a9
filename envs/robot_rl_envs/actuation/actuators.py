"""What drives a joint: MuJoCo's own servo or DC motor, a PD law in a kernel, or a learned network.

With every model an action means the same: a joint target (with ``actions.kind="position"``), so a trained policy's
exported contract does not depend on it. The target of a joint with ``kp=0`` and a kd is a speed: with ``PositionPd``,
`DcMotor` and `ExplicitPd` its torque is ``kd (target - qd)`` in place of the law below.

===============  ===================================================================  ==========================
class            torque of one joint, before the clip to its effort limit             computed
===============  ===================================================================  ==========================
`PositionPd`     ``kp (target - q) - kd qd``                                          by the engine, implicitly
`DcMotor`        the same, within the limits by supply voltage and back-EMF           by the engine, implicitly
`ExplicitPd`     the same law, optionally with the same curve                         by a kernel, each substep
`ActuatorNet`    a small network of the last position errors and velocities           by a kernel, each substep
===============  ===================================================================  ==========================

"Implicitly": MuJoCo's integrator knows how the torque changes with speed, so stiff gains stay stable at long time
steps. See docs/actuators.md for which one to take.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from robot_rl_assets.robot import Joint, Robot

from robot_rl_envs.actuation.actuator_net import NetFile, load_actuator_net
from robot_rl_envs.actuation.latency import MAX_DELAY_S, check_quantiles
from robot_rl_envs.terms.checks import require

MAX_DELAY_HISTORY = 256
"""Samples of delayed targets at most."""
MAX_NET_LAG = 64
"""Substeps that a network may look back at most."""


@dataclass(kw_only=True, slots=True)
class Actuator:
    """What all actuators have: a delay between the policy's output and the motor.

    Attributes:
        delay_s: (lo, hi) [s]: each world draws its delay at every reset and rounds it to whole substeps. (0, 0): none,
            at no cost.
        delay_history: substeps of targets that are kept; the longest delay must fit in.
        delay_quantiles_s: quantiles at evenly spaced probabilities, ascending [s]: each world also draws from these at
            every reset and adds it. See :mod:`robot_rl_envs.actuation.latency`.
        jitter_quantiles_s: the same for the amount that every control step adds to its world's delay.
        explicit: whether a kernel computes the torque, in each substep.
        takes_gains: whether it needs each driven joint's kp, or only its kd, if actions are targets.
    """

    delay_s: tuple[float, float] = (0.0, 0.0)
    delay_history: int = 16
    delay_quantiles_s: tuple[float, ...] = ()
    jitter_quantiles_s: tuple[float, ...] = ()

    explicit: ClassVar[bool] = False
    takes_gains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        fits = len(self.delay_s) == 2 and all(math.isfinite(value) for value in self.delay_s)
        fits = fits and 0.0 <= self.delay_s[0] <= self.delay_s[1]
        require(fits, "actuator.delay_s", self.delay_s, "must be (lo, hi) with 0 <= lo <= hi [s]")
        right = f"must be in [1, {MAX_DELAY_HISTORY}] substeps"
        require(1 <= self.delay_history <= MAX_DELAY_HISTORY, "actuator.delay_history", self.delay_history, right)
        check_quantiles("actuator.delay_quantiles_s", self.delay_quantiles_s, 0.0)
        check_quantiles("actuator.jitter_quantiles_s", self.jitter_quantiles_s, -MAX_DELAY_S)

    @property
    def measured(self) -> bool:
        """Whether the delay is also drawn from quantiles."""
        return bool(self.delay_quantiles_s or self.jitter_quantiles_s)

    @property
    def longest_delay_s(self) -> float:
        """The longest delay that can be drawn [s]."""
        tables = (self.delay_quantiles_s, self.jitter_quantiles_s)
        return max(0.0, self.delay_s[1] + sum(table[-1] for table in tables if table))

    @property
    def delayed(self) -> bool:
        """Whether there is a delay at all."""
        return self.delay_s[1] > 0.0 or self.measured

    def check(self, robot: Robot, timestep: float, kind: str) -> None:
        """Check against a robot, a physics step [s] and ``actions.kind`` before anything is built."""
        longest = self.longest_delay_s
        # A drawn delay between two substeps is one or the other, so the longest may be rounded up.
        steps = math.ceil(longest / timestep - 1e-6) if self.measured else round(longest / timestep)
        if steps > self.delay_history:
            measured = " with the measured delays" if self.measured else ""
            raise ValueError(
                f"actions.actuator.delay_s={self.delay_s!r}: {longest:g} s{measured} are {steps} substeps of "
                f"{timestep:g} s, but actuator.delay_history={self.delay_history} keeps only "
                f"{self.delay_history * timestep:g} s; set delay_history to {steps} or more"
            )
        if self.explicit and kind != "position":
            raise ValueError(
                f"actions.kind={kind!r}: {type(self).__name__} turns joint targets into torques; use "
                "actions.kind=position, or PositionPd or DcMotor, which also take efforts"
            )
        for joint in robot.joints:
            if kind != "position" or joint.passive:
                continue
            if self.takes_gains and joint.kp == joint.kd == 0:
                raise ValueError(
                    f"actions.kind='position': joint {joint.name!r} of {robot.name!r} has kp=0 and kd=0; "
                    "give it gains (a kd alone for a speed as its target) or use actions.kind=effort"
                )
            if not self.takes_gains and joint.by_speed:
                raise ValueError(
                    f"actions.actuator={type(self).__name__}: joint {joint.name!r} of {robot.name!r} has kp=0 and a "
                    "kd, so its target is a speed; the network knows position targets only, use another actuator"
                )

    def add_to(self, spec: Any, joint: Joint, kind: str = "position") -> Any:
        """Add the MuJoCo actuator of one joint to a ``mujoco.MjSpec`` and return it.

        Its control is the joint target (PositionPd, DcMotor), the effort with ``kind="effort"``, or the torque that a
        kernel computes (ExplicitPd, ActuatorNet). The spec's ``option.timestep`` must be set.
        """
        import mujoco

        actuator = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        actuator.forcelimited = True
        actuator.forcerange = [-joint.effort_limit, joint.effort_limit]
        if kind == "effort" or self.explicit:
            actuator.gainprm[0] = 1.0
        else:
            kp, kd = joint.motor_gains
            actuator.gainprm[0] = kd if joint.by_speed else kp
            actuator.biastype = mujoco.mjtBias.mjBIAS_AFFINE
            actuator.biasprm[1], actuator.biasprm[2] = -kp, -kd
        if self.delayed and not self.explicit:
            actuator.nsample = self.delay_history
            actuator.delay = engine_delay(round(self.longest_delay_s / spec.option.timestep), spec.option.timestep)
        return actuator


def check_events(actuator: Actuator, events: dict[str, Any]) -> None:
    """Refuse events that draw another kind of actuator's gains than ``actuator``'s: no kernel would notice."""
    kind = type(actuator).__name__
    right = "explicit_gains" if actuator.explicit else "dc_motor_gains" if kind == "DcMotor" else "motor_strength"
    for name, event in events.items():
        info = event.info
        gains = bool({"actuator_gainprm", "actuator_biasprm"} & set(info.model_fields))
        # an explicit actuator is a motor of gain 1 to the engine: its strength may also be scaled there
        fits = {
            "explicit_gains": actuator.explicit,
            "dc_motor_gains": kind == "DcMotor",
            "motor_strength": kind != "DcMotor",
        }.get(info.name, not gains or kind == "PositionPd")
        if not fits:
            raise ValueError(
                f"events.{name}: {info.name} does not fit actions.actuator={kind}; use {right} to draw its gains"
            )


def engine_delay(steps: int, timestep: float) -> float:
    """Return MuJoCo's delay [s] for exactly ``steps`` substeps.

    MuJoCo takes the newest sample that is at least ``delay`` old. Half a substep less keeps that choice clear of the
    rounding of its clock, which is float32 in mujoco_warp.
    """
    return max(0.0, (steps - 0.5) * timestep)


@dataclass(kw_only=True, slots=True)
class PositionPd(Actuator):
    """MuJoCo's position servo with the joint's kp and kd, its velocity servo without a kp: the default.

    With ``actions.kind="effort"`` a plain motor: the control is the torque itself.
    """


@dataclass(kw_only=True, slots=True)
class DcMotor(Actuator):
    """MuJoCo's DC motor under a position controller: torque falls with speed as a supply voltage allows.

    Motor and gear are modelled as one, at the joint. A joint's effort limit E and velocity limit w0 (its speed without
    load) give the motor constant ``K = V / w0`` and the resistance ``R = K V / (saturation_effort E)``; then

        v = clip(R / K (kp (target - q) - kd qd) + K qd, -V, V)
        torque = clip(K / R (v - K qd), -E, E)

    Within the voltage that is the PD law itself; beyond it, ``saturation_effort E (+-1 - qd / w0)``. Of a speed target
    the controller's law is ``kd (target - qd)``.

    Attributes:
        saturation_effort: torque at standstill that the voltage would drive, in effort limits. 1: the torque falls from
            standstill on; 2: the effort limit holds up to half the velocity limit.
        voltage: supply voltage V [V]; it scales the current and does not change torques.
    """

    saturation_effort: float = 1.0
    voltage: float = 24.0

    def __post_init__(self) -> None:
        Actuator.__post_init__(self)
        for name in ("saturation_effort", "voltage"):
            value = getattr(self, name)
            require(math.isfinite(value) and value > 0.0, f"actuator.{name}", value, "must be a finite number > 0")

    def electrical(self, joint: Joint) -> tuple[float, float]:
        """Return motor constant K [V s/rad = N m/A] and resistance R [Ohm] of a joint, at the joint."""
        constant = self.voltage / joint.velocity_limit
        return constant, constant * self.voltage / (self.saturation_effort * joint.effort_limit)

    def add_to(self, spec: Any, joint: Joint, kind: str = "position") -> Any:
        """See :meth:`Actuator.add_to`; an effort is the controller's feed-forward, within the same voltage."""
        import mujoco

        actuator = Actuator.add_to(self, spec, joint, kind)
        constant, resistance = self.electrical(joint)
        position = kind == "position"
        targets = mujoco.mjtCtrlInput.mjINPUT_VEL if joint.by_speed else mujoco.mjtCtrlInput.mjINPUT_POS
        inputs = targets if position else mujoco.mjtCtrlInput.mjINPUT_FF
        kp, kd = joint.motor_gains if position else (0.0, 0.0)
        actuator.set_to_dcmotor(
            [constant, constant], resistance, controller=[kp, 0.0, kd, 0.0, 0.0, self.voltage], ctrlspec=int(inputs)
        )
        return actuator


@dataclass(kw_only=True, slots=True)
class ExplicitPd(Actuator):
    """The PD law computed by a kernel in each substep, clipped by the effort limit and a torque-speed curve.

        torque = strength clip(clip(kp (target - q) - kd qd, S (-1 - qd / w0), S (1 - qd / w0)), -E, E)

    with ``S = saturation_effort E``. Gains and strength are each world's own: see the event ``explicit_gains``.

    Attributes:
        saturation_effort: torque at standstill of the linear torque-speed curve, in effort limits; 0: no such curve.
    """

    saturation_effort: float = 0.0

    explicit: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Actuator.__post_init__(self)
        value = self.saturation_effort
        require(
            math.isfinite(value) and value >= 0.0, "actuator.saturation_effort", value, "must be a finite number >= 0"
        )


@dataclass(kw_only=True, slots=True)
class ActuatorNet(Actuator):
    """A learned actuator: a small network from position errors and velocities to torque (Hwangbo et al. 2019).

    One network drives all joints. It is evaluated in each substep; its torque is clipped by the effort limit and
    multiplied by the world's strength. Hwangbo et al., "Learning agile and dynamic motor skills for legged robots",
    Science Robotics 4 (26), 2019.

    Attributes:
        file: a safetensors file as :func:`.actuator_net.save_actuator_net` writes it; absolute, or relative to the
            robot's folder or to the working directory.
    """

    file: str = ""

    explicit: ClassVar[bool] = True
    takes_gains: ClassVar[bool] = False

    def check(self, robot: Robot, timestep: float, kind: str) -> None:
        """See :meth:`Actuator.check`; also reads the file."""
        Actuator.check(self, robot, timestep, kind)
        self.lag_steps(self.load(robot), timestep)

    def load(self, robot: Robot) -> NetFile:
        """Read the network for ``robot``.

        Raises:
            ValueError: no such file, or a layer of it has the wrong shape.
        """
        folders = [robot.model.parent, Path.cwd()]
        for folder in folders:
            path = folder / Path(self.file).expanduser()
            if self.file and path.is_file():
                return load_actuator_net(path)
        looked = "" if Path(self.file).is_absolute() else f" in {' or '.join(str(folder) for folder in folders)}"
        raise ValueError(
            f"actions.actuator.file={self.file!r}: no such file{looked}; docs/actuators.md describes how to make one"
        )

    def lag_steps(self, net: NetFile, timestep: float) -> list[int]:
        """Return the network's lags in substeps.

        Raises:
            ValueError: a lag is not a whole number of substeps, or more than MAX_NET_LAG of them.
        """
        steps = []
        for lag in net.lags_s:
            count = lag / timestep
            steps.append(round(count))
            if abs(count - steps[-1]) > 0.01 or steps[-1] > MAX_NET_LAG:
                raise ValueError(
                    f"actions.actuator.file={self.file!r}: its lag of {lag:g} s is {count:.3g} substeps of "
                    f"sim.timestep={timestep:g} s; wants a whole number of at most {MAX_NET_LAG}"
                )
        return steps
