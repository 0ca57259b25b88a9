"""Messages between the robots of a team, in a contract."""

import pytest
from robot_rl_deploy import contract as contracts
from robot_rl_deploy.contract import ContractError, from_dict, to_dict
from robot_rl_deploy.describe import make_contract

TERMS = (
    {"name": "pos", "signal": "joint_pos", "transform": "minus_default", "unit": "rad", "frame": "joint", "size": 3},
    {"name": "cube", "signal": "measured/cube", "transform": "identity", "unit": "m", "frame": "base", "size": 2},
)


def with_messages(description):
    """The description with a message "arm" of 5 values, sent by each of three robots and received by the two others."""
    received = [{"signal": f"measured/message_arm_{k}", "sender": k} for k in range(2)]
    rows = [
        {"name": f"heard_{k}", "transform": "identity", "unit": "1", "frame": "none", "size": 6}
        | {"signal": received[k]["signal"], "scale": 0.5}
        for k in range(2)
    ]
    cube = dict(TERMS[1])
    figures = {"width": 5, "latency_s": [0.02, 0.06], "loss": 0.1, "max_age_s": 0.2}
    return description | {
        "observations": [*description["observations"], rows[0], cube, rows[1]],
        "team": ["left", "middle", "right"],
        "messages": [{"name": "arm", **figures, "terms": list(TERMS), "received": received}],
    }


@pytest.fixture
def contract(description, training):
    return make_contract(with_messages(description), training)


def test_it_is_read_back_equal(contract):
    assert contracts.loads(contracts.dumps(contract)) == contract
    assert contract.team == ("left", "middle", "right")
    (message,) = contract.messages
    assert [(term.signal, term.scale, term.clip) for term in message.terms] == [
        ("joint_pos", 1.0, None),
        ("measured/cube", 1.0, None),
    ]
    assert {signal: sender for signal, (_, sender) in contract.received.items()} == {
        "measured/message_arm_0": 0,
        "measured/message_arm_1": 1,
    }


def test_a_contract_without_messages_has_no_word_of_them(description, training):
    data = to_dict(make_contract(description, training))
    assert not {"team", "messages"} & set(data)


def changed(data, path, value):
    """The contract's data with one value changed, or left out where it is `...`."""
    node = data
    for key in path[:-1]:
        node = node[key]
    if value is ...:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return data


MESSAGE = ("messages", 0)
LAST_ACTION = {"name": "act", "signal": "last_action", "transform": "identity", "unit": "1", "frame": "none", "size": 3}
LAST_ACTION |= {"scale": 1.0, "clip": None, "history": 1, "params": {}}
# What is changed, and what the one line must contain.
WRONG = [
    ((*MESSAGE, "width"), 4, "message 'arm': width is 4; its terms have 5 values"),
    ((*MESSAGE, "width"), 0, "message 'arm': width is 0; it must be in [1, 64]"),
    (("observations", -1, "size"), 7, "message 'arm': width is 5; an observation reads 7 values of it, must be 6"),
    ((*MESSAGE, "received", 0, "sender"), 2, "message 'arm': sender is 2; it must be in [0, 1]"),
    (
        (*MESSAGE, "received", 0, "signal"),
        "measured/other",
        "message 'arm': received is 'measured/other'; no observation",
    ),
    ((*MESSAGE, "received", 0, "signal"), "measured/message_arm_1", "messages: received is 'measured/message_arm_1'"),
    ((*MESSAGE, "latency_s"), [0.2, 0.1], "message 'arm': latency_s is"),
    ((*MESSAGE, "loss"), 1.0, "message 'arm': loss is 1.0; it must be in [0, 1)"),
    ((*MESSAGE, "max_age_s"), 2.5, "message 'arm': max_age_s is 2.5; 2 s are the most"),
    ((*MESSAGE, "max_age_s"), 0.0, "message 'arm': max_age_s is 0.0; it must be more than 0"),
    ((*MESSAGE, "max_age_s"), ..., "messages[0].max_age_s is missing"),
    ((*MESSAGE, "terms", 0, "scale"), 2.0, "message 'arm': term is 'pos'; it is sent as it is"),
    ((*MESSAGE, "terms", 0, "history"), 2, "message 'arm': term is 'pos'; it is sent as it is"),
    ((*MESSAGE, "terms", 1, "signal"), "measured/ball", "term 'cube': signal is 'measured/ball'; the policy must"),
    (
        (*MESSAGE, "terms", 1, "signal"),
        "measured/message_arm_0",
        "term 'cube': signal is 'measured/message_arm_0'; the",
    ),
    ((*MESSAGE, "terms", 0), LAST_ACTION, "message 'arm': term 'act': signal is 'last_action'"),
    (("team",), ["left"], "team is 'a list of 1'; it must have 2 to 16 robots"),
    (("team",), ["left", "left", "right"], "team is 'left'; the name is given twice"),
    (("team",), ..., "team is"),
    (("messages",), ..., "team is"),
]


@pytest.mark.parametrize(("path", "value", "line"), WRONG, ids=[line for *_, line in WRONG])
def test_what_is_wrong_is_named(contract, path, value, line):
    data = changed(to_dict(contract), path, value)
    if path[0] == "observations":
        data["layout"]["observation_size"] += 1
    with pytest.raises(ContractError) as found:
        from_dict(data)
    assert line in str(found.value)
