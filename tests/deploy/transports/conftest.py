"""A robot of three joints, and both ends of a transport in one process."""

import importlib.util
import json
import os
import threading
import uuid
from pathlib import Path

import numpy as np
import pytest
import robot_rl_runtime as rt
from robot_rl_deploy.contract import TrainingSpec, dumps
from robot_rl_deploy.describe import make_contract

from robot_rl.sim2sim.link import free_ports

ROOT = Path(__file__).parents[3]
# The robot's own order, another one than the contract's: hip, knee, tail.
JOINTS = ["tail", "hip", "knee"]


def free_port():
    return free_ports(1)[0]


@pytest.fixture(scope="session")
def port():
    """A function that gives a UDP port of this machine that nobody uses."""
    return free_port


@pytest.fixture(scope="session")
def contract():
    """Text of a contract for joints hip, knee and tail."""
    path = ROOT / "tests/unit/deploy/conftest.py"
    spec = importlib.util.spec_from_file_location("shared_unit_deploy_conftest", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    training = TrainingSpec(run_id="r", task="toy_task", git_commit="0" * 40, iteration=1)
    return dumps(make_contract(module.toy_description(), training))


@pytest.fixture(params=["udp", "shm"])
def address(request):
    """An address of each kind that nobody uses."""
    return (
        f"udp:127.0.0.1:{free_port()}" if request.param == "udp" else f"shm:test-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    )


@pytest.fixture
def robot():
    return rt.RobotDescription("toy", JOINTS)


def connect(end, client, contract, timeout_s=10.0):
    """Connect while the robot's end answers; gives what `connect` gives, or raises what it raises."""
    result, done = {}, threading.Event()

    def run():
        try:
            result["robot"] = client.connect(contract, timeout_s)
        except Exception as error:
            result["error"] = error
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    while not done.is_set():
        end.wait(0.005)
        assert end.take_command() is None
    thread.join()
    if "error" in result:
        raise result["error"]
    return result["robot"]


def take_state(client, seconds=5.0):
    """The newest state, waited for."""
    end = rt.now_ns() + int(seconds * 1e9)
    while rt.now_ns() < end:
        client.wait(0.05)
        state = client.take_state()
        if state is not None:
            return state
    raise AssertionError("no state arrived")


def take_command(end, seconds=5.0):
    """The next command, waited for."""
    until = rt.now_ns() + int(seconds * 1e9)
    while rt.now_ns() < until:
        end.wait(0.05)
        command = end.take_command()
        if command is not None:
            return command
    raise AssertionError("no command arrived")


def make_state(sequence=0, joints=3, **values):
    """A state with different values in its arrays."""
    state = rt.LowState()
    state.sequence, state.joints = sequence, joints
    state.joint_pos = np.arange(1, joints + 1)
    for name, value in values.items():
        setattr(state, name, value)
    return state


def make_command(sequence=1, joints=3, **values):
    command = rt.LowCommand()
    command.sequence, command.joints, command.commander = sequence, joints, 1
    command.q = np.arange(10, 10 + joints)
    for name, value in values.items():
        setattr(command, name, value)
    return command


class Tools:
    """The functions above, handed to tests."""

    connect = staticmethod(connect)
    take_state = staticmethod(take_state)
    take_command = staticmethod(take_command)
    state = staticmethod(make_state)
    command = staticmethod(make_command)

    @staticmethod
    def contract_with(text, **changes):
        """The contract with fields of its top level changed."""
        return json.dumps(json.loads(text) | changes)


@pytest.fixture(scope="session")
def tools():
    return Tools


@pytest.fixture
def pair(address, robot, contract, tools):
    """Both ends, connected: (robot's end, policy's end)."""
    end = rt.RobotEnd(address, robot)
    client = rt.Transport(address, commander=7)
    tools.connect(end, client, contract)
    return end, client
