"""A robot's facts, runs and bundles: whether a run's robots have changed, and whether a bundle is for its robot.

With other gains or another default pose the same actions move another robot, so run.yaml has the facts of its robots.
A bundle's own checks know no robots: they refuse gains and limits that no robot has. The contract of a known robot must
have that robot's joints, limits no wider than its own, and gains of their order of magnitude.
"""

import dataclasses
import hashlib
import sys
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

from robot_rl.errors import UserError, as_user_error
from robot_rl.plugins import ROBOTS, named_here

if TYPE_CHECKING:
    from robot_rl_assets.robot import Joint, Robot
    from robot_rl_deploy.contract import Contract, JointSpec
    from robot_rl_envs.entity.robot_checks import Finding

AGAIN = "restore the robot's files, or train again"
"""What to do about a run whose robot has changed."""
GAIN_FACTOR = 5.0
"""How far a policy's gains may be from the asset's: a task may train with others on purpose."""
RANGE_MARGIN = 0.01
"""How far a position limit may be beyond the model's [rad or m]: models of a robot differ in their last digits."""


def describe_robots(task: Any) -> dict[str, Any]:
    """Return run.yaml's part about a task's robots: their facts by name, and the SHA-256 of their model files."""
    from robot_rl_assets.robot import Robot
    from robot_rl_envs.measured import JOINT_VALUES

    agents = getattr(task, "robots", None) or {}
    robots = [agent.robot for agent in agents.values()] or [getattr(task, "robot", None)]
    found = {robot.name: _facts(robot) for robot in robots if isinstance(robot, Robot)}
    randomize = getattr(task, "randomize", None)
    if any(getattr(randomize, name, ()) for name in JOINT_VALUES):  # Dynamics that are settings are not facts.
        for facts in found.values():
            for joint in facts["joints"].values():
                joint.pop("dynamics", None)
    return {"robots": found} if found else {}


def _facts(robot: "Robot") -> dict[str, Any]:
    facts = {name: value for name, value in _values(robot).items() if name != "joints"}
    joints = {joint.name: _values(joint) for joint in robot.joints}
    return facts | {"model": hashlib.sha256(robot.model.read_bytes()).hexdigest(), "joints": joints}


