"""What goes out in each phase, by hand, and the effort limit against its formula."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

MS = 1_000_000
F32 = np.float32


def at(rig, milliseconds):
    """The command that goes out so long after the last transition, with a state just received."""
    rig.ticks += 1
    state, time = rig.state(), rig.entered + milliseconds * MS
    state.receive_time_ns = state.robot_time_ns = time
    state.gyro = [0.001 * (rig.ticks % 7), 0.0, 0.0]
    rig.commander.on_state(state, time)
    return rig.commander.command(time)


def enter(rig, request):
    """Ask for a phase and keep the time of its start."""
    rig.operator(request)
    rig.entered = rig.now
    return rig


def test_damping_is_the_contracts_kd_and_nothing_else(make_rig):
    command = make_rig(damping_scale=3.0).start().tick()
    assert list(command.q[:3]) == [F32(0.3), 0, 1]
    assert list(command.kd[:3]) == [1.5, 0.75, 0]
    for array in (command.dq, command.kp, command.tau, command.q[3:], command.kd[3:]):
        assert not np.any(array)


@pytest.mark.parametrize(("milliseconds", "q"), [(0, 0.3), (500, 0.25), (1000, 0.2), (2000, 0.1), (2500, 0.1)])
def test_stand_is_a_ramp_from_where_the_joints_were(runtime, make_rig, milliseconds, q):
    rig = enter(make_rig(stand_s=2.0, operator_s=0.0).start(), runtime.Request.STAND)
    for earlier in range(0, milliseconds, 10):
        at(rig, earlier)
    command = at(rig, milliseconds)
    assert command.phase == runtime.Phase.STAND
    assert command.q[0] == pytest.approx(q, abs=1e-7)
    assert list(command.kp[:3]) == [20, 5, 0]
    assert list(command.kd[:3]) == [0.5, 0.25, 0]
    assert not np.any(command.dq)
    assert not np.any(command.tau)


@pytest.mark.parametrize("milliseconds", [0, 100, 250, 500, 700])
def test_the_policys_targets_are_blended_in(runtime, make_rig, milliseconds):
    """The hip goes from its pose 0.1 to 0.5; the wheel's controller fades out as its effort of 2 fades in."""
    rig = make_rig(stand_s=0.02, blend_s=0.5, operator_s=0.0).go(runtime.Phase.STAND)
    rig.run(0.03)
    enter(rig, runtime.Request.POLICY)
    for earlier in range(0, milliseconds + 1, 10):
        rig.commander.on_policy(rig.output(), rig.entered + earlier * MS)
        command = at(rig, earlier)
    blend = min(1.0, milliseconds / 500)
    assert command.phase == runtime.Phase.POLICY
    assert command.q[0] == pytest.approx(0.1 + 0.4 * blend, abs=1e-7)
    assert command.q[1] == 0
    assert list(command.tau[:3]) == pytest.approx([0, 2 * blend, 0], abs=1e-6)
    assert list(command.kp[:3]) == pytest.approx([20, 5 * (1 - blend), 0], abs=1e-6)
    assert list(command.kd[:3]) == pytest.approx([0.5, 0.25 * (1 - blend), 0], abs=1e-6)
    if blend == 1:
        assert command.q[0] == F32(0.5)


@pytest.mark.parametrize("milliseconds", [0, 100, 250, 500, 700])
def test_a_wheels_speed_is_blended_in_and_its_kd_brakes_it_in_stand(runtime, make_rig, milliseconds):
    rig = make_rig(wheel="velocity", stand_s=0.02, blend_s=0.5, operator_s=0.0).go(runtime.Phase.STAND)
    command = rig.run(0.03)
    assert (command.phase, command.dq[1]) == (runtime.Phase.STAND, 0.0)
    enter(rig, runtime.Request.POLICY)
    rig.target = [0.5, 12.0]
    for earlier in range(0, milliseconds + 1, 10):
        rig.commander.on_policy(rig.output(), rig.entered + earlier * MS)
        command = at(rig, earlier)
    assert command.phase == runtime.Phase.POLICY
    assert command.dq[1] == pytest.approx(12.0 * min(1.0, milliseconds / 500), abs=1e-5)
    assert (command.kp[1], command.kd[1], command.tau[1]) == (0.0, 0.25, 0.0)
    assert rig.ask(runtime.Request.DAMP).dq[1] == 0.0


