"""The state machine: which request leads where, what a latched fault holds back, what counts before it is ready."""

import math

import pytest

TABLE = [
    # phase, request, where it leads
    ("BOOT", "DAMP", "BOOT"),
    ("BOOT", "STAND", "BOOT"),
    ("BOOT", "POLICY", "BOOT"),
    ("DAMPING", "NONE", "DAMPING"),
    ("DAMPING", "DAMP", "DAMPING"),
    ("DAMPING", "STAND", "STAND"),
    ("DAMPING", "POLICY", "DAMPING"),
    ("STAND", "NONE", "STAND"),
    ("STAND", "DAMP", "DAMPING"),
    ("STAND", "STAND", "STAND"),
    ("POLICY", "NONE", "POLICY"),
    ("POLICY", "DAMP", "DAMPING"),
    ("POLICY", "STAND", "POLICY"),
    ("POLICY", "POLICY", "POLICY"),
]


@pytest.mark.parametrize(("phase", "request_name", "leads_to"), TABLE)
def test_a_request_leads_where_the_table_says(runtime, make_rig, phase, request_name, leads_to):
    rig = make_rig().go(getattr(runtime.Phase, phase))
    rig.operator(getattr(runtime.Request, request_name))
    assert rig.commander.phase == getattr(runtime.Phase, leads_to)


def test_the_policy_waits_for_the_end_of_the_ramp(runtime, make_rig):
    rig = make_rig(stand_s=0.1).go(runtime.Phase.STAND)
    entered = rig.now - 2_000_000
    while rig.now < entered + 98_000_000:
        assert rig.ask(runtime.Request.POLICY).phase == runtime.Phase.STAND
    rig.now = entered + 100_000_000
    rig.operator(runtime.Request.POLICY)
    assert rig.commander.phase == runtime.Phase.POLICY


def leaning(rig):
    """A state of a robot that leans by 1.2 rad."""
    state = rig.state()
    state.quat_wxyz = [math.cos(0.6), math.sin(0.6), 0.0, 0.0]
    return state


def test_a_fault_stays_until_it_is_acknowledged_and_over(runtime, make_rig):
    rig, damping = make_rig().go(runtime.Phase.POLICY), runtime.Phase.DAMPING
    rig.tick(leaning(rig))
    time = rig.commander.fault_time_ns
    assert time == rig.now
    for request in (runtime.Request.STAND, runtime.Request.POLICY, runtime.Request.NONE):
        rig.request = request
        assert rig.run(0.1).phase == damping
    assert (rig.commander.fault, rig.commander.fault_time_ns) == (runtime.Fault.TILT, time)
    rig.request = runtime.Request.NONE
    # acknowledged while it still leans: the fault stays
    rig.tick(leaning(rig))
    rig.operator(runtime.Request.DAMP)
    assert rig.commander.fault == runtime.Fault.TILT
    rig.tick()
    assert rig.ask(runtime.Request.STAND).phase == damping
    # upright again
    rig.ask(runtime.Request.DAMP)
    assert (rig.commander.phase, rig.commander.fault) == (damping, runtime.Fault.OPERATOR_STOP)
    assert rig.ask(runtime.Request.STAND).phase == runtime.Phase.STAND
    assert rig.commander.fault == runtime.Fault.NONE


def test_after_a_stop_the_operator_may_have_it_stand_at_once(runtime, make_rig):
    rig = make_rig().go(runtime.Phase.POLICY)
    assert rig.ask(runtime.Request.DAMP).fault == runtime.Fault.OPERATOR_STOP
    assert rig.ask(runtime.Request.STAND).phase == runtime.Phase.STAND


@pytest.mark.parametrize("fault", ["REFUSED", "INTERNAL"])
def test_some_faults_only_a_new_start_clears(runtime, make_rig, fault):
    rig = make_rig().go(runtime.Phase.STAND)
    rig.commander.on_fault(runtime.Finding(getattr(runtime.Fault, fault)), rig.now)
    for request in (runtime.Request.DAMP, runtime.Request.STAND, runtime.Request.POLICY) * 3:
        assert rig.ask(request).phase == runtime.Phase.DAMPING
    assert rig.commander.fault == getattr(runtime.Fault, fault)


def test_a_stall_is_cleared_once_the_policy_has_answered_again(runtime, make_rig):
    rig, request = make_rig().go(runtime.Phase.POLICY), runtime.Request
    rig.on.policy = rig.on.reports = False
    rig.commander.on_fault(runtime.Finding(runtime.Fault.STALLED, value=0.02, limit=0.01), rig.now)
    for wanted in (request.DAMP, request.STAND):
        assert rig.ask(wanted).phase == runtime.Phase.DAMPING
    assert rig.commander.fault == runtime.Fault.STALLED
    rig.on.policy = True
    rig.run(0.04)
    assert rig.ask(request.STAND).phase == runtime.Phase.DAMPING  # first it is acknowledged
    rig.ask(request.DAMP)
    assert rig.ask(request.STAND).phase == runtime.Phase.STAND
    assert rig.commander.fault == runtime.Fault.NONE


