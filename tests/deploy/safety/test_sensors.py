"""A sensor that is frozen while the robot moves is found, and only that one; healthy, coarse or absent ones are not."""

import random

import numpy as np
import pytest

from robot_rl.sim2sim.faults import Journal, Mutator, read_faults

LAYOUT = 7
LIMIT_S = 0.1
FROM_S = 1.5  # when it begins


@pytest.fixture(scope="module")
def steps(shared):
    return shared("deploy/safety/walk.py")


@pytest.fixture(scope="module")
def recorded(runtime, steps, go2_bundle):
    walk = steps.record(runtime, go2_bundle)
    assert walk.commands[-1].phase == runtime.Phase.POLICY, runtime.describe(walk.commander.finding, walk.contract)
    return walk


@pytest.fixture(scope="module")
def play(runtime, steps, go2_bundle, recorded):
    """play(change, ...): when it damped and why, None where it did not."""

    def run(change, **more):
        walk = steps.again(runtime, go2_bundle, recorded, change, **more)
        damped = [k for k, c in enumerate(walk.commands) if c.phase == runtime.Phase.DAMPING and k > 210]
        if not damped:
            assert walk.commander.phase == runtime.Phase.POLICY
            return None
        return damped[0] * 0.002, runtime.describe(walk.commander.finding, walk.contract)

    return run


def script(runtime, text, begin=FROM_S):
    """What the fault proxy makes of a state, from a time on."""
    (fault,), mutator = read_faults(text), Mutator(runtime, random.Random(0))
    active = [(fault, Journal(fault.kind))]

    def change(state, seconds):
        if seconds < begin:
            return state
        ((_, data),) = mutator.apply(runtime.write_state(state, LAYOUT), 1, active)
        return runtime.read_state(data)

    return change


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("freeze_imu", "sensor_frozen: the whole IMU repeats itself"),
        ("freeze_orientation", "sensor_frozen: imu_quat_wxyz repeats itself"),
        ("freeze_gyro", "sensor_frozen: imu_gyro repeats itself"),
        ("freeze_encoders", "sensor_frozen: joint_pos of every joint repeats itself"),
        ("freeze_encoder:2", "sensor_frozen: the encoder of 'FL_calf_joint' repeats itself"),
        ("gyro=5", "imu_disagrees: gyroscope and orientation differ by"),
        ("tilt=0.6", "imu_disagrees: gyroscope and orientation differ by"),
    ],
)
def test_what_stands_still_or_disagrees_is_found_and_named(runtime, play, fault, text):
    at, found = play(script(runtime, fault))
    assert found.startswith(text)
    assert at - FROM_S <= LIMIT_S + 0.15


@pytest.mark.parametrize("name", ["joint_pos", "joint_vel"])
@pytest.mark.parametrize("joint", [None, 4])
def test_position_and_speed_are_judged_by_each_other(play, name, joint):
    held = {}

    def change(state, seconds):
        if seconds >= FROM_S:
            value = np.array(getattr(state, name))
            kept = held.setdefault(name, value.copy())
            value[slice(None) if joint is None else joint] = kept[slice(None) if joint is None else joint]
            setattr(state, name, value)
        return state

    at, found = play(change, seconds=FROM_S + 1)
    assert found.startswith(f"sensor_frozen: {name} of ")
    assert ("every joint" if joint is None else "'FR_thigh_joint'") in found
    assert at - FROM_S <= LIMIT_S + 0.4


def test_a_frozen_imu_does_not_hide_that_it_was_thrown_over(runtime, steps, play):
    wide = {"velocity_factor": 100.0, "effort_factor": 100.0, "position_margin": 10.0}
    at, found = play(script(runtime, "freeze_imu", steps.OVER_S - 0.02), **wide)
    assert "the whole IMU" in found
    assert at <= steps.OVER_S + LIMIT_S


def plain(state, _):
    return state


def test_a_walk_with_pushes_is_healthy_at_closer_limits(steps, play):
    assert play(plain, seconds=steps.OVER_S, sensor_frozen_s=0.7 * LIMIT_S, imu_disagree_rad=0.06) is None


def coarse(state, _):
    """Encoders of 12 bits, an IMU of 16, speeds of 0.05 rad/s."""
    for name, step in (("joint_pos", 1.5e-3), ("joint_vel", 0.05), ("gyro", 1e-3), ("quat_wxyz", 6e-5)):
        setattr(state, name, np.round(np.array(getattr(state, name)) / step) * step)
    return state


