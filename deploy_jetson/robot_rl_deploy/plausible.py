"""Bounds on values that no replay can check: gains, limits, periods and command ranges that no robot has are refused.

They are wide, since every robot has to fit. Values within them that are not the robot's are found by `robot-rl
deploy` if the robot is one of the assets, and by a signature in any case. This module needs only the standard library,
and the runtime in C++ has the same bounds.
"""

import math
from collections.abc import Sequence

from robot_rl_deploy.parts import ActionSpec, CommandSpec, JointSpec
from robot_rl_deploy.strict import refuse

CONTROL_PERIOD_S = (5e-4, 1.0)
MIN_PHYSICS_TIMESTEP_S = 1e-5
MAX_POSITION, MAX_SPEED, MAX_EFFORT, MAX_COMMAND_VALUE = 1e3, 1e3, 1e4, 100.0
"""Largest magnitudes of a joint's position and speed, its effort, and a component of the command."""
ONE_DEGREE = math.pi / 180
"""Error [rad or m] at which no position controller requests the whole effort of its joint yet..."""
STIFF_DAMPING_S = 0.05
"""...but one that is damped like an industrial arm's: least kd / kp [s] of a stiffer joint."""
ONE_PERCENT = 0.01
"""Share of its speed limit at which no speed controller requests the whole effort of its joint yet."""
MAX_DAMPING_S = 0.5
"""Largest kd / kp [s]: the time in which a joint creeps to its target."""
EFFORT_MARGIN = 3.0
"""How much more a joint's effort limit may be than its controller ever makes within the joint's own limits."""
EFFORT_SHARE = 0.25
"""Least share of its limit that an action of effort reaches on a joint that has the gains of a position controller."""


def check_periods(control_period_s: float, physics_timestep_s: float) -> None:
    """Refuse a control period or a physics step [s] that no policy has.

    Raises:
        ContractError: The line names field, value and bound.
    """
    _between("control_period_s", control_period_s, CONTROL_PERIOD_S)
    if physics_timestep_s < MIN_PHYSICS_TIMESTEP_S:
        refuse("physics_timestep_s", physics_timestep_s, f"{MIN_PHYSICS_TIMESTEP_S:g} s is the least")


def check_parts(joints: Sequence[JointSpec], actions: Sequence[ActionSpec], command: Sequence[CommandSpec]) -> None:
    """Refuse joints, actions and commands with numbers that no robot has; every action must name one of the joints.

    Raises:
        ContractError: The line names field, value and bound.
    """
    for joint in joints:
        _check_limits(joint)
    _check_command(command)
    by_name = {joint.name: joint for joint in joints}
    for action in actions:
        joint = by_name[action.joint]
        if action.kind == "position":
            _check_gains(joint)
        elif action.kind == "velocity":
            _check_speed(action, joint)
        elif joint.kp > 0:
            _check_effort(action, joint)


def _between(where: str, value: float, bounds: tuple[float, float]) -> None:
    if not bounds[0] <= value <= bounds[1]:
        refuse(where, value, f"no policy has it; it must be in [{bounds[0]:g}, {bounds[1]:g}]")


def _check_limits(joint: JointSpec) -> None:
    where = f"joint '{joint.name}':"
    for field, most in (("lower", MAX_POSITION), ("upper", MAX_POSITION), ("velocity_limit", MAX_SPEED)):
        value = getattr(joint, field)
        if value is not None:
            _between(f"{where} {field}", value, (-most, most))
    _between(f"{where} effort_limit", joint.effort_limit, (0.0, MAX_EFFORT))


def _check_command(command: Sequence[CommandSpec]) -> None:
    for component in command:
        for field in ("lower", "upper"):
            bounds = (-MAX_COMMAND_VALUE, MAX_COMMAND_VALUE)
            _between(f"command '{component.name}': {field}", getattr(component, field), bounds)


def _check_gains(joint: JointSpec) -> None:
    """Check a joint with position targets: it has limits, and gains and effort limit fit each other."""
    where = f"joint '{joint.name}':"
    for field in ("lower", "upper", "velocity_limit"):
        if getattr(joint, field) is None:
            refuse(f"{where} {field}", None, "a joint with position targets needs that limit")
    assert joint.lower is not None
    assert joint.upper is not None
    assert joint.velocity_limit is not None
    if joint.kp * ONE_DEGREE > joint.effort_limit and joint.kd < STIFF_DAMPING_S * joint.kp:
        most = f"{joint.effort_limit / ONE_DEGREE:g} is the most with a kd of {joint.kd:g}"
        refuse(f"{where} kp", joint.kp, f"effort_limit is reached within a degree; {most}")
    if not 0 < joint.kd <= MAX_DAMPING_S * joint.kp:
        refuse(f"{where} kd", joint.kd, f"it must be more than 0 and at most {MAX_DAMPING_S:g} s of kp ({joint.kp:g})")
    most = EFFORT_MARGIN * (joint.kp * (joint.upper - joint.lower) + joint.kd * joint.velocity_limit)
    if joint.effort_limit > most:
        refuse(f"{where} effort_limit", joint.effort_limit, f"gains and limits make {most / EFFORT_MARGIN:g} at most")


def _check_speed(action: ActionSpec, joint: JointSpec) -> None:
    """Check a joint with velocity targets: kd and effort limit fit each other and the speeds that are asked for."""
    where = f"joint '{joint.name}':"
    if joint.velocity_limit is None:
        refuse(f"{where} velocity_limit", None, "a joint with velocity targets needs that limit")
    assert joint.velocity_limit is not None
    if joint.kd * ONE_PERCENT * joint.velocity_limit > joint.effort_limit:
        most = f"{joint.effort_limit / (ONE_PERCENT * joint.velocity_limit):g} is the most"
        refuse(f"{where} kd", joint.kd, f"effort_limit is reached within a hundredth of velocity_limit; {most}")
    made = joint.kd * 2 * joint.velocity_limit
    if joint.effort_limit > EFFORT_MARGIN * made:
        refuse(f"{where} effort_limit", joint.effort_limit, f"gains and limits make {made:g} at most")
    for field, when in (("offset", 0), ("scale", 1)):
        if abs(value := getattr(action, field)) > joint.velocity_limit:
            line = f"it turns so fast at an action of {when}; velocity_limit is {joint.velocity_limit:g}"
            refuse(f"action of '{joint.name}': {field}", value, line)


def _check_effort(action: ActionSpec, joint: JointSpec) -> None:
    """Refuse a very small effort on a joint with gains: it indicates a position action declared as an effort."""
    if action.clip is not None and abs(action.scale) * action.clip < EFFORT_SHARE * joint.effort_limit:
        where = f"action of '{action.joint}': kind"
        refuse(where, action.kind, f"it makes {abs(action.scale) * action.clip:g} of {joint.effort_limit:g} at most")
