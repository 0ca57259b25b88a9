"""Whatever is called in whatever order: commands are finite, within the effort limits, and inactive after a fault."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ODD = [math.nan, math.inf, -math.inf, 3.4e38, -3.4e38, 1e-45]
STATE_ARRAYS = ("quat_wxyz", "gyro", "acc", "joint_pos", "joint_vel", "joint_effort", "temperature_c", "foot_contact")
FAULTS = ("SECOND_COMMANDER", "DEADLINE", "OPERATOR_STOP", "REFUSED", "INTERNAL", "STALLED", "NONE")
LEGAL = {
    ("BOOT", "DAMPING"),
    ("DAMPING", "STAND"),
    ("STAND", "DAMPING"),
    ("STAND", "POLICY"),
    ("POLICY", "DAMPING"),
}

calm = st.floats(-0.875, 0.875, width=32)
wild = st.one_of(calm, st.floats(-60, 60, width=32), st.floats(width=32), st.sampled_from(ODD))
requests = st.sampled_from(["NONE", "DAMP", "STAND", "STAND", "POLICY", "POLICY"])
edits = st.lists(st.tuples(st.sampled_from(STATE_ARRAYS), st.integers(0, 2), wild), max_size=2)
mostly = st.integers(0, 9).map(lambda draw: draw > 0)
calls = st.one_of(
    st.tuples(st.just("state"), st.lists(calm, min_size=6, max_size=6), st.one_of(st.just([]), edits)),
    st.tuples(st.just("operator"), requests, st.lists(wild, max_size=4)),
    st.tuples(st.just("operator"), requests, st.just([])),
    st.tuples(st.just("policy"), st.lists(st.floats(-40, 40, width=32), min_size=4, max_size=4), mostly),
    st.tuples(st.just("policy"), st.lists(wild, min_size=4, max_size=4), mostly),
    st.tuples(st.just("wait"), st.sampled_from([0, 1, 2_000_000, 2_000_000, 21_000_000, -5000]), st.none()),
    st.tuples(st.just("missed"), st.none(), st.none()),
    st.tuples(st.just("fault"), st.sampled_from(FAULTS), st.none()),
    st.tuples(st.just("shape"), st.integers(-2, 70), st.integers(-2, 10)),
)
sequences = st.lists(calls, max_size=40)


class Player:
    """Plays calls into a commander that was brought to POLICY, a command after each."""

    def __init__(self, rig, runtime):
        self.rig, self.runtime = rig, runtime
        self.commander = rig.commander
        self.command = self.commander.command(rig.now)
        self.position, self.velocity = np.array([0.3, 0, 1], np.float32), np.zeros(3, np.float32)

    def play(self, call):
        getattr(self, f"do_{call[0]}")(*call[1:])
        self.command = self.commander.command(self.rig.now, call[0] == "policy")
        return self.command

    def do_state(self, joints, changes):
        state = self.rig.state()
        state.joint_pos, state.joint_vel = joints[:3], joints[3:]
        for name, index, value in changes:
            getattr(state, name)[index] = value
        self.commander.on_state(state, self.rig.now)
        if all(np.isfinite(getattr(state, name)).all() for name in STATE_ARRAYS):
            self.position, self.velocity = state.joint_pos[:3].copy(), state.joint_vel[:3].copy()

    def do_shape(self, joints, feet):
        state = self.rig.state()
        state.joints, state.feet = joints, feet
        fits = joints == 3 and 2 <= feet <= 8
        self.commander.on_state(state, self.rig.now)
        if fits:
            self.position, self.velocity = state.joint_pos[:3].copy(), state.joint_vel[:3].copy()

    def do_operator(self, request, command):
        self.rig.operator(getattr(self.runtime.Request, request), command)

    def do_policy(self, numbers, ok):
        self.rig.action, self.rig.target = numbers[:2], numbers[2:]
        out = self.rig.output()
        out.ok = ok
        self.commander.on_policy(out, self.rig.now)

    def do_wait(self, nanoseconds, _):
        self.rig.now += nanoseconds

    def do_missed(self, *_):
        self.commander.on_missed_deadline(self.rig.now)

    def do_fault(self, name, _):
        self.commander.on_fault(self.runtime.Finding(getattr(self.runtime.Fault, name)), self.rig.now)

    def check(self):
        """What holds for every command."""
        c = self.command
        arrays = [np.array(array[:3], float) for array in (c.kp, c.q, c.kd, c.dq, c.tau)]
        assert all(np.isfinite(array).all() for array in arrays)
        kp, q, kd, dq, tau = arrays
        if c.phase.name in ("BOOT", "DAMPING"):
            assert not kp.any()
            assert not tau.any()
            assert kd.tolist() == [0.5, 0.25, 0]
            return
        velocity = dq - self.velocity
        effort = kp * (q - self.position) + kd * velocity + tau
        slack = 1e-9 * (1 + np.abs(kd * velocity) + np.abs(tau))
        assert np.all(np.abs(effort) <= np.array([10.0, 4.0, 0.0]) + slack)


@given(sequences, st.sampled_from(["BOOT", "DAMPING", "STAND", "POLICY"]))
@settings(max_examples=150, deadline=None)
def test_no_order_of_calls_gives_a_command_that_must_not_be(runtime, make_rig, sequence, phase):
    rig = make_rig(stand_s=0.004, blend_s=0.01).go(getattr(runtime.Phase, phase))
    player = Player(rig, runtime)
    error, acknowledged = False, False
    for call in sequence:
        before, was_error = player.command.phase, error
        command = player.play(call)
        player.check()
        if before != command.phase:
            assert (before.name, command.phase.name) in LEGAL
        error = command.fault.name not in ("NONE", "OPERATOR_STOP")
        assert not (error and command.phase.name != "DAMPING")
        # out of a fault only by an explicit request to damp, and then to stand
        if was_error and not error:
            assert call[:2] == ("operator", "DAMP")
            acknowledged = True
        if command.phase.name == "STAND" and before.name == "DAMPING":
            assert call[:2] == ("operator", "STAND")
            assert not was_error or acknowledged


def record(runtime, make_rig, sequence):
    player = Player(make_rig(stand_s=0.004, blend_s=0.05).go(runtime.Phase.POLICY), runtime)
    return [runtime.command_bytes(player.play(call)) for call in sequence]


@given(sequences)
@settings(max_examples=30, deadline=None)
def test_the_same_calls_give_the_same_bits(runtime, make_rig, sequence):
    assert record(runtime, make_rig, sequence) == record(runtime, make_rig, sequence)


@pytest.mark.parametrize("name", STATE_ARRAYS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_never_passes(runtime, make_rig, name, value):
    for index in range(2):
        player = Player(make_rig().go(runtime.Phase.POLICY), runtime)
        player.play(("state", [0.0] * 6, [(name, index, value)]))
        player.check()
        assert player.command.fault == runtime.Fault.NOT_FINITE
