"""What goes wrong between robot and binary: each fault ends in damping, and the binary's own log shows how soon."""

import pytest

from robot_rl.errors import UserError

TICK_S = 0.002

# What the robot says is wrong: the first command that answers such a state has to damp already.
CONTENT = {
    "nan": "not_finite",
    "infinity": "not_finite",
    "tilt": "tilt",
    "position": "joint_position",
    "velocity=60": "joint_velocity",
    "velocity=-60": "joint_velocity",
    "effort": "effort",
    "temperature": "temperature",
    "motor_fault": "motor_fault",
    "swap:1": "joint_position",
}
# What does not come, or comes too late: script, setting, its limit [s], what the binary calls it.
AGE = {
    "drop": ("limits.state_age_s", 0.25, "state_age"),
    "delay=1": ("limits.state_age_s", 0.25, "state_age"),
    "corrupt": ("limits.state_age_s", 0.25, "state_age"),
    "relabel": ("limits.state_age_s", 0.25, "state_age"),
    "stuck": ("limits.state_age_s", 0.25, "state_age"),
    "freeze": ("limits.state_frozen_s", 0.25, "state_frozen"),
    "operator_silence": ("limits.operator_s", 0.25, "operator_lost"),
}
# A sensor is frozen, or disagrees with another one.
SENSORS = {"freeze_imu": "sensor_frozen", "freeze_encoder:2": "sensor_frozen", "gyro=6": "imu_disagrees"}


@pytest.fixture
def log(tmp_path):
    return tmp_path / "run.mcap"


# Over the other transports states and commands are passed on one by one; what differs is in docs/sim2sim.md.
OTHERS = [
    ("dds", "nan", "not_finite"),
    ("dds", "tilt", "tilt"),
    ("dds", "drop", "state_age"),
    ("dds", "corrupt", "state_age"),
    ("dds", "stuck", "state_frozen"),
    ("dds", "delay=1", "state_age"),
    ("dds", "operator_stop", "operator_stop"),
    ("dds", "second_commander", "second_commander"),
    ("shm", "motor_fault", "motor_fault"),
    ("shm", "corrupt", "state_age"),
    ("shm", "second_commander", "second_commander"),
]


def row_of(report):
    (row,) = report["proxy"]
    assert row["happened"]
    return row


def shown(fault, answer, report):
    lateness = report["binary"]["latencies"]["writer_late"]
    print(
        f"{fault}: {answer.fault} {answer.after_ms:.2f} ms after its threshold, in {answer.ticks} writer ticks; "
        f"the writer was up to {lateness['max'] / 1e3:.1f} ms late in this run"
    )


@pytest.mark.parametrize(("fault", "name"), CONTENT.items())
def test_a_state_that_is_wrong_damps_at_once(session, damped, log, fault, name):
    made, report = session(f"{fault}@0.4", log=str(log))
    row = row_of(report)
    assert row["fault"] == name
    # Commands that answered such a state and were not damping: none, whatever the machine's speed.
    assert row["active_after"] == 0
    assert [found["fault"] for found in report["faults"]] == [name]
    assert made.robot.phase == "DAMPING"
    answer = damped(log)
    assert answer.fault == name
    shown(fault, answer, report)


@pytest.mark.parametrize(("fault", "case"), AGE.items())
def test_silence_damps_after_its_limit(session, damped, log, fault, case):
    setting, limit, name = case
    _, report = session(f"{fault}@0.4", settings={setting: limit}, log=str(log))
    row = row_of(report)
    assert row["fault"] == name
    since = row["damping_after_last_good_ms"] / 1e3
    assert since >= limit - 0.02
    answer = damped(log)
    assert (answer.fault, answer.active) == (name, 0)
    shown(fault, answer, report)


@pytest.mark.parametrize(("fault", "name"), SENSORS.items())
def test_a_sensor_that_no_longer_measures_damps(rt, session, log, fault, name):
    made, report = session(f"{fault}@0.4", log=str(log))
    assert row_of(report)["fault"] == name
    assert [found["fault"] for found in report["faults"]] == [name]
    assert made.robot.phase == "DAMPING"
    assert rt.replay_log(log)["difference"] == ""


@pytest.mark.long
@pytest.mark.parametrize(("transport", "fault", "name"), OTHERS)
def test_over_the_other_transports_it_is_the_same(session, rt, damped, log, transport, fault, name):
    if transport == "dds" and not rt.has_dds():
        pytest.skip("this build speaks no DDS")
    limits = {f"limits.{name}_s": 0.25} if name in ("state_age", "state_frozen") else {}
    _, report = session(f"{fault}@0.4", settings=limits, log=str(log), transport=transport)
    assert row_of(report)["fault"] == name
    assert [found["fault"] for found in report["faults"]] == [name]
    answer = damped(log)
    assert answer.fault == name
    shown(f"{transport} {fault}", answer, report)