def _values(facts: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, without its name, as YAML can have them."""
    values = {field.name: getattr(facts, field.name) for field in dataclasses.fields(facts) if field.name != "name"}
    if values.get("dynamics", ...) is None:  # Earlier runs have none.
        del values["dynamics"]
    for name, value in values.items():
        if isinstance(value, tuple):
            values[name] = list(value)
        elif dataclasses.is_dataclass(value):
            values[name] = _values(value)
        elif isinstance(value, Real) and not isinstance(value, bool | int):
            values[name] = float(value)
    return values


def check_unchanged(run_id: str, record: Mapping[str, Any], task: Any) -> None:
    """Refuse a run whose robots have changed since it began; a run of an earlier version, without their facts, passes.

    Args:
        run_id: Its id.
        record: Its run.yaml.
        task: The task of its settings, with the robots as they are now.

    Raises:
        UserError: The first fact that differs; it names the robot, the joint and both values.
    """
    from robot_rl.settings.tree import leaves

    kept = record.get("robots")
    if not isinstance(kept, Mapping):
        return
    for name, now in describe_robots(task).get("robots", {}).items():
        old, new = dict(leaves(kept.get(name, {}))), dict(leaves(now))
        for key in dict.fromkeys((*new, *old)):
            if key in old and key in new and old[key] == new[key]:
                continue
            change = f"{key}={new.get(key, 'missing')} now, the run began with {old.get(key, 'missing')}"
            if key == "model":
                change = "another model file than at the beginning of the run"
            raise UserError("run", run_id, f"the robot '{name}' has {change}", AGAIN)


def find_all(robot: "Robot") -> list["Finding"]:
    """Return the problems and unusual facts of a robot, and notes on gains that no bundle may have.

    Raises:
        UserError: Its model does not compile.
    """
    from robot_rl_envs.entity import robot_checks
    from robot_rl_envs.entity.trials import try_robot

    with as_user_error():
        found = list(robot_checks.check_robot(robot))
        if any(finding.is_problem for finding in found) or robot.complete:
            return found
        found = [*try_robot(robot), *found]
    return found + [
        robot_checks.Finding(False, f"a policy for it cannot be exported: {line}") for line in _implausible(robot)
    ]


def _implausible(robot: "Robot") -> list[str]:
    from robot_rl_deploy.parts import ActionSpec, JointSpec
    from robot_rl_deploy.plausible import check_parts
    from robot_rl_deploy.strict import ContractError

    ranges, lines = _ranges(robot), []
    for joint in robot.joints:
        lower, upper = ranges.get(joint.name, (None, None))
        fields = ("name", "default_pos", "kp", "kd", "effort_limit", "velocity_limit")
        kind = "velocity" if joint.by_speed else "position" if joint.kp else "effort"
        target = {"scale": joint.action_scale, "offset": 0.0, "clip": None}
        try:
            spec = JointSpec(lower=lower, upper=upper, **{field: getattr(joint, field) for field in fields})
            actions = [] if joint.passive else [ActionSpec(joint=joint.name, kind=kind, **target)]
            check_parts([spec], actions, [])
        except ContractError as error:
            lines.append(str(error))
    return lines


def check_robot(contract: "Contract") -> None:
    """Refuse a contract that contradicts a known robot; that of an unknown robot passes.

    A robot of the working folder is known once something that the user named has imported it: a bundle must not.
    """
    from robot_rl_assets.registry import REGISTRY, get_robot, list_robots

    here = named_here(ROBOTS, contract.robot, REGISTRY.files())
    if contract.robot not in list_robots() or any(code.partition(":")[0] not in sys.modules for code in here):
        return
    with as_user_error():
        robot = get_robot(contract.robot)
    names = set(contract.joint_names)
    if odd := sorted(names ^ set(robot.joint_names)):
        raise UserError(f"bundle: its joints are not those of the robot '{robot.name}', see {', '.join(odd)}")
    ranges = _ranges(robot)
    for joint in robot.joints:
        (found,) = (spec for spec in contract.joints if spec.name == joint.name)
        _check_limits(found, joint, ranges.get(joint.name), robot.name)
        for field in ("kp", "kd"):
            value, right = getattr(found, field), getattr(joint, field)
            if right > 0 and not right / GAIN_FACTOR <= value <= right * GAIN_FACTOR:
                right = f"{right:g}, and a policy's must be within a factor of 5"
                raise _refusal(found, field, value, right, robot.name)


def _check_limits(found: "JointSpec", joint: "Joint", limits: tuple[float, float] | None, robot: str) -> None:
    for field in ("effort_limit", "velocity_limit"):
        value, most = getattr(found, field), getattr(joint, field)
        if value is None or value > most * (1 + 1e-6):
            raise _refusal(found, field, value, f"{most:g}, and a policy's must not be more", robot)
    if limits is None:
        return
    for field, sign, end in (("lower", -1.0, limits[0]), ("upper", 1.0, limits[1])):
        value = getattr(found, field)
        if value is None or sign * (value - end) > RANGE_MARGIN:
            raise _refusal(found, field, value, f"{end:g}, and a policy's must not be wider", robot)


def _refusal(joint: "JointSpec", field: str, value: float | None, right: str, robot: str) -> UserError:
    return UserError(f"bundle: joint '{joint.name}' {field}={value}: the robot '{robot}' has {right}")


def _ranges(robot: "Robot") -> dict[str, tuple[float, float]]:
    """Return position limits of the joints that have any, from the robot's model [rad or m]."""
    model = robot.load_model().compile()
    joints = [model.joint(name) for name in robot.joint_names]
    return {
        joint.name: (float(joint.range[0]), float(joint.range[1])) for joint in joints if model.jnt_limited[joint.id]
    }
