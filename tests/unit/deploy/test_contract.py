import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import robot_rl_deploy.contract as contract_module
from robot_rl_deploy.contract import dumps, from_dict, loads, resolve_joints, to_dict
from robot_rl_deploy.describe import make_contract
from robot_rl_deploy.strict import ContractError


@pytest.fixture
def contract(description, training):
    return make_contract(description, training)


def test_reads_back_equal_and_bit_exact(contract):
    again = loads(dumps(contract))
    assert again == contract
    assert again.joints[2].default_pos.hex() == (3.141592653589793).hex()
    assert '"kp": 20.0' in dumps(contract)
    assert "3.141592653589793" in dumps(contract)


def test_infinite_limits_are_no_limits(contract):
    tail = contract.joints[2]
    assert (tail.lower, tail.upper, tail.velocity_limit) == (None, None, None)


def test_sizes_add_up_with_history(contract):
    # 3 gyro + 3 gravity + 3 command + 2*3 positions + 3*3 velocities + 2 tail + 2 last action + 2 clock
    assert contract.layout.observation_size == 30 == 3 + 3 + 3 + 6 + 9 + 2 + 2 + 2


def test_clip_and_gate_are_filled_in(contract):
    by_name = {term.name: term for term in contract.observations}
    assert by_name["gyro"].clip == (-2.0, 2.0)
    assert by_name["gravity"].clip is None
    assert by_name["clock"].params == {"frequency_hz": 2.0, "gate": "command", "gate_norm": 0.1}


