"""The relay between a robot and its policy: joints by name on either side, and what its script says."""

import os
import threading
import time

import numpy as np
import pytest

from robot_rl.sim2sim.faults import read_faults
from robot_rl.sim2sim.link import LOOPBACK, free_ports
from robot_rl.sim2sim.proxy import Relay

ROBOTS = {"shm": "unitree_go2", "unitree_go": "unitree_go2", "unitree_hg": "unitree_g1"}


class Ends:
    """A robot and a policy with a relay between them; the contract's joints stand in another order than the robot's."""

    def __init__(self, rt, kind, contract_for, folder, faults):
        robot = ROBOTS[kind]
        self.names, contract = contract_for(robot)
        self.motors = [name for name in rt.unitree_motors(robot) if name]
        (folder / "contract.json").write_text(contract)
        ports = free_ports(3)
        domain = 1 + 2 * (os.getpid() % 100)
        places = [f"shm:relay-{port}" for port in ports[:2]]
        if kind != "shm":
            places = [f"dds:{kind}?domain={domain + side}" for side in (0, 1)]
        self.relay = Relay(
            front=places[1],
            robot=places[0],
            contract=str(folder / "contract.json"),
            desk=f"{LOOPBACK}:{ports[2]}",
            operator=f"{LOOPBACK}:{ports[0]}",
            faults=read_faults(faults),
        )
        self.feet = 4 if robot == "unitree_go2" else 0
        self.end = rt.RobotEnd(places[0], rt.RobotDescription(robot, self.motors, self.feet))
        self.client, self.rt, self.contract = rt.Transport(places[1], "none", 7), rt, contract
        self.state, self.commands, self.is_over = rt.LowState(), [], False
        self.state.joints, self.state.feet = len(self.motors), self.feet
        self.state.joint_pos = np.arange(len(self.motors)) + 1.0
        self.threads = [threading.Thread(target=work) for work in (self.relay.run, self.serve)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        end = time.monotonic() + 30
        while True:
            try:
                self.client.connect(self.contract, 1.0)
                return self
            except ValueError:
                if time.monotonic() > end:
                    raise

    def __exit__(self, *_):
        self.is_over = True
        self.relay.stop()
        for thread in self.threads:
            thread.join()
        assert self.relay.failure == ""

    def serve(self):
        """The robot: a state every 2 ms."""
        while not self.is_over:
            self.end.wait(0.002)
            while (command := self.end.take_command()) is not None:
                self.commands.append(command.copy())
            self.state.robot_time_ns += 2_000_000
            self.end.send_state(self.state)

    def exchange(self, until, phase="POLICY", seconds=20.0):
        """The policy: a command for each state, until something holds for the newest state."""
        command = self.rt.LowCommand()
        command.joints, command.phase = len(self.names), getattr(self.rt.Phase, phase)
        command.q = np.arange(len(self.names)) + 100.0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.client.wait(0.01)
            state = self.client.take_state()
            if state is None:
                continue
            command.sequence += 1
            command.state_sequence, command.state_robot_time_ns = state.sequence, state.robot_time_ns
            command.send_time_ns = self.rt.now_ns()
            self.client.send(command)
            if until(state):
                return state
        raise AssertionError("it never came to that")


@pytest.fixture
def ends(request, rt, shared, tmp_path):
    """ends(kind, faults): both ends, with a relay between them."""

    def make(kind, faults=""):
        if kind != "shm" and not rt.has_dds():
            pytest.skip("this build speaks no DDS")
        return Ends(rt, kind, shared("deploy/transports/test_dds.py").contract_for, tmp_path, faults)

    return make


@pytest.mark.parametrize("kind", ROBOTS)
def test_joints_pass_by_name_both_ways(ends, kind):
    with ends(kind) as both:
        state = both.exchange(lambda _: len(both.commands) > 20)
        places = [both.motors.index(name) for name in both.names]
        np.testing.assert_array_equal(state.joint_pos[: len(places)], np.array(places) + 1.0)
        q = both.commands[-1].q
        np.testing.assert_array_equal(q[places], np.arange(len(places)) + 100.0)
    # Each answers a state that the robot sent, by the robot's own number; one can be answered before it is counted.
    answered = [command.state_sequence for command in both.commands]
    assert 0 < answered[-1] <= both.end.counters["states"]
    assert answered == sorted(answered)


@pytest.mark.parametrize("kind", ["shm", "unitree_hg"])
def test_what_the_script_says_happens_to_a_joint(ends, kind):
    with ends(kind, "motor_fault=5:3@0.1,temperature=99:3@0.1") as both:
        state = both.exchange(lambda state: any(state.motor_fault))
        assert np.flatnonzero(state.motor_fault).tolist() == [3]
        assert state.motor_fault[3] == 5
        assert state.temperature_c[3] == 99
    assert [row["happened"] for row in both.relay.report()] == [True, True]


def test_a_policy_for_another_robot_ends_it(rt, shared, tmp_path):
    """The relay says why, and does not wait for ever."""
    both = Ends(rt, "shm", shared("deploy/transports/test_dds.py").contract_for, tmp_path, "")
    both.relay._contract = shared("deploy/transports/test_dds.py").contract_for("unitree_g1")[1]
    for thread in both.threads:
        thread.start()
    both.threads[0].join(20)
    assert not both.threads[0].is_alive()
    both.is_over = True
    both.threads[1].join()
    assert "the policy is for 'unitree_g1'" in both.relay.failure