@pytest.mark.parametrize("transport", ["shm", "dds"])
def test_a_poor_network_is_no_fault_over_the_others_either(session, rt, transport):
    if transport == "dds" and not rt.has_dds():
        pytest.skip("this build speaks no DDS")
    faults = "drop=0.2,duplicate=0.2,reorder=0.3,jitter=0.004,corrupt=0.2,command_drop=0.2"
    _, report = session(faults, seconds=1.0, transport=transport)
    assert (report["faults"], report["falls"]) == ([], 0)
    assert all(row["happened"] for row in report["proxy"])
    assert report["policy_s"] >= 1.0
    assert report["binary"]["transport_counters"]["damaged"] > 0


@pytest.mark.parametrize(("fault", "transport"), [("relabel", "shm"), ("relabel", "dds"), ("motor_fault", "dds")])
def test_what_a_transport_cannot_carry_is_refused(session, rt, fault, transport):
    if transport == "dds" and not rt.has_dds():
        pytest.skip("this build speaks no DDS")
    with pytest.raises(UserError, match=f"faults: {fault}.*transport=udp"):
        session(fault, transport=transport)


def test_no_command_is_active_on_an_older_state_than_the_limit(session):
    made, report = session("drop@0.4", settings={"limits.state_age_s": 0.1})
    assert row_of(report)["fault"] == "state_age"
    notes = made.robot.link.notes
    ages = [note.state_age_ns for note in notes if note.phase in ("STAND", "POLICY") and not note.from_policy]
    last = max(note.state_sequence for note in notes)
    # The writer's commands in POLICY tell the age of the state that the policy saw: a control period more.
    assert max(ages) / 1e9 < 0.1 + 0.02 + 3 * TICK_S
    assert all(note.phase != "POLICY" or note.state_sequence <= last for note in notes)


@pytest.mark.parametrize("name", ["second_commander", "operator_stop"])
def test_whoever_else_has_a_word_damps(session, damped, log, name):
    _, report = session(f"{name}@0.4", log=str(log))
    assert row_of(report)["fault"] == name
    answer = damped(log)
    assert answer.fault == name
    shown(name, answer, report)


def test_an_action_that_jumps_damps(session, damped, log):
    _, report = session("velocity=5:2@0.4", settings={"limits.action_rate": 0.002}, log=str(log))
    assert report["faults"][0]["fault"] == "action_rate"
    answer = damped(log)
    assert (answer.fault, answer.active) == ("action_rate", 0)
    shown("action_rate", answer, report)


def test_what_counts_ticks_would_count_more(session, damped, log):
    """Had the threshold been passed a fifth of a second earlier, the same log would say so."""
    session("nan@0.4", log=str(log))
    answer = damped(log, sooner_ns=200_000_000)
    assert answer.ticks > 2
    assert answer.active > 2


def test_these_are_at_least_twelve():
    """With a slow network and a dead watchdog, which tests/deploy/loop has, every fault but a refused bundle."""
    names = {
        *CONTENT.values(),
        *(name for *_, name in AGE.values()),
        *SENSORS.values(),
        "second_commander",
        "operator_stop",
        "action_rate",
    }
    assert len(names) == 15


@pytest.mark.parametrize(
    "faults", ["drop=0.2", "duplicate", "reorder=0.3", "jitter=0.004", "corrupt=0.2", "delay=0.004"]
)
def test_a_poor_network_is_no_fault(session, faults):
    _, report = session(faults, seconds=1.0)
    assert row_of(report)["fault"] in ("", "operator_stop")  # the latter when it ends
    assert report["faults"] == []
    assert report["falls"] == 0
    assert report["policy_s"] >= 1.0
    counted = report["binary"]["transport_counters"]
    wanted = {"drop": "lost", "duplicate": "duplicate", "corrupt": "damaged"}.get(faults.split("=")[0])
    assert wanted is None or counted[wanted] > 0


def test_a_lost_command_is_no_fault_and_the_next_one_counts(session):
    _, report = session("command_drop=0.3,command_delay=0.004@0.5", seconds=1.0)
    assert report["faults"] == []
    assert report["commands"]["lost"] > 0


def test_a_fault_that_stays_ends_the_session_with_its_report(session):
    _, report = session("nan@0.3", seconds=0.0, recover=True)
    assert report["stayed_damped"] == "not_finite"
    assert report["faults"][0]["fault"] == "not_finite"
    assert row_of(report)["happened"]


def test_after_a_fault_the_robot_is_hung_up_and_walks_again(session):
    _, report = session("nan@0.3-0.32", seconds=0.8, recover=True)
    assert [found["fault"] for found in report["faults"]] == ["not_finite"]
    assert report["policy_s"] >= 0.8
    assert [row["phase"] for row in report["phases"]].count("POLICY") == 2