def test_needs_only_the_standard_library():
    root = Path(contract_module.__file__).parents[1]
    code = (
        f"import sys; sys.path.insert(0, {str(root)!r}); import robot_rl_deploy.contract; "
        "top = {m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names); "
        "print(sorted(m for m in top if not m.startswith('_')))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['robot_rl_deploy']"


# A path into the contract, the value put there (or "del"), and what the one line must contain.
WRONG = [
    (("schema_version",), 2, "schema_version is 2"),
    (("schema_version",), True, "schema_version is True"),
    (("robot",), "", "robot is ''"),
    (("robot",), 5, "robot is 5; a text"),
    (("color",), "red", "color is unknown"),
    (("layout",), "del", "layout is missing"),
    (("joints", 0, "kp"), "del", "joints[0].kp is missing"),
    (("joints", 0, "kp"), "20", "joints[0].kp is '20'; a number"),
    (("joints", 0, "kp"), True, "joints[0].kp is True"),
    (("joints", 0, "kp"), -1.0, "joint 'hip': kp is -1.0"),
    (("joints", 0, "kd"), float("nan"), "joints[0].kd is nan; a finite number"),
    (("joints", 0, "effort_limit"), float("inf"), "effort_limit is inf"),
    (("joints", 0, "effort_limit"), 10**400, "joints[0].effort_limit"),
    (("joints", 0, "velocity_limit"), 0.0, "velocity_limit is 0.0"),
    (("joints", 0, "lower"), 1.0, "lower is 1.0; it must be less than upper"),
    (("joints", 0, "default_pos"), 1.1, "default_pos is 1.1; the limits of 'hip'"),
    (("joints", 0, "gear"), 1.0, "joints[0].gear is unknown"),
    (("joints", 1, "name"), "hip", "joints is 'hip'; the name is given twice"),
    (("joints",), {}, "joints is {}; a list"),
    (("joints",), [], "joints is []"),
    (("actions", 1, "joint"), "hip", "actions is 'hip'"),
    (("actions", 1, "joint"), "elbow", "joint is 'elbow'; it must be one of hip, knee, tail"),
    (("actions", 1, "joint"), "tail", "its effort_limit is 0"),
    (("actions", 0, "scale"), 0.0, "scale is 0.0"),
    (("actions", 0, "kind"), "speed", "kind is 'speed'; it must be one of position, velocity, effort"),
    (("actions", 0, "kind"), "velocity", "kind is 'velocity'; a velocity target needs a kp of 0"),
    (("actions", 0, "clip"), -1.0, "clip is -1.0"),
    (("actions", 0, "max_error"), -0.1, "action of 'hip': max_error is -0.1; it must be more than 0"),
    (("actions", 0, "max_error"), "0.1", "actions[0].max_error is '0.1'; a number"),
    (("observations", 0, "signal"), "base_lin_vel", "signal is 'base_lin_vel'; no robot measures it"),
    (("observations", 0, "transform"), "minus_default", "transform is 'minus_default'; for imu_gyro"),
    (("observations", 0, "transform"), "square", "transform is 'square'"),
    (("observations", 0, "unit"), "deg/s", "unit is 'deg/s'"),
    (("observations", 0, "frame"), "world", "frame is 'world'"),
    (("observations", 0, "size"), 4, "size is 4; identity of imu_gyro is 3 wide"),
    (("observations", 0, "size"), 3.0, "observations[0].size is 3.0; a whole number"),
    (("observations", 0, "scale"), 0.0, "scale is 0.0"),
    (("observations", 0, "clip"), [2.0, -2.0], "clip is [2.0, -2.0]"),
    (("observations", 0, "clip"), [1.0], "clip is [1.0]"),
    (("observations", 0, "history"), 0, "history is 0"),
    (("observations", 0, "history"), 2, "layout.observation_size is 30; the terms add up to 33"),
    (("observations", 0, "name"), "gravity", "observations is 'gravity'"),
    (("observations", 0, "params"), {"gain": 1.0}, "params.gain is 1.0; there is no such parameter"),
    (("observations", 5, "params", "joints"), ["fin"], "params.joints is 'fin'"),
    (("observations", 5, "params", "joints"), ["tail", "tail"], "params.joints is 'tail'"),
    (("observations", 7, "params", "frequency_hz"), "del", "params.frequency_hz is missing"),
    (("observations", 7, "params", "frequency_hz"), -2.0, "frequency_hz is -2.0"),
    (("observations", 7, "params", "gate"), "joystick", "params.gate is 'joystick'"),
    (("command",), [], "observation 'command' is 'command'; it reads the command, but the contract has none"),
    (("command", 0, "lower"), 2.0, "command 'vx': lower is 2.0"),
    (("layout", "history"), "newest_first", "layout.history is 'newest_first'"),
    (("layout", "order"), "time_major", "layout.order is 'time_major'"),
    (("layout", "fill"), "zero", "layout.fill is 'zero'"),
    (("layout", "action_size"), 3, "layout.action_size is 3"),
    (("control_period_s",), 0.0, "control_period_s is 0.0"),
    (("control_period_s",), 0.012, "control_period_s is 0.012; it must be a multiple"),
    (("fallback_pose", "hip"), 3.0, "fallback_pose.hip is 3.0"),
    (("fallback_pose", "fin"), 0.0, "it must name every joint once; see ['fin']"),
    (("training", "iteration"), -1, "training.iteration is -1"),
    (("training", "run_id"), "", "training.run_id is ''"),
]


@pytest.mark.parametrize(("path", "value", "line"), WRONG, ids=[f"{p[-1]}={v!r:.20}" for p, v, _ in WRONG])
def test_wrong_field_is_refused_in_one_line(contract, path, value, line):
    data = to_dict(contract)
    place = data
    for key in path[:-1]:
        place = place[key]
    if value == "del":
        del place[path[-1]]
    else:
        place[path[-1]] = value
    with pytest.raises(ContractError) as caught:
        from_dict(data)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", '{"robot": "a", "robot": "b"}', "[" * 100_000])
def test_text_that_is_no_contract(text):
    with pytest.raises(ContractError):
        loads(text)


def test_nan_in_the_text_is_refused(contract):
    with pytest.raises(ContractError, match="finite"):
        loads(dumps(contract).replace('"kp": 20.0', '"kp": NaN', 1))


def test_to_dict_shares_nothing(contract):
    data = to_dict(contract)
    data["observations"][7]["params"]["gate"] = "none"
    assert contract.observations[7].params["gate"] == "command"
    assert json.loads(dumps(contract)) == to_dict(contract)


def test_joints_are_resolved_by_name(contract):
    assert resolve_joints(contract, ["tail", "hip", "knee"]) == (1, 2, 0)
    for names, line in (
        (["hip", "knee"], "missing tail"),
        (["hip", "knee", "tail", "fin"], "extra fin"),
        (["hip", "knee", "fin"], "missing tail; extra fin"),
        (["hip", "hip", "knee", "tail"], "twice"),
    ):
        with pytest.raises(ContractError, match=line):
            resolve_joints(contract, names)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"signal": None}, "'gyro' reads no signal of the robot, which no robot can measure"),
        ({"signal": "base_lin_vel_b"}, "'gyro' reads signal 'base_lin_vel_b', which no robot can measure"),
        ({"transform": "square"}, "'gyro': transform is 'square'"),
    ],
)
def test_an_actor_term_that_no_robot_measures_is_refused_by_name(description, training, change, line):
    wrong = copy.deepcopy(description)
    wrong["observations"][0] |= change
    with pytest.raises(ContractError, match=line):
        make_contract(wrong, training)