def test_outputs_of_before_the_policy_was_entered_are_not_obeyed(runtime, make_rig):
    rig = make_rig().go(runtime.Phase.STAND)
    rig.run(0.05)
    rig.target = [0.9, 3.0]
    late = rig.output()
    rig.operator(runtime.Request.POLICY)
    rig.commander.on_policy(late, rig.now)
    command = rig.commander.command(rig.now + 1)
    assert command.q[0] == F32(0.1)
    assert command.tau[1] == 0
    rig.commander.on_policy(rig.output(), rig.now)
    assert rig.commander.command(rig.now + 1).q[0] == pytest.approx(min(0.9, 0.3 + 10 / 20), abs=1e-6)


def test_the_limit_on_effort_holds_in_the_machine(runtime, make_rig):
    """At 0.3 rad and 4 rad/s, with kp 20, kd 0.5 and 10 N m: 20 (q - 0.3) - 2 <= 10 gives q <= 0.9."""
    rig = make_rig(action_rate=1000.0).go(runtime.Phase.POLICY)
    rig.target = [3.0, 50.0]
    rig.run(0.02)
    state = rig.state()
    state.joint_vel = [4.0, 0.0, 0.0]
    command = rig.tick(state)
    assert command.q[0] == pytest.approx(0.9, abs=1e-6)
    assert command.tau[1] == 4


def test_a_command_carries_the_state_that_it_answers(runtime, make_rig):
    rig = make_rig().go(runtime.Phase.POLICY)
    while rig.ticks % 10:
        rig.tick()
    answered, received = rig.sequence, rig.now
    command = rig.commander.command(rig.now + 50_000, True)
    assert (command.state_sequence, command.state_age_ns, command.from_policy) == (answered, 50_000, True)
    later = rig.run(0.006)
    assert (later.state_sequence, later.state_age_ns, later.from_policy) == (answered, rig.now - received, False)
    assert later.sequence == command.sequence + 3
    assert later.commander == 0x5EED
    damping = rig.ask(runtime.Request.DAMP)
    assert (damping.state_sequence, damping.state_age_ns) == (rig.sequence, 0)


def test_a_state_that_is_not_finite_does_not_reach_the_command(runtime, make_rig):
    rig = make_rig().go(runtime.Phase.POLICY)
    state = rig.state()
    state.joint_pos = [math.nan] * 3
    assert list(rig.tick(state).q[:3]) == [F32(0.3), 0, 1]


def values(magnitude):
    return st.floats(-magnitude, magnitude, width=32)


ARRAYS = st.tuples(*(st.lists(values(m), min_size=3, max_size=3) for m in (7, 60, 20, 5, 50)))
GAINS = st.lists(st.floats(0, 2000, width=32), min_size=6, max_size=6)


