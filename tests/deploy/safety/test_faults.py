"""Every fault leads to damping within two writer ticks of its threshold, in STAND and in POLICY."""

import json
import math

import pytest

from tests.deploy.conftest import load

TICK_NS = 2_000_000
OTHER = 0xBAD
contract_text = load("deploy/safety/conftest.py").contract_text


def edit(**changes):
    """A fault in the content of one state: name -> (index, value), or a plain value."""

    def inject(rig):
        state = rig.state()
        for name, value in changes.items():
            if isinstance(value, tuple):
                getattr(state, name)[value[0]] = value[1]
            else:
                setattr(state, name, value)
        rig.tick(state)
        return rig.now

    return inject


def tilted(angle):
    return edit(quat_wxyz=[math.cos(angle / 2), 0.0, math.sin(angle / 2), 0.0])


def silent_robot(rig):
    rig.on.states = False
    return rig.now + 20_000_000


def frozen_content(rig):
    """New states with the old content of a robot that moves."""
    rig.frozen = rig.state()
    return rig.now + TICK_NS + 50_000_000


def frozen_sequence(rig):
    """States with a constant sequence number, whatever their content."""
    rig.on.counter = False
    return rig.now + 50_000_000


def frozen_orientation(rig):
    """It has stood still for longer than allowed when the gyroscope says that the base turns."""
    rig.run(0.1)
    return edit(gyro=[100.0, 0.0, 0.0])(rig)


def silent_operator(rig):
    rig.on.operator = False
    return rig.now + 500_000_000


def operator_stop(rig):
    rig.operator(rig.runtime.Request.DAMP)
    return rig.now


def operator_nan(rig):
    rig.operator(command=[0.0, math.nan, 0.0])
    return rig.now


def operator_of_another_policy(rig):
    rig.operator(command=[0.0, 0.0, 0.3, 0.0])
    return rig.now


def clock_in_microseconds(rig):
    """Found after a second of states."""
    clock = type(rig).state

    def state():
        made = clock(rig)
        made.robot_time_ns //= 1000
        return made

    rig.state = state
    return rig.until_damping()


def found_outside(name):
    def inject(rig):
        rig.commander.on_fault(rig.runtime.Finding(getattr(rig.runtime.Fault, name)), rig.now)
        return rig.now

    return inject


def bad_output(**changes):
    def inject(rig):
        out = rig.output()
        for name, value in changes.items():
            setattr(out, name, value)
        rig.commander.on_policy(out, rig.now)
        return rig.now

    return inject


def stalled_policy(rig):
    """Every control period passes without an output; the loop reports it."""
    rig.on.policy = False
    step = 10 * TICK_NS
    return rig.now - rig.now % step + 3 * step


def dead_policy(rig):
    """No output, and nobody who reports it."""
    rig.on.policy = rig.on.reports = False
    step = 10 * TICK_NS
    return rig.now - rig.now % step + 4 * step


