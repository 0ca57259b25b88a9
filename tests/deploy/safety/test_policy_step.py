"""A control step of the binary gives what the bundle gives in Python, over a whole sequence with resets."""

from pathlib import Path

import numpy as np
import pytest
import robot_rl_tasks
from robot_rl_deploy.bundle import read_bundle
from robot_rl_deploy.policy import BundlePolicy

SHIPPED = Path(robot_rl_tasks.__file__).parent
BUNDLE = SHIPPED / "go2_flat" / "policy"
STATE = {"joint_pos": "joint_pos", "joint_vel": "joint_vel", "imu_gyro": "gyro", "imu_quat_wxyz": "quat_wxyz"}


@pytest.fixture(scope="module")
def golden():
    return read_bundle(BUNDLE).golden


def low_state(runtime, signals, step):
    """The robot's state from the signals of one step."""
    state = runtime.LowState()
    state.sequence, state.robot_time_ns, state.receive_time_ns = step + 1, 20_000_000 * step, 7 + step
    state.joints = signals["joint_pos"].shape[1]
    for signal, field in STATE.items():
        if signal in signals:
            setattr(state, field, signals[signal][step])
    return state


@pytest.mark.parametrize("name", ["go2_flat", "panda_reach"])
def test_steps_agree_with_python(runtime, name):
    bundle = SHIPPED / name / "policy"
    python, policy, golden = BundlePolicy(bundle), runtime.open_policy(bundle), read_bundle(bundle).golden
    assert set(golden.signals) <= set(STATE) | {"command"}
    for step in range(len(golden.reset)):
        signals = {name: values[step] for name, values in golden.signals.items()}
        if golden.reset[step]:
            python.reset()
        target, action, observation = python.act(signals)
        out = policy.step(low_state(runtime, golden.signals, step), list(signals["command"]), bool(golden.reset[step]))
        assert out.ok
        np.testing.assert_allclose(policy.observation, observation[0], atol=1e-6)
        np.testing.assert_allclose(out.action, action[0], atol=1e-5)
        np.testing.assert_allclose(out.target, target[0], atol=1e-5)
        assert (out.step, out.state_sequence, out.reset) == (step, step + 1, bool(golden.reset[step]))
        assert (out.state_robot_time_ns, out.state_receive_time_ns) == (20_000_000 * step, 7 + step)
        assert out.begin_ns <= out.observed_ns <= out.done_ns


def test_targets_stay_within_the_largest_error(runtime):
    """The network's targets go beyond it in most states of the golden sequence; the binary's never do."""
    bundle = SHIPPED / "panda_reach" / "policy"
    policy, golden, actions = (
        runtime.open_policy(bundle),
        read_bundle(bundle).golden,
        BundlePolicy(bundle).contract.actions,
    )
    at = golden.signals["joint_pos"][:, : len(actions)]
    most = np.array([action.max_error for action in actions], np.float32)
    assert (np.abs(golden.joint_target - at) > most).any(axis=1).mean() > 0.5
    for step in range(len(golden.reset)):
        command = list(golden.signals["command"][step])
        out = policy.step(low_state(runtime, golden.signals, step), command, bool(golden.reset[step]))
        want = np.clip(golden.joint_target[step], at[step] - most, at[step] + most)
        np.testing.assert_allclose(out.target, want, atol=1e-4)


def test_a_reset_forgets_everything(runtime, golden):
    policy = runtime.open_policy(BUNDLE)
    command = list(golden.signals["command"][0])
    states = [low_state(runtime, golden.signals, step) for step in range(5)]
    first = policy.step(states[0], command, reset=True)
    for state in states:
        policy.step(state, command)
    again = policy.step(states[0], command, reset=True)
    assert first.action == again.action
    assert policy.step(states[0], command).action != first.action


def test_a_command_of_another_size_is_refused(runtime, golden):
    policy = runtime.open_policy(BUNDLE)
    with pytest.raises(runtime.UserError, match="command: 1 components; the contract has 3"):
        policy.step(low_state(runtime, golden.signals, 0), [0.0])
