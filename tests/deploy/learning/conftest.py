"""A robot in lockstep with the real binary, and bundles that may follow one another."""

import contextlib
import dataclasses
import time

import numpy as np
import pytest
from robot_rl_deploy import synthetic
from robot_rl_deploy.bundle import read_bundle
from robot_rl_deploy.session import Session

from robot_rl.errors import PeerError
from robot_rl.sim2sim.binary import Binary
from robot_rl.sim2sim.link import Link, Lockstep, free_ports

JOINTS, TRIES = 6, 20
LOCKSTEP = {
    "steps_per_state": 1,
    "stand_s": 0,
    "blend_s": 0,
    "writer_period_s": 0.001,
    "limits.state_age_s": 1e6,
    "limits.state_frozen_s": 1e6,
    "limits.sensor_frozen_s": 1e6,
    "limits.operator_s": 0,
    "limits.missed_deadlines": 1e6,
}
PLAIN = ("--fifo-writer", "0", "--fifo-policy", "0", "--no-watchdog")


class Body:
    """Joints that move a little at random, whatever is commanded."""

    def __init__(self):
        self.random, self.clock_s = np.random.default_rng(0), 0.0

    def sense(self, low, measured=()):
        self.clock_s += 0.002
        low.joints, low.acc = JOINTS, [0.0, 0.0, 9.81]
        low.joint_pos = 0.1 + 0.02 * self.random.standard_normal(JOINTS)
        low.joint_vel, low.gyro = 0.1 * self.random.standard_normal(JOINTS), 0.01 * self.random.standard_normal(3)


class Served:
    """The binary in lockstep with such a robot."""

    def __init__(self, rt, bundle, folder, arguments, settings):
        address = f"udp:127.0.0.1:{free_ports(1)[0]}"
        self.link = Link(address, "synthetic", [f"joint_{k:02d}" for k in range(JOINTS)])
        self.folder, self.body = folder, Body()
        self.binary = Binary(
            bundle,
            folder,
            transport=address,
            settings=LOCKSTEP | settings,
            arguments=[*PLAIN, *map(str, arguments)],
        )
        self.steps = Lockstep(self.link, self.binary, 1)
        self.steps.connect(self.body)
        self.go(1)

    def go(self, steps):
        """So many states, each answered: on a busy machine one may have to be sent more often than it is elsewhere."""
        for _ in range(steps):
            for _ in range(TRIES - 1):
                with contextlib.suppress(PeerError):
                    self.steps.request(self.body)
                    break
            else:
                self.steps.request(self.body)

    def until(self, test, timeout_s=60.0):
        """States, each answered, until a test passes; its result."""
        end = time.monotonic() + timeout_s
        while not (found := test()):
            assert time.monotonic() < end, self.said()
            self.go(1)
        return found

    def said(self):
        return (self.folder / "stderr.txt").read_text()

    def end(self):
        """Stop the binary; its report."""
        assert self.binary.stop() == 0, self.said()
        return self.binary.report()

    def close(self):
        self.binary.stop()
        self.link.close()


@pytest.fixture
def serve(rt, tmp_path):
    """serve(bundle, *arguments, **settings): a robot in lockstep with the binary."""
    made = []

    def start(bundle, *arguments, **settings):
        made.append(Served(rt, bundle, tmp_path / f"run{len(made)}", arguments, settings))
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.fixture(scope="session")
def write(tmp_path_factory):
    """write(name, seed, **more): a small bundle of the robot; seed and iteration say which."""

    def make(name="policy", seed=0, **more):
        out = tmp_path_factory.mktemp("bundle") / name
        before = synthetic.TRAINING
        synthetic.TRAINING = dataclasses.replace(before, iteration=seed)
        try:
            synthetic.write_synthetic_bundle(out, **({"joints": JOINTS, "hidden": (16, 16), "seed": seed} | more))
        finally:
            synthetic.TRAINING = before
        return out

    return make


@pytest.fixture(scope="session")
def first(write):
    """A bundle with a memory."""
    return write(seed=0, memory=8)


@pytest.fixture(scope="session")
def second(write):
    """Another one for the same robot: other weights."""
    return write(seed=1, memory=8)


@pytest.fixture(scope="session")
def network():
    """network(bundle): its network in this Python."""
    return lambda path: Session((path / "policy.onnx").read_bytes(), read_bundle(path).contract)


@pytest.fixture(scope="session")
def steps(shared):
    """steps(log): the messages of the control steps in a log."""
    read = shared("deploy/log_messages.py").messages
    return lambda path: [message for _, message, _ in read(path, ["/policy"])]
