"""A robot's clock that counts another unit, stands still or jumps is found within a second of states, and named."""

import pytest

MS = 1_000_000
HOUR = 3_600_000 * MS


def with_clock(rig, clock):
    """Have the rig's states show a clock (ns -> ns)."""
    healthy = type(rig).state

    def state():
        made = healthy(rig)
        made.robot_time_ns = clock(made.robot_time_ns)
        made.gyro = [0.01 * (rig.ticks % 7), 0.0, 0.0]
        return made

    rig.state = state
    return rig


@pytest.mark.parametrize(
    ("clock", "line"),
    [
        (lambda t: t // 1000, "within a second robot_time_ns went on by 0.001 s, as if it counted microseconds"),
        (lambda t: t // MS, "within a second robot_time_ns went on by 1e-06 s, as if it counted milliseconds"),
        (
            lambda t: 77,
            "within a second robot_time_ns went on by 0 s; 0 in every state says that it has no clock",
        ),
        (lambda t: t // (120 * MS) * 120 * MS, "robot_time_ns jumped 8 times within a second"),
        (lambda t: t + t // (90 * MS) * HOUR, "robot_time_ns jumped 11 times within a second"),
        (lambda t: t - t // (90 * MS) * 10 * MS, "robot_time_ns jumped 11 times within a second"),
    ],
    ids=["us", "ms", "fixed", "stamped every 120 ms", "an hour every 90 ms", "back 10 ms every 90 ms"],
)
def test_a_clock_that_hides_frozen_sensors_is_a_fault(runtime, make_rig, clock, line):
    rig = with_clock(make_rig(), clock).start()
    rig.run(1.01)
    assert runtime.describe(rig.commander.finding, rig.contract) == f"robot_clock: {line}"
    for request in (runtime.Request.DAMP, runtime.Request.STAND) * 2:  # it cannot be acknowledged while it lasts
        assert rig.ask(request).phase == runtime.Phase.DAMPING
    with_clock(rig, lambda t: t).run(2.0)
    rig.ask(runtime.Request.DAMP)
    assert rig.ask(runtime.Request.STAND).phase == runtime.Phase.STAND


@pytest.mark.parametrize(
    "clock",
    [
        lambda t: t // 20,
        lambda t: 20 * t,
        lambda t: t // (100 * MS) * 100 * MS,
        lambda t: t + (HOUR if t > 500 * MS else 0),
        lambda t: t // MS * MS,
    ],
    ids=["slow motion", "ahead", "stamped every 100 ms", "one jump", "a counter of ms"],
)
def test_a_clock_that_still_shows_the_time_between_states_is_no_fault(runtime, make_rig, clock):
    rig = with_clock(make_rig(), clock).go(runtime.Phase.STAND)
    assert rig.run(3.0).phase == runtime.Phase.STAND, runtime.describe(rig.commander.finding, rig.contract)


def test_in_lockstep_no_clock_counts(runtime, make_rig):
    rig = with_clock(make_rig(steps_per_state=5), lambda t: t // MS).go(runtime.Phase.STAND)
    assert rig.run(3.0).phase == runtime.Phase.STAND