def test_a_speed_is_a_target_of_a_joint_with_a_kd_alone(description, training):
    description["joints"][0] |= {"kp": 0.0, "kd": 1.0}
    description["actions"][0] |= {"joint": description["joints"][0]["name"], "kind": "velocity", "offset": 0.0}
    assert make_contract(description, training).actions[0].kind == "velocity"
    for change, line in (
        ({"kp": 20.0}, "kind is 'velocity'; a velocity target needs a kp of 0 and a kd of more than 0"),
        ({"kd": 0.0}, "kind is 'velocity'; a velocity target needs a kp of 0 and a kd of more than 0"),
        ({"kd": 1e4}, "kd is 10000.0; effort_limit is reached within a hundredth of velocity_limit"),
        ({"kd": 1e-3}, "effort_limit is .*; gains and limits make"),
        ({"velocity_limit": None}, "velocity_limit is None; a joint with velocity targets needs that limit"),
    ):
        wrong = copy.deepcopy(description)
        wrong["joints"][0] |= change
        with pytest.raises(ContractError, match=line):
            make_contract(wrong, training)
    for change, line in (
        ({"max_error": 0.1}, "only a position target has one"),
        ({"offset": 1e3}, "offset is 1000.0; it turns so fast at an action of 0"),
        ({"scale": 1e9}, "scale is 1000000000.0; it turns so fast at an action of 1"),
    ):
        wrong = copy.deepcopy(description)
        wrong["actions"][0] |= change
        with pytest.raises(ContractError, match=line):
            make_contract(wrong, training)


def test_effort_actions_are_recognized_by_their_gains(description, training):
    description["joints"][0] |= {"kp": 0.0, "kd": 0.0}
    kinds = [action.kind for action in make_contract(description, training).actions]
    assert kinds == ["effort", "position"]


def test_a_description_without_a_field_is_refused(description, training):
    del description["control_period_s"]
    with pytest.raises(ContractError, match="control_period_s is missing"):
        make_contract(description, training)


def test_an_environments_way_of_describing_is_understood(description, training):
    """Joint indices, action fields in common, ranges as _lo and _hi, empty units, a clock without a gate."""
    for action in description["actions"]:
        del action["clip"]
    description |= {"action_kind": "position", "action_clip": 5.0}
    description["command"]["ranges"] = {"vx_lo": -1.0, "vx_hi": 1.5, "vy_lo": -0.6, "vy_hi": 0.6} | {
        "yaw_lo": -1.0,
        "yaw_hi": 1.0,
        "standing": 0.1,
    }
    description["observations"][1]["unit"] = ""
    description["observations"][5]["params"] = {"joint": 2.0}
    description["observations"][7]["params"] = {"frequency_hz": 2.0}
    description["observations"].append(
        {"name": "one", "signal": "joint_pos", "transform": "select", "unit": "m", "frame": "joint", "size": 1}
        | {"params": {"joint": 1.0}}
    )
    contract = make_contract(description, training)
    assert [(item.name, item.lower, item.upper) for item in contract.command][1:] == [("vy", -0.6, 0.6), ("yaw", -1, 1)]
    assert {action.clip for action in contract.actions} == {5.0}
    by_name = {term.name: term for term in contract.observations}
    assert by_name["tail"].params == {"joints": ["tail"]}
    assert by_name["one"].params == {"joints": ["knee"]}
    assert by_name["one"].transform == "identity"
    assert by_name["clock"].params["gate"] == "command"
    assert by_name["gravity"].unit == "1"


def test_a_joint_that_does_not_exist_is_named(description, training):
    description["observations"][5]["params"] = {"joint": 3.0}
    with pytest.raises(ContractError, match=r"'tail': joint is 3.0"):
        make_contract(description, training)
