"""Any text as a contract: it is refused in one line, or it is one that can be worked with."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from robot_rl_deploy import contract as contracts
from robot_rl_deploy.observe import Observer
from robot_rl_deploy.strict import ContractError

GO2 = Path(__file__).parents[3] / "tasks" / "robot_rl_tasks" / "go2_flat" / "policy" / "contract.json"
KNOWN = json.loads(GO2.read_text())


def term(name, signal, transform, unit, frame, size, **more):
    keys = ("name", "signal", "transform", "unit", "frame", "size")
    rest = {"scale": 1.0, "clip": None, "history": 1, "params": {}}
    return dict(zip(keys, (name, signal, transform, unit, frame, size), strict=True)) | rest | more


def full_contract():
    """One that has a term of every kind, and a target of another kind."""
    data = json.loads(GO2.read_text())
    data["observations"] = [
        term("gyro", "imu_gyro", "identity", "rad/s", "imu", 3, clip=[-1.0, 1.0]),
        term("gravity", "imu_quat_wxyz", "projected_gravity", "1", "base", 3),
        term("contact", "foot_contact", "identity", "1", "none", 4, history=3),
        term("legs", "joint_pos", "sin_cos", "1", "joint", 2, params={"joints": [data["joints"][0]["name"]]}),
        term(
            "scan",
            "height_scan",
            "minus_offset",
            "m",
            "heading",
            15,
            params={"offset": 0.3, "grid": {"size": [1.0, 0.5], "resolution": 0.25, "offset": [0.0, 0.0]}},
        ),
        term("clock", "clock", "sin_cos_phase", "1", "none", 2, params={"frequency_hz": 2, "gate": "command"}),
    ]
    data["observations"][-1]["params"]["gate_norm"] = 0.1
    data["observations"] += [
        term("cube", "measured/cube_pos", "identity", "m", "base", 3, clip=[-1.0, 1.0]),
        term("turn", "measured/cube_quat", "identity", "1", "world", 4, history=2),
    ]
    data["layout"]["observation_size"] = 48
    data["layout"]["state_size"] = 8
    wheel = data["actions"][0]["joint"]
    for joint in data["joints"]:
        if joint["name"] == wheel:
            joint |= {"kp": 0.0, "lower": None, "upper": None}
    data["actions"][0] |= {"kind": "velocity", "scale": 5.0, "offset": 0.0}
    return data


CONTRACTS = {"go2_flat": KNOWN, "full": full_contract()}


def usable(contract):
    """What was read can be written and read again, and a robot that gives what it asks for is observed."""
    assert contracts.loads(contracts.dumps(contract)) == contract
    observer, sizes = Observer(contract), contract.signal_sizes()
    with np.errstate(all="ignore"):
        seen = observer.observe({name: np.ones((1, size), np.float32) for name, size in sizes.items()})
    assert seen.shape == (1, contract.layout.observation_size)


@given(text=st.one_of(st.text(), st.binary().map(lambda data: data.decode("latin-1"))))
@example(text="[" * 100_000)
@example(text='{"schema_version": ' + "1" * 5000 + "}")
@example(text='{"a\\nb": 1}')
def test_text(text, refuses):
    refuses(ContractError, contracts.loads, text)


@pytest.mark.parametrize("name", CONTRACTS)
@given(data=st.data())
def test_a_contract_with_other_values(name, data, damaged, refuses):
    found, _ = refuses(ContractError, contracts.from_dict, damaged(data.draw, CONTRACTS[name]))
    if found is not None:
        usable(found)


def put(*path):
    """The full contract with another value at a place of it."""
    data, (*parents, last, value) = full_contract(), path
    place = data
    for key in parents:
        place = place[key]
    place[last] = value
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (put("observations", 4, "params", "grid", "resolution", 5e-324), "more than 1048576 points"),
        (put("physics_timestep_s", 5e-324), "a multiple of physics_timestep_s"),
        (put("observations", 3, "params", "joints", []), "size is 2"),
        (put("observations", 2, "size", -4), r"size is -4; it must be in"),
        (put("observations", 2, "size", 2**21), r"size is 2097152; it must be in"),
        (put("robot", "a\nb"), "a text that can be printed is needed"),
        (put("a\nb", 1), "a b is unknown"),
        (put("robot", 10**5000), "robot is a int too large to show"),
        (put("x" * 9999, 1), r"xxx \.\.\. "),
    ],
)
def test_what_fuzzing_found(data, message):
    with pytest.raises(ContractError, match=message):
        contracts.from_dict(data)


def test_the_full_contract_is_one():
    usable(contracts.from_dict(full_contract()))


@given(data=st.data())
def test_a_contract_with_other_bytes(data, broken, refuses):
    text = broken(data.draw, json.dumps(KNOWN).encode()).decode("latin-1")
    found, _ = refuses(ContractError, contracts.loads, text)
    if found is not None:
        usable(found)
