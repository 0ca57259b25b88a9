"""The observer in C++ gives the bits of the one in Python; sine and cosine of a joint to one unit in the last place."""

import json

import numpy as np
import pytest
from robot_rl_deploy import contract as contracts
from robot_rl_deploy.bundle import read_bundle
from robot_rl_deploy.observe import Observer

from tests.deploy.conftest import load

known = load("unit/fuzz/test_contract.py")
STEPS = 250


def everything():
    """A contract with every transform, clips, subsets of joints, gates, histories of 1 to 7 and eleven commands."""
    data = json.loads(json.dumps(known.KNOWN))
    names = [joint["name"] for joint in data["joints"]]
    data["command"] = [{"name": f"c{i}", "lower": -1.0, "upper": 1.0} for i in range(11)]
    clock = {"frequency_hz": 1.3, "gate": "command", "gate_norm": 3.0}
    grid = {"size": [1.0, 0.5], "resolution": 0.25, "offset": [0.0, 0.0]}
    term = known.term
    terms = [
        term("gyro", "imu_gyro", "identity", "rad/s", "imu", 3, clip=[-1.0, 0.0], history=2),
        term("acc", "imu_acc", "identity", "m/s^2", "imu", 3, scale=0.1),
        term("quat", "imu_quat_wxyz", "identity", "1", "base", 4),
        term("gravity", "imu_quat_wxyz", "projected_gravity", "1", "base", 3, history=7),
        term("contact", "foot_contact", "identity", "1", "none", 4, history=3),
        term("force", "foot_force", "identity", "N", "none", 4, scale=0.01),
        term("pos", "joint_pos", "minus_default", "rad", "joint", 12, history=3, scale=1.7),
        term("few", "joint_pos", "minus_default", "rad", "joint", 2, params={"joints": [names[7], names[2]]}),
        term("raw", "joint_pos", "identity", "rad", "joint", 12),
        term("vel", "joint_vel", "identity", "rad/s", "joint", 12, scale=0.05, clip=[-0.5, 0.7]),
        term("scan", "height_scan", "minus_offset", "m", "heading", 15, params={"offset": 0.3, "grid": grid}),
        term("cube", "measured/cube", "identity", "m", "base", 3, clip=[-0.4, 0.6], history=2),
        term("turn", "measured/_turn", "identity", "1", "world", 4, scale=0.7),
        term("raw_cube", "measured/cube", "identity", "m", "base", 3),
        term("command", "command", "identity", "1", "base", 11, history=2),
        term("last", "last_action", "identity", "1", "none", len(data["actions"]), history=2),
        term("clock", "clock", "sin_cos_phase", "1", "none", 2, params=clock, history=2),
        term("free", "clock", "sin_cos_phase", "1", "none", 2, params=clock | {"gate": "none", "frequency_hz": 2}),
    ]
    return with_terms(data, terms)


def with_terms(data, terms):
    data["observations"] = terms
    data["layout"]["observation_size"] = sum(item["size"] * item["history"] for item in terms)
    return data


def joint_angles():
    data = json.loads(json.dumps(known.KNOWN))
    return with_terms(data, [known.term("legs", "joint_pos", "sin_cos", "1", "joint", 24, history=2)])


def play(rt, text, seed, special=()):
    """Observations of both over random signals with resets: (steps, size) each."""
    python = contracts.loads(text)
    ours, theirs = Observer(python), rt.Observer(rt.read_contract(text.encode()))
    rng, rows = np.random.default_rng(seed), []
    for step in range(STEPS):
        if step in (60, 61, 180):
            ours.reset()
            theirs.reset()
        state = {name: signal(rng, step, size, special) for name, size in python.signal_sizes().items()}
        rows.append((ours.observe(state)[0], theirs.observe(state)))
        action = rng.normal(size=len(python.actions)).astype(np.float32)
        ours.last_action[0] = action
        theirs.set_last_action(action)
    return (np.stack(part) for part in zip(*rows, strict=True))


def signal(rng, step, size, special):
    value = rng.normal(size=size, scale=1 if step % 3 else 0.3).astype(np.float32)
    for number in special:
        value[rng.integers(size)] = number
    return value


@pytest.mark.parametrize("seed", range(3))
def test_the_same_bits(rt, seed):
    python, core = play(rt, json.dumps(everything()), seed)
    assert np.array_equal(python.view(np.uint32), core.view(np.uint32))
    assert np.ptp(python, axis=0).min() > 0, "every element moved"


def test_the_same_bits_of_odd_numbers(rt):
    """Zeros of both signs, denormal and huge numbers."""
    special = (0.0, -0.0, 1e-42, -1e-42, 3e38, -3e38)
    with np.errstate(all="ignore"):
        python, core = play(rt, json.dumps(everything()), 5, special)
    assert np.array_equal(np.isnan(python), np.isnan(core))
    numbers = ~np.isnan(python)
    assert np.array_equal(python[numbers].view(np.uint32), core[numbers].view(np.uint32))


def test_a_nan_passes_through_a_clip(rt):
    with np.errstate(all="ignore"):
        python, core = play(rt, json.dumps(everything()), 5, (np.nan, np.inf))
    assert np.isnan(core).any()
    assert np.array_equal(np.isnan(python), np.isnan(core))


def test_sines_of_joints_to_one_unit_in_the_last_place(rt):
    python, core = play(rt, json.dumps(joint_angles()), 1, (3.1415927, -1.5707964, 6.2831855, 0.0))
    assert np.all(np.abs(python - core) <= np.spacing(np.maximum(np.abs(python), np.abs(core))))


def test_a_real_bundle(rt, go2_bundle):
    golden, core = read_bundle(go2_bundle).golden, rt.Observer(rt.read_bundle(go2_bundle).contract)
    for step, reset in enumerate(golden.reset):
        if reset:
            core.reset()
        seen = core.observe({name: signal[step] for name, signal in golden.signals.items()})
        assert np.array_equal(seen, golden.observation[step]), step
        core.set_last_action(golden.action[step])


def test_a_signal_of_another_size_is_named(rt, go2_bundle):
    contract = rt.read_bundle(go2_bundle).contract
    state = {name: np.zeros(contract.signal_size(name), np.float32) for name in contract.needed_signals()}
    with pytest.raises(rt.ContractError, match="'joint_pos' has 11 values; the contract needs 12"):
        rt.Observer(contract).observe(state | {"joint_pos": np.zeros(11, np.float32)})
    del state["joint_vel"]
    with pytest.raises(rt.ContractError, match="no signal 'joint_vel'"):
        rt.Observer(contract).observe(state)