ANYWHERE = {
    "nan_quat": ("NOT_FINITE", edit(quat_wxyz=(2, math.nan))),
    "inf_gyro": ("NOT_FINITE", edit(gyro=(1, math.inf))),
    "nan_acc": ("NOT_FINITE", edit(acc=(0, math.nan))),
    "nan_position": ("NOT_FINITE", edit(joint_pos=(2, math.nan))),
    "inf_velocity": ("NOT_FINITE", edit(joint_vel=(0, -math.inf))),
    "nan_effort": ("NOT_FINITE", edit(joint_effort=(1, math.nan))),
    "nan_temperature": ("NOT_FINITE", edit(temperature_c=(0, math.nan))),
    "nan_contact": ("NOT_FINITE", edit(foot_contact=(1, math.nan))),
    "nan_force": ("NOT_FINITE", edit(foot_force=(0, math.nan))),
    "nan_command": ("NOT_FINITE", operator_nan),
    "nan_action": ("NOT_FINITE", bad_output(action=[0.0, math.nan])),
    "nan_target": ("NOT_FINITE", bad_output(target=[math.inf, 0.0])),
    "state_age": ("STATE_AGE", silent_robot),
    "frozen_content": ("STATE_FROZEN", frozen_content),
    "frozen_sequence": ("STATE_FROZEN", frozen_sequence),
    "tilt": ("TILT", tilted(1.01)),
    "upside_down": ("TILT", tilted(math.pi)),
    "no_attitude": ("TILT", edit(quat_wxyz=[0.0, 0.0, 0.0, 0.0])),
    "position_above": ("JOINT_POSITION", edit(joint_pos=(0, 1.11))),
    "position_below": ("JOINT_POSITION", edit(joint_pos=(0, -1.11))),
    "velocity_forward": ("JOINT_VELOCITY", edit(joint_vel=(0, 45.1))),
    "velocity_backward": ("JOINT_VELOCITY", edit(joint_vel=(0, -45.1))),
    "effort_forward": ("EFFORT", edit(joint_effort=(1, 6.01))),
    "effort_backward": ("EFFORT", edit(joint_effort=(1, -6.01))),
    "temperature": ("TEMPERATURE", edit(temperature_c=(1, 95.1))),
    "motor_fault": ("MOTOR_FAULT", edit(motor_fault=(0, 4))),
    "second_commander_obeyed": ("SECOND_COMMANDER", edit(commander=OTHER)),
    "second_commander_seen": ("SECOND_COMMANDER", found_outside("SECOND_COMMANDER")),
    "operator_lost": ("OPERATOR_LOST", silent_operator),
    "operator_stop": ("OPERATOR_STOP", operator_stop),
    "too_few_joints": ("REFUSED", edit(joints=2)),
    "too_few_feet": ("REFUSED", edit(feet=1)),
    "too_many_feet": ("REFUSED", edit(feet=9)),
    "network_failed": ("INTERNAL", bad_output(ok=False)),
    "other_actions": ("INTERNAL", bad_output(actions=1)),
    "frozen_orientation": ("SENSOR_FROZEN", frozen_orientation),
    "orientation_jumps": ("IMU_DISAGREES", tilted(0.9)),
    "clock": ("ROBOT_CLOCK", clock_in_microseconds),
    "command_size": ("COMMAND_SIZE", operator_of_another_policy),
    "stalled": ("STALLED", found_outside("STALLED")),
    "exception": ("INTERNAL", found_outside("INTERNAL")),
}
IN_POLICY = {
    "action_rate_up": ("ACTION_RATE", bad_output(action=[21.7, 1.0])),
    "action_rate_down": ("ACTION_RATE", bad_output(action=[1.6, -19.1])),
    "missed_deadlines": ("DEADLINE", stalled_policy),
    "dead_policy": ("DEADLINE", dead_policy),
}
CASES = [(name, phase) for name in ANYWHERE for phase in ("STAND", "POLICY")]
CASES += [(name, "POLICY") for name in IN_POLICY]


@pytest.mark.parametrize(("name", "phase"), CASES)
def test_a_fault_leads_to_damping_within_two_ticks(runtime, make_rig, name, phase):
    rig = make_rig(stand_s=1.0 if phase == "STAND" else 0.04)
    rig.go(getattr(runtime.Phase, phase))
    fault, inject = (ANYWHERE | IN_POLICY)[name]
    rig.commands.clear()
    threshold = inject(rig)
    if not rig.commands or rig.commands[-1].phase != runtime.Phase.DAMPING:
        rig.until_damping()
    first = next(c for c in rig.commands if c.phase == runtime.Phase.DAMPING)
    assert first.fault == getattr(runtime.Fault, fault)
    assert threshold <= first.send_time_ns
    assert first.send_time_ns - threshold <= 2 * TICK_NS
    assert list(first.kp[:3]) == [0, 0, 0]
    assert list(first.tau[:3]) == [0, 0, 0]
    assert list(first.kd[:3]) == [0.5, 0.25, 0]


def test_the_faults_above_are_all_there_are(runtime):
    tried = {fault for fault, _ in (ANYWHERE | IN_POLICY).values()}
    assert tried == {fault.name for fault in runtime.Fault} - {"NONE"}
    assert len(tried) >= 12


