"""A robot of three joints and its commander, driven writer tick by writer tick."""

import math
from types import SimpleNamespace

import pytest
from robot_rl_deploy.contract import TrainingSpec, dumps
from robot_rl_deploy.describe import make_contract

MS = 1_000_000
TICK_NS = 2 * MS
TICKS_PER_STEP = 10
US = 0x5EED  # who we are to the robot
START_NS = 10**12


def contract_text(*, acc: bool = False, wheel: str = "effort") -> bytes:
    """A hip with a position target, a wheel with an effort or a speed, a tail without a motor; `acc`: it is read."""
    names = ("name", "default_pos", "kp", "kd", "effort_limit", "velocity_limit", "lower", "upper")
    rows = [
        ("hip", 0.1, 20.0, 0.5, 10.0, 30.0, -1.0, 1.0),
        ("wheel", 0.0, 5.0 if wheel == "effort" else 0.0, 0.25, 4.0, 50.0, -math.inf, math.inf),
        ("tail", 0.5, 3.0, 1.0, 0.0, math.inf, -math.inf, math.inf),
    ]
    term = {"transform": "identity", "frame": "base"}
    description = {
        "robot": "toy",
        "joints": [dict(zip(names, row, strict=True)) for row in rows],
        "actions": [
            {"joint": "hip", "scale": 0.25, "offset": 0.1, "clip": 100.0, "kind": "position"},
            {"joint": "wheel", "scale": 2.0, "offset": 0.0, "clip": 100.0, "kind": wheel},
        ],
        "observations": [
            term | {"name": "command", "signal": "command", "size": 3, "unit": "m/s, m/s, rad/s"},
            term | {"name": "feet", "signal": "foot_contact", "size": 2, "frame": "none"},
            term | {"name": "gravity", "signal": "imu_quat_wxyz", "transform": "projected_gravity", "size": 3},
        ],
        "control_period_s": 0.02,
        "physics_timestep_s": 0.005,
        "command": {"name": "velocity", "ranges": {"vx": [-1.0, 1.5], "vy": [-0.6, 0.6], "height": [0.2, 0.4]}},
    }
    if acc:
        description["observations"].append(
            term | {"name": "acc", "signal": "imu_acc", "frame": "imu", "size": 3, "unit": "m/s^2"}
        )
    training = TrainingSpec(run_id="run", task="toy", git_commit="unknown", iteration=0)
    return dumps(make_contract(description, training)).encode()


class Rig:
    """A commander, the robot's states, the policy's outputs and the operator, all healthy unless changed."""

    def __init__(self, runtime, *, acc=False, wheel="effort", **settings):
        self.runtime = runtime
        self.contract = runtime.read_contract(contract_text(acc=acc, wheel=wheel))
        self.settings = runtime.Settings()
        for name, value in settings.items():
            where = self.settings.limits if hasattr(self.settings.limits, name) else self.settings
            setattr(where, name, value)
        self.commander = runtime.Commander(self.contract, self.settings, US)
        self.now, self.sequence, self.ticks = START_NS, 0, 0
        self.request = runtime.Request.NONE
        self.target, self.action = [0.5, 2.0], [1.6, 1.0]
        self.epoch = self.commander.policy_epoch
        self.on = SimpleNamespace(states=True, policy=True, operator=True, reports=True, counter=True)
        self.frozen = None  # a state that comes again and again, under new numbers
        self.commands = []

    def state(self):
        """The robot's next state, received with the next tick: healthy, and never twice the same."""
        self.sequence += self.on.counter
        state = self.runtime.LowState() if self.frozen is None else self.frozen
        state.sequence, state.receive_time_ns = self.sequence, self.now + TICK_NS
        if self.frozen is not None:
            return state
        state.commander, state.robot_time_ns = US, self.now + TICK_NS - START_NS
        state.joints, state.feet = 3, 2
        state.quat_wxyz = [1.0, 0.0, 0.0, 0.0]
        state.gyro = [0.01 * (self.ticks % 7), 0.0, 0.1]
        state.joint_pos = [0.3, 0.0, 1.0]
        state.joint_vel = [0.0, 0.0, 0.0]
        state.temperature_c = [40.0, 41.0, 0.0]
        return state

    def operator(self, request=None, command=()):
        """Hand over a message of the operator."""
        message = self.runtime.OperatorInput()
        message.receive_time_ns = self.now
        message.request = self.runtime.Request.NONE if request is None else request
        message.size = len(command)
        message.command = list(command)
        self.commander.on_operator(message, self.now)

    def output(self):
        """The policy's next output, with a reset if the commander requested it."""
        out = self.runtime.PolicyOutput()
        out.ok, out.actions, out.action, out.target = True, 2, self.action, self.target
        out.state_sequence, out.state_receive_time_ns = self.sequence, self.now
        out.reset = self.epoch != self.commander.policy_epoch
        self.epoch = self.commander.policy_epoch
        return out

    def tick(self, state=None):
        """One writer tick: what arrives first, then the command that goes out."""
        arriving = self.state() if state is None and self.on.states else state
        self.now += TICK_NS
        self.ticks += 1
        if arriving is not None:
            self.commander.on_state(arriving, self.now)
        if self.on.operator:
            self.operator(self.request)
        if self.ticks % TICKS_PER_STEP == 0:
            if self.on.policy:
                self.commander.on_policy(self.output(), self.now)
            elif self.on.reports:
                self.commander.on_missed_deadline(self.now)
        self.commands.append(self.commander.command(self.now))
        return self.commands[-1]

    def run(self, seconds):
        """Tick on for a while; gives the last command."""
        for _ in range(round(seconds * 1e9 / TICK_NS)):
            self.tick()
        return self.commands[-1]

    def until_damping(self, seconds=2.0):
        """Tick until a damping command goes out; gives its time."""
        for _ in range(round(seconds * 1e9 / TICK_NS)):
            if self.tick().phase == self.runtime.Phase.DAMPING:
                return self.now
        raise AssertionError(f"no damping within {seconds} s")

    def ask(self, request):
        """One message with a request, and one tick."""
        self.operator(request)
        return self.tick()

    def start(self):
        """Leave BOOT."""
        self.commander.on_state(self.state(), self.now)
        self.commander.ready(self.now)
        self.tick()
        return self

    def go(self, phase):
        """From BOOT to a phase."""
        of = self.runtime.Phase
        if phase != of.BOOT:
            self.start()
        if phase in (of.STAND, of.POLICY):
            self.ask(self.runtime.Request.STAND)
        if phase == of.POLICY:
            self.run(self.settings.stand_s)
            self.ask(self.runtime.Request.POLICY)
            self.run(2 * TICKS_PER_STEP * TICK_NS * 1e-9)
        assert self.commander.phase == phase, (self.commander.phase, self.commander.fault)
        return self


@pytest.fixture(scope="session")
def runtime():
    """The compiled module; whether it may be missing is decided one folder up."""
    import robot_rl_runtime

    return robot_rl_runtime


@pytest.fixture(scope="session")
def make_rig(runtime):
    """Makes rigs that stand up within 40 ms; settings and limits by name."""
    return lambda **settings: Rig(runtime, **{"stand_s": 0.04, "blend_s": 0.0} | settings)


@pytest.fixture(scope="session")
def contract(runtime):
    """The contract of the rigs' robot."""
    return runtime.read_contract(contract_text())
