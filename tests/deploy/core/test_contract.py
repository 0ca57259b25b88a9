"""The contract's reader in C++ refuses what the one in Python refuses, and reads the rest alike."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from robot_rl_deploy import contract as contracts
from robot_rl_deploy.describe import make_contract
from robot_rl_deploy.strict import ContractError, is_printable

from tests.deploy.conftest import load

fuzz = load("unit/fuzz/conftest.py")
known = load("unit/fuzz/test_contract.py")
WRONG = load("unit/deploy/test_contract.py").WRONG
measured = load("unit/deploy/test_measured.py")
images = load("unit/deploy/test_images.py")
messages = load("unit/deploy/test_messages.py")


def verdicts(rt, text):
    """What both readers say of the bytes of a contract.json: a contract or None, and the line."""
    try:
        python, line = contracts.loads(text.decode()), None
    except (ContractError, UnicodeDecodeError) as error:
        python, line = None, str(error)
    try:
        core, core_line = rt.read_contract(text), None
    except rt.ContractError as error:
        core, core_line = None, str(error)
    assert (python is None) == (core is None), f"Python: {line or 'accepted'}; C++: {core_line or 'accepted'}"
    if core_line is not None:
        assert core_line
        assert "\n" not in core_line
        assert len(core_line) <= 1000 + 100
    return python, core, core_line


def same(python, core):
    """Every field that the core shows is the one that Python read."""
    assert core.robot == python.robot
    assert core.joint_names == list(python.joint_names)
    for ours, theirs in zip(python.joints, core.joints, strict=True):
        for name in ("default_pos", "kp", "kd", "effort_limit"):
            assert getattr(ours, name) == getattr(theirs, name)
        infinite = {"velocity_limit": float("inf"), "lower": float("-inf"), "upper": float("inf")}
        for name, value in infinite.items():
            assert getattr(theirs, name) == (value if getattr(ours, name) is None else getattr(ours, name))
    for ours, theirs in zip(python.actions, core.actions, strict=True):
        assert (ours.joint, ours.kind) == (theirs.joint, theirs.kind)
        assert python.joint_names[theirs.joint_index] == ours.joint
        assert (ours.scale, ours.offset) == (theirs.scale, theirs.offset)
        for name in ("clip", "max_error"):
            most = getattr(ours, name)
            assert getattr(theirs, name) == (float("inf") if most is None else most)
    layout = python.layout
    assert core.observation_size == layout.observation_size
    assert (core.action_size, core.state_size) == (layout.action_size, layout.state_size)
    assert core.control_period_s == python.control_period_s
    assert core.fallback_pose == [python.fallback_pose[name] for name in python.joint_names]
    assert core.command_names == [item.name for item in python.command]
    for name, size in python.signal_sizes().items():
        assert core.signal_size(name) == size
    from robot_rl_deploy.observe import needed_signals

    assert core.needed_signals() == list(needed_signals(python))


@pytest.mark.parametrize("name", known.CONTRACTS)
def test_contracts_are_read_alike(rt, name):
    python, core, _ = verdicts(rt, json.dumps(known.CONTRACTS[name]).encode())
    same(python, core)


@pytest.mark.parametrize(("width", "units", "unit"), [(3, "m", "m"), (7, "m, m, m, 1, 1, 1, 1", "1"), (1, "1", "1")])
def test_the_contract_of_a_command_of_another_kind_is_read_alike(rt, description, training, width, units, unit):
    description["command"] = {"name": "target", "ranges": {f"c{k}": [-1.0, 1.0] for k in range(width)}}
    description["observations"][2] |= {"unit": units, "size": width}
    python, core, line = verdicts(rt, contracts.dumps(make_contract(description, training)).encode())
    assert line is None
    same(python, core)
    assert python.observations[2].unit == unit
    assert core.signal_size("command") == width


@pytest.mark.parametrize(("path", "value", "line"), WRONG, ids=[f"{p[-1]}={v!r:.20}" for p, v, _ in WRONG])
def test_a_wrong_field_is_named(rt, description, training, path, value, line):
    data = contracts.to_dict(make_contract(description, training))
    place = data
    for key in path[:-1]:
        place = place[key]
    if value == "del":
        del place[path[-1]]
    else:
        place[path[-1]] = value
    _, core, said = verdicts(rt, json.dumps(data).encode())
    assert core is None
    field = line.partition(";")[0].partition(" is ")[0]
    assert field in said, f"the line of the core: {said}"


@pytest.mark.parametrize(("changes", "line"), measured.WRONG, ids=[line for _, line in measured.WRONG])
def test_a_wrong_measured_signal_is_named(rt, description, training, changes, line):
    data = contracts.to_dict(make_contract(measured.with_measured(description), training))
    _, core, said = verdicts(rt, json.dumps(measured.changed(data, changes)).encode())
    assert core is None
    assert line.partition(";")[0].partition(" is ")[0] in said


@pytest.mark.parametrize(("path", "value", "line"), messages.WRONG, ids=[line for *_, line in messages.WRONG])
def test_a_wrong_message_is_named(rt, description, training, path, value, line):
    data = contracts.to_dict(make_contract(messages.with_messages(description), training))
    data = messages.changed(data, path, value)
    if path[0] == "observations":
        data["layout"]["observation_size"] += 1
    _, core, said = verdicts(rt, json.dumps(data).encode())
    assert core is None
    assert line.partition(";")[0].partition(" is ")[0] in said


def test_messages_are_read_alike(rt, description, training):
    text = contracts.dumps(make_contract(messages.with_messages(description), training)).encode()
    python, core, line = verdicts(rt, text)
    assert line is None
    same(python, core)
    assert core.team == list(python.team)
    # What it receives comes after what the robot measures itself.
    assert (core.measured_size, core.received_size) == (2 + 2 * 6, 2 * 6)


def test_measured_values_are_read_alike(rt, description, training):
    data = contracts.to_dict(make_contract(measured.with_measured(description), training))
    for size, total in ((4, 7), (1021, 1024)):
        text = json.dumps(measured.changed(data, {"turn": {"size": size}})).encode()
        python, core, _ = verdicts(rt, text)
        same(python, core)
        assert core.measured_size == total


@pytest.mark.parametrize(("field", "value", "line"), images.WRONG, ids=[line for *_, line in images.WRONG])
def test_a_wrong_image_is_named(rt, description, training, field, value, line):
    data = contracts.to_dict(make_contract(images.with_image(description), training))
    python, core, _ = verdicts(rt, json.dumps(data).encode())
    same(python, core)
    _, core, said = verdicts(rt, json.dumps(images.changed(data, field, value)).encode())
    assert core is None
    assert line.partition(";")[0].partition(" is ")[0] in said


@pytest.mark.parametrize("name", known.CONTRACTS)
@given(data=st.data())
def test_a_contract_with_other_values(rt, name, data):
    result = json.loads(json.dumps(known.CONTRACTS[name]))
    for _ in range(data.draw(st.integers(1, 3))):
        if result:
            fuzz.damage(data.draw, result)
    python, core, _ = verdicts(rt, json.dumps(result).encode())
    if python is not None:
        same(python, core)


BYTES = st.one_of(st.binary(max_size=16), st.sampled_from((b"\0", b"\xff", b"[" * 300, b"1e999", b"-", b'"', b"\\u12")))


@given(data=st.data())
def test_a_contract_with_other_bytes(rt, data):
    text = bytearray(json.dumps(known.KNOWN, ensure_ascii=False).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at, more = data.draw(st.integers(0, len(text))), data.draw(BYTES)
        text[at : at + data.draw(st.integers(0, 12))] = more
    python, core, _ = verdicts(rt, bytes(text))
    if python is not None:
        same(python, core)


@given(text=st.text(max_size=20))
@example(text="a\u00adb")
@example(text="\U0001f600")
@example(text="\u4e2d\u6587 \u00fc")
def test_the_same_texts_can_be_printed(rt, text):
    assert rt.is_printable(text.encode(errors="surrogatepass")) == is_printable(text)


def test_every_character_is_judged_alike(rt):
    for code in range(0x11000):
        text = chr(code)
        assert rt.is_printable(text.encode(errors="surrogatepass")) == is_printable(text), hex(code)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[1, 2]",
        b"null",
        b'{"robot": "a", "robot": "b"}',
        b"[" * 100_000,
        b'{"schema_version": ' + b"1" * 5000 + b"}",
        b'{"schema_version": 1.0}',
        b'{"schema_version": 01}',
        b'{"schema_version": 1} x',
        b"\xef\xbb\xbf{}",
        b"\xff\xfe{}",
        b'{"a": "\xed\xa0\x80"}',
        b'{"a": "\\ud800"}',
        b'{"a\\nb": 1}',
        b'{"a": .5}',
        b'{"a": 1.}',
        b'{"a": "\t"}',
        b'{"a": True}',
        b'{"a": 1,}',
    ],
    ids=range(20),
)
def test_text_that_is_no_contract(rt, text):
    assert verdicts(rt, text)[1] is None


def test_joints_are_resolved_by_name(rt, description, training):
    contract = rt.read_contract(contracts.dumps(make_contract(description, training)).encode())
    assert contract.resolve_joints(["tail", "hip", "knee"]) == [1, 2, 0]
    for names, line in (
        (["hip", "knee"], "missing tail"),
        (["hip", "knee", "tail", "fin"], "extra fin"),
        (["hip", "knee", "fin"], "missing tail; extra fin"),
        (["hip", "hip", "knee", "tail"], "twice"),
    ):
        with pytest.raises(rt.ContractError, match=line):
            contract.resolve_joints(names)