@pytest.mark.parametrize(
    "inject",
    [
        tilted(0.99),
        edit(joint_pos=(0, 1.09)),
        edit(joint_pos=(0, -1.09)),
        edit(joint_pos=(2, 500.0)),
        edit(joint_vel=(0, -35.9)),
        edit(joint_vel=(2, 1e4)),
        edit(joint_effort=(0, -14.9)),
        edit(joint_effort=(2, 99.0)),
        edit(temperature_c=(0, 94.9)),
        edit(quat_wxyz=[0.95, 0.0, 0.0, 0.0]),
        edit(commander=0),
        edit(foot_contact=(2, math.nan)),
        edit(joint_pos=(3, math.nan)),
        bad_output(action=[21.5, -18.9]),
    ],
)
def test_what_lies_within_the_limits_is_no_fault(runtime, make_rig, inject):
    rig = make_rig(imu_disagree_rad=4.0).go(runtime.Phase.POLICY)
    rig.action = [1.6, 1.0]
    inject(rig)
    assert rig.tick().phase == runtime.Phase.POLICY
    assert rig.commander.fault == runtime.Fault.NONE


def test_a_robot_at_rest_is_not_frozen(runtime, make_rig):
    rig = make_rig().go(runtime.Phase.STAND)
    for _ in range(200):
        state = rig.state()
        state.gyro = [0.0, 0.0, 0.0]
        assert rig.tick(state).phase == runtime.Phase.STAND


def test_two_missed_deadlines_and_an_output_are_no_fault(runtime, make_rig):
    rig = make_rig().go(runtime.Phase.POLICY)
    for _ in range(5):
        rig.commander.on_missed_deadline(rig.now)
        rig.commander.on_missed_deadline(rig.now)
        rig.commander.on_policy(rig.output(), rig.now)
    assert rig.tick().phase == runtime.Phase.POLICY


def test_a_policy_that_starts_anew_may_jump(runtime, make_rig):
    rig = make_rig().go(runtime.Phase.POLICY)
    bad_output(action=[-50.0, 50.0], reset=True)(rig)
    assert rig.tick().phase == runtime.Phase.POLICY


def test_missed_deadlines_do_not_count_while_it_stands(runtime, make_rig):
    rig = make_rig(stand_s=1.0).go(runtime.Phase.STAND)
    rig.on.policy = False
    assert rig.run(0.5).phase == runtime.Phase.STAND


def test_a_policy_without_states_is_not_late(runtime, make_rig):
    """Where long gaps between states are allowed, a gap is not the policy's fault, and it may answer after it."""
    rig = make_rig(state_age_s=1.0, state_frozen_s=1.0).go(runtime.Phase.POLICY)
    rig.on.states = rig.on.policy = rig.on.reports = False
    assert rig.run(0.2).phase == runtime.Phase.POLICY
    rig.on.states = True
    assert rig.run(0.058).phase == runtime.Phase.POLICY
    assert rig.run(0.006).fault == runtime.Fault.DEADLINE


def test_in_lockstep_the_clock_says_nothing_about_the_policy(runtime, make_rig):
    rig = make_rig(steps_per_state=10).go(runtime.Phase.POLICY)
    rig.on.policy = rig.on.reports = False
    assert rig.run(0.5).phase == runtime.Phase.POLICY


def test_without_an_operator_none_is_needed(runtime, make_rig):
    rig = make_rig(operator_s=0.0).go(runtime.Phase.POLICY)
    rig.on.operator = False
    assert rig.run(1.0).phase == runtime.Phase.POLICY


def test_who_commanded_before_us_is_forgiven_until_we_are_obeyed(runtime, make_rig):
    rig = make_rig()
    rig.commander.ready(rig.now)
    for _ in range(5):
        assert rig.tick(of_another(rig)).fault == runtime.Fault.NONE
    rig.tick()
    assert rig.tick(of_another(rig)).fault == runtime.Fault.SECOND_COMMANDER


def test_it_does_not_stand_up_before_it_is_obeyed(runtime, make_rig):
    rig = make_rig()
    rig.commander.on_state(of_another(rig), rig.now)
    rig.commander.ready(rig.now)
    rig.operator(runtime.Request.STAND)
    command = rig.tick()
    assert (command.phase, command.fault) == (runtime.Phase.DAMPING, runtime.Fault.NONE)
    assert rig.ask(runtime.Request.STAND).phase == runtime.Phase.STAND