def lossy():
    rng = random.Random(0)
    return lambda state, _: state if state.sequence % 10 == 1 or rng.random() > 0.3 else None


def late(recorded, signal, ticks):
    """A signal that comes some ticks later than the others."""

    def change(state, _):
        setattr(state, signal, getattr(recorded.states[max(0, state.sequence - 1 - ticks)], signal))
        return state

    return change


def noisy():
    rng = np.random.default_rng(0)

    def change(state, _):
        state.gyro = np.array(state.gyro) + rng.normal(0.05, 0.2, 3)
        state.joint_vel = np.array(state.joint_vel) + rng.normal(0.0, 1.0, 64)
        state.joint_pos = np.array(state.joint_pos) + rng.normal(0.0, 0.01, 64)
        return state

    return change


@pytest.mark.parametrize("how", ["coarse", "lossy", "noisy", "late quat_wxyz", "late gyro", "late joint_pos"])
def test_what_real_sensors_do_is_no_fault(steps, recorded, play, how):
    changes = {"coarse": coarse, "lossy": lossy(), "noisy": noisy()}
    change = changes.get(how) or late(recorded, how.split()[1], 10)
    assert play(change, seconds=steps.OVER_S) is None


@pytest.mark.parametrize("name", ["acc", "gyro"])
def test_what_a_robot_does_not_have_counts_only_where_the_contract_reads_it(play, steps, name):
    def change(state, _):
        setattr(state, name, [0.0, 0.0, 0.0])
        return state

    found = play(change, seconds=steps.OVER_S)
    assert (found is None) == (name == "acc")


def test_a_frozen_sensor_stays_a_fault_until_it_changes(runtime, steps, go2_bundle, recorded):
    frozen = script(runtime, "freeze_gyro")
    walk = steps.Walk(runtime, go2_bundle)
    request, of = runtime.Request, runtime.Fault

    def ask(wanted, k):
        word = runtime.OperatorInput()
        word.request, word.receive_time_ns = wanted, steps.START_NS + k * 2_000_000
        walk.commander.on_operator(word, word.receive_time_ns)

    for k, state in enumerate(recorded.states[:1200]):
        seconds = k * 0.002
        walk.take(frozen(state.copy(), seconds) if seconds < 2.0 else state.copy(), k, recorded.outputs.get(k))
        if seconds == 1.9:
            ask(request.DAMP, k)
            assert walk.commander.fault == of.SENSOR_FROZEN
    ask(request.DAMP, 1200)
    assert walk.commander.fault == of.OPERATOR_STOP
    ask(request.STAND, 1200)
    assert walk.commander.phase == runtime.Phase.STAND


def test_joints_that_stand_still_to_the_bit_once_damped_can_be_acknowledged(runtime, make_rig):
    rig, request = make_rig(sensor_frozen_s=0.05), runtime.Request
    moving = type(rig).state

    def state():
        made = moving(rig)
        made.joint_pos = [0.3 if rig.ticks > 5 else 0.31, 0.0, 1.0]  # it has moved once
        return made

    rig.state = state
    rig.start().run(0.1)
    rig.ask(request.STAND)
    rig.run(0.2)  # it does not follow
    assert rig.commander.fault == runtime.Fault.SENSOR_FROZEN
    rig.ask(request.DAMP)
    assert rig.commander.fault == runtime.Fault.OPERATOR_STOP
    rig.run(0.2)
    assert rig.ask(request.STAND).phase == runtime.Phase.STAND


def test_a_disagreement_that_is_over_can_be_acknowledged(runtime, make_rig):
    rig = make_rig().go(runtime.Phase.STAND)
    leaning = [np.cos(0.4), np.sin(0.4), 0.0, 0.0]  # put elsewhere, as in a simulation that begins again

    def state():
        made = type(rig).state(rig)
        made.quat_wxyz = leaning
        return made

    rig.state = state
    assert rig.tick().fault == runtime.Fault.IMU_DISAGREES
    assert rig.ask(runtime.Request.STAND).phase == runtime.Phase.DAMPING
    rig.ask(runtime.Request.DAMP)
    assert rig.ask(runtime.Request.STAND).phase == runtime.Phase.STAND


def test_a_robot_whose_clock_stands_still_has_no_frozen_sensor(runtime, make_rig):
    rig = make_rig().go(runtime.Phase.STAND)

    def state():
        made = type(rig).state(rig)
        made.robot_time_ns, made.gyro = 5, [3.0 + 0.01 * (rig.ticks % 7), 0.0, 0.0]
        return made

    rig.state = state
    assert rig.run(0.5).phase == runtime.Phase.STAND
