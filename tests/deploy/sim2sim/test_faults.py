"""What goes wrong between robot and binary: each fault ends in damping, and the commands after it show how soon."""

import pytest

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


def row_of(report):
    (row,) = report["proxy"]
    assert row["happened"]
    return row


@pytest.mark.parametrize(("fault", "name"), CONTENT.items())
def test_a_state_that_is_wrong_damps_at_once(session, fault, name):
    made, report = session(f"{fault}@0.4")
    row = row_of(report)
    assert row["fault"] == name
    # Commands that answered such a state and were not damping: none, whatever the machine's speed.
    assert row["active_after"] == 0
    assert [found["fault"] for found in report["faults"]] == [name]
    assert made.session.phase == "DAMPING"
    print(f"{fault}: {name} after {row['damping_after_ms']:.2f} ms")


@pytest.mark.parametrize(("fault", "case"), AGE.items())
def test_silence_damps_after_its_limit(session, fault, case):
    setting, limit, name = case
    _, report = session(f"{fault}@0.4", settings={setting: limit})
    row = row_of(report)
    assert row["fault"] == name
    since = row["damping_after_last_good_ms"] / 1e3
    assert since >= limit - 0.02
    print(f"{fault}: {name} {1e3 * (since - limit):.2f} ms after its limit of {1e3 * limit:g} ms")


def test_no_command_is_active_on_an_older_state_than_the_limit(session):
    made, report = session("drop@0.4", settings={"limits.state_age_s": 0.1})
    assert row_of(report)["fault"] == "state_age"
    ages = [note.state_age_ns for note in made.link.notes if note.phase in ("STAND", "POLICY") and not note.from_policy]
    last = max(note.state_sequence for note in made.link.notes)
    # The writer's commands in POLICY tell the age of the state that the policy saw: a control period more.
    assert max(ages) / 1e9 < 0.1 + 0.02 + 3 * TICK_S
    assert all(note.phase != "POLICY" or note.state_sequence <= last for note in made.link.notes)


def test_a_second_commander_damps(session):
    _, report = session("second_commander@0.4")
    assert row_of(report)["fault"] == "second_commander"


def test_the_operator_stops_it(session):
    _, report = session("operator_stop@0.4")
    assert row_of(report)["fault"] == "operator_stop"


def test_an_action_that_jumps_damps(session):
    _, report = session("velocity=5:2@0.4", settings={"limits.action_rate": 0.002})
    assert report["faults"][0]["fault"] == "action_rate"


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


def test_after_a_fault_the_robot_is_hung_up_and_walks_again(session):
    _, report = session("nan@0.3-0.32", seconds=0.8, recover=True)
    assert [found["fault"] for found in report["faults"]] == ["not_finite"]
    assert report["policy_s"] >= 0.8
    assert [row["phase"] for row in report["phases"]].count("POLICY") == 2