def of_another(rig):
    """A state of a robot that obeyed somebody else."""
    state = rig.state()
    state.commander = OTHER
    return state


def test_who_is_never_obeyed_finds_a_second_commander(runtime, make_rig):
    rig = make_rig().start()
    rig.commander = runtime.Commander(rig.contract, rig.settings, OTHER)
    rig.start()
    assert rig.run(0.4).fault == runtime.Fault.NONE
    assert rig.run(0.2).fault == runtime.Fault.SECOND_COMMANDER


@pytest.mark.parametrize(
    ("inject", "line"),
    [
        (edit(joint_vel=(0, -45.5)), "joint_velocity: 'hip' at -45.5 rad/s (or m/s), the limit is 45"),
        (edit(joint_pos=(0, -1.25)), "joint_position: 'hip' at -1.25 rad (or m), the limit is -1.1"),
        (edit(temperature_c=(1, 99.0)), "temperature: 'wheel' at 99 degrees Celsius, the limit is 95"),
        (edit(gyro=(2, math.nan)), "not_finite: imu_gyro of component 2 is nan"),
        (edit(joint_pos=(1, math.inf)), "not_finite: joint_pos of 'wheel' is inf"),
        (edit(joints=2), "refused: the state has 2 joints, the contract needs 3"),
        (edit(quat_wxyz=[0.0] * 4), "tilt: the norm of imu_quat_wxyz is 0, it must be 1"),
        (tilted(1.5), "tilt: the base leans by 1.5 rad, the limit is 1"),
        (bad_output(action=[-21.4, 0.0]), "action_rate: the action of 'hip' jumps by 23, the limit is 20"),
        (bad_output(target=[0.0, math.nan]), "not_finite: joint_target of 'wheel' is nan"),
        (operator_nan, "not_finite: command of component 1 is nan"),
        (edit(motor_fault=(1, 5)), "motor_fault: the motor of 'wheel' reports fault bits 0x5"),
    ],
)
def test_a_fault_is_one_line_that_names_joint_value_and_limit(runtime, make_rig, inject, line):
    rig = make_rig().go(runtime.Phase.POLICY)
    inject(rig)
    assert runtime.describe(rig.commander.finding, rig.contract) == line


def measuring(runtime):
    """The safety layer of a contract with two measured signals, and a healthy state of it."""
    data = json.loads(contract_text())
    term = next(item for item in data["observations"] if item["signal"] == "foot_contact")
    for name, size in (("cube", 3), ("door", 2)):
        more = {"name": name, "signal": f"measured/{name}", "unit": "m", "frame": "base", "size": size}
        data["observations"].append(term | more)
    data["layout"]["observation_size"] += 5
    contract = runtime.read_contract(json.dumps(data).encode())
    state = runtime.LowState()
    state.joints, state.feet, state.measured_count = 3, 2, 5
    state.joint_pos = [0.3, 0.0, 1.0]
    return runtime.Safety(contract, runtime.SafetyLimits()), contract, state


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (2, "not_finite: measured/cube of component 2 is nan"),
        (4, "not_finite: measured/door of component 1 is nan"),
        (5, ""),
    ],
)
def test_a_measured_value_that_is_not_finite_is_named(runtime, place, line):
    safety, contract, state = measuring(runtime)
    assert safety.check_state(state).fault == runtime.Fault.NONE
    state.measured[place] = math.nan
    finding = safety.check_state(state)
    assert finding.fault == (runtime.Fault.NOT_FINITE if line else runtime.Fault.NONE)
    assert not line or runtime.describe(finding, contract) == line


@pytest.mark.parametrize("count", [0, 4, 1025])
def test_a_state_with_another_number_of_measured_values_is_refused(runtime, count):
    safety, contract, state = measuring(runtime)
    state.measured_count = count
    line = f"refused: the state has {count} measured values, the contract needs 5"
    assert runtime.describe(safety.check_state(state), contract) == line
