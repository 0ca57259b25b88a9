"""What drives the joints: actuators, learned ones, their kernels, and measured delays."""

from robot_rl_envs.actuation.actuator_net import NetFile, load_actuator_net, save_actuator_net
from robot_rl_envs.actuation.actuators import Actuator, ActuatorNet, DcMotor, ExplicitPd, PositionPd

__all__ = [
    "Actuator",
    "ActuatorNet",
    "DcMotor",
    "ExplicitPd",
    "NetFile",
    "PositionPd",
    "load_actuator_net",
    "save_actuator_net",
]