@given(ARRAYS, GAINS)
@settings(max_examples=150, deadline=None)
def test_limited_efforts_obey_the_formula(runtime, contract, arrays, gains):
    safety = runtime.Safety(contract, runtime.SafetyLimits())
    position, velocity, q, dq, tau = (np.array(values, np.float32) for values in arrays)
    kp, kd = np.array(gains[:3], np.float32), np.array(gains[3:], np.float32)
    state, command = runtime.LowState(), runtime.LowCommand()
    state.joints = command.joints = 3
    state.joint_pos, state.joint_vel = position, velocity
    command.q, command.dq, command.tau, command.kp, command.kd = q, dq, tau, kp, kd
    limited = safety.limit_effort(state, command)
    limit = np.array([10.0, 4.0])
    pos, vel = position[:2].astype(float), velocity[:2].astype(float)

    def effort(c):
        two = [np.array(array[:2], float) for array in (c.kp, c.q, c.kd, c.dq, c.tau)]
        return two[0] * (two[1] - pos) + two[2] * (two[3] - vel) + two[4]

    def requested(kp, q, kd, dq, tau):
        two = [array[:2].astype(float) for array in (kp, q, kd, dq, tau)]
        return two[0] * (two[1] - pos) + two[2] * (two[3] - vel) + two[4]

    wanted, given_ = requested(kp, q, kd, dq, tau), effort(command)
    scale = np.abs(wanted) + np.abs(kd[:2] * (dq[:2] - velocity[:2])) + np.abs(tau[:2]) + limit
    assert np.all(np.abs(given_) <= limit + 1e-12 * scale)
    for i in range(2):
        now = (command.q[i], command.dq[i], command.kp[i], command.kd[i], command.tau[i])
        if abs(wanted[i]) <= limit[i] * (1 - 1e-6):
            assert now == (q[i], dq[i], kp[i], kd[i], tau[i])
        elif abs(wanted[i]) > limit[i] * (1 + 1e-6) and command.kp[i] == kp[i] and command.kd[i] == kd[i]:
            # one step of float32 in q, dq or tau is the finest that there is
            steps = ((kp[i], command.q[i]), (kd[i], command.dq[i]), (1.0, command.tau[i]))
            step = max(gain * np.spacing(F32(abs(value))) for gain, value in steps)
            assert given_[i] == pytest.approx(math.copysign(limit[i], wanted[i]), abs=2 * float(step) + 1e-9 * scale[i])
    assert (command.kp[2], command.kd[2], command.tau[2], command.dq[2], command.q[2]) == (0, 0, 0, 0, position[2])
    assert limited >= sum(abs(wanted) > limit * (1 + 1e-6))


@pytest.mark.parametrize(
    ("kp", "q", "tau", "limited_q", "limited_tau"),
    [
        (20.0, 5.0, 0.0, 0.5, 0.0),  # 20 q <= 10
        (20.0, -5.0, 0.0, -0.5, 0.0),
        (20.0, 0.2, 0.0, 0.2, 0.0),
        (20.0, 0.0, 30.0, -1.0, 30.0),  # 20 q + 30 <= 10
        (0.0, 5.0, 30.0, 5.0, 10.0),
        (0.0, 5.0, -30.0, 5.0, -10.0),
    ],
)
def test_the_effort_limit_by_hand(runtime, contract, kp, q, tau, limited_q, limited_tau):
    safety = runtime.Safety(contract, runtime.SafetyLimits())
    state, command = runtime.LowState(), runtime.LowCommand()
    state.joints = command.joints = 3
    command.kp, command.q, command.tau = [kp], [q], [tau]
    safety.limit_effort(state, command)
    assert (command.q[0], command.tau[0], command.kp[0]) == (limited_q, limited_tau, kp)


@pytest.mark.parametrize(
    ("dq", "velocity", "tau", "limited_dq", "limited_tau"),
    [
        (30.0, 10.0, 0.0, 15.0, 0.0),  # 2 (dq - 10) <= 10: the target comes nearer, and asks for less as it is reached
        (-30.0, 10.0, 0.0, 5.0, 0.0),
        (12.0, 10.0, 0.0, 12.0, 0.0),
        (30.0, 10.0, 4.0, 13.0, 4.0),
        (12.0, 10.0, 30.0, 12.0, 6.0),  # an effort beyond the limit is the fault of the effort
    ],
)
def test_a_speed_target_comes_nearer_where_the_effort_would_be_too_large(
    runtime, contract, dq, velocity, tau, limited_dq, limited_tau
):
    safety = runtime.Safety(contract, runtime.SafetyLimits())
    state, command = runtime.LowState(), runtime.LowCommand()
    state.joints = command.joints = 3
    state.joint_vel = [velocity]
    command.kd, command.dq, command.tau = [2.0], [dq], [tau]
    assert safety.limit_effort(state, command) == (1 if (limited_dq, limited_tau) != (dq, tau) else 0)
    assert (command.dq[0], command.tau[0], command.kd[0]) == (limited_dq, limited_tau, 2.0)
