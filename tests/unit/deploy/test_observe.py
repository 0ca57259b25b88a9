import math

import numpy as np
import pytest
from robot_rl_deploy.describe import make_contract
from robot_rl_deploy.observe import Observer, needed_signals, projected_gravity
from robot_rl_deploy.strict import ContractError

GYRO, GRAVITY, COMMAND, POS, VEL = slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 15), slice(15, 24)
TAIL, LAST, CLOCK = slice(24, 26), slice(26, 28), slice(28, 30)


@pytest.fixture
def contract(description, training):
    return make_contract(description, training)


def state(**changes):
    plain = {
        "joint_pos": [0.1, -1.5, math.pi],
        "joint_vel": [0.0, 0.0, 0.0],
        "imu_gyro": [0.0, 0.0, 0.0],
        "imu_quat_wxyz": [1.0, 0.0, 0.0, 0.0],
        "command": [0.0, 0.0, 0.0],
    }
    return {name: np.array(value, np.float32) for name, value in (plain | changes).items()}


def test_values_by_hand(contract):
    raw = state(imu_gyro=[1, -4, 0.5], joint_pos=[0.3, -1.0, math.pi / 6], joint_vel=[2, -4, 6], command=[0.5, 0, -1])
    seen = Observer(contract).observe(raw)[0]
    np.testing.assert_allclose(seen[GYRO], [0.25, -0.5, 0.125], atol=1e-7)  # clipped at 2, then scaled by 0.25
    np.testing.assert_allclose(seen[GRAVITY], [0, 0, -1], atol=1e-7)
    np.testing.assert_allclose(seen[COMMAND], [1, 0, -2], atol=1e-7)
    np.testing.assert_allclose(seen[POS], 2 * [0.2, 0.5, math.pi / 6 - math.pi], atol=1e-6)
    np.testing.assert_allclose(seen[VEL], 3 * [0.1, -0.2, 0.3], atol=1e-7)
    np.testing.assert_allclose(seen[TAIL], [0.5, math.sqrt(3) / 2], atol=1e-6)
    np.testing.assert_array_equal(seen[LAST], [0, 0])
    np.testing.assert_array_equal(seen[CLOCK], [0, 1])


def test_projected_gravity_by_hand():
    half = math.sqrt(0.5)
    nose_up = [half, 0, -half, 0]  # -90 degrees about y: x points up, so gravity is along -x
    on_left = [half, half, 0, 0]  # 90 degrees about x: y points up
    turned = [half, 0, 0, half]  # about z: nothing changes
    found = projected_gravity(np.array([nose_up, on_left, turned], np.float32))
    np.testing.assert_allclose(found, [[-1, 0, 0], [0, -1, 0], [0, 0, -1]], atol=1e-6)


def test_projected_gravity_is_the_inverse_rotation():
    rng = np.random.default_rng(0)
    quat = rng.normal(size=(50, 4))
    quat /= np.linalg.norm(quat, axis=1, keepdims=True)
    w, v = quat[:, :1], quat[:, 1:]
    down = np.array([0.0, 0.0, -1.0])
    # v' = q^-1 (0, v) q by two cross products
    turned = down - 2 * w * np.cross(v, down) + 2 * np.cross(v, np.cross(v, down))
    np.testing.assert_allclose(projected_gravity(quat.astype(np.float32)), turned, atol=5e-7)


def test_history_is_oldest_first_and_filled_after_a_reset(contract):
    observer = Observer(contract, num_envs=2)
    hips = []
    for step in range(5):
        if step == 3:
            observer.reset(np.array([False, True]))
        raw = {name: np.stack([value, value]) for name, value in state(joint_vel=[20.0 * step, 0, 0]).items()}
        hips.append(observer.observe(raw)[:, VEL][:, ::3])
    np.testing.assert_allclose(hips[0], [[0, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(hips[2], [[0, 1, 2], [0, 1, 2]])
    np.testing.assert_allclose(hips[3], [[1, 2, 3], [3, 3, 3]])
    np.testing.assert_allclose(hips[4], [[2, 3, 4], [3, 3, 4]])


def test_the_clock_counts_steps_and_waits_for_a_command(contract):
    observer = Observer(contract)
    walking, standing = state(command=[0.0, 0.2, 0.0]), state(command=[0.09, 0.0, 0.0])
    clock = [observer.observe(standing if step == 3 else walking)[0, CLOCK] for step in range(30)]
    # 2 Hz at 0.02 s: 0.04 turns a step, 25 steps a turn
    for step, (sine, cosine) in enumerate(clock):
        angle = 2 * math.pi * 0.04 * step
        wanted = (0, 0) if step == 3 else (math.sin(angle), math.cos(angle))
        np.testing.assert_allclose((sine, cosine), wanted, atol=1e-6)
    np.testing.assert_allclose(clock[25], (0, 1), atol=1e-6)
    observer.reset()
    np.testing.assert_array_equal(observer.observe(walking)[0, CLOCK], [0, 1])


def test_the_clock_stays_exact_for_an_hour(contract):
    observer = Observer(contract)
    observer.observe(state())
    observer._steps[:] = 25 * 7200
    np.testing.assert_allclose(observer.observe(state(command=[1, 0, 0]))[0, CLOCK], [0, 1], atol=1e-6)


def test_last_action_is_zero_after_a_reset(contract):
    observer = Observer(contract, num_envs=2)
    observer.last_action[:] = 0.5
    observer.reset(np.array([True, False]))
    raw = {name: np.stack([value, value]) for name, value in state().items()}
    np.testing.assert_array_equal(observer.observe(raw)[:, LAST], [[0, 0], [0.5, 0.5]])


def test_joints_in_another_order_give_the_same_observation(contract, random_states):
    own, permuted = Observer(contract, 4), Observer(contract, 4, ["tail", "hip", "knee"])
    for raw in random_states(4, 5):
        moved = raw | {name: raw[name][:, [2, 0, 1]] for name in ("joint_pos", "joint_vel")}
        np.testing.assert_array_equal(own.observe(raw), permuted.observe(moved))


def test_a_batch_is_each_robot_on_its_own(contract, random_states):
    batch, single = Observer(contract, 3), [Observer(contract) for _ in range(3)]
    for raw in random_states(3, 6):
        together = batch.observe(raw)
        apart = [one.observe({name: value[i] for name, value in raw.items()}) for i, one in enumerate(single)]
        np.testing.assert_array_equal(together, np.concatenate(apart))


def test_what_a_robot_has_to_deliver(contract):
    assert needed_signals(contract) == ("imu_gyro", "imu_quat_wxyz", "command", "joint_pos", "joint_vel")


def test_a_missing_or_odd_signal_is_named(contract):
    raw = state()
    with pytest.raises(ContractError, match="no signal 'imu_gyro'"):
        Observer(contract).observe({name: value for name, value in raw.items() if name != "imu_gyro"})
    with pytest.raises(ContractError, match=r"'joint_vel' has shape \(1, 2\); the contract needs \(1, 3\)"):
        Observer(contract).observe(raw | {"joint_vel": np.zeros(2, np.float32)})
    with pytest.raises(ContractError, match="missing tail"):
        Observer(contract, joint_names=["hip", "knee"])