def test_a_stall_behind_another_fault_needs_a_sign_of_life_too(runtime, make_rig):
    rig = make_rig().go(runtime.Phase.POLICY)
    rig.on.policy = rig.on.reports = False
    rig.tick(leaning(rig))
    rig.commander.on_fault(runtime.Finding(runtime.Fault.STALLED), rig.now)
    assert rig.commander.fault == runtime.Fault.TILT
    rig.run(0.5)
    rig.ask(runtime.Request.DAMP)
    assert rig.commander.fault == runtime.Fault.STALLED


def test_the_first_fault_is_kept_but_for_one_that_weighs_more(runtime, make_rig):
    rig, fault = make_rig().go(runtime.Phase.STAND), runtime.Fault
    for name, kept in (("TILT", "TILT"), ("EFFORT", "TILT"), ("INTERNAL", "INTERNAL"), ("REFUSED", "INTERNAL")):
        rig.commander.on_fault(runtime.Finding(getattr(fault, name)), rig.now)
        assert rig.commander.fault == getattr(fault, kept)
    rig.operator(runtime.Request.DAMP)
    assert rig.commander.fault == fault.INTERNAL


def test_a_fault_replaces_the_operators_stop(runtime, make_rig):
    rig = make_rig().go(runtime.Phase.STAND)
    rig.ask(runtime.Request.DAMP)
    rig.tick(leaning(rig))
    assert rig.commander.fault == runtime.Fault.TILT


def test_nothing_counts_and_nothing_moves_before_it_is_ready(runtime, make_rig):
    rig = make_rig()
    rig.commander.on_state(leaning(rig), rig.now)
    rig.operator(runtime.Request.STAND)
    rig.now += 10**10
    command = rig.commander.command(rig.now)
    assert (command.phase, command.fault) == (runtime.Phase.BOOT, runtime.Fault.NONE)
    assert list(command.kp[:3]) == [0, 0, 0]


def test_a_refused_bundle_never_moves_even_where_ready_follows(runtime, make_rig):
    rig = make_rig()
    rig.commander.on_fault(runtime.Finding(runtime.Fault.REFUSED), rig.now)
    rig.start()
    for request in (runtime.Request.DAMP, runtime.Request.STAND) * 2:
        assert rig.ask(request).phase == runtime.Phase.DAMPING


def test_a_fault_before_ready_does_not_open_a_way_around_it(runtime, make_rig):
    rig = make_rig()
    rig.commander.on_fault(runtime.Finding(runtime.Fault.SECOND_COMMANDER), rig.now)
    for request in (runtime.Request.DAMP, runtime.Request.STAND) * 2:
        assert rig.ask(request).phase == runtime.Phase.DAMPING
    rig.start()
    rig.ask(runtime.Request.DAMP)
    assert rig.ask(runtime.Request.STAND).phase == runtime.Phase.STAND


def test_a_first_state_with_a_nan_is_what_is_named(runtime, make_rig):
    rig = make_rig()
    state = rig.state()
    state.joint_pos[0] = math.nan
    rig.commander.on_state(state, rig.now)
    rig.commander.ready(rig.now)
    assert runtime.describe(rig.commander.finding, rig.contract) == "not_finite: joint_pos of 'hip' is nan"


def test_from_the_policy_to_standing_by_way_of_a_zero_command(runtime, make_rig):
    rig, request, of = make_rig(stop_s=0.1, stand_s=0.2).go(runtime.Phase.POLICY), runtime.Request, runtime.Phase
    rig.operator(command=[1.0, 0.3, 0.3])
    last = rig.ask(request.STAND)
    assert last.phase == of.POLICY
    assert rig.commander.operator_command == pytest.approx([0.0, 0.0, 0.2])
    rig.operator(command=[1.0, 0.3, 0.3])
    assert rig.commander.operator_command == pytest.approx([0.0, 0.0, 0.2])
    rig.run(0.09)
    assert rig.commander.phase == of.POLICY
    command = rig.run(0.02)
    assert command.phase == of.STAND
    assert command.q[0] == pytest.approx(0.5, abs=0.05)  # goes on from the policy's target, not from the joint at 0.3
    assert command.q[1] == pytest.approx(2.0 / 5.0, abs=0.05)  # and with its effort: 2 N m by a kp of 5
    assert rig.commander.fault == runtime.Fault.NONE
    assert rig.run(0.2).q[0] == pytest.approx(0.1)
    rig.ask(request.POLICY)
    assert rig.commander.phase == of.POLICY


def test_a_request_for_the_policy_keeps_it_walking(runtime, make_rig):
    rig, request = make_rig(stop_s=0.1).go(runtime.Phase.POLICY), runtime.Request
    rig.ask(request.STAND)
    rig.ask(request.POLICY)
    rig.operator(command=[1.0])
    assert rig.commander.operator_command[0] == pytest.approx(1.0)
    assert rig.run(0.3).phase == runtime.Phase.POLICY


