"""Check a robot: whether its facts fit its model, before anything is compiled or trained.

usage: robot-rl check robot=<name>

{Options}

Names, default pose, height above the ground and the left-right mirror are checked: random poses are mirrored by the
robot's facts, and the bodies compared with their mirror images. The target of each joint steps by 0.3 rad or m: a
joint that does not follow is a problem; so is a foot beside its body's shape. With any other problem nothing can be
trained (robot-rl train says the same line); a note is unusual, such as gains with which a joint rings or no policy can
be exported, or an arm at the boundary of its reach. The exit code is 1 if there is a problem.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from robot_rl.cli.options import option, read_all
from robot_rl.errors import UserError, as_user_error


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl check."""

    robot: str = option("", "the robot: a name from robot-rl list robots, or module:name")


def run(arguments: Sequence[str]) -> int:
    """Print a description of the robot, and the findings; return 1 if there is a problem, else 0."""
    options = read_all(Options, arguments)
    if not options.robot:
        raise UserError("robot: is missing; robot-rl list robots shows which there are")
    from robot_rl_assets.registry import get_robot
    from robot_rl_envs.entity.legs import describe_strides
    from robot_rl_envs.entity.robot_checks import describe_robot

    from robot_rl.runs.robot_facts import find_all

    with as_user_error():
        robot = get_robot(options.robot)
        lines = [*describe_robot(robot), *describe_strides(robot)]
    findings = find_all(robot)
    for line in lines:
        print(line)
    for finding in findings:
        print(f"{'problem' if finding.is_problem else 'note'}: {finding.text}")
    problems = sum(finding.is_problem for finding in findings)
    notes = len(findings) - problems
    print(f"{problems or 'no'} problem{'s' * (problems != 1)}, {notes or 'no'} note{'s' * (notes != 1)}")
    return int(problems > 0)