def test_without_its_operator_it_stops_stands_and_is_damped_by_setting(runtime, make_rig):
    settings = {"operator_s": 0.1, "stop_s": 0.1, "stand_s": 0.1, "lost_stand_s": 0.3}
    rig, of, fault = make_rig(**settings).go(runtime.Phase.POLICY), runtime.Phase, runtime.Fault
    rig.operator(command=[1.0])
    rig.on.operator = False
    seen = [(c.phase, c.fault) for c in (rig.run(0.01) for _ in range(70))]
    assert seen[5] == (of.POLICY, fault.NONE)
    assert seen[15] == (of.POLICY, fault.OPERATOR_LOST)
    assert rig.commander.operator_command[0] == 0
    assert seen[30] == (of.STAND, fault.OPERATOR_LOST)
    assert seen[57] == (of.STAND, fault.OPERATOR_LOST)
    assert seen[-1] == (of.DAMPING, fault.OPERATOR_LOST)


def test_an_operator_that_is_back_has_a_standing_robot(runtime, make_rig):
    rig = make_rig(operator_s=0.1, stop_s=0.1, lost_stand_s=10.0).go(runtime.Phase.POLICY)
    rig.on.operator = False
    rig.run(0.5)
    assert (rig.commander.phase, rig.commander.fault) == (runtime.Phase.STAND, runtime.Fault.OPERATOR_LOST)
    rig.on.operator = True
    rig.run(0.1)
    assert (rig.commander.phase, rig.commander.fault) == (runtime.Phase.STAND, runtime.Fault.NONE)
    assert rig.ask(runtime.Request.POLICY).phase == runtime.Phase.POLICY


def test_a_fault_while_it_stands_without_its_operator_is_the_one_that_is_named(runtime, make_rig):
    rig = make_rig(operator_s=0.1, stop_s=0.1, lost_stand_s=10.0).go(runtime.Phase.POLICY)
    rig.on.operator = False
    rig.run(0.5)
    rig.tick(leaning(rig))
    assert (rig.commander.phase, rig.commander.fault) == (runtime.Phase.DAMPING, runtime.Fault.TILT)


def test_without_a_state_it_does_not_stand(runtime, make_rig):
    rig = make_rig()
    rig.on.states = False
    rig.commander.ready(rig.now)
    assert rig.tick().phase == runtime.Phase.DAMPING
    assert rig.ask(runtime.Request.STAND).fault == runtime.Fault.STATE_AGE


def test_the_time_before_ready_does_not_age_a_state(runtime, make_rig):
    rig = make_rig()
    rig.commander.on_state(rig.state(), rig.now)
    rig.now += 5 * 10**9
    rig.commander.ready(rig.now)
    rig.on.states = False
    assert rig.run(0.02).fault == runtime.Fault.NONE
    assert rig.tick().fault == runtime.Fault.STATE_AGE


def test_a_state_from_the_future_does_not_stay_young(runtime, make_rig):
    rig = make_rig().go(runtime.Phase.STAND)
    state = rig.state()
    state.receive_time_ns = rig.now + 10**12
    rig.tick(state)
    rig.on.states = False
    assert rig.run(0.03).fault == runtime.Fault.STATE_AGE


def test_the_policy_starts_anew_each_time_it_is_entered(runtime, make_rig):
    rig = make_rig().go(runtime.Phase.POLICY)
    first = rig.commander.policy_epoch
    rig.ask(runtime.Request.DAMP)
    rig.ask(runtime.Request.STAND)
    rig.run(0.05)
    rig.ask(runtime.Request.POLICY)
    assert rig.commander.policy_epoch == first + 1


def test_the_operators_command_stays_within_the_contract(runtime, make_rig):
    rig = make_rig()
    assert rig.commander.operator_command == pytest.approx([0.0, 0.0, 0.2])
    rig.go(runtime.Phase.STAND)
    rig.operator(command=[9.0, -9.0, 0.3])
    assert rig.commander.operator_command == pytest.approx([1.5, -0.6, 0.3])
    rig.operator(command=[0.5])
    assert rig.commander.operator_command == pytest.approx([0.5, -0.6, 0.3])
    rig.operator(command=[0.1, 0.2, 0.25, 7.0])  # of another policy: its turn would be a height
    assert rig.commander.fault == runtime.Fault.COMMAND_SIZE
    line = runtime.describe(rig.commander.finding, rig.contract)
    assert line == "command_size: the operator's command has 4 components, the contract has 3"
    rig.ask(runtime.Request.DAMP)
    assert rig.commander.operator_command == pytest.approx([0.0, 0.0, 0.2])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("state_age_s", 0.0, "limits.state_age_s"),
        ("tilt_rad", math.nan, "limits.tilt_rad=nan"),
        ("action_rate", -1.0, "more than 0"),
        ("missed_deadlines", 0, "1 or more"),
        ("operator_s", math.inf, "limits.operator_s"),
        ("position_margin", -0.1, "0 or more"),
        ("stand_s", -1.0, "stand_s"),
        ("blend_s", math.nan, "blend_s"),
        ("damping_scale", math.inf, "damping_scale"),
        ("writer_period_s", 0.0, "writer_period_s"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(runtime, make_rig, name, value, words):
    with pytest.raises(runtime.UserError, match=words):
        make_rig(**{name: value})
